//! A short run of every configuration on GPU and CPU: integers must be equal, floats nearly so.

use anyhow::{Context as _, ensure};
use hotrow::internals::Pieces as _;
use hotrow::internals::hash::fmix32;
use hotrow::{
    Bags, Context, Counters, CpuGroup, Embedding, Error, Group, GroupConfig, Init, Mode, Optimizer, Placement, Policy,
    Pooling, Precision,
};
use hotrow_report::clock::Complaints;
use hotrow_report::names::{PLACES, admitting};
use hotrow_report::object::{Field, Object};

const DIM: u32 = 12;
const TABLES: [u32; 2] = [700, 300];
const BAGS: u32 = 64;
const STEPS: u32 = 4;

/// The largest accepted difference of floats, relative to the larger of the value and 1.
const BOUND: f32 = 1e-5;

/// At most one of so many values may be off by a code, since the float before rounding may differ in its last bits.
const ROUNDED: usize = 1000;

/// A configuration and its result.
pub(crate) struct Case {
    pub(crate) precision: Precision,
    pub(crate) policy: Policy,
    pub(crate) placement: Placement,
    /// The difference; `None` if there was none.
    pub(crate) difference: Option<String>,
}

/// The cases for `--json`; null without any.
pub(crate) fn json(cases: Option<&[Case]>) -> Field {
    let case = |case: &Case| {
        Object::default()
            .with("precision", case.precision.name())
            .with("policy", case.policy.name())
            .with("placement", case.placement.name())
            .with("passed", case.difference.is_none())
            .with("difference", case.difference.clone())
    };
    cases.map_or_else(|| Object::or_null(None), |cases| cases.iter().map(case).collect())
}

/// Tests every precision under each policy, also with a mapped table if the device maps memory.
pub(crate) fn gpu(context: &Context, seed: u32) -> Vec<Case> {
    let complaints = Complaints::of(context);
    let mut cases = Vec::new();
    for placement in PLACES {
        if placement == Placement::Mapped && !context.caps().mappable {
            continue;
        }
        for precision in Precision::ALL {
            for policy in admitting() {
                let config = config(precision, policy, placement, seed);
                let mut difference = Group::new(context, config.clone())
                    .map_err(anyhow::Error::from)
                    .and_then(|mut group| compare(&mut group, &mut CpuGroup::new(config.clone())?, &config, seed))
                    .err()
                    .map(|error| format!("{error:#}"));
                difference = complaints.first().or(difference);
                cases.push(Case { precision, policy, placement, difference });
            }
        }
    }
    cases
}

/// Tests the CPU backend against itself: an FP32 table gives the same bits with and without a cache.
pub(crate) fn cpu(seed: u32) -> Vec<Case> {
    let run = |policy| -> anyhow::Result<()> {
        let cached = config(Precision::Fp32, policy, Placement::Device, seed);
        let uncached = cached.clone().with_cache_rows(0);
        let (mut cached, mut uncached) = (CpuGroup::new(cached)?, CpuGroup::new(uncached)?);
        for step in 0..STEPS {
            let ours = forward_backward(&mut cached, step, seed)?;
            let theirs = forward_backward(&mut uncached, step, seed)?;
            ensure!(ours == theirs, "step {step}: outputs with a cache differ from those without");
        }
        ensure!(all_rows(&mut cached)? == all_rows(&mut uncached)?, "rows with a cache differ from those without");
        Ok(())
    };
    admitting()
        .map(|policy| {
            let difference = run(policy).err().map(|error| format!("{error:#}"));
            Case { precision: Precision::Fp32, policy, placement: Placement::Device, difference }
        })
        .collect()
}

/// A small configuration with two tables, several pieces, and two sets that overflow.
fn config(precision: Precision, policy: Policy, placement: Placement, seed: u32) -> GroupConfig {
    GroupConfig::new(&TABLES, DIM)
        .with_precision(precision)
        .with_policy(policy)
        .with_placement(placement)
        .with_cache_rows(64)
        .with_pooling(Pooling::Mean)
        .with_optimizer(Optimizer::adagrad(0.05))
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
        .with_seed(seed)
        .with_piece_bytes(Some(16 << 10))
}

/// Runs the same batches on both, each step from the GPU's state, and compares outputs and states.
fn compare(gpu: &mut dyn Embedding, cpu: &mut dyn Embedding, config: &GroupConfig, seed: u32) -> anyhow::Result<()> {
    for step in 0..STEPS {
        cpu.restore(&gpu.snapshot()?)?;
        let ours = forward_backward(gpu, step, seed).with_context(|| format!("step {step}"))?;
        let theirs = forward_backward(cpu, step, seed).with_context(|| format!("step {step} on the CPU"))?;
        integers(&format!("step {step}"), gpu, cpu)?;
        floats(&format!("outputs of step {step}"), &ours, &theirs, config.precision)?;
        floats(&format!("rows after step {step}"), &all_rows(gpu)?, &all_rows(cpu)?, config.precision)?;
    }
    gpu.flush()?;
    cpu.flush()?;
    integers("flush", gpu, cpu)?;
    floats("rows after flush", &all_rows(gpu)?, &all_rows(cpu)?, config.precision)
}

/// Compares tags, stamps, frequencies, dirty flags and counters bit for bit.
fn integers(when: &str, gpu: &mut dyn Embedding, cpu: &mut dyn Embedding) -> anyhow::Result<()> {
    let (ours, theirs) = (gpu.snapshot()?, cpu.snapshot()?);
    let [found, wanted] = [&ours, &theirs].map(|seen| (seen.t, seen.since.clone()));
    ensure!(found == wanted, "{when}: wanted step number and accesses since a halving {wanted:?}, found {found:?}");
    for (what, ours, theirs) in
        [("cache metadata", &ours.ways, &theirs.ways), ("frequencies", &ours.freqs, &theirs.freqs)]
    {
        let same = ours.iter().zip(theirs).take_while(|(found, wanted)| found == wanted).count();
        let (wanted, found) = (theirs.len(), ours.len());
        let differ = format!("wanted {wanted} words of {what}, found {found} of which the first {same} are alike");
        ensure!(ours == theirs, "{when}: {differ}");
    }
    for (table, (found, wanted)) in ours.counters.iter().zip(&theirs.counters).enumerate() {
        let shown = |&Counters { hits, evictions, write_backs, bytes_read, .. }: &Counters| {
            format!("{hits} hits, {evictions} evictions, {write_backs} write-backs, {bytes_read} bytes read")
        };
        ensure!(found == wanted, "{when}: wanted in table {table} {}, found {}", shown(wanted), shown(found));
    }
    Ok(())
}

fn floats(what: &str, ours: &[f32], theirs: &[f32], precision: Precision) -> anyhow::Result<()> {
    ensure!(ours.len() == theirs.len(), "{what}: wanted {} floats, found {}", theirs.len(), ours.len());
    // One code of a row that spans 3: values start in [-1, 1) and move by at most 0.05 a step.
    let code = match precision {
        Precision::Fp32 => 0.0,
        Precision::Fp16 => 1.0 / 512.0,
        _ => 3.0 / ((1 << precision.bits()) - 1) as f32,
    };
    let mut rounded = 0;
    for (at, (&found, &wanted)) in ours.iter().zip(theirs).enumerate() {
        let difference = (found - wanted).abs();
        if difference <= BOUND * wanted.abs().max(1.0) {
            continue;
        }
        // A NaN fails here too.
        ensure!(difference <= code, "{what}, float {at}: wanted {wanted}, found {found}");
        rounded += 1;
    }
    ensure!(ROUNDED * rounded <= ours.len(), "{what}: {rounded} of {} floats rounded otherwise", ours.len());
    Ok(())
}

fn all_rows(group: &mut dyn Embedding) -> Result<Vec<f32>, Error> {
    group.read_rows(&(0..TABLES.iter().sum()).collect::<Vec<_>>())
}

/// One step over a skewed batch with duplicates and empty bags; returns the outputs.
fn forward_backward(group: &mut dyn Embedding, step: u32, seed: u32) -> Result<Vec<f32>, Error> {
    let random = |n: u32| fmix32(n ^ fmix32(step ^ fmix32(seed)));
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for bag in 0..BAGS {
        // Bags come feature by feature, a feature for each table.
        let rows = TABLES[(bag / (BAGS / 2)) as usize];
        for _ in 0..random(bag) % 12 {
            let x = (random(BAGS + indices.len() as u32) >> 8) as f32 / (1 << 24) as f32;
            indices.push((x * x * x * rows as f32) as u32 % rows);
        }
        offsets.push(indices.len() as u32);
    }
    let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train)?;
    let grads: Vec<f32> = (0..outputs.len() as u32).map(|n| (random(n << 12) % 2001) as f32 / 1000.0 - 1.0).collect();
    group.backward(&grads)?;
    Ok(outputs)
}
