//! Mirrors of the sort and dedup stages.

pub(crate) mod dedup;
pub(crate) mod heads;
pub(crate) mod histogram;
pub(crate) mod radix;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod segments;
pub(crate) mod sort_small;

pub(crate) use scan::scan;

use crate::table::layout::Step;

/// How many keys there are: as many as a step has counted, and no more than there is room for.
pub(crate) fn live(step: &Step, count: u32, capacity: u32) -> usize {
    step.counts[count as usize].min(capacity) as usize
}
