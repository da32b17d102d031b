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

/// The bytes of floats in a file.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The bytes of a numpy file.
pub(crate) fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let room = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.push_str(&" ".repeat(room - header.len() - 1));
    header.push('\n');
    [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}
