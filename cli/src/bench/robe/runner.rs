//! Steps of a shared array: on the CPU by the wall clock, on a GPU by its timestamps.

use hotrow::robe::Config;
use hotrow::{CpuRobeGroup, Error, RobeGroup, prelude::*, wgpu};
use std::hint::black_box;
use std::time::Duration;

use crate::lab::{Inputs, Lab, Rounds, timed};
use crate::report::units::Times;

/// The array under test. The loss is the sum of all values read, as in ROBE, so every gradient is 1.
pub(super) trait Runner {
    /// Makes an array of this configuration. If `same`, the existing array gets the configuration; else a new one replaces it.
    fn array(&mut self, config: Config, same: bool) -> Result<(), Error>;
    /// Times of forward and of backward over batches of rows in turn, in bags of one.
    fn steps(&mut self, batches: &[Vec<u32>]) -> anyhow::Result<[Times; 2]>;
}

fn offsets(rows: &[u32]) -> Vec<u32> {
    (0..=rows.len() as u32).collect()
}

pub(super) struct Cpu {
    rounds: Rounds,
    group: Option<CpuRobeGroup>,
}

impl Cpu {
    /// After 300 ms, three rounds of a step are enough.
    pub(super) fn new(rounds: Rounds) -> Self {
        Self { rounds: Rounds { slice: Duration::from_millis(300), ..rounds }, group: None }
    }
}

impl Runner for Cpu {
    fn array(&mut self, config: Config, same: bool) -> Result<(), Error> {
        match self.group.as_mut().filter(|_| same) {
            Some(group) => group.reconfigure(config),
            None => {
                self.group = None; // freed before the next is allocated
                self.group = Some(CpuRobeGroup::new(config)?);
                Ok(())
            }
        }
    }

    fn steps(&mut self, batches: &[Vec<u32>]) -> anyhow::Result<[Times; 2]> {
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))?;
        let offsets = offsets(&batches[0]);
        let grads = vec![1.0; group.output_len(batches[0].len(), batches[0].len())];
        let mut turn = batches.iter().cycle();
        let mut one = || {
            let rows = turn.next().map_or(&[][..], Vec::as_slice);
            let (outputs, forward) = timed(|| group.forward(rows, &offsets, None));
            drop(black_box(outputs?));
            let (updated, backward) = timed(|| group.backward(&grads));
            updated?;
            Ok([forward, backward])
        };
        one()?; // not counted
        self.rounds.repeat(one)
    }
}

pub(super) struct Gpu<'a> {
    lab: &'a Lab,
    group: Option<RobeGroup>,
}

impl<'a> Gpu<'a> {
    pub(super) const fn new(lab: &'a Lab) -> Self {
        Self { lab, group: None }
    }
}

impl Runner for Gpu<'_> {
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

    fn steps(&mut self, batches: &[Vec<u32>]) -> anyhow::Result<[Times; 2]> {
        let lab = self.lab;
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))?;
        let parts: Vec<_> = batches.iter().map(|rows| (rows.clone(), offsets(rows))).collect();
        let data = Inputs::new(lab, &parts, group.config().dim, 1.0);
        let mut turn = 0;
        let mut record = |phase: usize, encoder: &mut wgpu::CommandEncoder| -> anyhow::Result<()> {
            if phase == 1 {
                return Ok(group.record_backward(encoder, data.grads.slice(..))?);
            }
            turn += 1;
            Ok(group.record_forward(encoder, &data.batch(turn - 1), data.outputs.slice(..))?)
        };
        // The first step, which allocates and compiles, is not counted.
        lab.timeline.listen(false);
        let mut encoder = lab.encoder();
        (0..2).try_for_each(|phase| record(phase, &mut encoder))?;
        lab.submit(encoder)?;
        let measured = lab.measure(&["forward", "backward"], record)?;
        group.check()?;
        Ok(["forward", "backward"].map(|phase| measured.phase(phase).unwrap_or_default()))
    }
}
