//! Work over the rows of an array, on all cores where there is enough work.

use rayon::prelude::*;

/// Number of floats below which handing work to other threads costs more than it saves.
pub(crate) const PAYS: usize = 1 << 15;

/// Calls `work(i, row i)` for each row of `width` values. `floats` is the size of the whole work; small work stays on
/// one thread.
pub(crate) fn each_row<T: Send>(
    data: &mut [T],
    width: usize,
    floats: usize,
    work: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    if floats < PAYS {
        data.chunks_exact_mut(width).enumerate().for_each(|(i, row)| work(i, row));
    } else {
        data.par_chunks_exact_mut(width).enumerate().for_each(|(i, row)| work(i, row));
    }
}
