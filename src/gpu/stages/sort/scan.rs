//! Host side of `shaders/sort/scan.wgsl`: exclusive prefix sums of rows.

use crate::{
    gpu::engine::call::{Call, Groups, kernel},
    table::layout::ScanInfo,
};

kernel! {
    "scan", workgroup 256,
    info: Uniform,
    step: ReadWrite,
    data: ReadWrite,
    totals: ReadWrite,
    cleared: ReadWrite,
}

/// Number of blocks of a row that one invocation takes: `SCAN_SHORT` in `shaders/shared/scan.wgsl`.
const SHORT: u32 = 16;

/// Scans the rows of `data` in place, and writes the sum of each row to `totals`. Clears as many rows of `cleared` if `info` says so; it must
/// be another buffer than `data` in any case.
pub(crate) fn record(
    call: &mut Call<'_>,
    info: &ScanInfo,
    step: &wgpu::Buffer,
    data: &wgpu::Buffer,
    totals: &wgpu::Buffer,
    cleared: &wgpu::Buffer,
) {
    let uniform = call.context.uniform(info);
    let bindings = Bindings {
        info: uniform.as_entire_binding(),
        step: step.as_entire_binding(),
        data: data.as_entire_binding(),
        totals: totals.as_entire_binding(),
        cleared: cleared.as_entire_binding(),
    };
    let short = info.capacity.div_ceil(info.per_block) <= SHORT;
    call.dispatch(bindings, &Groups::of(info.rows, if short { 256 } else { 1 }));
}
