//! Gradients that a rank sums before it sends them (SPEC 11).

use std::ops::Range;

use hotrow::{Error, GroupConfig, Pooling};

use crate::{error::RankError, requests::Requests};

/// Where a rank's part of a batch lies in that of all ranks, in bags of a feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    first: u64,
    own: u64,
    all: u64,
}

impl Share {
    /// The share of a rank; `bags` has the bags of each rank.
    pub(crate) fn new(bags: &[u64], rank: usize) -> Self {
        Self { first: bags[..rank].iter().sum(), own: bags[rank], all: bags.iter().sum() }
    }

    /// The first bag of one of `parts` equal parts.
    const fn start(&self, part: usize, parts: usize) -> u64 {
        (self.all as u128 * part as u128 / parts as u128) as u64
    }

    /// Checks that each rank has its part of the batch, so that no slice has bags of two ranks.
    pub(crate) fn check(bags: &[u64]) -> Result<(), Error> {
        for rank in 0..bags.len() {
            let share = Self::new(bags, rank);
            let [start, end] = [rank, rank + 1].map(|rank| share.start(rank, bags.len()));
            if (share.first, share.own) != (start, end - start) {
                return Err(RankError::Exchange {
                    what: "bags",
                    wanted: format!(
                        "on rank {rank}, for summed gradients, {start} to {end} of {} bags of a feature",
                        share.all
                    ),
                    found: format!("{} to {}", share.first, share.first + share.own),
                    remedy: "give rank r of R the bags floor(n r / R) to floor(n (r + 1) / R) of n, or send each bag's gradient",
                }.into());
            }
        }
        Ok(())
    }

    /// For each output row the number of its bag in the batch of all ranks, and its place in the bag.
    pub(crate) fn numbers(&self, config: &GroupConfig, offsets: &[u32]) -> Vec<[u32; 2]> {
        let mut numbers = Vec::new();
        for (bag, ends) in (0..).zip(offsets.windows(2)) {
            let number = bag / self.own * self.all + self.first + bag % self.own;
            let rows = if config.pooling == Pooling::None { ends[1] - ends[0] } else { 1 };
            numbers.extend((0..rows).map(|place| [number as u32, place]));
        }
        numbers
    }
}

/// The accesses of a batch, sum by sum. A sum has the accesses to one row in one slice of the batch.
#[derive(Debug)]
pub(crate) struct Sums {
    order: Vec<u32>,
    /// The end of each sum in `order`, and its slice.
    ends: Vec<(usize, u32)>,
    /// The end of each row's sums.
    rows: Vec<usize>,
}

impl Sums {
    /// The sums of a rank's part of a batch of legal shape. The rank has slices `slices` of `all`.
    pub(crate) fn new(requests: &Requests, offsets: &[u32], share: &Share, slices: Range<usize>, all: usize) -> Self {
        let mut slice_of = vec![0; requests.positions.len()];
        let starts: Vec<u64> = slices.clone().map(|slice| share.start(slice, all)).collect();
        for (bag, ends) in (0..).zip(offsets.windows(2)) {
            let at = share.first + bag % share.own;
            let slice = slices.start + starts.partition_point(|&start| start <= at) - 1;
            slice_of[ends[0] as usize..ends[1] as usize].fill(slice as u32);
        }
        let slice = |access: u32| slice_of[access as usize];
        let mut this = Self { order: requests.order.clone(), ends: Vec::new(), rows: Vec::new() };
        let mut end = 0;
        for &count in &requests.counts {
            let row = &mut this.order[end..end + count as usize];
            // Stable: within a slice the accesses stay in the order of the batch.
            row.sort_by_key(|&access| slice(access));
            for sum in row.chunk_by(|&a, &b| slice(a) == slice(b)) {
                end += sum.len();
                this.ends.push((end, slice(sum[0])));
            }
            this.rows.push(this.ends.len());
        }
        this
    }

    /// The sums of these rows.
    pub(crate) fn of(&self, rows: Range<usize>) -> Range<usize> {
        let start = |row: usize| row.checked_sub(1).map_or(0, |before| self.rows[before]);
        start(rows.start)..start(rows.end)
    }

    /// The accesses of a sum, and its slice.
    pub(crate) fn sum(&self, sum: usize) -> (&[u32], u32) {
        let start = sum.checked_sub(1).map_or(0, |before| self.ends[before].0);
        (&self.order[start..self.ends[sum].0], self.ends[sum].1)
    }
}
