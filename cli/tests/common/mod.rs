//! Helpers that run the command.

pub(crate) mod command;
pub(crate) mod plan;
pub(crate) mod records;

pub(crate) use hotrow_fuzz::npy;
use hotrow_harness::data;
use hotrow_report::trace::{Source, Trace, load};
use tempfile::TempDir;

/// Loads a trace of the data folder. Without the folder, prints that the test did not run.
pub(crate) fn trace(name: &str) -> Option<Trace> {
    let data = data::folder(name)?;
    Some(load(name, &Source { data: Some(&data), seed: 0 }).unwrap())
}

/// The bytes of floats in a file.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

/// The bytes of ids in a file.
pub(crate) fn id_bytes(ids: &[u32]) -> Vec<u8> {
    bytemuck::cast_slice(ids).to_vec()
}

/// Writes a file and returns its path.
pub(crate) fn write(folder: &TempDir, name: &str, content: &[u8]) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}
