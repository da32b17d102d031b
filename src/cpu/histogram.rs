use crate::layout::{Pass, Step};

/// Keys of a block.
pub(super) const BLOCK: usize = 2048;

/// How many keys of each block carry each digit, digit-major. Mirror of `shaders/histogram.wgsl`.
pub fn histogram(pass: &Pass, step: &Step, keys: &[u32], digits: &mut [u32]) {
    let n = step.counts[pass.count as usize] as usize;
    let blocks = pass.blocks as usize;
    digits[..256 * blocks].fill(0);
    for (block, keys) in keys[..n].chunks(BLOCK).enumerate().take(blocks) {
        for key in keys {
            digits[(key >> pass.shift & 255) as usize * blocks + block] += 1;
        }
    }
}
