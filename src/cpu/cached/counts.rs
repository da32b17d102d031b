//! Counters that several threads add to.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{cpu::stages::counters::Tally, table::abi::Params};

/// Prepares a tally for a row. The counters of all tables are locked only where another table begins.
pub(crate) fn enter(params: &Params, tables: &Mutex<&mut [u32]>, tally: &mut Tally, row: u32) {
    if !tally.covers(row) {
        tally.enter(params, &mut locked(tables), row);
    }
}

/// The counters of all tables. A thread that panicked while it held them leaves counts, at worst one too few.
pub(crate) fn locked<'a, 't>(tables: &'a Mutex<&'t mut [u32]>) -> MutexGuard<'a, &'t mut [u32]> {
    tables.lock().unwrap_or_else(PoisonError::into_inner)
}
