//! One backend's measurements: every precision x policy x placement over the hit rates, and the bounds.

use super::cpu::CpuRunner;
use super::gpu::GpuRunner;
use super::report::{Point, Run};
use super::shape::{Shape, Stream};
use super::staged::StagedRunner;
use crate::progress::Progress;
use crate::uvm::UvmModel;
use hotrow::{Context, Counters, GroupConfig, Init, Optimizer, Placement, Policy, Precision};
use std::time::{Duration, Instant};

/// Something that takes training steps and tells how long forward and backward took, in seconds.
pub(crate) trait Runner {
    /// `None` if there was nothing to do yet but to prepare this batch, which is then one step ahead.
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>>;
    /// All that was done so far; a batch that was ahead is done first.
    fn seen(&mut self) -> anyhow::Result<Seen>;
}

/// What has been counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) counters: Counters,
    /// Bytes that crossed in forward, and in backward.
    pub(crate) bus: [u64; 2],
}

impl Seen {
    /// Where shaders reach the table themselves: forward reads records and writes evicted ones, backward writes the bypassed ones.
    pub(crate) fn of(counters: Counters, stride: u64) -> Self {
        let backward = counters.bypass_writes * stride;
        Self { bus: [counters.bus_bytes() - backward, backward], counters }
    }
}

/// What computes.
pub(crate) enum Target<'a> {
    Cpu,
    Gpu(&'a Context),
}

/// What to measure.
pub(crate) struct Sweep {
    pub(crate) shape: Shape,
    pub(crate) precisions: Vec<Precision>,
    pub(crate) policies: Vec<Policy>,
    pub(crate) placements: Vec<Placement>,
    /// Placements measured beside them at [`Sweep::compared`] only.
    pub(crate) beside: Vec<Placement>,
    pub(crate) hit_rates: Vec<f64>,
    pub(crate) optimizer: Optimizer,
    pub(crate) seed: u32,
    pub(crate) budget: Duration,
    /// Unified memory, a model for each page size.
    pub(crate) uvm: Vec<UvmModel>,
}

/// Steps that bring the hot rows in before a point is measured. LFU wants the hot rows ahead by more than one use.
pub(super) const WARM: usize = 3;
/// Steps whose median is the figure, as many of them as the budget allows.
const MEASURED: usize = 15;
/// And at least so many.
const LEAST: usize = 3;

impl Sweep {
    fn config(&self, precision: Precision, policy: Policy, placement: Placement, cache_rows: u32) -> GroupConfig {
        let mut config = GroupConfig::new(&[self.shape.rows], self.shape.dim);
        config.precision = precision;
        config.policy = policy;
        config.placement = placement;
        config.cache_rows = cache_rows;
        config.optimizer = self.optimizer;
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config.seed = self.seed;
        config
    }

    fn runner(&self, target: &Target<'_>, config: GroupConfig) -> anyhow::Result<Box<dyn Runner>> {
        let offsets = self.shape.offsets();
        Ok(match target {
            Target::Cpu => Box::new(CpuRunner::new(config, &offsets)?),
            Target::Gpu(context) if config.placement == Placement::Staged => {
                Box::new(StagedRunner::new(context, config, &offsets)?)
            }
            Target::Gpu(context) => Box::new(GpuRunner::new(context, config, &offsets)?),
        })
    }

    /// Takes the whole sweep.
    pub(crate) fn run(&self, target: &Target<'_>) -> anyhow::Result<Run> {
        let curves = self.precisions.len() * (self.policies.len() + 1) * self.placements.len();
        let points = (curves + 2 * self.beside.len()) * self.hit_rates.len();
        let progress = Progress::new(Run::backend(target), points as u64);
        let slice = self.budget.div_f64(points.max(1) as f64);
        let mut run = Run::new(
            target,
            self.shape,
            self.optimizer,
            self.compared(),
            self.uvm.first().copied().unwrap_or_default(),
        );
        for &placement in &self.placements {
            for &precision in &self.precisions {
                for &policy in &self.policies {
                    self.cached(&mut run, target, (precision, policy, placement), slice, &progress)?;
                }
                run.points.push(self.uncached(target, precision, placement, slice)?);
                progress.advance(self.hit_rates.len() as u64);
            }
        }
        let (precision, policy) = self.compared();
        for &placement in &self.beside {
            self.cached(&mut run, target, (precision, policy, placement), slice, &progress)?;
            run.points.push(self.uncached(target, precision, placement, slice)?);
            progress.advance(self.hit_rates.len() as u64);
        }
        // The bound of P1 Figure 9: an FP32 table in host memory, read by the shaders over the bus.
        let mappable = matches!(target, Target::Gpu(context) if context.caps().mappable);
        let measured = |point: &Point| {
            (point.kind, point.precision, point.placement) == ("uncached", Precision::Fp32, Placement::Mapped)
        };
        if mappable && !run.points.iter().any(measured) {
            run.points.push(self.uncached(target, Precision::Fp32, Placement::Mapped, slice)?);
        }
        self.uvm(&mut run, target, slice)?;
        Ok(run)
    }

    /// At what placements are compared: INT8, or the first precision asked for; the first policy.
    pub(crate) fn compared(&self) -> (Precision, Policy) {
        let first = self.precisions.first().copied().unwrap_or(Precision::Int8);
        let precision = if self.precisions.contains(&Precision::Int8) { Precision::Int8 } else { first };
        (precision, self.policies.first().copied().unwrap_or(Policy::Lru))
    }

    /// A curve with a cache.
    fn cached(
        &self,
        run: &mut Run,
        target: &Target<'_>,
        (precision, policy, placement): (Precision, Policy, Placement),
        slice: Duration,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let config = self.config(precision, policy, placement, self.shape.cache_rows());
        let mut runner = self.runner(target, config)?;
        let mut stream = self.stream();
        for &hit_rate in &self.hit_rates {
            let point = self.point(runner.as_mut(), &mut stream, hit_rate, slice)?;
            run.points.push(Point { kind: "cached", precision, policy: Some(policy), placement, ..point });
            progress.advance(1);
        }
        Ok(())
    }

    /// Without a cache the hit rate is 0, whatever the share of hot rows.
    fn uncached(
        &self,
        target: &Target<'_>,
        precision: Precision,
        placement: Placement,
        slice: Duration,
    ) -> anyhow::Result<Point> {
        let mut runner = self.runner(target, self.config(precision, Policy::Lru, placement, 0))?;
        let point = self.point(runner.as_mut(), &mut self.stream(), 0.5, slice)?;
        Ok(Point { kind: "uncached", precision, placement, ..point })
    }

    pub(super) fn point(
        &self,
        runner: &mut dyn Runner,
        stream: &mut Stream,
        hit_rate: f64,
        slice: Duration,
    ) -> anyhow::Result<Point> {
        for _ in 0..WARM {
            runner.step(&stream.batch(1.0))?;
        }
        runner.step(&stream.batch(hit_rate))?;
        let before = runner.seen()?;
        let mut seconds: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        let (start, mut steps) = (Instant::now(), 0);
        while seconds[0].len() < LEAST || (seconds[0].len() < MEASURED && start.elapsed() < slice) {
            steps += 1;
            if let Some([forward, backward]) = runner.step(&stream.batch(hit_rate))? {
                seconds[0].push(forward);
                seconds[1].push(backward);
            }
        }
        let after = runner.seen()?;
        let seen = after.counters - before.counters;
        let [forward, backward] = seconds.map(median);
        Ok(Point {
            kind: "",
            page_bytes: 0,
            precision: Precision::Fp32,
            policy: None,
            placement: Placement::Device,
            target_hit_rate: hit_rate,
            hit_rate: seen.hit_rate(),
            forward_seconds: forward,
            backward_seconds: backward,
            logical_bytes: self.shape.logical_bytes(),
            bus_bytes_read: seen.bytes_read / steps,
            bus_bytes_written: seen.bytes_written / steps,
            bus_bytes: [0, 1].map(|k| (after.bus[k] - before.bus[k]) / steps),
            steps,
        })
    }

    /// The batches of a curve, the same for every curve.
    pub(super) fn stream(&self) -> Stream {
        Stream::new(self.shape, self.seed)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
