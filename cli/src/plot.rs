//! Line charts as SVG and PNG, large enough to read in a README.

mod chart;
mod draw;
mod records;

pub use chart::{Chart, Series};
pub use records::Style;
