//! The face both backends share: what a trainer, a test or the command holds.

use crate::{
    config::{GroupConfig, Policy},
    error::Error,
    host::alloc::zeroed,
    memory::{Calls, MemoryReport},
    scaler::GradSlice,
    table::{
        counters::Counters,
        layout::{Layout, ScalerState},
        parts::Part,
        ways,
    },
};

/// Everything a group keeps between steps, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Step number.
    pub t: u32,
    /// The cache's metadata, set by set: a tag for each way, then a stamp each, a freq each, a word of flags each
    /// ([`DIRTY`](crate::table::layout::DIRTY), [`PINNED`](crate::table::layout::PINNED)).
    pub ways: Vec<u32>,
    /// Slots: dim weights, then the state.
    pub cache: Vec<f32>,
    /// Every record, row by row.
    pub records: Vec<u32>,
    /// The frequency of every row; empty but under LFU.
    pub freqs: Vec<u32>,
    /// Counters of each table.
    pub counters: Vec<Counters>,
}

impl Snapshot {
    /// Each part has the size that `layout` gives it.
    pub(crate) fn check(&self, layout: &Layout, tables: usize, policy: Policy) -> Result<(), Error> {
        let slots = layout.slots() as usize;
        let rows = layout.total_rows as usize;
        let parts = [
            ("snapshot's ways", 4 * slots, self.ways.len()),
            ("snapshot's cache", slots * layout.row.row_words as usize, self.cache.len()),
            ("snapshot's records", rows * layout.row.record_words as usize, self.records.len()),
            ("snapshot's freqs", if policy == Policy::Lfu { rows } else { 0 }, self.freqs.len()),
            ("snapshot's counters", tables, self.counters.len()),
        ];
        if let Some((what, wanted, found)) = parts.into_iter().find(|(_, wanted, found)| wanted != found) {
            return Err(Error::Length { what, wanted: wanted as u64, found: found as u64 });
        }
        ways::check(layout, policy, self.t, 0, &self.ways)
    }
}

/// A group of tables on some backend, driven by host slices. Each call waits for its result. On a GPU it first tells of a step
/// recorded earlier that was left out because of a bad index or offset: nothing else is done then, and the call may be made again.
///
/// Indices count within their table. `offsets` has one entry per bag and one more; the bags come feature by feature, the same
/// number for each. Outputs and gradients are row-major: `[bags, dim]`, or `[indices, dim]` with pooling none.
pub trait Embedding {
    /// The configuration; the learning rate is the newest.
    fn config(&self) -> &GroupConfig;

    /// The sizes that follow from the configuration.
    fn layout(&self) -> &Layout;

    /// True between a forward and its backward.
    fn pending(&self) -> bool;

    /// One step forward (SPEC 3). `weights`: one an index, or none.
    ///
    /// # Errors
    /// Bad offsets or indices ([`Error::BadOffsets`], [`Error::IndexOutOfRange`]) leave everything as it was.
    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error>;

    /// Decides the next step while the last one may still wait for its backward: which rows come, which leave. A staged table's missing
    /// rows are fetched meanwhile. Then come the last step's `backward`, if it has one, and [`forward_prefetched`](Self::forward_prefetched);
    /// everything else is refused until then. Outputs, tags and tables are those of `forward`, bit for bit.
    ///
    /// # Errors
    /// As [`Embedding::forward`] for the batch's shape; a bad index is told by `forward_prefetched`. [`Error::Order`] if a batch is
    /// waiting already.
    fn prefetch(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<(), Error>;

    /// The forward of the prefetched batch.
    ///
    /// # Errors
    /// As [`Embedding::forward`]; [`Error::Order`] without a prefetch.
    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error>;

    /// The same outputs, and nothing changes: no step, no stamps, no frequencies, no admission, no counters.
    ///
    /// # Errors
    /// As [`Embedding::forward`].
    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error>;

    /// Merges the outputs' gradients per distinct row of the last forward, and updates each row once.
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it, [`Error::Length`] for the wrong number of gradients.
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error>;

    /// As [`backward`](Self::backward), of gradients of a loss that was multiplied with a scale (SPEC 8): FP32 or FP16, each times
    /// the scaler's inverse, in FP32, before anything is added. `scaler` is what a [`CpuScaler`](crate::CpuScaler) made of the
    /// gradients of this step, of all groups and of the rest of the model. If they overflowed, no row, state, dirty flag or counter
    /// moves. What the forward did (step number, stamps, frequencies, admissions) stays done, as after any step.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); [`Error::Order`] for the state of a scaler that has decided nothing.
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error>;

    /// Writes every dirty row to the table and marks it clean.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn flush(&mut self) -> Result<(), Error>;

    /// Flushes, then empties the cache. The step number and the frequencies stay.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    fn reset(&mut self) -> Result<(), Error>;

    /// Empties the cache and discards what was not flushed.
    ///
    /// # Errors
    /// [`Error::Order`] between forward and backward.
    fn reset_discarding(&mut self) -> Result<(), Error>;

    /// The newest value of each linear row, flushed or not: `[rows, dim]`.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] names the first row that does not exist.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error>;

    /// Replaces the weights of linear rows; the optimiser state stays. Of a row listed twice the last value counts. A row with a
    /// value that is not finite keeps its old one, and is counted.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`], [`Error::Length`], and [`Error::Order`] between forward and backward.
    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error>;

    /// From now on exactly `rows` are pinned (linear rows, hottest first, a row listed twice counts once), less those that are
    /// returned: those whose set has `ways` rows pinned before them in the list, in the order given. A pinned row is in the cache and
    /// is never a victim; all else happens to it as to any row. Rows that are pinned no longer stay as ordinary rows, under
    /// [`Policy::Static`] they leave.
    ///
    /// The cache is flushed first. A row that is in it keeps its slot, another is loaded into the one that admission would give it, stamped
    /// with the last step. The step number stays. A loaded row counts as unique, missed and admitted, one that leaves for it as evicted,
    /// none as access or hit. Where a pinned row is, and whether it is one, changes no value of an FP32 table. Pins are
    /// kept in [`Part::Ways`], and so in snapshots and checkpoints; [`reset`](Self::reset) forgets them.
    ///
    /// Source: P3 (SCARS) section 4, the rows that are hot held in the device's memory; `ways` keeps room in each set for the others.
    ///
    /// # Errors
    /// [`Error::Pins`] unless `ways` is 1 to [`Layout::ways`], and for rows to pin without a cache; [`Error::RowOutOfRange`] names
    /// the first row that does not exist; [`Error::Order`] between forward and backward: nothing has changed then.
    /// [`Error::Store`] if a staged table's store fails: what was to be loaded is not in the cache, and the call may be made again.
    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error>;

    /// The pinned rows, in slot order.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn pinned(&mut self) -> Result<Vec<u32>, Error>;

    /// Gives the cache another size, rounded up to whole sets; 0: none. The cache is flushed and begins anew, the pinned rows in it, as
    /// [`pin`](Self::pin) of them in slot order would have it; those that find no way are returned. Step number, table, frequencies and
    /// counters stay.
    ///
    /// # Errors
    /// [`Error::Config`] for more rows than the group has, [`Error::TooLarge`], [`Error::OutOfMemory`], and [`Error::Order`] between
    /// forward and backward: nothing has changed then. [`Error::Store`] if a staged table's store fails: in the flush nothing has
    /// changed; after it the cache has its new size ([`Embedding::layout`] tells), and what was not loaded is not pinned.
    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error>;

    /// Counters of each table.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn counters(&mut self) -> Result<Vec<Counters>, Error>;

    /// Every byte that is allocated for the group, by purpose. Unless a backend knows better, what a group of this configuration
    /// has before its first batch: the CPU's does not count its scratch.
    fn memory(&self) -> MemoryReport {
        MemoryReport::plan(self.config(), self.layout(), Calls::default())
    }

    /// Reads `out.len()` words of a part, from `first_word` on.
    ///
    /// # Errors
    /// [`Error::Length`] past the part's end, [`Error::Device`] if the device is lost.
    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error>;

    /// Replaces words of a part, from `first_word` on. [`Part::Ways`] comes in whole sets, 4 words a way, after [`Part::Clock`]: what
    /// no group at that step can hold is refused. A forward goes on waiting for its backward only if step number and ways are those
    /// it left.
    ///
    /// # Errors
    /// [`Error::Length`] past the part's end, or for a part of a set, and [`Error::Snapshot`]: nothing has changed then.
    /// [`Error::Device`] if the device is lost.
    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error>;

    /// Everything kept between steps, as one copy in memory. For tests and the curious; a checkpoint streams instead.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the host has no room for it, [`Error::Device`] if the device is lost.
    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let words = |this: &Self, part: Part| part.words(this.config(), this.layout()) as usize;
        let mut whole = |part| {
            let mut all = zeroed("snapshot", words(self, part))?;
            self.read_part(part, 0, &mut all)?;
            Ok::<_, Error>(all)
        };
        let (clock, counters, ways) = (whole(Part::Clock)?, whole(Part::Counters)?, whole(Part::Ways)?);
        let (records, freqs) = (whole(Part::Records)?, whole(Part::Frequencies)?);
        let mut cache = zeroed("snapshot", words(self, Part::Cache))?;
        self.read_part(Part::Cache, 0, bytemuck::cast_slice_mut(&mut cache))?;
        let counters = Counters::from_part(&counters, self.layout().stride());
        Ok(Snapshot { t: clock[0], ways, cache, records, freqs, counters })
    }

    /// Takes over a snapshot of a group of the same configuration, on whatever backend it was taken. A forward goes on waiting for
    /// its backward only if step number and cache metadata are those it left.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Snapshot`] what no group can have left; nothing has
    /// changed then. [`Error::Device`] if the device is lost.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let config = self.config();
        snapshot.check(self.layout(), config.tables.len(), config.policy)?;
        self.write_part(Part::Clock, 0, &[snapshot.t])?;
        self.write_part(Part::Counters, 0, &Counters::to_part(&snapshot.counters))?;
        self.write_part(Part::Ways, 0, &snapshot.ways)?;
        self.write_part(Part::Cache, 0, bytemuck::cast_slice(&snapshot.cache))?;
        self.write_part(Part::Records, 0, &snapshot.records)?;
        self.write_part(Part::Frequencies, 0, &snapshot.freqs)
    }

    /// Sets the learning rate from the next backward on.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not finite; the old one stays.
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error>;
}
