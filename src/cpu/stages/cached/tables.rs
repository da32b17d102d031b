//! The state that a group keeps between steps, and the twins of `shaders/shared/tables.wgsl`.

use crate::{
    config::{GroupConfig, Policy},
    cpu::stages::cached::freqs::Freqs,
    error::Error,
    host::{
        alloc::{check, zeroed},
        pages::Pages,
    },
    record::init::Filler,
    source::Source,
    table::layout::{CLOCK_WORDS, Feature, Layout, NONE, Params, Shard, TABLE_WORDS, features, table_words},
};

/// Positions of the counters, as in `shaders/shared/common.wgsl`.
pub(crate) mod counter {
    pub(crate) const ACCESSES: usize = 0;
    pub(crate) const HITS: usize = 1;
    pub(crate) const UNIQUE: usize = 2;
    pub(crate) const UNIQUE_MISSES: usize = 3;
    pub(crate) const ADMITTED: usize = 4;
    pub(crate) const EVICTIONS: usize = 5;
    pub(crate) const WRITE_BACKS: usize = 6;
    pub(crate) const BYPASS_READS: usize = 7;
    pub(crate) const BYPASS_WRITES: usize = 8;
    pub(crate) const SKIPPED_ROWS: usize = 9;
    pub(crate) const OUT_OF_RANGE: usize = 10;
}

pub(crate) fn table_base(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS]
}

pub(crate) fn table_rows(tables: &[u32], table: u32) -> u32 {
    tables[CLOCK_WORDS + table as usize * TABLE_WORDS + 1]
}

pub(crate) fn table_of(params: &Params, tables: &[u32], row: u32) -> u32 {
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

pub(crate) fn count(tables: &mut [u32], table: u32, counter: usize, amount: u32) {
    let at = CLOCK_WORDS + table as usize * TABLE_WORDS + 2 + 2 * counter;
    let (low, carry) = tables[at].overflowing_add(amount);
    tables[at] = low;
    tables[at + 1] = tables[at + 1].wrapping_add(u32::from(carry));
}

/// Collects the counts of neighbouring rows, which mostly belong to one table, before they are added to it. Twin of
/// `shaders/shared/tally.wgsl`.
#[derive(Default)]
pub(crate) struct Tally {
    table: u32,
    rows: std::ops::Range<u32>,
    counts: [u32; 11],
}

impl Tally {
    pub(crate) fn count(&mut self, params: &Params, tables: &mut [u32], row: u32, counter: usize) {
        if !self.covers(row) {
            self.enter(params, tables, row);
        }
        self.add(counter);
    }

    /// Whether the row is in the table that is counted for.
    pub(crate) fn covers(&self, row: u32) -> bool {
        self.rows.contains(&row)
    }

    /// Adds what was counted to its table, and goes on with the table of `row`.
    pub(crate) fn enter(&mut self, params: &Params, tables: &mut [u32], row: u32) {
        self.end(tables);
        self.table = table_of(params, tables, row);
        let base = table_base(tables, self.table);
        self.rows = base..base + table_rows(tables, self.table);
    }

    /// Counts a row of the table that is counted for.
    pub(crate) fn add(&mut self, counter: usize) {
        self.counts[counter] += 1;
    }

    /// Adds to a counter of the table that is counted for.
    pub(crate) fn add_many(&mut self, counter: usize, amount: u32) {
        self.counts[counter] += amount;
    }

    /// Counts a distinct row that was read from its record and got no slot.
    pub(crate) fn add_missed(&mut self) {
        for counter in [counter::UNIQUE, counter::UNIQUE_MISSES, counter::BYPASS_READS] {
            self.add(counter);
        }
    }

    pub(crate) fn end(&mut self, tables: &mut [u32]) {
        for (counter, amount) in std::mem::take(&mut self.counts).into_iter().enumerate() {
            if amount > 0 {
                count(tables, self.table, counter, amount);
            }
        }
    }
}

/// The arrays of `gpu::stages::cached::tables::Tables`.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    pub(crate) tables: Vec<u32>,
    pub(crate) features: Vec<Feature>,
    pub(crate) ways: Vec<u32>,
    pub(crate) cache: Pages<f32>,
    /// The records of all rows; [`shards`] cuts them.
    pub(crate) records: Pages<u32>,
    /// [`freq_shards`] cuts them.
    pub(crate) freqs: Freqs,
}

impl Tables {
    pub(crate) fn new(config: &GroupConfig, layout: Layout, source: Option<&dyn Source>) -> Result<Self, Error> {
        check("records", layout.table_bytes() + Freqs::bytes(config))?;
        let (ways, cache) = new_cache(&layout)?;
        let filler = Filler::new(config, &layout, source)?;
        let mut records = Pages::zeroed("records", layout.total_rows as usize * layout.row.record_words as usize)?;
        filler.pack(0, &mut records)?;
        let freqs = Freqs::new(config)?;
        let (tables, features) = (table_words(config), features(config));
        Ok(Self { layout, tables, features, ways, cache, records, freqs })
    }
}

/// The records of each shard, in order.
pub(crate) fn shards<'r>(layout: &Layout, records: &'r mut [u32]) -> impl Iterator<Item = (u32, &'r mut [u32])> {
    (0..).zip(records.chunks_mut(layout.rows_per_shard as usize * layout.row.record_words as usize))
}

/// The rows of each piece of frequencies, and the piece. Under other policies than LFU there is one piece of all rows, and it is empty.
pub(crate) fn freq_shards<'f, F>(
    layout: &Layout,
    policy: Policy,
    mut freqs: &'f mut [F],
) -> impl Iterator<Item = (Shard, &'f mut [F])> {
    layout.freq_shards(policy).map(move |shard| {
        let rows = freqs.len().min(shard.rows as usize);
        (shard, freqs.split_off_mut(..rows).unwrap_or_default())
    })
}

/// The metadata of empty ways, and their slots.
pub(crate) fn new_cache(layout: &Layout) -> Result<(Vec<u32>, Pages<f32>), Error> {
    let slots = layout.slots() as usize;
    let mut ways = zeroed("ways", slots * 4)?;
    let width = layout.ways as usize;
    ways.chunks_exact_mut(4 * width).for_each(|set| set[..width].fill(NONE));
    Ok((ways, Pages::zeroed("cache", slots * layout.slot_words() as usize)?))
}
