//! The stages of a forward that admit rows to the cache.

use std::collections::HashMap;

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    CounterBits, GroupConfig, Policy,
    hash::{fmix32, miss_key},
    internals::layout::{COMING, DIRTY, Field, Move, NONE, PINNED, Params, Shard, Unique, WAYS, count, way_at},
    internals::stages,
};
use hotrow_harness::device::with_gpu;
use rand::{RngExt as _, seq::SliceRandom as _};

use super::{
    FROZEN, Like, TRAIN, check, distinct_rows, each, guarded, junk, kernel, layout_of, next_tag, of, one_of, params,
    read, rng, slot_of, step, tables, ways, words,
};

const T: u32 = 9;

/// LRU, and LFU with counters of each width, some of which are about to saturate; training and frozen.
#[test]
pub(crate) fn claim() {
    let mut saturated = [0; 3];
    each("claim", [8, 5], |case, mut source, [kind, n]| {
        let n = [0, 1, source.random_range(255..258), 700, 1000][n];
        let (mode, width) = ([TRAIN, FROZEN][kind % 2], (kind / 2).saturating_sub(1));
        let policy = if kind < 2 { Policy::Lru } else { Policy::Lfu };
        let most = CounterBits::ALL[width].most();
        let total = 2100;
        let rows = [1, 1200, total - 1201];
        let mut config = GroupConfig::new(&rows, 4).with_cache_rows(32 * source.random_range(0..5));
        (config.policy, config.counter_bits) = (policy, CounterBits::ALL[width]);
        let layout = layout_of(&config);
        let mut missing = distinct_rows(&mut source, n, total);
        missing.sort_by_key(|&row| miss_key(row, layout.sets));
        // The accesses that want these rows lie among accesses that did not miss.
        let (mut starts, mut wanted_by) = (Vec::new(), Vec::new());
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
            Policy::Lfu => Shard { first_row, rows: per_shard, ..Shard::default() },
            _ => Shard { first_row: 0, rows: total, ..Shard::default() },
        };
        let freqs: Vec<u32> = (0..per_shard).map(|_| one_of(&mut source, &[0, 5, most - 1, most - 3, most])).collect();
        let bindings = [
            words(&params(&config, &layout, mode, 0)),
            words(&shard),
            words(&step(&mut source, T, &[(count::MOVES, n as u32), (count::MISSED, missed as u32)])),
            guarded(&keys),
            guarded(&order),
            guarded(&starts),
            guarded(&junk(&mut source, 4 * n)),
            guarded(&junk(&mut source, 4 * n)),
            guarded(&freqs),
            guarded(&tables(&mut source, &rows, T)),
        ];
        // With fewer workgroups than blocks of rows, each workgroup takes several blocks.
        let groups = one_of(&mut source, &[1, 2, n.div_ceil(256).max(1) as u32]);
        let run = check(case, "claim", &bindings, groups, &[], |b| {
            let [params, shard, step, keys, order, starts, unique, moves, freqs, tables] = b;
            let (unique, moves) = (cast_slice_mut(unique), cast_slice_mut(moves));
            stages::claim(&read(params), &read(shard), of(step), keys, order, starts, unique, moves, freqs, tables);
        });
        saturated[width] += run.found[8].iter().zip(&freqs).filter(|&(&a, &b)| a == most && b != a).count();
    });
    assert!(saturated.iter().all(|&rows| rows > 0), "{saturated:?}");
}

/// The Moves of new rows, which are bypassed for now.
fn bypassed(unique: &[Unique]) -> Vec<Move> {
    unique.iter().map(|one| Move { place: one.slot, row: one.row, victim: NONE, flags: 0 }).collect()
}

/// Counts of the situations that a test's cases have produced, so that none is left out.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    bypassed: usize,
    victims: usize,
    kept: usize,
    most_candidates: usize,
    pinned: usize,
}

#[test]
pub(crate) fn admit() {
    let mut seen = Seen::default();
    each("admit", [2, 8, 7], |case, mut source, [policy, size, mix]| {
        let policy = [Policy::Lru, Policy::Lfu][policy];
        // Number of distinct rows of the batch, hits included.
        let few = one_of(&mut source, &[0, 1, 31, 33]);
        let (sets, n) = [(1, few), (1, 70), (1, 400), (1, 1500), (2, 1400), (5, 40), (7, 900), (40, 500)][size];
        // The share of the ways that hold a row; the number of values from which keys, stamps and frequencies are drawn: few values make ties; the share
        // of the resident rows outside the batch that have stamp t, as those in the batch always do; the share of the resident rows that are pinned.
        let (fill, keys, protected, pinned) = [
            (0.0, 3, 0.0, 0.0),
            (0.05, 4, 0.2, 0.5),
            (1.0, 1, 0.0, 0.0),
            (1.0, 3, 0.3, 0.3),
            (1.0, 100, 0.1, 0.0),
            (1.0, 100, 0.1, 0.9),
            (1.0, 2, 0.0, 1.0),
        ][mix];
        let (rows, total) = ([1, 1000, 599], 1600);
        let config = GroupConfig::new(&rows, 4).with_cache_rows(32 * sets).with_policy(policy);
        let layout = layout_of(&config);
        let mut ways = ways(&mut source, sets, total, T - 1, fill);
        for slot in 0..layout.slots() {
            ways[way_at(WAYS, slot, Field::Stamp)] = T - source.random_range(1..T).min(keys);
            ways[way_at(WAYS, slot, Field::Freq)] = source.random_range(1..=keys);
            if source.random_bool(protected) {
                ways[way_at(WAYS, slot, Field::Stamp)] = T;
            }
            if ways[way_at(WAYS, slot, Field::Tag)] != NONE {
                let pinned = if source.random_bool(pinned) { PINNED } else { 0 };
                ways[way_at(WAYS, slot, Field::Flags)] = pinned | one_of(&mut source, &[0, DIRTY]);
            }
        }
        let mut batch = distinct_rows(&mut source, n, total);
        batch.sort_unstable();
        let mut unique = Vec::new();
        for &row in &batch {
            let slot = slot_of(&ways, sets, row);
            if slot == NONE {
                let key = source.random_range(1..=keys);
                unique.push(Unique { row, count: source.random_range(1..9), key, slot: NONE });
            } else {
                ways[way_at(WAYS, slot, Field::Stamp)] = T; // touch did
            }
        }
        // Ordered by set. The result does not depend on the order of a set's candidates.
        unique.shuffle(&mut source);
        unique.sort_by_key(|one| fmix32(one.row) % sets);
        let misses = unique.len();
        (0..).zip(&mut unique).for_each(|(u, one)| one.slot = layout.slots() + u);
        let same_set = |a: &Unique, b: &Unique| fmix32(a.row) % sets == fmix32(b.row) % sets;
        let longest = unique.chunk_by(same_set).map(<[_]>::len).max();
        seen.most_candidates = seen.most_candidates.max(longest.unwrap_or(0));
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&step(&mut source, T, &[(count::MOVES, misses as u32)])),
            guarded(&unique),
            guarded(&bypassed(&unique)),
            guarded(&ways),
            guarded(&tables(&mut source, &rows, T)),
        ];
        // With fewer workgroups than blocks of rows, each workgroup takes several blocks.
        let groups = one_of(&mut source, &[1, 2, misses.div_ceil(256).max(1) as u32]);
        let run = check(case, "admit", &bindings, groups, &[], |[params, step, unique, moves, ways, tables]| {
            stages::admit(&read(params), of(step), cast_slice_mut(unique), cast_slice_mut(moves), ways, tables);
        });
        let after: &[Unique] = &cast_slice(&run.found[2])[..misses];
        let admitted = after.iter().filter(|one| one.slot < layout.slots()).count();
        seen.admitted += admitted;
        seen.bypassed += misses - admitted;
        let moves: &[Move] = &cast_slice(&run.found[3])[..misses];
        for (one, step) in after.iter().zip(moves) {
            assert_eq!((step.place, step.row), (one.slot, one.row), "{case}");
            assert_eq!(step.victim == NONE, step.flags == 0, "{case}");
            seen.victims += usize::from(step.victim != NONE);
            let kept = step.flags & Move::KEEP != 0;
            assert!(!kept || policy == Policy::Lfu, "{case}: kept under LRU");
            seen.kept += usize::from(kept);
        }
        // Checked without the mirror: every pinned row is still in its slot, and still pinned; every tag is still that of the victim; under LRU no row of
        // this batch leaves.
        for slot in 0..layout.slots() {
            let [before, after] = [&ways, &run.found[4]].map(|ways| |field| ways[way_at(WAYS, slot, field)]);
            let tag = before(Field::Tag);
            assert_eq!(after(Field::Tag), tag, "{case}: slot {slot}");
            if before(Field::Flags) & PINNED != 0 {
                assert_eq!(after(Field::Flags), before(Field::Flags), "{case}: slot {slot} was pinned");
                seen.pinned += 1;
            }
            if policy == Policy::Lru && before(Field::Stamp) == T {
                assert!(tag == NONE || next_tag(&run.found[4], slot) == tag, "{case}: slot {slot} was protected");
            }
        }
    });
    assert!(seen.admitted > 0 && seen.bypassed > 0 && seen.victims > 0 && seen.kept > 0, "{seen:?}");
    assert!(seen.most_candidates > 1200 && seen.pinned > 0, "{seen:?}");
}

/// By hand, without the mirror: many candidates of one set, in an order in which each is better than those before it, and in the opposite
/// order. The best 32 are admitted.
#[test]
fn the_best_of_a_large_set_are_admitted() {
    with_gpu(|context| {
        for n in [257u32, 288, 289, 1056, 1057, 5000, 20_000, 1_000_000] {
            // llvmpipe leaves a shader's loops after 65,535 turns in all. A million candidates take 977 turns, or 2 million where each is
            // better than those before it.
            for better in [false, true].into_iter().filter(|better| n <= 20_000 || !better) {
                let config = GroupConfig::new(&[n], 4).with_cache_rows(32).with_policy(Policy::Lfu);
                let layout = layout_of(&config);
                let key = |u: u32| if better { u + 1 } else { n - u };
                let unique: Vec<Unique> =
                    (0..n).map(|row| Unique { row, count: 1, key: key(row), slot: layout.slots() + row }).collect();
                let bindings = [
                    words(&params(&config, &layout, TRAIN, 0)),
                    words(&step(&mut rng(1), T, &[(count::MOVES, n)])),
                    guarded(&unique),
                    guarded(&bypassed(&unique)),
                    (0..128).map(|word| if word < 32 { NONE } else { 0 }).collect(),
                    tables(&mut rng(1), &[n], T),
                ];
                let found = context.run_stage(kernel("admit"), &bindings, 2).unwrap();
                let wanted: Vec<u32> = (0..32).map(|way| if better { n - 1 - way } else { way }).collect();
                let tags: Vec<u32> = (0..32).map(|slot| next_tag(&found[4], slot)).collect();
                assert_eq!(tags, wanted, "{n} candidates, each better than those before: {better}");
            }
        }
    });
}

#[test]
pub(crate) fn locate() {
    let mut moved = 0;
    each("locate", [3, 5, 8], |case, mut source, [kind, n, sets]| {
        let n = [0usize, 1, source.random_range(255..258), 600, 1000][n];
        let (policy, mode) = [(Policy::Lru, TRAIN), (Policy::Lfu, TRAIN), (Policy::Lfu, FROZEN)][kind];
        let total = 1500;
        let config = GroupConfig::new(&[total], 4).with_cache_rows(32 * sets as u32).with_policy(policy);
        let layout = layout_of(&config);
        let slots = layout.slots();
        let mut ways = ways(&mut source, layout.sets, total, T - 1, 0.8);
        let all_hit = source.random_bool(0.2);
        let key = |_| {
            let row = source.random_range(0..total);
            let left_out = source.random_bool(0.1) || all_hit && slot_of(&ways, layout.sets, row) == NONE;
            if left_out { NONE } else { row }
        };
        let keys: Vec<u32> = (0..n).map(key).collect();
        let place = |&row: &u32| if row == NONE { NONE } else { slot_of(&ways, layout.sets, row) };
        let mut places: Vec<u32> = keys.iter().map(place).collect();
        let mut missing: Vec<u32> = (0..n).filter(|&i| keys[i] != NONE && places[i] == NONE).map(|i| keys[i]).collect();
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
        let mut unique: Vec<Unique> =
            (slots..).zip(&missing).map(|(slot, &row)| Unique { row, count: 1, key: 1, slot }).collect();
        if mode == TRAIN && slots > 0 {
            for one in &mut unique {
                let slot = fmix32(one.row) % layout.sets * 32 + source.random_range(0..32);
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
            words(&step(&mut source, T, &counts)),
            guarded(&keys),
            guarded(&order),
            guarded(&segment),
            guarded(&unique),
            guarded(&ways),
            guarded(&places),
        ];
        let groups = one_of(&mut source, &[1, n.div_ceil(256).max(1) as u32]);
        let run = check(case, "locate", &bindings, groups, &[], |b| {
            let [params, step, keys, order, segment, unique, ways, places] = b;
            stages::locate(&read(params), of(step), keys, order, segment, cast_slice(unique), ways, places);
        });
        // Checked without the mirror: a place in the cache holds the wanted row; the other rows have one place each in scratch.
        let mut scratch = HashMap::new();
        for (i, &row) in keys.iter().enumerate() {
            let place = run.found[7][i];
            assert_eq!(place == NONE, row == NONE, "{case}");
            if place < slots {
                assert_eq!(next_tag(&ways, place), row, "{case}: access {i}");
            } else if row != NONE {
                assert_eq!(*scratch.entry(place).or_insert(row), row, "{case}: access {i}");
            }
        }
    });
    assert!(moved > 0, "no hit moved");
}

/// Sorts the Moves by place, because they come in any order. The words behind the list must stay as they were.
fn in_order(words: &[u32]) -> Vec<[u32; 4]> {
    let mut moves: Vec<[u32; 4]> = cast_slice(words).to_vec();
    moves.sort_unstable();
    moves
}

#[test]
fn a_wrong_move_is_told_apart() {
    let right = [3, 0, 7, 1, 5, 0, 2, 1];
    assert_eq!(in_order(&right), in_order(&[5, 0, 2, 1, 3, 0, 7, 1]));
    for at in 0..8 {
        let mut wrong = right;
        wrong[at] ^= 1;
        assert_ne!(in_order(&right), in_order(&wrong), "word {at}");
    }
}

/// No set, about one block of 8 sets, and several blocks.
#[test]
pub(crate) fn collect_and_reset() {
    each("collect", [6, 3], |case, mut source, [sets, fill]| {
        let sets = [0u32, 1, 7, 8, 9, 33][sets];
        let config = GroupConfig::new(&[3000], 4).with_cache_rows(32 * sets);
        let layout = layout_of(&config);
        let groups = layout.slots().div_ceil(256);
        let params = words(&params(&config, &layout, TRAIN, 0));
        let ways = guarded(&ways(&mut source, sets, 3000, T, [0.2, 0.5, 0.9][fill]));
        let bindings = [
            params.clone(),
            words(&step(&mut source, T, &[(count::MOVES, 0)])),
            ways.clone(),
            guarded(&junk(&mut source, 4 * layout.slots() as usize)),
            guarded(&tables(&mut source, &[3000], 17)),
        ];
        let any_order = [("moves", Like::Elsewhere)];
        let run = check(case, "collect", &bindings, groups, &any_order, |[params, step, ways, moves, tables]| {
            // Without a workgroup nothing is dispatched.
            if groups > 0 {
                stages::collect(&read(params), of(step), ways, cast_slice_mut(moves), tables);
            }
        });
        assert_eq!(in_order(&run.found[3]), in_order(&run.wanted[3]), "{case}");
        check(case, "reset", &[params, ways], groups, &[], |[params, ways]| stages::reset(&read(params), ways));
    });
}
