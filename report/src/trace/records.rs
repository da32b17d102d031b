//! Ids in records of one length: `.u64`, and libCacheSim's oracleGeneral, whose records are a time (u32), an id (u64), a size (u32) and the number of the
//! record that has the id next (i64, -1 for none), little-endian and without gaps.

use super::error::TraceError;
use super::ids::{Id, Ids, Trace};
use super::packed::Input;
use std::path::Path;

/// The bytes of a record, and where its id begins.
pub(super) type Form = (usize, usize);
const U64: Form = (8, 0);
pub(super) const ORACLE: Form = (24, 4);

/// The form that a file's name tells, without the ending of its packing.
pub(super) fn named(name: &str) -> Option<Form> {
    let name = name.to_lowercase();
    let is_oracle = name.strip_suffix(".bin").unwrap_or(&name).ends_with(".oraclegeneral");
    if is_oracle { Some(ORACLE) } else { name.ends_with(".u64").then_some(U64) }
}

/// The next access of the record at a place from 0 on, 0 for none, or else what is there. Programs count records from 0 or from 1 on. No trace has 2^40
/// accesses, but other bytes, read as a record, nearly always more.
fn next(record: &[u8], place: usize) -> Result<i64, i64> {
    match i64::from_le_bytes(*record.last_chunk().unwrap_or(&[0; 8])) {
        -1 | i64::MAX => Ok(0),
        next if (place as i64 + 1..1 << 40).contains(&next) => Ok(next),
        next => Err(next),
    }
}

/// Whether the first 1,000 records of a file are oracleGeneral's. No text has a byte of 0 or 255.
pub(super) fn is_oracle(path: &Path) -> Result<bool, TraceError> {
    let start = Input::open(path)?.start(1000 * ORACLE.0 as u64)?;
    let records = start.chunks_exact(ORACLE.0);
    let fit = records.clone().enumerate().all(|(place, record)| next(record, place).is_ok());
    let times = records.clone().map(|record| record.first_chunk().map(|time| u32::from_le_bytes(*time)));
    Ok(records.len() > 0 && fit && times.is_sorted() && (start.contains(&0) || start.contains(&255)))
}

/// Reads the ids of a file; numbering them may take `most` bytes.
pub(super) fn read(path: &Path, (bytes, at): Form, most: u64) -> Result<Trace, TraceError> {
    let (mut input, mut ids, mut furthest) = (Input::open(path)?, Ids::new(path, most, false), (0, 0));
    let fail = |wanted: &str, found: String| {
        TraceError::of(path, wanted, found, "the file is damaged, cut off or of another format, get or write it again")
    };
    loop {
        let piece = input.start((bytes << 12) as u64)?;
        for record in piece.chunks(bytes) {
            let place = ids.ids.len();
            if record.len() < bytes {
                let found = format!("a binary file with {} bytes behind record {place}", record.len());
                return Err(fail(&format!("whole records of {bytes} bytes"), found));
            }
            if at > 0 {
                let wanted = "a next access of -1 or of a later record";
                let next = next(record, place);
                let next = next.map_err(|next| fail(wanted, format!("{next} in record {place}, from 0 on")))?;
                furthest = furthest.max((next, place));
            }
            ids.push(Id::Number(record[at..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id))))?;
        }
        if piece.is_empty() {
            let (count, (next, place)) = (ids.ids.len(), furthest);
            let mut trace = ids.found("of more than 32 bits");
            if next > count as i64 {
                let found = format!("the next access of record {place} is record {next}, behind its {count} records");
                trace.notes.push(format!("{}: {found}: it is cut off, or part of a longer trace", path.display()));
            }
            return Ok(trace);
        }
    }
}
