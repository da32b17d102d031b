//! Mirrors of the sort and dedup stages.

pub(crate) mod dedup;
pub(crate) mod heads;
pub(crate) mod histogram;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod segments;
pub(crate) mod sort;
pub(crate) mod sort_small;

pub(crate) use scan::scan;
