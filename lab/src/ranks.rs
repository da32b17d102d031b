//! The ranks that train a model together: who has which samples, and sums in an order that the number of ranks does not change.

use hotrow::Error;
use hotrow_dist::{Comm, WireOptions, hand_on};
use std::{cell::RefCell, ops::Range};

/// The connection of a rank, for all tables of a model and for its dense part, and the number of virtual shards.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranks<'a> {
    comm: &'a RefCell<&'a mut dyn Comm>,
    pub(crate) shards: u32,
    pub(crate) wire: WireOptions,
}

impl<'a> Ranks<'a> {
    pub(crate) fn new(comm: &'a RefCell<&'a mut dyn Comm>, shards: u32, wire: WireOptions) -> Self {
        Self { comm, shards, wire }
    }

    /// What the bits of a run depend on.
    pub(crate) fn label(self) -> String {
        let WireOptions { rows, gradients, summed } = self.wire;
        let summed = if summed { " summed" } else { "" };
        format!("{} virtual shards, rows {rows}, gradients {gradients}{summed}", self.shards)
    }

    /// This rank's parts of `samples` samples; there is a part for each shard.
    pub(crate) fn parts(self, samples: usize) -> impl Iterator<Item = Range<usize>> {
        let start = move |part: u32| (samples as u64 * u64::from(part) / u64::from(self.shards)) as usize;
        let (rank, each) = (self.rank(), self.shards / self.size());
        (rank * each..(rank + 1) * each).map(move |part| start(part)..start(part + 1))
    }

    /// The sum of a vector of each part, over the parts of all ranks: neighbours are added, then neighbours of those sums, and so on. This rank
    /// gives the vectors of its parts. Both numbers are powers of two, so a rank's parts are a branch of that tree.
    pub(crate) fn sum(mut self, vectors: Vec<Vec<f32>>) -> Result<Vec<f32>, Error> {
        let own = tree(vectors);
        let words: Vec<u32> = own.iter().map(|value| value.to_bits()).collect();
        let all = self.all_gather(&words)?;
        Ok(tree(
            all.chunks(words.len().max(1)).map(|words| words.iter().copied().map(f32::from_bits).collect()).collect(),
        ))
    }

    /// The sums of numbers over all ranks.
    pub(crate) fn total(mut self, own: &[u64]) -> Result<Vec<u64>, Error> {
        let words: Vec<u32> = own.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]).collect();
        let all = self.all_gather(&words)?;
        let mut sums = vec![0; own.len()];
        for of_rank in all.chunks(words.len().max(1)) {
            for (sum, words) in sums.iter_mut().zip(of_rank.chunks(2)) {
                *sum += u64::from(words[0]) | u64::from(words[1]) << 32;
            }
        }
        Ok(sums)
    }
}

/// Adds neighbours until one vector is left.
fn tree(mut vectors: Vec<Vec<f32>>) -> Vec<f32> {
    while vectors.len() > 1 {
        vectors = vectors
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => left.iter().zip(right).map(|(left, right)| left + right).collect(),
                rest => rest.concat(),
            })
            .collect();
    }
    vectors.pop().unwrap_or_default()
}

/// The ranks' connection is shared by the groups of a model, which take turns.
impl Comm for Ranks<'_> {
    hand_on!(self, self.comm.borrow_mut(); rank size start poll finish all_gather max abort);
}
