use bytemuck::cast_slice_mut;
use hotrow::{
    Context, GroupConfig, RankBody, cpu,
    layout::{NONE, count},
};
use rand::RngExt as _;

use super::{
    FROZEN, TRAIN, check, distinct_rows, guarded, junk, layout_of, of, on_each, params, read, rng, step, tables, ways,
    words,
};
use crate::device::{skipped, with_gpu};

fn all(context: &Context) {
    let (mut changed, mut hits, mut misses) = (0, 0, 0);
    for seed in 0..4 {
        for n in [0usize, 1, 7, 8, 9, 31, 33, 300] {
            for sets in [0u32, 1, 3, 8] {
                let mut source = rng(seed);
                let rows = [1, 400, 99];
                let mut config = GroupConfig::new(&rows, 4);
                config.cache_rows = 32 * sets;
                let layout = layout_of(&config);
                let mode = [TRAIN, FROZEN][source.random_range(0..2)];
                let mut distinct = distinct_rows(&mut source, n, 500);
                distinct.sort_unstable();
                let (mut keys, mut starts) = (Vec::new(), Vec::new());
                for &row in &distinct {
                    starts.push(keys.len() as u32);
                    let most = [2, 2, 40][source.random_range(0..3)];
                    keys.extend(vec![row; source.random_range(1..most)]);
                }
                let valid = keys.len() as u32;
                keys.extend([NONE; 3]);
                let capacity = n + source.random_range(0..20);
                starts.extend(junk(&mut source, capacity - n));
                let counts = [(count::UNIQUE, n as u32), (count::VALID, valid)];
                let bindings = [
                    words(&params(&config, &layout, mode, 0)),
                    words(&step(&mut source, 9, &counts)),
                    guarded(&keys),
                    guarded(&starts),
                    guarded(&junk(&mut source, 4 * capacity)),
                    guarded(&junk(&mut source, capacity)),
                    guarded(&junk(&mut source, capacity)),
                    // At least a set is there even where the cache has none, as in a group.
                    guarded(&ways(&mut source, sets.max(1), 500, 8, 0.8)),
                    guarded(&tables(&mut source, &rows, 9)),
                ];
                let groups = capacity.div_ceil(8) as u32;
                let what = format!("seed {seed}, {n} rows, {sets} sets, mode {mode}");
                let run = check(context, "probe", &what, &bindings, groups, &[], |b| {
                    let [params, step, keys, starts, unique, rows, set_keys, ways, tables] = b else { unreachable!() };
                    let (params, unique) = (read(params), cast_slice_mut(unique));
                    cpu::probe(&params, of(step), keys, starts, unique, rows, set_keys, ways, tables);
                });
                changed += run.changed;
                let hit = run.found[6][..n].iter().filter(|&&key| key == NONE).count();
                (hits, misses) = (hits + hit, misses + n - hit);
            }
        }
    }
    assert!(changed > 0 && hits > 100 && misses > 100, "{changed} words, {hits} hits, {misses} misses");
}

#[test]
fn matches_the_mirror() {
    on_each(all);
}

/// Which body the other tests have run here, and each body that the device takes against the mirror.
#[test]
fn each_body_that_runs_here() {
    with_gpu(|context| {
        let caps = context.caps();
        eprintln!("probe on {}, subgroup {:?}: {:?}", caps.name, caps.subgroup, caps.choose_rank());
        for body in [RankBody::Portable, RankBody::Subgroup32] {
            if body == RankBody::Subgroup32 && caps.choose_rank() != body {
                skipped(&format!("probe {body:?}: the portable body is what runs on {}", caps.name));
                assert_ne!(caps.subgroup, Some((32, 32)));
                continue;
            }
            all(&Context::with_choices(context.device(), context.queue(), body, caps.max_groups).unwrap());
        }
    });
}
