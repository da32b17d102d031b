//! What a table is, without any device: how it is laid out, how a batch is checked, how rows are hashed, counted and pinned.

pub(crate) mod batch;
pub(crate) mod counters;
pub mod hash;
pub(crate) mod layout;
pub(crate) mod params;
pub(crate) mod parts;
pub(crate) mod pins;
pub mod rng;
pub(crate) mod snapshot;
pub(crate) mod ways;
