//! The buffers that the stages of a parameter-shared table bind, and the stage that updates their weights.

pub(crate) mod array;
pub(crate) mod robe_update;
pub(crate) mod space;
