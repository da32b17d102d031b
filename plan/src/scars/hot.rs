//! Batches of hot samples, whose rows are all pinned (SCARS, section III).
//!
//! A batch of hot samples finds every row in the cache, so no row crosses the bus. All other samples are *normal* and are batched separately.

/// Packs a stream of samples into batches of one kind: pairs of whether all rows of each sample are pinned, and the samples. Each sample comes once,
/// and within a kind the order is the stream's.
///
/// A batch is returned when it is full; the incomplete ones, never empty, come at the end, hot first. At most `2 batch - 1` samples are held, however
/// long the stream.
///
/// A sample is any item of the stream. If the stream yields `Result`s, treat errors as normal: then each error comes out with a batch.
///
/// ```
/// use hotrow_plan::scars::HotBatches;
/// use std::collections::HashSet;
///
/// let pinned = HashSet::from([1, 2, 3]);
/// let samples = [vec![1, 2], vec![9, 1], vec![3], vec![2, 2]];
/// let mut batches = HotBatches::new(samples.iter(), 2, |rows| rows.iter().all(|row| pinned.contains(row)));
/// let first = batches.next().expect("four samples");
/// assert_eq!(first, (true, vec![&samples[0], &samples[2]]));
/// assert_eq!(batches.count(), 2);
/// ```
///
/// A batch of one kind is not a random sample of the data: training sees the hot samples together. Over an epoch each sample still counts once.
#[derive(Clone, Debug)]
pub struct HotBatches<I: Iterator, F> {
    samples: std::iter::Fuse<I>,
    is_hot: F,
    batch: usize,
    /// The samples that wait: normal, and hot.
    waiting: [Vec<I::Item>; 2],
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> HotBatches<I, F> {
    /// Packs `samples` into batches of `batch` samples (at least one). `is_hot` says whether a sample is hot: whether all its linear rows are among
    /// those of [`Embedding::pinned`](hotrow::Embedding::pinned).
    pub fn new(samples: impl IntoIterator<IntoIter = I>, batch: usize, is_hot: F) -> Self {
        let samples = samples.into_iter().fuse();
        Self { samples, is_hot, batch: batch.max(1), waiting: [Vec::new(), Vec::new()] }
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> Iterator for HotBatches<I, F> {
    type Item = (bool, Vec<I::Item>);

    fn next(&mut self) -> Option<Self::Item> {
        for sample in self.samples.by_ref() {
            let hot = (self.is_hot)(&sample);
            let samples = &mut self.waiting[usize::from(hot)];
            samples.push(sample);
            if samples.len() == self.batch {
                return Some((hot, std::mem::take(samples)));
            }
        }
        let hot = !self.waiting[1].is_empty();
        let samples = std::mem::take(&mut self.waiting[usize::from(hot)]);
        (!samples.is_empty()).then_some((hot, samples))
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> std::iter::FusedIterator for HotBatches<I, F> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sample = (usize, Vec<u32>);

    /// The batches of each kind, normal and hot.
    fn packed(samples: &[Sample], pinned: &[u32], batch: usize) -> [Vec<Vec<Sample>>; 2] {
        let is_hot = |sample: &Sample| sample.1.iter().all(|row| pinned.contains(row));
        let mut found = [Vec::new(), Vec::new()];
        HotBatches::new(samples.to_vec(), batch, is_hot).for_each(|(hot, batch)| found[usize::from(hot)].push(batch));
        found
    }

    proptest! {
        #[test]
        fn each_sample_comes_once_in_order_with_its_kind(
            samples in proptest::collection::vec(proptest::collection::vec(0..200_u32, 0..4), 0..200),
            pinned in proptest::collection::vec(0..200_u32, 1..150),
            batch in 1..20_usize,
        ) {
            let samples: Vec<Sample> = samples.into_iter().enumerate().collect();
            let is_hot = |sample: &Sample| sample.1.iter().all(|row| pinned.contains(row));
            let (hot, normal): (Vec<_>, Vec<_>) = samples.iter().cloned().partition(is_hot);
            let wanted = [&normal, &hot].map(|kind| kind.chunks(batch).map(<[_]>::to_vec).collect::<Vec<_>>());
            prop_assert_eq!(&packed(&samples, &pinned, batch), &wanted);
            // One pinned row fewer is seen, if a hot sample has it.
            let fewer: Vec<u32> = pinned.iter().copied().filter(|row| *row != pinned[0]).collect();
            let differs = hot.iter().any(|sample| sample.1.contains(&pinned[0]));
            prop_assert_eq!(packed(&samples, &fewer, batch) != wanted, differs);
        }
    }
}
