use bytemuck::cast_slice;
use hotrow::{
    GroupConfig, Policy,
    hash::miss_key,
    internals::layout::{COMING, Field, NONE, Params, Unique, WAYS, count, way_at},
    internals::stages,
};
use rand::{RngExt as _, seq::SliceRandom as _};

use super::{
    FROZEN, TRAIN, check, distinct_rows, guarded, junk, layout_of, next_tag, of, on_each, params, read, rng, slot_of,
    step, ways, words,
};

#[test]
pub(super) fn matches_the_mirror() {
    on_each(|context| {
        let (mut changed, mut moved) = (0, 0);
        for seed in 0..6 {
            for n in [0usize, 1, 255, 256, 257, 1000] {
                for policy in [Policy::Lru, Policy::Lfu] {
                    let mut source = rng(seed);
                    let total = 1500;
                    let mut config = GroupConfig::new(&[total], 4);
                    config.policy = policy;
                    config.cache_rows = 32 * source.random_range(0..8);
                    let mode = [TRAIN, TRAIN, FROZEN][source.random_range(0..3)];
                    let layout = layout_of(&config);
                    let slots = layout.slots();
                    let mut ways = ways(&mut source, layout.sets, total, 8, 0.8);
                    let all_hit = source.random_bool(0.2);
                    let keys: Vec<u32> = (0..n)
                        .map(|_| {
                            let row = source.random_range(0..total);
                            let left_out =
                                source.random_bool(0.1) || all_hit && slot_of(&ways, layout.sets, row) == NONE;
                            if left_out { NONE } else { row }
                        })
                        .collect();
                    let mut places: Vec<u32> = keys
                        .iter()
                        .map(|&row| if row == NONE { NONE } else { slot_of(&ways, layout.sets, row) })
                        .collect();
                    let mut missing: Vec<u32> =
                        (0..n).filter(|&i| keys[i] != NONE && places[i] == NONE).map(|i| keys[i]).collect();
                    missing.sort_by_key(|&row| miss_key(row, layout.sets));
                    missing.dedup();
                    let (mut order, mut segment) = (Vec::new(), Vec::new());
                    for (u, &row) in (0u32..).zip(&missing) {
                        let mut wanted: Vec<u32> = (0..n as u32).filter(|&i| keys[i as usize] == row).collect();
                        wanted.shuffle(&mut source);
                        segment.extend(vec![u; wanted.len()]);
                        order.append(&mut wanted);
                    }
                    let missed = order.len();
                    // Some rows are admitted into slots of their set. An LFU batch may have hit these slots.
                    let mut unique: Vec<Unique> = (0..)
                        .zip(&missing)
                        .map(|(u, &row)| Unique { row, count: 1, key: 1, slot: slots + u })
                        .collect();
                    if mode == TRAIN && slots > 0 {
                        for one in &mut unique {
                            let home = hotrow::hash::fmix32(one.row) % layout.sets;
                            let slot = home * 32 + source.random_range(0..32);
                            let tag = ways[way_at(WAYS, slot, Field::Tag)];
                            let hit = places.contains(&slot);
                            let taken = missing.contains(&tag) || next_tag(&ways, slot) != tag;
                            if source.random_bool(0.6) && !taken && (policy == Policy::Lfu || !hit) {
                                ways[way_at(WAYS, slot, Field::Stamp)] = one.row;
                                ways[way_at(WAYS, slot, Field::Flags)] |= COMING;
                                one.slot = slot;
                                moved += usize::from(hit);
                            }
                        }
                    }
                    let counts = [(count::MISSED, missed as u32), (count::MOVES, missing.len() as u32)];
                    order.extend(junk(&mut source, 3));
                    segment.extend(junk(&mut source, 3));
                    places.extend(distinct_rows(&mut source, 2, 9));
                    let bindings = [
                        words(&Params { indices: n as u32, ..params(&config, &layout, mode, 0) }),
                        words(&step(&mut source, 9, &counts)),
                        guarded(&keys),
                        guarded(&order),
                        guarded(&segment),
                        guarded(&unique),
                        guarded(&ways),
                        guarded(&places),
                    ];
                    let groups = [1, n.div_ceil(256).max(1) as u32][source.random_range(0..2)];
                    let what = format!("seed {seed}, {n} accesses, {policy:?}, mode {mode}");
                    let run = check(context, "locate", &what, &bindings, groups, &[], |b| {
                        let [params, step, keys, order, segment, unique, ways, places] = b else { unreachable!() };
                        let unique = cast_slice(unique);
                        stages::locate(&read(params), of(step), keys, order, segment, unique, ways, places);
                    });
                    changed += run.changed;
                    // Checked without the mirror: a place in the cache holds the wanted row; the other rows have one place each in scratch.
                    let mut scratch = std::collections::HashMap::new();
                    for (i, &row) in keys.iter().enumerate() {
                        let place = run.found[7][i];
                        assert_eq!(place == NONE, row == NONE, "{what}");
                        if place < slots {
                            assert_eq!(next_tag(&ways, place), row, "{what}: access {i}");
                        } else if row != NONE {
                            assert_eq!(*scratch.entry(place).or_insert(row), row, "{what}: access {i}");
                        }
                    }
                }
            }
        }
        assert!(changed > 100 && moved > 20, "{changed} words, {moved} hits moved");
    });
}
