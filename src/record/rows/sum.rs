//! Sums of rows of gradients or weights, vectorised, in the order of the indices.

use std::{marker::PhantomData, ops::Range};

use multiversion::multiversion;

use crate::{
    host::trusted::{AHEAD, prefetch},
    record::rows::payload::{Format, Weights, by_format},
    table::row::RowLayout,
};

/// A list of sums over rows.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The rows, sum after sum.
    pub rows: &'a [u32],
    /// The position in `rows` where each sum begins, and the end of the last one.
    pub offsets: &'a [u32],
    /// A factor for each of `rows`; if empty, all factors are 1.
    pub factors: &'a [f32],
}

/// A list of records.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    /// The layout of each record.
    pub layout: &'a RowLayout,
    /// The words of all records.
    pub words: &'a [u32],
}

/// Rows to add up, by their position in a list.
pub(crate) trait Rows {
    /// The weights of a row.
    type Weights<'a>: Weights
    where
        Self: 'a;
    /// Whether rows have factors.
    const FACTORS: bool;
    /// The row at position `k`; `None` if it does not count.
    fn row(&self, k: usize) -> Option<Self::Weights<'_>>;
    /// The factor at position `k`.
    fn factor(&self, k: usize) -> f32;
    /// Prefetches the row at position `k`, if there is one. It has at least `N` weights.
    fn prefetch<const N: usize>(&self, k: usize);
}

/// Sums of packed rows, read from their records, dim floats for each sum. The bits are those of unpacking each row and
/// adding in list order.
#[multiversion(targets = "simd")]
pub fn sum_records(records: Records<'_>, list: List<'_>, sums: &mut [f32]) {
    sum_records_in(records, list, sums);
}

#[inline(always)]
pub(crate) fn sum_records_in(records: Records<'_>, list: List<'_>, sums: &mut [f32]) {
    by_format!(records.layout.precision, F => if list.factors.is_empty() {
        sum_each(&Listed::<F, false> { records, list, format: PhantomData }, list.offsets, sums);
    } else {
        sum_each(&Listed::<F, true> { records, list, format: PhantomData }, list.offsets, sums);
    });
}

#[inline(always)]
fn sum_each<R: Rows>(rows: &R, offsets: &[u32], sums: &mut [f32]) {
    let Some(dim) = sums.len().checked_div(offsets.len().saturating_sub(1)).filter(|&dim| dim > 0) else { return };
    for (range, sum) in offsets.windows(2).zip(sums.chunks_exact_mut(dim)) {
        sum_rows_in(rows, range[0] as usize..range[1] as usize, sum);
    }
}

/// One sum, over `range` of the list, in its order. Rows behind `range` are prefetched too, because they are likely
/// next.
#[multiversion(targets = "simd")]
pub(crate) fn sum_rows<R: Rows>(rows: &R, range: Range<usize>, sum: &mut [f32]) {
    sum_rows_in(rows, range, sum);
}

#[inline(always)]
fn sum_rows_in<R: Rows>(rows: &R, range: Range<usize>, sum: &mut [f32]) {
    // As many columns at once as registers hold. The sums stay in registers; a row is read again only for the next
    // columns.
    let mut at = 0;
    while at + 128 <= sum.len() {
        columns::<R, 128>(rows, range.clone(), sum, at);
        at += 128;
    }
    while at + 64 <= sum.len() {
        columns::<R, 64>(rows, range.clone(), sum, at);
        at += 64;
    }
    while at + 8 <= sum.len() {
        columns::<R, 8>(rows, range.clone(), sum, at);
        at += 8;
    }
    while at < sum.len() {
        columns::<R, 1>(rows, range.clone(), sum, at);
        at += 1;
    }
}

#[inline(always)]
fn columns<R: Rows, const N: usize>(rows: &R, range: Range<usize>, sum: &mut [f32], at: usize) {
    let mut total = [0.0; N];
    for k in range {
        if at == 0 {
            rows.prefetch::<N>(k + AHEAD);
        }
        let Some(row) = rows.row(k) else { continue };
        let values = row.some::<N>(at);
        if R::FACTORS {
            let factor = rows.factor(k);
            for j in 0..N {
                total[j] += factor * values[j];
            }
        } else {
            for j in 0..N {
                total[j] += values[j];
            }
        }
    }
    sum[at..at + N].copy_from_slice(&total);
}

struct Listed<'a, F, const FACTORS: bool> {
    records: Records<'a>,
    list: List<'a>,
    format: PhantomData<F>,
}

impl<F, const FACTORS: bool> Listed<'_, F, FACTORS> {
    #[inline(always)]
    fn record(&self, row: u32) -> &[u32] {
        let words = self.records.layout.record_words as usize;
        &self.records.words[row as usize * words..][..words]
    }
}

impl<F: Format, const FACTORS: bool> Rows for Listed<'_, F, FACTORS> {
    type Weights<'a>
        = F::Weights<'a>
    where
        Self: 'a;
    const FACTORS: bool = FACTORS;

    #[inline(always)]
    fn row(&self, k: usize) -> Option<F::Weights<'_>> {
        Some(F::of(self.records.layout, self.record(self.list.rows[k])))
    }

    #[inline(always)]
    fn factor(&self, k: usize) -> f32 {
        self.list.factors[k]
    }

    #[inline(always)]
    fn prefetch<const N: usize>(&self, k: usize) {
        if let Some(&row) = self.list.rows.get(k) {
            prefetch(self.record(row));
        }
    }
}
