//! The face both backends share: what a trainer, a test or the command holds.

use crate::{
    Counters, Error, Layout,
    hash::fmix32,
    layout::{Field, NONE, WAYS, way_at},
};

/// Everything a group keeps between steps, bit by bit.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Step number.
    pub t: u32,
    /// The cache's metadata, set by set: 32 tags, 32 stamps, 32 freqs, 32 dirty flags.
    pub ways: Vec<u32>,
    /// Slots: dim weights, then the state.
    pub cache: Vec<f32>,
    /// Every record, row by row.
    pub records: Vec<u32>,
    /// The frequency of every row; empty under LRU.
    pub freqs: Vec<u32>,
    /// Counters of each table.
    pub counters: Vec<Counters>,
}

impl Snapshot {
    /// Each part has the size that `layout` gives it.
    pub(crate) fn check(&self, layout: &Layout, tables: usize, lfu: bool) -> Result<(), Error> {
        let slots = layout.slots() as usize;
        let rows = layout.total_rows as usize;
        let parts = [
            ("snapshot's ways", 4 * slots, self.ways.len()),
            ("snapshot's cache", slots * layout.row_words as usize, self.cache.len()),
            ("snapshot's records", rows * layout.record_words as usize, self.records.len()),
            ("snapshot's freqs", if lfu { rows } else { 0 }, self.freqs.len()),
            ("snapshot's counters", tables, self.counters.len()),
        ];
        if let Some((what, wanted, found)) = parts.into_iter().find(|(_, wanted, found)| wanted != found) {
            return Err(Error::Length { what, wanted: wanted as u64, found: found as u64 });
        }
        (0..layout.slots()).try_for_each(|slot| self.check_slot(layout, slot))
    }

    /// A slot is empty, or holds a row of its set that no other way of the set holds.
    fn check_slot(&self, layout: &Layout, slot: u32) -> Result<(), Error> {
        let word = |slot, field| self.ways[way_at(slot, field)];
        let tag = word(slot, Field::Tag);
        let fail = |what, wanted: String, found: u32| Err(Error::Snapshot { what, wanted, found, slot });
        if word(slot, Field::Dirty) > u32::from(tag != NONE) {
            return fail("dirty flag", "0, or 1 for an occupied slot".into(), word(slot, Field::Dirty));
        }
        if tag == NONE {
            return Ok(());
        }
        let set = slot / WAYS;
        if tag >= layout.total_rows || fmix32(tag) % layout.sets != set {
            return fail("tag", format!("one of the {} rows that belongs to set {set}", layout.total_rows), tag);
        }
        if (set * WAYS..slot).any(|other| word(other, Field::Tag) == tag) {
            return fail("tag", "each row in one way".into(), tag);
        }
        if word(slot, Field::Stamp) > self.t {
            return fail("stamp", format!("at most the step number {}", self.t), word(slot, Field::Stamp));
        }
        Ok(())
    }
}

/// A group of tables on some backend, driven by host slices. Each call waits for its result. On a GPU it first tells of a step
/// recorded earlier that was left out because of a bad index or offset: nothing else is done then, and the call may be made again.
///
/// Indices count within their table. `offsets` has one entry per bag and one more; the bags come feature by feature, the same
/// number for each. Outputs and gradients are row-major: `[bags, dim]`, or `[indices, dim]` with pooling none.
pub trait Embedding {
    /// The sizes that follow from the configuration.
    fn layout(&self) -> &Layout;

    /// One step forward (SPEC 3). `weights`: one an index, or none.
    ///
    /// # Errors
    /// Bad offsets or indices ([`Error::BadOffsets`], [`Error::IndexOutOfRange`]) leave everything as it was.
    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error>;

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
    /// [`Error::IndexOutOfRange`] names the first row that does not exist.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error>;

    /// Replaces the weights of linear rows; the optimiser state stays. Of a row listed twice the last value counts. A row with a
    /// value that is not finite keeps its old one, and is counted.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], [`Error::Length`], and [`Error::Order`] between forward and backward.
    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error>;

    /// Counters of each table.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn counters(&mut self) -> Result<Vec<Counters>, Error>;

    /// Everything kept between steps. For tests, checkpoints and the curious.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn snapshot(&mut self) -> Result<Snapshot, Error>;

    /// Takes over a snapshot of a group of the same configuration, on whatever backend it was taken. A forward goes on waiting for
    /// its backward only if step number and cache metadata are those it left.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Snapshot`] what no group can have left; nothing has
    /// changed then.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error>;

    /// Sets the learning rate from the next backward on.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not finite; the old one stays.
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error>;
}
