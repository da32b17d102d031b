//! What the stages of a parameter-shared table meet.

use hotrow::layout::{NONE, Robe, Target};
use rand::RngExt as _;
use rand_pcg::Pcg64;

/// Dim, chunk and weights: chunks of one and of all, that divide dim and that do not, longer than a row; arrays that one chunk fills.
pub(super) const SHAPES: [[u32; 3]; 9] = [
    [1, 1, 1],
    [4, 1, 50],
    [8, 3, 40],
    [17, 32, 90],
    [33, 33, 33],
    [64, 32, 1000],
    [100, 7, 5000],
    [128, 32, 300_000],
    [130, 50, 2_038_074_743],
];

pub(super) fn robe([dim, chunk, weights]: [u32; 3]) -> Robe {
    let chunks = dim.div_ceil(chunk);
    let starts = weights - chunk + 1;
    Robe { dim, chunk, chunks, starts, weights, reach: chunk.min(dim), tail: dim - (chunks - 1) * chunk, dense: 0 }
}

/// Invocations of a row of `floats`.
pub(super) fn lanes(floats: u32) -> u32 {
    [4, 8, 16, 32].into_iter().find(|&lanes| lanes >= floats).unwrap_or(32)
}

/// Hashes of rows, some of which are left out.
pub(super) fn hashes(source: &mut Pcg64, n: usize) -> Vec<u32> {
    let hash = |_| if source.random_bool(0.1) { NONE } else { source.random_range(0..2_038_074_743) };
    (0..n).map(hash).collect()
}

/// Sorted chunks as backward sees them.
pub(super) struct Chunks {
    pub(super) segment: Vec<u32>,
    pub(super) targets: Vec<Target>,
    /// First gradient, and coefficient.
    pub(super) accesses: Vec<[u32; 2]>,
}

/// Chunks of `outputs` outputs at distinct ascending starts, as many at each as `lengths` says; fewer starts if there is no room for them.
/// Coefficients are powers of two, so that the order of a sum shows in its bits.
pub(super) fn chunks(source: &mut Pcg64, robe: &Robe, lengths: &[u32], outputs: u32) -> Chunks {
    let mut starts: Vec<u32> = match robe.starts > 1000 && source.random_bool(0.5) {
        true => lengths.iter().map(|_| source.random_range(0..robe.starts)).collect(),
        // Next to each other, at the end of the array too.
        false => (robe.starts - robe.starts.min(lengths.len() as u32)..robe.starts).collect(),
    };
    starts.sort_unstable();
    starts.dedup();
    let (segment, targets) =
        super::targets_of(&lengths[..starts.len()], &starts.iter().map(|&start| (start, start)).collect::<Vec<_>>());
    let accesses = segment.iter().map(|_| {
        let coefficient: f32 = [0.5, -1.0, 2.0, 4.0][source.random_range(0..4)];
        let first = source.random_range(0..outputs) * robe.dim + source.random_range(0..robe.chunks) * robe.chunk;
        [first, coefficient.to_bits()]
    });
    let accesses = accesses.collect();
    Chunks { segment, targets, accesses }
}
