//! Finds rows in the cache.

use crate::table::{
    hash::fmix32,
    layout::{Field, NONE, Params, way_at},
};

/// The set of a row, and its slot, or NONE.
#[inline(always)]
pub(crate) fn find(params: &Params, ways: &[u32], row: u32) -> (u32, u32) {
    let set = fmix32(row) % params.sets;
    (set, find_in(params.ways(), ways, set, row))
}

/// The slot of a row in its set, or NONE.
#[inline(always)]
pub(crate) fn find_in(width: u32, ways: &[u32], set: u32, row: u32) -> u32 {
    let first = set * width;
    let tags = &ways[way_at(width, first, Field::Tag)..][..width as usize];
    // Compares all tags without a branch. At most one is the row's.
    let mut found = 0;
    if let Ok(tags) = <&[u32; 32]>::try_from(tags) {
        for (way, &tag) in (1..).zip(tags) {
            found |= if tag == row { way } else { 0 };
        }
    } else {
        for (&tag, way) in tags.iter().zip(1..) {
            found |= if tag == row { way } else { 0 };
        }
    }
    if found == 0 { NONE } else { first + found - 1 }
}
