//! The backward: sums the gradients of each distinct row and moves it, in its slot or in its record.

use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::{
    cpu::{
        cached::{
            counts::enter,
            space::{Distinct, run_of},
        },
        share::{Rows, each_run, key, number, run_end},
        stages::{
            cached::gradients::{CHUNK, Gradients},
            counters::{Tally, counter},
        },
    },
    error::Error,
    host::{
        locked,
        pages::Buffer,
        trusted::{AHEAD, prefetch, prefetch_lines, shared},
    },
    record::{codec::Noise, rows},
    rules::{Element, OwnRule},
    table::{
        abi::{DIRTY, Field, NONE, Params, way_at},
        row::RowLayout,
    },
};

/// A thread's buffers for one row.
#[derive(Default)]
struct Room {
    /// The sum of the row's gradients.
    grads: Buffer,
    /// The row in FP32.
    row: Buffer,
    /// The sums of a heavy row's chunks, eight rows.
    strided: Buffer,
}

impl Room {
    /// The three buffers for rows of a layout.
    fn of(&mut self, layout: &RowLayout) -> (&mut [f32], &mut [f32], &mut Buffer) {
        let Self { grads, row, strided } = self;
        (grads.of(layout.dim as usize), row.of(layout.row_words as usize), strided)
    }
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// How rows of a step move.
#[derive(Clone, Copy)]
pub(crate) struct Moves<'a> {
    pub(crate) params: &'a Params,
    pub(crate) layout: &'a RowLayout,
    pub(crate) rule: &'a rows::RowStep,
    pub(crate) noise: &'a Noise,
    /// The gradients of the accesses, in the order of their rows.
    pub(crate) gradients: Gradients<'a>,
    /// The counters of all tables.
    pub(crate) tables: &'a Mutex<&'a mut [u32]>,
    pub(crate) parts: usize,
}

impl Moves<'_> {
    /// Sums the gradients of a row's accesses (SPEC 3): in chunks of 32, whose sums are added up with a stride of eight.
    fn sum(&self, run: Range<usize>, grads: &mut [f32], strided: &mut Buffer) {
        let dim = grads.len();
        if run.len() <= CHUNK {
            return self.gradients.sum(run, grads);
        }
        let strided = strided.of::<f32>(8 * dim);
        for (k, first) in run.clone().step_by(CHUNK).enumerate() {
            self.gradients.sum(first..(first + CHUNK).min(run.end), grads);
            let sums = &mut strided[k % 8 * dim..][..dim];
            if k < 8 {
                sums.copy_from_slice(grads);
            } else {
                add(sums, grads);
            }
        }
        grads.copy_from_slice(&strided[..dim]);
        strided.chunks_exact(dim).take(run.len().div_ceil(CHUNK)).skip(1).for_each(|sums| add(grads, sums));
    }

    /// Calls `work` with a thread's buffers, and with a tally whose counts are added to the tables at the end.
    fn part(&self, work: impl FnOnce(&mut Room, &mut Tally)) {
        let mut tally = Tally::default();
        ROOM.with_borrow_mut(|room| {
            work(room, &mut tally);
        });
        tally.end(&mut locked(self.tables));
    }

    /// Moves a row in its record.
    fn move_record(&self, row: u32, run: Range<usize>, room: &mut Room, record: &mut [u32], tally: &mut Tally) {
        let (grads, floats, strided) = room.of(self.layout);
        self.sum(run, grads, strided);
        let moved = rows::move_record(self.layout, self.rule, self.noise, row, grads, floats, record);
        enter(self.params, self.tables, tally, row);
        tally.add(if moved { counter::BYPASS_WRITES } else { counter::SKIPPED_ROWS });
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

/// Moves all rows of a table without a cache, by its sorted accesses. With `counts` it counts the distinct rows too.
pub(crate) fn move_all(moves: &Moves<'_>, accesses: &[u64], records: &mut [u32], counts: bool) {
    let records = Rows::all(records, moves.layout.record_words as usize);
    each_run(moves.parts, accesses, 0..accesses.len(), records, &|range, mut records| {
        moves.part(|room, tally| {
            let mut start = range.start;
            while start < range.end {
                let (row, end) = (key(accesses[start]), run_end(accesses, start, range.end));
                for k in start + AHEAD..(end + AHEAD).min(range.end) {
                    if key(accesses[k]) != key(accesses[k - 1]) {
                        prefetch(records.peek(key(accesses[k])));
                    }
                }
                moves.move_record(row, start..end, room, records.row(row), tally);
                if counts {
                    tally.add_missed();
                }
                start = end;
            }
        });
    });
}

/// Moves the bypassed rows: `list` has each row with its position in `rows`, ascending.
fn move_bypassed(moves: &Moves<'_>, list: &[u64], rows: &[u64], records: &mut [u32]) {
    let records = Rows::all(records, moves.layout.record_words as usize);
    each_run(moves.parts, list, 0..list.len(), records, &|range, mut records| {
        moves.part(|room, tally| {
            for k in range.clone() {
                if k + AHEAD < range.end {
                    prefetch(records.peek(key(list[k + AHEAD])));
                }
                let (row, run) = (key(list[k]), run_of(list[k], rows));
                moves.move_record(row, run, room, records.row(row), tally);
            }
        });
    });
}

/// Moves the resident rows: `list` has each slot with the position of its row in `rows`, ascending
/// where several parts move them. A moved row's slot becomes dirty.
fn move_resident(moves: &Moves<'_>, list: &[u64], rows: &[u64], cache: &mut [f32], words: usize, ways: &[AtomicU32]) {
    let (dim, state) = (moves.layout.dim as usize, moves.layout.state as usize);
    let width = moves.params.ways();
    each_run(moves.parts, list, 0..list.len(), Rows::all(cache, words), &|range, mut slots| {
        moves.part(|room, tally| {
            let (grads, before, strided) = room.of(moves.layout);
            for k in range.clone() {
                if k + AHEAD < range.end {
                    let slot = key(list[k + AHEAD]);
                    prefetch(slots.peek(slot));
                    prefetch_lines::<0, _>(ways, way_at(width, slot, Field::Flags), 1);
                }
                let (slot, run) = (key(list[k]), run_of(list[k], rows));
                moves.sum(run, grads, strided);
                let (weights, rest) = slots.row(slot).split_at_mut(dim);
                if rows::optimise(moves.rule, grads, weights, &mut rest[..state], before) {
                    let flags = &ways[way_at(width, slot, Field::Flags)];
                    flags.store(flags.load(Relaxed) | DIRTY, Relaxed);
                } else {
                    enter(moves.params, moves.tables, tally, key(rows[number(list[k]) as usize]));
                    tally.add(counter::SKIPPED_ROWS);
                }
            }
        });
    });
}

/// Moves the distinct rows of a cached table.
pub(crate) fn move_distinct(
    moves: &Moves<'_>,
    distinct: &mut Distinct,
    cache: &mut [f32],
    words: usize,
    ways: &mut [u32],
    records: &mut [u32],
) {
    let [slots, others] = distinct.listed;
    // Threads share the cache out by slots. One thread takes the rows in the order of their accesses.
    let residents = if moves.parts > 1 {
        distinct.residents.sort(slots, 32 - moves.params.slots.leading_zeros());
        distinct.residents.sorted()
    } else {
        &*distinct.residents.input(slots)
    };
    let bypassed = &distinct.bypassed[..others];
    move_resident(moves, residents, &distinct.rows, cache, words, shared(ways));
    move_bypassed(moves, bypassed, &distinct.rows, records);
}

/// A distinct row of a step, its accesses, and its slot, or NONE.
pub(crate) type OwnRow = (u32, Range<usize>, u32);

/// The distinct rows of a step, from its sorted accesses or from the lists of a step with a cache.
pub(crate) fn own_rows(accesses: &[u64], distinct: Option<&Distinct>) -> Vec<OwnRow> {
    let mut rows = Vec::new();
    if let Some(distinct) = distinct {
        for (ends, &place) in distinct.rows[..=distinct.len].windows(2).zip(&distinct.places) {
            rows.push((key(ends[0]), number(ends[0]) as usize..number(ends[1]) as usize, place));
        }
        return rows;
    }
    let mut start = 0;
    for run in accesses.chunk_by(|&a, &b| key(a) == key(b)) {
        rows.push((key(run[0]), start..start + run.len(), NONE));
        start += run.len();
    }
    rows
}

/// Counts the only miss of a row of a table without a cache.
pub(crate) fn count_missed(moves: &Moves<'_>, row: u32) {
    moves.part(|_, tally| {
        enter(moves.params, moves.tables, tally, row);
        tally.add_missed();
    });
}

/// Moves the rows of a step by an own rule, which takes all of them at once.
pub(crate) fn move_own(
    moves: &Moves<'_>,
    own: &OwnRule,
    rows: &[OwnRow],
    cache: &mut [f32],
    words: usize,
    ways: &mut [u32],
    records: &mut [u32],
) -> Result<(), Error> {
    let Some(given) = own.given() else { return Err(own.fault("rule", "the rule itself", "its name alone".into())) };
    if rows.is_empty() {
        return Ok(());
    }
    let (layout, dim, each) = (moves.layout, moves.layout.dim as usize, moves.params.each as usize);
    let record_words = layout.record_words as usize;
    let (mut grads, mut floats, mut strided) =
        (vec![0.0; dim], vec![0.0; layout.row_words as usize], Buffer::default());
    let (mut elements, mut fine) = (Vec::with_capacity(rows.len() * dim), Vec::with_capacity(rows.len()));
    for (row, run, slot) in rows {
        moves.sum(run.clone(), &mut grads, &mut strided);
        let (weights, states) = floats.split_at_mut(dim);
        match *slot {
            NONE => rows::unpack(layout, &records[*row as usize * record_words..][..record_words], weights, states),
            slot => floats.copy_from_slice(&cache[slot as usize * words..][..layout.row_words as usize]),
        }
        let (weights, states) = floats.split_at(dim);
        fine.push(rows::bound(moves.rule, &mut grads, weights));
        let decay = moves.rule.weight_decay;
        let state = |k: usize, e: usize| if k < each { states[k * dim + e] } else { 0.0 };
        elements.extend((0..dim).map(|e| Element {
            g: grads[e] + decay * weights[e],
            w: weights[e],
            states: [state(0, e), state(1, e)],
        }));
    }
    let before = elements.clone();
    let failed = |found: String| own.fault("step", "a step that succeeds", found);
    given.steps(&mut elements, dim, &moves.rule.numbers).map_err(failed)?;
    let numbers = |e: &Element| [e.w, e.states[0], e.states[1]];
    for (((row, _, slot), fine), (old, new)) in rows.iter().zip(fine).zip(before.chunks(dim).zip(elements.chunks(dim)))
    {
        let finite = fine && new.iter().all(|e| e.g.is_finite() && numbers(e)[..=each].iter().all(|x| x.is_finite()));
        let changed = old
            .iter()
            .zip(new)
            .any(|(old, new)| numbers(old).map(f32::to_bits)[..=each] != numbers(new).map(f32::to_bits)[..=each]);
        let floats = &mut floats[..dim * (1 + each)];
        for (e, new) in new.iter().enumerate() {
            (0..=each).for_each(|k| floats[k * dim + e] = numbers(new)[k]);
        }
        let (weights, states) = floats.split_at(dim);
        let moved = finite
            && match *slot {
                NONE => {
                    let record = &mut records[*row as usize * record_words..][..record_words];
                    !changed || rows::pack(layout, moves.noise, *row, weights, states, record)
                }
                slot => {
                    cache[slot as usize * words..][..floats.len()].copy_from_slice(floats);
                    ways[way_at(moves.params.ways(), slot, Field::Flags)] |= DIRTY;
                    true
                }
            };
        moves.part(|_, tally| match (moved, *slot) {
            (true, NONE) => {
                enter(moves.params, moves.tables, tally, *row);
                tally.add(counter::BYPASS_WRITES);
            }
            (true, _) => {}
            (false, _) => {
                enter(moves.params, moves.tables, tally, *row);
                tally.add(counter::SKIPPED_ROWS);
            }
        });
    }
    Ok(())
}
