use hotrow::{
    CounterBits, GroupConfig, Policy,
    internals::layout::{Field, NONE, Params, Shard, WAYS, way_at},
    internals::stages,
};
use rand::RngExt as _;

use super::{TRAIN, check, guarded, layout_of, of, on_each, params, read, rng, slot_of, step, tables, ways, words};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut saturated, mut stamped) = (0, [0; 3], 0);
        for seed in 0..5 {
            for n in [0u32, 1, 255, 256, 257, 2000] {
                let width = (seed as usize + n as usize) % 3;
                let most = CounterBits::ALL[width].most();
                for policy in [Policy::Lru, Policy::Lfu] {
                    let mut source = rng(seed);
                    let (per_shard, index) = (700u32, source.random_range(0..3u32));
                    let rows = [3, 900, 3 * per_shard - 903];
                    let mut config = GroupConfig::new(&rows, 4);
                    config.policy = policy;
                    config.counter_bits = CounterBits::ALL[width];
                    config.cache_rows = 32 * source.random_range(1..5);
                    let layout = layout_of(&config);
                    let t = 9;
                    let mut ways = ways(&mut source, layout.sets, 3 * per_shard, t - 1, 0.6);
                    let near_the_end = [0, 5, most - 1, most - 3, most];
                    for slot in 0..layout.slots() {
                        ways[way_at(WAYS, slot, Field::Freq)] = near_the_end[source.random_range(0..5)];
                    }
                    // One row occurs many times, others once.
                    let hot = source.random_range(0..3 * per_shard);
                    let keys: Vec<u32> = (0..n)
                        .map(|_| match source.random_range(0..10) {
                            0 => NONE,
                            1..4 => hot,
                            _ => source.random_range(0..3 * per_shard),
                        })
                        .collect();
                    let places: Vec<u32> = keys
                        .iter()
                        .map(|&row| if row == NONE { NONE } else { slot_of(&ways, layout.sets, row) })
                        .collect();
                    let shard = match policy {
                        Policy::Lru | Policy::Static => Shard { first_row: 0, rows: 3 * per_shard, ..Shard::default() },
                        Policy::Lfu => Shard { first_row: index * per_shard, rows: per_shard, ..Shard::default() },
                    };
                    let freqs: Vec<u32> = (0..per_shard).map(|_| near_the_end[source.random_range(0..5)]).collect();
                    let mut tables = tables(&mut source, &rows, t);
                    tables[0] = t;
                    let bindings = [
                        words(&Params { indices: n, ..params(&config, &layout, TRAIN, 0) }),
                        words(&shard),
                        words(&step(&mut source, t, &[])),
                        guarded(&keys),
                        guarded(&places),
                        guarded(&ways),
                        guarded(&freqs),
                        guarded(&tables),
                    ];
                    let what = format!("seed {seed}, {n} accesses, {policy:?}");
                    let run = check(context, "touch", &what, &bindings, n.div_ceil(256), &[], |b| {
                        let [params, shard, step, keys, places, ways, freqs, tables] = b else { unreachable!() };
                        stages::touch(&read(params), &read(shard), of(step), keys, places, ways, freqs, tables);
                    });
                    changed += run.changed;
                    saturated[width] += run.found[6].iter().zip(&freqs).filter(|&(&a, &b)| a == most && b != a).count();
                    stamped +=
                        (0..layout.slots()).filter(|&s| run.found[5][way_at(WAYS, s, Field::Stamp)] == t).count();
                    // Checked without the mirror: each row of this shard with a hit counts once as distinct.
                    let mut hit: Vec<u32> = (0..n as usize)
                        .filter(|&i| places[i] != NONE && shard.holds(keys[i]))
                        .map(|i| keys[i])
                        .collect();
                    hit.sort_unstable();
                    hit.dedup();
                    let unique = |words: &[u32]| -> u64 {
                        words[4..]
                            .chunks_exact(28)
                            .take(3)
                            .map(|table| u64::from(table[6]) | u64::from(table[7]) << 32)
                            .fold(0, u64::wrapping_add)
                    };
                    assert_eq!(unique(&run.found[7]).wrapping_sub(unique(&tables)), hit.len() as u64, "{what}");
                }
            }
        }
        assert!(changed > 0 && stamped > 100, "{changed} {stamped}");
        assert!(saturated.iter().all(|&rows| rows > 0), "{saturated:?}");
    });
}
