//! Takes the steps of the sweep: on the CPU, on a device, and on a device with a staged table.

use hotrow::{Bags, Counters, CpuGroup, Group, GroupConfig, Mode, Placement, prelude::*};
use hotrow_report::clock::{Clock, Inputs, gradients, timed};

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

/// The largest gradient.
const GRAD: f32 = 1e-3;

/// Takes training steps and times forward and backward in seconds.
pub(super) enum Runner<'a> {
    /// By the wall clock: the group, the offsets of the bags, and the gradients.
    Cpu(Box<CpuGroup>, Vec<u32>, Vec<f32>),
    /// By the device's timestamps, or by the wall clock without timestamps.
    Gpu(Device<'a>),
    /// One batch ahead: the host gathers the next batch's rows while the device computes backward. Whether a batch has been prefetched.
    Staged(Device<'a>, bool),
}

pub(super) struct Device<'a> {
    clock: &'a Clock,
    group: Box<Group>,
    inputs: Inputs,
}

impl<'a> Runner<'a> {
    pub(super) fn new(clock: Option<&'a Clock>, config: GroupConfig, offsets: Vec<u32>) -> anyhow::Result<Self> {
        let Some(clock) = clock else {
            let grads = gradients((offsets.len() - 1) * config.dim as usize, GRAD);
            return Ok(Self::Cpu(Box::new(CpuGroup::new(config)?), offsets, grads));
        };
        clock.timeline.listen(false);
        let inputs = Inputs::new(clock, &[(Vec::new(), offsets)], config.dim, GRAD);
        let staged = config.placement == Placement::Staged;
        let device = Device { clock, group: Box::new(Group::new(&clock.timed, config)?), inputs };
        Ok(if staged { Self::Staged(device, false) } else { Self::Gpu(device) })
    }

    /// Takes a step. `None`: the runner only prepared this batch and is now one step ahead.
    pub(super) fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        match self {
            Self::Cpu(group, offsets, grads) => on_cpu(&mut **group, (indices, offsets), grads).map(Some),
            Self::Gpu(Device { clock, group, inputs }) => {
                let indices = clock.storage(indices);
                let round = clock.round(&["forward", "backward"], |phase, encoder| {
                    if phase == 0 {
                        group.encode_forward(encoder, &inputs.with(&indices), inputs.outputs.slice(..), Mode::Train)?;
                    } else {
                        group.encode_backward(encoder, inputs.grads.slice(..))?;
                    }
                    Ok(())
                })?;
                Ok(Some([round.phases[0], round.phases[1]]))
            }
            Self::Staged(device, ahead) => {
                let seconds = device.advance(*ahead, Some(indices))?;
                Ok(std::mem::replace(ahead, true).then_some(seconds))
            }
        }
    }

    /// The counts so far. A batch that was prepared is finished first.
    pub(super) fn seen(&mut self) -> anyhow::Result<Seen> {
        match self {
            Self::Cpu(group, ..) => Ok(Seen::of(group.counters()?.into_iter().sum(), group.layout().stride())),
            Self::Gpu(Device { group, .. }) => {
                group.check()?;
                Ok(Seen::of(group.counters()?.into_iter().sum(), group.layout().stride()))
            }
            Self::Staged(device, ahead) => {
                if std::mem::replace(ahead, false) {
                    device.advance(true, None)?;
                }
                let group = &mut device.group;
                group.check()?;
                let traffic = group.traffic().unwrap_or_default();
                // Rows that leave in a step cross with the next forward.
                Ok(Seen { counters: group.counters()?.into_iter().sum(), bus: [traffic.bytes(), 0] })
            }
        }
    }
}

/// The seconds of a forward and of a backward on the CPU.
pub(super) fn on_cpu(
    group: &mut impl Lookup,
    (indices, offsets): (&[u32], &[u32]),
    grads: &[f32],
) -> anyhow::Result<[f64; 2]> {
    let (outputs, forward) = timed(|| group.forward(Bags::new(indices, offsets), Mode::Train));
    std::hint::black_box(outputs?);
    let (updated, backward) = timed(|| group.backward(grads));
    updated?;
    Ok([forward, backward])
}

impl Device<'_> {
    /// Runs forward and backward of the batch that is ahead, if one is, and prefetches the next one.
    fn advance(&mut self, ahead: bool, next: Option<&[u32]>) -> anyhow::Result<[f64; 2]> {
        let Self { clock, group, inputs } = self;
        let queue = clock.timed.queue();
        let stamped = clock.timeline.has_stamps();
        let (decided, before) = timed(|| -> anyhow::Result<_> {
            let mut encoder = clock.encoder();
            if ahead {
                group.encode_forward_prefetched(&mut encoder, inputs.outputs.slice(..))?;
            }
            if let Some(next) = next {
                group.encode_prefetch(&mut encoder, &inputs.with(&clock.storage(next)))?;
            }
            let decided = queue.submit([encoder.finish()]);
            if !stamped {
                // Without timestamps the clock is read between the two parts, so the host must wait and cannot gather meanwhile.
                clock.wait(decided.clone())?;
            }
            Ok(decided)
        });
        let decided = decided?;
        let (spans, after) = timed(|| -> anyhow::Result<_> {
            if ahead {
                let mut encoder = clock.encoder();
                let grads = inputs.grads.slice(..);
                clock.timeline.around(&mut encoder, "backward", |encoder| group.encode_backward(encoder, grads))?;
                clock.timeline.resolve(&mut encoder);
                queue.submit([encoder.finish()]);
            }
            if next.is_some() {
                group.fetch(Some(decided))?;
            }
            Ok(clock.timeline.read()?.spans) // waits
        });
        let stamp = spans?.first().and_then(|span| span.nanoseconds).unwrap_or(0.0) * 1e-9;
        let backward = if stamped { stamp } else { after };
        // Forward has all other time: every submission, and the host's part if it takes longer than backward.
        Ok([(before + after - backward).max(0.0), backward])
    }
}
