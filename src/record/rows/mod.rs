//! The CPU side's hot loops over rows: sums, unpacking, packing, optimisers.
//!
//! These are plain loops, compiled for several processors (SSE2, AVX2, AVX-512; NEON, SVE; ...). The crate
//! `multiversion` picks one when the program runs. The pick never changes a bit: every version does the same operations
//! in the same order, without fused multiply-adds, and reductions across elements have a fixed order or need none
//! (minimum, maximum). `record::codec` defines the same, one element at a time; the tests compare both bit for
//! bit.

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

pub use move_record::move_record;
pub(crate) use optimise::bound;
pub use optimise::{RowStep, optimise};
pub use pack::pack;
pub use unpack::unpack;

/// A record's payload is read as bytes and halves, so the machine must be little-endian like every device that wgpu
/// knows.
const _: () = assert!(cfg!(target_endian = "little"), "records are packed for little-endian machines");

/// The bits of a float without its sign. Finite values are below [`INFINITE`].
const MAGNITUDE: u32 = 0x7fff_ffff;
/// The bits of infinity.
const INFINITE: u32 = 0x7f80_0000;
