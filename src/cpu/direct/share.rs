//! Work divided among threads.

use std::ops::Range;

/// Number of accesses below which handing work to another thread costs more than it saves.
const PAYS: usize = 2048;

/// Number of parts into which `accesses` accesses are cut: one for each thread that has enough to do.
pub(crate) fn parts(accesses: usize) -> usize {
    rayon::current_num_threads().min(accesses / PAYS).max(1)
}

/// Runs both, on two threads if there is enough work for them.
pub(crate) fn both(pays: bool, left: impl FnOnce() + Send, right: impl FnOnce() + Send) {
    if pays {
        rayon::join(left, right);
    } else {
        left();
        right();
    }
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
