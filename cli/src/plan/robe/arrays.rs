//! The shared arrays that `plan robe` and `bench robe` look at, and the setting of their records.

use hotrow::Error;
use hotrow::robe::Config;
use hotrow_report::records::Setting;

/// The chunk of ROBE's paper.
pub(crate) const CHUNK: u32 = 32;

/// No compression, and those of ROBE's paper.
pub(crate) const COMPRESSIONS: [f64; 5] = [1.0, 10.0, 100.0, 1000.0, 10_000.0];

/// An array for each compression, or the reason why it cannot be.
pub(crate) fn arrays(
    tables: &[u32],
    dim: u32,
    chunk: u32,
    compressions: &[f64],
) -> impl Iterator<Item = (f64, Result<Config, Error>)> {
    compressions.iter().map(move |&compression| (compression, Config::compressed(tables, dim, compression, chunk)))
}

/// The setting of the records of an array of this compression.
pub(crate) fn setting(config: &Config, compression: f64) -> Setting {
    Setting::default()
        .with("rows", config.tables.iter().map(|&rows| f64::from(rows)).sum::<f64>())
        .with("compression", compression)
        .with("chunk", config.chunk)
        .with("weights", config.weights)
}
