//! Samples whose rows are all pinned, packed into batches of their own (P3 section III).
//!
//! A batch of hot samples finds every row in the cache: none crosses the bus. The others, *normal* samples, wait until they fill a batch too.

use crate::scars::window::Window;
use std::num::NonZeroUsize;

#[cfg(test)]
mod tests;

/// A set of linear rows: those that are pinned. A bit for each row up to the largest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotRows {
    bits: Vec<u64>,
}

impl HotRows {
    /// Of linear rows in any order, those that [`Embedding::pinned`](crate::Embedding::pinned) names; one that comes twice counts once.
    #[must_use]
    pub fn new(rows: &[u32]) -> Self {
        let words = rows.iter().max().map_or(0, |&largest| largest as usize / 64 + 1);
        let mut bits = vec![0; words];
        rows.iter().for_each(|&row| bits[row as usize / 64] |= 1 << (row % 64));
        Self { bits }
    }

    /// Whether it has this row.
    #[inline]
    #[must_use]
    pub fn has(&self, row: u32) -> bool {
        self.bits.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether it has all of these: whether a sample of these rows is hot. One without rows is.
    pub fn has_all(&self, rows: impl IntoIterator<Item = u32>) -> bool {
        rows.into_iter().all(|row| self.has(row))
    }

    /// How many rows it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|&word| word == 0)
    }
}

/// What the samples of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// All rows of each are pinned.
    Hot,
    /// Each has a row that is not.
    Normal,
}

/// Samples of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotBatch<T> {
    /// Which.
    pub kind: Kind,
    /// As many as were asked for, fewer in the last batch of each kind. Never none.
    pub samples: Vec<T>,
}

/// How many samples there were of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Hot ones.
    pub hot: u64,
    /// The others.
    pub normal: u64,
}

impl Samples {
    /// Hot ones among all, 0 to 1; 0 of none.
    #[must_use]
    pub fn hot_share(self) -> f64 {
        self.hot as f64 / (self.hot + self.normal).max(1) as f64
    }
}

/// Packs a stream of samples into batches of one kind, each sample once.
///
/// A batch comes when it is full; the shorter rests come at the end, hot first. Inside a kind the order is the stream's, unless
/// [`HotBatches::shuffled`]. It holds at most `2 batch - 1` samples, and the shuffle's window, however long the stream.
///
/// A sample is whatever the stream yields. Of a stream of `Result`s, call errors normal: they come out with a batch, none is lost.
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
/// A batch of one kind is no random sample of the data: training sees the hot samples together. Over an epoch each counts once all the same.
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
    /// Batches of `batch` samples (at least one); `is_hot` says which are hot: [`HotRows::has_all`] of a sample's linear rows.
    pub fn new(samples: impl IntoIterator<IntoIter = I>, batch: usize, is_hot: F) -> Self {
        let batch = NonZeroUsize::new(batch).map_or(1, NonZeroUsize::get);
        let (hot, normal) = (Vec::new(), Vec::new());
        let samples = samples.into_iter().fuse();
        Self { samples, is_hot, batch, window: Window::new(0, 0), hot, normal, seen: Samples::default(), peak: 0 }
    }

    /// Shuffles the stream before it is packed, `window` samples being held for it: each that comes sends on one of those, drawn evenly
    /// by `seed`. A sample comes at most `window` places early, and more than `k window` places late with probability e^-(k + 1); if the
    /// window holds them all, every order is as likely as another. To be called before the first batch.
    #[must_use]
    pub fn shuffled(mut self, window: usize, seed: u32) -> Self {
        self.window = Window::new(window, seed);
        self
    }

    /// Samples of each kind so far; those that wait in the shuffle's window are not counted yet.
    #[must_use]
    pub const fn samples(&self) -> Samples {
        self.seen
    }

    /// The most samples held at any time, those of the batch that came then included.
    #[must_use]
    pub const fn peak(&self) -> usize {
        self.peak
    }

    /// The next sample to be packed.
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
