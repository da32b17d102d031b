//! Scattered rows of one slice, handed to several threads at once. The only unsafe code of the CPU side.

#![allow(unsafe_code, reason = "the one file that needs it: rows of a slice for several threads")]

use std::marker::PhantomData;

use rayon::prelude::*;

use super::spread::PAYS;

/// Rows of `width` values that may be borrowed mutably one by one.
struct Rows<'a, T> {
    data: *mut T,
    width: usize,
    rows: usize,
    whole: PhantomData<&'a mut [T]>,
}

// SAFETY: `Rows` is a mutable borrow of a slice, and what it hands out are disjoint parts of it (the contract of
// `Rows::row`): as safe to share as it is to send the parts, which `T: Send` allows.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    fn new(data: &'a mut [T], width: usize) -> Self {
        Self { width, rows: data.len() / width, data: data.as_mut_ptr(), whole: PhantomData }
    }

    /// Row `row`.
    ///
    /// # Safety
    /// `row` is below `self.rows`, and is asked for once in the life of `self`.
    #[allow(clippy::mut_from_ref, reason = "the contract keeps the parts disjoint")]
    unsafe fn row(&self, row: usize) -> &mut [T] {
        // SAFETY: rows * width values lie behind `data`, borrowed mutably for as long as `self` lives; by the contract this
        // row lies within them and nobody else holds it.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(row * self.width), self.width) }
    }
}

/// For each item with a row (`row_of`): `done(item, work(item, row))`, items ascending as far as `done` sees.
///
/// Rows are meant to be distinct. That is checked before threads share them; if they are not, or one does not exist, one thread
/// does it all.
pub(super) fn each_target<T: Send, R: Send>(
    data: &mut [T],
    width: usize,
    items: std::ops::Range<usize>,
    row_of: impl Fn(usize) -> Option<usize>,
    work: impl Fn(usize, &mut [T]) -> R + Sync,
    mut done: impl FnMut(usize, R),
) {
    if items.len() * width >= PAYS {
        let targets: Vec<(usize, usize)> = items.clone().filter_map(|i| Some((i, row_of(i)?))).collect();
        let rows = Rows::new(data, width);
        if targets.len() * width >= PAYS && distinct(&targets, rows.rows) {
            let results: Vec<R> = targets
                .par_iter()
                .map(|&(i, row)| {
                    // SAFETY: `distinct` has seen that every target is below `rows.rows` and occurs once.
                    work(i, unsafe { rows.row(row) })
                })
                .collect();
            targets.iter().zip(results).for_each(|(&(i, _), result)| done(i, result));
            return;
        }
    }
    for i in items {
        if let Some(row) = row_of(i) {
            done(i, work(i, &mut data[row * width..(row + 1) * width]));
        }
    }
}

/// Every row is below `rows`, and none comes twice.
fn distinct(targets: &[(usize, usize)], rows: usize) -> bool {
    // Zeroed by the system where it is large: pages nobody looks at cost nothing.
    let mut seen = vec![0u64; rows.div_ceil(64)];
    targets.iter().all(|&(_, row)| {
        let new = row < rows && seen[row / 64] >> (row % 64) & 1 == 0;
        if new {
            seen[row / 64] |= 1 << (row % 64);
        }
        new
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(items: usize, width: usize, row_of: impl Fn(usize) -> usize) -> (Vec<u64>, Vec<usize>) {
        let mut data = vec![0u64; items * width];
        let mut order = Vec::new();
        let work = |i: usize, row: &mut [u64]| {
            row.iter_mut().for_each(|x| *x = x.wrapping_mul(3).wrapping_add(i as u64));
            i
        };
        let row_of = |i: usize| (!i.is_multiple_of(5)).then(|| row_of(i));
        each_target(&mut data, width, 0..items, row_of, work, |i, result| {
            assert_eq!(i, result);
            order.push(i);
        });
        (data, order)
    }

    #[test]
    fn scattered_rows_on_many_threads() {
        let n = 1 << 13;
        let (data, order) = play(n, 8, |i| n - 1 - i);
        assert!(order.is_sorted() && order.len() == n - n.div_ceil(5));
        for (at, row) in data.chunks_exact(8).enumerate() {
            let i = n - 1 - at;
            let value = if i % 5 == 0 { 0 } else { i as u64 };
            assert!(row.iter().all(|&x| x == value), "row {at}");
        }
    }

    #[test]
    fn shared_rows_are_done_one_after_another() {
        let n = 1 << 13;
        let (data, _) = play(n, 8, |_| 7);
        let expected = (0..n as u64).filter(|i| i % 5 != 0).fold(0u64, |x, i| x.wrapping_mul(3).wrapping_add(i));
        assert_eq!(data[56..64], [expected; 8]);
    }

    #[test]
    fn a_repeated_row_is_seen() {
        assert!(distinct(&[(0, 3), (1, 64), (2, 0)], 65));
        assert!(!distinct(&[(0, 3), (1, 64), (2, 3)], 65));
        assert!(!distinct(&[(0, 65)], 65));
    }
}
