//! `.u32` and `.u32.zst` files: little-endian u32 without a header.

use super::error::TraceError;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most bytes whose accesses offsets can count.
const MAX_BYTES: u64 = u32::MAX as u64 * 4;

/// Reads all words of a file, decompressed if its name ends in `.zst`.
pub(super) fn read(path: &Path) -> Result<Vec<u32>, TraceError> {
    let bytes = bytes(path)?;
    if !bytes.len().is_multiple_of(4) {
        return Err(TraceError::Truncated { path: path.into(), bytes: bytes.len() as u64 });
    }
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// Reads all bytes of a file, decompressed if its name ends in `.zst`.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    let io_error = |source| TraceError::Io { path: path.into(), source };
    let file = File::open(path).map_err(io_error)?;
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|ending| ending == "zst") {
        unpack(file, &mut bytes).map_err(|error| TraceError::Zstd { path: path.into(), reason: error.to_string() })?;
    } else {
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io_error)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TraceError::TooLong { path: path.into() });
    }
    Ok(bytes)
}

fn unpack(file: File, bytes: &mut Vec<u8>) -> io::Result<usize> {
    zstd::stream::read::Decoder::new(file)?.take(MAX_BYTES + 1).read_to_end(bytes)
}
