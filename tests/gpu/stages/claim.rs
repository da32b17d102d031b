use bytemuck::cast_slice_mut;
use hotrow::{
    CounterBits, GroupConfig, Policy,
    hash::miss_key,
    internals::layout::{Shard, count},
    internals::stages,
};
use rand::RngExt as _;

use super::{
    FROZEN, TRAIN, check, distinct_rows, guarded, junk, layout_of, of, on_each, params, read, rng, step, tables, words,
};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut saturated) = (0, [0; 3]);
        for seed in 0..4 {
            for n in [0usize, 1, 255, 256, 257, 1000] {
                let width = (seed as usize + n) % 3;
                let most = CounterBits::ALL[width].most();
                for policy in [Policy::Lru, Policy::Lfu] {
                    let mut source = rng(seed);
                    let total = 2100;
                    let rows = [1, 1200, total - 1201];
                    let mut config = GroupConfig::new(&rows, 4);
                    config.policy = policy;
                    config.counter_bits = CounterBits::ALL[width];
                    config.cache_rows = 32 * source.random_range(0..5);
                    let layout = layout_of(&config);
                    let mode = [TRAIN, TRAIN, FROZEN][source.random_range(0..3)];
                    let mut missing = distinct_rows(&mut source, n, total);
                    missing.sort_by_key(|&row| miss_key(row, layout.sets));
                    // The accesses that want these rows lie among accesses that did not miss.
                    let mut starts: Vec<u32> = Vec::new();
                    let mut wanted_by: Vec<u32> = Vec::new();
                    for &row in &missing {
                        starts.push(wanted_by.len() as u32);
                        wanted_by.extend(vec![row; source.random_range(1..4)]);
                    }
                    let missed = wanted_by.len();
                    let accesses = missed + source.random_range(0..9);
                    let order = distinct_rows(&mut source, missed, accesses as u32);
                    let mut keys = junk(&mut source, accesses);
                    order.iter().zip(&wanted_by).for_each(|(&i, &row)| keys[i as usize] = row);
                    let per_shard = 700;
                    let first_row = per_shard * source.random_range(0..3u32);
                    let shard = match policy {
                        Policy::Lru | Policy::Static => Shard { first_row: 0, rows: total, ..Shard::default() },
                        Policy::Lfu => Shard { first_row, rows: per_shard, ..Shard::default() },
                    };
                    let near_the_end = [0, 5, most - 1, most - 3, most];
                    let freqs: Vec<u32> = (0..per_shard).map(|_| near_the_end[source.random_range(0..5)]).collect();
                    let counts = [(count::MOVES, n as u32), (count::MISSED, missed as u32)];
                    let bindings = [
                        words(&params(&config, &layout, mode, 0)),
                        words(&shard),
                        words(&step(&mut source, 9, &counts)),
                        guarded(&keys),
                        guarded(&order),
                        guarded(&starts),
                        guarded(&junk(&mut source, 4 * n)),
                        guarded(&junk(&mut source, 4 * n)),
                        guarded(&freqs),
                        guarded(&tables(&mut source, &rows, 9)),
                    ];
                    let what = format!("seed {seed}, {n} rows, {policy:?}, mode {mode}");
                    // With fewer workgroups than blocks of rows, each workgroup takes several blocks.
                    let groups = [1, 2, n.div_ceil(256).max(1) as u32][source.random_range(0..3)];
                    let run = check(context, "claim", &what, &bindings, groups, &[], |b| {
                        let [params, shard, step, keys, order, starts, unique, moves, freqs, tables] = b else {
                            unreachable!()
                        };
                        let (unique, moves) = (cast_slice_mut(unique), cast_slice_mut(moves));
                        let (params, shard) = (read(params), read(shard));
                        stages::claim(&params, &shard, of(step), keys, order, starts, unique, moves, freqs, tables);
                    });
                    changed += run.changed;
                    saturated[width] += run.found[8].iter().zip(&freqs).filter(|&(&a, &b)| a == most && b != a).count();
                }
            }
        }
        assert!(changed > 0 && saturated.iter().all(|&rows| rows > 0), "{changed} {saturated:?}");
    });
}
