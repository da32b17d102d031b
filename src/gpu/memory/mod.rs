//! The memory of groups on a device: planned in advance, and reported from the allocations.

pub(crate) mod cached;
pub(crate) mod plan;
pub(crate) mod robe;
pub(crate) mod robe_plan;
