//! CPU mirror of `shaders/sort/sort_small.wgsl`: sorts, and dedups, few keys in one dispatch.

use crate::{
    cpu::stages::sort::{heads::head, live},
    table::layout::{NONE, SmallInfo, Step},
};

/// Sorts up to 1,024 keys, and dedups them if asked to. Mirror of `shaders/sort/sort_small.wgsl`.
pub fn sort_small(
    info: &SmallInfo,
    step: &mut Step,
    keys_in: &[u32],
    values_in: &[u32],
    keys_out: &mut [u32],
    values_out: &mut [u32],
    segment: &mut [u32],
    starts: &mut [u32],
) {
    let n = live(step, info.count, info.capacity);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| keys_in[i] & info.mask);
    for (to, &from) in order.iter().enumerate() {
        keys_out[to] = keys_in[from];
        values_out[to] = if info.positions == 1 { from as u32 } else { values_in[from] };
    }
    if info.dedup == 0 {
        return;
    }
    let mut begun = 0;
    step.counts[info.valid as usize] = 0;
    for i in (0..n).filter(|&i| keys_out[i] != NONE) {
        if head(keys_out, i) {
            starts[begun as usize] = i as u32;
            begun += 1;
        }
        segment[i] = begun - 1;
        step.counts[info.valid as usize] = i as u32 + 1;
    }
    step.counts[info.segments as usize] = begun;
}
