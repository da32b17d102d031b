//! CPU mirrors of the stages of a parameter-shared table.

pub(crate) mod robe_blocks;
pub(crate) mod robe_gather;
pub(crate) mod robe_given;
pub(crate) mod robe_gradient;
pub(crate) mod robe_hash;
pub(crate) mod robe_keys;
pub(crate) mod robe_merge;
pub(crate) mod robe_move;
pub(crate) mod robe_scatter;
pub(crate) mod robe_step;
pub(crate) mod robe_update;
pub(crate) mod robe_weight_gradient;
pub(crate) mod robe_weight_sums;

pub(crate) use robe_blocks::robe_blocks;
pub(crate) use robe_gather::robe_gather;
pub(crate) use robe_given::robe_given;
pub(crate) use robe_gradient::robe_gradient;
pub(crate) use robe_hash::robe_hash;
pub(crate) use robe_keys::robe_keys;
pub(crate) use robe_merge::robe_merge;
pub(crate) use robe_scatter::robe_scatter;
pub(crate) use robe_step::robe_step;
pub(crate) use robe_update::robe_update;
pub(crate) use robe_weight_gradient::robe_weight_gradient;
