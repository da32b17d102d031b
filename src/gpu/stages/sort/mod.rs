//! Radix sort and dedup, with three dispatches a pass at any size.

pub(crate) mod dedup;
pub(crate) mod heads;
pub(crate) mod histogram;
pub(crate) mod radix;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod segments;
pub(crate) mod sort_small;
pub(crate) mod space;
