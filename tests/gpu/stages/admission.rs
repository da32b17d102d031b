//! The stage that admits rows to the cache.

use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Policy,
    internals::layout::{COMING, DIRTY, Field, NONE, PINNED, RECENT, Share, Swap, WAYS, count, way_at},
};
use hotrow_harness::{gpu_test, oracle};
use rand::{RngExt as _, seq::SliceRandom as _};

use super::{
    TRAIN, check, distinct_rows, each, guarded, home, kernel, layout_of, next_tag, of, one_of, params, read, rng,
    slot_of, step, tables, ways, words,
};

const T: u32 = 9;

/// Counts of the situations that a test's cases have produced, so that none is left out.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    bypassed: usize,
    victims: usize,
    kept: usize,
    most_candidates: usize,
    pinned: usize,
    joined: usize,
}

#[test]
pub(crate) fn admit() {
    let mut seen = Seen::default();
    each("admit", [3, 8, 8], |case, mut source, [policy, size, mix]| {
        // The last mix is for Window alone: in few of its cases do recent ways join the others, so that without it some seeds have none.
        let policy = if mix == 7 { Policy::Window } else { [Policy::Lru, Policy::Lfu, Policy::Window][policy] };
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
            (1.0, 100, 0.1, 0.0),
        ][mix];
        let (rows, total) = ([1, 1000, 599], 1600);
        let config = GroupConfig::new(&rows, 4).with_cache_rows(32 * sets).with_policy(policy);
        let layout = layout_of(&config);
        let mut ways = ways(&mut source, sets, total, T - 1, fill);
        // Under Window rows of recent ways join the others where missing rows have low counters. Some cases are made for that.
        let joins = [3, 4, 7].contains(&mix);
        let recent = one_of(&mut source, if joins { &[0.4] } else { &[0.1, 0.4, 1.0] });
        let greatest = one_of(&mut source, if joins { &[2] } else { &[2, 5, 15] });
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
            // Any way may be for recent rows, unless it is pinned.
            let flags = &mut ways[way_at(WAYS, slot, Field::Flags)];
            if policy == Policy::Window && *flags & PINNED == 0 && source.random_bool(recent) {
                *flags |= RECENT;
            }
            if policy == Policy::Window {
                ways[way_at(WAYS, slot, Field::Freq)] = source.random_range(0..16);
            }
        }
        let mut batch = distinct_rows(&mut source, n, total);
        batch.sort_unstable();
        let mut missing = Vec::new();
        for &row in &batch {
            let slot = slot_of(&ways, [sets, total], row);
            if slot == NONE {
                let key = match policy {
                    Policy::Window => 16 * source.random_range(1..=keys).min(greatest) + source.random_range(1..20),
                    _ => source.random_range(1..=keys),
                };
                missing.push(Swap { place: NONE, row, victim: key, flags: 0 });
            } else {
                ways[way_at(WAYS, slot, Field::Stamp)] = T; // touch did
            }
        }
        // Ordered by set. The result does not depend on the order of a set's candidates.
        missing.shuffle(&mut source);
        missing.sort_by_key(|one| home(total, sets, one.row));
        let misses = missing.len();
        (0..).zip(&mut missing).for_each(|(u, one)| one.place = layout.slots() + u);
        let same_set = |a: &Swap, b: &Swap| home(total, sets, a.row) == home(total, sets, b.row);
        let longest = missing.chunk_by(same_set).map(<[_]>::len).max();
        seen.most_candidates = seen.most_candidates.max(longest.unwrap_or(0));
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&step(&mut source, T, &[(count::SWAPS, misses as u32)])),
            guarded(&missing),
            guarded(&ways),
            guarded(&tables(&mut source, &rows, T)),
            words(&Share::default()),
        ];
        // With fewer workgroups than blocks of rows, each workgroup takes several blocks.
        let groups = one_of(&mut source, &[1, 2, misses.div_ceil(256).max(1) as u32]);
        let run = check(case, "admit", &bindings, groups, &[], |[params, step, swaps, ways, tables, _]| {
            oracle::admit(&read(params), of(step), cast_slice_mut(swaps), ways, tables);
        });
        let after: &[Swap] = &cast_slice(&run.found[2])[..misses];
        let admitted = after.iter().filter(|one| one.place < layout.slots()).count();
        seen.admitted += admitted;
        seen.bypassed += misses - admitted;
        for (before, one) in missing.iter().zip(after) {
            assert_eq!(one.row, before.row, "{case}");
            assert!(one.place < layout.slots() || one == before, "{case}: {one:?} was {before:?}");
            assert!(one.place >= layout.slots() || (one.victim == NONE) == (one.flags == 0), "{case}: {one:?}");
            seen.victims += usize::from(one.flags != 0);
            let kept = one.flags & Swap::KEEP != 0;
            assert!(!kept || policy == Policy::Lfu, "{case}: kept under another policy than LFU");
            seen.kept += usize::from(kept);
        }
        // Checked without the mirror: every pinned row is still in its slot, and still pinned; every tag is still that of the victim; under LRU no row of
        // this batch leaves.
        for slot in 0..layout.slots() {
            let [before, after] = [&ways, &run.found[3]].map(|ways| |field| ways[way_at(WAYS, slot, field)]);
            let tag = before(Field::Tag);
            assert_eq!(after(Field::Tag), tag, "{case}: slot {slot}");
            seen.joined +=
                usize::from(before(Field::Flags) & RECENT != 0 && after(Field::Flags) & (RECENT | COMING) == 0);
            if before(Field::Flags) & PINNED != 0 {
                assert_eq!(after(Field::Flags), before(Field::Flags), "{case}: slot {slot} was pinned");
                seen.pinned += 1;
            }
            if policy != Policy::Lfu && before(Field::Stamp) == T {
                assert!(tag == NONE || next_tag(&run.found[3], slot) == tag, "{case}: slot {slot} was protected");
            }
        }
    });
    assert!(seen.admitted > 0 && seen.bypassed > 0 && seen.victims > 0 && seen.kept > 0, "{seen:?}");
    assert!(seen.most_candidates > 1200 && seen.pinned > 0 && seen.joined > 0, "{seen:?}");
}

/// By hand, without the mirror: many candidates of one set, in an order in which each is better than those before it, and in the opposite
/// order. The best 32 are admitted.
#[gpu_test]
fn the_best_of_a_large_set_are_admitted(context: &Context) {
    for n in [257u32, 288, 289, 1056, 1057, 5000, 20_000, 1_000_000] {
        // llvmpipe leaves a shader's loops after 65,535 turns in all. A million candidates take 977 turns, or 2 million where each is
        // better than those before it.
        for better in [false, true].into_iter().filter(|better| n <= 20_000 || !better) {
            let config = GroupConfig::new(&[n], 4).with_cache_rows(32).with_policy(Policy::Lfu);
            let layout = layout_of(&config);
            let key = |u: u32| if better { u + 1 } else { n - u };
            let missing = |row| Swap { place: layout.slots() + row, row, victim: key(row), flags: 0 };
            let missing: Vec<Swap> = (0..n).map(missing).collect();
            let bindings = [
                words(&params(&config, &layout, TRAIN, 0)),
                words(&step(&mut rng(1), T, &[(count::SWAPS, n)])),
                guarded(&missing),
                (0..128).map(|word| if word < 32 { NONE } else { 0 }).collect(),
                tables(&mut rng(1), &[n], T),
                words(&Share::default()),
            ];
            let found = context.run_stage(kernel("admit"), &bindings, 2).unwrap();
            let wanted: Vec<u32> = (0..32).map(|way| if better { n - 1 - way } else { way }).collect();
            let tags: Vec<u32> = (0..32).map(|slot| next_tag(&found[3], slot)).collect();
            assert_eq!(tags, wanted, "{n} candidates, each better than those before: {better}");
        }
    }
}
