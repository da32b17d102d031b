//! `.offsets.u32` files: the start of each bag, and the end of the last one.

use super::error::TraceError;
use super::{packed, words};
use std::path::Path;

/// Reads the starts of the bags over `accesses` ids.
///
/// # Errors
/// Unless they ascend from 0 to `accesses`, or for an unreadable file.
pub fn read(path: &Path, accesses: usize) -> Result<Vec<u32>, TraceError> {
    let offsets = words::read(path)?;
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
pub(super) fn beside(ids: &Path, accesses: usize) -> Result<Option<Vec<u32>>, TraceError> {
    packed::beside(ids, ".offsets.u32").map(|path| read(&path, accesses)).transpose()
}
