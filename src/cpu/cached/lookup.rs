//! Finds rows in the cache.

use crate::{
    host::trusted::equal,
    table::abi::{NONE, Params},
};

/// The set of a row, and its slot, or NONE.
#[inline(always)]
pub(crate) fn find(params: &Params, ways: &[u32], row: u32) -> (u32, u32) {
    let set = params.set_of(row);
    (set, find_in(params.ways(), ways, set, row))
}

/// The tags of a set, with which its words begin.
#[inline(always)]
pub(crate) fn tags(width: u32, ways: &[u32], set: u32) -> &[u32] {
    &ways[4 * set as usize * width as usize..][..width as usize]
}

/// The slot of a row in its set, or NONE.
#[inline(always)]
pub(crate) fn find_in(width: u32, ways: &[u32], set: u32, row: u32) -> u32 {
    let first = set * width;
    let tags = tags(width, ways, set);
    if let Ok(tags) = <&[u32; 32]>::try_from(tags) {
        let found = equal(tags, row);
        return if found == 0 { NONE } else { first + found.trailing_zeros() };
    }
    tags.iter().zip(first..).find(|&(&tag, _)| tag == row).map_or(NONE, |(_, slot)| slot)
}
