//! A group of cached tables on a device. `forward.rs` and `backward.rs` have the order of the stages.

pub(crate) mod backward;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod blocking;
pub(crate) mod feedback;
pub(crate) mod forward;
pub(crate) mod futures;
pub(crate) mod group;
pub(crate) mod maintenance;
pub(crate) mod parts;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod pins;
pub(crate) mod prefetch;
pub(crate) mod prefetched;
pub(crate) mod reader;
#[cfg(not(target_family = "wasm"))]
pub(crate) mod resize;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod shard;
pub(crate) mod staged;
pub(crate) mod storage;
#[cfg(not(target_family = "wasm"))]
mod try_rule;
