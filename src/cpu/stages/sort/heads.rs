//! CPU mirror of `shaders/sort/heads.wgsl`: counts the distinct keys that begin in each block.

use crate::{
    cpu::stages::sort::live,
    table::layout::{DedupInfo, NONE, Step},
};

/// Number of sorted keys in a block.
pub(crate) const BLOCK: usize = 2048;

/// Whether `keys[i]` is the first of its equals. NONE never is.
pub(crate) fn head(keys: &[u32], i: usize) -> bool {
    keys[i] != NONE && (i == 0 || keys[i - 1] != keys[i])
}

/// Counts the first keys in each block of the sorted keys. Mirror of `shaders/sort/heads.wgsl`.
pub fn heads(info: &DedupInfo, step: &Step, keys: &[u32], heads: &mut [u32]) {
    let n = live(step, info.count, info.capacity);
    for (block, heads) in heads[..n.div_ceil(BLOCK)].iter_mut().enumerate() {
        let first = block * BLOCK;
        *heads = (first..n.min(first + BLOCK)).filter(|&i| head(keys, i)).count() as u32;
    }
}
