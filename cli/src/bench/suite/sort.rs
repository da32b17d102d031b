//! The sort by itself, on random pairs of 32-bit keys and values.

use hotrow::Sorter;
use rayon::slice::ParallelSliceMut as _;

use super::bench::Bench;
use super::bytes;
use hotrow_report::clock::timed;
use hotrow_report::records::{Setting, Unit};

const GOAL: u32 = 1 << 24;
/// Pairs and key bits; 22 bits order four million slots.
const SMALL: &[(u32, u32)] = &[(1_000, 32), (10_000, 32), (100_000, 32), (100_000, 16)];
const FULL: &[(u32, u32)] =
    &[(10_000, 32), (100_000, 32), (1 << 20, 32), (1 << 20, 22), (10_000_000, 32), (GOAL, 32), (100_000_000, 32)];

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let sorts = bench.size.of(SMALL, FULL).iter();
    bench.each(sorts.map(|&sort| (format!("sort of {} pairs by {} bits", sort.0, sort.1), sort)), one)
}

fn one(bench: &mut Bench<'_>, (pairs, key_bits): (u32, u32)) -> anyhow::Result<()> {
    let clock = bench.clock;
    bench.check_bound(u64::from(pairs) * 4)?;
    let mask = u32::MAX >> (32 - key_bits);
    let keys: Vec<u32> = (0..pairs).map(|i| hotrow::internals::hash::fmix32(i ^ bench.seed) & mask).collect();
    let mut host: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
    let ((), host_seconds) = timed(|| host.par_sort_by_key(|&(key, _)| key));
    drop(host);
    let (keys, values) = (clock.storage(&keys), clock.storage(&(0..pairs).collect::<Vec<_>>()));
    let sorter = Sorter::new(&clock.timed, pairs)?;
    let measured = clock.repeated(&["sort"], |_, encoder| {
        sorter.encode_sort(encoder, keys.slice(..), Some(values.slice(..)), None, key_bits)?;
        Ok(())
    })?;
    let times = measured.phase("sort").unwrap_or_default();
    let must_move = bytes::sort(f64::from(key_bits.div_ceil(8)), f64::from(pairs), true);
    let (bytes, rate) = (must_move / times.median, f64::from(pairs) / times.median);
    let against = |name: &str| {
        let sorts = bench.beside.iter().filter_map(|value| value["sorts"].as_array()).flatten();
        let mut theirs =
            sorts.filter(|sort| (pairs, key_bits) == (GOAL, 32) && sort["name"] == name && sort["pairs"] == pairs);
        theirs.find_map(|sort| Some(rate / sort["pairs_per_second"].as_f64()?))
    };
    let (cub, lampshade) = (against("cub"), against("lampshade"));
    let mut at = bench.run.at("sort", &Setting::default().with("pairs", pairs).with("key bits", key_bits));
    at.push("pairs a second", rate, Unit::PerSecond);
    at.push("bytes a second", bytes, Unit::BytesPerSecond);
    at.push("of copy", bench.copy.map(|copy| bytes / copy), Unit::Share);
    at.push("dispatches", measured.dispatches() as f64, Unit::Count);
    at.push("host", host_seconds, Unit::Seconds);
    at.push("against cub", cub, Unit::Share);
    at.push("against lampshade", lampshade, Unit::Times);
    at.timed(&format!("sort, {key_bits} bits"), times);
    Ok(())
}
