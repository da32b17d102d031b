//! Files of bytes and of little-endian u32 without a header: `.u32`, and beside a trace its bags (`.offsets.u32`: the start of each, and the end of
//! the last one) and their labels (`.labels.u8`, one byte for each).

use super::error::TraceError;
use super::packed::{self, Input};
use std::path::{Path, PathBuf};

/// The most bytes whose accesses offsets can count.
const MAX_BYTES: u64 = u32::MAX as u64 * 4;

/// Reads all words of a file.
pub(super) fn words(path: &Path) -> Result<Vec<u32>, TraceError> {
    let bytes = bytes(path)?;
    if !bytes.len().is_multiple_of(4) {
        let (found, remedy) = (format!("{} bytes", bytes.len()), "the file is cut off or no .u32 file, get it again");
        return Err(TraceError::of(path, "whole ids of 4 bytes", found, remedy));
    }
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    Input::open(path)?.bytes(MAX_BYTES)
}

/// Reads the starts of the bags over `accesses` ids.
pub fn read_offsets(path: &Path, accesses: usize) -> Result<Vec<u32>, TraceError> {
    let offsets = words(path)?;
    let remedy = "get the file again or remove it to go without bags";
    let fail = |wanted: &str, found: String| Err(TraceError::of(path, wanted, found, remedy));
    match offsets.first() {
        Some(0) => {}
        Some(first) => return fail("a first offset of 0", first.to_string()),
        None => return fail("at least one offset", "an empty file".into()),
    }
    if let Some(at) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        let found = format!("{} after {} at entry {}", offsets[at + 1], offsets[at], at + 1);
        return fail("ascending offsets", found);
    }
    match offsets.last() {
        Some(&last) if last as usize == accesses => Ok(offsets),
        last => fail(&format!("a last offset of {accesses} (the number of ids)"), last.map_or(0, |&l| l).to_string()),
    }
}

/// The bags of an id file, if there is an offsets file beside it.
pub(super) fn offsets_beside(ids: &Path, accesses: usize) -> Result<Option<Vec<u32>>, TraceError> {
    packed::beside(ids, ".offsets.u32").map(|path| read_offsets(&path, accesses)).transpose()
}

/// Reads the labels of `bags` bags, each below `classes`.
pub fn read_labels(path: &Path, bags: usize, classes: u8) -> Result<Vec<u8>, TraceError> {
    let labels = bytes(path)?;
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
        assert_eq!(read_labels(&path, 3, 3).unwrap(), [0, 2, 1]);
        let message = |bags, classes| read_labels(&path, bags, classes).unwrap_err().to_string();
        assert!(message(4, 3).contains("wanted as many labels as bags, 4, found 3"), "{}", message(4, 3));
        assert!(message(3, 2).contains("wanted labels from 0 to 1, found 2 at bag 1"), "{}", message(3, 2));
    }
}
