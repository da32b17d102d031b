//! Measures a workload: brings a group of tables into a known state, then times forward and backward over batches in turn.

use hotrow::{Counters, Group, GroupConfig, Layout, wgpu};

use super::bench::Bench;
use super::bytes::{Facts, HEAVY, Pattern, kernel};
use super::shapes::Batch;
use crate::lab::{Inputs, Lab, Measured, Stage};
use crate::report::{Setting, Unit};

/// A group's configuration, batches that warm its cache, and batches that are measured.
#[derive(Clone)]
pub(crate) struct Workload {
    pub(crate) name: String,
    /// A description of rows, batches, and how they are drawn.
    pub(crate) shape: String,
    /// The reason why the figures do not stand for the named shape, if so.
    pub(crate) scaled: Option<String>,
    pub(crate) config: GroupConfig,
    /// Batches of the warm-up, which has forwards only.
    pub(crate) warm: Vec<Batch>,
    /// Batches that are measured in turn.
    pub(crate) batches: Vec<Batch>,
    pub(crate) backward: bool,
}

pub(crate) struct Case {
    pub(crate) facts: Facts,
    pub(crate) measured: Measured,
    /// The stages, added up by kernel.
    pub(super) kernels: Vec<Stage>,
}

impl Workload {
    pub(crate) fn new(name: impl Into<String>, shape: impl Into<String>, config: GroupConfig) -> Self {
        let (warm, batches) = (Vec::new(), Vec::new());
        Self { name: name.into(), shape: shape.into(), scaled: None, config, warm, batches, backward: true }
    }

    pub(crate) fn run(&self, lab: &Lab) -> anyhow::Result<Case> {
        lab.timeline.listen(false);
        self.run_on(lab, &mut Group::new(&lab.timed, self.config.clone())?)
    }

    /// Measures the workload on an existing group of this configuration.
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
        // One whole step first, which allocates and compiles, is not counted.
        let mut encoder = lab.encoder();
        (0..phases.len()).try_for_each(|phase| record(group, phase, &mut encoder))?;
        lab.submit(encoder)?;
        group.check()?;
        let before: Counters = group.counters()?.into_iter().sum();
        let measured = lab.measure(phases, |phase, encoder| Ok(record(group, phase, encoder)?))?;
        group.check()?;
        let seen = group.counters()?.into_iter().sum::<Counters>() - before;
        let facts = self.facts(group.layout(), seen, measured.rounds as f64);
        let mut kernels: Vec<Stage> = Vec::new();
        for stage in &measured.stages {
            let stage = Stage { stage: kernel(stage.stage), ..stage.clone() };
            match kernels.iter_mut().find(|known| known.stage == stage.stage && known.phase == stage.phase) {
                Some(known) => known.add(&stage),
                None => kernels.push(stage),
            }
        }
        Ok(Case { facts, measured, kernels })
    }

    /// The mean counts of a step, from counters over `steps` steps and from the batches.
    pub(super) fn facts(&self, layout: &Layout, seen: Counters, steps: f64) -> Facts {
        let mean = |all: u64| all as f64 / steps.max(1.0);
        let of_batches =
            |of: fn(&Batch) -> f64| self.batches.iter().map(of).fold(0.0, |a, b| a + b) / self.batches.len() as f64;
        Facts {
            accesses: mean(seen.accesses),
            hits: mean(seen.hits),
            distinct: mean(seen.unique),
            missing: mean(seen.unique_misses),
            admitted: mean(seen.admitted),
            write_backs: mean(seen.write_backs),
            bypassed: mean(seen.bypass_reads),
            outputs: of_batches(|batch| batch.offsets().len() as f64 - 1.0),
            evictions: mean(seen.evictions),
            heavy_accesses: of_batches(|batch| batch.repeats().into_iter().filter(|&n| n > HEAVY).map(f64::from).sum()),
            sets: f64::from(layout.sets),
            row: 4.0 * f64::from(layout.row.dim),
            state: 4.0 * f64::from(layout.row.state),
            record: layout.stride() as f64,
            passes: passes(layout, mean(seen.accesses) as u32),
            pattern: Pattern::default(),
        }
    }

    pub(super) fn setting(&self) -> Setting {
        self.scaled(Setting::default().with("placement", format!("{:?}", self.config.placement).to_lowercase()))
    }

    fn scaled(&self, setting: Setting) -> Setting {
        self.scaled.iter().fold(setting, |setting, why| setting.with("scaled", why.as_str()))
    }
}

/// 8-bit passes of the sort of misses in forward, and of the sort of `accesses` in backward: by rows or by places, whichever needs fewer.
fn passes(layout: &Layout, accesses: u32) -> [f64; 2] {
    let backward = layout.row_bits().min(layout.place_bits(accesses));
    // A batch of at most 1,024 is sorted in shared memory: one read and one write, as in one pass.
    let passes = |bits: u32| f64::from(if accesses <= 1024 { 1 } else { bits.div_ceil(8) });
    [layout.miss_key_bits(), backward].map(passes)
}

impl Case {
    /// The median seconds of a phase.
    pub(super) fn seconds(&self, phase: &str) -> Option<f64> {
        self.measured.phase(phase).map(|times| times.median)
    }

    /// The median seconds of forward and backward together.
    pub(super) fn step(&self) -> Option<f64> {
        Some(self.seconds("forward")? + self.seconds("backward")?)
    }

    /// Bytes that all kernels of a phase must move.
    pub(super) fn bytes(&self, phase: &str) -> f64 {
        let kernels = self.kernels.iter().filter(|kernel| kernel.phase == phase);
        kernels.filter_map(|kernel| self.facts.bytes(kernel.stage, phase == "backward")).sum()
    }
}

impl Bench<'_> {
    pub(super) fn measure(&mut self, workload: &Workload) -> anyhow::Result<Case> {
        let case = self.case(workload)?;
        self.describe(workload, &case);
        Ok(case)
    }

    /// The case of a workload on the device, or as the machine's model predicts it. Its figures are not recorded.
    pub(super) fn case(&mut self, workload: &Workload) -> anyhow::Result<Case> {
        match &self.machine {
            Some(machine) => workload.predict(machine, &mut self.run),
            None => workload.run(self.lab()?),
        }
    }

    /// As [`measure`](Self::measure), with the shaders of `lab`.
    pub(super) fn measure_on(&mut self, lab: &Lab, workload: &Workload) -> anyhow::Result<Case> {
        let case = workload.run(lab)?;
        self.describe(workload, &case);
        Ok(case)
    }

    /// As [`measure`](Self::measure), on an existing group of the workload's configuration.
    pub(super) fn measure_group(&mut self, workload: &Workload, group: &mut Group) -> anyhow::Result<Case> {
        let case = workload.run_on(self.lab()?, group)?;
        self.describe(workload, &case);
        Ok(case)
    }

    fn describe(&mut self, workload: &Workload, case: &Case) {
        let GroupConfig { precision, optimizer, .. } = &workload.config;
        self.run.describe(&workload.name, format!("{}; {precision:?}, {:?}", workload.shape, optimizer.kind));
        self.record(workload, case);
    }

    fn record(&mut self, workload: &Workload, case: &Case) {
        let (facts, copy, name) = (&case.facts, self.copy, &workload.name);
        let mut at = self.run.at(name, &workload.setting());
        at.push("hit rate", facts.hit_rate(), Unit::Share);
        at.push("missing", facts.missing / facts.distinct.max(1.0), Unit::Share);
        for (what, value) in [
            ("accesses", facts.accesses),
            ("distinct", facts.distinct),
            ("admitted", facts.admitted),
            ("write-backs", facts.write_backs),
            ("bypassed", facts.bypassed),
            ("outputs", facts.outputs),
            ("dispatches", case.measured.dispatches() as f64),
        ] {
            at.push(what, value, Unit::Count);
        }
        for (phase, backward) in [("forward", false), ("backward", true)] {
            let Some(times) = case.measured.phase(phase) else { continue };
            let share = copy.map(|copy| case.bytes(phase) / times.median / copy);
            at.timed(phase, times);
            at.push(&format!("{phase} logical"), facts.logical(backward) / times.median, Unit::BytesPerSecond);
            at.push(&format!("{phase} table bytes"), facts.table_bytes(backward), Unit::Bytes);
            at.push(&format!("{phase} of copy"), share, Unit::Share);
            let mine = case.kernels.iter().filter(|kernel| kernel.phase == phase);
            at.push(
                &format!("{phase} dispatches"),
                mine.map(|kernel| kernel.dispatches).sum::<u64>() as f64,
                Unit::Count,
            );
        }
        at.push("step", case.step(), Unit::Seconds);
        at.timed("step, host clock", case.measured.wall);
        for kernel in &case.kernels {
            let seconds = |kernel: &Stage| kernel.times.map_or(0.0, |times| times.median);
            let bytes = facts.bytes(kernel.stage, kernel.phase == "backward");
            let all: f64 = case.kernels.iter().filter(|other| other.phase == kernel.phase).map(seconds).sum();
            let minor = seconds(kernel) < 0.02 * all && bytes.unwrap_or(0.0) < 0.02 * case.bytes(kernel.phase);
            let setting = Setting::default().with("phase", kernel.phase).with("kernel", kernel.stage);
            let setting = workload.scaled(setting);
            let setting = if minor { setting.with("minor", "yes") } else { setting };
            let rate = bytes.zip(kernel.times).map(|(bytes, times)| bytes / times.median);
            let mut at = self.run.at(name, &setting);
            at.timed("time", kernel.times);
            at.push("must move", bytes, Unit::Bytes);
            at.push("rate", rate, Unit::BytesPerSecond);
            at.push("of copy", rate.zip(copy).map(|(rate, copy)| rate / copy), Unit::Share);
            at.push("dispatches", kernel.dispatches as f64, Unit::Count);
        }
    }
}
