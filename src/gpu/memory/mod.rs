//! Every byte that groups on a device take: planned beforehand, and reported from what was allocated.

pub(crate) mod cached;
pub(crate) mod plan;
pub(crate) mod robe;
pub(crate) mod robe_plan;
