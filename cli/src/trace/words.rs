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
        let (found, remedy) = (format!("{} bytes", bytes.len()), "the file is cut off or no .u32 file, get it again");
        return Err(TraceError::of(path, "whole ids of 4 bytes", found, remedy));
    }
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// Reads all bytes of a file, decompressed if its name ends in `.zst`.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>, TraceError> {
    let file = File::open(path).map_err(TraceError::io(path))?;
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|ending| ending == "zst") {
        // Else a few kB could fill the memory.
        let length = file.metadata().map_err(TraceError::io(path))?.len();
        let most = length.saturating_mul(4096).saturating_add(8 << 20);
        let whole = unpack(file, &mut bytes, most.min(MAX_BYTES))
            .map_err(|error| TraceError::unreadable(path, Some("zstd"), error))?;
        if !whole && most < MAX_BYTES {
            let wanted = format!("at most {most} bytes, 8 MiB and 4,096 times the length of the packed file");
            return Err(TraceError::of(path, wanted, "more", "unpack it with the program zstd"));
        }
    } else {
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(TraceError::io(path))?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TraceError::too_long(path));
    }
    Ok(bytes)
}

/// Returns whether `bytes` has all of the file.
fn unpack(file: File, bytes: &mut Vec<u8>, most: u64) -> io::Result<bool> {
    zstd::stream::read::Decoder::new(file)?.take(most + 1).read_to_end(bytes)?;
    Ok(bytes.len() as u64 <= most)
}
