//! A plain function for each shader, over the same arrays: the same integers bit for bit, the same float operations in the same order.

pub(crate) mod cached;
pub(crate) mod robe;
pub(crate) mod scaler;
pub(crate) mod sort;
