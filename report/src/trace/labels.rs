//! Files beside a trace, packed or not: labels (`.labels.u8`, one byte for each bag), and others of its name.

use super::error::TraceError;
use super::{packed, words};
use std::path::{Path, PathBuf};

/// Reads the labels of `bags` bags, each below `classes`.
///
/// # Errors
/// For another number of labels, a label that is no class, or an unreadable file.
pub fn read(path: &Path, bags: usize, classes: u8) -> Result<Vec<u8>, TraceError> {
    let labels = words::bytes(path)?;
    let fail = |wanted: String, found: String| Err(TraceError::of(path, wanted, found, "get the file again"));
    if labels.len() != bags {
        return fail(format!("as many labels as bags, {bags}"), labels.len().to_string());
    }
    match labels.iter().position(|&label| label >= classes) {
        Some(at) => fail(format!("labels from 0 to {}", classes - 1), format!("{} at bag {at}", labels[at])),
        None => Ok(labels),
    }
}

/// Finds `name` in the folder, packed or not.
///
/// # Errors
/// If there is none.
pub fn companion(folder: &Path, name: &str) -> Result<PathBuf, TraceError> {
    let remedy = "get it from where the trace came from";
    let missing = || TraceError::of(&folder.join(name), "this file, or the same with .zst or .gz", "none", remedy);
    packed::companion(folder, name).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn labels_are_counted_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.labels.u8");
        fs::write(&path, [0, 2, 1]).unwrap();
        assert_eq!(read(&path, 3, 3).unwrap(), [0, 2, 1]);
        let message = |bags, classes| read(&path, bags, classes).unwrap_err().to_string();
        assert!(message(4, 3).contains("wanted as many labels as bags, 4, found 3"), "{}", message(4, 3));
        assert!(message(3, 2).contains("wanted labels from 0 to 1, found 2 at bag 1"), "{}", message(3, 2));
    }
}
