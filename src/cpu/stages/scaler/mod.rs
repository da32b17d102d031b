//! CPU mirrors of the stages of loss scaling (SPEC 8).

pub(crate) mod exact;
pub(crate) mod inspect;
pub(crate) mod rescale;

pub(crate) use inspect::inspect;
pub(crate) use rescale::rescale;
