use bytemuck::cast_slice_mut;
use hotrow::{
    Context, GroupConfig, Policy, cpu,
    hash::fmix32,
    layout::{Field, NONE, Unique, count, way_at},
};
use rand::{RngExt as _, seq::SliceRandom as _};

use super::{
    TRAIN, check, distinct_rows, guarded, junk, layout_of, of, on_each, params, read, rng, slot_of, step, tables, ways,
    words,
};

const T: u32 = 9;

/// What the cases of a test have met, so that none of them is met by no case.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    bypassed: usize,
    victims: usize,
    most_candidates: usize,
    changed: usize,
}

struct Case {
    policy: Policy,
    sets: u32,
    /// Distinct rows of the batch, hits included.
    n: usize,
    /// How much of the cache is taken.
    fill: f64,
    /// Keys are drawn from this many values, and so are stamps and freqs: few make ties.
    keys: u32,
    /// A resident row that is in the batch is stamped t, and this share of the others too.
    protected: f64,
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
        ways[way_at(slot, Field::Stamp)] = T - source.random_range(1..T).min(case.keys);
        ways[way_at(slot, Field::Freq)] = source.random_range(1..=case.keys);
        if source.random_bool(case.protected) {
            ways[way_at(slot, Field::Stamp)] = T;
        }
    }
    let mut batch = distinct_rows(&mut source, case.n, total);
    batch.sort_unstable();
    let mut unique = Vec::new();
    for &row in &batch {
        let slot = slot_of(&ways, case.sets, row);
        if slot != NONE {
            ways[way_at(slot, Field::Stamp)] = T; // probe did
        }
        unique.push(Unique { row, count: source.random_range(1..9), key: source.random_range(1..=case.keys), slot });
    }
    let home = |u: &u32| fmix32(unique[*u as usize].row) % case.sets;
    let mut order: Vec<u32> = (0..case.n as u32).filter(|&u| unique[u as usize].slot == NONE).collect();
    // The result does not depend on how the candidates of a set come.
    order.shuffle(&mut source);
    order.sort_by_key(home);
    let mut starts: Vec<u32> = Vec::new();
    for (at, u) in order.iter().enumerate() {
        if at == 0 || home(&order[at - 1]) != home(u) {
            starts.push(at as u32);
        }
    }
    let misses = order.len();
    for (s, &first) in starts.iter().enumerate() {
        let end = starts.get(s + 1).map_or(misses, |&end| end as usize);
        seen.most_candidates = seen.most_candidates.max(end - first as usize);
    }
    let counts = [(count::UNIQUE, case.n as u32), (count::SETS, starts.len() as u32), (count::MISSES, misses as u32)];
    starts.extend(junk(&mut source, 3));
    order.extend(junk(&mut source, case.n - misses));
    let bindings = [
        words(&params(&config, &layout, TRAIN, 0)),
        words(&step(&mut source, T, &counts)),
        guarded(&unique),
        guarded(&order),
        guarded(&starts),
        guarded(&ways),
        guarded(&junk(&mut source, case.n)),
        guarded(&junk(&mut source, case.n)),
        guarded(&tables(&mut source, &rows, T)),
    ];
    let what = format!("seed {seed}, {} rows, {} sets, {:?}", case.n, case.sets, case.policy);
    let groups = case.sets.min(case.n as u32);
    let run = check(context, "admit", &what, &bindings, groups, &[], |b| {
        let [params, step, unique, order, starts, ways, victim_rows, victim_slots, tables] = b else { unreachable!() };
        let (params, unique) = (read(params), cast_slice_mut(unique));
        cpu::admit(&params, of(step), unique, order, starts, ways, victim_rows, victim_slots, tables);
    });
    let after: &[Unique] = bytemuck::cast_slice(&run.found[2]);
    let admitted = order[..misses].iter().filter(|&&u| after[u as usize].slot != NONE).count();
    seen.admitted += admitted;
    seen.bypassed += misses - admitted;
    seen.victims += run.found[6][..misses].iter().filter(|&&row| row != NONE).count();
    seen.changed += run.changed;
    // Said without the mirror: nobody who was touched by this batch has left (LRU).
    if case.policy == Policy::Lru {
        for slot in (0..layout.slots()).filter(|&slot| ways[way_at(slot, Field::Stamp)] == T) {
            let at = way_at(slot, Field::Tag);
            assert!(ways[at] == NONE || run.found[5][at] == ways[at], "{what}: slot {slot} was protected");
        }
    }
}

fn cases(policy: Policy) {
    on_each(|context| {
        let mut seen = Seen::default();
        for seed in 0..3 {
            for (sets, n) in
                [(1, 0), (1, 1), (1, 31), (1, 33), (1, 70), (1, 400), (2, 300), (5, 40), (7, 900), (40, 500)]
            {
                for (fill, keys, protected) in
                    [(0.0, 3, 0.0), (0.05, 4, 0.2), (1.0, 1, 0.0), (1.0, 3, 0.3), (1.0, 100, 0.1)]
                {
                    let case = Case { policy, sets, n, fill, keys, protected };
                    run(context, seed, &case, &mut seen);
                }
            }
        }
        assert!(seen.admitted > 500 && seen.bypassed > 500 && seen.victims > 100, "{seen:?}");
        assert!(seen.most_candidates > 300 && seen.changed > 0, "{seen:?}");
    });
}

#[test]
fn lru_matches_the_mirror() {
    cases(Policy::Lru);
}

#[test]
fn lfu_matches_the_mirror() {
    cases(Policy::Lfu);
}

/// By hand, without the mirror: 40 candidates for one full set in which freqs are 1 to 32. Keys 20 win against freqs below 20 only.
#[test]
fn lfu_refuses_the_equal() {
    on_each(|context| {
        let mut config = GroupConfig::new(&[200], 4);
        config.cache_rows = 32;
        config.policy = Policy::Lfu;
        let layout = layout_of(&config);
        let mut ways = vec![0; 128];
        for slot in 0..32 {
            ways[way_at(slot, Field::Tag)] = 100 + slot;
            ways[way_at(slot, Field::Freq)] = 32 - slot; // the last way is used least
            ways[way_at(slot, Field::Dirty)] = 1;
        }
        let unique: Vec<Unique> = (0..40).map(|row| Unique { row, count: 1, key: 20, slot: NONE }).collect();
        let order: Vec<u32> = (0..40).rev().collect();
        let counts = [(count::SETS, 1), (count::MISSES, 40)];
        let bindings = [
            words(&params(&config, &layout, TRAIN, 0)),
            words(&step(&mut rng(1), T, &counts)),
            guarded(&unique),
            order,
            vec![0],
            ways,
            vec![0; 40],
            vec![0; 40],
            tables(&mut rng(1), &[200], T),
        ];
        let found = context.run_stage(super::kernel("admit"), &bindings, 1).unwrap();
        let tags = &found[5][..32];
        for slot in 0..32u32 {
            // Freq 1 in way 31 goes to row 0, freq 2 in way 30 to row 1, ..., freq 19 in way 13 to row 18; then 20 meets 20.
            let wanted = if slot >= 13 { 31 - slot } else { 100 + slot };
            assert_eq!(tags[slot as usize], wanted, "way {slot}");
            let place = 39 - (31 - slot.max(13)) as usize;
            if slot >= 13 {
                assert_eq!((found[6][place], found[7][place]), (100 + slot, slot), "victim of way {slot}");
                assert_eq!(found[5][way_at(slot, Field::Dirty)], 0);
                assert_eq!(found[5][way_at(slot, Field::Freq)], 20);
            }
        }
        assert_eq!(found[6].iter().filter(|&&row| row != NONE).count(), 19);
    });
}
