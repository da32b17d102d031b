//! The forward: reads the rows of each bag where they lie, and pools them.

use std::marker::PhantomData;

use crate::{
    cpu::direct::{batch::Batch, share, sort::access},
    host::trusted::{AHEAD, prefetch},
    record::{
        of_params::MEAN,
        rows::{
            self,
            payload::{Format, by_format},
            sum::{Rows, sum_rows},
        },
    },
    table::{
        layout::{NONE, POOL_NONE},
        row::RowLayout,
    },
};

/// Where rows lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) layout: &'a RowLayout,
    pub(crate) records: &'a [u32],
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
        let (outputs, more_outputs) = self.outputs.split_at_mut(floats);
        let (sort, more_sort) = cut(self.sort, accesses);
        let (factors, more_factors) = cut(self.factors, accesses);
        (Self { outputs, sort, factors }, Self { outputs: more_outputs, sort: more_sort, factors: more_factors })
    }
}

/// Pools all bags (SPEC 3, step 6).
pub(crate) fn pool(batch: &Batch<'_>, source: &Source<'_>, written: Written<'_>) {
    let parts = share::parts(batch.params.indices as usize);
    divide(batch, source, written, 0..batch.outputs(), parts);
}

/// Cuts output rows in two of about as many accesses each, until there is a part for each thread.
fn divide(batch: &Batch<'_>, source: &Source<'_>, written: Written<'_>, outputs: std::ops::Range<usize>, parts: usize) {
    if parts <= 1 || outputs.len() <= 1 {
        return pool_part(batch, source, written, outputs);
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
        || divide(batch, source, one, outputs.start..middle, left),
        || divide(batch, source, two, middle..outputs.end, right),
    );
}

fn pool_part(batch: &Batch<'_>, source: &Source<'_>, written: Written<'_>, outputs: std::ops::Range<usize>) {
    list(batch, &outputs, written.sort, written.factors);
    let Source { layout, records } = *source;
    let dim = layout.dim as usize;
    let out = written.outputs.chunks_exact_mut(dim);
    if batch.params.pooling == POOL_NONE {
        return copy(batch, source, outputs, written.outputs);
    }
    by_format!(layout.precision, F => {
        for (bag, sums) in outputs.zip(out) {
            let range = batch.offsets[bag] as usize..batch.offsets[bag + 1] as usize;
            let stored = Stored::<F, false> { layout, records, rows: batch.rows, base: batch.base(bag), format: PhantomData, weights: batch.weights };
            if batch.params.weighted == 1 {
                sum_rows(&Stored::<F, true> { layout, records, rows: batch.rows, base: stored.base, format: PhantomData, weights: batch.weights }, range, sums);
            } else {
                sum_rows(&stored, range, sums);
            }
            if batch.params.pooling == MEAN {
                let scale = scale(batch, bag);
                sums.iter_mut().for_each(|sum| *sum *= scale);
            }
        }
    });
}

/// Lists the accesses of some output rows for the sort, and the factors of their gradients.
fn list(batch: &Batch<'_>, outputs: &std::ops::Range<usize>, sort: &mut [u64], factors: &mut [[u32; 2]]) {
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
            sort[i - start] = access(row, payload as u32);
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
fn copy(batch: &Batch<'_>, source: &Source<'_>, outputs: std::ops::Range<usize>, out: &mut [f32]) {
    let Source { layout, records } = *source;
    let record = |row| record(layout, records, row);
    let mut bag = bag_of(batch, outputs.start);
    for (i, to) in outputs.zip(out.chunks_exact_mut(layout.dim as usize)) {
        bag = next_bag(batch, bag, i);
        let base = batch.base(bag);
        if let Some(next) = batch.rows.get(i + AHEAD).and_then(|row| record(row.wrapping_add(base))) {
            prefetch(next);
        }
        match record(batch.rows[i].wrapping_add(base)) {
            None => to.fill(0.0),
            Some(record) => {
                rows::unpack(layout, record, to, &mut []);
                if batch.params.weighted == 1 {
                    to.iter_mut().for_each(|value| *value *= batch.weights[i]);
                }
            }
        }
    }
}

/// The record of a row; `None` for NONE.
#[inline(always)]
fn record<'r>(layout: &RowLayout, records: &'r [u32], row: u32) -> Option<&'r [u32]> {
    let words = layout.record_words as usize;
    if row == NONE { None } else { records.get(row as usize * words..row as usize * words + words) }
}

/// Rows read from their records.
struct Stored<'a, F, const FACTORS: bool> {
    layout: &'a RowLayout,
    records: &'a [u32],
    rows: &'a [u32],
    /// Added to `rows`.
    base: u32,
    weights: &'a [f32],
    format: PhantomData<F>,
}

impl<F, const FACTORS: bool> Stored<'_, F, FACTORS> {
    #[inline(always)]
    fn record(&self, row: u32) -> Option<&[u32]> {
        record(self.layout, self.records, row.wrapping_add(self.base))
    }
}

impl<F: Format, const FACTORS: bool> Rows for Stored<'_, F, FACTORS> {
    type Weights<'a>
        = F::Weights<'a>
    where
        Self: 'a;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn row(&self, k: usize) -> Option<F::Weights<'_>> {
        Some(F::of(self.layout, self.record(self.rows[k])?))
    }

    #[inline(always)]
    fn factor(&self, k: usize) -> f32 {
        self.weights[k]
    }

    #[inline(always)]
    fn prefetch(&self, k: usize) {
        if let Some(record) = self.rows.get(k).and_then(|&row| self.record(row)) {
            prefetch(record);
        }
    }
}
