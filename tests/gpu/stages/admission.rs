//! The stage that admits rows to the cache, where sets have more candidates than most whole runs give them.

use bytemuck::cast_slice;
use hotrow::{
    Context, GroupConfig, Policy,
    internals::hash::Spread,
    internals::layout::{COMING, Field, NONE, Share, Swap, WAYS, count, way_at},
};
use hotrow_harness::{device::with_gpu, gpu_test};

use super::{TRAIN, layout_of, params, run, step, tables, words};

/// Candidates of empty sets: the best 32 by key and then by row are admitted, and take the ways in order.
fn the_best_are_admitted(context: &Context, sets: u32, n: u32, key: &dyn Fn(u32) -> u32) {
    let config = GroupConfig::new(&[n], 4).with_cache_rows(32 * sets).with_policy(Policy::Lfu);
    let (layout, spread) = (layout_of(&config), Spread::new(n, sets, WAYS));
    let mut rows: Vec<u32> = (0..n).collect();
    rows.sort_by_key(|&row| (spread.set_of(row), row.wrapping_mul(0x9e37_79b9)));
    let missing = |(place, &row)| Swap { place, row, victim: key(row), flags: 0 };
    let missing: Vec<Swap> = (layout.slots()..).zip(&rows).map(missing).collect();
    let empty = (0..128 * sets).map(|word| if word % 128 < 32 { NONE } else { 0 });
    let bindings = [
        words(&params(&config, &layout, TRAIN, 0)),
        step(9, count::SWAPS, n),
        cast_slice(&missing).to_vec(),
        empty.collect(),
        tables(n, 9),
        words(&Share::default()),
    ];
    let found = run(context, "admit", &bindings, n.div_ceil(600));
    rows.sort_by_key(|&row| (spread.set_of(row), std::cmp::Reverse(key(row)), row));
    let best = rows.chunk_by(|&a, &b| spread.set_of(a) == spread.set_of(b)).map(|set| &set[..set.len().min(32)]);
    for (set, best) in best.enumerate() {
        // A row on its way stands in place of the stamp.
        let word = |way, field| found[3][way_at(WAYS, 32 * set as u32 + way, field)];
        let found: Vec<u32> = (0..best.len() as u32).map(|way| word(way, Field::Stamp)).collect();
        assert_eq!(found, best, "{n} candidates of {sets} sets, set {set}");
        assert!((0..best.len() as u32).all(|way| word(way, Field::Flags) & COMING != 0));
    }
}

/// In an order in which each is better than those before it, in the opposite order, and with keys that many have.
#[test]
pub(crate) fn the_best_of_large_sets_are_admitted() {
    with_gpu(|context| {
        for (sets, n) in [
            (1, 1),
            (1, 31),
            (1, 32),
            (1, 33),
            (1, 64),
            (1, 65),
            (1, 224),
            (1, 225),
            (1, 256),
            (1, 257),
            (1, 288),
            (1, 289),
            (1, 1057),
            (2, 6000),
            (9, 5000),
        ] {
            let keys: [&dyn Fn(u32) -> u32; 3] = [&|row| row + 1, &|row| n - row, &|row| 1 + row % 5];
            keys.iter().for_each(|key| the_best_are_admitted(context, sets, n, key));
        }
    });
}

/// llvmpipe leaves a shader's loops after 65,535 turns in all. A million candidates take 977 turns, or 2 million where each is better than those before it.
#[gpu_test]
fn the_best_of_a_million_are_admitted(context: &Context) {
    the_best_are_admitted(context, 1, 1_000_000, &|row| 1_000_000 - row);
}
