//! Step scratch of the fast path, reused from step to step.

use crate::{cpu::direct::sort::Sorter, error::Error, host::alloc::zeroed};

/// Scratch of a training forward and its backward.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) capacity: u32,
    pub(crate) sorter: Sorter,
    /// The output row and the factor of each access, if gradients have factors.
    pub(crate) factors: Vec<[u32; 2]>,
    /// The number of the step whose lists these are.
    pub(crate) t: u32,
    /// Number of accesses listed.
    pub(crate) accesses: usize,
    /// Whether gradients have factors.
    pub(crate) has_factors: bool,
    /// Whether the distinct rows of the step are counted.
    pub(crate) settled: bool,
}

impl Space {
    /// Allocates scratch for `indices` indices.
    pub(crate) fn new(indices: u32) -> Result<Self, Error> {
        // Some spare room, so that batches of nearly one size do not reallocate again and again.
        let capacity = (indices + indices / 8).max(64);
        let n = capacity as usize;
        Ok(Self {
            capacity,
            sorter: Sorter::new(n)?,
            factors: zeroed("access", n)?,
            t: 0,
            accesses: 0,
            has_factors: false,
            settled: true,
        })
    }
}
