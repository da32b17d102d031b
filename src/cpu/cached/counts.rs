//! Counters that several threads add to.

use std::sync::Mutex;

use crate::{cpu::stages::counters::Tally, host::locked, table::abi::Params};

/// Prepares a tally for a row. The counters of all tables are locked only where another table begins.
#[inline]
pub(crate) fn enter(params: &Params, tables: &Mutex<&mut [u32]>, tally: &mut Tally, row: u32) {
    if !tally.covers(row) {
        tally.enter(params, &mut locked(tables), row);
    }
}
