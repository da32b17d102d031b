use bytemuck::cast_slice_mut;
use hotrow::{
    GroupConfig, cpu,
    hash::fmix32,
    layout::{NONE, Unique, count},
};
use rand::RngExt as _;

use super::{
    TRAIN, check, distinct_rows, guarded, junk, layout_of, of, on_each, params, read, rng, slot_of, step, ways, words,
};

#[test]
fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..4 {
            for n in [0usize, 1, 255, 256, 257, 1000] {
                for sets in [0u32, 1, 20] {
                    let mut source = rng(seed);
                    let mut config = GroupConfig::new(&[1500], 4);
                    config.cache_rows = 32 * sets;
                    let layout = layout_of(&config);
                    let ways = ways(&mut source, sets, 1500, 8, 0.8);
                    let mut rows = distinct_rows(&mut source, n, 1500);
                    rows.sort_unstable();
                    let mut unique = Vec::new();
                    let mut set_keys = Vec::new();
                    for &row in &rows {
                        let home = fmix32(row) % sets.max(1);
                        let now = slot_of(&ways, sets, row);
                        // Still there, just admitted, refused, or a hit whose slot went to another row since (LFU).
                        let (slot, key) = match (now, source.random_bool(0.5)) {
                            (NONE, true) if sets > 0 => (home * 32 + source.random_range(0..32), NONE),
                            (NONE, _) => (NONE, home),
                            (slot, true) => (slot, NONE),
                            (slot, false) => (slot, home),
                        };
                        let count = source.random_range(1..9);
                        unique.push(Unique { row, count, key: count, slot });
                        set_keys.push(key);
                    }
                    let bindings = [
                        words(&params(&config, &layout, TRAIN, 0)),
                        words(&step(&mut source, 9, &[(count::UNIQUE, n as u32)])),
                        guarded(&unique),
                        guarded(&set_keys),
                        guarded(&ways),
                        guarded(&junk(&mut source, n)),
                    ];
                    let groups = (n + 9).div_ceil(256) as u32;
                    let what = format!("seed {seed}, {n} rows, {sets} sets");
                    changed += check(context, "resolve", &what, &bindings, groups, &[], |b| {
                        let [params, step, unique, set_keys, ways, fetch_to] = b else { unreachable!() };
                        cpu::resolve(&read(params), of(step), cast_slice_mut(unique), set_keys, ways, fetch_to);
                    })
                    .changed;
                }
            }
        }
        assert!(changed > 0);
    });
}
