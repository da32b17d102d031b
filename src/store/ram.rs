//! A table in ordinary host memory.

use rayon::prelude::*;

use crate::{
    config::GroupConfig,
    error::Error,
    host::{
        alloc::zeroed,
        trusted::{AHEAD, prefetch},
    },
    store::{GRAIN, SharedStore, Store, check_list, check_range, each_record},
    table::layout::Layout,
};

/// A staged table's records in RAM.
///
/// Example: [`SharedStore`].
#[derive(Debug)]
pub struct RamStore {
    rows: u32,
    stride: usize,
    /// Words, so that each record begins at a word.
    records: Vec<u32>,
    step: u32,
    filled: bool,
}

impl RamStore {
    /// Allocates memory for a group's table, without values.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration; [`Error::OutOfMemory`] if the host lacks the memory.
    pub fn new(config: &GroupConfig) -> Result<Self, Error> {
        let layout = Layout::new(config, u64::MAX)?;
        let bytes = layout.table_bytes();
        let words = usize::try_from(bytes / 4).map_err(|_| Error::OutOfMemory { what: "records", bytes })?;
        let records = zeroed("records", words)?;
        Ok(Self { rows: layout.total_rows, stride: layout.stride() as usize, records, step: 0, filled: false })
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.records)
    }

    fn start(&self, row: u32) -> usize {
        row as usize * self.stride
    }
}

impl SharedStore {
    /// Memory for a group's table in RAM, without values, all of it allocated at once.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration; [`Error::OutOfMemory`] if the host lacks the memory.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn in_ram(config: &GroupConfig) -> Result<Self, Error> {
        RamStore::new(config).map(Self::new)
    }
}

const NAME: &str = "table in RAM";

impl Store for RamStore {
    fn rows(&self) -> u32 {
        self.rows
    }

    fn stride(&self) -> u64 {
        self.stride as u64
    }

    fn read(&self, rows: &[u32], out: &mut [u8]) -> Result<(), Error> {
        check_list(NAME, self.rows, self.stride(), rows, out.len())?;
        let record = |row: u32| &self.bytes()[self.start(row)..][..self.stride];
        each_record(out, self.stride, |k, out| {
            if let Some(&next) = rows.get(k + AHEAD) {
                prefetch(record(next));
            }
            out.copy_from_slice(record(rows[k]));
        });
        Ok(())
    }

    fn write(&mut self, rows: &[u32], records: &[u8]) -> Result<(), Error> {
        check_list(NAME, self.rows, self.stride(), rows, records.len())?;
        let stride = self.stride;
        let whole: &mut [u8] = bytemuck::cast_slice_mut(&mut self.records);
        // Each thread has parts of the table to itself, and looks through the list for rows of these parts. Four parts each, because the
        // rows of a list may crowd together. There are no more threads than the number of bytes justifies.
        let threads = rayon::current_num_threads().min(records.len() / GRAIN + 1);
        let parts = if threads == 1 { 1 } else { 4 * threads };
        let part_rows = (self.rows as usize).div_ceil(parts).max(1);
        whole.par_chunks_mut(part_rows * stride).enumerate().for_each(|(part, bytes)| {
            let first = part * part_rows;
            for (&row, record) in rows.iter().zip(records.chunks_exact(stride)) {
                if let Some(out) =
                    (row as usize).checked_sub(first).and_then(|row| bytes.get_mut(row * stride..(row + 1) * stride))
                {
                    out.copy_from_slice(record);
                }
            }
        });
        Ok(())
    }

    fn read_range(&self, first_row: u32, out: &mut [u8]) -> Result<(), Error> {
        check_range(NAME, self.rows, self.stride(), first_row, out.len())?;
        out.copy_from_slice(&self.bytes()[self.start(first_row)..][..out.len()]);
        Ok(())
    }

    fn write_range(&mut self, first_row: u32, records: &[u8]) -> Result<(), Error> {
        check_range(NAME, self.rows, self.stride(), first_row, records.len())?;
        let start = self.start(first_row);
        bytemuck::cast_slice_mut(&mut self.records)[start..][..records.len()].copy_from_slice(records);
        Ok(())
    }

    fn unflushed(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn flushed(&mut self, step: u32) -> Result<(), Error> {
        (self.step, self.filled) = (step, true);
        Ok(())
    }

    fn step(&self) -> u32 {
        self.step
    }

    fn filled(&self) -> bool {
        self.filled
    }
}
