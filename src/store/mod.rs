//! Stores for the records of a staged table: in RAM, in a file, or in the caller's own [`Store`].

#[cfg(all(feature = "file", any(unix, windows)))]
mod file;
mod fill;
#[cfg(all(feature = "file", any(unix, windows)))]
mod header;
pub(crate) mod ram;

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicBool, Ordering},
};

use rayon::prelude::*;

#[cfg(all(feature = "file", any(unix, windows)))]
pub use file::FileStore;
pub use fill::fill;

use crate::{config::GroupConfig, error::Error, record::codec, table::layout::Layout};

/// A store for the records of a staged table: RAM, a memory-mapped file, or the caller's own.
///
/// Rows are linear rows. A record is [`Store::stride`] bytes, words of 4 bytes with the low byte first.
///
/// Example: [`SharedStore`].
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Rows of all tables together.
    fn rows(&self) -> u32;

    /// Bytes of a record.
    fn stride(&self) -> u64;

    /// Copies the records of `rows` into `out` (`rows.len() * stride` bytes), in that order. Called from several threads at once with
    /// parts of a list.
    ///
    /// # Errors
    /// [`Error::Store`] for rows that do not exist, for an `out` of another size, and if the store cannot read.
    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error>;

    /// Writes a record for each of `rows` (no row twice). On an error the rest of the table is whole, and the call may be made again.
    ///
    /// # Errors
    /// As [`Store::read`]. Nothing is written if the arguments are wrong.
    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error>;

    /// Copies the records of neighbouring rows, as many as `out` holds: for checkpoints.
    ///
    /// # Errors
    /// As [`Store::read`].
    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error>;

    /// Writes the records of neighbouring rows: for filling and checkpoints.
    ///
    /// # Errors
    /// As [`Store::write`].
    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error>;

    /// Notes that a cache may hold newer rows than the store from now on. A file notes it in its header, on disk before the first write.
    ///
    /// # Errors
    /// [`Error::Store`] if the store cannot note it.
    fn unflushed(&mut self) -> Result<(), Error>;

    /// Notes that the store has the newest value of every row. `step` is the step number to go on from.
    ///
    /// # Errors
    /// [`Error::Store`] if the rows cannot be made durable.
    fn flushed(&mut self, step: u32) -> Result<(), Error>;

    /// Step number to go on from: 0 for a fresh store.
    fn step(&self) -> u32;

    /// Checks that the records were made for a group of this configuration. The group itself compares rows and stride.
    ///
    /// # Errors
    /// [`Error::Store`] names the difference.
    fn check(&self, config: &GroupConfig) -> Result<(), Error> {
        let _ = config;
        Ok(())
    }

    /// Whether the store has values already (an opened file), so that it must not be filled. A store without values reads as zeros.
    fn filled(&self) -> bool;
}

/// A store that a group and its owner share, so that the owner still has the table after the device is lost.
///
/// Only one group at a time works on the store. [`with`](Self::with) and [`with_mut`](Self::with_mut) lock the store. If their closure
/// calls that group, or drops it, it waits for ever.
///
/// ```
/// use hotrow::{Error, GroupConfig, SharedStore, store};
///
/// let config = GroupConfig::new(&[100], 8);
/// let table = SharedStore::in_ram(&config)?;
/// table.with_mut(|records| store::fill(records, &config, None))?;
/// assert!(table.with(|records| records.filled()));
/// assert_eq!(table.read_rows(&config, &[99])?, [0.0; 8]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedStore {
    store: Arc<RwLock<Box<dyn Store>>>,
    taken: Arc<AtomicBool>,
}

/// A group's hold on a store, until it is dropped.
#[derive(Debug)]
pub(crate) struct Hold(Arc<AtomicBool>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl SharedStore {
    /// Wraps a store for a group. Keep a clone to read the table yourself.
    #[must_use]
    pub fn new(store: impl Store + 'static) -> Self {
        Self { store: Arc::new(RwLock::new(Box::new(store))), taken: Arc::default() }
    }

    /// Takes the store for one group alone.
    pub(crate) fn hold(&self) -> Result<Hold, Error> {
        if self.taken.swap(true, Ordering::Acquire) {
            let (wanted, found) =
                ("a store that no group works on".into(), "one that belongs to a living group".into());
            let remedy = "drop that group first, or take another store";
            return Err(Error::Store { store: "store".into(), what: "owner", wanted, found, remedy, source: None });
        }
        Ok(Hold(self.taken.clone()))
    }

    /// Calls `work` with the store, to read it, and returns its result. Waits for a writer.
    pub fn with<T>(&self, work: impl FnOnce(&dyn Store) -> T) -> T {
        work(&**self.read())
    }

    /// Calls `work` with the store, to write it, and returns its result. Waits for readers and writers.
    pub fn with_mut<T>(&self, work: impl FnOnce(&mut dyn Store) -> T) -> T {
        work(&mut **self.write())
    }

    /// The store, locked for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Box<dyn Store>> {
        // A thread that panicked may have left rows half written, as a failed call may.
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, locked for writing.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Box<dyn Store>> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The weights of linear rows as the store has them, `[rows, dim]`. Changes that a cache has not flushed are missing: while a group
    /// works on the store, read rows through the group.
    ///
    /// # Errors
    /// As [`Store::read`]; also [`Error::Store`] if `config` describes other records.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn read_rows(&self, config: &GroupConfig, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let (store, layout) = (self.read(), Layout::new(config, u64::MAX)?);
        check_shape(&**store, &layout)?;
        let mut words = vec![0u32; rows.len() * layout.row.record_words as usize];
        store.read(rows, bytemuck::cast_slice_mut(&mut words))?;
        let mut weights = vec![0.0; rows.len() * layout.row.dim as usize];
        words
            .par_chunks_exact(layout.row.record_words as usize)
            .zip(weights.par_chunks_exact_mut(layout.row.dim as usize))
            .for_each(|(record, row)| {
                for (e, x) in (0u32..).zip(row) {
                    *x = codec::weight(&layout.row, record, e);
                }
            });
        Ok(weights)
    }
}

/// The error of a call whose arguments do not fit the store.
fn wrong(store: &str, what: &'static str, wanted: String, found: String) -> Error {
    Error::Store {
        store: store.into(),
        what,
        wanted,
        found,
        remedy: "call it with rows of this table and a record for each",
        source: None,
    }
}

/// Checks that the store has as many records as the table, of the same size.
pub(crate) fn check_shape(store: &dyn Store, layout: &Layout) -> Result<(), Error> {
    let shape = |rows: u32, stride: u64| format!("{rows} records of {stride} bytes");
    let (wanted, found) = (shape(layout.total_rows, layout.stride()), shape(store.rows(), store.stride()));
    if wanted == found {
        return Ok(());
    }
    let remedy = "take a store made for this configuration";
    Err(Error::Store { store: "store".into(), what: "shape", wanted, found, remedy, source: None })
}

/// Checks that every row exists and that there are bytes for each.
fn check_list(store: &str, total: u32, stride: u64, rows: &[u32], bytes: usize) -> Result<(), Error> {
    if let Some(&row) = rows.iter().find(|&&row| row >= total) {
        return Err(wrong(store, "row", format!("a row below {total}"), row.to_string()));
    }
    let wanted = rows.len() as u64 * stride;
    if wanted != bytes as u64 {
        return Err(wrong(store, "records", format!("{wanted} bytes"), format!("{bytes} bytes")));
    }
    Ok(())
}

/// Checks that the neighbouring rows exist for which there are bytes.
fn check_range(store: &str, total: u32, stride: u64, first_row: u32, bytes: usize) -> Result<(), Error> {
    let bytes = bytes as u64;
    if !bytes.is_multiple_of(stride) {
        return Err(wrong(store, "records", format!("a multiple of {stride} bytes"), format!("{bytes} bytes")));
    }
    let end = u64::from(first_row) + bytes / stride;
    if end > u64::from(total) {
        return Err(wrong(store, "row", format!("rows below {total}"), format!("rows {first_row} to {end}")));
    }
    Ok(())
}

/// Number of bytes that justify another thread.
const GRAIN: usize = 64 << 10;

/// Calls `copy(k, record)` for the k-th record of `out`, on all cores.
fn each_record(out: &mut [u8], stride: usize, copy: impl Fn(usize, &mut [u8]) + Sync) {
    out.par_chunks_exact_mut(stride)
        .enumerate()
        .with_min_len((GRAIN / stride).max(1))
        .for_each(|(k, record)| copy(k, record));
}
