//! The order in which an epoch takes its samples.

use rand::{SeedableRng as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;
use std::ops::Range;

/// How a task's samples are mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mixed {
    /// Each epoch shuffles a list of all samples.
    Whole,
    /// Each epoch shuffles blocks of a log, and then the samples of some blocks at a time, so that no list holds all samples.
    Blocks,
    /// Not at all: accesses come in the log's order.
    Not,
}

/// Samples of a block, which lie together in the log.
const BLOCK: u64 = 1024;

/// Blocks whose samples are shuffled together.
const WINDOW: usize = 64;

#[derive(Debug)]
pub(crate) enum Order {
    Whole(Vec<u32>),
    Blocks {
        count: u64,
        seed: u64,
        /// The sample that begins block 0. The last block may be short and comes last, so each epoch begins elsewhere.
        first: u64,
        blocks: Vec<u32>,
        /// The window that was taken last, and its samples.
        window: (usize, Vec<u64>),
    },
    Not,
}

impl Order {
    pub(crate) fn of(mixed: Mixed, count: u64, seed: u64, epoch: u32) -> Self {
        // The odd factor scatters seeds, so that neighbouring seeds or epochs begin differently.
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(epoch) << 32);
        let mut random = Pcg64::seed_from_u64(seed);
        let shuffled = |last: u64, random: &mut Pcg64| {
            let mut list: Vec<u32> = (0..last as u32).collect();
            list.shuffle(random);
            list
        };
        match mixed {
            Mixed::Not => Self::Not,
            Mixed::Whole => Self::Whole(shuffled(count, &mut random)),
            Mixed::Blocks => {
                let mut blocks = shuffled(count / BLOCK, &mut random);
                blocks.extend((!count.is_multiple_of(BLOCK)).then_some((count / BLOCK) as u32));
                let first = rand::RngExt::random_range(&mut random, 0..count.max(1));
                Self::Blocks { count, seed, first, blocks, window: (usize::MAX, Vec::new()) }
            }
        }
    }

    /// The samples at these places of the epoch.
    pub(crate) fn samples(&mut self, places: Range<u64>) -> Vec<u64> {
        match self {
            Self::Not => places.collect(),
            Self::Whole(list) => places.map(|place| list[place as usize].into()).collect(),
            Self::Blocks { count, seed, first, blocks, window } => {
                let each = WINDOW as u64 * BLOCK;
                let of = |place: u64| {
                    let at = (place / each) as usize;
                    if window.0 != at {
                        let own = &blocks[at * WINDOW..blocks.len().min((at + 1) * WINDOW)];
                        let starts = own.iter().map(|&block| u64::from(block) * BLOCK);
                        let samples = starts.flat_map(|start| start..(*count).min(start + BLOCK));
                        let mut samples: Vec<u64> = samples.map(|sample| (sample + *first) % *count).collect();
                        samples.shuffle(&mut Pcg64::seed_from_u64(seed.wrapping_add(at as u64 + 1)));
                        *window = (at, samples);
                    }
                    window.1[(place % each) as usize]
                };
                places.map(of).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_once_in_an_order_of_its_own() {
        for (mixed, count) in [(Mixed::Whole, 5000), (Mixed::Blocks, 5), (Mixed::Blocks, 150_000), (Mixed::Not, 5000)] {
            let of = |seed, epoch| Order::of(mixed, count, seed, epoch).samples(0..count);
            let whole = of(1, 0);
            let mut sorted = whole.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count), "{mixed:?} of {count}");
            let others = [of(2, 0), of(1, 1)];
            assert_eq!(others.iter().all(|other| *other != whole), mixed != Mixed::Not, "{mixed:?} of {count}");
            // A run that goes on from a checkpoint begins in the middle.
            let (from, to) = (count / 3, count / 2);
            assert_eq!(Order::of(mixed, count, 1, 0).samples(from..to), whole[from as usize..to as usize]);
        }
        // Blocks come from the whole log, and their samples are mixed: neighbours of a window are far apart, and none stays at its place.
        let whole = Order::of(Mixed::Blocks, 150_000, 1, 0).samples(0..65_536);
        let far = whole.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) > 2048).count();
        let parts: std::collections::HashSet<u64> = whole[..1000].iter().map(|sample| sample / 15_000).collect();
        assert!(far > 60_000 && parts.len() == 10, "{far} {parts:?}");
        // The largest log takes no list of its samples.
        let Order::Blocks { blocks, .. } = Order::of(Mixed::Blocks, 4_373_472_329, 1, 0) else { panic!() };
        assert_eq!(blocks.len(), 4_270_970);
    }

    /// Committed results depend on this order.
    #[test]
    fn a_whole_list_is_as_ever() {
        assert_eq!(Order::of(Mixed::Whole, 8, 3, 1).samples(0..8), [6, 7, 0, 2, 3, 4, 5, 1]);
    }
}
