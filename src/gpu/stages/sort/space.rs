//! What sort and dedup work on: keys, values, and the arrays they go through.

use crate::{
    error::Error,
    gpu::engine::{
        context::Context,
        scratch::{Make, in_context},
    },
};

/// Keys of a block: `SORT_BLOCK` in `shaders/shared/sort.wgsl`.
pub(crate) const BLOCK: u32 = 3072;

/// Two arrays that belong together.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) values: &'a wgpu::Buffer,
}

/// The result of a sort.
pub(crate) type Sorted<'a> = Pairs<'a>;

/// Where a pass reads.
pub(crate) struct Source<'a> {
    pub(crate) keys: wgpu::BindingResource<'a>,
    pub(crate) values: wgpu::BindingResource<'a>,
}

/// Where sorted pairs go: two sets of arrays, used in turn.
#[derive(Debug)]
pub(crate) struct SortSpace<B = wgpu::Buffer> {
    pub(crate) arrays: [[B; 2]; 2],
}

/// What every sort and dedup of up to `capacity` keys needs in passing; several sorts share it.
#[derive(Debug)]
pub(crate) struct SortScratch<B = wgpu::Buffer> {
    pub(crate) digits: B,
    pub(crate) totals: B,
}

/// What is sorted, and how.
pub(crate) struct SortJob<'a> {
    /// The keys; left as they are.
    pub(crate) keys: wgpu::BindingResource<'a>,
    /// Their values, or `None` for the keys' positions.
    pub(crate) values: Option<wgpu::BindingResource<'a>>,
    /// Most keys there can be.
    pub(crate) capacity: u32,
    /// Which of the step's counts tells how many there are.
    pub(crate) count: usize,
    /// How many low bits of a key order it.
    pub(crate) key_bits: u32,
}

impl SortJob<'_> {
    /// The bits of a key that order it.
    pub(crate) fn mask(&self) -> u32 {
        u32::MAX.checked_shr(32 - self.key_bits).unwrap_or(0)
    }
}

/// Passes of 8 bits that a sort takes.
pub(crate) fn passes(key_bits: u32) -> u32 {
    key_bits.div_ceil(8).max(1)
}

/// Where a dedup leaves its results.
pub(crate) struct DedupTo<'a> {
    /// For each sorted key the number of its distinct key.
    pub(crate) segment: &'a wgpu::Buffer,
    /// For each distinct key the place of its first sorted key.
    pub(crate) starts: &'a wgpu::Buffer,
    /// Which of the step's counts gets the number of distinct keys.
    pub(crate) segments: usize,
    /// Which of the step's counts gets the number of keys other than NONE.
    pub(crate) valid: usize,
}

impl SortSpace {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut in_context(context), capacity)
    }

    pub(crate) fn pairs(&self, which: usize) -> Pairs<'_> {
        Pairs { keys: &self.arrays[which][0], values: &self.arrays[which][1] }
    }

    /// Where a sort by `key_bits` has left its result.
    pub(crate) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        self.pairs((passes(key_bits) as usize - 1) & 1)
    }
}

impl<B> SortSpace<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        let mut array = || make("sorted", u64::from(capacity) * 4);
        Ok(Self { arrays: [[array()?, array()?], [array()?, array()?]] })
    }
}

impl SortScratch {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut in_context(context), capacity)
    }
}

impl<B> SortScratch<B> {
    /// The list of its buffers.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        // A column of 256 counts a block of the sort; more than the one count a block that dedup needs.
        let digits = 256 * u64::from(capacity.div_ceil(BLOCK).max(1));
        Ok(Self { digits: make("scan", digits * 4)?, totals: make("scan", 256 * 4)? })
    }
}
