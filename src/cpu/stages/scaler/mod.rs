//! Mirrors of the stages of loss scaling.

pub(crate) mod exact;
pub(crate) mod inspect;
pub(crate) mod rescale;

pub(crate) use inspect::inspect;
pub(crate) use rescale::rescale;
