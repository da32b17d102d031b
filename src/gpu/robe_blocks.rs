//! Host side of `shaders/robe_blocks.wgsl`: `robe_update` of a packed array.

use super::robe_update;
use crate::shader::Kernel;

pub(crate) const KERNEL: Kernel = Kernel { name: "robe_blocks", ..robe_update::KERNEL };
