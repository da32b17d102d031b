//! Steps of a shared array: on the CPU by the wall clock, on a GPU by its timestamps.

use anyhow::Context as _;
use hotrow::robe::Config;
use hotrow::{Bags, CpuSharedGroup, Error, Mode, SharedGroup, prelude::*, wgpu};
use std::hint::black_box;
use std::time::Duration;

use hotrow_report::clock::{Clock, Inputs, Rounds, gradients, timed};
use hotrow_report::units::Times;

/// Runs steps of one array at a time. Gradients lie between -1 and 1.
pub(super) struct Runner<'a> {
    /// `None` on the CPU.
    pub(super) clock: Option<&'a Clock>,
    pub(super) rounds: Rounds,
    pub(super) array: Option<Array>,
}

pub(super) enum Array {
    Cpu(Box<CpuSharedGroup>),
    Gpu(Box<SharedGroup>),
}

impl Runner<'_> {
    /// Makes an array of this configuration.
    pub(super) fn make(&mut self, config: Config) -> Result<(), Error> {
        self.array = None; // freed before the next is allocated
        self.array = Some(match self.clock {
            None => Array::Cpu(Box::new(CpuSharedGroup::new(config)?)),
            Some(clock) => Array::Gpu(Box::new(SharedGroup::new(&clock.timed, config)?)),
        });
        Ok(())
    }

    /// Gives the array this configuration. Returns the times of forward and of backward over batches of rows in turn, in bags of one.
    pub(super) fn steps(&mut self, config: Config, batches: &[Vec<u32>]) -> anyhow::Result<[Times; 2]> {
        let offsets: Vec<u32> = (0..=batches[0].len() as u32).collect();
        match self.array.as_mut().context("bench robe: wanted an array, found none")? {
            Array::Cpu(group) => {
                group.reconfigure(config)?;
                let grads = gradients(group.output_len(batches[0].len(), batches[0].len()), 1.0);
                let mut turn = batches.iter().cycle();
                let mut one = || {
                    let rows = turn.next().map_or(&[][..], Vec::as_slice);
                    let (outputs, forward) = timed(|| group.forward(Bags::new(rows, &offsets), Mode::Train));
                    drop(black_box(outputs?));
                    let (updated, backward) = timed(|| group.backward(&grads));
                    updated?;
                    Ok([forward, backward])
                };
                one()?; // not counted
                // After 300 ms, three rounds of a step are enough.
                Rounds { slice: Duration::from_millis(300), ..self.rounds }.repeat(one)
            }
            Array::Gpu(group) => {
                group.reconfigure(config)?;
                let clock = self.clock.context("bench robe: wanted the clock of the device, found none")?;
                let parts: Vec<_> = batches.iter().map(|rows| (rows.clone(), offsets.clone())).collect();
                let data = Inputs::new(clock, &parts, group.config().dim, 1.0);
                let mut turn = 0;
                let mut record = |phase: usize, encoder: &mut wgpu::CommandEncoder| -> anyhow::Result<()> {
                    if phase == 1 {
                        return Ok(group.encode_backward(encoder, data.grads.slice(..))?);
                    }
                    turn += 1;
                    Ok(group.encode_forward(encoder, &data.batch(turn - 1), data.outputs.slice(..), Mode::Train)?)
                };
                // The first step, which allocates and compiles, is not counted.
                clock.timeline.listen(false);
                let mut encoder = clock.encoder();
                (0..2).try_for_each(|phase| record(phase, &mut encoder))?;
                clock.submit(encoder)?;
                let measured = clock.measure(&["forward", "backward"], record)?;
                group.check()?;
                Ok(["forward", "backward"].map(|phase| measured.phase(phase).unwrap_or_default()))
            }
        }
    }
}
