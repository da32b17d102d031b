//! The forward: reads the rows of each bag where they lie, and pools them.

use std::{cell::Cell, marker::PhantomData, ops::Range};

use crate::{
    cpu::direct::{
        batch::Batch,
        lookup::{find, find_in},
        share::keyed,
    },
    host::trusted::{AHEAD, prefetch},
    record::{
        of_params::MEAN,
        rows::{
            self,
            payload::{Floats, Format, Weights, by_format},
            sum::{Rows, sum_rows},
        },
    },
    table::{
        hash::fmix32,
        layout::{Field, NONE, POOL_NONE, way_at},
        row::RowLayout,
    },
};

/// Where rows lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) layout: &'a RowLayout,
    pub(crate) records: &'a [u32],
    pub(crate) ways: &'a [u32],
    pub(crate) cache: &'a [f32],
}

/// What a forward writes: some output rows, and in training lists of their accesses, which are empty otherwise.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    pub(crate) outputs: &'a mut [f32],
    /// The accesses, to be sorted.
    pub(crate) sort: &'a mut [u64],
    /// The output row and the factor of each access, if gradients have factors.
    pub(crate) factors: &'a mut [[u32; 2]],
}

impl<'a> Written<'a> {
    fn split(self, floats: usize, accesses: usize) -> (Self, Self) {
        fn cut<T>(list: &mut [T], at: usize) -> (&mut [T], &mut [T]) {
            let at = at.min(list.len());
            list.split_at_mut(at)
        }
        let (outputs, more_outputs) = cut(self.outputs, floats);
        let (sort, more_sort) = cut(self.sort, accesses);
        let (factors, more_factors) = cut(self.factors, accesses);
        (Self { outputs, sort, factors }, Self { outputs: more_outputs, sort: more_sort, factors: more_factors })
    }
}

/// Pools all bags (SPEC 3, step 6), and lists their accesses if asked.
pub(crate) fn pool(batch: &Batch<'_>, source: &Source<'_>, written: Written<'_>) {
    divide(batch, written, 0..batch.outputs(), batch.parts(), &|outputs, written| {
        list(batch, &outputs, written.sort, written.factors);
        pool_part(batch, source, written.outputs, outputs);
    });
}

/// Lists the accesses of all bags.
pub(crate) fn list_all(batch: &Batch<'_>, sort: &mut [u64], factors: &mut [[u32; 2]]) {
    let written = Written { outputs: &mut [], sort, factors };
    divide(batch, written, 0..batch.outputs(), batch.parts(), &|outputs, written| {
        list(batch, &outputs, written.sort, written.factors);
    });
}

/// Cuts output rows in two of about as many accesses each, until there are enough parts.
fn divide(
    batch: &Batch<'_>,
    written: Written<'_>,
    outputs: Range<usize>,
    parts: usize,
    work: &(impl Fn(Range<usize>, Written<'_>) + Sync),
) {
    if parts <= 1 || outputs.len() <= 1 {
        return work(outputs, written);
    }
    let (first, end) = (batch.first(outputs.start), batch.first(outputs.end));
    let (left, right) = (parts / 2, parts - parts / 2);
    let wanted = first + (end - first) * left / parts;
    let middle = if batch.params.pooling == POOL_NONE {
        wanted
    } else {
        outputs.start + batch.offsets[outputs.clone()].partition_point(|&offset| (offset as usize) < wanted)
    };
    let dim = batch.params.dim as usize;
    let (one, two) = written.split((middle - outputs.start) * dim, batch.first(middle) - first);
    rayon::join(
        || divide(batch, one, outputs.start..middle, left, work),
        || divide(batch, two, middle..outputs.end, right, work),
    );
}

fn pool_part(batch: &Batch<'_>, source: &Source<'_>, out: &mut [f32], outputs: Range<usize>) {
    let layout = source.layout;
    if batch.params.pooling == POOL_NONE {
        return copy(batch, source, outputs, out);
    }
    by_format!(layout.precision, F => match (batch.params.sets > 0, batch.params.weighted == 1) {
        (false, false) => pool_bags::<F, false, false>(batch, source, outputs, out),
        (false, true) => pool_bags::<F, false, true>(batch, source, outputs, out),
        (true, false) => pool_bags::<F, true, false>(batch, source, outputs, out),
        (true, true) => pool_bags::<F, true, true>(batch, source, outputs, out),
    });
}

fn pool_bags<F: Format, const CACHED: bool, const FACTORS: bool>(
    batch: &Batch<'_>,
    source: &Source<'_>,
    bags: Range<usize>,
    out: &mut [f32],
) {
    let mut stored = Stored::<F, CACHED, FACTORS>::new(batch, source);
    for (bag, sums) in bags.zip(out.chunks_exact_mut(source.layout.dim as usize)) {
        stored.base = batch.base(bag);
        sum_rows(&stored, batch.offsets[bag] as usize..batch.offsets[bag + 1] as usize, sums);
        if batch.params.pooling == MEAN {
            let scale = scale(batch, bag);
            sums.iter_mut().for_each(|sum| *sum *= scale);
        }
    }
}

/// Lists the accesses of some output rows for the sort, and the factors of their gradients.
fn list(batch: &Batch<'_>, outputs: &Range<usize>, sort: &mut [u64], factors: &mut [[u32; 2]]) {
    if sort.is_empty() {
        return;
    }
    let start = batch.first(outputs.start);
    let none = batch.params.pooling == POOL_NONE;
    let mut bag = if none { bag_of(batch, start) } else { outputs.start };
    for output in outputs.clone() {
        let range = batch.first(output)..batch.first(output + 1);
        bag = if none { next_bag(batch, bag, range.start) } else { output };
        let (base, scale) = (batch.base(bag), if factors.is_empty() { 1.0 } else { scale(batch, bag) });
        for i in range {
            let row = batch.rows[i].wrapping_add(base);
            let payload = if factors.is_empty() { output } else { i };
            sort[i - start] = keyed(row, payload as u32);
            if !factors.is_empty() {
                let factor = batch.weights.get(i).map_or(scale, |weight| scale * weight);
                factors[i - start] = [output as u32, factor.to_bits()];
            }
        }
    }
}

/// The bag of an access.
fn bag_of(batch: &Batch<'_>, access: usize) -> usize {
    batch.offsets.partition_point(|&offset| offset as usize <= access).max(1) - 1
}

/// The bag of an access that does not come before `bag`.
fn next_bag(batch: &Batch<'_>, mut bag: usize, access: usize) -> usize {
    while batch.offsets[bag + 1] as usize <= access {
        bag += 1;
    }
    bag
}

/// The factor of a bag's sum.
fn scale(batch: &Batch<'_>, bag: usize) -> f32 {
    if batch.params.pooling != MEAN {
        return 1.0;
    }
    let rows = &batch.rows[batch.offsets[bag] as usize..batch.offsets[bag + 1] as usize];
    let valid = if batch.plain { rows.len() } else { rows.iter().filter(|&&row| row != NONE).count() };
    1.0 / valid.max(1) as f32
}

/// Copies single rows: adding one to 0 would turn its negative zeros positive.
fn copy(batch: &Batch<'_>, source: &Source<'_>, outputs: Range<usize>, out: &mut [f32]) {
    let layout = source.layout;
    let mut bag = bag_of(batch, outputs.start);
    for (i, to) in outputs.zip(out.chunks_exact_mut(layout.dim as usize)) {
        bag = next_bag(batch, bag, i);
        let base = batch.base(bag);
        if let Some(next) = batch.rows.get(i + AHEAD).and_then(|row| source.record(row.wrapping_add(base))) {
            prefetch(next);
        }
        let row = batch.rows[i].wrapping_add(base);
        let slot = if batch.params.sets > 0 && row != NONE { find(batch.params, source.ways, row).1 } else { NONE };
        match source.record(row) {
            None => to.fill(0.0),
            Some(_) if slot != NONE => to.copy_from_slice(source.slot(slot)),
            Some(record) => rows::unpack(layout, record, to, &mut []),
        }
        if batch.params.weighted == 1 && row != NONE {
            to.iter_mut().for_each(|value| *value *= batch.weights[i]);
        }
    }
}

impl Source<'_> {
    /// The record of a row; `None` for NONE.
    #[inline(always)]
    fn record(&self, row: u32) -> Option<&[u32]> {
        let words = self.layout.record_words as usize;
        if row == NONE { None } else { self.records.get(row as usize * words..row as usize * words + words) }
    }

    /// The weights in a slot.
    #[inline(always)]
    fn slot(&self, slot: u32) -> &[f32] {
        &self.cache[slot as usize * self.layout.slot_words() as usize..][..self.layout.dim as usize]
    }
}

/// Number of accesses whose places are remembered: more than are looked up ahead.
const REMEMBERED: usize = 4 * AHEAD;

/// The rows of accesses, read from their slots or their records.
struct Stored<'a, F, const CACHED: bool, const FACTORS: bool> {
    batch: &'a Batch<'a>,
    source: &'a Source<'a>,
    /// Added to the rows of the batch.
    base: u32,
    /// The sets of rows whose tags are prefetched, then their slots once they are looked up; each with its row.
    sets: [Cell<(u32, u32)>; REMEMBERED],
    slots: [Cell<(u32, u32)>; REMEMBERED],
    format: PhantomData<F>,
}

impl<'a, F, const CACHED: bool, const FACTORS: bool> Stored<'a, F, CACHED, FACTORS> {
    fn new(batch: &'a Batch<'a>, source: &'a Source<'a>) -> Self {
        let nothing = [const { Cell::new((NONE, NONE)) }; REMEMBERED];
        Self { batch, source, base: 0, sets: nothing.clone(), slots: nothing, format: PhantomData }
    }

    #[inline(always)]
    fn linear(&self, k: usize) -> Option<u32> {
        self.batch.rows.get(k).map(|row| row.wrapping_add(self.base)).filter(|&row| row != NONE)
    }

    /// The slot of the row at `k`, or NONE.
    #[inline(always)]
    fn place(&self, k: usize, row: u32) -> u32 {
        let (known, slot) = self.slots[k % REMEMBERED].get();
        if known == row { slot } else { find(self.batch.params, self.source.ways, row).1 }
    }
}

/// Weights in a slot, or in a record.
#[derive(Clone, Copy)]
enum Either<'a, R> {
    Slot(Floats<'a>),
    Record(R),
}

impl<R: Weights> Weights for Either<'_, R> {
    #[inline(always)]
    fn some<const N: usize>(self, at: usize) -> [f32; N] {
        match self {
            Self::Slot(floats) => floats.some(at),
            Self::Record(record) => record.some(at),
        }
    }
}

impl<F: Format, const CACHED: bool, const FACTORS: bool> Rows for Stored<'_, F, CACHED, FACTORS> {
    type Weights<'a>
        = Either<'a, F::Weights<'a>>
    where
        Self: 'a;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn row(&self, k: usize) -> Option<Self::Weights<'_>> {
        let row = self.linear(k)?;
        if CACHED {
            let slot = self.place(k, row);
            if slot != NONE {
                return Some(Either::Slot(Floats(self.source.slot(slot))));
            }
        }
        Some(Either::Record(F::of(self.source.layout, self.source.record(row)?)))
    }

    #[inline(always)]
    fn factor(&self, k: usize) -> f32 {
        self.batch.weights[k]
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if CACHED {
            let Batch { params, .. } = self.batch;
            let width = params.ways();
            if let Some(row) = self.linear(k + AHEAD) {
                let set = fmix32(row) % params.sets;
                self.sets[(k + AHEAD) % REMEMBERED].set((row, set));
                prefetch(&self.source.ways[way_at(width, set * width, Field::Tag)..][..width as usize]);
            }
            let Some(row) = self.linear(k) else { return };
            let (known, set) = self.sets[k % REMEMBERED].get();
            let set = if known == row { set } else { fmix32(row) % params.sets };
            let slot = find_in(width, self.source.ways, set, row);
            self.slots[k % REMEMBERED].set((row, slot));
            if slot != NONE {
                return prefetch(self.source.slot(slot));
            }
        }
        if let Some(record) = self.linear(k).and_then(|row| self.source.record(row)) {
            prefetch(record);
        }
    }
}
