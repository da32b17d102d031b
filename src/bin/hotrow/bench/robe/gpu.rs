//! The GPU's runner: steps recorded into queues, device timestamps.

use hotrow::robe::{Config, Group};
use hotrow::wgpu;
use hotrow::{Batch, Error};

use super::beside::{Forward, Table};
use super::measure::{Runner, StageTime, Step};
use crate::suite::lab::{Lab, Measured};
use crate::suite::shapes::Batch as Rows;
use crate::suite::workload::Workload;

pub(crate) struct GpuRunner<'a> {
    lab: &'a Lab,
    group: Option<Group>,
}

impl<'a> GpuRunner<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Self {
        Self { lab, group: None }
    }
}

/// Batches of so many bags, and room for what they read.
struct Uploaded {
    indices: Vec<wgpu::Buffer>,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
}

impl Uploaded {
    fn new(lab: &Lab, batches: &[Vec<u32>], offsets: &[u32], dim: u32) -> Self {
        let outputs = (offsets.len() - 1) * dim as usize;
        Self {
            indices: batches.iter().map(|batch| lab.storage(batch)).collect(),
            offsets: lab.storage(offsets),
            outputs: lab.room(outputs as u64 * 4, wgpu::BufferUsages::empty()),
            // P4's loss is the sum of all that was read.
            grads: lab.storage(&vec![1f32.to_bits(); outputs]),
        }
    }

    fn forward(&self, group: &mut Group, encoder: &mut wgpu::CommandEncoder, turn: usize) -> Result<(), Error> {
        let indices = &self.indices[turn % self.indices.len()];
        let batch = Batch { indices: Some(indices.slice(..)), offsets: self.offsets.slice(..), weights: None };
        group.record_forward(encoder, &batch, self.outputs.slice(..))
    }
}

/// Forward and, if wanted, backward in turn; what is allocated and compiled is there before anything is counted.
fn measure(lab: &Lab, group: &mut Group, data: &Uploaded, backward: bool) -> anyhow::Result<Measured> {
    lab.timeline.listen(false);
    let mut encoder = lab.encoder();
    data.forward(group, &mut encoder, 0)?;
    if backward {
        group.record_backward(&mut encoder, data.grads.slice(..))?;
    }
    lab.submit(encoder)?;
    let mut turn = 0;
    let phases = if backward { &["forward", "backward"][..] } else { &["forward"] };
    let measured = lab.measure(phases, |phase, encoder| {
        if phase == 0 {
            turn += 1;
            data.forward(group, encoder, turn)?;
        } else {
            group.record_backward(encoder, data.grads.slice(..))?;
        }
        Ok(())
    })?;
    group.abandon_backward();
    group.check()?;
    Ok(measured)
}

impl Runner for GpuRunner<'_> {
    fn allocate(&mut self, config: Config) -> Result<(), Error> {
        self.group = None; // freed before the next is allocated
        self.group = Some(Group::new(&self.lab.timed, config)?);
        Ok(())
    }

    fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.group.as_mut().map_or(Ok(()), |group| group.reconfigure(config))
    }

    fn steps(&mut self, batches: &[Vec<u32>]) -> anyhow::Result<Step> {
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("--robe: wanted an array, found none"))?;
        let offsets: Vec<u32> = (0..=batches[0].len() as u32).collect();
        let data = Uploaded::new(self.lab, batches, &offsets, group.config().dim);
        let measured = measure(self.lab, group, &data, true)?;
        let stages = measured.stages.iter().map(|stage| StageTime {
            phase: stage.phase,
            stage: stage.stage,
            dispatches: stage.dispatches,
            seconds: stage.times.map(|times| times.median),
        });
        Ok(Step {
            forward: measured.phase("forward").unwrap_or_default(),
            backward: measured.phase("backward").unwrap_or_default(),
            stages: stages.collect(),
        })
    }

    fn free(&mut self) {
        self.group = None;
    }
}

/// A table's forward over batches in turn, after others that fill its cache.
pub(crate) fn forward(
    lab: &Lab,
    table: &Table,
    warm: &[Vec<u32>],
    batches: &[Vec<u32>],
    offsets: &[u32],
    bag: u32,
) -> anyhow::Result<Forward> {
    match table {
        Table::Robe(config) => {
            let mut group = Group::new(&lab.timed, config.clone())?;
            let data = Uploaded::new(lab, batches, offsets, config.dim);
            let times = measure(lab, &mut group, &data, false)?.phase("forward").unwrap_or_default();
            Ok(Forward { times, hit_rate: None })
        }
        Table::Cached(config) => {
            let of = |batches: &[Vec<u32>]| batches.iter().map(|rows| Rows::of(rows.clone(), bag)).collect();
            let workload = Workload {
                name: String::new(),
                shape: String::new(),
                why: "",
                warm_state: String::new(),
                scale: None,
                config: (**config).clone(),
                warm: of(warm),
                batches: of(batches),
                backward: false,
            };
            let case = workload.run(lab)?;
            Ok(Forward { times: case.forward.unwrap_or_default(), hit_rate: Some(case.hit_rate) })
        }
    }
}
