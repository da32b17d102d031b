//! Measures on a GPU: steps are recorded into queues and timed by device timestamps.

use hotrow::robe::{Backward, Config};
use hotrow::wgpu;
use hotrow::{Error, GradBuffer, GradientBuffer, GroupConfig, RobeGroup};

use super::plan::{Batches, Behind, Runner};
use crate::bench::suite::shapes::Batch;
use crate::bench::suite::workload::Workload;
use crate::lab::{Inputs, Lab, Stage};
use crate::report::units::Times;

pub(super) struct GpuRunner<'a> {
    lab: &'a Lab,
    group: Option<RobeGroup>,
    /// Stages of the last steps.
    stages: Vec<Stage>,
}

impl<'a> GpuRunner<'a> {
    pub(super) fn new(lab: &'a Lab) -> Self {
        Self { lab, group: None, stages: Vec::new() }
    }
}

/// Buffers for gradients, made once.
enum Room {
    Dense(wgpu::Buffer),
    Sparse { locations: wgpu::Buffer, sums: wgpu::Buffer, count: wgpu::Buffer },
}

impl Room {
    /// Buffers for batches of `indices` indices, one binding each.
    fn new(lab: &Lab, config: &Config, indices: u32) -> Result<Self, Error> {
        let make = |what, entries: u32| {
            let bytes = bound(what, entries, lab.binding())?;
            let scope = lab.timed.device().push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let buffer = lab.room(bytes, wgpu::BufferUsages::empty());
            match pollster::block_on(scope.pop()) {
                Some(_) => Err(Error::OutOfMemory { what, bytes }),
                None => Ok(buffer),
            }
        };
        if config.backward == Backward::Dense {
            return Ok(Self::Dense(make("dense gradient", config.weights)?));
        }
        let most = config.most_covered(indices);
        let (locations, sums) = (make("sparse gradient's locations", most)?, make("sparse gradient's sums", most)?);
        Ok(Self::Sparse { locations, sums, count: make("sparse gradient's count", 1)? })
    }

    fn buffer(&self) -> GradientBuffer<'_> {
        match self {
            Self::Dense(sums) => GradientBuffer::Dense(sums.slice(..)),
            Self::Sparse { locations, sums, count } => {
                GradientBuffer::Sparse { locations: locations.slice(..), sums: sums.slice(..), count: count.slice(..) }
            }
        }
    }
}

/// Bytes of `entries` entries of a gradient, rounded up to 16 like buffers; an error if they exceed one binding.
fn bound(what: &'static str, entries: u32, limit: u64) -> Result<u64, Error> {
    let bytes = (4 * u64::from(entries)).next_multiple_of(16);
    if bytes > limit {
        let remedy = "compress more: a gradient's sums are one binding";
        return Err(Error::TooLarge { what, wanted: bytes, limit, remedy });
    }
    Ok(bytes)
}

impl Runner for GpuRunner<'_> {
    fn array(&mut self, config: Config, same: bool) -> Result<(), Error> {
        match self.group.as_mut().filter(|_| same) {
            Some(group) => group.reconfigure(config),
            None => {
                self.group = None; // freed before the next is allocated
                self.group = Some(RobeGroup::new(&self.lab.timed, config)?);
                Ok(())
            }
        }
    }

    /// On a GPU `Auto` is the sparse update.
    fn auto(&self, _: u32) -> &'static str {
        "sparse"
    }

    fn steps(&mut self, batches: &Batches<'_>, behind: Behind) -> anyhow::Result<[Times; 2]> {
        let lab = self.lab;
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))?;
        // The loss is the sum of all values read, as in ROBE, so every gradient is 1.
        let parts: Vec<_> = batches.rows.iter().map(|rows| (rows.clone(), batches.offsets())).collect();
        let data = Inputs::new(lab, &parts, group.config().dim, 1.0);
        let (phases, room) = match behind {
            Behind::Nothing => (&["forward"][..], None),
            Behind::Update => (&["forward", "update"][..], None),
            Behind::Gradient => {
                let room = Room::new(lab, group.config(), batches.rows[0].len() as u32)?;
                (&["forward", "gradient"][..], Some(room))
            }
        };
        let mut turn = 0;
        let mut record = |phase: usize, encoder: &mut wgpu::CommandEncoder| -> anyhow::Result<()> {
            let grads = data.grads.slice(..);
            match (phase, &room) {
                (0, _) => {
                    turn += 1;
                    group.record_forward(encoder, &data.batch(turn - 1), data.outputs.slice(..))?;
                }
                (_, None) => group.record_backward(encoder, grads)?,
                (_, Some(room)) => group.record_gradient(encoder, GradBuffer::F32(grads), room.buffer())?,
            }
            Ok(())
        };
        // The first step, which allocates and compiles, is not counted.
        lab.timeline.listen(false);
        let mut encoder = lab.encoder();
        (0..phases.len()).try_for_each(|phase| record(phase, &mut encoder))?;
        lab.submit(encoder)?;
        let measured = lab.measure(phases, record)?;
        group.abandon_backward();
        group.check()?;
        let times = [0, 1].map(|k| phases.get(k).and_then(|phase| measured.phase(phase)).unwrap_or_default());
        self.stages = measured.stages;
        Ok(times)
    }

    fn stages(&mut self) -> Vec<Stage> {
        std::mem::take(&mut self.stages)
    }

    fn cached(
        &mut self,
        config: &GroupConfig,
        warm: &[Vec<u32>],
        batches: &Batches<'_>,
    ) -> anyhow::Result<(Times, f64)> {
        self.group = None;
        let of = |rows: &[Vec<u32>]| rows.iter().map(|rows| Batch::of(rows.clone(), batches.bag)).collect();
        let (warm, batches) = (of(warm), of(batches.rows));
        let workload = Workload { warm, batches, backward: false, ..Workload::new("beside", "", config.clone()) };
        let case = workload.run(self.lab)?;
        Ok((case.measured.phase("forward").unwrap_or_default(), case.facts.hit_rate()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_is_one_binding() {
        assert_eq!(bound("sums", 4, 16).ok(), Some(16));
        assert_eq!(bound("sums", u32::MAX, u64::MAX).ok(), Some(1 << 34));
        // Buffers are rounded up: 5 entries take 32 bytes.
        for (entries, limit) in [(5, 16), (5, 31), (1 << 25, (1 << 27) - 1)] {
            let error = bound("dense gradient", entries, limit).unwrap_err();
            assert!(matches!(error, Error::TooLarge { .. }), "{error}");
            assert!(error.to_string().contains("dense gradient"), "{error}");
        }
        assert_eq!(bound("sums", 5, 32).ok(), Some(32));
    }
}
