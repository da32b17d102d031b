//! The stages of loss scaling.

pub(crate) mod inspect;
pub(crate) mod rescale;
