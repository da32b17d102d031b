//! A device: the stage `update` from the group's timeline, the whole backward beside it.

use std::time::Instant;

use hotrow::{
    Batch, Context, Group, Timeline,
    wgpu::{self, util::DeviceExt as _},
};

use super::{Backward, Bench, Rows, Setting, Size, gradients};

pub(super) struct Device {
    context: Context,
    timeline: Timeline,
    group: Group,
    indices: wgpu::Buffer,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
}

impl Device {
    pub(super) fn new(context: &Context, setting: &Setting, size: Size, rows: &Rows) -> Self {
        let timeline = Timeline::new(context);
        let storage = |words: &[u32]| {
            context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
                label: Some("low_precision"),
                contents: bytemuck::cast_slice(words),
                usage: wgpu::BufferUsages::STORAGE,
            })
        };
        let n = size.updates as usize * size.dim as usize;
        let outputs = context.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("low_precision"),
            size: n as u64 * 4,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        });
        Self {
            group: Group::new(&context.timed(&timeline), setting.config(size)).unwrap(),
            indices: storage(&rows.indices),
            offsets: storage(&(0..=size.updates).collect::<Vec<_>>()),
            outputs,
            grads: storage(bytemuck::cast_slice(&gradients(n))),
            context: context.clone(),
            timeline,
        }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn wait(&self, encoder: wgpu::CommandEncoder) {
        self.context.queue().submit([encoder.finish()]);
        self.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    }
}

impl Bench for Device {
    fn update(&mut self) -> Option<f64> {
        None
    }

    fn backward(&mut self) -> Backward {
        let mut encoder = self.encoder();
        let batch = Batch { indices: Some(self.indices.slice(..)), offsets: self.offsets.slice(..), weights: None };
        self.timeline.listen(false);
        self.group.record_forward(&mut encoder, &batch, self.outputs.slice(..)).unwrap();
        self.wait(encoder);
        self.timeline.listen(true);
        let mut encoder = self.encoder();
        self.group.record_backward(&mut encoder, self.grads.slice(..)).unwrap();
        self.timeline.resolve(&mut encoder);
        let start = Instant::now();
        self.wait(encoder);
        let waited = start.elapsed().as_secs_f64();
        let record = self.timeline.read().unwrap();
        let update = record.spans.iter().filter(|span| span.stage == "update");
        let update: Option<f64> = update.map(|span| span.nanoseconds).sum();
        Backward { seconds: record.nanoseconds.map_or(waited, |ns| ns * 1e-9), update: update.map(|ns| ns * 1e-9) }
    }
}
