//! The device under test: buffers, repeated measurements, the time that is left.

use anyhow::Context as _;
use hotrow::gpu::Resolution;
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Context, ContextOptions, Shaders, Timeline};
use serde::Serialize;
use std::time::{Duration, Instant};

use super::Size;

pub(crate) struct Lab {
    /// Dispatches recorded through it are timed.
    pub(crate) timed: Context,
    pub(crate) timeline: Timeline,
    pub(crate) size: Size,
    pub(crate) seed: u32,
    start: Instant,
    budget: Duration,
}

/// Seconds of several rounds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Times {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) rounds: usize,
}

/// What one stage took in a round.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) phase: &'static str,
    pub(crate) stage: &'static str,
    pub(crate) dispatches: u64,
    /// `None` on a device without timestamps.
    pub(crate) times: Option<Times>,
}

/// Several rounds of the same work, cut into phases.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) phases: Vec<(&'static str, Times)>,
    pub(crate) stages: Vec<Stage>,
    /// All phases, from submission until the host knows that they are done.
    pub(crate) wall: Times,
    /// Rounds of either kind, those that brought the caches into a steady state not counted.
    pub(crate) rounds: u64,
}

impl Measured {
    pub(crate) fn phase(&self, name: &str) -> Option<Times> {
        self.phases.iter().find(|(phase, _)| *phase == name).map(|&(_, times)| times)
    }

    pub(crate) fn dispatches(&self) -> u64 {
        self.stages.iter().map(|stage| stage.dispatches).sum()
    }
}

impl Times {
    pub(crate) fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let (Some(&lowest), Some(&highest)) = (seconds.first(), seconds.last()) else { return Self::default() };
        Self { median: seconds[seconds.len() / 2], lowest, highest, rounds: seconds.len() }
    }
}

impl Lab {
    pub(crate) fn new(context: &Context, size: Size, seed: u32, budget: Duration) -> Self {
        let timeline = Timeline::new(context);
        Self { timed: context.timed(&timeline), timeline, size, seed, start: Instant::now(), budget }
    }

    /// The same device with shaders compiled without wgpu's runtime checks; the time that is left is shared.
    pub(crate) fn trusted(&self) -> anyhow::Result<Self> {
        let options = ContextOptions::default().shaders(Shaders::Trusted);
        let context = Context::with_options(self.timed.device(), self.timed.queue(), &options)?;
        let lab = Self::new(&context, self.size, self.seed, self.budget);
        Ok(Self { start: self.start, ..lab })
    }

    /// How figures came to be, for table and JSON.
    pub(crate) fn timing(&self) -> &'static str {
        match self.timeline.resolution() {
            Resolution::Dispatch => "device timestamps between dispatches",
            Resolution::Pass => "device timestamps, a pass for each dispatch where stages are told apart",
            Resolution::Count => "wall clock: the device has no timestamps",
        }
    }

    pub(crate) fn is_hardware(&self) -> bool {
        self.timed.caps().is_hardware()
    }

    /// Whether figures may meet or miss a goal: a card, and the sizes that the goals name.
    pub(crate) fn judges(&self) -> bool {
        self.is_hardware() && self.size.is_full()
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub(crate) fn out_of_time(&self) -> bool {
        self.start.elapsed() > self.budget
    }

    pub(crate) fn storage(&self, words: &[u32]) -> wgpu::Buffer {
        self.timed.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("suite"),
            contents: bytemuck::cast_slice(words),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        })
    }

    /// A buffer that holds `bytes`, with usages beside those of storage and copies.
    pub(crate) fn room(&self, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.timed.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("suite"),
            size: bytes.max(16).next_multiple_of(16),
            usage: usage | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Most bytes of one binding.
    pub(crate) fn binding(&self) -> u64 {
        self.timed.caps().choose_shard_bytes()
    }

    /// Slots of a cache of `bytes`, or of as many as the device binds in all its windows. A window that a handful of slots would need is
    /// done without: a binding may fall short of a round number.
    pub(crate) fn slots(&self, bytes: u64, slot_bytes: u64) -> u32 {
        let (wanted, window) = (bytes / slot_bytes, self.binding() / slot_bytes);
        let beyond = wanted % window;
        let wanted = if beyond < wanted / 1000 { wanted - beyond } else { wanted };
        wanted.min(window * u64::from(self.timed.caps().choose_windows())) as u32 & !31
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.timed.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Submits and waits; returns seconds by the wall clock.
    pub(crate) fn submit(&self, encoder: wgpu::CommandEncoder) -> anyhow::Result<f64> {
        let start = Instant::now();
        let index = self.timed.queue().submit([encoder.finish()]);
        let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
        self.timed.device().poll(wait).context("waiting for the device")?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Rounds of `record`, which is called for one phase after the other. First rounds whose phases are timed as a whole, then
    /// rounds whose dispatches are.
    pub(crate) fn measure(
        &self,
        phases: &[&'static str],
        mut record: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let (whole, detailed, slice) = self.size.rounds();
        let mut seconds = vec![Vec::new(); phases.len()];
        let mut walls = Vec::new();
        let start = Instant::now();
        self.timeline.listen(false);
        while seconds[0].len() < 3 || (seconds[0].len() < whole && start.elapsed() < slice) {
            let (phases, _, wall) = self.round(phases, &mut record)?;
            for (all, one) in seconds.iter_mut().zip(phases) {
                all.push(one);
            }
            walls.push(wall);
        }
        let mut rounds = seconds[0].len() as u64;
        self.timeline.listen(true);
        let mut stages: Vec<(Stage, Vec<f64>)> = Vec::new();
        for _ in 0..detailed {
            let found = self.round(phases, &mut record)?.1;
            rounds += 1;
            for (phase, stage, dispatches, one) in found {
                let at = stages.iter().position(|(known, _)| known.phase == phase && known.stage == stage);
                let at = at.unwrap_or_else(|| {
                    stages.push((Stage { phase, stage, dispatches, times: None }, Vec::new()));
                    stages.len() - 1
                });
                stages[at].1.extend(one);
            }
        }
        let phases = phases.iter().copied().zip(seconds.into_iter().map(Times::of)).collect();
        let stages = stages
            .into_iter()
            .map(|(stage, seconds)| Stage { times: (!seconds.is_empty()).then(|| Times::of(seconds)), ..stage });
        Ok(Measured { phases, stages: stages.collect(), wall: Times::of(walls), rounds })
    }

    /// One round: the seconds of each phase, of each stage in it where dispatches are listened to, and by the host's clock.
    #[allow(clippy::type_complexity, reason = "taken apart by its only caller")]
    fn round(
        &self,
        phases: &[&'static str],
        record: &mut impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<(Vec<f64>, Vec<(&'static str, &'static str, u64, Option<f64>)>, f64)> {
        let mut wall = Vec::new();
        let mut encoder = self.encoder();
        for (i, &phase) in phases.iter().enumerate() {
            self.timeline.around(&mut encoder, phase, |encoder| record(i, encoder))?;
            if self.timeline.resolution() == Resolution::Count {
                wall.push(self.submit(std::mem::replace(&mut encoder, self.encoder()))?);
            }
        }
        self.timeline.resolve(&mut encoder);
        let last = self.submit(encoder)?;
        let heard = self.timeline.read()?;
        let mut seconds = Vec::new();
        let mut stages: Vec<(&'static str, &'static str, u64, Option<f64>)> = Vec::new();
        let mut first = 0;
        for span in heard.spans {
            let own = span.nanoseconds.map(|nanoseconds| nanoseconds * 1e-9);
            if span.dispatch {
                match stages[first..].iter_mut().find(|known| known.1 == span.stage) {
                    Some(known) => {
                        known.2 += 1;
                        known.3 = known.3.zip(own).map(|(a, b)| a + b);
                    }
                    None => stages.push(("", span.stage, 1, own)),
                }
            } else {
                // A phase's own span comes behind those of its dispatches.
                stages[first..].iter_mut().for_each(|known| known.0 = span.stage);
                first = stages.len();
                seconds.push(own.unwrap_or(0.0));
            }
        }
        if wall.is_empty() {
            return Ok((seconds, stages, last));
        }
        let all = wall.iter().sum();
        Ok((wall, stages, all))
    }
}
