//! Measures on the CPU by the wall clock.

use hotrow::robe::Config;
use hotrow::{CpuGroup, CpuRobeGroup, Error, GradSlice, GroupConfig};
use std::hint::black_box;
use std::time::Duration;

use super::plan::{Batches, Behind, Runner};
use crate::lab::{self, Rounds};
use crate::report::units::Times;

pub(super) struct CpuRunner {
    rounds: Rounds,
    group: Option<CpuRobeGroup>,
}

impl CpuRunner {
    /// After 300 ms, three rounds of a step are enough.
    pub(super) fn new(rounds: Rounds) -> Self {
        Self { rounds: Rounds { slice: Duration::from_millis(300), ..rounds }, group: None }
    }
}

/// Seconds that `work` takes. Its result is freed afterwards.
fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> anyhow::Result<f64> {
    let (done, seconds) = lab::timed(work);
    drop(black_box(done?));
    Ok(seconds)
}

impl Runner for CpuRunner {
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

    fn auto(&self, starts: u32) -> &'static str {
        let from = self.group.as_ref().map_or(0, |group| {
            debug_assert_eq!(group.config().backward, hotrow::robe::Backward::Auto);
            group.dense_from()
        });
        if starts >= from { "dense" } else { "sparse" }
    }

    fn steps(&mut self, batches: &Batches<'_>, behind: Behind) -> anyhow::Result<[Times; 2]> {
        let group = self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))?;
        // The loss is the sum of all values read, as in ROBE, so every gradient is 1.
        let offsets = batches.offsets();
        let outputs = group.output_len(batches.rows[0].len(), offsets.len() - 1);
        let grads = vec![1.0; if behind == Behind::Nothing { 0 } else { outputs }];
        let mut turn = batches.rows.iter().cycle();
        let mut one = || {
            let rows = turn.next().map_or(&[][..], Vec::as_slice);
            let forward = timed(|| group.forward(rows, &offsets, None))?;
            let backward = match behind {
                Behind::Nothing => 0.0,
                Behind::Update => timed(|| group.backward(&grads))?,
                // The call allocates the gradient; its time includes that.
                Behind::Gradient => timed(|| group.gradient(GradSlice::F32(&grads)))?,
            };
            group.abandon_backward();
            Ok([forward, backward])
        };
        one()?; // not counted
        self.rounds.repeat(one)
    }

    fn cached(
        &mut self,
        config: &GroupConfig,
        warm: &[Vec<u32>],
        batches: &Batches<'_>,
    ) -> anyhow::Result<(Times, f64)> {
        self.group = None;
        let mut group = CpuGroup::new(config.clone())?;
        let offsets = batches.offsets();
        for rows in warm {
            group.forward(rows, &offsets, None)?;
            group.abandon_backward();
        }
        let before = group.counters()?[0];
        let mut turn = batches.rows.iter().cycle();
        let mut one = || {
            let rows = turn.next().map_or(&[][..], Vec::as_slice);
            let seconds = timed(|| group.forward(rows, &offsets, None))?;
            group.abandon_backward();
            Ok([seconds])
        };
        one()?;
        let [times] = self.rounds.repeat(one)?;
        Ok((times, (group.counters()?[0] - before).hit_rate()))
    }
}
