//! CPU mirror of `shaders/sort/histogram.wgsl`: counts the digits of each block of keys.

use crate::{
    cpu::stages::sort::live,
    table::layout::{Pass, Step},
};

/// Number of keys in a block.
pub(crate) const BLOCK: usize = 3072;

/// Counts the keys of each block by digit: `digits[digit * blocks + block]`. Mirror of `shaders/sort/histogram.wgsl`.
pub fn histogram(pass: &Pass, step: &Step, keys: &[u32], digits: &mut [u32]) {
    let n = live(step, pass.count, pass.capacity);
    let blocks = n.div_ceil(BLOCK);
    digits[..256 * blocks].fill(0);
    for (block, keys) in keys[..n].chunks(BLOCK).enumerate() {
        for key in keys {
            digits[((key >> pass.shift) & pass.mask) as usize * blocks + block] += 1;
        }
    }
}
