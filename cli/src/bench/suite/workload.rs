//! A workload measured: a group of tables, brought into a known state, then forward and backward over batches in turn.

use hotrow::{Counters, Group, GroupConfig, Layout, wgpu};

use super::Bench;
use super::bytes::{Facts, kernel};
use super::shapes::Batch;
use crate::bench::total;
use crate::lab::{Inputs, Lab, Measured};
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Figures of whole phases, as their table has them.
pub(super) const SHOWN: [&str; 11] = [
    "hit rate",
    "distinct",
    "missing",
    "forward",
    "backward",
    "forward logical",
    "backward logical",
    "forward table bytes",
    "backward table bytes",
    "step, host clock",
    "dispatches",
];

/// A group, batches that warm it, and batches that are measured.
pub(crate) struct Workload {
    pub(crate) name: String,
    /// Rows, batches, and how they are drawn.
    pub(crate) shape: String,
    /// Why figures do not stand for the shape that the name says, if they do not.
    pub(crate) scaled: Option<String>,
    pub(crate) config: GroupConfig,
    /// Forward only, before anything is measured.
    pub(crate) warm: Vec<Batch>,
    /// In turn.
    pub(crate) batches: Vec<Batch>,
    pub(crate) backward: bool,
}

/// What was measured of a workload.
pub(crate) struct Case {
    pub(super) name: String,
    scaled: Option<String>,
    pub(super) setting: Setting,
    pub(super) facts: Facts,
    measured: Measured,
    kernels: Vec<Kernel>,
}

/// A kernel's part of a case.
struct Kernel {
    kernel: &'static str,
    phase: &'static str,
    dispatches: u64,
    /// Of its stages, added up.
    times: Option<Times>,
    /// What it must move, if a formula is known.
    bytes: Option<f64>,
}

/// A row with more accesses than this is heavy: the kernels sum its gradients in chunks of as many.
const HEAVY: u32 = 128;

impl Workload {
    pub(crate) fn new(name: impl Into<String>, shape: impl Into<String>, config: GroupConfig) -> Self {
        let (warm, batches) = (Vec::new(), Vec::new());
        Self { name: name.into(), shape: shape.into(), scaled: None, config, warm, batches, backward: true }
    }

    pub(crate) fn run(&self, lab: &Lab) -> anyhow::Result<Case> {
        lab.timeline.listen(false);
        self.run_on(lab, &mut Group::new(&lab.timed, self.config.clone())?)
    }

    /// On a group of this configuration.
    pub(super) fn run_on(&self, lab: &Lab, group: &mut Group) -> anyhow::Result<Case> {
        let upload = |batches: &[Batch]| {
            let parts: Vec<_> = batches.iter().map(|batch| (batch.indices(), batch.offsets())).collect();
            Inputs::new(lab, &parts, self.config.dim, 1e-3)
        };
        lab.timeline.listen(false);
        for batch in &self.warm {
            let inputs = upload(std::slice::from_ref(batch));
            let mut encoder = lab.encoder();
            group.record_forward(&mut encoder, &inputs.batch(0), inputs.outputs.slice(..))?;
            group.abandon_backward();
            lab.submit(encoder)?;
        }
        let inputs = upload(&self.batches);
        let mut turn = 0;
        let mut record = |group: &mut Group, phase: usize, encoder: &mut wgpu::CommandEncoder| {
            if phase == 1 {
                return group.record_backward(encoder, inputs.grads.slice(..));
            }
            group.abandon_backward();
            turn += 1;
            group.record_forward(encoder, &inputs.batch(turn - 1), inputs.outputs.slice(..))
        };
        let phases = if self.backward { &["forward", "backward"][..] } else { &["forward"] };
        // A whole step that is not counted: allocations and compilation are over afterwards.
        let mut encoder = lab.encoder();
        (0..phases.len()).try_for_each(|phase| record(group, phase, &mut encoder))?;
        lab.submit(encoder)?;
        group.check()?;
        let before = total(group)?;
        let measured = lab.measure(phases, |phase, encoder| Ok(record(group, phase, encoder)?))?;
        group.check()?;
        let seen = total(group)? - before;
        Ok(self.case(lab, measured, seen))
    }

    fn case(&self, lab: &Lab, measured: Measured, seen: Counters) -> Case {
        // The layout does not depend on the shards' size.
        let layout = Layout::new(&self.config, lab.binding()).ok();
        let facts = self.facts(layout.as_ref(), seen, measured.rounds as f64);
        let mut kernels: Vec<Kernel> = Vec::new();
        for stage in &measured.stages {
            let (name, phase) = (kernel(stage.stage), stage.phase);
            match kernels.iter_mut().find(|known| known.kernel == name && known.phase == phase) {
                Some(known) => {
                    known.dispatches += stage.dispatches;
                    known.times = known.times.zip(stage.times).map(|(a, b)| a.plus(b));
                }
                None => kernels.push(Kernel {
                    kernel: name,
                    phase,
                    dispatches: stage.dispatches,
                    times: stage.times,
                    bytes: facts.bytes(name, phase == "backward"),
                }),
            }
        }
        let setting = Setting::default().with("placement", format!("{:?}", self.config.placement).to_lowercase());
        let setting = self.scaled.iter().fold(setting, |setting, why| setting.with("scaled", why.as_str()));
        Case { name: self.name.clone(), scaled: self.scaled.clone(), setting, facts, measured, kernels }
    }

    fn facts(&self, layout: Option<&Layout>, seen: Counters, steps: f64) -> Facts {
        let mean = |all: u64| all as f64 / steps.max(1.0);
        let heavy =
            |batch: &Batch| batch.repeats().iter().filter(|&&n| n > HEAVY).map(|&n| u64::from(n)).sum::<u64>() as f64;
        let batches = self.batches.len() as f64;
        let of = |field: fn(&Layout) -> f64| layout.map_or(0.0, field);
        Facts {
            accesses: mean(seen.accesses),
            hits: mean(seen.hits),
            distinct: mean(seen.unique),
            missing: mean(seen.unique_misses),
            admitted: mean(seen.admitted),
            write_backs: mean(seen.write_backs),
            bypassed: mean(seen.bypass_reads),
            outputs: self.batches.iter().map(|batch| batch.offsets().len() as f64 - 1.0).sum::<f64>() / batches,
            heavy_accesses: self.batches.iter().map(heavy).fold(0.0, |a, b| a + b) / batches,
            sets: of(|layout| f64::from(layout.sets)),
            row: of(|layout| 4.0 * f64::from(layout.dim)),
            state: of(|layout| 4.0 * f64::from(layout.state)),
            record: of(|layout| layout.stride() as f64),
            passes: layout.map_or([0.0; 2], |layout| passes(layout, mean(seen.accesses) as u32)),
        }
    }
}

/// 8-bit passes of forward's sort of the misses and of backward's sort of `accesses`: by rows or by places, whichever takes fewer.
fn passes(layout: &Layout, accesses: u32) -> [f64; 2] {
    let backward = layout.row_bits().min(layout.place_bits(accesses));
    // A batch of at most 1,024 is sorted in shared memory: read once, written once, as one pass.
    let passes = |bits: u32| f64::from(if accesses <= 1024 { 1 } else { bits.div_ceil(8) });
    [layout.miss_key_bits(), backward].map(passes)
}

impl Case {
    /// Seconds of a phase.
    pub(crate) fn times(&self, phase: &str) -> Option<Times> {
        self.measured.phase(phase)
    }

    /// The median of a phase.
    pub(super) fn seconds(&self, phase: &str) -> Option<f64> {
        self.times(phase).map(|times| times.median)
    }

    /// Forward and backward.
    pub(super) fn step(&self) -> Option<f64> {
        Some(self.seconds("forward")? + self.seconds("backward")?)
    }

    pub(crate) fn hit_rate(&self) -> f64 {
        self.facts.hits / self.facts.accesses.max(1.0)
    }

    /// The median of a kernel.
    pub(super) fn kernel(&self, kernel: &str, phase: &str) -> Option<f64> {
        let found = self.kernels.iter().find(|found| found.kernel == kernel && found.phase == phase);
        found?.times.map(|times| times.median)
    }

    /// The update's share of backward's kernels, which are timed in rounds of their own.
    pub(super) fn update_share(&self) -> Option<f64> {
        let backward = self.kernels.iter().filter(|kernel| kernel.phase == "backward");
        let all = backward.map(|kernel| Some(kernel.times?.median)).sum::<Option<f64>>()?;
        Some(self.kernel("update", "backward")? / all)
    }

    pub(super) fn dispatches(&self) -> u64 {
        self.measured.dispatches()
    }

    /// Bytes that all kernels of a phase must move.
    pub(super) fn bytes(&self, phase: &str) -> f64 {
        self.kernels.iter().filter(|kernel| kernel.phase == phase).filter_map(|kernel| kernel.bytes).sum()
    }

    /// Whether a kernel takes less than 2 % of its phase's time and bytes.
    fn is_minor(&self, kernel: &Kernel) -> bool {
        let seconds = |kernel: &Kernel| kernel.times.map_or(0.0, |times| times.median);
        let all: f64 = self.kernels.iter().filter(|other| other.phase == kernel.phase).map(seconds).sum();
        seconds(kernel) < 0.02 * all && kernel.bytes.unwrap_or(0.0) < 0.02 * self.bytes(kernel.phase)
    }
}

impl Bench<'_> {
    /// Measures a workload and records it.
    pub(super) fn measure(&mut self, workload: &Workload) -> anyhow::Result<Case> {
        let case = workload.run(self.lab)?;
        let GroupConfig { precision, optimizer, .. } = &workload.config;
        self.run.describe(&workload.name, format!("{}; {precision:?}, {:?}", workload.shape, optimizer.kind));
        self.record(&case);
        Ok(case)
    }

    /// A figure of a case beside others.
    pub(super) fn compare(&mut self, case: &Case, what: &str, value: Option<f64>, unit: Unit) {
        self.run.push_some(what, &case.name, &case.setting, value, unit);
    }

    /// Everything that was measured of a case.
    pub(super) fn record(&mut self, case: &Case) {
        let (name, facts, copy) = (case.name.as_str(), &case.facts, self.copy);
        let (run, setting) = (&mut self.run, &case.setting);
        run.push("hit rate", name, setting, case.hit_rate(), Unit::Share);
        run.push("missing", name, setting, facts.missing / facts.distinct.max(1.0), Unit::Share);
        for (what, value) in [
            ("accesses", facts.accesses),
            ("distinct", facts.distinct),
            ("admitted", facts.admitted),
            ("write-backs", facts.write_backs),
            ("bypassed", facts.bypassed),
            ("outputs", facts.outputs),
            ("dispatches", case.dispatches() as f64),
        ] {
            run.push(what, name, setting, value, Unit::Count);
        }
        for (phase, backward) in [("forward", false), ("backward", true)] {
            let Some(times) = case.times(phase) else { continue };
            let bytes_per_second = facts.logical(backward) / times.median;
            let share = copy.map(|copy| case.bytes(phase) / times.median / copy);
            run.timed(phase, name, setting, times);
            run.push(&format!("{phase} logical"), name, setting, bytes_per_second, Unit::BytesPerSecond);
            run.push(&format!("{phase} table bytes"), name, setting, facts.table_bytes(backward), Unit::Bytes);
            run.push_some(&format!("{phase} of copy"), name, setting, share, Unit::Share);
        }
        run.push_some("step", name, setting, case.step(), Unit::Seconds);
        run.timed("step, host clock", name, setting, case.measured.wall);
        for kernel in &case.kernels {
            let setting = Setting::default().with("phase", kernel.phase).with("kernel", kernel.kernel);
            let setting = case.scaled.iter().fold(setting, |setting, why| setting.with("scaled", why.as_str()));
            let setting = if case.is_minor(kernel) { setting.with("minor", "yes") } else { setting };
            let rate = kernel.bytes.zip(kernel.times).map(|(bytes, times)| bytes / times.median);
            if let Some(times) = kernel.times {
                run.timed("time", name, &setting, times);
            }
            run.push_some("must move", name, &setting, kernel.bytes, Unit::Bytes);
            run.push_some("rate", name, &setting, rate, Unit::BytesPerSecond);
            run.push_some("of copy", name, &setting, rate.zip(copy).map(|(rate, copy)| rate / copy), Unit::Share);
            run.push("dispatches", name, &setting, kernel.dispatches as f64, Unit::Count);
        }
    }
}
