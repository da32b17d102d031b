//! 95 % hits, the rest from the host: staged with the next batch prefetched, staged without, and mapped. By the host's clock, since the host
//! has a part in it. And on any machine: as many bytes are counted as are copied.

use hotrow::wgpu::SubmissionIndex;
use hotrow::{Counters, Group, Layout, Optimizer, Placement, Precision};
use hotrow::{RamStore, SharedStore, Traffic};
use std::time::Instant;

use super::Bench;
use super::cases::{BAG, DIM, LR, config, is_mapped, mostly_hits};
use super::size::Size;
use crate::bench::total;
use crate::lab::{Inputs, Lab};
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Figures of the steps, as their table has them.
pub(super) const SHOWN: [&str; 6] = ["pace", "hits", "counted in", "counted out", "copied", "host part"];

/// How the steps of a run follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each recorded in one piece.
    Mapped,
    /// Each decided when the last one's backward has been submitted.
    Staged,
    /// Each decided before the last one's backward, and gathered while that runs.
    Prefetched,
}

/// What a run has shown.
struct Seen {
    step: Times,
    /// Of the timed steps.
    timed: Counters,
    steps: f64,
    traffic: Option<Traffic>,
    /// Of everything, with a flush at the end.
    all: Counters,
    crossed: Option<Traffic>,
    stride: u64,
}

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (lab, size) = (bench.lab, bench.size);
    let (n, rows) = size.staged();
    let (warm, stretches, each) = size.pace();
    let (_, batches) = mostly_hits(bench, (n, rows), warm + stretches * each);
    let parts: Vec<_> = batches.iter().map(|batch| (batch.indices(), batch.offsets())).collect();
    let inputs = Inputs::new(lab, &parts, DIM, LR);
    let slots = (2 * n as u32).next_multiple_of(32);
    let mut config = config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots, bench.seed);
    config.placement = Placement::Staged;
    let layout = Layout::new(&config, lab.binding())?;
    let store = SharedStore::new(RamStore::new(&layout)?);
    lab.timeline.listen(false);
    let mut seen: Vec<(&'static str, Seen)> = Vec::new();
    for (name, way) in [("staged-prefetched", Way::Prefetched), ("staged-alone", Way::Staged), ("mapped", Way::Mapped)]
    {
        if way == Way::Mapped && !is_mapped(lab) {
            bench.run.leave_out("staged against mapped", "the device maps no host memory");
            continue;
        }
        let mut group = if way == Way::Mapped {
            Group::new(&lab.timed, config.clone().with_placement(Placement::Mapped))?
        } else {
            // One table for both: where its rows are wanted does not depend on what is in them.
            Group::with_store(&lab.timed, config.clone(), store.clone())?
        };
        bench.run.describe(
            name,
            format!(
                "{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM}, cache of {slots} rows, bags of {BAG}, \
                 {stretches} times {each} steps after {warm} that filled the cache"
            ),
        );
        seen.push((name, steps(lab, size, &mut group, way, (&inputs, batches.len()))?));
    }
    for (name, found) in &seen {
        record(bench, name, found, &seen);
    }
    bench.run.wrong.extend(wrong(&seen));
    Ok(())
}

/// The figures of a run, alone and beside the others.
fn record(bench: &mut Bench<'_>, name: &str, found: &Seen, all: &[(&'static str, Seen)]) {
    let step = |wanted: &str| all.iter().find(|(name, _)| *name == wanted).map(|(_, run)| run.step.median);
    let mean = |all: u64| all as f64 / found.steps;
    let placement = if found.traffic.is_some() { "staged" } else { "mapped" };
    let setting = Setting::default().with("placement", placement);
    let copied = found.traffic.map(|traffic| mean(traffic.bytes()));
    let host = |seen: &Seen| seen.traffic.map(|traffic| traffic.host_nanoseconds as f64 / seen.steps * 1e-9);
    let run = &mut bench.run;
    run.timed("pace", name, &setting, found.step);
    run.push("hits", name, &setting, found.timed.hit_rate(), Unit::Share);
    run.push("counted in", name, &setting, mean(found.timed.bytes_read), Unit::Bytes);
    run.push("counted out", name, &setting, mean(found.timed.bytes_written), Unit::Bytes);
    run.push_some("copied", name, &setting, copied, Unit::Bytes);
    run.push_some("host part", name, &setting, host(found), Unit::Seconds);
    let agreed = found.crossed.map(|copied| agreement(found.all, copied, found.stride));
    run.push_some("counted against copied", name, &setting, agreed, Unit::Share);
    if placement == "staged" {
        let ratio = step("mapped").map(|mapped| mapped / found.step.median);
        run.push_some("against mapped", name, &setting, ratio, Unit::Share);
    }
    if name == "staged-prefetched" {
        let alone = all.iter().find(|(name, _)| *name == "staged-alone");
        let saved = step("staged-alone").map(|alone| alone - found.step.median);
        // More than all cannot be hidden: prefetch saves the wait for the list, too.
        let hidden =
            saved.zip(alone.and_then(|(_, run)| host(run))).map(|(saved, host)| (saved / host).clamp(0.0, 1.0));
        run.push_some("share of host part hidden", name, &setting, hidden, Unit::Share);
    }
}

fn steps(
    lab: &Lab,
    size: Size,
    group: &mut Group,
    way: Way,
    (inputs, count): (&Inputs, usize),
) -> anyhow::Result<Seen> {
    let (warm, _, each) = size.pace();
    let queue = lab.timed.queue();
    let ask = |group: &mut Group, step: usize| -> anyhow::Result<SubmissionIndex> {
        let mut encoder = lab.encoder();
        group.record_prefetch(&mut encoder, &inputs.batch(step))?;
        Ok(queue.submit([encoder.finish()]))
    };
    let (outputs, grads) = (inputs.outputs.slice(..), inputs.grads.slice(..));
    let mut seconds = Vec::new();
    let mut before = (Counters::default(), group.traffic());
    let mut mark = Instant::now();
    let [mut asked, mut last]: [Option<SubmissionIndex>; 2] = [None, None];
    for step in 0..count {
        if step == warm {
            before = (total(group)?, group.traffic());
            mark = Instant::now();
        }
        let mut encoder = lab.encoder();
        if way == Way::Mapped {
            group.record_forward(&mut encoder, &inputs.batch(step), outputs)?;
        } else {
            let mine = match asked.take() {
                Some(asked) => asked,
                None => ask(group, step)?,
            };
            group.fetch(Some(mine))?;
            group.record_forward_prefetched(&mut encoder, outputs)?;
            // Counters are not told while a batch waits.
            if way == Way::Prefetched && ![warm, count].contains(&(step + 1)) {
                queue.submit([std::mem::replace(&mut encoder, lab.encoder()).finish()]);
                asked = Some(ask(group, step + 1)?);
            }
        }
        group.record_backward(&mut encoder, grads)?;
        let submitted = queue.submit([encoder.finish()]);
        // As in training, the host is a step ahead at most.
        if let Some(index) = last.replace(submitted) {
            lab.wait(index)?;
        }
        if step >= warm && (step + 1 - warm).is_multiple_of(each) {
            seconds.push(mark.elapsed().as_secs_f64() / each as f64);
            mark = Instant::now();
        }
    }
    group.check()?;
    let timed = total(group)? - before.0;
    let traffic = group.traffic().zip(before.1).map(|(now, before)| since(now, before));
    group.flush()?;
    Ok(Seen {
        step: Times::of(seconds),
        timed,
        steps: (count - warm) as f64,
        traffic,
        all: total(group)?,
        crossed: group.traffic(),
        stride: group.layout().stride(),
    })
}

/// What crossed between two moments.
fn since(now: Traffic, before: Traffic) -> Traffic {
    let mut traffic = now;
    traffic.list_bytes -= before.list_bytes;
    traffic.bytes_in -= before.bytes_in;
    traffic.bytes_out -= before.bytes_out;
    traffic.host_nanoseconds -= before.host_nanoseconds;
    traffic
}

/// How far the bytes that steps counted agree with those that copies brought, in either direction: 1 if they are equal.
fn agreement(counted: Counters, copied: Traffic, stride: u64) -> f64 {
    let ways = [(counted.bytes_read, copied.records_in * stride), (counted.bytes_written, copied.records_out * stride)];
    // Nothing against nothing says nothing.
    ways.into_iter().map(|(a, b)| a.min(b) as f64 / a.max(b).max(1) as f64).fold(1.0, f64::min)
}

/// What is wrong on any machine: bytes counted that are not bytes copied, staged steps that do not count what mapped ones do.
fn wrong(seen: &[(&'static str, Seen)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, run) in seen {
        if let Some(copied) = run.crossed.filter(|&copied| agreement(run.all, copied, run.stride) < 1.0) {
            wrong.push(format!(
                "{name}: wanted as many bytes counted as copied, found {} B in and {} B out counted, {} records in and {} out copied",
                run.all.bytes_read, run.all.bytes_written, copied.records_in, copied.records_out
            ));
        }
        if let Some((first, other)) = seen.first().filter(|(_, first)| first.all != run.all) {
            wrong.push(format!("{name}: wanted the counters of {first}, {:?}, found {:?}", other.all, run.all));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(counted: (u64, u64), copied: (u64, u64)) -> Seen {
        let all = Counters { bytes_read: counted.0, bytes_written: counted.1, ..Counters::default() };
        let mut traffic = Traffic::default();
        (traffic.records_in, traffic.records_out) = copied;
        let (timed, step) = (all, Times::default());
        Seen { step, timed, steps: 1.0, traffic: None, all, crossed: Some(traffic), stride: 136 }
    }

    #[test]
    fn bytes_that_differ_are_noticed() {
        let right = || ("a", seen((1360, 680), (10, 5)));
        let mapped = || ("mapped", Seen { crossed: None, ..right().1 });
        assert_eq!(wrong(&[right(), right(), mapped()]), Vec::<String>::new());
        // One record too many or too few, one direction for the other, nothing at all.
        for copied in [(11, 5), (10, 4), (5, 10), (0, 0)] {
            let found = wrong(&[right(), ("b", seen((1360, 680), copied)), mapped()]);
            assert!(found.len() == 1 && found[0].starts_with("b: "), "{copied:?} {found:?}");
        }
        // Nothing moved: nothing was shown.
        assert_eq!(wrong(&[("a", seen((0, 0), (0, 0)))]).len(), 1);
        // Mapped did something else.
        let other = Seen { crossed: None, ..seen((1360, 816), (0, 0)) };
        assert_eq!(wrong(&[right(), ("mapped", other)]).len(), 1);
    }
}
