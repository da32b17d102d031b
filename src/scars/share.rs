//! Memory for rows shared by several tables: which rows to pin beside a given batch.

use crate::scars::traffic::{Table, Workload};

/// How many of each table's hottest rows to pin within so many bytes, for batches of so many samples.
///
/// What a row saves in an epoch falls with its probability, so each table gives its hottest rows first, and the rows of all tables are
/// taken by bytes saved for each byte of memory. With slots of one size this is the best choice; with several it is short of the best
/// by less than what one row saves, the last one that did not fit (later smaller ones are still taken).
///
/// `over`: the first row that does not fit is taken all the same and nothing after it. What this saves no choice within the bytes can
/// exceed.
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
    // Stable: of equals the first table's, and its hottest ones.
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut pinned, mut left) = (vec![0; tables.len()], bytes);
    // A table whose next row did not fit has no later row that does.
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
