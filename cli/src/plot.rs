//! Line and bar charts and heat maps as SVG and PNG, large enough to read in a README.

mod bars;
mod chart;
mod dashes;
mod draw;
mod heat;
mod records;
mod symmetric;

pub use bars::Bars;
pub use chart::{Chart, Series};
pub use heat::{Heat, Panel};
pub use records::Style;

use crate::report::Record;
use std::path::{Path, PathBuf};

/// Draws a bar for each record, named by its setting, as `stem.svg` and `stem.png`.
pub fn bars<'r>(
    stem: &Path,
    title: &str,
    label: &str,
    records: impl IntoIterator<Item = &'r Record>,
) -> anyhow::Result<[PathBuf; 2]> {
    let mut bars = Bars::new(label);
    bars.title = title.to_owned();
    for record in records {
        bars.record(&record.setting.to_string(), record);
    }
    bars.write(stem)
}
