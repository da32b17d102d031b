//! A group of cached tables on the CPU.

pub(crate) mod group;
pub(crate) mod parts;
pub(crate) mod path;
pub(crate) mod pins;
pub(crate) mod resize;
pub(crate) mod steps;
