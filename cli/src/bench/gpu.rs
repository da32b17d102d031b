//! The GPU's runner: device timestamps around forward and backward, wall clock where there are none.

use super::sweep::{Runner, Seen};
use hotrow::Resolution;
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Batch, Context, Group, GroupConfig, Timeline};
use std::time::Instant;

/// What a batch needs on the device.
pub(super) struct GpuBatch {
    offsets: wgpu::Buffer,
    pub(super) outputs: wgpu::Buffer,
    pub(super) grads: wgpu::Buffer,
}

impl GpuBatch {
    pub(super) fn new(context: &Context, offsets: &[u32], dim: u32) -> Self {
        let outputs = (offsets.len() - 1) * dim as usize;
        Self {
            offsets: storage(context, "offsets", bytemuck::cast_slice(offsets)),
            outputs: storage(context, "outputs", &vec![0; outputs * 4]),
            grads: storage(context, "grads", bytemuck::cast_slice(&vec![1e-3f32; outputs])),
        }
    }

    pub(super) fn indices(&self, context: &Context, indices: &[u32]) -> wgpu::Buffer {
        storage(context, "indices", bytemuck::cast_slice(indices))
    }

    pub(super) fn of<'b>(&'b self, indices: &'b wgpu::Buffer) -> Batch<'b> {
        Batch { indices: Some(indices.slice(..)), offsets: self.offsets.slice(..), weights: None }
    }
}

fn storage(context: &Context, what: &str, bytes: &[u8]) -> wgpu::Buffer {
    context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some(what),
        contents: bytes,
        usage: wgpu::BufferUsages::STORAGE,
    })
}

pub(crate) struct GpuRunner {
    context: Context,
    group: Group,
    batch: GpuBatch,
    timeline: Timeline,
}

impl GpuRunner {
    pub(crate) fn new(context: &Context, config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        Ok(Self {
            batch: GpuBatch::new(context, offsets, config.dim),
            // Not of a timed context: whole phases are measured, and what is inside them is left alone.
            group: Group::new(context, config)?,
            timeline: Timeline::new(context),
            context: context.clone(),
        })
    }

    /// Submits and waits; returns seconds.
    fn submit(&self, encoder: wgpu::CommandEncoder) -> anyhow::Result<f64> {
        let start = Instant::now();
        let index = self.context.queue().submit([encoder.finish()]);
        self.context.device().poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }
}

impl Runner for GpuRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let indices = self.batch.indices(&self.context, indices);
        let batch = self.batch.of(&indices);
        let mut encoder = self.encoder();
        let (group, outputs, grads) = (&mut self.group, self.batch.outputs.slice(..), self.batch.grads.slice(..));
        if self.timeline.resolution() != Resolution::Count {
            self.timeline.around(&mut encoder, "forward", |encoder| group.record_forward(encoder, &batch, outputs))?;
            self.timeline.around(&mut encoder, "backward", |encoder| group.record_backward(encoder, grads))?;
            self.timeline.resolve(&mut encoder);
            self.submit(encoder)?;
            let spans = self.timeline.read()?.spans;
            let seconds = |i: usize| spans.get(i).and_then(|span| span.nanoseconds).unwrap_or(0.0) * 1e-9;
            return Ok(Some([seconds(0), seconds(1)]));
        }
        group.record_forward(&mut encoder, &batch, outputs)?;
        let forward = self.submit(encoder)?;
        let mut encoder = self.encoder();
        self.group.record_backward(&mut encoder, self.batch.grads.slice(..))?;
        Ok(Some([forward, self.submit(encoder)?]))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        self.group.check()?;
        Ok(Seen::of(self.group.counters()?.into_iter().sum(), self.group.layout().stride()))
    }
}
