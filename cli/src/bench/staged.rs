//! The runner of a staged table, always a batch ahead: the host gathers the next batch's rows while the device computes backward.

use super::gpu::GpuBatch;
use super::sweep::{Runner, Seen};
use hotrow::Resolution;
use hotrow::{Context, Group, GroupConfig, Timeline, wgpu};
use std::time::Instant;

pub(crate) struct StagedRunner {
    context: Context,
    group: Group,
    batch: GpuBatch,
    timeline: Timeline,
    /// A batch has been prefetched and fetched.
    ahead: bool,
}

impl StagedRunner {
    pub(crate) fn new(context: &Context, config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        Ok(Self {
            batch: GpuBatch::new(context, offsets, config.dim),
            group: Group::new(context, config)?,
            timeline: Timeline::new(context),
            context: context.clone(),
            ahead: false,
        })
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Forward and backward of the batch that waits, and of the next one all that comes before its forward.
    fn advance(&mut self, next: Option<&[u32]>) -> anyhow::Result<[f64; 2]> {
        let start = Instant::now();
        let mut encoder = self.encoder();
        if self.ahead {
            self.group.record_forward_prefetched(&mut encoder, self.batch.outputs.slice(..))?;
        }
        if let Some(next) = next {
            let indices = self.batch.indices(&self.context, next);
            self.group.record_prefetch(&mut encoder, &self.batch.of(&indices))?;
        }
        let decided = self.context.queue().submit([encoder.finish()]);
        let stamped = self.timeline.resolution() != Resolution::Count;
        if !stamped {
            // Without stamps the clock must be read between the two, and the host cannot gather meanwhile.
            self.context.device().poll(wgpu::PollType::wait_indefinitely())?;
        }
        let between = Instant::now();
        if self.ahead {
            let mut encoder = self.encoder();
            let (group, grads) = (&mut self.group, self.batch.grads.slice(..));
            self.timeline.around(&mut encoder, "backward", |encoder| group.record_backward(encoder, grads))?;
            self.timeline.resolve(&mut encoder);
            self.context.queue().submit([encoder.finish()]);
        }
        if next.is_some() {
            self.group.fetch(Some(decided))?;
        }
        let spans = self.timeline.read()?.spans; // waits
        let (whole, after) = (start.elapsed().as_secs_f64(), between.elapsed().as_secs_f64());
        self.ahead = next.is_some();
        let backward =
            if stamped { spans.first().and_then(|span| span.nanoseconds).unwrap_or(0.0) * 1e-9 } else { after };
        // All that is not the backward's own is forward's: the host's part as far as it shows, and every submission.
        Ok([(whole - backward).max(0.0), backward])
    }
}

impl Runner for StagedRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let whole = self.ahead;
        let seconds = self.advance(Some(indices))?;
        Ok(whole.then_some(seconds))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        if self.ahead {
            self.advance(None)?;
        }
        self.group.check()?;
        let traffic = self.group.traffic().unwrap_or_default();
        // What left in a step, in its backward too, crosses with the next forward.
        Ok(Seen { counters: self.group.counters()?.into_iter().sum(), bus: [traffic.bytes(), 0] })
    }
}
