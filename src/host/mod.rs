//! The machine under the crate: memory, files, threads. `trusted.rs` is the only file with `unsafe`.

pub(crate) mod alloc;
pub(crate) mod pages;
pub(crate) mod positioned;
pub(crate) mod spread;
pub(crate) mod trusted;
