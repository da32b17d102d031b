//! Finds rows in the cache.

use crate::{
    host::trusted::equal,
    table::{
        abi::{Field, NONE, way_at},
        shares::Sets,
    },
};

/// The set of a row, and its slot; NONE if it has none.
#[inline(always)]
pub(crate) fn find(sets: &Sets<'_>, ways: &[u32], row: u32) -> (u32, u32) {
    let set = sets.set_of(row);
    (set, find_in(sets.ways, ways, set, row))
}

/// The slot of a row in its set, or NONE.
#[inline(always)]
pub(crate) fn find_in(width: u32, ways: &[u32], set: u32, row: u32) -> u32 {
    if set == NONE {
        return NONE;
    }
    let first = set * width;
    let at = way_at(width, first, Field::Tag);
    // A pooling looks ahead for rows of the next bag, counted from the base of this one's table, and so perhaps beyond all rows.
    let Some(tags) = ways.get(at..at + width as usize) else { return NONE };
    if let Ok(tags) = <&[u32; 32]>::try_from(tags) {
        let found = equal(tags, row);
        return if found == 0 { NONE } else { first + found.trailing_zeros() };
    }
    tags.iter().zip(first..).find(|&(&tag, _)| tag == row).map_or(NONE, |(_, slot)| slot)
}
