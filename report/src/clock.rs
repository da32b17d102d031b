//! The clock of all benchmarks: a device under test with repeated rounds, and buffers for them.

use anyhow::Context as _;
use hotrow::internals::Device as _;
use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Batch, Context, Error, Timeline};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::units::Times;

#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// The most rounds whose phases are timed as a whole.
    pub whole: usize,
    pub detailed: usize,
    /// Time after which three whole rounds are enough.
    pub slice: Duration,
}

/// The least number of rounds for a median.
const LEAST: usize = 3;

impl Rounds {
    pub const ONE: Self = Self { whole: 1, detailed: 0, slice: Duration::ZERO };

    /// Repeats `one`, which returns the seconds of its parts.
    pub fn repeat<const PARTS: usize>(
        self,
        mut one: impl FnMut() -> anyhow::Result<[f64; PARTS]>,
    ) -> anyhow::Result<[Times; PARTS]> {
        let mut seconds = [const { Vec::new() }; PARTS];
        let start = Instant::now();
        while seconds[0].len() < LEAST || (seconds[0].len() < self.whole && start.elapsed() < self.slice) {
            for (all, part) in seconds.iter_mut().zip(one()?) {
                all.push(part);
            }
        }
        Ok(seconds.map(Times::of))
    }
}

/// Gradients of both signs, at most `most` in magnitude. One value all over would be packed and added faster than data on some devices.
pub fn gradients(n: usize, most: f32) -> Vec<f32> {
    (0..n as u32).map(|i| most * (crate::fmix32(i) as i32 >> 8) as f32 / (1 << 23) as f32).collect()
}

/// Does `work`, and returns its result and the seconds of the host's clock.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    (done, start.elapsed().as_secs_f64())
}

/// Whether the error is a lack of room on the device.
pub fn has_no_room(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::OutOfMemory { .. } | Error::TooLarge { .. }))
}

#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    start: Instant,
    budget: Duration,
}

impl Deadline {
    pub fn new(budget: Duration) -> Self {
        Self { start: Instant::now(), budget }
    }

    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Once the time is over, the reason to name for all that is left out.
    pub fn over(&self) -> Option<String> {
        let (elapsed, budget) = (self.seconds(), self.budget.as_secs());
        (self.start.elapsed() > self.budget)
            .then(|| format!("out of time after {elapsed:.0} s of {budget} (--seconds)"))
    }
}

/// A device under test, whose work is timed.
#[derive(Debug)]
pub struct Clock {
    pub timed: Context,
    pub timeline: Timeline,
    pub rounds: Rounds,
    /// Seconds of a step of the time stamps; `None` without them.
    step: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Stage {
    pub phase: &'static str,
    pub stage: &'static str,
    pub dispatches: u64,
    /// The times; `None` on a device without timestamps.
    pub times: Option<Times>,
}

impl Stage {
    /// Adds dispatches and times of another stage to this one.
    pub fn add(&mut self, other: &Self) {
        self.dispatches += other.dispatches;
        self.times = self.times.zip(other.times).map(|(a, b)| a.plus(b));
    }
}

/// Measurements of several rounds of the same work, by phase.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    phases: Vec<(&'static str, Times)>,
    pub stages: Vec<Stage>,
    /// Times of all phases together, from submission until the host has waited for them.
    pub wall: Times,
    /// Number of rounds, whole ones and ones with timed stages.
    pub rounds: u64,
}

impl Measured {
    pub fn phase(&self, name: &str) -> Option<Times> {
        self.phases.iter().find(|(phase, _)| *phase == name).map(|&(_, times)| times)
    }

    pub fn dispatches(&self) -> u64 {
        self.stages.iter().map(|stage| stage.dispatches).sum()
    }
}

/// Measurements of one round: phases, stages if they are timed, and the host's clock.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub phases: Vec<f64>,
    stages: Vec<(&'static str, &'static str, u64, Option<f64>)>,
    wall: f64,
}

impl Clock {
    pub fn new(context: &Context, rounds: Rounds) -> Self {
        let timeline = Timeline::new(context);
        Self { timed: context.timed(&timeline), timeline, rounds, step: step(context) }
    }

    pub fn storage(&self, words: &[u32]) -> wgpu::Buffer {
        self.timed.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("bench"),
            contents: bytemuck::cast_slice(words),
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        })
    }

    /// A storage buffer of `bytes` bytes that can be copied, with further usages.
    pub fn room(&self, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.timed.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("bench"),
            size: bytes.max(16).next_multiple_of(16),
            usage: usage | wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// A storage buffer of random words, since zeros can be faster than data.
    pub fn filled(&self, bytes: u64, usage: wgpu::BufferUsages) -> anyhow::Result<wgpu::Buffer> {
        let buffer = self.timed.guarded(|| Ok(self.room(bytes, usage)))?;
        let words: Vec<u32> = (0..(4u32 << 20)).map(crate::fmix32).collect();
        let mut at = 0;
        while at < bytes {
            let some = (bytes - at).min(16 << 20);
            self.timed.queue().write_buffer(&buffer, at, &bytemuck::cast_slice(&words)[..some as usize]);
            self.submit(self.encoder())?;
            at += some;
        }
        Ok(buffer)
    }

    pub fn binding(&self) -> u64 {
        self.timed.caps().choose_piece_bytes()
    }

    pub fn encoder(&self) -> wgpu::CommandEncoder {
        self.timed.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Submits and waits; returns the seconds of the host's clock.
    pub fn submit(&self, encoder: wgpu::CommandEncoder) -> anyhow::Result<f64> {
        let (done, seconds) = timed(|| self.wait(self.timed.queue().submit([encoder.finish()])));
        done.map(|()| seconds)
    }

    pub fn wait(&self, index: wgpu::SubmissionIndex) -> anyhow::Result<()> {
        let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
        self.timed.device().poll(wait).context("waiting for the device")?;
        Ok(())
    }

    /// Marks times of one of so many turns that together count too few steps of the device's clock.
    pub fn marked(&self, times: Times, turns: u32) -> Times {
        Times { coarse: is_coarse(self.step, times.median * f64::from(turns)), ..times }
    }

    /// As [`Clock::measure`], of phases that may be encoded any number of times: as often as a coarse clock needs. The times are those of one.
    pub fn repeated(
        &self,
        phases: &[&'static str],
        mut encode: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let (mut turns, mut wanted) = (0, 1);
        while turns < wanted {
            turns = wanted;
            let round = self.round(phases, |phase, encoder| (0..turns).try_for_each(|_| encode(phase, encoder)))?;
            wanted = turns_of(self.step, round.phases.into_iter().fold(f64::MAX, f64::min), turns);
        }
        self.of_turns(turns, phases, encode)
    }

    /// Measures rounds of `record`, which is called for each phase in turn: first rounds whose phases are timed as a whole, then rounds
    /// whose dispatches are timed.
    pub fn measure(
        &self,
        phases: &[&'static str],
        encode: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        self.of_turns(1, phases, encode)
    }

    fn of_turns(
        &self,
        turns: u32,
        phases: &[&'static str],
        mut one: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let mut encode = |phase, encoder: &mut _| (0..turns).try_for_each(|_| one(phase, encoder));
        let of_one = |seconds: Vec<f64>| Times::of(seconds.into_iter().map(|all| all / f64::from(turns)).collect());
        let marked = |seconds| self.marked(of_one(seconds), turns);
        let Rounds { whole, detailed, slice } = self.rounds;
        let mut seconds = vec![Vec::new(); phases.len()];
        let mut walls = Vec::new();
        let start = Instant::now();
        self.timeline.listen(false);
        while walls.len() < LEAST || (walls.len() < whole && start.elapsed() < slice) {
            let round = self.round(phases, &mut encode)?;
            seconds.iter_mut().zip(round.phases).for_each(|(all, one)| all.push(one));
            walls.push(round.wall);
        }
        self.timeline.listen(true);
        let mut stages: Vec<(Stage, Vec<f64>)> = Vec::new();
        for _ in 0..detailed {
            for (phase, stage, dispatches, one) in self.round(phases, &mut encode)?.stages {
                let at = stages.iter().position(|(known, _)| known.phase == phase && known.stage == stage);
                let at = at.unwrap_or_else(|| {
                    let dispatches = dispatches / u64::from(turns);
                    stages.push((Stage { phase, stage, dispatches, times: None }, Vec::new()));
                    stages.len() - 1
                });
                stages[at].1.extend(one);
            }
        }
        self.timeline.listen(false);
        let of = |seconds: Vec<f64>| (!seconds.is_empty()).then(|| marked(seconds));
        let stages = stages.into_iter().map(|(stage, seconds)| Stage { times: of(seconds), ..stage });
        Ok(Measured {
            rounds: (walls.len() + detailed) as u64,
            phases: phases.iter().copied().zip(seconds.into_iter().map(marked)).collect(),
            stages: stages.collect(),
            wall: of_one(walls),
        })
    }

    /// Measures one round. With timestamps its phases are one submission.
    pub fn round(
        &self,
        phases: &[&'static str],
        mut encode: impl FnMut(usize, &mut wgpu::CommandEncoder) -> anyhow::Result<()>,
    ) -> anyhow::Result<Round> {
        let mut found = Round::default();
        let mut encoder = self.encoder();
        let stamped = self.timeline.has_stamps();
        for (i, &phase) in phases.iter().enumerate() {
            self.timeline.around(&mut encoder, phase, |encoder| encode(i, encoder))?;
            if !stamped {
                found.phases.push(self.submit(std::mem::replace(&mut encoder, self.encoder()))?);
            }
        }
        self.timeline.resolve(&mut encoder);
        found.wall = self.submit(encoder)? + found.phases.iter().sum::<f64>();
        let mut first = 0;
        for span in self.timeline.read()?.spans {
            let seconds = span.nanoseconds.map(|nanoseconds| nanoseconds * 1e-9);
            if span.dispatch {
                match found.stages[first..].iter_mut().find(|known| known.1 == span.stage) {
                    Some(known) => {
                        known.2 += 1;
                        known.3 = known.3.zip(seconds).map(|(a, b)| a + b);
                    }
                    None => found.stages.push(("", span.stage, 1, seconds)),
                }
            } else {
                // The span of a phase follows those of its dispatches.
                found.stages[first..].iter_mut().for_each(|known| known.0 = span.stage);
                first = found.stages.len();
                if stamped {
                    found.phases.push(seconds.unwrap_or(0.0));
                }
            }
        }
        Ok(found)
    }
}

/// Batches on a device with equal offsets, and buffers for outputs and gradients.
#[derive(Debug)]
pub struct Inputs {
    indices: Vec<wgpu::Buffer>,
    offsets: Vec<wgpu::Buffer>,
    pub outputs: wgpu::Buffer,
    pub grads: wgpu::Buffer,
}

impl Inputs {
    /// Uploads batches, each given by indices and offsets. Gradients are at most `grad`.
    pub fn new(clock: &Clock, batches: &[(Vec<u32>, Vec<u32>)], dim: u32, grad: f32) -> Self {
        let bags = batches.iter().map(|(_, offsets)| offsets.len().saturating_sub(1)).max().unwrap_or(0);
        let floats = bags * dim as usize;
        Self {
            indices: batches.iter().map(|(indices, _)| clock.storage(indices)).collect(),
            offsets: batches.iter().map(|(_, offsets)| clock.storage(offsets)).collect(),
            outputs: clock.room(floats as u64 * 4, wgpu::BufferUsages::empty()),
            grads: clock.storage(bytemuck::cast_slice(&gradients(floats, grad))),
        }
    }

    /// A batch of other indices with the offsets of the first batch.
    pub fn with<'b>(&'b self, indices: &'b wgpu::Buffer) -> Batch<'b> {
        Batch { indices: Some(indices.slice(..)), offsets: self.offsets[0].slice(..), weights: None }
    }

    /// The batch of a turn. After the last batch the first one follows.
    pub fn batch(&self, turn: usize) -> Batch<'_> {
        let turn = turn % self.indices.len();
        Batch { indices: Some(self.indices[turn].slice(..)), offsets: self.offsets[turn].slice(..), weights: None }
    }
}

/// Errors that a device reported outside of any call.
#[derive(Clone, Debug, Default)]
pub struct Complaints(Arc<Mutex<Vec<String>>>);

impl Complaints {
    /// Collects the errors of a device. Without this handler wgpu panics, and all figures would be lost.
    pub fn of(context: &Context) -> Self {
        let heard = Self::default();
        let sink = heard.clone();
        context.device().on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            sink.0.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }));
        heard
    }

    pub fn first(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).next()
    }
}

/// Where Linux describes the caches of the first core.
pub const CACHES: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Bytes of the last-level cache that a folder as [`CACHES`] describes.
pub fn last_level_cache(folder: &str) -> Option<u64> {
    let of = |cache: std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(cache.path().join(name)).ok();
        let (level, size) = (read("level")?.trim().parse::<u32>().ok()?, read("size")?);
        let unit =
            [('K', 10), ('M', 20)].into_iter().find(|(letter, _)| size.contains(*letter)).map_or(0, |unit| unit.1);
        Some((level, size.trim().trim_end_matches(['K', 'M']).parse::<u64>().ok()? << unit))
    };
    std::fs::read_dir(folder).ok()?.flatten().filter_map(of).max().map(|cache| cache.1).filter(|&bytes| bytes > 0)
}

/// Bytes of memory that this machine has, or has left (`left`), on a system that says so.
pub fn memory(left: bool) -> Option<u64> {
    let said = std::fs::read_to_string("/proc/meminfo").ok()?;
    let name = if left { "MemAvailable:" } else { "MemTotal:" };
    let line = said.lines().find_map(|line| line.strip_prefix(name))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    Some(kib * 1024)
}

// How finely a device's clock counts, and how often work is repeated so that its steps do not matter: some GPUs count in steps of 65 us.

/// The least steps of a measured time. The step in which it begins or ends is then at most 2 % of it.
const STEPS: f64 = 50.0;
/// The most times that work is repeated in one measurement.
const MOST: u32 = 256;

/// The seconds of a step of the device's time stamps; `None` without stamps.
pub fn step(context: &Context) -> Option<f64> {
    let timeline = Timeline::new(context);
    let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for _ in 0..512 {
        timeline.around(&mut encoder, "clock", |_| ());
    }
    timeline.resolve(&mut encoder);
    context.queue().submit([encoder.finish()]);
    let spans = timeline.read().ok()?.spans;
    let tick = f64::from(context.queue().get_timestamp_period());
    let ticks = spans.iter().filter_map(|span| Some((span.nanoseconds? / tick).round() as u64));
    common(ticks).map(|ticks| ticks as f64 * tick * 1e-9)
}

/// The largest number of ticks of which all these times are multiples; `None` if no time is above 0.
fn common(times: impl Iterator<Item = u64>) -> Option<u64> {
    let divisor = |a: u64, b| std::iter::successors(Some((a, b)), |&(a, b)| (b > 0).then(|| (b, a % b))).last();
    times.reduce(|a, b| divisor(a, b).map_or(a, |both| both.0)).filter(|&ticks| ticks > 0)
}

/// Whether a time of this length counts too few steps.
fn is_coarse(step: Option<f64>, seconds: f64) -> bool {
    step.is_some_and(|step| seconds < STEPS * step)
}

/// How often work that took `seconds` in `turns` turns is to be repeated in one measurement.
fn turns_of(step: Option<f64>, seconds: f64, turns: u32) -> u32 {
    let Some(step) = step.filter(|_| is_coarse(step, seconds)) else { return turns };
    // A fifth more, since a first time may be a slow one. Below a step, a time may be anything up to that.
    let more = f64::from(turns) * 1.2 * STEPS / (seconds / step).max(1.0);
    (more.ceil() as u32).clamp(turns, MOST.max(turns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_cache_of_the_last_level_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for (name, level, size) in [("index0", "1", "32K\n"), ("index3", "3\n", "8M\n"), ("index2", "2", "512K")] {
            let cache = folder.path().join(name);
            fs::create_dir(&cache).and_then(|()| fs::write(cache.join("level"), level)).unwrap();
            fs::write(cache.join("size"), size).unwrap();
        }
        let found = [folder.path().to_str().unwrap(), "/no such folder"].map(last_level_cache);
        assert_eq!(found, [Some(8 << 20), None]);
    }

    #[test]
    fn coarse_clocks_repeat_work() {
        let (coarse, fine) = (Some(65_536e-9), Some(1e-9));
        // 15 steps, where 60 are wanted; 61 are enough. If nothing was seen to pass, 60 turns; then as many as these show to be needed.
        for (seconds, before, wanted) in [(1e-3, 1, 4), (4e-3, 4, 4), (0.0, 1, 60), (131_072e-9, 60, MOST)] {
            assert_eq!(turns_of(coarse, seconds, before), wanted, "{seconds}");
        }
        assert_eq!([1e-3, 60e-9, 10e-9].map(|seconds| turns_of(fine, seconds, 1)), [1, 1, 6]);
        assert_eq!(common([0, 65_536, 131_072, 0, 196_608].into_iter()), Some(65_536));
        assert_eq!([common([1311, 1024, 992].into_iter()), common([0, 0].into_iter())], [Some(1), None]);
    }
}
