//! CPU mirrors of the stages of sort and dedup.

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

/// Number of keys: the step's count, at most `capacity`.
pub(crate) fn live(step: &Step, count: u32, capacity: u32) -> usize {
    step.counts[count as usize].min(capacity) as usize
}
