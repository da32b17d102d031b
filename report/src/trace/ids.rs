//! Ids as a file has them: kept while all of them are numbers below 2^32 - 2, else numbered by first appearance.

use super::error::{MAX_ID, TraceError};
use crate::object::in_units;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub(super) enum Id<'a> {
    Number(u64),
    Text(&'a [u8]),
}

impl<'a> Id<'a> {
    /// A whole number of 64 bits, or else the text as it is.
    pub(super) fn of(piece: &'a [u8]) -> Self {
        let digits = piece.first().filter(|first| first.is_ascii_digit() || **first == b'+');
        let number = digits.and_then(|_| std::str::from_utf8(piece).ok()?.parse().ok());
        number.map_or(Self::Text(piece), Self::Number)
    }

    /// As [`Id::of`] in a column: `12.0` is 12, as pandas writes it. The second is whether it is no id in a column of numbers.
    pub(super) fn of_column(self) -> (Self, bool) {
        let Self::Text(piece) = self else { return (self, false) };
        let text = std::str::from_utf8(piece).unwrap_or_default();
        let whole = text.split_once('.').filter(|(_, rest)| rest.bytes().all(|byte| byte == b'0'));
        if let Some(Self::Number(id)) = whole.map(|(whole, _)| Self::of(whole.as_bytes())) {
            return (Self::Number(id), false);
        }
        let missing = ["null", "none", "na", "n/a", "<na>", "nat", "-", "?"].contains(&&*text.to_lowercase());
        let whole = text.trim_start_matches(['-', '+']).bytes().all(|byte| byte.is_ascii_digit());
        (self, missing || !whole && text.parse::<f64>().is_ok())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The file's name without folder and ending, or the text that asked for a generated trace.
    pub name: String,
    /// One id per access. Never empty.
    pub ids: Vec<u32>,
    /// The start of each bag in `ids`, and the end of the last one. Ascending, from 0 to `ids.len()`.
    pub offsets: Option<Vec<u32>>,
    pub distinct: u32,
    /// The table of each access, if the file or one beside it tells.
    pub tables: Option<Vec<u8>>,
    /// Whether the ids are numbers that this program gave, by first appearance.
    pub numbered: bool,
    /// What the user should know about how the file was read.
    pub notes: Vec<String>,
}

pub(super) struct Ids<'a> {
    path: &'a Path,
    pub(super) ids: Vec<u32>,
    /// The number of each id, by the id itself and 0, or by 127 bits of a text's hashes and 1. Among 2^32 texts, two have the same hashes with
    /// a chance below 2^-63.
    known: HashMap<[u64; 2], u32>,
    hashes: [RandomState; 2],
    /// The most bytes that numbering may take.
    most: u64,
    pub(super) numbered: bool,
    /// What a note says of the first id for which they are numbered.
    pub(super) first: String,
}

impl<'a> Ids<'a> {
    pub(super) fn new(path: &'a Path, most: u64, numbered: bool) -> Self {
        let hashes = [RandomState::new(), RandomState::new()];
        Self { path, ids: Vec::new(), known: HashMap::new(), hashes, most, numbered, first: String::new() }
    }

    pub(super) fn push(&mut self, id: Id<'_>) -> Result<(), TraceError> {
        if self.ids.len() == u32::MAX as usize {
            return Err(TraceError::too_long(self.path));
        }
        let id = match id {
            Id::Number(id) if id <= MAX_ID.into() && !self.numbered => id as u32,
            id => {
                if !self.numbered {
                    self.numbered = true;
                    for at in 0..self.ids.len() {
                        self.ids[at] = self.number(Id::Number(self.ids[at].into()))?;
                    }
                }
                self.number(id)?
            }
        };
        self.ids.push(id);
        Ok(())
    }

    /// The number of ids that differ, if they were numbered.
    pub(super) fn distinct(&self) -> usize {
        self.known.len()
    }

    fn number(&mut self, id: Id<'_>) -> Result<u32, TraceError> {
        let key = match id {
            Id::Number(id) => [id, 0],
            Id::Text(id) => [self.hashes[0].hash_one(id), self.hashes[1].hash_one(id) | 1],
        };
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let next = u32::try_from(self.distinct()).ok().filter(|&next| next <= MAX_ID);
        let next = next.ok_or_else(|| {
            TraceError::of(self.path, "at most 4294967294 ids that differ", "more", "split the trace")
        })?;
        // A map that is full moves into one of twice its size, and has both for a moment.
        let wanted = self.bytes() * if self.known.len() == self.known.capacity() { 3 } else { 1 };
        if wanted > self.most {
            return Err(TraceError::Content(format!(
                "{}: wanted at most {} to number its ids (--memory), found {} at the id {next}; give it more --memory, or a shorter trace",
                self.path.display(),
                in_units(self.most as f64),
                in_units(wanted as f64),
            )));
        }
        self.known.insert(key, next);
        Ok(next)
    }

    /// Bytes of the numbering: a map has 8 places for each 7 entries, and a byte beside each.
    fn bytes(&self) -> u64 {
        self.known.capacity() as u64 * 8 / 7 * (size_of::<([u64; 2], u32)>() as u64 + 1)
    }

    /// The ids, with a note about their numbering.
    pub(super) fn found(self, what: &str) -> Trace {
        let notes = self.note(what).into_iter().collect();
        Trace { notes, numbered: self.numbered, ids: self.ids, ..Trace::default() }
    }

    /// What the user reads about a numbering.
    pub(super) fn note(&self, what: &str) -> Option<String> {
        let (path, distinct, first) = (self.path.display(), self.distinct(), &self.first);
        let ids = format!("{path}: {distinct} distinct ids, {what}{first}");
        let memory = in_units(self.bytes() as f64);
        self.numbered.then(|| format!("{ids}, are numbered by first appearance, in {memory} of memory"))
    }
}
