use super::scan_add::scan_add;
use crate::layout::ScanInfo;

/// Elements of a block.
pub(super) const BLOCK: usize = 1024;

/// Exclusive prefix sums of blocks of 1,024, in place, and each block's total. Mirror of `shaders/scan.wgsl`.
pub fn scan(info: &ScanInfo, data: &mut [u32], sums: &mut [u32]) {
    for (block, total) in data[..info.n as usize].chunks_mut(BLOCK).zip(sums) {
        let mut before = 0u32;
        for value in block {
            (*value, before) = (before, before.wrapping_add(*value));
        }
        *total = before;
    }
}

/// How many sums each level of a scan of `n` elements needs.
pub(super) fn levels(n: usize) -> Vec<usize> {
    let mut levels = vec![n.div_ceil(BLOCK).max(1)];
    while levels[levels.len() - 1] > 1 {
        levels.push(levels[levels.len() - 1].div_ceil(BLOCK));
    }
    levels
}

/// Scans all of `data`. `sums` holds an array for each of [`levels`].
pub(super) fn scan_all(data: &mut [u32], sums: &mut [Vec<u32>]) {
    let Some((first, rest)) = sums.split_first_mut() else { return };
    let info = ScanInfo { n: data.len() as u32, ..ScanInfo::default() };
    let blocks = data.len().div_ceil(BLOCK);
    scan(&info, data, first);
    if blocks > 1 {
        scan_all(&mut first[..blocks], rest);
        scan_add(&info, data, first);
    }
}
