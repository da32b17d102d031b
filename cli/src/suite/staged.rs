//! 95 % hits, the rest from the host: staged with the next batch prefetched, staged without, and mapped. By the host's clock, since the
//! host has a part in it. And on any machine: what was counted is what was copied.

use anyhow::Context as _;
use hotrow::wgpu::{self, SubmissionIndex};
use hotrow::{Batch, Counters, Group, Layout, Optimizer, Placement, Precision};
use hotrow::{RamStore, SharedStore, Traffic};
use std::time::Instant;

use super::cases::{BAG, DIM, LR, config, is_mapped, mostly_hits};
use super::goals::{Id, reach};
use super::lab::{Lab, Times};
use super::report::{Pace, Report};

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

pub(crate) fn run(lab: &Lab, report: &mut Report) -> anyhow::Result<()> {
    let (n, rows) = lab.size.staged();
    let (warm, stretches, each) = lab.size.pace();
    let (_, batches) = mostly_hits(lab, (n, rows), warm + stretches * each);
    let floats = n.div_ceil(BAG as usize) * DIM as usize;
    let inputs = Inputs {
        offsets: lab.storage(&batches[0].offsets()),
        outputs: lab.room(floats as u64 * 4, wgpu::BufferUsages::empty()),
        grads: lab.storage(&vec![LR.to_bits(); floats]),
        indices: batches.iter().map(|batch| lab.storage(&batch.indices())).collect(),
    };
    let slots = (2 * n as u32).next_multiple_of(32);
    let mut config = config(&[rows], Precision::Int8, Optimizer::sgd(LR), slots, lab.seed);
    config.placement = Placement::Staged;
    let layout = Layout::new(&config, lab.binding())?;
    let store = SharedStore::new(RamStore::new(&layout)?);
    let shape = format!(
        "{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM} ({:.1} GB), cache of {slots} rows, bags \
         of {BAG}, forward and backward, {stretches} times {each} steps after {warm} that filled the cache",
        layout.table_bytes() as f64 * 1e-9
    );
    lab.timeline.listen(false);
    let mut seen = Vec::new();
    for (name, way, why) in [
        ("staged-prefetched", Way::Prefetched, "the host gathers while the last step's backward runs"),
        ("staged-alone", Way::Staged, "the device waits for the host in every step"),
        ("mapped", Way::Mapped, "the same steps with the table in host memory that shaders reach"),
    ] {
        if way == Way::Mapped && !is_mapped(lab) {
            report.left_out.push("staged: against mapped: the device maps no host memory".to_owned());
            continue;
        }
        let mut group = if way == Way::Mapped {
            Group::new(&lab.timed, config.clone().with_placement(Placement::Mapped))?
        } else {
            // One table for both: where its rows are wanted does not depend on what is in them.
            Group::with_store(&lab.timed, config.clone(), store.clone())?
        };
        let found = steps(lab, &mut group, way, &inputs)?;
        let mean = |all: u64| all as f64 / found.steps;
        report.paces.push(Pace {
            name,
            shape: shape.clone(),
            why,
            placement: format!("{:?}", group.placed().0).to_lowercase(),
            prefetched: way == Way::Prefetched,
            step: found.step,
            hit_rate: found.timed.hit_rate(),
            counted_bytes_in: mean(found.timed.bytes_read),
            counted_bytes_out: mean(found.timed.bytes_written),
            copied_bytes: found.traffic.map(|traffic| mean(traffic.bytes())),
            host_seconds: found.traffic.map(|traffic| mean(traffic.host_nanoseconds) * 1e-9),
        });
        seen.push((name, found));
    }
    let (agreed, figures, wrong) = check(&seen);
    reach(&mut report.goals, Id::BusBytes, Some(agreed), true, figures);
    report.wrong.extend(wrong);
    goals(lab, report, &seen);
    Ok(())
}

/// What all runs share, on the device.
struct Inputs {
    indices: Vec<wgpu::Buffer>,
    offsets: wgpu::Buffer,
    outputs: wgpu::Buffer,
    grads: wgpu::Buffer,
}

fn steps(lab: &Lab, group: &mut Group, way: Way, inputs: &Inputs) -> anyhow::Result<Seen> {
    let (warm, _, each) = lab.size.pace();
    let queue = lab.timed.queue();
    let batch = |step: usize| Batch {
        indices: inputs.indices.get(step).map(|indices| indices.slice(..)),
        offsets: inputs.offsets.slice(..),
        weights: None,
    };
    let ask = |group: &mut Group, step: usize| -> anyhow::Result<SubmissionIndex> {
        let mut encoder = lab.encoder();
        group.record_prefetch(&mut encoder, &batch(step))?;
        Ok(queue.submit([encoder.finish()]))
    };
    let total = |group: &mut Group| -> anyhow::Result<Counters> { Ok(group.counters()?.into_iter().sum()) };
    let (outputs, grads) = (inputs.outputs.slice(..), inputs.grads.slice(..));
    let mut seconds = Vec::new();
    let mut before = (Counters::default(), group.traffic());
    let mut mark = Instant::now();
    let [mut asked, mut last]: [Option<SubmissionIndex>; 2] = [None, None];
    for step in 0..inputs.indices.len() {
        if step == warm {
            before = (total(group)?, group.traffic());
            mark = Instant::now();
        }
        let mut encoder = lab.encoder();
        if way == Way::Mapped {
            group.record_forward(&mut encoder, &batch(step), outputs)?;
        } else {
            let mine = match asked.take() {
                Some(asked) => asked,
                None => ask(group, step)?,
            };
            group.fetch(Some(mine))?;
            group.record_forward_prefetched(&mut encoder, outputs)?;
            // Counters are not told while a batch waits.
            if way == Way::Prefetched && ![warm, inputs.indices.len()].contains(&(step + 1)) {
                queue.submit([std::mem::replace(&mut encoder, lab.encoder()).finish()]);
                asked = Some(ask(group, step + 1)?);
            }
        }
        group.record_backward(&mut encoder, grads)?;
        let submitted = queue.submit([encoder.finish()]);
        // As in training, the host is a step ahead at most.
        if let Some(index) = last.replace(submitted) {
            let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
            lab.timed.device().poll(wait).context("waiting for the device")?;
        }
        if step >= warm && (step + 1 - warm).is_multiple_of(each) {
            seconds.push(mark.elapsed().as_secs_f64() / each as f64);
            mark = Instant::now();
        }
    }
    group.check()?;
    let steps = (inputs.indices.len() - warm) as f64;
    let timed = total(group)? - before.0;
    let traffic = group.traffic().zip(before.1).map(|(now, before)| since(now, before));
    group.flush()?;
    Ok(Seen {
        step: Times::of(seconds),
        timed,
        steps,
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

/// On any machine: bytes counted are bytes copied, and staged steps did what mapped ones do. How far the former agree, the figures, and
/// what is wrong.
fn check(seen: &[(&'static str, Seen)]) -> (f64, String, Vec<String>) {
    let (mut least, mut figures, mut wrong) = (1.0, String::new(), Vec::new());
    for (name, run) in seen {
        if let Some(copied) = run.crossed {
            let agreed = agreement(run.all, copied, run.stride);
            let found = format!(
                "counted {} B in, {} B out; copied {} B in, {} B out",
                run.all.bytes_read,
                run.all.bytes_written,
                copied.records_in * run.stride,
                copied.records_out * run.stride
            );
            if agreed < 1.0 {
                wrong.push(format!("{name}: wanted as many bytes counted as copied, found {found}"));
            }
            if agreed < least || figures.is_empty() {
                (least, figures) = (agreed, found);
            }
        }
        if let Some((first, other)) = seen.first().filter(|(_, first)| first.all != run.all) {
            wrong.push(format!("{name}: wanted the counters of {first}, {:?}, found {:?}", other.all, run.all));
        }
    }
    (least, figures, wrong)
}

fn goals(lab: &Lab, report: &mut Report, seen: &[(&'static str, Seen)]) {
    let step = |wanted: &str| seen.iter().find(|(name, _)| *name == wanted).map(|(_, run)| run.step.median);
    let [prefetched, alone, mapped] = ["staged-prefetched", "staged-alone", "mapped"].map(step);
    let ratio = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    reach(&mut report.goals, Id::Prefetched, ratio(mapped, prefetched), lab.judges(), "by the host's clock");
    reach(&mut report.goals, Id::Alone, ratio(mapped, alone), lab.judges(), "");
    let host = report.paces.iter().find(|pace| pace.name == "staged-alone").and_then(|pace| pace.host_seconds);
    let saved = alone.zip(prefetched).map(|(alone, prefetched)| alone - prefetched);
    // More than all cannot be hidden: prefetch saves the wait for the list, too.
    let hidden = saved.zip(host).map(|(saved, host)| (saved / host).clamp(0.0, 1.0));
    let [host, saved] = [host, saved].map(super::report::seconds);
    let remark = format!("prefetch saves {saved} a step; the host's part takes {host}");
    reach(&mut report.goals, Id::Hidden, hidden, lab.judges(), remark);
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
        let (agreed, figures, wrong) = check(&[right(), right(), mapped()]);
        assert_eq!((agreed, wrong.len()), (1.0, 0));
        assert!(figures.contains("copied 1360 B in, 680 B out"), "{figures}");
        // One record too many or too few, one direction for the other, nothing at all.
        for copied in [(11, 5), (10, 4), (5, 10), (0, 0)] {
            let (agreed, _, wrong) = check(&[right(), ("b", seen((1360, 680), copied)), mapped()]);
            assert!(agreed < 1.0 && wrong.len() == 1 && wrong[0].starts_with("b: "), "{copied:?} {wrong:?}");
        }
        // Nothing moved: nothing was shown.
        assert_eq!(check(&[("a", seen((0, 0), (0, 0)))]).2.len(), 1);
        // Mapped did something else.
        let other = Seen { crossed: None, ..seen((1360, 816), (0, 0)) };
        assert_eq!(check(&[right(), ("mapped", other)]).2.len(), 1);
    }
}
