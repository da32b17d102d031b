//! Host side of `shaders/scan.wgsl`: exclusive prefix sums of any length, block sums and all.

use super::{
    call::{Call, Groups},
    scan_add,
};
use crate::layout::ScanInfo;
use crate::shader::{
    Access::{ReadWrite, Uniform},
    Kernel,
};

pub(crate) const KERNEL: Kernel =
    Kernel { name: "scan", workgroup: 256, bindings: &[(Uniform, "info"), (ReadWrite, "data"), (ReadWrite, "sums")] };

/// Elements of a workgroup: `SCAN_BLOCK` in `shaders/shared/scan.wgsl`.
pub(crate) const BLOCK: u32 = 1024;

/// How many sums each level of a scan of `n` elements needs.
pub(crate) fn levels(n: u32) -> Vec<u32> {
    let mut levels = vec![n.div_ceil(BLOCK).max(1)];
    while levels[levels.len() - 1] > 1 {
        levels.push(levels[levels.len() - 1].div_ceil(BLOCK));
    }
    levels
}

/// Scans `data` in place. `sums` holds a buffer for each of [`levels`].
pub(crate) fn record(call: &mut Call<'_>, data: &wgpu::Buffer, n: u32, sums: &[wgpu::Buffer]) {
    let blocks = n.div_ceil(BLOCK);
    let info = call.context.uniform(&ScanInfo { n, ..ScanInfo::default() });
    let bindings = [info.as_entire_binding(), data.as_entire_binding(), sums[0].as_entire_binding()];
    call.dispatch(&KERNEL, &bindings, &Groups::Direct(u64::from(blocks)));
    if blocks > 1 {
        record(call, &sums[0], blocks, &sums[1..]);
        scan_add::record(call, &info, data, &sums[0], blocks);
    }
}
