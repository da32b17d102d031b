//! Tables without a device: layout, checks of a batch, hashes, random bits, counters, parts, pins.

pub(crate) mod abi;
pub mod admission;
pub(crate) mod batch;
pub(crate) mod counters;
pub mod hash;
pub(crate) mod layout;
pub(crate) mod metadata;
pub(crate) mod params;
pub(crate) mod parts;
pub(crate) mod pins;
pub mod rng;
pub(crate) mod row;
pub(crate) mod shares;
pub(crate) mod snapshot;
pub(crate) mod step_state;
#[cfg(all(feature = "ranks", not(target_family = "wasm")))]
pub(crate) mod stripes;
