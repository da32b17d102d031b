//! Runners that take the steps of the sweep: on the CPU, on a device, and on a device with a staged table.

use crate::lab::{Inputs, Lab, timed};
use hotrow::{Counters, CpuGroup, Group, GroupConfig};
use hotrow::{Resolution, prelude::*};

/// Takes training steps and times forward and backward in seconds.
pub(super) trait Runner {
    /// Takes a step. `None`: the runner only prepared this batch and is now one step ahead.
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>>;
    /// The counts so far. A batch that was prepared is finished first.
    fn seen(&mut self) -> anyhow::Result<Seen>;
}

/// Counters and bytes over the bus.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) counters: Counters,
    /// Bytes that crossed the bus in forward and in backward.
    pub(super) bus: [u64; 2],
}

impl Seen {
    /// The counts if shaders reach the table themselves: forward reads records and writes evicted ones, backward writes the bypassed ones.
    fn of(counters: Counters, stride: u64) -> Self {
        let backward = counters.bypass_writes * stride;
        Self { bus: [counters.bus_bytes() - backward, backward], counters }
    }
}

/// The value of every gradient.
const GRAD: f32 = 1e-3;

/// Runs on the CPU and times by the wall clock.
pub(super) struct CpuRunner {
    group: CpuGroup,
    offsets: Vec<u32>,
    grads: Vec<f32>,
}

impl CpuRunner {
    pub(super) fn new(config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        let outputs = (offsets.len() - 1) * config.dim as usize;
        Ok(Self { group: CpuGroup::new(config)?, offsets: offsets.to_vec(), grads: vec![GRAD; outputs] })
    }
}

impl Runner for CpuRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let (outputs, forward) = timed(|| self.group.forward(indices, &self.offsets, None));
        std::hint::black_box(outputs?);
        let (updated, backward) = timed(|| self.group.backward(&self.grads));
        updated?;
        Ok(Some([forward, backward]))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        Ok(Seen::of(self.group.counters()?.into_iter().sum(), self.group.layout().stride()))
    }
}

/// Runs on a device and times by its timestamps, or by the wall clock without timestamps.
pub(super) struct GpuRunner<'a> {
    lab: &'a Lab,
    group: Group,
    inputs: Inputs,
}

impl<'a> GpuRunner<'a> {
    pub(super) fn new(lab: &'a Lab, config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        lab.timeline.listen(false);
        let inputs = Inputs::new(lab, &[(Vec::new(), offsets.to_vec())], config.dim, GRAD);
        Ok(Self { lab, group: Group::new(&lab.timed, config)?, inputs })
    }
}

impl Runner for GpuRunner<'_> {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let indices = self.lab.storage(indices);
        let (group, inputs) = (&mut self.group, &self.inputs);
        let round = self.lab.round(&["forward", "backward"], |phase, encoder| {
            if phase == 0 {
                group.record_forward(encoder, &inputs.with(&indices), inputs.outputs.slice(..))?;
            } else {
                group.record_backward(encoder, inputs.grads.slice(..))?;
            }
            Ok(())
        })?;
        Ok(Some([round.phases[0], round.phases[1]]))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        self.group.check()?;
        Ok(Seen::of(self.group.counters()?.into_iter().sum(), self.group.layout().stride()))
    }
}

/// Runs a staged table one batch ahead: the host gathers the next batch's rows while the device computes backward.
pub(super) struct StagedRunner<'a> {
    gpu: GpuRunner<'a>,
    /// Whether a batch has been prefetched and fetched.
    ahead: bool,
}

impl<'a> StagedRunner<'a> {
    pub(super) fn new(lab: &'a Lab, config: GroupConfig, offsets: &[u32]) -> anyhow::Result<Self> {
        Ok(Self { gpu: GpuRunner::new(lab, config, offsets)?, ahead: false })
    }

    /// Runs forward and backward of the prefetched batch, and prefetches the next one.
    fn advance(&mut self, next: Option<&[u32]>) -> anyhow::Result<[f64; 2]> {
        let GpuRunner { lab, group, inputs } = &mut self.gpu;
        let queue = lab.timed.queue();
        let stamped = lab.timeline.resolution() != Resolution::Count;
        let (decided, before) = timed(|| -> anyhow::Result<_> {
            let mut encoder = lab.encoder();
            if self.ahead {
                group.record_forward_prefetched(&mut encoder, inputs.outputs.slice(..))?;
            }
            if let Some(next) = next {
                group.record_prefetch(&mut encoder, &inputs.with(&lab.storage(next)))?;
            }
            let decided = queue.submit([encoder.finish()]);
            if !stamped {
                // Without timestamps the clock is read between the two parts, so the host must wait and cannot gather meanwhile.
                lab.wait(decided.clone())?;
            }
            Ok(decided)
        });
        let decided = decided?;
        let (spans, after) = timed(|| -> anyhow::Result<_> {
            if self.ahead {
                let mut encoder = lab.encoder();
                let grads = inputs.grads.slice(..);
                lab.timeline.around(&mut encoder, "backward", |encoder| group.record_backward(encoder, grads))?;
                lab.timeline.resolve(&mut encoder);
                queue.submit([encoder.finish()]);
            }
            if next.is_some() {
                group.fetch(Some(decided))?;
            }
            Ok(lab.timeline.read()?.spans) // waits
        });
        self.ahead = next.is_some();
        let stamp = spans?.first().and_then(|span| span.nanoseconds).unwrap_or(0.0) * 1e-9;
        let backward = if stamped { stamp } else { after };
        // Forward has all other time: every submission, and the host's part if it takes longer than backward.
        Ok([(before + after - backward).max(0.0), backward])
    }
}

impl Runner for StagedRunner<'_> {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let whole = self.ahead;
        let seconds = self.advance(Some(indices))?;
        Ok(whole.then_some(seconds))
    }

    fn seen(&mut self) -> anyhow::Result<Seen> {
        if self.ahead {
            self.advance(None)?;
        }
        let group = &mut self.gpu.group;
        group.check()?;
        let traffic = group.traffic().unwrap_or_default();
        // Rows that leave in a step cross with the next forward.
        Ok(Seen { counters: group.counters()?.into_iter().sum(), bus: [traffic.bytes(), 0] })
    }
}
