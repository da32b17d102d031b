//! CPU mirrors of the shaders of shared arrays, scalers and hash grids: a plain function for each, over the same arrays, with the same
//! name. Integers are the same bit for bit; floats go through the same operations in the same order (SPEC 5).

pub(crate) mod cached;
pub(crate) mod counters;
pub(crate) mod grid;
pub(crate) mod robe;
pub(crate) mod scaler;
