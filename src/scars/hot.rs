//! Batches of hot samples, whose rows are all pinned (SCARS, section III).
//!
//! A batch of hot samples finds every row in the cache, so no row crosses the bus. All other samples are *normal* and
//! are batched separately.

use crate::scars::window::Window;
use std::num::NonZeroUsize;

#[cfg(test)]
mod tests;

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

    /// Number of rows in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }
}

/// The kind of the samples in a batch.
///
/// Example: [`HotBatches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// All rows of each sample are pinned.
    Hot,
    /// Each sample has at least one row that is not pinned.
    Normal,
}

/// A batch of samples of one kind.
///
/// Example: [`HotBatches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotBatch<T> {
    /// The kind of all its samples.
    pub kind: Kind,
    /// The samples: as many as the batch size, fewer in the last batch of each kind, never none.
    pub samples: Vec<T>,
}

/// Number of samples of each kind.
///
/// Example: [`HotBatches`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Hot samples.
    pub hot: u64,
    /// Normal samples.
    pub normal: u64,
}

impl Samples {
    /// Share of the hot samples, 0 to 1; 0 without samples.
    #[must_use]
    pub fn hot_share(self) -> f64 {
        self.hot as f64 / (self.hot + self.normal).max(1) as f64
    }
}

/// Packs a stream of samples into batches of one kind. Each sample comes once.
///
/// A batch is returned when it is full; the incomplete ones come at the end, hot first. Within a kind the order is the
/// stream's, unless [`HotBatches::shuffled`]. At most `2 batch - 1` samples and the shuffle's window are held, however
/// long the stream.
///
/// A sample is any item of the stream. If the stream yields `Result`s, treat errors as normal: then each error comes
/// out with a batch.
///
/// ```
/// # use hotrow::scars::{HotBatches, HotRows, Kind};
/// let pinned = HotRows::new(&[1, 2, 3]);
/// let samples = [vec![1, 2], vec![9, 1], vec![3], vec![2, 2]];
/// let mut batches = HotBatches::new(samples.iter(), 2, |rows| pinned.has_all(rows.iter().copied()));
/// let first = batches.next().expect("four samples");
/// assert_eq!((first.kind, first.samples), (Kind::Hot, vec![&samples[0], &samples[2]]));
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
    window: Window<I::Item>,
    hot: Vec<I::Item>,
    normal: Vec<I::Item>,
    seen: Samples,
    peak: usize,
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> HotBatches<I, F> {
    /// Packs `samples` into batches of `batch` samples (at least one). `is_hot` tells whether a sample is hot, usually
    /// by [`HotRows::has_all`] of its linear rows.
    pub fn new(samples: impl IntoIterator<IntoIter = I>, batch: usize, is_hot: F) -> Self {
        let batch = NonZeroUsize::new(batch).map_or(1, NonZeroUsize::get);
        let (hot, normal) = (Vec::new(), Vec::new());
        let samples = samples.into_iter().fuse();
        Self { samples, is_hot, batch, window: Window::new(0, 0), hot, normal, seen: Samples::default(), peak: 0 }
    }

    /// Shuffles the stream before it is packed, with a window of `window` samples: each new sample releases one of
    /// them, drawn uniformly by `seed`. A sample comes at most `window` places early, and more than `k window` places
    /// late with probability e^-(k + 1). If the window holds all samples, every order is equally likely. Call this
    /// before the first batch.
    #[must_use]
    pub fn shuffled(mut self, window: usize, seed: u32) -> Self {
        self.window = Window::new(window, seed);
        self
    }

    /// Samples of each kind so far, without those that wait in the shuffle's window.
    #[must_use]
    pub const fn samples(&self) -> Samples {
        self.seen
    }

    /// The largest number of samples held at any time, including the samples of a returned batch.
    #[must_use]
    pub const fn peak(&self) -> usize {
        self.peak
    }

    /// The next sample to pack.
    fn shuffled_sample(&mut self) -> Option<I::Item> {
        for sample in self.samples.by_ref() {
            if let Some(sample) = self.window.push(sample) {
                return Some(sample);
            }
        }
        self.window.pop()
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> Iterator for HotBatches<I, F> {
    type Item = HotBatch<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(sample) = self.shuffled_sample() {
            let (kind, samples, seen) = if (self.is_hot)(&sample) {
                (Kind::Hot, &mut self.hot, &mut self.seen.hot)
            } else {
                (Kind::Normal, &mut self.normal, &mut self.seen.normal)
            };
            samples.push(sample);
            *seen += 1;
            let full = samples.len() == self.batch;
            self.peak = self.peak.max(self.window.len() + self.hot.len() + self.normal.len());
            if full {
                let samples = match kind {
                    Kind::Hot => std::mem::take(&mut self.hot),
                    Kind::Normal => std::mem::take(&mut self.normal),
                };
                return Some(HotBatch { kind, samples });
            }
        }
        let (kind, samples) = match std::mem::take(&mut self.hot) {
            rest if rest.is_empty() => (Kind::Normal, std::mem::take(&mut self.normal)),
            rest => (Kind::Hot, rest),
        };
        (!samples.is_empty()).then_some(HotBatch { kind, samples })
    }
}

impl<I: Iterator, F: FnMut(&I::Item) -> bool> std::iter::FusedIterator for HotBatches<I, F> {}
