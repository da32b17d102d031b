//! CPU mirror of `shaders/sort/scatter.wgsl`: moves keys and values to their sorted places.

use crate::{
    cpu::stages::sort::{histogram::BLOCK, live},
    table::layout::{Pass, Step},
};

/// Moves each key and its value to their place in the order of one digit, and counts the digits of the next pass where the keys arrive;
/// stable. Mirror of `shaders/sort/scatter.wgsl`.
pub fn scatter(
    pass: &Pass,
    step: &Step,
    keys_in: &[u32],
    values_in: &[u32],
    digits: &[u32],
    totals: &[u32],
    keys_out: &mut [u32],
    values_out: &mut [u32],
    next_digits: &mut [u32],
) {
    let n = live(step, pass.count, pass.capacity);
    let blocks = n.div_ceil(BLOCK);
    let mut first = [0; 256];
    for digit in 1..256 {
        first[digit] = first[digit - 1] + totals[digit - 1];
    }
    for (block, keys) in keys_in[..n].chunks(BLOCK).enumerate() {
        let mut next: [u32; 256] = std::array::from_fn(|digit| first[digit] + digits[digit * blocks + block]);
        for (i, &key) in (block * BLOCK..).zip(keys) {
            let place = &mut next[((key >> pass.shift) & pass.mask) as usize];
            keys_out[*place as usize] = key;
            values_out[*place as usize] = if pass.positions == 1 { i as u32 } else { values_in[i] };
            if pass.next_mask != 0 {
                let digit = (key >> (pass.shift + 8)) & pass.next_mask;
                next_digits[digit as usize * blocks + *place as usize / BLOCK] += 1;
            }
            *place += 1;
        }
    }
}
