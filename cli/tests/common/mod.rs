//! Helpers that run the command.

pub(crate) mod command;
pub(crate) mod plan;
pub(crate) mod records;

use hotrow_cli::trace::{Source, Trace, load};
use hotrow_harness::data;

/// Loads a trace of the data folder. Without the folder, prints that the test did not run.
pub(crate) fn trace(name: &str) -> Option<Trace> {
    let data = data::folder(name)?;
    Some(load(name, &Source { data: Some(&data), seed: 0 }).unwrap())
}
