//! How large a trace may be.

use super::error::TraceError;

/// The largest id a trace may hold: rows are numbered below 2^32 - 2.
pub const MAX_ID: u32 = u32::MAX - 2;

/// An empty vector with room for `n` ids, or an error instead of an abort.
pub(super) fn room(text: &str, n: u64) -> Result<Vec<u32>, TraceError> {
    let mut ids = Vec::new();
    match usize::try_from(n).map(|n| ids.try_reserve_exact(n)) {
        Ok(Ok(())) => Ok(ids),
        _ => Err(TraceError::Memory { trace: text.to_owned(), accesses: n }),
    }
}
