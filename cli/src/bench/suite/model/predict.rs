//! A workload's step on a machine of the table: the counts of its rows from a simulated cache, the times from the model.

use super::super::bytes::{Facts, Pattern, kernel};
use super::super::workload::{Case, Workload};
use super::{Machine, Stage, Work, backward, forward, sort_alone};
use crate::lab::{self, Measured};
use crate::report::units::Times;
use crate::report::{Setting, Unit, run::Run};
use hotrow::simulate::Simulator;
use hotrow::{Counters, GroupConfig, Layout, Placement};

/// Steps that are simulated behind the warm-up, as many as a measurement takes at most.
const STEPS: usize = 20;

impl Workload {
    /// The mean counts of a step: the batches as they were drawn, played on a cache of row numbers. A slot counts as dirty at its eviction if
    /// steps have backwards.
    pub(in super::super) fn expected(&self, layout: &Layout) -> anyhow::Result<Facts> {
        let mut bases = vec![0u32];
        self.config.tables.iter().for_each(|rows| bases.push(bases[bases.len() - 1] + rows));
        let rows = |batch: &super::super::shapes::Batch| -> Vec<u32> {
            let features = batch.features.iter().zip(&bases);
            features.flat_map(|(rows, base)| rows.iter().map(move |row| base + row)).collect()
        };
        let steps = if self.batches.len() > super::super::cases::TURNS { STEPS } else { self.batches.len() };
        let mut seen = Counters::default();
        if layout.sets == 0 {
            for batch in &self.batches[..steps] {
                let unique = batch.repeats().len() as u64;
                seen.accesses += batch.indices().len() as u64;
                (seen.unique, seen.unique_misses) = (seen.unique + unique, seen.unique_misses + unique);
            }
        } else {
            let mut cache = Simulator::new(layout.sets, layout.ways, self.config.policy)?
                .with_counter_bits(self.config.counter_bits);
            self.warm.iter().chain(self.batches.first()).for_each(|batch| cache.step(&rows(batch)));
            let before = cache.counters();
            for turn in 1..=steps {
                cache.step(&rows(&self.batches[turn % self.batches.len()]));
            }
            let after = cache.counters();
            seen.accesses = after.accesses - before.accesses;
            seen.hits = after.hits - before.hits;
            seen.unique = after.unique - before.unique;
            seen.unique_misses = after.unique_misses - before.unique_misses;
            seen.admitted = after.admitted - before.admitted;
            seen.evictions = after.evictions - before.evictions;
        }
        seen.bypass_reads = seen.unique_misses - seen.admitted;
        seen.write_backs = if self.backward { seen.evictions } else { 0 };
        // All batches are drawn alike.
        let pattern = self.batches.first().map(Pattern::of).unwrap_or_default();
        Ok(Facts { pattern, ..self.facts(layout, seen, steps as f64) })
    }

    /// The step that a machine would take.
    pub(in super::super) fn work(&self, machine: &Machine) -> anyhow::Result<Work> {
        let layout = Layout::new(&self.config, machine.number("binding") as u64)?;
        let facts = self.expected(&layout)?;
        let mapped = self.config.placement == Placement::Mapped;
        Ok(Work { facts, layout, tables: self.config.tables.len() as f64, mapped, device: machine.device() })
    }

    /// The case that a measurement on the machine would give.
    pub(in super::super) fn predict(&self, machine: &Machine, run: &mut Run) -> anyhow::Result<Case> {
        let work = self.work(machine)?;
        let mut stages = forward(&work);
        if self.backward {
            stages.extend(backward(&work));
        }
        let (measured, kernels) = record(machine, &self.name, &stages, run);
        Ok(Case { facts: work.facts, measured, kernels })
    }
}

impl Machine {
    /// The sort of `pairs` pairs alone, as a measurement on the machine would give it.
    pub(in super::super) fn sort(&self, pairs: u32, key_bits: u32, run: &mut Run) -> anyhow::Result<Measured> {
        let shape = format!("sort of {pairs} pairs by {key_bits} bits");
        let layout = Layout::new(&GroupConfig::new(&[pairs], 4), u64::MAX)?;
        let work = Work { facts: Facts::default(), layout, tables: 1.0, mapped: false, device: self.device() };
        Ok(record(self, &shape, &sort_alone(&work, f64::from(pairs), key_bits), run).0)
    }
}

/// Records the stages of a shape. Returns what a measurement would give, and the kernels, each with its stages added up.
fn record(machine: &Machine, shape: &str, stages: &[Stage], run: &mut Run) -> (Measured, Vec<lab::Stage>) {
    let mut kernels: Vec<lab::Stage> = Vec::new();
    let mut phases: Vec<(&'static str, f64)> = Vec::new();
    for stage in stages {
        let (limit, counts, phase) = (machine.time(stage), stage.counts(), stage.phase.name());
        let setting = Setting::default().with("phase", phase).with("stage", stage.name).with("limit", limit.name);
        let mut at = run.at(shape, &setting);
        at.push("predicted", limit.seconds, Unit::Seconds);
        for (what, value, unit) in [
            ("dispatches", counts.dispatches, Unit::Count),
            ("workgroups", counts.workgroups, Unit::Count),
            ("bytes", stage.bytes, Unit::Bytes),
            ("sectors", counts.sectors, Unit::Count),
            ("lines", counts.lines, Unit::Count),
            ("atomics", counts.atomics, Unit::Count),
            ("on one word", counts.hottest, Unit::Count),
            ("barriers", counts.barriers, Unit::Count),
            ("turns", counts.turns, Unit::Count),
        ] {
            at.push(what, value.round(), unit);
        }
        match phases.iter_mut().find(|known| known.0 == phase) {
            Some(known) => known.1 += limit.seconds,
            None => phases.push((phase, limit.seconds)),
        }
        let times = Some(Times::of(vec![limit.seconds]));
        let one = lab::Stage { phase, stage: kernel(stage.name), dispatches: counts.dispatches as u64, times };
        match kernels.iter_mut().find(|known| known.stage == one.stage && known.phase == one.phase) {
            Some(known) => known.add(&one),
            None => kernels.push(one),
        }
    }
    (Measured::predicted(&phases, kernels.clone()), kernels)
}
