//! The buffers that the stages of a cached table bind, and the stages that choose which of its records they bind.

pub(crate) mod exchange;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod send;
pub(crate) mod space;
pub(crate) mod tables;
pub(crate) mod update;
pub(crate) mod windows;
