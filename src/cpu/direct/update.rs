//! The backward: sums the gradients of each distinct row and moves it, in its slot or in its record.

use std::{
    cell::RefCell,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    cpu::stages::cached::{
        merge::{CHUNK, Gradients},
        tables::{Tally, counter},
    },
    host::trusted::{AHEAD, prefetch},
    record::{codec::Noise, rows},
    table::{layout::Params, row::RowLayout},
};

/// A thread's buffers for one row.
#[derive(Default)]
struct Room {
    /// The sum of the row's gradients.
    grads: Vec<f32>,
    /// The row in FP32.
    row: Vec<f32>,
    /// The sums of a heavy row's chunks, eight rows.
    strided: Vec<f32>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// How rows of a step move.
#[derive(Clone, Copy)]
pub(crate) struct Moves<'a> {
    pub(crate) params: &'a Params,
    pub(crate) layout: &'a RowLayout,
    pub(crate) rule: &'a rows::Rule,
    pub(crate) noise: &'a Noise,
    /// Whether the distinct rows of the step are still to be counted.
    pub(crate) counts: bool,
    /// The gradients, whose accesses are sorted by row: the second word of each is its row.
    pub(crate) gradients: Gradients<'a>,
}

impl Moves<'_> {
    fn row(&self, k: usize) -> u32 {
        self.gradients.accesses[k][1]
    }

    /// The end of the accesses of the row at `k`, at most `end`.
    fn run_end(&self, k: usize, end: usize) -> usize {
        let row = self.row(k);
        (k + 1..end).find(|&next| self.row(next) != row).unwrap_or(end)
    }

    /// Sums the gradients of a run of accesses (SPEC 3): in chunks of 128, whose sums are added up with a stride of eight.
    fn sum(&self, run: std::ops::Range<usize>, grads: &mut Vec<f32>, strided: &mut Vec<f32>) {
        let dim = self.layout.dim as usize;
        grads.resize(dim, 0.0);
        if run.len() <= CHUNK {
            return self.gradients.sum(run, grads);
        }
        strided.resize(8 * dim, 0.0);
        for (k, first) in run.clone().step_by(CHUNK).enumerate() {
            self.gradients.sum(first..(first + CHUNK).min(run.end), grads);
            let sums = &mut strided[k % 8 * dim..][..dim];
            if k < 8 {
                sums.copy_from_slice(grads);
            } else {
                sums.iter_mut().zip(&*grads).for_each(|(sum, value)| *sum += value);
            }
        }
        grads.copy_from_slice(&strided[..dim]);
        for sums in strided.chunks_exact(dim).take(run.len().div_ceil(CHUNK)).skip(1) {
            grads.iter_mut().zip(sums).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// Moves all rows of a table without a cache: its records, of which `records` begins with that of `first_row`. The accesses `run` are
/// sorted by row.
pub(crate) fn move_records(
    moves: &Moves<'_>,
    tables: &Mutex<&mut [u32]>,
    run: std::ops::Range<usize>,
    records: &mut [u32],
    first_row: u32,
    parts: usize,
) {
    let words = moves.layout.record_words as usize;
    if parts > 1 {
        let wanted = run.start + run.len() * (parts / 2) / parts;
        let middle = if wanted == run.start { wanted } else { moves.run_end(wanted - 1, run.end) };
        if middle < run.end {
            let row = moves.row(middle);
            let (low, high) = records.split_at_mut((row - first_row) as usize * words);
            rayon::join(
                || move_records(moves, tables, run.start..middle, low, first_row, parts / 2),
                || move_records(moves, tables, middle..run.end, high, row, parts - parts / 2),
            );
            return;
        }
    }
    ROOM.with_borrow_mut(|Room { grads, row: room, strided }| {
        room.resize(moves.layout.row_words as usize, 0.0);
        let mut tally = Tally::default();
        let at = |row: u32| (row - first_row) as usize * words;
        let mut start = run.start;
        while start < run.end {
            let (row, end) = (moves.row(start), moves.run_end(start, run.end));
            for k in start + AHEAD..(end + AHEAD).min(run.end) {
                let next = moves.row(k);
                if next != moves.row(k - 1) {
                    prefetch(&records[at(next)..][..words]);
                }
            }
            moves.sum(start..end, grads, strided);
            let record = &mut records[at(row)..][..words];
            let moved = rows::move_record(moves.layout, moves.rule, moves.noise, row, grads, room, record);
            enter(moves.params, tables, &mut tally, row);
            tally.add(if moved { counter::BYPASS_WRITES } else { counter::SKIPPED_ROWS });
            if moves.counts {
                tally.add_missed();
            }
            start = end;
        }
        tally.end(&mut locked(tables));
    });
}

/// Prepares a tally for a row. The counters of all tables are locked only where another table begins.
pub(crate) fn enter(params: &Params, tables: &Mutex<&mut [u32]>, tally: &mut Tally, row: u32) {
    if !tally.covers(row) {
        tally.enter(params, &mut locked(tables), row);
    }
}

fn locked<'a, 't>(tables: &'a Mutex<&'t mut [u32]>) -> MutexGuard<'a, &'t mut [u32]> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}
