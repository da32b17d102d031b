//! Plans a change of the pinned rows (SPEC 3; SCARS, section II-B) on the host, once for both backends: the rows to
//! load and their slots, the rows that leave, and the cache's metadata afterwards.

use rayon::prelude::*;

use crate::{
    config::{GroupConfig, PolicyFacts},
    error::Error,
    table::{
        abi::{Field, NONE, PINNED, Swap, features, way_at},
        admission::{self, Rule, Set},
        counters::Counters,
        layout::Layout,
    },
};

/// The changes that make exactly the wanted rows pinned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    /// (slot, row) of each row to load, ascending by set.
    pub(crate) loads: Vec<(u32, u32)>,
    /// Rows that leave the cache.
    pub(crate) evicted: Vec<u32>,
    /// The metadata afterwards, except for the loaded rows' frequencies ([`Plan::set_frequency`] adds them).
    pub(crate) ways: Vec<u32>,
    /// Rows that found no way, in the order of the call.
    pub(crate) left_out: Vec<u32>,
}

/// Plans for a cache with the metadata `ways` at step `t`. No row is dirty. At most `share` ways of a set are pinned:
/// the first `share` of the set's rows in `rows`.
pub(crate) fn plan(layout: &Layout, facts: PolicyFacts, ways: &[u32], t: u32, rows: &[u32], share: u32) -> Plan {
    let sets = layout.sets_of_rows();
    let (wanted, left_out) = seats(|row| sets.set_of(row), rows, share);
    let mut plan = Plan { ways: ways.to_vec(), left_out, ..Plan::default() };
    let mut rest = wanted.as_slice();
    for set in 0..layout.sets {
        let (here, others) = rest.split_at(rest.partition_point(|one| one.0 == set));
        rest = others;
        let wanted: Vec<u32> = here.iter().map(|&(_, _, row)| row).collect();
        let mut words = Set::of(&mut plan.ways[layout.words_of_set(set)]);
        let come = Rule { facts, t }.pin(&mut words, &wanted, layout.recent_ways(set), &mut plan.evicted);
        plan.loads.extend(come.into_iter().map(|(way, row)| (set * layout.ways + way as u32, row)));
    }
    plan
}

/// A row's set, its position in the caller's list, and the row itself.
pub(crate) type Seat = (u32, u32, u32);

/// Picks the first `share` rows of each set, ordered by set and then by position in `rows`. Returns them,
/// and the rows left over in the caller's order. A row listed twice counts once.
pub fn seats(set_of: impl Fn(u32) -> u32, rows: &[u32], share: u32) -> (Vec<Seat>, Vec<u32>) {
    let mut wanted: Vec<Seat> = (0..).zip(rows).map(|(at, &row)| (set_of(row), at, row)).collect();
    // Keeps the first of equal rows, then orders by set.
    wanted.par_sort_unstable_by_key(|&(_, at, row)| (row, at));
    wanted.dedup_by_key(|&mut (.., row)| row);
    wanted.par_sort_unstable();
    let (mut left_out, mut home, mut taken) = (Vec::new(), NONE, 0);
    wanted.retain(|&(set, at, row)| {
        // Rows of a table without a share are in no set.
        taken = if set == NONE {
            u32::MAX
        } else if set == home {
            taken + 1
        } else {
            1
        };
        home = set;
        if taken > share {
            left_out.push((at, row));
        }
        taken <= share
    });
    left_out.sort_unstable();
    (wanted, left_out.into_iter().map(|(_, row)| row).collect())
}

impl Plan {
    /// The metadata while the rows are being loaded. Their slots are empty, so the cache stays valid if loading fails.
    pub(crate) fn meanwhile(&self, layout: &Layout) -> Vec<u32> {
        let mut ways = self.ways.clone();
        for of_set in self.loads.chunk_by(|a, b| a.0 / layout.ways == b.0 / layout.ways) {
            let home = of_set[0].0 / layout.ways;
            let mut set = Set::of(&mut ways[layout.words_of_set(home)]);
            of_set.iter().for_each(|(slot, _)| admission::empty(&mut set, (slot % layout.ways) as usize));
            admission::keep_recent(&mut set, layout.recent_ways(home));
        }
        ways
    }

    /// The swaps that load the rows.
    pub(crate) fn swaps(&self) -> Vec<Swap> {
        self.loads.iter().map(|&(place, row)| Swap { place, row, victim: NONE, flags: 0 }).collect()
    }

    /// Adds the rows that leave to `counters`.
    pub(crate) fn count_evicted(&self, config: &GroupConfig, counters: &mut [Counters]) {
        let table = table_of(config);
        self.evicted.iter().for_each(|&row| counters[table(row)].evictions += 1);
    }

    /// Adds the loaded rows to `counters`.
    pub(crate) fn count_loaded(&self, config: &GroupConfig, counters: &mut [Counters]) {
        let table = table_of(config);
        for &(_, row) in &self.loads {
            let counters = &mut counters[table(row)];
            counters.unique += 1;
            counters.unique_misses += 1;
            counters.admitted += 1;
        }
    }

    /// Sets the counter of a loaded row (LFU, Window).
    pub(crate) fn set_frequency(&mut self, width: u32, slot: u32, freq: u32) {
        self.ways[way_at(width, slot, Field::Freq)] = freq;
    }
}

/// Returns a function that maps a linear row to its table.
fn table_of(config: &GroupConfig) -> impl Fn(u32) -> usize {
    let ends: Vec<u32> = config.tables.iter().scan(0, |end, &rows| (*end += rows, Some(*end)).1).collect();
    move |row| ends.partition_point(|&end| end <= row)
}

/// The pinned rows, in slot order.
pub(crate) fn pinned(layout: &Layout, ways: &[u32]) -> Vec<u32> {
    let word = |slot, field| ways[way_at(layout.ways, slot, field)];
    let pinned = (0..layout.slots()).filter(|&slot| word(slot, Field::Flags) & PINNED != 0);
    pinned.map(|slot| word(slot, Field::Tag)).collect()
}

/// Checks the arguments of `pin`: the group has a cache with that many ways.
pub(crate) fn check(layout: &Layout, rows: &[u32], ways: u32) -> Result<(), Error> {
    let fail = |what, wanted, found: String, remedy| Err(Error::Pins { what, wanted, found, remedy });
    if ways == 0 || ways > layout.ways {
        return fail(
            "ways",
            format!("1 to {}, the ways of a set", layout.ways),
            ways.to_string(),
            "to unpin everything, pass an empty list of rows",
        );
    }
    if layout.sets == 0 && !rows.is_empty() {
        let found = format!("{} rows to pin and none", rows.len());
        return fail("cache", "a cache to pin rows in".into(), found, "configure cache_rows");
    }
    Ok(())
}

/// Refuses padding that a caller pins. What a checkpoint has pinned stays.
pub(crate) fn check_padding(config: &GroupConfig, rows: &[u32]) -> Result<(), Error> {
    let padding: Vec<u32> = features(&GroupConfig { features: Vec::new(), ..config.clone() })
        .iter()
        .filter(|table| table.padded == 1 && table.padding < table.rows)
        .map(|table| table.base + table.padding)
        .collect();
    let Some(at) = rows.iter().position(|row| padding.binary_search(row).is_ok()) else { return Ok(()) };
    let found = format!("row {} at position {at}, which is padding", rows[at]);
    let remedy = "leave padding out: no step reads or trains it";
    Err(Error::Pins { what: "rows", wanted: "rows that batches read".into(), found, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Policy, table::abi::RECENT};

    fn layout(policy: Policy) -> Layout {
        let config = GroupConfig { cache_rows: 4, ways: 4, window_ways: 2, policy, ..GroupConfig::new(&[5, 15], 1) };
        Layout::new(&config, u64::MAX).unwrap()
    }

    /// Plans one set of four ways that holds the given (row, value) pairs, of which `pinned` are pinned.
    fn planned(policy: Policy, held: [Option<(u32, u32)>; 4], pinned: &[usize], rows: &[u32], share: u32) -> Plan {
        let layout = layout(policy);
        let mut ways = vec![0; 16];
        for (way, held) in held.into_iter().enumerate() {
            let (row, value) = held.unwrap_or((NONE, 0));
            (ways[way], ways[4 + way], ways[8 + way]) = (row, value, value);
            ways[12 + way] = if pinned.contains(&way) { PINNED } else { layout.empty_flags(0, way as u32) };
        }
        plan(&layout, policy.facts(), &ways, 9, rows, share)
    }

    #[test]
    fn rows_take_the_ways_that_admission_would_give() {
        let held = [Some((1, 5)), Some((2, 3)), None, Some((3, 3))];
        for policy in [Policy::Lru, Policy::Lfu] {
            // 10 takes the empty way, 11 the first of the two least, 12 the other; 1 keeps its own.
            let plan = planned(policy, held, &[], &[10, 11, 1, 12], 4);
            assert_eq!(plan.loads, [(2, 10), (1, 11), (3, 12)]);
            assert_eq!((plan.evicted.as_slice(), plan.left_out.as_slice()), (&[2, 3][..], &[][..]));
            let freqs = [5, 0, 0, 0];
            assert_eq!(plan.ways, [[1, 11, 10, 12], [5, 9, 9, 9], freqs, [PINNED; 4]].concat());
            assert_eq!(plan.meanwhile(&layout(policy))[..8], [1, NONE, NONE, NONE, 5, 0, 0, 0]);
        }
    }

    #[test]
    fn pins_of_a_window_take_the_ways_of_recent_rows_last() {
        let flags = |plan: &Plan| plan.ways[12..].to_vec();
        // Ways 0 and 1 are for recent rows. Of the others 3 has the lesser counter; a resident row keeps its way, which loses its flag.
        let held = [Some((1, 9)), None, Some((2, 3)), Some((3, 2))];
        let mut recent = planned(Policy::Window, held, &[], &[10, 1, 11], 4);
        assert_eq!((recent.loads.as_slice(), recent.evicted.as_slice()), (&[(3, 10), (2, 11)][..], &[3, 2][..]));
        assert_eq!(flags(&recent), [PINNED, RECENT, PINNED, PINNED]);
        // While the rows are loaded, the set has its two ways for recent rows.
        assert_eq!(recent.meanwhile(&layout(Policy::Window))[12..], [PINNED, RECENT, RECENT, 0]);
        // One row fewer is pinned, so one way more is for recent rows; row 10 is in the oldest.
        recent.ways[4..8].copy_from_slice(&[7, 0, 8, 6]);
        let next = plan(&layout(Policy::Window), Policy::Window.facts(), &recent.ways, 9, &[1, 11], 4);
        assert_eq!((flags(&next), next.loads.len()), (vec![PINNED, RECENT, PINNED, RECENT], 0));
        let all = planned(Policy::Window, held, &[], &[10, 11, 12, 13], 4);
        assert_eq!(
            all.loads,
            [(3, 10), (2, 11), (1, 12), (0, 13)],
            "at last the empty and then the oldest way of recent rows"
        );
    }

    #[test]
    fn the_first_of_the_list_are_pinned_and_count_once() {
        let plan = planned(Policy::Lru, [None; 4], &[], &[7, 7, 4, 9, 4, 3, 9], 2);
        assert_eq!((plan.loads.as_slice(), plan.left_out.as_slice()), (&[(0, 7), (1, 4)][..], &[9, 3][..]));
        let mut counters = [Counters::default(); 2];
        let config = GroupConfig::new(&[5, 15], 1);
        plan.count_loaded(&config, &mut counters);
        plan.count_evicted(&config, &mut counters);
        for counters in counters {
            assert_eq!((counters.unique, counters.unique_misses, counters.admitted, counters.evictions), (1, 1, 1, 0));
        }
    }

    #[test]
    fn what_is_pinned_no_longer_stays_unless_nothing_else_may() {
        let held = [Some((1, 5)), Some((2, 3)), None, Some((3, 4))];
        let plan = planned(Policy::Lfu, held, &[0, 1], &[2], 4);
        assert_eq!((plan.loads.len(), plan.evicted.len()), (0, 0));
        assert_eq!(plan.ways[12..], [0, PINNED, 0, 0]);
        let held = [Some((1, 5)), Some((2, 3)), None, None];
        let plan = planned(Policy::Static, held, &[0, 1], &[2, 8], 4);
        assert_eq!((plan.loads.as_slice(), plan.evicted.as_slice()), (&[(0, 8)][..], &[1][..]));
        assert_eq!(plan.ways[12..], [PINNED, PINNED, 0, 0]);
        // A row that was not pinned stays, whatever the policy.
        let plan = planned(Policy::Static, held, &[1], &[2], 4);
        assert_eq!((plan.loads.len(), plan.evicted.len(), &plan.ways[..2]), (0, 0, &[1, 2][..]));
    }

    #[test]
    fn seats_are_ordered_by_set_and_place() {
        // Sets are the tens.
        let (seats, left) = seats(|row| row / 10, &[21, 5, 22, 5, 23, 1, 21, 2], 2);
        assert_eq!(seats, [(0, 1, 5), (0, 5, 1), (2, 0, 21), (2, 2, 22)]);
        assert_eq!(left, [23, 2]);
        assert_eq!(super::seats(|_| 0, &[4, 3], 0), (vec![], vec![4, 3]));
    }

    #[test]
    fn a_plan_touches_the_sets_of_its_rows_only() {
        let config = GroupConfig { cache_rows: 6, ways: 2, ..GroupConfig::new(&[50, 50], 1) };
        let layout = Layout::new(&config, u64::MAX).unwrap();
        let rows: Vec<u32> = (0..100).collect();
        let mut ways = vec![0; 24];
        for slot in 0..6 {
            ways[way_at(2, slot, Field::Tag)] = NONE;
        }
        let one = plan(&layout, Policy::Lru.facts(), &ways, 9, &rows, 1);
        let first = |set| rows.iter().copied().find(|&row| layout.spread().set_of(row) == set).unwrap();
        assert_eq!(one.loads, [(0, first(0)), (2, first(1)), (4, first(2))]);
        assert_eq!((one.left_out.len(), one.evicted.len()), (97, 0));
        assert_eq!(pinned(&layout, &one.ways), [first(0), first(1), first(2)]);
        assert_eq!(pinned(&layout, &one.meanwhile(&layout)), [0; 0]);
        assert_eq!(one.meanwhile(&layout), ways, "empty until the rows are there");
        let swaps = [(0, first(0)), (2, first(1)), (4, first(2))];
        assert_eq!(one.swaps(), swaps.map(|(place, row)| Swap { place, row, victim: NONE, flags: 0 }));

        // Others are pinned instead: with LRU the rows of before stay, unpinned.
        let wanted: Vec<u32> =
            rows.iter().rev().copied().filter(|&row| layout.spread().set_of(row) == 1).take(1).collect();
        let next = plan(&layout, Policy::Lru.facts(), &one.ways, 10, &wanted, 2);
        assert_eq!((next.loads.as_slice(), next.evicted.len()), (&[(3, wanted[0])][..], 0));
        assert_eq!(pinned(&layout, &next.ways), wanted);
        assert_eq!(next.ways[way_at(2, 2, Field::Tag)], first(1));
        // A third row takes the way of the older one, unless that is pinned.
        let third: Vec<u32> =
            rows.iter().copied().filter(|&row| layout.spread().set_of(row) == 1).skip(1).take(1).collect();
        let mut last = plan(&layout, Policy::Lru.facts(), &next.ways, 11, &[wanted[0], third[0]], 2);
        assert_eq!((last.loads.as_slice(), last.evicted.as_slice()), (&[(2, third[0])][..], &[first(1)][..]));
        assert_eq!(last.ways[way_at(2, 2, Field::Stamp)], 11);
        last.set_frequency(2, 2, 77);
        assert_eq!((last.ways[way_at(2, 2, Field::Freq)], last.ways[way_at(2, 3, Field::Freq)]), (77, 0));

        let mut counters = [Counters::default(); 2];
        last.count_loaded(&config, &mut counters);
        last.count_evicted(&config, &mut counters);
        last.count_evicted(&config, &mut counters);
        let table = |row: u32| usize::from(row >= 50);
        assert_eq!(counters[table(third[0])].admitted, 1);
        assert_eq!(counters[table(first(1))].evictions, 2);
        assert_eq!(counters.iter().map(|c| c.evictions + c.admitted + c.unique + c.unique_misses).sum::<u64>(), 5);
        assert_eq!([0, 49, 50, 99].map(table_of(&config)), [0, 0, 1, 1]);
    }

    #[test]
    fn misuse_is_named() {
        let with = |cache_rows| {
            Layout::new(&GroupConfig { cache_rows, ways: 2, ..GroupConfig::new(&[50], 1) }, u64::MAX).unwrap()
        };
        let what = |layout: &Layout, rows: &[u32], ways| match check(layout, rows, ways) {
            Err(Error::Pins { what, .. }) => what,
            other => {
                assert_eq!(other, Ok(()));
                ""
            }
        };
        let found = [0, 1, 2, 3].map(|ways| what(&with(6), &[1], ways));
        assert_eq!(found, ["ways", "", "", "ways"]);
        assert_eq!((what(&with(0), &[1], 1), what(&with(0), &[], 1)), ("cache", ""));
        let config = GroupConfig::new(&[50], 1).with_padding(vec![Some(7)]);
        let refused = check_padding(&config, &[6, 7]);
        assert!(matches!(refused, Err(Error::Pins { what: "rows", .. })) && check_padding(&config, &[6, 8]).is_ok());
    }
}
