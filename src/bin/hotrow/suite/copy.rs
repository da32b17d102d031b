//! The device's own bandwidths, measured in the same run: a copy within its memory, and one from host memory that shaders map.

use hotrow::wgpu;
use serde::Serialize;

use super::lab::{Lab, Times};

/// One copy: bytes are counted as read and as written.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Copy {
    pub(crate) how: &'static str,
    /// Bytes of the buffer.
    pub(crate) buffer_bytes: u64,
    pub(crate) seconds: Times,
    /// Read and written, where both lie in device memory; over the bus, counted once.
    pub(crate) bytes_per_second: f64,
}

/// 16 bytes an invocation and turn, in strides of the whole grid: what a row mover does at best.
const KERNEL: &str = "
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let n = arrayLength(&source);
    for (var i = id.x; i < n; i += groups.x * 256u) {
        target_[i] = source[i];
    }
}
";

/// Copies within the device's memory by the driver's own command and by a kernel.
pub(crate) fn device(lab: &Lab) -> anyhow::Result<Vec<Copy>> {
    let bytes = lab.size.copy_bytes().min(lab.binding()) & !255;
    let (from, to) = (filled(lab, bytes, wgpu::BufferUsages::empty())?, lab.room(bytes, wgpu::BufferUsages::empty()));
    let command = run(lab, "copy command, device memory", bytes, 2, |encoder| {
        encoder.copy_buffer_to_buffer(&from, 0, &to, 0, bytes);
    })?;
    Ok(vec![command, kernel(lab, "copy kernel, device memory", &from, &to, bytes, 2)?])
}

/// Reads of host memory by a kernel, if the device has such memory.
pub(crate) fn bus(lab: &Lab) -> anyhow::Result<Option<Copy>> {
    if !lab.timed.caps().mappable || !lab.is_hardware() {
        return Ok(None);
    }
    let bytes = (lab.size.copy_bytes() / 4).min(lab.binding()) & !255;
    let (from, to) = (filled(lab, bytes, wgpu::BufferUsages::MAP_READ)?, lab.room(bytes, wgpu::BufferUsages::empty()));
    kernel(lab, "copy kernel, from mapped host memory", &from, &to, bytes, 1).map(Some)
}

/// Random words: zeros can be faster than data.
fn filled(lab: &Lab, bytes: u64, usage: wgpu::BufferUsages) -> anyhow::Result<wgpu::Buffer> {
    let buffer = lab.room(bytes, usage);
    let words: Vec<u32> = (0..(4u32 << 20)).map(hotrow::hash::fmix32).collect();
    let mut at = 0;
    while at < bytes {
        let some = (bytes - at).min(16 << 20);
        lab.timed.queue().write_buffer(&buffer, at, &bytemuck::cast_slice(&words)[..some as usize]);
        lab.submit(lab.encoder())?;
        at += some;
    }
    Ok(buffer)
}

fn kernel(
    lab: &Lab,
    how: &'static str,
    from: &wgpu::Buffer,
    to: &wgpu::Buffer,
    bytes: u64,
    times: u64,
) -> anyhow::Result<Copy> {
    let device = lab.timed.device();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("copy"),
        source: wgpu::ShaderSource::Wgsl(KERNEL.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("copy"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("copy"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[entry(0, from, bytes), entry(1, to, bytes)],
    });
    // Four turns an invocation, so that several loads are in flight.
    let groups = (bytes / 16).div_ceil(256 * 4).clamp(1, 65_535) as u32;
    run(lab, how, bytes, times, |encoder| {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    })
}

fn entry(binding: u32, buffer: &wgpu::Buffer, bytes: u64) -> wgpu::BindGroupEntry<'_> {
    let size = std::num::NonZeroU64::new(bytes);
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size }),
    }
}

fn run(
    lab: &Lab,
    how: &'static str,
    bytes: u64,
    times: u64,
    record: impl Fn(&mut wgpu::CommandEncoder),
) -> anyhow::Result<Copy> {
    let mut warm = lab.encoder();
    record(&mut warm);
    lab.submit(warm)?;
    let measured = lab.measure(&["copy"], |_, encoder| {
        record(encoder);
        Ok(())
    })?;
    let seconds = measured.phase("copy").unwrap_or_default();
    let bytes_per_second = (times * bytes) as f64 / seconds.median;
    Ok(Copy { how, buffer_bytes: bytes, seconds, bytes_per_second })
}
