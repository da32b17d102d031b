//! The buffers of sort and dedup: keys, values and scratch.

use crate::{
    error::Error,
    gpu::engine::{context::Context, scratch::Make},
};

/// Keys of a block: `SORT_BLOCK` in `shaders/shared/sort.wgsl`.
pub(crate) const BLOCK: u32 = 3072;

/// Keys and their values.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub(crate) keys: &'a wgpu::Buffer,
    pub(crate) values: &'a wgpu::Buffer,
}

/// The result of a sort.
pub(crate) type Sorted<'a> = Pairs<'a>;

/// The input of a pass.
pub(crate) struct Source<'a> {
    pub(crate) keys: wgpu::BindingResource<'a>,
    pub(crate) values: wgpu::BindingResource<'a>,
}

/// The output of passes: two pairs of arrays, used in turn.
#[derive(Debug)]
pub(crate) struct SortSpace<B = wgpu::Buffer> {
    pub(crate) arrays: [[B; 2]; 2],
}

/// Scratch of a sort and dedup of up to `capacity` keys. Several sorts share it.
#[derive(Debug)]
pub(crate) struct SortScratch<B = wgpu::Buffer> {
    /// Counts of digits, block by block: one buffer for a pass, the other for the next, in turn.
    pub(crate) digits: [B; 2],
    pub(crate) totals: B,
}

/// The input of a sort, and its key bits.
pub(crate) struct SortJob<'a> {
    /// The keys, which the sort does not change.
    pub(crate) keys: wgpu::BindingResource<'a>,
    /// The values, or `None` for the keys' positions.
    pub(crate) values: Option<wgpu::BindingResource<'a>>,
    /// Most keys that there can be.
    pub(crate) capacity: u32,
    /// Index of the step's count that has the number of keys.
    pub(crate) count: usize,
    /// Number of low bits of a key that order it.
    pub(crate) key_bits: u32,
    /// The lowest digits of the keys, if the stages that wrote the keys have counted them.
    pub(crate) counted: Option<&'a wgpu::Buffer>,
}

impl SortJob<'_> {
    /// A mask of the low bits that order a key.
    pub(crate) fn mask(&self) -> u32 {
        u32::MAX.checked_shr(32 - self.key_bits).unwrap_or(0)
    }
}

/// Bytes of the counts of a pass of `capacity` keys: 256 for each block.
pub(crate) const fn digit_bytes(capacity: u32) -> u64 {
    let blocks = capacity.div_ceil(BLOCK);
    1024 * if blocks > 0 { blocks as u64 } else { 1 }
}

/// Number of 8-bit passes of a sort.
pub(crate) fn passes(key_bits: u32) -> u32 {
    key_bits.div_ceil(8).max(1)
}

/// The output of a dedup.
pub(crate) struct DedupTo<'a> {
    /// For each sorted key, or for each key's value if there is a base, the number of its distinct key.
    pub(crate) segment: &'a wgpu::Buffer,
    /// For each distinct key, the position of its first sorted key; if there is a base, that key's value beside it.
    pub(crate) starts: &'a wgpu::Buffer,
    /// Index of the step's count that gets the number of distinct keys.
    pub(crate) segments: usize,
    /// Index of the step's count that gets the number of keys other than NONE.
    pub(crate) valid: usize,
    /// The number of the first distinct key in a list by values.
    pub(crate) base: Option<u32>,
}

impl DedupTo<'_> {
    /// The last two words of a dedup's uniform.
    pub(crate) fn by_value(&self) -> (u32, u32) {
        (u32::from(self.base.is_some()), self.base.unwrap_or_default())
    }
}

impl SortSpace {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut Make::buffers(context), capacity)
    }

    pub(crate) fn pairs(&self, which: usize) -> Pairs<'_> {
        Pairs { keys: &self.arrays[which][0], values: &self.arrays[which][1] }
    }

    /// The arrays that have the result of a sort by `key_bits` bits.
    pub(crate) fn sorted(&self, key_bits: u32) -> Sorted<'_> {
        self.pairs((passes(key_bits) as usize - 1) & 1)
    }
}

impl<B> SortSpace<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        let mut array = || make.one("sorted", u64::from(capacity) * 4);
        Ok(Self { arrays: [[array()?, array()?], [array()?, array()?]] })
    }
}

impl SortScratch {
    pub(crate) fn new(context: &Context, capacity: u32) -> Result<Self, Error> {
        Self::of(&mut Make::buffers(context), capacity)
    }
}

impl<B> SortScratch<B> {
    /// Makes the buffers from the list of their names and sizes.
    pub(crate) fn of(make: &mut Make<'_, B>, capacity: u32) -> Result<Self, Error> {
        // More than the one count for each block that dedup needs.
        let digits = digit_bytes(capacity);
        let mut make = |bytes: u64| make.one("scan", bytes);
        Ok(Self { digits: [make(digits)?, make(digits)?], totals: make(1024)? })
    }
}
