//! Fills the packed tables of a group by a kernel, at the speed of its memory, for benchmarks of tables that would take minutes to pack on
//! the host.

use bytemuck::{Pod, Zeroable};
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Group, codec, internals, prelude::*};
use std::collections::BTreeMap;

use crate::lab::Lab;

/// The kernel's name and text, for the compilers that check it.
#[doc(hidden)]
pub const SHADER: (&str, &str) = ("fill", include_str!("fill.wgsl"));

/// The largest magnitude of a weight.
pub const REACH: f32 = 0.1;

/// `Fill` in `fill.wgsl`, padded as a uniform is.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Fill {
    first_row: u32,
    rows: u32,
    record_words: u32,
    payload_word: u32,
    seed: u32,
    reach: f32,
    inverse_steps: f32,
    padding: u32,
}

/// Writes every record of a group whose cache is empty: random codes, a scale and a bias that keep weights within [`REACH`], and states from
/// 0 to 1. Returns the seconds of the kernel by the host's clock.
///
/// # Errors
/// If the group's rows are not integers in whole words with FP32 states, or if the table is staged; errors of the device.
pub fn fill(lab: &Lab, group: &Group, seed: u32) -> anyhow::Result<f64> {
    let (device, layout) = (lab.timed.device(), group.layout());
    let (row, buffers) = (layout.row, internals::records(group));
    let bits = row.precision.bits();
    anyhow::ensure!(
        row.precision.is_integer() && row.state_bits == 32 && (row.dim * bits) % 32 == 0 && !buffers.is_empty(),
        "fill: wanted integer rows in whole words, FP32 states and records on the device, found {:?} x {} in {} buffers; \
         let the group fill them",
        row.precision,
        row.dim,
        buffers.len()
    );
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(SHADER.0),
        source: wgpu::ShaderSource::Wgsl(SHADER.1.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(SHADER.0),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    // Earlier work on the records is not the kernel's.
    lab.submit(lab.encoder())?;
    let mut seconds = 0.0;
    for (shard, buffer) in (0..).zip(buffers) {
        let rows = layout.shard_rows(shard);
        let uniform = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some(SHADER.0),
            contents: bytemuck::bytes_of(&Fill {
                first_row: shard * layout.rows_per_shard,
                rows,
                record_words: row.record_words,
                payload_word: row.payload_half / 2,
                seed,
                reach: REACH,
                inverse_steps: codec::inverse_steps(bits),
                padding: 0,
            }),
            usage: wgpu::BufferUsages::UNIFORM,
        });
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(SHADER.0),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: buffer.as_entire_binding() },
            ],
        });
        let words = u64::from(rows) * u64::from(row.record_words);
        let mut encoder = lab.encoder();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        // Eight words an invocation, or more if there are too many.
        pass.dispatch_workgroups(words.div_ceil(256 * 8).clamp(1, 65_535) as u32, 1, 1);
        drop(pass);
        // Each shard alone: a long submission may run into a driver's watchdog.
        seconds += lab.submit(encoder)?;
    }
    Ok(seconds)
}

/// Reads the first and the last row of each shard, and returns the first that is not as [`fill`] writes them.
///
/// # Errors
/// Those of [`Group::read_rows`].
pub fn check(group: &mut Group) -> anyhow::Result<Option<String>> {
    let layout = group.layout().clone();
    let ends = |shard: u32| {
        let first = shard * layout.rows_per_shard;
        [first, first + layout.shard_rows(shard) - 1]
    };
    let rows: Vec<u32> = (0..layout.shards).flat_map(ends).collect();
    let weights = group.read_rows(&rows)?;
    Ok(fault(&rows, &weights))
}

/// The first of these rows that is not finite, leaves [`REACH`], or equals an earlier one.
#[must_use]
pub fn fault(rows: &[u32], weights: &[f32]) -> Option<String> {
    let mut seen = BTreeMap::new();
    for (&row, weights) in rows.iter().zip(weights.chunks_exact(weights.len() / rows.len())) {
        // Unpacking rounds a product and a sum.
        let most = REACH * (1.0 + 4.0 * f32::EPSILON);
        if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || weight.abs() > most) {
            return Some(format!("row {row}: wanted weights within {REACH}, found {weight}"));
        }
        let bits: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
        if let Some(other) = seen.insert(bits, row).filter(|&other| other != row) {
            return Some(format!("row {row}: wanted a row of its own, found that of row {other}"));
        }
    }
    None
}
