//! CPU mirror of `shaders/sort/segments.wgsl`: numbers runs of equal keys.

use crate::{
    cpu::stages::sort::{
        heads::{BLOCK, head},
        live,
    },
    table::layout::{DedupInfo, NONE, Step},
};

/// Turns the counts of the blocks into the segment of each key, the start of each distinct key, and their
/// numbers. Mirror of `shaders/sort/segments.wgsl`.
pub fn segments(
    info: &DedupInfo,
    step: &mut Step,
    keys: &[u32],
    heads: &[u32],
    segment: &mut [u32],
    starts: &mut [u32],
) {
    let n = live(step, info.count, info.capacity);
    step.counts[info.segments as usize] = heads[..n.div_ceil(BLOCK)].iter().sum();
    step.counts[info.valid as usize] = 0;
    let (mut begun, mut first_keys) = (0, 0);
    for i in 0..n {
        if i % BLOCK == 0 {
            begun = first_keys;
            first_keys += heads[i / BLOCK];
        }
        if keys[i] == NONE {
            continue;
        }
        if head(keys, i) {
            starts[begun as usize] = i as u32;
            begun += 1;
        }
        segment[i] = begun - 1;
        step.counts[info.valid as usize] = i as u32 + 1;
    }
}
