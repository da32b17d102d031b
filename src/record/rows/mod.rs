//! What costs the time of the CPU side, row by row: sums of rows, unpacking, packing, optimisers.
//!
//! Plain loops, compiled several times (SSE2, AVX2, AVX-512; NEON, SVE; ...) and picked when the program runs, by `multiversion`.
//! The result never depends on the pick: each element goes through the same operations in the same order, nothing is
//! contracted to a fused multiply-add, and what is reduced across elements has an order of its own or needs none (minima, maxima).
//! [`crate::record::codec`] says what a record means, one element at a time; the tests hold these loops to it, bit for bit.

pub(crate) mod gradients;
pub(crate) mod half;
pub(crate) mod lanes;
pub(crate) mod move_record;
pub(crate) mod optimise;
pub(crate) mod pack;
pub(crate) mod payload;
pub(crate) mod sum;
#[cfg(test)]
mod tests;
pub(crate) mod unpack;

pub use crate::host::trusted::prefetch;
pub use move_record::move_record;
pub use optimise::{Rule, optimise};
pub use pack::pack;
pub use sum::{List, Records, sum_records};
pub use unpack::unpack;

/// A record's payload is read as bytes and halves. So do the shaders' words come to lie on every device wgpu knows.
const _: () = assert!(cfg!(target_endian = "little"), "records are packed for little-endian machines");

/// Bits of a float without its sign: finite values are below those of infinity.
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The bits of infinity.
const INFINITE: u32 = 0x7f80_0000;
