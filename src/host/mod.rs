//! What the crate asks of the machine it runs on: memory, files, threads. `trusted.rs` is the one file with `unsafe`.

pub(crate) mod alloc;
pub(crate) mod disjoint;
pub(crate) mod positioned;
pub(crate) mod spread;
pub(crate) mod trusted;
