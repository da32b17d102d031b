//! The sort by itself, on random pairs of 32-bit keys and values.

use hotrow::{Count, Sorter};
use rayon::slice::ParallelSliceMut as _;
use std::time::Instant;

use super::{Bench, bytes};
use crate::report::{Setting, Unit};

/// Pairs of the goals.
const GOAL: u32 = 1 << 24;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for &(pairs, key_bits) in bench.size.sorts() {
        let name = format!("sort of {pairs} pairs by {key_bits} bits");
        // Each array is one binding.
        let beyond = u64::from(pairs) * 4 > bench.lab.binding();
        let beyond = beyond.then(|| format!("beyond a binding of {} MiB", bench.lab.binding() >> 20));
        match bench.deadline.over().or(beyond) {
            Some(reason) => bench.run.leave_out(name, reason),
            None => one(bench, pairs, key_bits)?,
        }
    }
    Ok(())
}

fn one(bench: &mut Bench<'_>, pairs: u32, key_bits: u32) -> anyhow::Result<()> {
    let lab = bench.lab;
    let mask = u32::MAX >> (32 - key_bits);
    let keys: Vec<u32> = (0..pairs).map(|i| hotrow::hash::fmix32(i ^ bench.seed) & mask).collect();
    let mut host: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
    let start = Instant::now();
    host.par_sort_by_key(|&(key, _)| key);
    let host_seconds = start.elapsed().as_secs_f64();
    drop(host);
    let (keys, values) = (lab.storage(&keys), lab.storage(&(0..pairs).collect::<Vec<_>>()));
    let sorter = Sorter::new(&lab.timed, pairs)?;
    let measured = lab.measure(&["sort"], |_, encoder| {
        sorter.record_sort(encoder, keys.slice(..), Some(values.slice(..)), Count::Host(pairs), key_bits)?;
        Ok(())
    })?;
    let times = measured.phase("sort").unwrap_or_default();
    let bytes = bytes::sort(f64::from(key_bits.div_ceil(8)), f64::from(pairs), true) / times.median;
    let rate = f64::from(pairs) / times.median;
    let setting = Setting::default().with("pairs", pairs).with("key bits", key_bits);
    let mut push = |what: &str, value, unit| bench.run.push_some(what, "sort", &setting, value, unit);
    push("pairs a second", Some(rate), Unit::PerSecond);
    push("bytes a second", Some(bytes), Unit::BytesPerSecond);
    push("of copy", bench.copy.map(|copy| bytes / copy), Unit::Share);
    push("dispatches", Some(measured.dispatches() as f64), Unit::Count);
    push("host", Some(host_seconds), Unit::Seconds);
    for (what, name, unit) in [("against cub", "cub", Unit::Share), ("against lampshade", "lampshade", Unit::Times)] {
        let theirs = bench.beside.pairs_per_second(name, pairs).filter(|_| pairs == GOAL && key_bits == 32);
        push(what, theirs.map(|theirs| rate / theirs), unit);
    }
    bench.run.timed(&format!("sort, {key_bits} bits"), "sort", &setting, times);
    Ok(())
}
