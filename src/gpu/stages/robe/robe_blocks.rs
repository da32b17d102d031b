//! Host side of `shaders/robe/robe_blocks.wgsl`: `robe_update` for a packed array.

use crate::{gpu::stages::robe::robe_update, wgsl::Kernel};

pub(crate) const KERNEL: Kernel = Kernel { name: "robe_blocks", ..robe_update::KERNEL };
