//! The kinds of generated traces, and the numbers in their texts.

use super::error::TraceError;
use crate::spec::Kind;

/// The kinds, with their keys and an example.
pub(super) const KINDS: [Kind; 4] = [
    ("zipf", &["rows", "s", "n"], "zipf:rows=100000,s=1.05,n=1000000"),
    ("drift", &["rows", "s", "every", "n"], "drift:rows=100000,s=1.05,every=50000,n=1000000"),
    ("uniform", &["rows", "n"], "uniform:rows=100000,n=1000000"),
    ("meta2021", &["rows", "n"], "meta2021:rows=100000"),
];

/// The default number of accesses of a generated trace.
pub(super) const DEFAULT_ACCESSES: u64 = 1_000_000;

/// An empty vector with capacity for `n` ids; an error instead of an abort if memory is short.
pub(super) fn room(n: u64) -> Result<Vec<u32>, TraceError> {
    let mut ids = Vec::new();
    match usize::try_from(n).map(|n| ids.try_reserve_exact(n)) {
        Ok(Ok(())) => Ok(ids),
        _ => {
            Err(TraceError::Content(format!("wanted memory for {n} accesses, found too little; ask for fewer with n=")))
        }
    }
}

/// The rows of a table.
pub(super) fn rows(text: &str) -> Result<u64, String> {
    whole(text, u32::MAX - 1)
}

/// As many accesses as offsets can count.
pub(super) fn accesses(text: &str) -> Result<u64, String> {
    whole(text, u32::MAX)
}

/// A whole number from 1 to `most`, in digits or as 1e9.
fn whole(text: &str, most: u32) -> Result<u64, String> {
    let legal = |number: &f64| number.fract() == 0.0 && (1.0..=most.into()).contains(number);
    let found = text.parse().ok().filter(legal).map(|number| number as u64);
    found.ok_or_else(|| format!("wanted a whole number from 1 to {most}"))
}

/// The exponent of Zipf's law.
pub(super) fn exponent(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0);
    found.ok_or_else(|| "wanted a finite number of 0 or more".to_owned())
}
