//! The rules of SPEC 3 in small cases by hand, and against a naive model on random batches.

mod model;

use crate::simulate::{FREQ_CAP, SimulatedCounters, Simulator};
use hotrow::{
    CounterBits,
    Policy::{self, Lfu, Lru},
};
use model::{Fault, Model};
use proptest::prelude::*;

/// A cache of one set, so that the hash does not matter.
fn one_set(ways: u32, policy: Policy) -> Simulator {
    Simulator::new(1, ways, policy).unwrap()
}

fn residents(cache: &Simulator, ways: u32) -> Vec<Option<u32>> {
    (0..ways).map(|way| cache.resident(0, way)).collect()
}

fn play(cache: &mut Simulator, batches: &[&[u32]]) -> SimulatedCounters {
    for batch in batches {
        cache.step(batch);
    }
    cache.counters()
}

#[test]
fn lru_one_at_a_time() {
    let mut cache = one_set(2, Lru);
    // 7 and 8 fill ways 0 and 1; 7 is touched again, so 9 takes the way of 8.
    let seen = play(&mut cache, &[&[7], &[8], &[7], &[9]]);
    assert_eq!(residents(&cache, 2), [Some(7), Some(9)]);
    let counters = SimulatedCounters {
        accesses: 4,
        hits: 1,
        unique: 4,
        unique_misses: 3,
        admitted: 3,
        conflicts: 0,
        evictions: 1,
    };
    assert_eq!(seen, counters);
}

#[test]
fn lru_protects_its_own_batch() {
    let mut cache = one_set(2, Lru);
    let seen = play(&mut cache, &[&[1, 2], &[2, 3, 4]]);
    // 3 takes the way of 1; 2 is of this batch, so 4 is a conflict.
    assert_eq!(residents(&cache, 2), [Some(3), Some(2)]);
    assert_eq!((seen.hits, seen.conflicts, seen.evictions), (1, 1, 1));
}

#[test]
fn lru_candidates_come_by_count_then_row() {
    let mut cache = one_set(2, Lru);
    play(&mut cache, &[&[5, 9, 3, 9]]);
    // 9 occurs twice; of 5 and 3 the smaller row comes first.
    assert_eq!(residents(&cache, 2), [Some(9), Some(3)]);
}

#[test]
fn probes_see_the_state_before_the_batch() {
    let mut cache = one_set(4, Lru);
    assert_eq!(play(&mut cache, &[&[1, 1, 1]]).hits, 0, "a row's first batch is all misses");
    assert_eq!(play(&mut cache, &[&[1, 1, 1]]).hits, 3, "then every duplicate counts");
}

#[test]
fn lfu_replaces_only_a_row_used_strictly_less() {
    let mut cache = one_set(1, Lfu);
    play(&mut cache, &[&[1], &[2]]);
    assert_eq!(residents(&cache, 1), [Some(1)], "a tie bypasses");
    let seen = play(&mut cache, &[&[2]]);
    assert_eq!(residents(&cache, 1), [Some(2)]);
    assert_eq!((seen.hits, seen.admitted, seen.conflicts, seen.evictions), (0, 2, 1, 1));
}

#[test]
fn lfu_counts_survive_eviction() {
    let mut cache = one_set(1, Lfu);
    play(&mut cache, &[&[1], &[2, 2], &[1]]);
    assert_eq!(residents(&cache, 1), [Some(2)], "2 has 2 uses, 1 has 2 as well");
    play(&mut cache, &[&[1]]);
    assert_eq!(residents(&cache, 1), [Some(1)], "1 has 3, as its first use still counts");
}

#[test]
fn lfu_may_evict_a_row_hit_in_the_same_batch() {
    let mut cache = one_set(1, Lfu);
    let seen = play(&mut cache, &[&[1], &[1, 2, 2, 2]]);
    assert_eq!(residents(&cache, 1), [Some(2)]);
    assert_eq!((seen.hits, seen.evictions), (1, 1));
}

#[test]
fn lfu_ties_of_victims_go_to_the_lowest_way() {
    let mut cache = one_set(3, Lfu);
    play(&mut cache, &[&[1, 2, 3], &[4, 4]]);
    assert_eq!(residents(&cache, 3), [Some(4), Some(2), Some(3)]);
}

#[test]
fn an_admitted_row_is_no_victim_of_its_own_batch() {
    let mut cache = one_set(2, Lfu);
    play(&mut cache, &[&[1, 2], &[3, 3, 4, 4, 4, 5, 5, 5, 5]]);
    // 5 and 4 replace 1 and 2. 3 was used more often than no other row and finds no victim.
    assert_eq!(residents(&cache, 2), [Some(5), Some(4)]);
    assert_eq!(cache.counters().conflicts, 1);
}

#[test]
fn use_counts_stop_at_the_cap() {
    for (chosen, most) in CounterBits::ALL.map(Some).into_iter().zip([255, 65_535, FREQ_CAP]).chain([(None, FREQ_CAP)])
    {
        let mut cache = one_set(1, Lfu);
        if let Some(bits) = chosen {
            cache = cache.with_counter_bits(bits);
        }
        play(&mut cache, &[&[1]]);
        cache.rows[0].freq = most - 1;
        play(&mut cache, &[&[1]]);
        assert_eq!(cache.rows[0].freq, most);
        play(&mut cache, &[&[1, 1, 1]]);
        assert_eq!(cache.rows[0].freq, most);
    }
}

#[test]
fn pinned_rows_are_no_victims() {
    let mut cache = one_set(3, Lru);
    assert_eq!(cache.pin(&[7, 8, 7, 9], 2), [9], "two ways of three, 7 counts once");
    play(&mut cache, &[&[1], &[2], &[8]]);
    assert_eq!(residents(&cache, 3), [Some(7), Some(8), Some(2)]);
    // 8 stays as an ordinary row and is the newest; 7 is the oldest.
    assert_eq!(cache.pin(&[2], 1), [0u32; 0]);
    play(&mut cache, &[&[3]]);
    assert_eq!(residents(&cache, 3), [Some(3), Some(8), Some(2)]);
    assert_eq!(cache.pin(&[4, 5, 6, 7], 99), [7], "a set has no more");
    assert_eq!(play(&mut cache, &[&[1], &[4, 5, 6]]).hits, 4);
}

#[test]
fn an_empty_batch_changes_nothing() {
    let mut cache = one_set(2, Lru);
    play(&mut cache, &[&[1]]);
    let before = cache.counters();
    assert_eq!(play(&mut cache, &[&[]]), before);
    assert_eq!(Simulator::new(1, 1, Lru).unwrap().counters().hit_rate(), 0.0);
}

#[test]
fn sparse_ids_are_rows_like_others() {
    let last = u32::MAX - 2;
    let mut cache = Simulator::new(3, 2, Lru).unwrap();
    let seen = play(&mut cache, &[&[last], &[1 << 24], &[last], &[(1 << 24) - 1]]);
    assert_eq!((seen.hits, seen.unique_misses), (1, 3));
    let set = hotrow::hash::fmix32(last) % 3;
    assert!((0..2).any(|way| cache.resident(set, way) == Some(last)));
}

#[test]
fn shards_have_equal_parts_of_the_sets() {
    let mut cache = Simulator::new(12, 1, Lru).unwrap().with_shards(4).unwrap();
    play(&mut cache, &[&[6]]);
    let set = 2 * 3 + hotrow::hash::fmix32(6) % 3;
    assert_eq!(cache.resident(set, 0), Some(6));
    // Pins go by the same sets; rows of one set that are left out are returned once, in the order given.
    let rows: Vec<u32> = (0..400).chain(0..400).collect();
    let left = cache.pin(&rows, 1);
    let pinned: Vec<u32> = (0..12).filter_map(|set| cache.resident(set, 0)).collect();
    assert_eq!((pinned.len(), left.len()), (12, 388));
    assert!(left.is_sorted() && left.iter().all(|row| !pinned.contains(row)), "{left:?}");
    assert!((0..).zip(&pinned).all(|(set, row)| row % 4 == set / 3), "{pinned:?}");
    for shards in [0, 5, 24] {
        let refused = Simulator::new(12, 1, Lru).unwrap().with_shards(shards).unwrap_err();
        assert!(refused.to_string().contains(&format!("12 sets, found {shards}")), "{refused}");
    }
}

#[test]
fn a_slot_is_dirty_from_the_backward_to_the_eviction() {
    let mut cache = one_set(2, Lru);
    cache.step(&[1, 2, 3]);
    assert!(!cache.is_dirty(1), "a row comes clean");
    cache.backward();
    let dirty = |cache: &Simulator| [1, 2, 3, 4].map(|row| cache.is_dirty(row));
    assert_eq!(dirty(&cache), [true, true, false, false], "3 found no way");
    cache.step(&[1, 4]);
    assert_eq!(dirty(&cache), [true, false, false, false], "4 takes the way of 2 and is clean");
    assert_eq!(cache.dirty_rows().collect::<Vec<_>>(), [1]);
    cache.backward();
    assert_eq!(dirty(&cache), [true, false, false, true]);
    cache.pin(&[1], 1);
    cache.backward();
    assert_eq!(dirty(&cache), [false; 4], "pins flush the cache, and the next backward is of another step");
}

/// A cache, and batches that contend for its few sets: small ids are frequent, some ids are huge.
fn games() -> impl Strategy<Value = ([u32; 3], Policy, Vec<Vec<u32>>)> {
    let id = prop_oneof![4 => 0..8_u32, 4 => 0..60_u32, 1 => u32::MAX - 12..u32::MAX - 2];
    let batches = prop_oneof![
        prop::collection::vec(prop::collection::vec(id.clone(), 1), 1..200),
        prop::collection::vec(prop::collection::vec(id, 0..40), 1..25),
    ];
    (
        (1..6_u32, prop_oneof![1..5_u32, Just(32)], prop_oneof![2 => Just(1), 1 => Just(2), 1 => Just(4)])
            .prop_map(|(sets, ways, shards)| [sets * shards, ways, shards]),
        prop_oneof![4 => Just(Lru), 4 => Just(Lfu), 1 => Just(Policy::Static)],
        batches,
    )
}

/// Step and set of the first difference between simulator and model.
fn first_difference(
    [sets, ways, shards]: [u32; 3],
    policy: Policy,
    batches: &[Vec<u32>],
    fault: Fault,
) -> Option<(usize, String)> {
    let mut cache = Simulator::new(sets, ways, policy).unwrap().with_shards(shards).unwrap();
    let mut model = Model::new(sets, ways, shards, policy, fault);
    for (step, batch) in batches.iter().enumerate() {
        cache.step(batch);
        model.step(batch);
        // Each third step is a forward alone.
        if step % 3 > 0 {
            cache.backward();
            model.backward();
        }
        if let Some(row) = batch.iter().find(|&&row| cache.is_dirty(row) != model.is_dirty(row)) {
            return Some((step, format!("row {row}: dirty or not")));
        }
        if cache.counters() != model.counters {
            return Some((step, format!("{:?} against {:?}", cache.counters(), model.counters)));
        }
        for set in 0..sets {
            for way in 0..ways {
                let (mine, theirs) = (cache.resident(set, way), model.resident(set, way));
                if mine != theirs {
                    return Some((step, format!("set {set} way {way}: {mine:?} against {theirs:?}")));
                }
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn simulator_is_the_model((shape, policy, batches) in games()) {
        prop_assert_eq!(first_difference(shape, policy, &batches, Fault::None), None);
    }
}

/// The comparison must find each wrong reading of the rules in the same random games.
#[test]
fn wrong_models_are_detected() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    for (fault, policy) in [
        (Fault::TiesReplaced, Lfu),
        (Fault::Unprotected, Lru),
        (Fault::FreqForgotten, Lfu),
        (Fault::ProbeAfterAdmission, Lru),
        (Fault::VictimsByHighestWay, Lru),
        (Fault::ShardsIgnored, Lru),
        (Fault::DirtyInherited, Lru),
        (Fault::BypassedDirty, Lfu),
    ] {
        let mut runner = TestRunner::deterministic();
        let found = (0..300).any(|_| {
            let (shape, _, batches) = games().new_tree(&mut runner).unwrap().current();
            first_difference(shape, policy, &batches, fault).is_some()
        });
        assert!(found, "{fault:?} went unnoticed");
    }
}
