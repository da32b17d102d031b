//! Host side of `shaders/robe/robe_decode.wgsl`: `robe_gather` for a packed array.

use crate::{gpu::stages::robe::robe_gather, wgsl::Kernel};

pub(crate) const KERNEL: Kernel = Kernel { name: "robe_decode", ..robe_gather::KERNEL };
