//! The text of a generated trace: `kind:key=value,key=value`.

use super::error::TraceError;
use std::str::FromStr;

/// The default number of accesses of a generated trace.
pub(super) const DEFAULT_ACCESSES: u64 = 1_000_000;

/// The most rows of a table.
const MAX_ROWS: u64 = u32::MAX as u64 - 1;

/// The most accesses that offsets can count.
const MAX_ACCESSES: u64 = u32::MAX as u64;

/// The text of a generated trace, cut into keys and values.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    text: &'a str,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Spec<'a> {
    /// Cuts `text`. A key that is not in `keys`, or that comes twice, is an error.
    pub(super) fn parse(text: &'a str, keys: &[&str]) -> Result<Self, TraceError> {
        let mut spec = Self { text, values: Vec::new() };
        let values = text.split_once(':').map_or("", |(_, values)| values);
        for piece in values.split(',').filter(|piece| !piece.trim().is_empty()) {
            let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
            let key = key.trim();
            if !keys.contains(&key) {
                return Err(spec.fail(&format!("the keys {}", keys.join(", ")), key));
            }
            if spec.values.iter().any(|&(other, _)| other == key) {
                return Err(spec.fail(&format!("{key} once"), "it twice"));
            }
            spec.values.push((key, value.trim()));
        }
        Ok(spec)
    }

    /// An empty vector with capacity for `n` ids; an error instead of an abort if memory is short.
    pub(super) fn room(&self, n: u64) -> Result<Vec<u32>, TraceError> {
        let mut ids = Vec::new();
        match usize::try_from(n).map(|n| ids.try_reserve_exact(n)) {
            Ok(Ok(())) => Ok(ids),
            _ => Err(TraceError::Content(format!(
                "trace {}: wanted memory for {n} accesses, found too little; ask for fewer with n=",
                self.text
            ))),
        }
    }

    /// The table's rows, if given.
    pub(super) fn rows(&self) -> Result<Option<u64>, TraceError> {
        self.whole("rows", MAX_ROWS)
    }

    /// The number of accesses, if given.
    pub(super) fn accesses(&self) -> Result<Option<u64>, TraceError> {
        self.whole("n", MAX_ACCESSES)
    }

    /// The accesses after which other rows are popular, if given.
    pub(super) fn every(&self) -> Result<Option<u64>, TraceError> {
        self.whole("every", MAX_ACCESSES)
    }

    /// A whole number from 1 to `most`, in digits or as 1e9.
    fn whole(&self, key: &str, most: u64) -> Result<Option<u64>, TraceError> {
        let legal = |number: &f64| number.fract() == 0.0 && (1.0..=most as f64).contains(number);
        Ok(self.number(key, &format!("{key} of 1 to {most}"), legal)?.map(|number| number as u64))
    }

    /// The Zipf exponent, if given.
    pub(super) fn exponent(&self) -> Result<Option<f64>, TraceError> {
        self.number("s", "a finite s of 0 or more", |&s: &f64| s.is_finite() && s >= 0.0)
    }

    /// Returns the value, or an error if it is missing.
    pub(super) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, TraceError> {
        value.ok_or_else(|| self.fail(&format!("a value for {key}"), "none"))
    }

    fn number<T: FromStr>(&self, key: &str, wanted: &str, legal: impl Fn(&T) -> bool) -> Result<Option<T>, TraceError> {
        let Some(&(_, value)) = self.values.iter().find(|&&(other, _)| other == key) else { return Ok(None) };
        match value.parse() {
            Ok(number) if legal(&number) => Ok(Some(number)),
            _ => Err(self.fail(wanted, &format!("{key}={value}"))),
        }
    }

    /// The error for this trace.
    pub(super) fn fail(&self, wanted: &str, found: &str) -> TraceError {
        let example = match self.text.split(':').next() {
            Some("zipf") => "zipf:rows=100000,s=1.05,n=1000000",
            Some("drift") => "drift:rows=100000,s=1.05,every=50000,n=1000000",
            Some("uniform") => "uniform:rows=100000,n=1000000",
            _ => "meta2021:rows=100000",
        };
        TraceError::Spec(format!("trace {}: wanted {wanted}, found {found}; write it as {example}", self.text))
    }
}
