//! The CPU backend's runner: wall clock.

use hotrow::robe::Config;
use hotrow::{Counters, CpuGroup, CpuRobeGroup, Error, GradSlice};
use std::hint::black_box;
use std::time::{Duration, Instant};

use super::beside::{Forward, Table};
use super::measure::{Runner, Step, What};
use crate::bench::suite::Size;
use crate::lab::Rounds;
use crate::report::units::Times;

/// Seconds after which three rounds are enough.
const SLICE: Duration = Duration::from_millis(300);

pub(super) struct CpuRunner {
    size: Size,
    group: Option<CpuRobeGroup>,
}

impl CpuRunner {
    pub(super) fn new(size: Size) -> Self {
        Self { size, group: None }
    }

    fn group(&mut self) -> anyhow::Result<&mut CpuRobeGroup> {
        self.group.as_mut().ok_or_else(|| anyhow::anyhow!("bench robe: wanted an array, found none"))
    }
}

/// Rounds of `one`, whose parts are timed by itself; the first is not counted.
fn rounds<const PARTS: usize>(
    size: Size,
    mut one: impl FnMut() -> anyhow::Result<[f64; PARTS]>,
) -> anyhow::Result<[Times; PARTS]> {
    one()?;
    Rounds { slice: SLICE, ..size.rounds() }.repeat(one)
}

impl Runner for CpuRunner {
    fn allocate(&mut self, config: Config) -> Result<(), Error> {
        self.group = None; // freed before the next is allocated
        self.group = Some(CpuRobeGroup::new(config)?);
        Ok(())
    }

    fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.group.as_mut().map_or(Ok(()), |group| group.reconfigure(config))
    }

    fn steps(&mut self, batches: &[Vec<u32>], what: What) -> anyhow::Result<Step> {
        let size = self.size;
        let group = self.group()?;
        // ROBE's loss is the sum of all that was read.
        let grads = vec![1.0; batches[0].len() * group.config().dim as usize];
        let offsets: Vec<u32> = (0..=batches[0].len() as u32).collect();
        let mut turn = batches.iter().cycle();
        let [forward, backward] = rounds(size, || {
            let Some(batch) = turn.next() else { return Ok([0.0; 2]) };
            let start = Instant::now();
            let outputs = group.forward(batch, &offsets, None)?;
            let forward = start.elapsed().as_secs_f64();
            drop(black_box(outputs));
            let start = Instant::now();
            // A gradient is allocated by its call, which is part of its time, and freed behind it, which is not.
            let gradient = match what {
                What::Update => group.backward(&grads).map(|()| None)?,
                What::Gradient => Some(group.gradient(GradSlice::F32(&grads))?),
            };
            let backward = start.elapsed().as_secs_f64();
            drop(black_box(gradient));
            Ok([forward, backward])
        })?;
        group.abandon_backward();
        Ok(Step { forward, backward, stages: Vec::new() })
    }

    fn auto(&self, starts: u32) -> &'static str {
        let from = self.group.as_ref().map_or(0, |group| {
            debug_assert_eq!(group.config().backward, hotrow::robe::Backward::Auto);
            group.dense_from()
        });
        if starts >= from { "dense" } else { "sparse" }
    }

    fn free(&mut self) {
        self.group = None;
    }
}

/// A forward of a batch.
type Look<'a> = &'a mut dyn FnMut(&[u32]) -> Result<Vec<f32>, Error>;

/// A table's forward over batches in turn, after others that fill its cache.
pub(super) fn forward(
    size: Size,
    table: &Table,
    warm: &[Vec<u32>],
    batches: &[Vec<u32>],
    offsets: &[u32],
) -> anyhow::Result<Forward> {
    let mut turn = batches.iter().cycle();
    let mut timed = |step: Look<'_>| {
        let one = || {
            let Some(batch) = turn.next() else { return Ok([0.0]) };
            let start = Instant::now();
            drop(black_box(step(batch)?));
            Ok([start.elapsed().as_secs_f64()])
        };
        rounds(size, one).map(|[times]| times)
    };
    match table {
        Table::Robe(config) => {
            let mut group = CpuRobeGroup::new(config.clone())?;
            // The next forward drops the last one's backward.
            let times = timed(&mut |batch| {
                group.abandon_backward();
                group.forward(batch, offsets, None)
            })?;
            Ok(Forward { times, hit_rate: None })
        }
        Table::Cached(config) => {
            let mut group = CpuGroup::new((**config).clone())?;
            for batch in warm {
                group.forward(batch, offsets, None)?;
                group.abandon_backward();
            }
            let before: Counters = group.counters()?.into_iter().sum();
            let times = timed(&mut |batch| {
                group.abandon_backward();
                group.forward(batch, offsets, None)
            })?;
            let after: Counters = group.counters()?.into_iter().sum();
            Ok(Forward { times, hit_rate: Some((after - before).hit_rate()) })
        }
    }
}
