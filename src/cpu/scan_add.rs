use super::scan::BLOCK;
use crate::layout::ScanInfo;

/// Adds to each block of 1,024 the total of the blocks before it. Mirror of `shaders/scan_add.wgsl`.
pub fn scan_add(info: &ScanInfo, data: &mut [u32], sums: &[u32]) {
    for (block, sum) in data[..info.n as usize].chunks_mut(BLOCK).zip(sums) {
        block.iter_mut().for_each(|value| *value = value.wrapping_add(*sum));
    }
}
