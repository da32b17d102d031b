//! The stages of a step of a parameter-shared table, and the buffers they bind.

pub(crate) mod array;
pub(crate) mod robe_blocks;
pub(crate) mod robe_covered;
pub(crate) mod robe_decode;
pub(crate) mod robe_gather;
pub(crate) mod robe_gradient;
pub(crate) mod robe_hash;
pub(crate) mod robe_keys;
pub(crate) mod robe_merge;
pub(crate) mod robe_runs;
pub(crate) mod robe_scatter;
pub(crate) mod robe_step;
pub(crate) mod robe_update;
pub(crate) mod robe_weight_gradient;
pub(crate) mod space;
