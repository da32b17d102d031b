//! Work divided among threads.

use std::ops::Range;

/// Number of accesses below which handing work to another thread costs more than it saves.
const PAYS: usize = 1024;

/// Number of parts for each thread: a thread that wakes late, or is disturbed, leaves parts to the others.
const EACH: usize = 4;

/// Number of parts into which `accesses` accesses are cut.
pub(crate) fn parts(accesses: usize) -> usize {
    let threads = rayon::current_num_threads();
    if threads == 1 { 1 } else { (EACH * threads).min(accesses / PAYS).max(1) }
}

/// Number of parts into which `n` accesses are cut for a sort, which counts the digits of each part by itself: one for each thread.
pub(crate) fn sort_parts(n: usize) -> usize {
    rayon::current_num_threads().min(n / PAYS).max(1)
}

/// Cuts `0..n` into `parts` ranges of about equal length, and `own` into as many pieces. Calls `work` with each range and its piece.
pub(crate) fn each<T: Send>(parts: usize, n: usize, own: &mut [T], work: &(impl Fn(&mut [T], Range<usize>) + Sync)) {
    split(parts, 0..n, own, work);
}

fn split<T: Send>(parts: usize, range: Range<usize>, own: &mut [T], work: &(impl Fn(&mut [T], Range<usize>) + Sync)) {
    if parts <= 1 {
        return work(own, range);
    }
    let left = parts / 2;
    let middle = range.start + range.len() * left / parts;
    let (own_left, own_right) = own.split_at_mut(own.len() / parts * left);
    rayon::join(
        || split(left, range.start..middle, own_left, work),
        || split(parts - left, middle..range.end, own_right, work),
    );
}

/// A number under a key, such as an access under its row, in a list that is sorted by key.
pub(crate) const fn keyed(key: u32, number: u32) -> u64 {
    (key as u64) << 32 | number as u64
}

/// The key of an entry.
pub(crate) const fn key(entry: u64) -> u32 {
    (entry >> 32) as u32
}

/// The number of an entry.
pub(crate) const fn number(entry: u64) -> u32 {
    entry as u32
}

/// The end of the entries with the key of entry `start`, at most `end`.
#[inline]
pub(crate) fn run_end(list: &[u64], start: usize, end: usize) -> usize {
    let first = key(list[start]);
    let mut next = start + 1;
    while next < end && key(list[next]) == first {
        next += 1;
    }
    next
}

/// Rows of an array, of which some threads each have a part.
#[derive(Debug)]
pub(crate) struct Rows<'a, T> {
    data: &'a mut [T],
    /// The number of the first row.
    first: u32,
    width: usize,
}

impl<'a, T> Rows<'a, T> {
    /// All rows of an array: `width` values each.
    pub(crate) fn all(data: &'a mut [T], width: usize) -> Self {
        Self { data, first: 0, width }
    }

    /// A row of this part.
    #[inline]
    pub(crate) fn row(&mut self, row: u32) -> &mut [T] {
        &mut self.data[(row - self.first) as usize * self.width..][..self.width]
    }

    /// A row of this part, to be read or prefetched.
    #[inline]
    pub(crate) fn peek(&self, row: u32) -> &[T] {
        &self.data[(row - self.first) as usize * self.width..][..self.width]
    }

    /// Cuts the rows in two, the second part beginning with `row`.
    fn cut(self, row: u32) -> (Self, Self) {
        let (low, high) = self.data.split_at_mut((row - self.first) as usize * self.width);
        (Self { data: low, ..self }, Self { data: high, first: row, width: self.width })
    }
}

/// Cuts entries that ascend by key into `parts` ranges of about equal length. All entries of a key are in one range. Calls `work` with
/// each range, and the rows that its keys name.
pub(crate) fn each_run<T: Send>(
    parts: usize,
    list: &[u64],
    range: Range<usize>,
    rows: Rows<'_, T>,
    work: &(impl Fn(Range<usize>, Rows<'_, T>) + Sync),
) {
    if parts > 1 && range.len() > 1 {
        let left = parts / 2;
        let wanted = range.start + range.len() * left / parts;
        let middle = run_end(list, wanted.max(range.start + 1) - 1, range.end);
        if middle < range.end {
            let (low, high) = rows.cut(key(list[middle]));
            rayon::join(
                || each_run(left, list, range.start..middle, low, work),
                || each_run(parts - left, list, middle..range.end, high, work),
            );
            return;
        }
    }
    work(range, rows);
}

/// Lets parts of `0..n` write lists: each its piece of `lists`, from its first item on, and no more than it has items. Closes the gaps, and
/// returns the lengths. `lengths` has room for two numbers a part.
pub(crate) fn collect(
    parts: usize,
    n: usize,
    lists: [&mut [u64]; 2],
    lengths: &mut [usize],
    work: &(impl Fn(Range<usize>, [&mut [u64]; 2]) -> [usize; 2] + Sync),
) -> [usize; 2] {
    let parts = parts.min(lengths.len() / 2).max(1);
    let lengths = &mut lengths[..2 * parts];
    let [one, two] = lists;
    collect_part(parts, 0..n, [&mut *one, &mut *two], lengths, work);
    let mut ends = [0; 2];
    let mut first = 0;
    // As `collect_part` cuts.
    visit(parts, 0..n, &mut |range: Range<usize>| {
        for (which, list) in [&mut *one, &mut *two].into_iter().enumerate() {
            let length = lengths[first + which];
            list.copy_within(range.start..range.start + length, ends[which]);
            ends[which] += length;
        }
        first += 2;
    });
    ends
}

fn collect_part(
    parts: usize,
    range: Range<usize>,
    [one, two]: [&mut [u64]; 2],
    lengths: &mut [usize],
    work: &(impl Fn(Range<usize>, [&mut [u64]; 2]) -> [usize; 2] + Sync),
) {
    if parts <= 1 {
        lengths.copy_from_slice(&work(range, [one, two]));
        return;
    }
    let left = parts / 2;
    let middle = range.start + range.len() * left / parts;
    let ((one, more), (two, others)) = (one.split_at_mut(middle - range.start), two.split_at_mut(middle - range.start));
    let (low, high) = lengths.split_at_mut(2 * left);
    rayon::join(
        || collect_part(left, range.start..middle, [one, two], low, work),
        || collect_part(parts - left, middle..range.end, [more, others], high, work),
    );
}

/// Visits the ranges into which `parts` parts cut a range, in order.
fn visit(parts: usize, range: Range<usize>, see: &mut impl FnMut(Range<usize>)) {
    if parts <= 1 {
        return see(range);
    }
    let left = parts / 2;
    let middle = range.start + range.len() * left / parts;
    visit(left, range.start..middle, see);
    visit(parts - left, middle..range.end, see);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_list_are_closed_up() {
        let n = 1000;
        let (mut odd, mut even, mut lengths) = (vec![0; n], vec![0; n], vec![0; 2 * 7]);
        for parts in [1, 2, 3, 7, 50] {
            let lists = collect(parts, n, [&mut odd, &mut even], &mut lengths, &|range, [odd, even]| {
                let mut found = [0; 2];
                for i in range.filter(|i| i % 3 != 0) {
                    let (list, found) =
                        if i % 2 == 1 { (&mut *odd, &mut found[0]) } else { (&mut *even, &mut found[1]) };
                    list[*found] = i as u64;
                    *found += 1;
                }
                found
            });
            let wanted = |rest: u64| (0..n as u64).filter(|i| i % 3 != 0 && i % 2 == rest).collect::<Vec<_>>();
            assert_eq!(odd[..lists[0]], wanted(1), "{parts} parts");
            assert_eq!(even[..lists[1]], wanted(0), "{parts} parts");
        }
    }

    #[test]
    fn each_thread_has_the_rows_of_its_entries() {
        // Some keys once, one of them in half of the entries.
        let mut list: Vec<u64> = (0..500).map(|i| keyed(i * 2, i)).chain((0..500).map(|i| keyed(600, i))).collect();
        list.sort_unstable();
        for parts in [1, 2, 5, 64] {
            let mut data = vec![0u32; 3 * 1000];
            each_run(parts, &list, 0..list.len(), Rows::all(&mut data, 3), &|range, mut rows| {
                for &entry in &list[range] {
                    assert_eq!(rows.peek(key(entry)).len(), 3);
                    rows.row(key(entry)).iter_mut().for_each(|word| *word += 1);
                }
            });
            for (row, words) in data.chunks(3).enumerate() {
                let wanted = u32::from(row % 2 == 0) + 500 * u32::from(row == 600);
                assert_eq!(words, [wanted; 3], "row {row}, {parts} parts");
            }
        }
    }
}
