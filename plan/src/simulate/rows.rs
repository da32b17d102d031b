//! The simulator's knowledge of each row that it has seen.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};

/// Ids below this are looked up in a vector (at most 64 MiB), others in a hash map: a trace may use few ids, anywhere
/// below 2^32.
const DIRECT: u32 = 1 << 24;

/// Marks an id that has no row yet.
const UNSEEN: u32 = u32::MAX;

/// The place of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Only in the table.
    Table,
    /// In this way of its set.
    Way(u32),
}

/// One row that the trace has named.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The id in the trace.
    pub(crate) id: u32,
    /// The set its id hashes to.
    pub(crate) set: u32,
    /// Occurrences in the running batch; 0 between steps.
    pub(crate) count: u32,
    /// Uses since the start, kept across evictions (LFU); under Window the counter c, as it was after `halvings` halvings.
    pub(crate) freq: u32,
    /// Halvings of c that `freq` has seen (Window only).
    pub(crate) halvings: u64,
    /// Where the row is now.
    pub(crate) home: Home,
}

impl Row {
    /// Uses, after so many halvings in all.
    #[inline]
    pub(crate) fn uses(&self, halvings: u64) -> u32 {
        self.freq >> (halvings - self.halvings).min(31)
    }
}

/// All rows seen, numbered in order of first appearance.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    rows: Vec<Row>,
    direct: Vec<u32>,
    sparse: HashMap<u32, u32>,
}

impl Rows {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), direct: Vec::new(), sparse: HashMap::new() }
    }

    /// The number of a row. A new row gets the set that `set` returns.
    #[inline]
    pub(crate) fn number(&mut self, id: u32, set: impl Fn(u32) -> u32) -> u32 {
        let entry = if id < DIRECT {
            let at = id as usize;
            if at >= self.direct.len() {
                self.direct.resize((at + 1).next_power_of_two(), UNSEEN);
            }
            &mut self.direct[at]
        } else {
            self.sparse.entry(id).or_insert(UNSEEN)
        };
        if *entry == UNSEEN {
            *entry = self.rows.len() as u32;
            self.rows.push(Row { id, set: set(id), count: 0, freq: 0, halvings: 0, home: Home::Table });
        }
        *entry
    }

    /// The row of this number.
    pub(crate) fn get(&self, number: u32) -> Option<&Row> {
        self.rows.get(number as usize)
    }

    /// The number of a row that was seen.
    pub(crate) fn find(&self, id: u32) -> Option<u32> {
        let found = if id < DIRECT { self.direct.get(id as usize) } else { self.sparse.get(&id) };
        found.copied().filter(|&number| number != UNSEEN)
    }
}

impl Index<u32> for Rows {
    type Output = Row;

    #[inline]
    fn index(&self, number: u32) -> &Row {
        &self.rows[number as usize]
    }
}

impl IndexMut<u32> for Rows {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Row {
        &mut self.rows[number as usize]
    }
}
