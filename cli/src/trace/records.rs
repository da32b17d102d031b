//! Ids in records of one length: `.u64`, and libCacheSim's oracleGeneral, whose records are a time (u32), an id (u64), a size (u32) and the number of the
//! record that has the id next (i64, -1 for none), little-endian and without gaps.

use super::error::TraceError;
use super::ids::{Id, Ids, Trace};
use super::packed::Input;
use std::path::Path;

/// Records by which a file of another name is known.
const LOOKED_AT: usize = 1000;
/// More accesses than any trace has; other bytes, read as a record, nearly always have more.
const MOST: i64 = 1 << 40;

/// The form of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    U64,
    Oracle,
}

impl Form {
    /// The form that a file's name tells, without the ending of its packing.
    pub(super) fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let is_oracle = name.strip_suffix(".bin").unwrap_or(&name).ends_with(".oraclegeneral");
        if is_oracle { Some(Self::Oracle) } else { name.ends_with(".u64").then_some(Self::U64) }
    }

    const fn bytes(self) -> usize {
        if matches!(self, Self::U64) { 8 } else { 24 }
    }
}

fn next(record: &[u8]) -> i64 {
    i64::from_le_bytes(*record.last_chunk().unwrap_or(&[0; 8]))
}

/// Whether a record at this place, from 0 on, may have this next access. Programs count records from 0 or from 1 on.
fn follows(next: i64, place: i64) -> bool {
    [-1, i64::MAX].contains(&next) || (place + 1..MOST).contains(&next)
}

/// Whether a file that begins with these bytes is oracleGeneral. No text has a byte of 0 or 255.
pub(super) fn is_oracle(path: &Path) -> Result<bool, TraceError> {
    let start = Input::open(path)?.start((LOOKED_AT * Form::Oracle.bytes()) as u64)?;
    let records = start.chunks_exact(Form::Oracle.bytes());
    let times = records.clone().map(|record| record.first_chunk().copied().map(u32::from_le_bytes));
    Ok(records.len() > 0
        && (start.contains(&0) || start.contains(&255))
        && times.is_sorted()
        && (0..).zip(records).all(|(place, record)| follows(next(record), place)))
}

/// Reads the ids of a file; numbering them may take `most` bytes.
pub(super) fn read(path: &Path, form: Form, most: u64) -> Result<Trace, TraceError> {
    let (mut input, mut ids) = (Input::open(path)?, Ids::new(path, most, false));
    let bytes = form.bytes();
    let (mut piece, mut furthest) = (vec![0], (0, 0));
    while !piece.is_empty() {
        piece = input.start((bytes << 12) as u64)?;
        let records = piece.chunks_exact(bytes);
        let behind = records.remainder().len();
        for record in records {
            let place = ids.ids.len();
            if form == Form::Oracle {
                let next = next(record);
                if !follows(next, place as i64) {
                    let found = format!("{next} in record {place}, from 0 on");
                    let remedy = "the file is damaged or of another format, get or write it again";
                    return Err(TraceError::of(path, "a next access of -1 or of a later record", found, remedy));
                }
                furthest = furthest.max((if next == i64::MAX { 0 } else { next }, place));
            }
            let id = if form == Form::Oracle { &record[4..] } else { record };
            ids.push(Id::Number(id.first_chunk().copied().map_or(0, u64::from_le_bytes)))?;
        }
        if behind > 0 {
            let found = format!("a binary file with {behind} bytes behind record {}", ids.ids.len());
            let remedy = "the file is cut off or of another format, get it again";
            return Err(TraceError::of(path, format!("whole records of {bytes} bytes"), found, remedy));
        }
    }
    let records = ids.ids.len();
    let mut trace = ids.found("of more than 32 bits");
    if furthest.0 > records as i64 {
        let (next, place) = furthest;
        trace.notes.push(format!(
            "{}: the next access of record {place} is record {next}, behind its {records} records: it is cut off, or part of a longer trace",
            path.display()
        ));
    }
    Ok(trace)
}
