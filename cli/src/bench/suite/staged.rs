//! 95 % hits, the other rows from the host: staged with the next batch prefetched, staged without prefetch, and mapped. Times are the
//! host's clock, since the host gathers rows. On any machine the bytes counted must equal the bytes copied.

use hotrow::wgpu::SubmissionIndex;
use hotrow::{Counters, Group, Mode, OptimizerKind, Placement, Precision, SharedStore, Traffic, prelude::*};

use super::bench::{Bench, DIM, LR};
use super::cases::mostly_hits;
use hotrow_report::clock::{Inputs, timed};
use hotrow_report::records::{Setting, Unit};
use hotrow_report::units::Times;

/// Indices of a bag.
const BAG: u32 = 20;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let clock = bench.clock;
    // Indices of a batch and rows of the table. The full table has 4.4 GB of INT8 records.
    let (n, rows) = bench.size.of((1200, 40_000), (1 << 19, 32_000_000));
    let (warm, stretches, each) = pace(bench);
    let (_, batches) = mostly_hits((n, rows), warm + stretches * each, BAG, bench.seed);
    let parts: Vec<_> = batches.iter().map(|batch| (batch.indices(), batch.offsets())).collect();
    let inputs = Inputs::new(clock, &parts, DIM, LR);
    let slots = (2 * n as u32).next_multiple_of(32);
    let mut config = bench.config(&[rows], Precision::Int8, OptimizerKind::Sgd, slots);
    config.placement = Placement::Staged;
    let store = SharedStore::in_ram(&config)?;
    clock.timeline.listen(false);
    let mut first = None;
    for (name, staged, ahead) in
        [("staged-prefetched", true, true), ("staged-alone", true, false), ("mapped", false, false)]
    {
        if !staged && !bench.is_mapped() {
            bench.run.leave_out("staged against mapped", "the device maps no host memory");
            continue;
        }
        // Both staged runs share a store: speed does not depend on the values of its rows.
        let mut group = match staged {
            true => Group::with_store(&clock.timed, config.clone(), store.clone())?,
            false => Group::new(&clock.timed, config.clone().with_placement(Placement::Mapped))?,
        };
        bench.run.describe(
            name,
            format!(
                "{n} distinct indices, 95 % of them to rows that are always asked for, {rows} rows x {DIM}, cache of {slots} rows, bags of {BAG}, \
                 {stretches} times {each} steps after {warm} that filled the cache"
            ),
        );
        steps(bench, name, &mut group, [staged, ahead], (&inputs, batches.len()))?;
        let (counted, copied) = (group.counters()?[0], group.traffic());
        let agreed = copied.map(|copied| agreement(counted, copied, group.layout().stride()));
        bench.run.at(name, &placed(copied.is_some())).push("counted against copied", agreed, Unit::Share);
        let wrong = wrong(agreed, counted, *first.get_or_insert(counted));
        bench.run.wrong.extend(wrong.map(|wrong| format!("{name}: {wrong}")));
    }
    // At most all of it counts as hidden: prefetch also saves the wait for the list.
    let of = |what: &str, shape: &str| bench.run.value(what, shape, "");
    let saved = of("pace", "staged-alone").zip(of("pace", "staged-prefetched")).map(|(alone, with)| alone - with);
    let hidden = saved.zip(of("host part", "staged-alone")).map(|(saved, host)| (saved / host).clamp(0.0, 1.0));
    bench.run.at("staged-prefetched", &placed(true)).push("share of host part hidden", hidden, Unit::Share);
    Ok(())
}

/// Steps until a cache of twice the indices is full at 95 % hits, stretches that are timed, steps of a stretch.
fn pace(bench: &Bench<'_>) -> (usize, usize, usize) {
    bench.size.of((22, 2, 4), (24, 6, 8))
}

/// The setting of a run's records.
fn placed(staged: bool) -> Setting {
    Setting::default().with("placement", if staged { "staged" } else { "mapped" })
}

/// Runs all steps, records the timed ones, and flushes. A step is decided after the backward of the step before it was submitted; with `ahead` before that,
/// and gathered while it runs.
fn steps(
    bench: &mut Bench<'_>,
    name: &str,
    group: &mut Group,
    [staged, ahead]: [bool; 2],
    (inputs, count): (&Inputs, usize),
) -> anyhow::Result<()> {
    let (clock, (warm, _, each)) = (bench.clock, pace(bench));
    let queue = clock.timed.queue();
    let ask = |group: &mut Group, step: usize| -> anyhow::Result<SubmissionIndex> {
        let mut encoder = clock.encoder();
        group.encode_prefetch(&mut encoder, &inputs.batch(step))?;
        Ok(queue.submit([encoder.finish()]))
    };
    let (outputs, grads) = (inputs.outputs.slice(..), inputs.grads.slice(..));
    let [mut asked, mut last]: [Option<SubmissionIndex>; 2] = [None, None];
    let mut one = |group: &mut Group, step: usize| -> anyhow::Result<()> {
        let mut encoder = clock.encoder();
        if !staged {
            group.encode_forward(&mut encoder, &inputs.batch(step), outputs, Mode::Train)?;
        } else {
            let mine = match asked.take() {
                Some(asked) => asked,
                None => ask(group, step)?,
            };
            group.fetch(Some(mine))?;
            group.encode_forward_prefetched(&mut encoder, outputs)?;
            // Counters cannot be read while a batch waits.
            if ahead && ![warm, count].contains(&(step + 1)) {
                queue.submit([std::mem::replace(&mut encoder, clock.encoder()).finish()]);
                asked = Some(ask(group, step + 1)?);
            }
        }
        group.encode_backward(&mut encoder, grads)?;
        let submitted = queue.submit([encoder.finish()]);
        // As in training, the host is at most one step ahead.
        last.replace(submitted).map_or(Ok(()), |index| clock.wait(index))
    };
    (0..warm).try_for_each(|step| one(group, step))?;
    let before = (group.counters()?[0], group.traffic());
    let mut seconds = Vec::new();
    for first in (warm..count).step_by(each) {
        let (done, stretch) = timed(|| (first..first + each).try_for_each(|step| one(group, step)));
        done?;
        seconds.push(stretch / each as f64);
    }
    group.check()?;
    let timed = group.counters()?[0] - before.0;
    let mean = |all: u64| all as f64 / (count - warm) as f64;
    let traffic = group.traffic().zip(before.1);
    let crossed = |of: fn(&Traffic) -> u64| traffic.map(|(now, before)| mean(of(&now) - of(&before)));
    group.flush()?;
    let mut at = bench.run.at(name, &placed(traffic.is_some()));
    at.timed("pace", Times::of(seconds));
    at.push("hits", timed.hit_rate(), Unit::Share);
    at.push("counted in", mean(timed.bytes_read), Unit::Bytes);
    at.push("counted out", mean(timed.bytes_written), Unit::Bytes);
    at.push("copied", crossed(Traffic::bytes), Unit::Bytes);
    at.push("host part", crossed(|traffic| traffic.host_nanoseconds).map(|ns| ns * 1e-9), Unit::Seconds);
    Ok(())
}

/// How well the bytes counted agree with the bytes copied, in both directions: 1 if they are equal.
fn agreement(counted: Counters, copied: Traffic, stride: u64) -> f64 {
    let ways = [(counted.bytes_read, copied.records_in * stride), (counted.bytes_written, copied.records_out * stride)];
    // A direction without bytes agrees only if nothing was counted either.
    ways.into_iter().map(|(a, b)| a.min(b) as f64 / a.max(b).max(1) as f64).fold(1.0, f64::min)
}

/// A failure on any machine: bytes counted that differ from bytes copied, or other counters than those of the first way.
fn wrong(agreed: Option<f64>, counted: Counters, first: Counters) -> Option<String> {
    if let Some(agreed) = agreed.filter(|&agreed| agreed < 1.0) {
        return Some(format!("wanted as many bytes counted as copied, found a share of {agreed}"));
    }
    let (read, written) = (counted.bytes_read, counted.bytes_written);
    (counted != first)
        .then(|| format!("wanted the counters of the first way, found others, {read} B in, {written} B out"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_differ_are_noticed() {
        let counters = |bytes_read, bytes_written| Counters { bytes_read, bytes_written, ..Counters::default() };
        let found = |counted, (records_in, records_out)| {
            let mut copied = Traffic::default();
            (copied.records_in, copied.records_out) = (records_in, records_out);
            wrong(Some(agreement(counted, copied, 136)), counted, counted).is_some()
        };
        let right = counters(1360, 680);
        assert!(!found(right, (10, 5)));
        // One record too many, one too few, directions exchanged, nothing copied; a run that moved nothing proves nothing.
        assert!([(11, 5), (10, 4), (5, 10), (0, 0)].into_iter().all(|copied| found(right, copied)));
        assert!(found(counters(0, 0), (0, 0)));
        // The mapped run has other counters.
        assert!(wrong(None, right, right).is_none() && wrong(None, counters(1360, 816), right).is_some());
    }
}
