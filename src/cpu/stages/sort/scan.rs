//! CPU mirror of `shaders/sort/scan.wgsl`: exclusive prefix sums of rows.

use crate::{
    cpu::stages::sort::live,
    table::layout::{ScanInfo, Step},
};

/// Replaces each row with its exclusive prefix sums, and writes each row's sum to `totals`. Clears as many rows of `cleared` if asked. Mirror
/// of `shaders/sort/scan.wgsl`.
pub fn scan(info: &ScanInfo, step: &Step, data: &mut [u32], totals: &mut [u32], cleared: &mut [u32]) {
    let length = live(step, info.count, info.capacity).div_ceil(info.per_block as usize);
    for (row, total) in totals[..info.rows as usize].iter_mut().enumerate() {
        let mut before = 0u32;
        for value in &mut data[row * length..][..length] {
            (*value, before) = (before, before.wrapping_add(*value));
        }
        *total = before;
    }
    if info.clears == 1 {
        cleared[..info.rows as usize * length].fill(0);
    }
}
