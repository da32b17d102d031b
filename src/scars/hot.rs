//! Batches of hot samples, whose rows are all pinned (SCARS, section III).
//!
//! A batch of hot samples finds every row in the cache, so no row crosses the bus. All other samples are *normal* and
//! are batched separately.

/// A set of linear rows, for example the pinned ones. It takes a bit for each row up to the largest.
///
/// Example: [`HotBatches`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotRows {
    bits: Vec<u64>,
}

impl HotRows {
    /// Makes the set from linear rows in any order, such as those of [`Embedding::pinned`](crate::Embedding::pinned). A
    /// row listed twice counts once.
    #[must_use]
    pub fn new(rows: &[u32]) -> Self {
        let words = rows.iter().max().map_or(0, |&largest| largest as usize / 64 + 1);
        let mut bits = vec![0; words];
        rows.iter().for_each(|&row| bits[row as usize / 64] |= 1 << (row % 64));
        Self { bits }
    }

    /// Whether the set has this row.
    #[inline]
    #[must_use]
    pub fn has(&self, row: u32) -> bool {
        self.bits.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether the set has all of these rows; true for no rows. A sample is hot if the set of pinned rows has all its
    /// rows.
    pub fn has_all(&self, rows: impl IntoIterator<Item = u32>) -> bool {
        rows.into_iter().all(|row| self.has(row))
    }
}

/// A batch of samples of one kind.
///
/// Example: [`HotBatches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotBatch<T> {
    /// Whether all rows of each sample are pinned; else each sample has at least one row that is not.
    pub hot: bool,
    /// The samples: as many as the batch size, fewer in the last batch of each kind, never none.
    pub samples: Vec<T>,
}

/// Number of samples of each kind.
///
/// Example: [`HotBatches`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Samples whose rows are all pinned.
    pub hot: u64,
    /// All other samples.
    pub normal: u64,
}

impl Samples {
    /// Share of the hot samples, 0 to 1; 0 without samples.
    #[must_use]
    pub fn hot_share(self) -> f64 {
        self.hot as f64 / (self.hot + self.normal).max(1) as f64
    }
}

/// Packs a stream of samples into batches of one kind. Each sample comes once, and within a kind the order is the stream's.
///
/// A batch is returned when it is full; the incomplete ones come at the end, hot first. At most `2 batch - 1` samples are held, however long
/// the stream.
///
/// A sample is any item of the stream. If the stream yields `Result`s, treat errors as normal: then each error comes
/// out with a batch.
///
/// ```
/// # use hotrow::scars::{HotBatches, HotRows};
/// let pinned = HotRows::new(&[1, 2, 3]);
/// let samples = [vec![1, 2], vec![9, 1], vec![3], vec![2, 2]];
/// let mut batches = HotBatches::new(samples.iter(), 2, |rows| pinned.has_all(rows.iter().copied()));
/// let first = batches.next().expect("four samples");
/// assert_eq!((first.hot, first.samples), (true, vec![&samples[0], &samples[2]]));
/// assert_eq!(batches.count(), 2);
/// ```
///
/// A batch of one kind is not a random sample of the data: training sees the hot samples together. Over an epoch each
/// sample still counts once.
#[derive(Clone, Debug)]
pub struct HotBatches<I: Iterator, F> {
    samples: std::iter::Fuse<I>,
    is_hot: F,
    batch: usize,
    /// The samples that wait: normal, and hot.
    waiting: [Vec<I::Item>; 2],
    seen: Samples,
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> HotBatches<I, F> {
    /// Packs `samples` into batches of `batch` samples (at least one). `is_hot` tells whether a sample is hot, usually
    /// by [`HotRows::has_all`] of its linear rows.
    pub fn new(samples: impl IntoIterator<IntoIter = I>, batch: usize, is_hot: F) -> Self {
        let samples = samples.into_iter().fuse();
        Self { samples, is_hot, batch: batch.max(1), waiting: [Vec::new(), Vec::new()], seen: Samples::default() }
    }

    /// Samples of each kind so far.
    #[must_use]
    pub const fn samples(&self) -> Samples {
        self.seen
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> Iterator for HotBatches<I, F> {
    type Item = HotBatch<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        for sample in self.samples.by_ref() {
            let hot = (self.is_hot)(&sample);
            let samples = &mut self.waiting[usize::from(hot)];
            samples.push(sample);
            *if hot { &mut self.seen.hot } else { &mut self.seen.normal } += 1;
            if samples.len() == self.batch {
                return Some(HotBatch { hot, samples: std::mem::take(samples) });
            }
        }
        let hot = !self.waiting[1].is_empty();
        let samples = std::mem::take(&mut self.waiting[usize::from(hot)]);
        (!samples.is_empty()).then_some(HotBatch { hot, samples })
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> std::iter::FusedIterator for HotBatches<I, F> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Sample = (usize, Vec<u32>);

    /// The batches of each kind, normal and hot, and the samples counted.
    fn packed(samples: &[Sample], pinned: &[u32], batch: usize) -> ([Vec<Vec<Sample>>; 2], Samples) {
        let rows = HotRows::new(pinned);
        let is_hot = |sample: &Sample| rows.has_all(sample.1.iter().copied());
        let (mut batches, mut found) = (HotBatches::new(samples.to_vec(), batch, is_hot), [Vec::new(), Vec::new()]);
        batches.by_ref().for_each(|one| found[usize::from(one.hot)].push(one.samples));
        (found, batches.samples())
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
            let seen = Samples { hot: hot.len() as u64, normal: normal.len() as u64 };
            prop_assert_eq!(packed(&samples, &pinned, batch), (wanted.clone(), seen));
            // One pinned row fewer is seen, if a hot sample has it.
            let fewer: Vec<u32> = pinned.iter().copied().filter(|row| *row != pinned[0]).collect();
            let told = hot.iter().any(|sample| sample.1.contains(&pinned[0]));
            prop_assert_eq!(packed(&samples, &fewer, batch).0 != wanted, told);
        }
    }
}
