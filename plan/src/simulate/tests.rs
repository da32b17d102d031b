//! The rules of SPEC 3 in small cases by hand. The library's tests compare simulated caches with groups, and groups with a model of their own.

use crate::simulate::{Best, Simulator};
use hotrow::{
    CounterBits, Counters, Error, GroupConfig,
    Policy::{self, Lfu, Lru, Static, Window},
    internals::{hash::Spread, layout::MOST_WAYS},
};
use proptest::prelude::*;

/// The most rows of a group.
const MOST: u32 = u32::MAX - 1;

/// A cache of one set, so that the hash does not matter.
fn one_set(ways: u32, policy: Policy) -> Simulator {
    Simulator::new(&shape([MOST, 1, ways], policy)).unwrap()
}

/// Rows, sets, ways.
fn shape([rows, sets, ways]: [u32; 3], policy: Policy) -> GroupConfig {
    let config = GroupConfig::new(&[rows], 1).with_cache_rows(sets * ways).with_ways(ways).with_policy(policy);
    config.with_window_ways(4.min(ways - 1))
}

fn residents(cache: &Simulator, ways: u32) -> Vec<Option<u32>> {
    (0..ways).map(|way| cache.resident(0, way)).collect()
}

fn play(cache: &mut Simulator, batches: &[&[u32]]) -> Counters {
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
    let counts =
        [seen.accesses, seen.hits, seen.unique, seen.unique_misses, seen.admitted, seen.conflicts, seen.evictions];
    assert_eq!(counts, [4, 1, 4, 3, 3, 0, 1]);
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
    for (bits, most) in CounterBits::ALL.into_iter().zip([255, 65_535, 1 << 31]) {
        let mut cache = Simulator::new(&shape([MOST, 1, 1], Lfu).with_counter_bits(bits)).unwrap();
        play(&mut cache, &[&[1]]);
        *cache.uses.of(1) = most - 1;
        play(&mut cache, &[&[1]]);
        assert_eq!(*cache.uses.of(1), most);
        play(&mut cache, &[&[1, 1, 1]]);
        assert_eq!(*cache.uses.of(1), most);
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
    assert_eq!(one_set(1, Lru).counters().hit_rate(), 0.0);
}

#[test]
fn sparse_ids_are_rows_like_others() {
    let last = u32::MAX - 2;
    let mut cache = Simulator::new(&shape([MOST, 3, 2], Lru)).unwrap();
    let seen = play(&mut cache, &[&[last], &[1 << 24], &[last], &[(1 << 24) - 1]]);
    assert_eq!((seen.hits, seen.unique_misses), (1, 3));
    let set = Spread::new(MOST, 3, 2).set_of(last);
    assert!((0..2).any(|way| cache.resident(set, way) == Some(last)));
}

#[test]
fn a_share_of_the_cache_is_a_cache_of_its_own() {
    // Half of four sets for the first table, a quarter for the second, none for the third.
    let tables = shape([60, 4, 2], Lru).with_tables(vec![60, 30, 9]).with_cache_shares(vec![0.5, 0.25]);
    let mut whole = Simulator::new(&tables).unwrap();
    assert_eq!([0, 1, 2].map(|table| whole.sets_of(table)), [2, 1, 0]);
    let mut each = [[60, 2, 2], [30, 1, 2]].map(|own| Simulator::new(&shape(own, Lru)).unwrap());
    for step in 0..40_u32 {
        let rows: Vec<u32> = (0..6).map(|k| (step * k * 7 + k * k) % 60).collect();
        each[0].step(&rows);
        each[1].step(&[rows[3] % 30]);
        whole.step(&[&rows[..], &[60 + rows[3] % 30, 90]].concat());
    }
    let sum: Counters = each.iter().map(Simulator::counters).sum();
    assert_eq!((sum.hits, sum.evictions), (whole.counters().hits, whole.counters().evictions));
    assert_eq!(whole.counters().conflicts, sum.conflicts + 40, "row 90 is never admitted");
    assert!(sum.hits > 40 && sum.evictions > 40 && !whole.holds(90));
}

/// Each share's rows are halved by themselves, also those whose counters are in the map.
#[test]
fn counters_of_a_range_are_halved() {
    let mut uses = crate::simulate::uses::Uses::default();
    let rows = [3, 40, (1 << 24) + 5, (1 << 24) + 50];
    rows.iter().for_each(|&row| *uses.of(row) = 9);
    uses.halve(&(20..(1 << 24) + 10), 1);
    assert_eq!(rows.map(|row| *uses.of(row)), [9, 4, 4, 9]);
}

/// Sets of many ways have their places in a map and their order in a heap.
#[test]
fn a_large_set_is_a_small_one_that_is_looked_up_otherwise() {
    let ways = MOST_WAYS + 100;
    let batches =
        |salt: u32| (0..60_u32).map(move |step| (0..90).map(move |k| (step * k * (k + salt) * 131 + k * k) % 4000));
    for policy in [Lru, Lfu, Window, Static] {
        let new = || Simulator::new(&shape([4000, 1, ways], policy)).unwrap();
        let run = |mut cache: Simulator, salt: u32| {
            for (step, batch) in (0..).zip(batches(salt)) {
                cache.step(&batch.collect::<Vec<_>>());
                if step % 20 == 7 {
                    cache.pin(&(step * 9..step * 30).collect::<Vec<_>>(), 300);
                }
            }
            let tags: Vec<Option<u32>> = (0..ways).map(|way| cache.resident(0, way)).collect();
            (cache.counters(), tags)
        };
        let small = |salt| run(Simulator { large: Vec::new(), ..new() }, salt);
        assert_eq!(run(new(), 3), small(3), "{policy}");
        assert_ne!(run(new(), 3), small(4), "{policy}: the comparison can fail");
        assert!(policy == Static || small(3).0.evictions > 500, "{policy}");
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
    cache.backward();
    assert_eq!(dirty(&cache), [true, false, false, true]);
    cache.pin(&[1], 1);
    cache.backward();
    assert_eq!(dirty(&cache), [false; 4], "pins flush the cache, and the next backward is of another step");
}

#[test]
fn window_by_its_rules() {
    let config = |ways, window| shape([MOST, 1, ways], Window).with_window_ways(window);
    let cache = |ways, window| Simulator::new(&config(ways, window)).unwrap();
    let mut one = cache(3, 1);
    // Way 0 is the window. Main ways fill first; with all counters at 1 a coming row takes the window.
    play(&mut one, &[&[1], &[2], &[3]]);
    assert_eq!(residents(&one, 3), [Some(3), Some(1), Some(2)]);
    play(&mut one, &[&[4]]);
    assert_eq!(residents(&one, 3), [Some(4), Some(1), Some(2)], "3 left the window");
    // 4 is used more often than 1, the oldest main row of the fewest uses: 4 becomes a main row where it is, and 5 takes the way of 1 as window.
    play(&mut one, &[&[4], &[5]]);
    assert_eq!(residents(&one, 3), [Some(4), Some(5), Some(2)]);
    // 6 has more uses than 2 and takes a main way; then 7 takes the window.
    play(&mut one, &[&[6, 6], &[7]]);
    assert_eq!(residents(&one, 3), [Some(4), Some(7), Some(6)]);
    assert_eq!((one.counters().conflicts, one.counters().evictions), (0, 4));
    // Without window ways it is LFU that ages: after 64 accesses (2 slots) counters are halved, and 40 uses of 1 do not last.
    let mut aging = cache(2, 0);
    play(&mut aging, &[&[1; 40], &[2; 2], &[3], &[4; 21]]);
    assert_eq!(residents(&aging, 2), [Some(1), Some(4)], "15, 2 and 1 uses; 4 comes with 15");
    play(&mut aging, &[&[5; 8]]);
    assert_eq!(residents(&aging, 2), [Some(5), Some(4)], "7 are left of 15; the older row leaves");
    for (window, ways) in [(3, 3), (9, 2), (2000, 2000)] {
        let refused = Simulator::new(&config(ways, window)).unwrap_err();
        assert!(matches!(refused, Error::Config { .. }), "{window} of {ways}: {refused}");
    }
}

#[test]
fn pins_take_main_ways_first_and_windows_move() {
    let mut cache = Simulator::new(&shape([MOST, 1, 4], Window).with_window_ways(2)).unwrap();
    // Ways 0 and 1 are windows, 2 and 3 main.
    play(&mut cache, &[&[1], &[2], &[3], &[4]]);
    assert_eq!(residents(&cache, 4), [Some(3), Some(4), Some(1), Some(2)]);
    // 5 takes the main way of 1; 3 keeps its slot, and its flag goes to the only main way that is not pinned.
    assert_eq!(cache.pin(&[5, 3], 4), [0; 0]);
    assert_eq!(residents(&cache, 4), [Some(3), Some(4), Some(5), Some(2)]);
    // So 2 and 4 are in windows: the older one leaves first, whatever the uses.
    play(&mut cache, &[&[4], &[2], &[4; 9], &[6]]);
    assert_eq!(residents(&cache, 4), [Some(3), Some(4), Some(5), Some(6)]);
    // With three pins one way is left, a window; unpinned, the ways fill up with windows by age: 5, of step 0, not 3, which was used since.
    cache.pin(&[3, 4, 5], 4);
    play(&mut cache, &[&[7], &[3]]);
    assert_eq!(residents(&cache, 4), [Some(3), Some(4), Some(5), Some(7)]);
    cache.pin(&[], 4);
    play(&mut cache, &[&[8]]);
    assert_eq!(residents(&cache, 4), [Some(3), Some(4), Some(8), Some(7)]);
}

#[test]
fn a_cache_that_covers_its_rows_misses_each_once() {
    let batches: Vec<Vec<u32>> =
        (0..90).map(|step| (0..step % 7 + 1).map(|i| (step * i * 37 + i) % 50).collect()).collect();
    for (policy, ways) in [Lru, Lfu, Window].into_iter().flat_map(|policy| [(policy, 32), (policy, 7)]) {
        let sets = 50_u32.div_ceil(ways);
        let play = |sets| {
            let mut cache = Simulator::new(&shape([50, sets, ways], policy)).unwrap();
            batches.iter().for_each(|batch| cache.step(batch));
            cache.counters()
        };
        let (seen, distinct) =
            (play(sets), batches.concat().into_iter().collect::<std::collections::BTreeSet<_>>().len() as u64);
        assert_eq!((seen.unique_misses, seen.admitted, seen.conflicts, seen.evictions), (distinct, distinct, 0, 0));
        assert!(play(sets - 1).unique_misses > distinct, "a set less does not cover");
    }
    let mut fixed = Simulator::new(&shape([50, 2, 32], Static)).unwrap();
    assert_eq!((play(&mut fixed, &[&[1], &[1]]).hits, fixed.pin(&(0..50).collect::<Vec<_>>(), 32).len()), (0, 0));
}

#[test]
#[should_panic(expected = "row 50: wanted one below 50")]
fn there_is_no_row_behind_the_last() {
    Simulator::new(&shape([50, 2, 32], Lru)).unwrap().step(&[3, 50]);
}

/// The most hits of any cache of sets that may bypass: all choices are tried.
fn most_hits(held: &[u32], ids: &[u32], [rows, sets, ways]: [u32; 3]) -> u64 {
    let Some((&id, rest)) = ids.split_first() else { return 0 };
    if held.contains(&id) {
        return 1 + most_hits(held, rest, [rows, sets, ways]);
    }
    let spread = Spread::new(rows, sets, ways);
    let others: Vec<usize> = (0..held.len()).filter(|&at| spread.set_of(held[at]) == spread.set_of(id)).collect();
    let with = |held: Vec<u32>| most_hits(&[&held[..], &[id]].concat(), rest, [rows, sets, ways]);
    if others.len() < ways as usize {
        return with(held.to_vec());
    }
    let left = |at: usize| held.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, &row)| row).collect();
    let taken = others.into_iter().map(|at| with(left(at)));
    taken.chain([most_hits(held, rest, [rows, sets, ways])]).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_hits_more_than_the_best(ids in prop::collection::vec(0..6_u32, 1..15), sets in 1..3_u32, ways in 1..3_u32) {
        let own = [6, sets, ways];
        let mut best = Best::new(ids.chunks(1), &shape(own, Lru)).unwrap();
        let mut hits = 0;
        for &id in &ids {
            hits += u64::from(best.holds(id));
            best.step(&[id]);
        }
        let seen = best.counters();
        prop_assert_eq!((seen.hits, hits), (most_hits(&[], &ids, own), hits));
        prop_assert_eq!(seen.accesses - seen.hits, seen.unique_misses);
        prop_assert_eq!(seen.unique_misses, seen.admitted + seen.conflicts);
    }
}

#[test]
fn the_best_of_batches_is_hit_in_the_next_one() {
    // In batches of three, 1 and 2 are used next at once, 2 twice: it gets the only way. Then 1 is the next.
    let ids = [1, 2, 4, 1, 2, 2, 3, 1, 1];
    let mut best = Best::new(ids.chunks(3), &shape([9, 1, 1], Lru)).unwrap();
    ids.chunks(3).for_each(|batch| best.step(batch));
    let seen = best.counters();
    assert_eq!((seen.hits, seen.unique, seen.conflicts, seen.evictions), (4, 7, 3, 1));
}
