//! The sort by itself, on random pairs.

use hotrow::{Count, Sorter};
use rayon::slice::ParallelSliceMut as _;
use std::time::Instant;

use super::Beside;
use super::bytes;
use super::goals::{Id, reach};
use super::lab::Lab;
use super::report::{Report, Sort};

/// Of the goal.
const GOAL: u32 = 1 << 24;

pub(crate) fn run(lab: &Lab, report: &mut Report, beside: &Beside) -> anyhow::Result<()> {
    for &(pairs, key_bits, why) in lab.size.sorts() {
        if lab.out_of_time() {
            report.left_out.push(format!("sort of {pairs} pairs by {key_bits} bits: out of time"));
            continue;
        }
        // Each array is one binding.
        if u64::from(pairs) * 4 > lab.binding() {
            report.left_out.push(format!("sort of {pairs} pairs: beyond a binding of {} MiB", lab.binding() >> 20));
            continue;
        }
        report.sorts.push(one(lab, pairs, key_bits, why)?);
    }
    let goal = report.sorts.iter().find(|sort| sort.pairs == GOAL && sort.key_bits == 32);
    let ours = goal.map(|sort| sort.pairs_per_second);
    let against = |name: &str| beside.pairs_per_second(name, GOAL);
    for (id, name, missing) in [
        (Id::SortCub, "cub", "CUB's figure comes from benches/side_by_side.py by --beside"),
        (
            Id::SortLampshade,
            "lampshade",
            "lampshade's figure comes from benches/sort.rs by --beside, as scripts/gpu-suite does it",
        ),
    ] {
        let ratio = ours.zip(against(name)).map(|(ours, theirs)| ours / theirs);
        let remark = match (ours, ratio) {
            (None, _) => "2^24 pairs were not sorted in this run".to_owned(),
            (Some(ours), None) => format!("{:.2} G pairs/s here; {missing}", ours * 1e-9),
            (Some(ours), Some(_)) => format!("{:.2} G pairs/s", ours * 1e-9),
        };
        reach(&mut report.goals, id, ratio, lab.judges(), remark);
    }
    Ok(())
}

fn one(lab: &Lab, pairs: u32, key_bits: u32, why: &'static str) -> anyhow::Result<Sort> {
    let mask = u32::MAX >> (32 - key_bits);
    let keys: Vec<u32> = (0..pairs).map(|i| hotrow::hash::fmix32(i ^ lab.seed) & mask).collect();
    let mut host: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
    let start = Instant::now();
    host.par_sort_by_key(|&(key, _)| key);
    let cpu_seconds = start.elapsed().as_secs_f64();
    drop(host);
    let (keys, values) = (lab.storage(&keys), lab.storage(&(0..pairs).collect::<Vec<_>>()));
    let sorter = Sorter::new(&lab.timed, pairs)?;
    let measured = lab.measure(&["sort"], |_, encoder| {
        sorter.record_sort(encoder, keys.slice(..), Some(values.slice(..)), Count::Host(pairs), key_bits)?;
        Ok(())
    })?;
    let seconds = measured.phase("sort").unwrap_or_default();
    let dispatches = measured.dispatches();
    let bytes = bytes::sort(f64::from(key_bits.div_ceil(8)), f64::from(pairs), true);
    Ok(Sort {
        pairs,
        key_bits,
        why,
        seconds,
        pairs_per_second: f64::from(pairs) / seconds.median,
        bytes,
        bytes_per_second: bytes / seconds.median,
        share_of_copy: None,
        dispatches,
        cpu_seconds,
    })
}
