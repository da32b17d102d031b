//! A trace cut into the batches of all ranks, and each rank's part of a batch (SPEC 11).

use crate::failure::Failure;
use crate::trace::Trace;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use std::ops::Range;

/// How a trace is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Bags of a batch of all ranks; a multiple of the features.
    pub(super) batch: u32,
    pub(super) features: u32,
    /// Accesses of a bag, for a trace without bags of its own; 1 if not given.
    pub(super) lookups: Option<u32>,
    /// The most batches.
    pub(super) steps: Option<u64>,
    /// The seed of a random order of the bags.
    pub(super) shuffled: Option<u64>,
}

/// The batches of a trace. In each the bags lie feature by feature.
#[derive(Debug)]
pub(super) struct Batches {
    ids: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    offsets: Vec<u32>,
    /// The bags in the order in which they are dealt, in whole batches.
    order: Vec<u32>,
    batch: u32,
    features: u32,
    /// Bags behind the last whole batch.
    pub(super) left_out: usize,
}

impl Batches {
    pub(super) fn new(trace: Trace, cut: Cut) -> Result<Self, Failure> {
        let Trace { name, ids, offsets, .. } = trace;
        let offsets = match (offsets, cut.lookups) {
            (Some(_), Some(found)) => {
                return Err(Failure::Usage(format!(
                    "--lookups: wanted none, since {name} has bags of its own, found {found}; leave it out"
                )));
            }
            (Some(offsets), None) => offsets,
            (None, lookups) => {
                let whole = ids.len() as u32 / lookups.unwrap_or(1);
                (0..=whole).map(|bag| bag * lookups.unwrap_or(1)).collect()
            }
        };
        let mut order: Vec<u32> = (0..offsets.len() as u32 - 1).collect();
        if let Some(seed) = cut.shuffled {
            order.shuffle(&mut Pcg64::seed_from_u64(seed));
        }
        let bags = order.len();
        let most = cut.steps.map_or(usize::MAX, |steps| usize::try_from(steps).unwrap_or(usize::MAX));
        let steps = (bags / cut.batch as usize).min(most);
        if steps == 0 {
            return Err(Failure::Usage(format!(
                "--batch: wanted at most {bags}, the bags of {name}, found {}; take a longer trace or a smaller batch",
                cut.batch
            )));
        }
        order.truncate(steps * cut.batch as usize);
        Ok(Self { left_out: bags - order.len(), ids, offsets, order, batch: cut.batch, features: cut.features })
    }

    pub(super) fn steps(&self) -> usize {
        self.order.len() / self.batch as usize
    }

    /// Accesses of all batches.
    pub(super) fn accesses(&self) -> usize {
        self.order.iter().map(|&bag| self.bag(bag).len()).sum()
    }

    fn bag(&self, bag: u32) -> &[u32] {
        let ends = &self.offsets[bag as usize..bag as usize + 2];
        &self.ids[ends[0] as usize..ends[1] as usize]
    }

    /// The bags of a rank's part of a step, feature by feature.
    pub(super) fn part(&self, step: usize, rank: u32, ranks: u32) -> impl Iterator<Item = &[u32]> {
        let samples = self.batch / self.features;
        let (first, mine) = (step * self.batch as usize, share(samples, rank, ranks));
        (0..self.features).flat_map(move |feature| {
            let start = first + (feature * samples) as usize;
            let bags = &self.order[start + mine.start as usize..start + mine.end as usize];
            bags.iter().map(|&bag| self.bag(bag))
        })
    }

    /// The slice of the batch, of as many as virtual shards, that has a bag of a rank's part.
    pub(super) fn slice(&self, bag: u32, rank: u32, (ranks, shards): (u32, u32)) -> u32 {
        let samples = self.batch / self.features;
        let mine = share(samples, rank, ranks);
        let sample = u64::from(mine.start + bag % mine.len() as u32);
        // The last slice that begins at this sample or before it.
        (((sample + 1) * u64::from(shards) - 1) / u64::from(samples)) as u32
    }

    /// The accesses of a step, as one rank would have them.
    pub(super) fn all(&self, step: usize) -> Vec<u32> {
        self.part(step, 0, 1).flatten().copied().collect()
    }
}

/// A rank's part of the bags of a feature: contiguous, equal within one bag.
pub(super) fn share(samples: u32, rank: u32, ranks: u32) -> Range<u32> {
    let end = |parts: u32| (u64::from(samples) * u64::from(parts) / u64::from(ranks)) as u32;
    end(rank)..end(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bag b has b % 4 accesses, all to row b.
    fn trace(bags: u32) -> Trace {
        let lengths = (0..bags).map(|bag| bag % 4);
        let offsets = std::iter::once(0).chain(lengths.scan(0, |end, length| {
            *end += length;
            Some(*end)
        }));
        let ids = (0..bags).flat_map(|bag| vec![bag; bag as usize % 4]).collect();
        Trace { name: "small".into(), ids, offsets: Some(offsets.collect()), distinct: bags }
    }

    const CUT: Cut = Cut { batch: 10, features: 2, lookups: None, steps: None, shuffled: None };

    #[test]
    fn parts_are_contiguous_within_each_feature() {
        let batches = Batches::new(trace(23), CUT).unwrap();
        assert_eq!((batches.steps(), batches.left_out), (2, 3));
        let part = |rank| batches.part(1, rank, 4).flatten().copied().collect::<Vec<u32>>();
        // Five bags of each feature: 1, 1, 1 and 2 for the ranks. Bags 12 and 16 are empty.
        assert_eq!([part(0), part(1)], [vec![10, 10, 15, 15, 15], vec![11, 11, 11]]);
        assert_eq!([part(2), part(3)], [vec![17], vec![13, 14, 14, 18, 18, 19, 19, 19]]);
        assert_eq!(batches.all(1), [10, 10, 11, 11, 11, 13, 14, 14, 15, 15, 15, 17, 18, 18, 19, 19, 19]);
        assert_eq!(share(5, 3, 4), 3..5);
        // A bag lies in the slice whose share has its sample.
        for rank in 0..4 {
            for bag in 0..2 * share(5, rank, 4).len() as u32 {
                let sample = share(5, rank, 4).start + bag % share(5, rank, 4).len() as u32;
                let slice = batches.slice(bag, rank, (4, 16));
                assert!(share(5, slice, 16).contains(&sample), "{rank} {bag}: {slice}");
            }
        }
    }

    #[test]
    fn shuffled_bags_are_whole_and_the_same_for_one_seed() {
        let shuffled = |seed| {
            let batches = Batches::new(trace(20), Cut { shuffled: Some(seed), ..CUT }).unwrap();
            [batches.all(0), batches.all(1)].concat()
        };
        assert_eq!(shuffled(3), shuffled(3));
        assert_ne!(shuffled(3), shuffled(4));
        let mut sorted = shuffled(3);
        sorted.sort_unstable();
        assert_eq!(sorted, trace(20).ids);
    }

    #[test]
    fn traces_without_bags_are_cut_into_equal_ones() {
        let flat = || Trace { offsets: None, ids: (0..47).collect(), ..trace(1) };
        let batches = Batches::new(flat(), Cut { lookups: Some(4), steps: Some(1), ..CUT }).unwrap();
        assert_eq!((batches.steps(), batches.left_out, batches.accesses()), (1, 1, 40));
        let refused = |trace, cut| Batches::new(trace, cut).unwrap_err().to_string();
        assert!(refused(flat(), Cut { lookups: Some(5), ..CUT }).contains("--batch: wanted at most 9"));
        assert!(refused(trace(20), Cut { lookups: Some(5), ..CUT }).contains("--lookups"));
    }
}
