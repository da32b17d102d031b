//! The device's own bandwidths, measured in the same run: copies within its memory, and between it and host memory that shaders map.

use hotrow::wgpu;
use serde::Serialize;

use super::lab::{Lab, Times};

/// One copy: bytes are counted as read and as written.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Copy {
    pub(crate) how: &'static str,
    pub(crate) path: Path,
    /// Bytes of the buffer.
    pub(crate) buffer_bytes: u64,
    pub(crate) seconds: Times,
    /// Read and written, where both lie in device memory; over the bus, counted once.
    pub(crate) bytes_per_second: f64,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Path {
    WithinDevice,
    /// From host memory that shaders map, as a mapped table is: host-cached. On a software driver that is no other memory.
    ToDevice,
    ToHost,
}

/// The best of the copies that go this way.
pub(crate) fn best(copies: &[Copy], path: Path) -> Option<f64> {
    copies.iter().filter(|copy| copy.path == path).map(|copy| copy.bytes_per_second).reduce(f64::max)
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

/// Copies by the driver's own command and by a kernel: within the device's memory, and both ways over the bus if the device maps host
/// memory.
pub(crate) fn all(lab: &Lab) -> anyhow::Result<Vec<Copy>> {
    use Path::*;
    let none = wgpu::BufferUsages::empty();
    let bytes = lab.size.copy_bytes().min(lab.binding()) & !255;
    let mut copies = Vec::new();
    {
        let (from, to) = (filled(lab, bytes, none)?, lab.room(bytes, none));
        copies.push(command(lab, ("copy command, device memory", WithinDevice), &from, &to, bytes)?);
        copies.push(kernel(lab, ("copy kernel, device memory", WithinDevice), &from, &to, bytes)?);
    }
    if lab.timed.caps().mappable {
        let bytes = (bytes / 4) & !255;
        let (host, device) = (filled(lab, bytes, wgpu::BufferUsages::MAP_READ)?, lab.room(bytes, none));
        copies.push(command(lab, ("copy command, mapped host memory to device", ToDevice), &host, &device, bytes)?);
        copies.push(kernel(lab, ("copy kernel, mapped host memory to device", ToDevice), &host, &device, bytes)?);
        copies.push(command(lab, ("copy command, device to mapped host memory", ToHost), &device, &host, bytes)?);
        copies.push(kernel(lab, ("copy kernel, device to mapped host memory", ToHost), &device, &host, bytes)?);
    }
    Ok(copies)
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

type What = (&'static str, Path);

fn command(lab: &Lab, what: What, from: &wgpu::Buffer, to: &wgpu::Buffer, bytes: u64) -> anyhow::Result<Copy> {
    run(lab, what, bytes, |encoder| encoder.copy_buffer_to_buffer(from, 0, to, 0, bytes))
}

fn kernel(lab: &Lab, what: What, from: &wgpu::Buffer, to: &wgpu::Buffer, bytes: u64) -> anyhow::Result<Copy> {
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
    run(lab, what, bytes, |encoder| {
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

fn run(lab: &Lab, (how, path): What, bytes: u64, record: impl Fn(&mut wgpu::CommandEncoder)) -> anyhow::Result<Copy> {
    let mut warm = lab.encoder();
    record(&mut warm);
    lab.submit(warm)?;
    let measured = lab.measure(&["copy"], |_, encoder| {
        record(encoder);
        Ok(())
    })?;
    let seconds = measured.phase("copy").unwrap_or_default();
    // Over the bus once; within memory read and written.
    let times = if path == Path::WithinDevice { 2 } else { 1 };
    let bytes_per_second = (times * bytes) as f64 / seconds.median;
    Ok(Copy { how, path, buffer_bytes: bytes, seconds, bytes_per_second })
}
