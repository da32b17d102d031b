use bytemuck::{cast_slice, cast_slice_mut};
use hotrow::{
    Context, GroupConfig, Policy,
    hash::fmix32,
    internals::layout::{COMING, DIRTY, Field, Move, NONE, PINNED, Unique, WAYS, count, way_at},
    internals::stages,
};
use rand::{RngExt as _, seq::SliceRandom as _};

use super::{
    TRAIN, check, distinct_rows, guarded, layout_of, next_tag, of, on_each, params, read, rng, slot_of, step, tables,
    ways, words,
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
    changed: usize,
    pinned: usize,
}

struct Case {
    policy: Policy,
    sets: u32,
    /// Number of distinct rows of the batch, hits included.
    n: usize,
    /// Share of the ways that hold a row.
    fill: f64,
    /// Number of values from which keys, stamps and frequencies are drawn: few values make ties.
    keys: u32,
    /// Share of the resident rows outside the batch that have stamp t. Those in the batch always have it.
    protected: f64,
    /// Share of the resident rows that are pinned.
    pinned: f64,
}

fn run(context: &Context, seed: u64, case: &Case, seen: &mut Seen) {
    let mut source = rng(seed);
    let rows = [1, 1000, 599];
    let total = 1600;
    let mut config = GroupConfig::new(&rows, 4);
    config.cache_rows = 32 * case.sets;
    config.policy = case.policy;
    let layout = layout_of(&config);
    let mut ways = ways(&mut source, case.sets, total, T - 1, case.fill);
    for slot in 0..layout.slots() {
        ways[way_at(WAYS, slot, Field::Stamp)] = T - source.random_range(1..T).min(case.keys);
        ways[way_at(WAYS, slot, Field::Freq)] = source.random_range(1..=case.keys);
        if source.random_bool(case.protected) {
            ways[way_at(WAYS, slot, Field::Stamp)] = T;
        }
        if ways[way_at(WAYS, slot, Field::Tag)] != NONE {
            let pinned = if source.random_bool(case.pinned) { PINNED } else { 0 };
            ways[way_at(WAYS, slot, Field::Flags)] = pinned | [0, DIRTY][source.random_range(0..2)];
        }
    }
    let mut batch = distinct_rows(&mut source, case.n, total);
    batch.sort_unstable();
    let mut unique = Vec::new();
    for &row in &batch {
        let slot = slot_of(&ways, case.sets, row);
        if slot == NONE {
            let key = source.random_range(1..=case.keys);
            unique.push(Unique { row, count: source.random_range(1..9), key, slot: NONE });
        } else {
            ways[way_at(WAYS, slot, Field::Stamp)] = T; // touch did
        }
    }
    // Ordered by set. The result does not depend on the order of a set's candidates.
    unique.shuffle(&mut source);
    unique.sort_by_key(|one| fmix32(one.row) % case.sets);
    let misses = unique.len();
    let mut moves = Vec::new();
    for (u, one) in unique.iter_mut().enumerate() {
        one.slot = layout.slots() + u as u32;
        moves.push(Move { place: one.slot, row: one.row, victim: NONE, flags: 0 });
    }
    let same_set = |a: &Unique, b: &Unique| fmix32(a.row) % case.sets == fmix32(b.row) % case.sets;
    let longest = unique.chunk_by(same_set).map(<[_]>::len).max();
    seen.most_candidates = seen.most_candidates.max(longest.unwrap_or(0));
    let bindings = [
        words(&params(&config, &layout, TRAIN, 0)),
        words(&step(&mut source, T, &[(count::MOVES, misses as u32)])),
        guarded(&unique),
        guarded(&moves),
        guarded(&ways),
        guarded(&tables(&mut source, &rows, T)),
    ];
    let what = format!("seed {seed}, {} rows, {} sets, {:?}", case.n, case.sets, case.policy);
    // With fewer workgroups than blocks of rows, each workgroup takes several blocks.
    let groups = [1, 2, misses.div_ceil(256).max(1) as u32][source.random_range(0..3)];
    let run = check(context, "admit", &what, &bindings, groups, &[], |b| {
        let [params, step, unique, moves, ways, tables] = b else { unreachable!() };
        stages::admit(&read(params), of(step), cast_slice_mut(unique), cast_slice_mut(moves), ways, tables);
    });
    let after: &[Unique] = &cast_slice(&run.found[2])[..misses];
    let admitted = after.iter().filter(|one| one.slot < layout.slots()).count();
    seen.admitted += admitted;
    seen.bypassed += misses - admitted;
    seen.changed += run.changed;
    let moves: &[Move] = &cast_slice(&run.found[3])[..misses];
    for (one, step) in after.iter().zip(moves) {
        assert_eq!((step.place, step.row), (one.slot, one.row), "{what}");
        assert_eq!(step.victim == NONE, step.flags == 0, "{what}");
        seen.victims += usize::from(step.victim != NONE);
        seen.kept += usize::from(step.flags & Move::KEEP != 0);
    }
    // Checked without the mirror: every pinned row is still in its slot, and still pinned.
    for slot in (0..layout.slots()).filter(|&slot| ways[way_at(WAYS, slot, Field::Flags)] & PINNED != 0) {
        let word = |ways: &[u32], field| ways[way_at(WAYS, slot, field)];
        assert_eq!(word(&run.found[4], Field::Tag), word(&ways, Field::Tag), "{what}: slot {slot} was pinned");
        assert_eq!(word(&run.found[4], Field::Flags), word(&ways, Field::Flags), "{what}: slot {slot}");
        seen.pinned += 1;
    }
    // Every tag is still that of the victim.
    for slot in 0..layout.slots() {
        let at = way_at(WAYS, slot, Field::Tag);
        assert_eq!(run.found[4][at], ways[at], "{what}: slot {slot}");
    }
    // Under LRU no row of this batch leaves.
    if case.policy == Policy::Lru {
        for slot in (0..layout.slots()).filter(|&slot| ways[way_at(WAYS, slot, Field::Stamp)] == T) {
            let tag = ways[way_at(WAYS, slot, Field::Tag)];
            assert!(tag == NONE || next_tag(&run.found[4], slot) == tag, "{what}: slot {slot} was protected");
        }
    }
}

fn cases(policy: Policy) {
    on_each(|context| {
        let mut seen = Seen::default();
        for seed in 0..3 {
            for (sets, n) in [
                (1, 0),
                (1, 1),
                (1, 31),
                (1, 33),
                (1, 70),
                (1, 400),
                (1, 1500),
                (2, 300),
                (2, 1400),
                (5, 40),
                (7, 900),
                (40, 500),
            ] {
                for (fill, keys, protected, pinned) in [
                    (0.0, 3, 0.0, 0.0),
                    (0.05, 4, 0.2, 0.5),
                    (1.0, 1, 0.0, 0.0),
                    (1.0, 3, 0.3, 0.3),
                    (1.0, 100, 0.1, 0.0),
                    (1.0, 100, 0.1, 0.9),
                    (1.0, 2, 0.0, 1.0),
                ] {
                    let case = Case { policy, sets, n, fill, keys, protected, pinned };
                    run(context, seed, &case, &mut seen);
                }
            }
        }
        assert!(seen.admitted > 500 && seen.bypassed > 500 && seen.victims > 100, "{seen:?}");
        assert!(seen.most_candidates > 1200 && seen.changed > 0 && seen.pinned > 500, "{seen:?}");
        assert_eq!(seen.kept > 50, policy == Policy::Lfu, "{seen:?}");
    });
}

#[test]
pub(super) fn lru_matches_the_mirror() {
    cases(Policy::Lru);
}

#[test]
pub(super) fn lfu_matches_the_mirror() {
    cases(Policy::Lfu);
}

/// By hand, without the mirror: many candidates of one set, in an order in which each is better than those before it, and in the opposite
/// order. The best 32 are admitted.
#[test]
fn the_best_of_a_large_set_are_admitted() {
    on_each(|context| {
        for n in [257u32, 288, 289, 1056, 1057, 5000, 20_000, 1_000_000] {
            // llvmpipe leaves a shader's loops after 65,535 turns in all. A million candidates take 977 turns, or 2 million where each is
            // better than those before it.
            for better in [false, true].into_iter().filter(|better| n <= 20_000 || !better) {
                let mut config = GroupConfig::new(&[n], 4);
                config.cache_rows = 32;
                config.policy = Policy::Lfu;
                let layout = layout_of(&config);
                let key = |u: u32| if better { u + 1 } else { n - u };
                let unique: Vec<Unique> =
                    (0..n).map(|row| Unique { row, count: 1, key: key(row), slot: layout.slots() + row }).collect();
                let moves: Vec<Move> =
                    unique.iter().map(|one| Move { place: one.slot, row: one.row, victim: NONE, flags: 0 }).collect();
                let ways: Vec<u32> = (0..128).map(|word| if word < 32 { NONE } else { 0 }).collect();
                let bindings = [
                    words(&params(&config, &layout, TRAIN, 0)),
                    words(&step(&mut rng(1), T, &[(count::MOVES, n)])),
                    guarded(&unique),
                    guarded(&moves),
                    ways,
                    tables(&mut rng(1), &[n], T),
                ];
                let found = context.run_stage(super::kernel("admit"), &bindings, 2).unwrap();
                let wanted: Vec<u32> = (0..32).map(|way| if better { n - 1 - way } else { way }).collect();
                let tags: Vec<u32> = (0..32).map(|slot| next_tag(&found[4], slot)).collect();
                assert_eq!(tags, wanted, "{n} candidates, each better than those before: {better}");
            }
        }
    });
}

/// By hand, without the mirror: 40 candidates with key 20 for one full set whose frequencies are 1 to 32. They replace rows with a
/// frequency below 20 only.
#[test]
pub(super) fn lfu_refuses_the_equal() {
    on_each(|context| {
        let mut config = GroupConfig::new(&[200], 4);
        config.cache_rows = 32;
        config.policy = Policy::Lfu;
        let layout = layout_of(&config);
        let mut ways = vec![0; 128];
        for slot in 0..32 {
            ways[way_at(WAYS, slot, Field::Tag)] = 100 + slot;
            ways[way_at(WAYS, slot, Field::Freq)] = 32 - slot; // the last way is used least
            ways[way_at(WAYS, slot, Field::Flags)] = 1;
        }
        // The lowest row comes last in the list, because the rows decide the order, not the list.
        let row = |u: u32| 39 - u;
        let unique: Vec<Unique> =
            (0..40).map(|u| Unique { row: row(u), count: 1, key: 20, slot: layout.slots() + u }).collect();
        let moves: Vec<Move> =
            unique.iter().map(|one| Move { place: one.slot, row: one.row, victim: NONE, flags: 0 }).collect();
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&step(&mut rng(1), T, &[(count::MOVES, 40)])),
            guarded(&unique),
            guarded(&moves),
            ways,
            tables(&mut rng(1), &[200], T),
        ];
        let found = context.run_stage(super::kernel("admit"), &bindings, 1).unwrap();
        let (ways, after): (_, &[Move]) = (&found[4], &cast_slice(&found[3])[..40]);
        for slot in 0..32u32 {
            // Frequency 1 in way 31 yields to row 0, frequency 2 in way 30 to row 1, ..., frequency 19 in way 13 to row 18. Frequency 20
            // does not yield to key 20.
            let wanted = if slot >= 13 { 31 - slot } else { 100 + slot };
            assert_eq!(next_tag(ways, slot), wanted, "way {slot}");
            assert_eq!(ways[slot as usize], 100 + slot, "way {slot}: the victim's until exchange has brought the row");
            if slot >= 13 {
                let here = after[39 - (31 - slot) as usize];
                let wanted = Move { place: slot, row: 31 - slot, victim: 100 + slot, flags: Move::WRITE };
                assert_eq!(here, wanted, "way {slot}");
                let flags = ways[way_at(WAYS, slot, Field::Flags)];
                assert_eq!(flags, 1 | COMING, "the victim's, and the mark, until exchange has brought the row");
                assert_eq!(ways[way_at(WAYS, slot, Field::Freq)], 20);
            }
        }
        assert_eq!(after.iter().filter(|step| step.victim != NONE).count(), 19);
    });
}

/// By hand, without the mirror: 40 candidates for one full set in which every other way is pinned, the oldest too. The rows that are not
/// pinned leave, the oldest first. Without pins the result differs, and a set with all ways pinned admits no row.
#[test]
pub(super) fn pinned_ways_are_not_taken() {
    on_each(|context| {
        let mut config = GroupConfig::new(&[200], 4);
        config.cache_rows = 32;
        let layout = layout_of(&config);
        let unique: Vec<Unique> =
            (0..40).map(|row| Unique { row, count: 1, key: 1, slot: layout.slots() + row }).collect();
        let moves: Vec<Move> =
            unique.iter().map(|one| Move { place: one.slot, row: one.row, victim: NONE, flags: 0 }).collect();
        let admitted = |pinned: fn(u32) -> bool| -> Vec<u32> {
            let mut ways = vec![0; 128];
            for slot in 0..32 {
                ways[way_at(WAYS, slot, Field::Tag)] = 100 + slot;
                ways[way_at(WAYS, slot, Field::Stamp)] = 1 + slot / 8; // ties go by way
                ways[way_at(WAYS, slot, Field::Flags)] = DIRTY | if pinned(slot) { PINNED } else { 0 };
            }
            let bindings = [
                words(&params(&config, &layout, TRAIN, 0)),
                words(&step(&mut rng(1), T, &[(count::MOVES, 40)])),
                guarded(&unique),
                guarded(&moves),
                ways,
                tables(&mut rng(1), &[200], T),
            ];
            let found = context.run_stage(super::kernel("admit"), &bindings, 1).unwrap();
            (0..32).map(|slot| next_tag(&found[4], slot)).collect()
        };
        let wanted: Vec<u32> = (0..32).map(|slot| if slot % 2 == 0 { 100 + slot } else { slot / 2 }).collect();
        assert_eq!(admitted(|slot| slot % 2 == 0), wanted);
        assert_ne!(admitted(|_| false), wanted);
        assert_eq!(admitted(|_| false), (0..32).collect::<Vec<_>>());
        assert_eq!(admitted(|_| true), (100..132).collect::<Vec<_>>());
    });
}
