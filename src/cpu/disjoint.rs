//! Scattered rows of one slice, worked on by several threads at once.

use super::{
    rows::{AHEAD, prefetch},
    spread::PAYS,
};
use crate::trusted::map_rows;

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
    if items.len() * width >= PAYS && rayon::current_num_threads() > 1 {
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
}
