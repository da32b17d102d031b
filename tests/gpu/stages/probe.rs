use bytemuck::cast_slice;
use hotrow::{
    Context, GroupConfig, LookupBody,
    hash::miss_key,
    internals::layout::{NONE, Params, Step, count},
    internals::stages,
};
use hotrow_harness::device::{again, options, with_gpu};
use rand::RngExt as _;

use super::{
    FROZEN, Like, ROWS, TRAIN, check, guarded, junk, layout_of, of, on_each, params, read, rng, step, tables, ways,
    words,
};

/// The listed misses as pairs, sorted, because the list has no fixed order.
fn listed(run: &[Vec<u32>], n: usize) -> Vec<(u32, u32)> {
    let mut pairs: Vec<_> = run[5][..n].iter().copied().zip(run[6][..n].iter().copied()).collect();
    pairs.sort_unstable();
    pairs
}

/// Runs `test` with each body that looks up rows and that the device runs.
fn on_each_body(test: impl Fn(&Context)) {
    on_each(&test);
    with_gpu(|context| {
        let has_32 = context.caps().subgroup == Some((32, 32));
        for body in LookupBody::ALL.into_iter().filter(|&body| has_32 || body != LookupBody::Lanes32) {
            test(&again(&options().lookup(body)));
        }
    });
}

#[test]
pub(super) fn matches_the_mirror() {
    on_each_body(|context| {
        let (mut changed, mut hits, mut misses) = (0, 0, 0);
        for seed in 0..4 {
            for n in [0usize, 1, 31, 255, 256, 257, 1000] {
                for sets in [0u32, 1, 3, 8] {
                    let mut source = rng(seed);
                    let rows = [1, 400, 99];
                    let mut config = GroupConfig::new(&rows, 4);
                    config.cache_rows = 32 * sets;
                    let layout = layout_of(&config);
                    let mode = [TRAIN, FROZEN, ROWS][source.random_range(0..3)];
                    let active = source.random_bool(0.8);
                    let keys: Vec<u32> = (0..n)
                        .map(|_| if source.random_bool(0.1) { NONE } else { source.random_range(0..500) })
                        .collect();
                    let before = source.random_range(0..3);
                    let counts = [(count::INDICES, if active { n as u32 } else { 0 }), (count::MISSED, before)];
                    let params = Params { indices: n as u32, ..params(&config, &layout, mode, 0) };
                    let list = n + before as usize;
                    let bindings = [
                        words(&params),
                        words(&step(&mut source, 9, &counts)),
                        guarded(&keys),
                        // A group without a cache also binds metadata of one set.
                        guarded(&ways(&mut source, sets.max(1), 500, 8, 0.8)),
                        guarded(&junk(&mut source, n)),
                        guarded(&junk(&mut source, list)),
                        guarded(&junk(&mut source, list)),
                        guarded(&tables(&mut source, &rows, 9)),
                    ];
                    let what = format!("seed {seed}, {n} accesses, {sets} sets, mode {mode}, active {active}");
                    let any_order = [("miss_keys", Like::Elsewhere), ("miss_index", Like::Elsewhere)];
                    let groups = n.div_ceil(256) as u32;
                    let run = check(context, "probe", &what, &bindings, groups, &any_order, |b| {
                        let [params, step, keys, ways, places, miss_keys, miss_index, tables] = b else {
                            unreachable!()
                        };
                        stages::probe(&read(params), of(step), keys, ways, places, miss_keys, miss_index, tables);
                    });
                    let missed = read::<Step>(&run.found[1]).counts[count::MISSED] as usize;
                    let (found, wanted) = (listed(&run.found, missed), listed(&run.wanted, missed));
                    assert_eq!(found, wanted, "{what}");
                    for list in [5, 6] {
                        assert_eq!(run.found[list][missed..], bindings[list][missed..], "{what}: beyond the list");
                    }
                    // Checked without the mirror: exactly the accesses that miss are listed, each with its key.
                    let mut right: Vec<_> = (0..n)
                        .filter(|&i| active && keys[i] != NONE && run.found[4][i] == NONE)
                        .map(|i| (miss_key(keys[i], sets), i as u32))
                        .collect();
                    right.extend((0..before as usize).map(|k| (bindings[5][k], bindings[6][k])));
                    right.sort_unstable();
                    assert_eq!(found, right, "{what}");
                    if missed > 0 {
                        right[missed / 2].1 ^= 1;
                        assert_ne!(found, right, "a wrong list is noticed");
                    }
                    changed += run.changed;
                    misses += missed - before as usize;
                    hits += run.found[4][..n].iter().filter(|&&place| place != NONE).count();
                }
            }
        }
        assert!(changed > 0 && hits > 1000 && misses > 1000, "{changed} words, {hits} hits, {misses} misses");
    });
}

/// By hand: a row is found in each way of its set, and only in its own set.
#[test]
pub(super) fn every_way_is_found() {
    on_each(|context| {
        let mut config = GroupConfig::new(&[4096], 4);
        config.cache_rows = 64;
        let layout = layout_of(&config);
        let home = |row: &u32| hotrow::hash::fmix32(*row) % 2 == 1;
        let rows: Vec<u32> = (0..4096).filter(home).take(32).collect();
        let mut ways = vec![0; 256];
        ways[..32].fill(NONE);
        ways[128..160].copy_from_slice(&rows);
        let mut wrong = vec![0; 256];
        wrong[..32].copy_from_slice(&rows); // in the other set: never found
        wrong[128..160].fill(NONE);
        let params = Params { indices: 32, ..params(&config, &layout, FROZEN, 0) };
        let step = step(&mut rng(3), 1, &[(count::INDICES, 32), (count::MISSED, 0)]);
        for (ways, wanted) in [(ways, (32..64).collect::<Vec<u32>>()), (wrong, vec![NONE; 32])] {
            let tables = tables(&mut rng(1), &[4096], 1);
            let bindings =
                [words(&params), words(&step), rows.clone(), ways, vec![0; 32], vec![0; 32], vec![0; 32], tables];
            let found = context.run_stage(super::kernel("probe"), &bindings, 1).unwrap();
            assert_eq!(found[4], wanted);
            let step: &Step = &cast_slice(&found[1])[0];
            assert_eq!(step.counts[count::MISSED], if wanted[0] == NONE { 32 } else { 0 });
        }
    });
}
