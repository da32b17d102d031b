//! Radix sort and dedup, with three dispatches a pass at any size.

pub(crate) mod dedup;
pub(crate) mod radix;
pub(crate) mod space;
