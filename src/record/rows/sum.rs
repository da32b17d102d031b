//! Sums of rows of gradients or weights, vectorised, in the order of the indices.

use std::ops::Range;

use multiversion::multiversion;

use crate::host::trusted::{AHEAD, prefetch_lines};

/// Rows to add up, by their position in a list.
pub(crate) trait Rows {
    /// How a list names a row.
    type Name: Copy;
    /// Some columns of all rows.
    type Columns: Copy;
    /// Whether rows have factors.
    const FACTORS: bool;
    /// The list.
    fn names(&self) -> &[Self::Name];
    /// Columns `at .. at + n` of all rows.
    fn columns(&self, at: usize, n: usize) -> Self::Columns;
    /// Adds the `N` columns of the row at position `k` to `total`, with [`add`], if it counts. An implementation with several forms of rows adds
    /// each by itself: where they meet, values in registers would be written to memory first.
    fn add<const N: usize>(&self, columns: Self::Columns, k: usize, name: Self::Name, total: &mut [f32; N]);
    /// The factor at position `k`.
    fn factor(&self, k: usize, name: Self::Name) -> f32;
    /// Prefetches the row at position `k`. It has at least `N` weights.
    fn prefetch<const N: usize>(&self, k: usize, name: Self::Name);
}

/// One sum, over `range` of the list, in its order. Rows behind `range` are prefetched too, because they are likely
/// next.
#[multiversion(targets = "simd")]
pub(crate) fn sum_rows<R: Rows>(rows: &R, range: Range<usize>, sum: &mut [f32]) {
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
    let columns = rows.columns(at, N);
    let all = rows.names();
    let names = &all[range.clone()];
    let next = &all[(range.start + AHEAD).min(all.len())..];
    let (first, last) = names.split_at(names.len().min(next.len()));
    let mut k = range.start;
    // The last rows of the list have none to prefetch behind them; they prefetch themselves.
    for (names, next, ahead) in [(first, next, AHEAD), (last, last, 0)] {
        for (&name, &next) in names.iter().zip(next) {
            if at == 0 {
                rows.prefetch::<N>(k + ahead, next);
            }
            rows.add::<N>(columns, k, name, &mut total);
            k += 1;
        }
    }
    sum[at..at + N].copy_from_slice(&total);
}

/// Adds the values of the row at position `k`, times its factor.
#[inline(always)]
pub(crate) fn add<R: Rows, const N: usize>(rows: &R, k: usize, name: R::Name, values: [f32; N], total: &mut [f32; N]) {
    if R::FACTORS {
        let factor = rows.factor(k, name);
        for j in 0..N {
            total[j] += factor * values[j];
        }
    } else {
        for j in 0..N {
            total[j] += values[j];
        }
    }
}

/// Prefetches the `len` values of a row from `at` on. They have at least `bytes` bytes, a number that the compiler knows.
#[inline(always)]
pub(crate) fn prefetch_row<T>(values: &[T], at: usize, len: usize, bytes: usize) {
    match bytes / 64 {
        0 => prefetch_lines::<0, T>(values, at, len),
        1 => prefetch_lines::<1, T>(values, at, len),
        2..4 => prefetch_lines::<2, T>(values, at, len),
        4..8 => prefetch_lines::<4, T>(values, at, len),
        8.. => prefetch_lines::<8, T>(values, at, len),
    }
}
