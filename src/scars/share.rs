//! Shares memory for pinned rows among several tables, beside a given batch.

use crate::scars::traffic::{Table, Workload};

/// Returns how many of each table's hottest rows to pin in `bytes`, for batches of `batch` samples.
///
/// The saving of a row falls with its probability, so each table gives its hottest rows first. The rows of all tables
/// are taken in order of bytes saved for each byte of memory. With slots of one size this choice is the best. With
/// several sizes it is short of the best by less than the saving of one row, the last one that did not fit; later,
/// smaller rows are still taken.
///
/// With `over`, the first row that does not fit is taken too, and nothing after it. No choice that fits can save more.
pub(crate) fn pinned(tables: &[Table], workload: &Workload, batch: u64, bytes: u64, over: bool) -> Vec<u64> {
    if let [table] = tables {
        let rows = bytes / table.bytes.slot;
        return vec![rows.min(table.skew.rows())];
    }
    let mut parts: Vec<(f64, usize, u64)> = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let worth = |part| table.saved(workload, batch, part) / table.bytes.slot as f64;
        parts.extend(table.skew.rest(0).map(|part| (worth(part), index, part.rows as u64)));
    }
    // The sort is stable: of equal values the first table and its hottest rows come first.
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut pinned, mut left) = (vec![0; tables.len()], bytes);
    // A table whose next row did not fit has no later row that fits.
    for (_, table, rows) in parts {
        let slot = tables[table].bytes.slot;
        let fit = (left / slot).min(rows);
        left -= fit * slot;
        pinned[table] += fit;
        if over && fit < rows {
            pinned[table] += 1;
            break;
        }
    }
    pinned
}
