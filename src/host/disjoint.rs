//! Threads that work on scattered rows of one slice at once.

use crate::host::{
    spread::PAYS,
    trusted::{map_rows, prefetch},
};

/// Number of items in one thread's share, where rows ascend.
const SHARE: usize = 256;
/// Number of items ahead whose memory is prefetched: fewer than for sums, whose rows are not written. At 16 a step took
/// a tenth longer.
const AHEAD: usize = 8;

/// Calls `done(item, work(item, row))` for each item that has a row (`row_of`). `done` sees the items of each call in
/// ascending order.
///
/// Rows should be distinct. This is checked before threads share them; if two are equal, or one does not exist, one
/// thread does all the work.
pub(crate) fn each_target<T: Send + Sync, R: Send>(
    data: &mut [T],
    width: usize,
    items: std::ops::Range<usize>,
    row_of: impl Fn(usize) -> Option<usize> + Sync,
    work: impl Fn(usize, &mut [T]) -> R + Sync,
    mut done: impl FnMut(usize, R),
) {
    if items.len() * width >= PAYS && rayon::current_num_threads() > 1 {
        if ascend(items.clone(), &row_of) {
            let mut results: Vec<Option<R>> = items.clone().map(|_| None).collect();
            Ascending { width, row_of, work }.run(data, 0, items.clone(), &mut results);
            items.zip(results).for_each(|(i, result)| result.into_iter().for_each(|result| done(i, result)));
            return;
        }
        let targets: Vec<(usize, usize)> = items.clone().filter_map(|i| Some((i, row_of(i)?))).collect();
        let pays = targets.len() * width >= PAYS;
        if let Some(results) = pays.then(|| map_rows(data, width, &targets, &work)).flatten() {
            targets.iter().zip(results).for_each(|(&(i, _), result)| done(i, result));
            return;
        }
    }
    for i in items.clone() {
        let next = Some(i + AHEAD).filter(|&next| next < items.end).and_then(&row_of);
        if let Some(row) = next.and_then(|next| data.get(next * width..(next + 1) * width)) {
            prefetch(row);
        }
        if let Some(row) = row_of(i) {
            done(i, work(i, &mut data[row * width..(row + 1) * width]));
        }
    }
}

/// Whether the rows ascend strictly. Then every row of the items left of the middle one lies left of the middle one's
/// row.
fn ascend(items: std::ops::Range<usize>, row_of: impl Fn(usize) -> Option<usize>) -> bool {
    items.filter_map(row_of).is_sorted_by(|a, b| a < b)
}

/// Work on ascending rows, split in halves without a list of the rows.
struct Ascending<F, W> {
    width: usize,
    row_of: F,
    work: W,
}

impl<F: Fn(usize) -> Option<usize> + Sync, W> Ascending<F, W> {
    /// `data` begins with row `first`.
    fn run<T: Send + Sync, R: Send>(
        &self,
        data: &mut [T],
        first: usize,
        items: std::ops::Range<usize>,
        results: &mut [Option<R>],
    ) where
        W: Fn(usize, &mut [T]) -> R + Sync,
    {
        if items.len() > SHARE {
            let half = items.len() / 2;
            let middle = items.start + half;
            let (left, right) = results.split_at_mut(half);
            if let Some(row) = (middle..items.end).find_map(&self.row_of) {
                let (low, high) = data.split_at_mut((row - first) * self.width);
                rayon::join(
                    || self.run(low, first, items.start..middle, left),
                    || self.run(high, row, middle..items.end, right),
                );
            } else {
                self.run(data, first, items.start..middle, left);
            }
            return;
        }
        let place = |i: usize| Some(((self.row_of)(i)? - first) * self.width);
        for (i, result) in items.clone().zip(results) {
            if i + AHEAD < items.end
                && let Some(at) = place(i + AHEAD)
            {
                prefetch(&data[at..at + self.width]);
            }
            *result = place(i).map(|at| (self.work)(i, &mut data[at..at + self.width]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(items: usize, width: usize, row_of: impl Fn(usize) -> usize + Sync) -> (Vec<u64>, Vec<usize>) {
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
    fn ascending_rows_on_many_threads() {
        // Without a list: gaps between the rows, and items without a row at either end of a share.
        for items in [(1 << 13) / 3, 1 << 13, (1 << 13) + 1] {
            let mut data = vec![0u64; 3 * items * 8];
            let row_of = |i: usize| (i % 256 > 1 && i % 256 < 250 && i / 256 % 4 != 1).then_some(3 * i + i % 3);
            let mut order = Vec::new();
            let work = |i: usize, row: &mut [u64]| {
                row.iter_mut().for_each(|x| *x += i as u64);
                i
            };
            each_target(&mut data, 8, 0..items, row_of, work, |i, result| {
                assert_eq!(i, result);
                order.push(i);
            });
            assert_eq!(order, (0..items).filter(|&i| row_of(i).is_some()).collect::<Vec<_>>());
            let mut wanted = vec![0u64; 3 * items * 8];
            order.iter().for_each(|&i| wanted[row_of(i).unwrap() * 8..][..8].fill(i as u64));
            assert_eq!(data, wanted);
        }
        assert!(
            ascend(0..9, Some)
                && ascend(0..9, |_| None)
                && !ascend(0..9, |i| Some(9 - i))
                && !ascend(0..9, |_| Some(1))
        );
    }

    #[test]
    fn shared_rows_are_done_one_after_another() {
        let n = 1 << 13;
        let (data, _) = play(n, 8, |_| 7);
        let expected = (0..n as u64).filter(|i| i % 5 != 0).fold(0u64, |x, i| x.wrapping_mul(3).wrapping_add(i));
        assert_eq!(data[56..64], [expected; 8]);
    }
}
