//! What a group keeps between steps, and the twins of `shaders/shared/tables.wgsl`.

use rayon::prelude::*;

use super::memory::{check, zeroed};
use crate::{
    Error, GroupConfig, Policy,
    init::Filler,
    layout::{CLOCK_WORDS, Layout, NONE, Params, Shard, TABLE_WORDS, table_words},
};

/// Places of the counters, as in `shaders/shared/common.wgsl`.
pub(super) mod counter {
    pub(in crate::cpu) const ACCESSES: usize = 0;
    pub(in crate::cpu) const HITS: usize = 1;
    pub(in crate::cpu) const UNIQUE: usize = 2;
    pub(in crate::cpu) const UNIQUE_MISSES: usize = 3;
    pub(in crate::cpu) const ADMITTED: usize = 4;
    pub(in crate::cpu) const EVICTIONS: usize = 5;
    pub(in crate::cpu) const WRITE_BACKS: usize = 6;
    pub(in crate::cpu) const BYPASS_READS: usize = 7;
    pub(in crate::cpu) const BYPASS_WRITES: usize = 8;
    pub(in crate::cpu) const SKIPPED_ROWS: usize = 9;
    pub(in crate::cpu) const OUT_OF_RANGE: usize = 10;
}

pub(super) fn table_base(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS]
}

pub(super) fn table_rows(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS + 1]
}

pub(super) fn table_of(params: &Params, tables: &[u32], row: u32) -> u32 {
    let (mut low, mut high) = (0, params.tables);
    while high - low > 1 {
        let middle = (low + high) / 2;
        if table_base(tables, middle) <= row {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

pub(super) fn count(tables: &mut [u32], table: u32, counter: usize, amount: u32) {
    let at = CLOCK_WORDS + table as usize * TABLE_WORDS + 2 + 2 * counter;
    let (low, carry) = tables[at].overflowing_add(amount);
    tables[at] = low;
    tables[at + 1] = tables[at + 1].wrapping_add(u32::from(carry));
}

/// The arrays of `gpu::tables::Tables`.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) layout: Layout,
    pub(super) tables: Vec<u32>,
    pub(super) features: Vec<u32>,
    pub(super) ways: Vec<u32>,
    pub(super) cache: Vec<f32>,
    pub(super) records: Vec<Vec<u32>>,
    pub(super) freqs: Vec<Vec<u32>>,
    pub(super) shards: Vec<Shard>,
}

impl Tables {
    pub(super) fn new(config: &GroupConfig, layout: Layout) -> Result<Self, Error> {
        let freqs = if config.policy == Policy::Lfu { 4 * u64::from(layout.total_rows) } else { 0 };
        check("records", layout.table_bytes() + freqs)?;
        let slots = layout.slots() as usize;
        let mut ways = zeroed("ways", slots * 4)?;
        ways.chunks_exact_mut(128).for_each(|set| set[..32].fill(NONE));
        let cache = zeroed("cache", slots * layout.row_words as usize)?;
        let filler = Filler::new(config, &layout);
        let mut records = Vec::new();
        let mut freqs = Vec::new();
        let mut shards = Vec::new();
        for index in 0..layout.shards {
            let first_row = index * layout.rows_per_shard;
            let rows = layout.shard_rows(index) as usize;
            let words = layout.record_words as usize;
            let mut shard = zeroed("records", rows * words)?;
            shard
                .par_chunks_exact_mut(words)
                .zip(first_row..first_row + rows as u32)
                .for_each(|(record, row)| filler.fill(row, record));
            records.push(shard);
            if config.policy == Policy::Lfu {
                freqs.push(zeroed("freqs", rows)?);
            }
            shards.push(Shard { index, first_row, ..Shard::default() });
        }
        let (tables, features) = (table_words(config), config.feature_tables());
        Ok(Self { layout, tables, features, ways, cache, records, freqs, shards })
    }
}
