use hotrow::{
    GroupConfig,
    internals::layout::{NONE, Params, Robe, count},
    internals::stages,
    robe::hash::{PRIME, row_hash, row_place},
};
use rand::RngExt as _;

use super::{
    FROZEN, ROWS, TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, step, tables, words,
};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let mut changed = 0;
        for seed in 0..6 {
            for n in [0usize, 1, 255, 256, 257, 5000] {
                let mut source = rng(seed);
                let rows = [1, 3_000_000_000, 1_294_967_290];
                let config = GroupConfig::new(&rows, 4);
                let layout = layout_of(&config);
                let mode = [TRAIN, FROZEN, ROWS][seed as usize % 3];
                let active = seed != 4;
                // Many rows next to multiples of the prime and to the ends of 32 bits, where the product comes closest to its bounds.
                // tight.
                let keys: Vec<u32> = (0..n)
                    .map(|_| match source.random_range(0..5) {
                        0 => NONE,
                        1 => PRIME.wrapping_sub(3).wrapping_add(source.random_range(0..6)),
                        2 => [0, 1, 2 * PRIME - 1, 2 * PRIME, u32::MAX - 1][source.random_range(0..5)],
                        _ => source.random_range(0..u32::MAX - 1),
                    })
                    .collect();
                // One in three addresses its rows directly.
                let robe = Robe { stride: [0, 0, 12][seed as usize % 3], ..Robe::default() };
                let params = Params { indices: n as u32, ..params(&config, &layout, mode, 0) };
                let bindings = [
                    words(&params),
                    words(&robe),
                    words(&step(&mut source, 9, &[(count::INDICES, if active { n as u32 } else { 0 })])),
                    guarded(&keys),
                    guarded(&junk(&mut source, n)),
                    guarded(&tables(&mut source, &rows, 9)),
                ];
                let what = format!("seed {seed}, {n} accesses, mode {mode}, active {active}");
                let run = check(context, "robe_hash", &what, &bindings, n.div_ceil(256) as u32, &[], |b| {
                    let [params, robe, step, keys, hashes, tables] = b else { unreachable!() };
                    stages::robe_hash(&read(params), &read(robe), of(step), keys, hashes, tables);
                });
                // Checked without the mirror, by the hash of the library.
                for (i, &key) in keys.iter().enumerate() {
                    let wanted = if key == NONE || !active { NONE } else { row_place(key, robe.stride) };
                    assert_eq!(run.found[4][i], wanted, "{what}: row {key}");
                    let other = key != NONE && active && robe.stride != 0 && row_hash(key) != key.wrapping_mul(12);
                    assert!(!other || run.found[4][i] != row_hash(key), "{what}: row {key} is hashed");
                }
                changed += run.changed;
            }
        }
        assert!(changed > 0);
    });
}
