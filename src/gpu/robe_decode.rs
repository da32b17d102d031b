//! Host side of `shaders/robe_decode.wgsl`: `robe_gather` of a packed array.

use super::robe_gather;
use crate::shader::Kernel;

pub(crate) const KERNEL: Kernel = Kernel { name: "robe_decode", ..robe_gather::KERNEL };
