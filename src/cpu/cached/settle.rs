//! What a training step does to a cache, before its bags are pooled: the stages probe, touch, admit, exchange and locate, for distinct rows.

use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use multiversion::multiversion;

use crate::{
    config::GroupConfig,
    cpu::{
        cached::{
            counts::enter,
            freqs::{Freqs, Frequency, in_any_width},
            lookup::{find_in, tags},
            space::Distinct,
        },
        share::{Rows, collect, each, each_run, key, keyed, number, run_end},
        stages::counters::{Tally, counter},
    },
    host::{
        locked,
        trusted::{AHEAD, Word, prefetch, prefetch_lines, shared},
    },
    record::{codec::Noise, rows},
    table::{
        abi::{Field, NONE, Params, way_at},
        admission::{Left, Move, Room, Rule, Set},
        layout::Layout,
        rng::Purpose,
        row::RowLayout,
        shares::Sets,
    },
};

/// What all parts of a step read.
pub(crate) struct Call<'a> {
    pub(crate) params: &'a Params,
    pub(crate) layout: &'a Layout,
    pub(crate) t: u32,
    pub(crate) noise: Noise,
    pub(crate) tables: Mutex<&'a mut [u32]>,
    pub(crate) parts: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        config: &GroupConfig,
        params: &'a Params,
        layout: &'a Layout,
        tables: &'a mut [u32],
        parts: usize,
    ) -> Self {
        let (t, noise) = (tables[0], Noise::new(config, Purpose::WriteBack, tables[0]));
        Self { params, layout, t, noise, tables: Mutex::new(tables), parts }
    }
}

/// The parts of a group's state that a step changes.
pub(crate) struct State<'a> {
    pub(crate) ways: &'a mut [u32],
    pub(crate) cache: &'a mut [f32],
    pub(crate) records: &'a mut [u32],
    pub(crate) freqs: &'a mut Freqs,
}

/// Decides the step by its sorted accesses, and moves the rows that come and leave (SPEC 3, steps 2 to 5). The accesses carry their numbers.
/// If not `numbered`, they carry output rows afterwards.
pub(crate) fn settle(
    call: &Call<'_>,
    State { ways, cache, records, freqs }: State<'_>,
    accesses: &mut [u64],
    numbered: bool,
    distinct: &mut Distinct,
) {
    let (params, layout) = (call.params, call.layout);
    list(call, accesses, distinct);
    let misses = probe(call, ways, distinct);
    in_any_width!(freqs, freqs => touch(call, ways, freqs, distinct));
    if params.admits() {
        distinct.misses.sort(misses, 32 - (params.sets - 1).leading_zeros());
        admit(call, ways, distinct);
        distinct.victims.sort(misses, layout.row_bits());
        pack_rows(call, distinct.victims.sorted(), cache, records);
        load(call, distinct.misses.sorted(), &distinct.loads, &distinct.rows, cache, records);
    }
    locate(call, accesses, numbered, distinct);
}

/// Lists the distinct rows.
fn list(call: &Call<'_>, accesses: &[u64], distinct: &mut Distinct) {
    let Distinct { rows, len, bypassed, lengths, .. } = distinct;
    let n = accesses.len();
    let lists = [&mut rows[..n], &mut bypassed[..n]]; // the second stays empty
    let lists = collect(call.parts, n, lists, lengths, &|range, [rows, _]| [list_part(accesses, range, rows), 0]);
    *len = lists[0];
    rows[*len] = keyed(NONE, n as u32);
}

/// Lists the rows whose first access lies in a range.
fn list_part(accesses: &[u64], range: Range<usize>, rows: &mut [u64]) -> usize {
    let mut found = 0;
    let mut before = if range.start > 0 { key(accesses[range.start - 1]) } else { NONE };
    for (start, some) in (range.start as u32..).step_by(8).zip(accesses[range].chunks(8)) {
        // They ascend, so that all of them are of one row.
        if some.last().is_some_and(|&last| key(last) == before) {
            continue;
        }
        // Every access is written, and only the first of a row is kept: most rows are short, so that a branch would be guessed wrong.
        for (start, &access) in (start..).zip(some) {
            rows[found] = keyed(key(access), start);
            found += usize::from(key(access) != before);
            before = key(access);
        }
    }
    found
}

/// Finds the distinct rows, and lists those that the cache lacks. Returns their number.
fn probe(call: &Call<'_>, ways: &[u32], distinct: &mut Distinct) -> usize {
    let Distinct { rows, len, places, misses, bypassed, lengths, .. } = distinct;
    let (rows, places) = (&rows[..*len], shared(places));
    let lists = [misses.input(*len), &mut bypassed[..*len]];
    let sets = &call.layout.sets_of_rows();
    let lists = collect(call.parts, *len, lists, lengths, &|range, [misses, _]| {
        [probe_part(sets, rows, ways, places, range, misses), 0]
    });
    lists[0]
}

/// Finds a range of the distinct rows.
#[multiversion(targets = "simd")]
fn probe_part(
    sets: &Sets<'_>,
    rows: &[u64],
    ways: &[u32],
    places: &[AtomicU32],
    range: Range<usize>,
    misses: &mut [u64],
) -> usize {
    let width = sets.ways;
    let mut missed = 0;
    for (k, place) in range.clone().zip(&places[range]) {
        if let Some(&next) = rows.get(k + AHEAD) {
            prefetch(tags(width, ways, sets.set_of(key(next))));
        }
        let row = key(rows[k]);
        let set = sets.set_of(row);
        let found = find_in(width, ways, set, row);
        place.store(found, Relaxed);
        // The rows of a table without a share are admitted nowhere. Hits and misses alternate, so that a branch would be guessed wrong.
        misses[missed] = keyed(set, k as u32);
        missed += usize::from(found == NONE && set != NONE);
    }
    missed
}

/// Updates the stamps of hit rows and the frequencies of all rows, and notes by what missed rows are admitted.
fn touch<F: Frequency + Word>(call: &Call<'_>, ways: &mut [u32], freqs: &mut [F], distinct: &mut Distinct) {
    let Call { params, t, .. } = *call;
    let width = params.ways();
    let Distinct { rows, len, places, keys, .. } = distinct;
    let (rows, places) = (&rows[..=*len], &places[..*len]);
    let counts_uses = params.counts_uses();
    let (keys, ways, freqs) = (shared(keys), shared(ways), shared(freqs));
    each(call.parts, places.len(), &mut [] as &mut [u32], &|_, range| {
        // In registers: each store might change what lies behind a pointer.
        let (width, t, most, counts_uses) = (width, t, params.freq_max, counts_uses);
        let rule = Rule { facts: params.policy_facts(), t };
        let mut tally = Tally::default();
        let entries = rows[range.start..=range.end].windows(2).zip(&places[range.clone()]).zip(&keys[range.clone()]);
        for (k, ((run, &place), order)) in range.zip(entries) {
            if let (Some(&next), Some(&place)) = (rows.get(k + AHEAD), places.get(k + AHEAD)) {
                if counts_uses {
                    prefetch_lines::<0, _>(freqs, key(next) as usize, 1);
                }
                if place != NONE {
                    prefetch_lines::<0, _>(ways, way_at(width, place, Field::Stamp), 1);
                    if counts_uses {
                        prefetch_lines::<0, _>(ways, way_at(width, place, Field::Freq), 1);
                    }
                }
            }
            let (row, count) = (key(run[0]), number(run[1]) - number(run[0]));
            let mut used = 0;
            if counts_uses {
                let freq = &freqs[row as usize];
                let uses = F::load(freq).plus(count, most);
                F::store(freq, uses);
                used = uses.get();
            }
            enter(params, &call.tables, &mut tally, row);
            if place == NONE {
                tally.add(counter::UNIQUE);
                tally.add(counter::UNIQUE_MISSES);
                order.store(rule.key(used, count), Relaxed);
                continue;
            }
            tally.add_many(counter::HITS, count);
            let stamp = &ways[way_at(width, place, Field::Stamp)];
            if stamp.load(Relaxed) < t {
                stamp.store(t, Relaxed);
                tally.add(counter::UNIQUE);
            }
            if counts_uses {
                let freq = &ways[way_at(width, place, Field::Freq)];
                freq.store(freq.load(Relaxed).plus(count, most), Relaxed);
            }
        }
        tally.end(&mut locked(&call.tables));
    });
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Admits set by set: the l-th candidate takes the l-th victim (SPEC 3, step 4).
fn admit(call: &Call<'_>, ways: &mut [u32], distinct: &mut Distinct) {
    let Call { params, t, .. } = *call;
    let Distinct { rows, len, places, keys, misses, victims, loads, .. } = distinct;
    let misses = misses.sorted();
    let (places, victims, loads) = (shared(places), shared(victims.input(misses.len())), shared(loads));
    let sets = Rows::all(ways, 4 * params.ways() as usize);
    each_run(call.parts, misses, 0..misses.len(), sets, &|range, mut sets| {
        let (mut coming, mut leaving) = (Tally::default(), Tally::default());
        ROOM.with_borrow_mut(|room| {
            let mut start = range.start;
            while start < range.end {
                let end = run_end(misses, start, range.end);
                if let Some(&next) = misses.get(end + AHEAD).filter(|_| end + AHEAD < range.end) {
                    prefetch(sets.peek(key(next)));
                }
                for k in start..end {
                    loads[k].store(NONE, Relaxed);
                    victims[k].store(keyed(NONE, 0), Relaxed);
                }
                let set = Misses {
                    call,
                    rule: Rule { facts: params.policy_facts(), t },
                    rows: &rows[..*len],
                    misses: &misses[start..end],
                    keys,
                    places,
                    victims: &victims[start..end],
                    loads: &loads[start..end],
                    first_slot: key(misses[start]) * params.ways(),
                };
                set.admit(sets.row(key(misses[start])), room, &mut coming, &mut leaving);
                start = end;
            }
        });
        let mut tables = locked(&call.tables);
        coming.end(&mut tables);
        leaving.end(&mut tables);
    });
}

/// The missed rows of one set.
struct Misses<'a, 'c> {
    call: &'a Call<'c>,
    rule: Rule,
    rows: &'a [u64],
    misses: &'a [u64],
    keys: &'a [u32],
    places: &'a [AtomicU32],
    victims: &'a [AtomicU64],
    loads: &'a [AtomicU32],
    first_slot: u32,
}

impl Misses<'_, '_> {
    fn admit(&self, set: &mut [u32], room: &mut Room, coming: &mut Tally, leaving: &mut Tally) {
        room.candidates.clear();
        let ranked = self.misses.iter().zip(0..).map(|(&miss, k)| {
            let at = number(miss) as usize;
            (Rule::order(self.keys[at], key(self.rows[at])), k)
        });
        room.candidates.extend(ranked);
        self.rule.admit(&mut Set::of(set), room, |Move { candidate, row, way, left }| {
            let slot = self.first_slot + way as u32;
            if let Some(left) = left {
                self.evict(candidate, slot, left, leaving);
            }
            enter(self.call.params, &self.call.tables, coming, row);
            coming.add(counter::ADMITTED);
            self.places[number(self.misses[candidate as usize]) as usize].store(slot, Relaxed);
            self.loads[candidate as usize].store(slot, Relaxed);
        });
    }

    /// Counts a row that leaves, and lists it to be written back, if it has changed.
    fn evict(&self, candidate: u32, slot: u32, left: Left, leaving: &mut Tally) {
        enter(self.call.params, &self.call.tables, leaving, left.row);
        leaving.add(counter::EVICTIONS);
        if left.dirty {
            self.victims[candidate as usize].store(keyed(left.row, slot), Relaxed);
        }
        if left.used {
            // This batch uses the row, which is bypassed from now on.
            match self.rows.binary_search_by_key(&left.row, |&entry| key(entry)) {
                Ok(at) => self.places[at].store(NONE, Relaxed),
                // The batch does not use it: the step number was set back. A GPU reads its record all the same.
                Err(_) => leaving.add(counter::BYPASS_READS),
            }
        }
    }
}

/// Packs dirty rows into their records: `list` has each row with its slot, ascending.
pub(crate) fn pack_rows(call: &Call<'_>, list: &[u64], cache: &[f32], records: &mut [u32]) {
    let (params, layout) = (call.params, &call.layout.row);
    let words = layout.slot_words() as usize;
    let row_at = |slot: u32| &cache[slot as usize * words..][..layout.row_words as usize];
    let records = Rows::all(records, layout.record_words as usize);
    each_run(call.parts, list, 0..list.len(), records, &|range, mut records| {
        let mut tally = Tally::default();
        for k in range.clone() {
            if k + AHEAD < range.end {
                let next = list[k + AHEAD];
                prefetch(row_at(number(next)));
                prefetch(records.peek(key(next)));
            }
            let row = key(list[k]);
            let (weights, state) = row_at(number(list[k])).split_at(params.dim as usize);
            let packed = rows::pack(layout, &call.noise, row, weights, state, records.row(row));
            enter(params, &call.tables, &mut tally, row);
            tally.add(if packed { counter::WRITE_BACKS } else { counter::SKIPPED_ROWS });
        }
        tally.end(&mut locked(&call.tables));
    });
}

/// Unpacks the admitted rows into their slots.
fn load(call: &Call<'_>, misses: &[u64], loads: &[u32], rows: &[u64], cache: &mut [f32], records: &[u32]) {
    let layout = &call.layout.row;
    let (words, slot_words) = (layout.record_words as usize, layout.slot_words() as usize);
    let record = |k: usize| &records[key(rows[number(misses[k]) as usize]) as usize * words..][..words];
    let width = call.params.ways();
    let sets = Rows::all(cache, width as usize * slot_words);
    each_run(call.parts, misses, 0..misses.len(), sets, &|range, mut sets| {
        for k in range.clone() {
            if k + AHEAD < range.end && loads[k + AHEAD] != NONE {
                prefetch(record(k + AHEAD));
            }
            if loads[k] != NONE {
                let set = key(misses[k]);
                let way = (loads[k] - set * width) as usize;
                load_row(layout, record(k), &mut sets.row(set)[way * slot_words..][..slot_words]);
            }
        }
    });
}

/// Unpacks a record into a slot.
pub(crate) fn load_row(layout: &RowLayout, record: &[u32], slot: &mut [f32]) {
    let (weights, rest) = slot.split_at_mut(layout.dim as usize);
    let (states, padding) = rest.split_at_mut(layout.state as usize);
    rows::unpack(layout, record, weights, states);
    padding.fill(0.0);
}

/// Notes the slot of each access for the pooling, and lets accesses carry output rows besides their rows. Lists the resident and the bypassed
/// rows for the backward, and counts those whose records the step reads.
fn locate(call: &Call<'_>, accesses: &mut [u64], numbered: bool, distinct: &mut Distinct) {
    let Distinct { rows, len, places, residents, bypassed, lengths, slots, .. } = distinct;
    let (rows, places, slots) = (&rows[..=*len], &places[..*len], shared(slots));
    let accesses = shared(accesses);
    let lists = [residents.input(*len), &mut bypassed[..*len]];
    let lists = collect(call.parts, *len, lists, lengths, &|range, [residents, bypassed]| {
        let mut tally = Tally::default();
        let (mut resident, mut others) = (0, 0);
        for (k, (run, &place)) in range.clone().zip(rows[range.start..=range.end].windows(2).zip(&places[range])) {
            let row = key(run[0]);
            for access in &accesses[number(run[0]) as usize..number(run[1]) as usize] {
                let slot = &slots[number(access.load(Relaxed)) as usize];
                if !numbered {
                    access.store(keyed(row, slot.load(Relaxed)), Relaxed);
                }
                slot.store(place, Relaxed);
            }
            if place == NONE {
                enter(call.params, &call.tables, &mut tally, row);
                tally.add(counter::BYPASS_READS);
                bypassed[others] = keyed(row, k as u32);
                others += 1;
            } else {
                residents[resident] = keyed(place, k as u32);
                resident += 1;
            }
        }
        tally.end(&mut locked(&call.tables));
        [resident, others]
    });
    distinct.listed = lists;
}
