//! The exact hit counts in the data folder's README, which independent programs computed.

use crate::common::trace;
use hotrow::Policy::{self, Lfu, Lru, Static};
use hotrow_cli::trace::Trace;
use hotrow_plan::simulate::{Geometry, Simulator};

/// The hits of a trace in batches of one access. `ways = 0` is fully associative.
fn hits(trace: &Trace, policy: Policy, ways: u32, percent: f64) -> u64 {
    let shape = Geometry::of_percent(trace.distinct.into(), percent, ways).unwrap();
    let mut cache = Simulator::new(trace.distinct, shape.sets, shape.ways, policy).unwrap();
    for &id in &trace.ids {
        cache.step(&[id]);
    }
    let seen = cache.counters();
    assert_eq!(seen.accesses, trace.ids.len() as u64);
    assert_eq!(seen.accesses, seen.unique, "batches of one");
    assert_eq!(seen.accesses - seen.hits, seen.unique_misses);
    assert_eq!(seen.unique_misses, seen.admitted + seen.conflicts);
    seen.hits
}

/// Name, accesses, distinct rows; for percents of rows cached, the hits of FA, SA32, DM and LFU32, and those of the hottest rows pinned.
type Published = (&'static str, usize, u32, [(f64, [u64; 4], u64); 3]);
const PUBLISHED: [Published; 2] = [
    (
        "online_retail_stock",
        541_909,
        3_958,
        [
            (1.0, [39_204, 39_069, 37_635, 73_601], 74_249),
            (5.0, [119_793, 119_206, 107_886, 170_552], 172_915),
            (10.0, [201_517, 201_177, 174_330, 247_299], 250_544),
        ],
    ),
    (
        "wikitext2_words",
        2_551_843,
        33_278,
        [
            (1.0, [1_776_238, 1_769_528, 1_547_535, 1_561_046], 1_566_335),
            (5.0, [2_095_824, 2_091_686, 1_942_295, 1_924_586], 1_937_726),
            (10.0, [2_212_196, 2_208_448, 2_075_713, 2_102_318], 2_121_414),
        ],
    ),
];

#[test]
fn hits_are_those_of_other_programs() {
    for (name, accesses, distinct, published) in PUBLISHED {
        let Some(trace) = trace(name) else { continue };
        assert_eq!((trace.ids.len(), trace.distinct), (accesses, distinct));
        for (percent, wanted, _) in published {
            let ways = [(Lru, 0), (Lru, 32), (Lru, 1), (Lfu, 32)];
            let found = ways.map(|(policy, ways)| hits(&trace, policy, ways, percent));
            assert_eq!(found, wanted, "{name} at {percent} %: FA, SA32, DM, LFU32");
        }
    }
}

/// The hits of the most used rows, as many as the cache has slots, in one set or in sets of 32. `shift` leaves out the hottest rows.
fn static_hits(trace: &Trace, ways: u32, percent: f64, shift: usize) -> u64 {
    let shape = Geometry::of_percent(trace.distinct.into(), percent, ways).unwrap();
    let mut cache = Simulator::new(trace.distinct, shape.sets, shape.ways, Static).unwrap();
    let rows = &trace.hottest(shape.slots as usize + shift)[shift..];
    let left_out = cache.pin(rows, shape.ways);
    assert_eq!(left_out.is_empty(), ways == 0, "one set takes them all, in several some have too many");
    trace.ids.chunks(64).for_each(|ids| cache.step(ids));
    let seen = cache.counters();
    assert_eq!((seen.accesses, seen.evictions), (trace.ids.len() as u64, 0));
    assert_eq!(seen.admitted, (rows.len() - left_out.len()) as u64, "by pin, and by no step");
    seen.hits
}

#[test]
fn the_hottest_rows_pinned() {
    for (name, .., published) in PUBLISHED {
        let Some(trace) = trace(name) else { continue };
        for (percent, _, wanted) in published {
            assert_eq!(static_hits(&trace, 0, percent, 0), wanted, "{name} at {percent} %");
            assert!(static_hits(&trace, 0, percent, 1) < wanted, "others are fewer hits");
            // Some sets overflow, which costs a few percent of the hits.
            let hashed = static_hits(&trace, 32, percent, 0);
            assert!(hashed < wanted && hashed > wanted * 9 / 10, "{name} at {percent} %: {hashed} of {wanted}");
        }
    }
}

#[test]
fn lfu_with_other_ways() {
    let Some(trace) = trace("online_retail_stock") else { return };
    assert_eq!(hits(&trace, Lfu, 1, 1.0), 65_126);
    assert_eq!(hits(&trace, Lfu, 0, 1.0), 73_647);
}
