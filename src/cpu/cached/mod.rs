//! A group of cached tables on the CPU.

pub(crate) mod group;
pub(crate) mod parts;
pub(crate) mod path;
pub(crate) mod pins;
pub(crate) mod resize;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod shard;
pub(crate) mod steps;
