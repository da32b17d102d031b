use super::histogram::BLOCK;
use crate::layout::{Pass, Step};

/// Each key, with its value, to its place; stable. Mirror of `shaders/scatter.wgsl`.
pub fn scatter(
    pass: &Pass,
    step: &Step,
    keys_in: &[u32],
    values_in: &[u32],
    digits: &[u32],
    keys_out: &mut [u32],
    values_out: &mut [u32],
) {
    let n = step.counts[pass.count as usize] as usize;
    let blocks = pass.blocks as usize;
    for (block, keys) in keys_in[..n].chunks(BLOCK).enumerate().take(blocks) {
        let mut next: [u32; 256] = std::array::from_fn(|digit| digits[digit * blocks + block]);
        for (i, &key) in (block * BLOCK..).zip(keys) {
            let place = &mut next[(key >> pass.shift & 255) as usize];
            keys_out[*place as usize] = key;
            values_out[*place as usize] = if pass.first == 1 { i as u32 } else { values_in[i] };
            *place += 1;
        }
    }
}
