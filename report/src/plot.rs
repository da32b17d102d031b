//! Line charts and heat maps as SVG and PNG, large enough to read in a README.

mod chart;
mod draw;
mod heat;
mod records;

pub use chart::{Chart, Panels, Series, Style};
pub use heat::{Heat, Panel};
