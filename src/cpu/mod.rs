//! The CPU side: a plain function for each shader, over the same arrays, with the same integers bit for bit and the same float operations
//! in the same order. `cached/group.rs` has their order; every stage is in the file of its name.
//!
//! The tests compare the GPU with it. It also runs programs without a GPU, on all cores. Results do not depend on the number of cores.
#![allow(clippy::too_many_arguments, reason = "a stage takes the bindings of its shader, in their order")]

pub(crate) mod cached;
pub(crate) mod direct;
pub(crate) mod grid;
pub(crate) mod robe;
pub(crate) mod scaler;
pub(crate) mod stages;
