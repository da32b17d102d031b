//! The GPU's runner: device timestamps around forward and backward, wall clock where there are none.

use super::sweep::Runner;
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Batch, Context, Counters, Embedding as _, Group, GroupConfig};
use std::time::Instant;

pub(crate) struct GpuRunner {
    context: Context,
    group: Group,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
    clock: Option<Clock>,
}

/// Three timestamps: before forward, between, after backward.
struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    mapped: wgpu::Buffer,
    period: f64,
}

/// Bytes of three timestamps.
const STAMPS: u64 = 24;

impl GpuRunner {
    pub(crate) fn new(context: &Context, config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        let outputs = (offsets.len() - 1) * config.dim as usize;
        let storage = |what, bytes: &[u8]| {
            context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: Some(what),
                contents: bytes,
                usage: wgpu::BufferUsages::STORAGE,
            })
        };
        let clock = context.caps().timestamps.then(|| Clock::new(context));
        Ok(Self {
            group: Group::new(context, config)?,
            offsets: storage("offsets", bytemuck::cast_slice(offsets)),
            outputs: storage("outputs", &vec![0; outputs * 4]),
            grads: storage("grads", bytemuck::cast_slice(&vec![1e-3f32; outputs])),
            clock,
            context: context.clone(),
        })
    }

    fn submit(&self, encoder: wgpu::CommandEncoder) -> anyhow::Result<()> {
        let index = self.context.queue().submit([encoder.finish()]);
        self.context.device().poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        Ok(())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }
}

impl Runner for GpuRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<[f64; 2]> {
        let indices = self.context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("indices"),
            contents: bytemuck::cast_slice(indices),
            usage: wgpu::BufferUsages::STORAGE,
        });
        let batch = Batch { indices: Some(indices.slice(..)), offsets: self.offsets.slice(..), weights: None };
        let mut encoder = self.encoder();
        if let Some(clock) = &self.clock {
            clock.stamp(&mut encoder, 0);
            self.group.record_forward(&mut encoder, &batch, self.outputs.slice(..))?;
            clock.stamp(&mut encoder, 1);
            self.group.record_backward(&mut encoder, self.grads.slice(..))?;
            clock.stamp(&mut encoder, 2);
            clock.resolve(&mut encoder);
            self.submit(encoder)?;
            return self.clock.as_ref().map_or_else(|| Ok([0.0; 2]), |clock| clock.read(&self.context));
        }
        self.group.record_forward(&mut encoder, &batch, self.outputs.slice(..))?;
        let start = Instant::now();
        self.submit(encoder)?;
        let forward = start.elapsed();
        let mut encoder = self.encoder();
        self.group.record_backward(&mut encoder, self.grads.slice(..))?;
        let start = Instant::now();
        self.submit(encoder)?;
        Ok([forward.as_secs_f64(), start.elapsed().as_secs_f64()])
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        self.group.check()?;
        Ok(self.group.counters()?.into_iter().sum())
    }
}

impl Clock {
    fn new(context: &Context) -> Self {
        let device = context.device();
        let buffer = |usage| {
            let descriptor =
                wgpu::BufferDescriptor { label: Some("stamps"), size: STAMPS, usage, mapped_at_creation: false };
            device.create_buffer(&descriptor)
        };
        Self {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("stamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 3,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            mapped: buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
            period: f64::from(context.queue().get_timestamp_period()) * 1e-9,
        }
    }

    /// An empty pass, stamped: the stamp is written when all that was recorded before is done.
    fn stamp(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("stamp"),
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.queries,
                beginning_of_pass_write_index: None,
                end_of_pass_write_index: Some(index),
            }),
        });
    }

    fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.queries, 0..3, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.mapped, 0, STAMPS);
    }

    fn read(&self, context: &Context) -> anyhow::Result<[f64; 2]> {
        self.mapped.map_async(wgpu::MapMode::Read, .., |_| {});
        context.device().poll(wgpu::PollType::wait_indefinitely())?;
        let stamps: Vec<u64> = {
            let view = self.mapped.get_mapped_range(..)?;
            view.chunks_exact(8).map(|bytes| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))).collect()
        };
        self.mapped.unmap();
        let seconds = |from: usize| stamps[from + 1].saturating_sub(stamps[from]) as f64 * self.period;
        Ok([seconds(0), seconds(1)])
    }
}
