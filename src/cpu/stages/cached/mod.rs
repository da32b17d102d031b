//! What the stages of a cached table and of a shared array have in common.

pub(crate) mod arrange;
pub(crate) mod bags;
pub(crate) mod combine;
pub(crate) mod gradients;
pub(crate) mod linearize;
pub(crate) mod weight_gradient;

pub(crate) use arrange::arrange;
pub(crate) use combine::combine;
pub(crate) use linearize::linearize;
