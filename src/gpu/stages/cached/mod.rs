//! The stages of a step of a cached table, and the buffers they bind.

pub(crate) mod admit;
pub(crate) mod arrange;
pub(crate) mod assign;
pub(crate) mod begin;
pub(crate) mod claim;
pub(crate) mod collect;
pub(crate) mod combine;
pub(crate) mod exchange;
pub(crate) mod gather;
pub(crate) mod halves;
pub(crate) mod linearize;
pub(crate) mod locate;
pub(crate) mod merge;
pub(crate) mod probe;
pub(crate) mod reset;
pub(crate) mod send;
pub(crate) mod space;
pub(crate) mod tables;
pub(crate) mod touch;
pub(crate) mod update;
pub(crate) mod wanted;
pub(crate) mod weight_gradient;
pub(crate) mod windows;
