//! The counters of the rows that a trace has named.

use std::collections::HashMap;
use std::ops::Range;

/// Rows below this have their counters in a list (at most 64 MiB), others in a hash map: a trace may name few rows, anywhere below 2^32.
const DIRECT: u32 = 1 << 24;

#[derive(Debug, Default)]
pub(crate) struct Uses {
    direct: Vec<u32>,
    sparse: HashMap<u32, u32>,
}

impl Uses {
    /// The counter of a row.
    pub(crate) fn of(&mut self, row: u32) -> &mut u32 {
        if row >= DIRECT {
            return self.sparse.entry(row).or_default();
        }
        let at = row as usize;
        if at >= self.direct.len() {
            self.direct.resize((at + 1).next_power_of_two(), 0);
        }
        &mut self.direct[at]
    }

    /// Halves the counters of rows so many times.
    pub(crate) fn halve(&mut self, rows: &Range<u32>, times: u32) {
        let known = self.direct.len();
        let end = |row: u32| (row as usize).min(known);
        self.direct[end(rows.start)..end(rows.end)].iter_mut().for_each(|uses| *uses >>= times);
        self.sparse.iter_mut().filter(|(row, _)| rows.contains(row)).for_each(|(_, uses)| *uses >>= times);
    }
}
