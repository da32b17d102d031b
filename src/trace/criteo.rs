//! `.tsv`: the click logs of Criteo. A line is a label (missing in test files), 13 counts and 26 categories of up to 8
//! hexadecimal digits, separated by tabs.
//!
//! A line becomes a bag of 26 ids, one a category. Ids are numbered by first appearance over all fields together, so
//! that equal digits in two fields are two rows. An empty category is a value of its own, as DLRM has it. Labels and
//! counts are left out.

use super::text::quote;
use super::{MAX_ID, TraceError};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

const CATEGORIES: usize = 26;

/// Fields of a line without and with a label.
const FIELDS: [usize; 2] = [39, 40];

/// A category that a line leaves out; no 8 digits give it.
const EMPTY: u64 = 1 << 32;

/// All ids and the starts of the bags.
pub(super) fn read(path: &Path) -> Result<(Vec<u32>, Vec<u32>), TraceError> {
    let io_error = |source| TraceError::Io { path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(io_error)?);
    let (mut ids, mut offsets) = (Vec::new(), vec![0]);
    let mut rows: HashMap<(usize, u64), u32> = HashMap::new();
    let (mut bytes, mut number) = (Vec::new(), 0);
    while file.read_until(b'\n', &mut bytes).map_err(io_error)? > 0 {
        number += 1;
        let fail = |found: String| TraceError::Criteo { path: path.into(), line: number, found };
        let line = String::from_utf8_lossy(&bytes);
        let fields: Vec<&str> = line.trim_end_matches(['\n', '\r']).split('\t').collect();
        if !FIELDS.contains(&fields.len()) {
            return Err(fail(format!("{} fields", fields.len())));
        }
        for (field, digits) in fields[fields.len() - CATEGORIES..].iter().enumerate() {
            let value = match digits.len() {
                0 => EMPTY,
                1..=8 if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                    u64::from_str_radix(digits, 16).map_err(|_| fail(quote(digits)))?
                }
                _ => return Err(fail(quote(digits))),
            };
            let next = rows.len() as u32;
            let id = *rows.entry((field, value)).or_insert(next);
            if id > MAX_ID {
                return Err(TraceError::Id { path: path.into(), position: ids.len() as u64, found: id.to_string() });
            }
            ids.push(id);
        }
        offsets.push(u32::try_from(ids.len()).map_err(|_| TraceError::TooLong { path: path.into() })?);
        bytes.clear();
    }
    Ok((ids, offsets))
}
