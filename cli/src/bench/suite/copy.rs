//! The device's bandwidths, measured in the same run: copies within its memory, and to and from host memory that shaders map.

use hotrow::wgpu;

use super::bench::Bench;
use hotrow_report::kernel::{Kernel, bind, layout};
use hotrow_report::records::{Setting, Unit};

/// Each invocation copies 16 bytes a turn, in strides of the whole grid; moving rows is not faster.
const KERNEL: &str = "
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;
@compute @workgroup_size(256)
fn copy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let n = arrayLength(&source);
    for (var i = id.x; i < n; i += groups.x * 256u) {
        target_[i] = source[i];
    }
}
";

/// Measures copies by the driver's command and by a kernel, within the device's memory. If the device maps host memory, copies over the bus
/// follow in both directions; a software driver has no bus. The best figure of each path is kept.
pub(super) fn all(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (clock, none) = (bench.clock, wgpu::BufferUsages::empty());
    // 1 GiB: seventeen times the L2 of an H200, the largest there is.
    let bytes = bench.size.of(32u64 << 20, 1 << 30).min(clock.binding()) & !255;
    {
        let (from, to) = (clock.filled(bytes, none)?, clock.room(bytes, none));
        // Each byte is read and written.
        bench.copy = Some(both(bench, "within device memory", 2, [&from, &to], bytes)?);
    }
    if clock.timed.caps().mappable {
        let bytes = (bytes / 4) & !255;
        let (host, device) = (clock.filled(bytes, wgpu::BufferUsages::MAP_READ)?, clock.room(bytes, none));
        bench.bus = Some(both(bench, "mapped host memory to device", 1, [&host, &device], bytes)?);
        both(bench, "device to mapped host memory", 1, [&device, &host], bytes)?;
    }
    Ok(())
}

/// Bytes a second of the better of command and kernel, where each byte counts `times` times.
fn both(bench: &mut Bench<'_>, path: &str, times: u64, ends: [&wgpu::Buffer; 2], bytes: u64) -> anyhow::Result<f64> {
    let (clock, device) = (bench.clock, bench.clock.timed.device());
    let layout = layout(device, &[true, false]);
    let (kernel, bound) = (Kernel::new(device, ("copy", KERNEL), &[&layout]), bind(device, &layout, &ends));
    // Four turns an invocation, so that several loads are in flight.
    let groups = (bytes / 16).div_ceil(256 * 4).clamp(1, 65_535) as u32;
    let mut best = 0.0;
    for how in ["command", "kernel"] {
        let record = |encoder: &mut wgpu::CommandEncoder| match how {
            "command" => encoder.copy_buffer_to_buffer(ends[0], 0, ends[1], 0, bytes),
            _ => kernel.encode(encoder, &[&bound], groups),
        };
        let measured = clock.repeated(&["copy"], |_, encoder| {
            record(encoder);
            Ok(())
        })?;
        let (counted, taken) = ((times * bytes) as f64, measured.phase("copy").unwrap_or_default());
        let rate = counted / taken.median;
        let mut at = bench.run.at("copy", &Setting::default().with("path", path).with("how", how));
        at.push("bytes", counted, Unit::Bytes);
        at.timed("time", taken);
        at.push("rate", rate, Unit::BytesPerSecond);
        best = rate.max(best);
    }
    Ok(best)
}
