//! Finds rows in the cache.

use crate::table::{abi::NONE, admission, shares::Sets};

/// The set of a row, and its slot; NONE if it has none.
#[inline(always)]
pub(crate) fn find(sets: &Sets<'_>, ways: &[u32], row: u32) -> (u32, u32) {
    let set = sets.set_of(row);
    (set, find_in(sets.ways, ways, set, row))
}

/// The tags of a set, with which its words begin; none for a row without a set, and for one beyond all rows: a pooling looks ahead for rows of the
/// next bag, counted from the base of this one's table.
#[inline(always)]
pub(crate) fn tags(width: u32, ways: &[u32], set: u32) -> &[u32] {
    let first = 4 * set as usize * width as usize;
    ways.get(first..first + width as usize).unwrap_or_default()
}

/// The slot of a row in its set, or NONE.
#[inline(always)]
pub(crate) fn find_in(width: u32, ways: &[u32], set: u32, row: u32) -> u32 {
    admission::find(tags(width, ways, set), row).map_or(NONE, |way| set * width + way as u32)
}
