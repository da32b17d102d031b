//! Limits of the size of a trace.

use super::error::TraceError;

/// The largest id of a trace, since a group has fewer than 2^32 - 1 rows.
pub const MAX_ID: u32 = u32::MAX - 2;

/// An empty vector with capacity for `n` ids; an error instead of an abort if memory is short.
pub(super) fn room(text: &str, n: u64) -> Result<Vec<u32>, TraceError> {
    let mut ids = Vec::new();
    match usize::try_from(n).map(|n| ids.try_reserve_exact(n)) {
        Ok(Ok(())) => Ok(ids),
        _ => Err(TraceError::Content(format!(
            "trace {text}: wanted memory for {n} accesses, found too little; ask for fewer with n="
        ))),
    }
}
