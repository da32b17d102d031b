//! `.u32` files: little-endian u32 without a header.

use super::error::TraceError;
use super::packed::Input;
use std::path::Path;

/// The most bytes whose accesses offsets can count.
const MAX_BYTES: u64 = u32::MAX as u64 * 4;

/// Reads all words of a file.
pub(super) fn read(path: &Path) -> Result<Vec<u32>, TraceError> {
    let bytes = bytes(path)?;
    if !bytes.len().is_multiple_of(4) {
        let (found, remedy) = (format!("{} bytes", bytes.len()), "the file is cut off or no .u32 file, get it again");
        return Err(TraceError::of(path, "whole ids of 4 bytes", found, remedy));
    }
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// Reads all bytes of a file.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    Input::open(path)?.bytes(MAX_BYTES)
}
