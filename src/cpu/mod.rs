//! The CPU side. It runs programs without a GPU, on all cores; results do not depend on their number. Tests compare the GPU with it: integers
//! are the same bit for bit, and floats go through the same operations in the same order (SPEC 5).
#![allow(clippy::too_many_arguments, reason = "a stage takes the bindings of its shader, in their order")]

pub(crate) mod cached;
pub(crate) mod grid;
pub(crate) mod robe;
pub(crate) mod scaler;
pub(crate) mod share;
pub(crate) mod sort;
pub(crate) mod stages;
