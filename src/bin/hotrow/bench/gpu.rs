//! The GPU's runner: device timestamps around forward and backward, wall clock where there are none.

use super::sweep::Runner;
use hotrow::gpu::Resolution;
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Batch, Context, Counters, Embedding as _, Group, GroupConfig, Timeline};
use std::time::Instant;

pub(crate) struct GpuRunner {
    context: Context,
    group: Group,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
    timeline: Timeline,
}

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
        Ok(Self {
            // Not of a timed context: whole phases are measured, and what is inside them is left alone.
            group: Group::new(context, config)?,
            offsets: storage("offsets", bytemuck::cast_slice(offsets)),
            outputs: storage("outputs", &vec![0; outputs * 4]),
            grads: storage("grads", bytemuck::cast_slice(&vec![1e-3f32; outputs])),
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
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<[f64; 2]> {
        let indices = self.context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("indices"),
            contents: bytemuck::cast_slice(indices),
            usage: wgpu::BufferUsages::STORAGE,
        });
        let batch = Batch { indices: Some(indices.slice(..)), offsets: self.offsets.slice(..), weights: None };
        let mut encoder = self.encoder();
        let (group, outputs, grads) = (&mut self.group, self.outputs.slice(..), self.grads.slice(..));
        if self.timeline.resolution() != Resolution::Count {
            self.timeline.around(&mut encoder, "forward", |encoder| group.record_forward(encoder, &batch, outputs))?;
            self.timeline.around(&mut encoder, "backward", |encoder| group.record_backward(encoder, grads))?;
            self.timeline.resolve(&mut encoder);
            self.submit(encoder)?;
            let spans = self.timeline.read()?.spans;
            let seconds = |i: usize| spans.get(i).and_then(|span| span.nanoseconds).unwrap_or(0.0) * 1e-9;
            return Ok([seconds(0), seconds(1)]);
        }
        group.record_forward(&mut encoder, &batch, outputs)?;
        let forward = self.submit(encoder)?;
        let mut encoder = self.encoder();
        self.group.record_backward(&mut encoder, self.grads.slice(..))?;
        Ok([forward, self.submit(encoder)?])
    }

    fn counters(&mut self) -> anyhow::Result<Counters> {
        self.group.check()?;
        Ok(self.group.counters()?.into_iter().sum())
    }
}
