//! A folder of each thread, since the readers take paths.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().unwrap();
}

/// The path of a file of this name, which need not exist.
pub(crate) fn path(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// Writes a file.
pub(crate) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = path(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Removes a file, if it exists.
pub(crate) fn without(name: &str) {
    let _ = fs::remove_file(path(name));
}
