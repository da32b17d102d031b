//! Text files: one bag a line, ids separated by blanks or commas. An empty line is an empty bag.

use super::error::{MAX_ID, TraceError};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The most characters of a bad line that a message quotes.
const QUOTED: usize = 40;

/// All ids and the starts of the bags.
pub(super) fn read(path: &Path) -> Result<(Vec<u32>, Vec<u32>), TraceError> {
    let mut file = BufReader::new(File::open(path).map_err(TraceError::io(path))?);
    let (mut ids, mut offsets) = (Vec::new(), vec![0]);
    let mut bytes = Vec::new();
    let mut number = 0;
    while file.read_until(b'\n', &mut bytes).map_err(TraceError::io(path))? > 0 {
        number += 1;
        // Bytes that are no text become signs that are no digits, and are refused below.
        let line = String::from_utf8_lossy(&bytes);
        for piece in line.split(|c: char| c.is_whitespace() || c == ',').filter(|piece| !piece.is_empty()) {
            ids.push(id(path, number, ids.len(), piece)?);
        }
        offsets.push(u32::try_from(ids.len()).map_err(|_| TraceError::too_long(path))?);
        bytes.clear();
    }
    Ok((ids, offsets))
}

fn id(path: &Path, line: u64, position: usize, piece: &str) -> Result<u32, TraceError> {
    match piece.parse() {
        Ok(id) if id <= MAX_ID => Ok(id),
        // A number that is negative or too large for an id.
        _ if piece.strip_prefix('-').unwrap_or(piece).bytes().all(|byte| byte.is_ascii_digit()) && piece != "-" => {
            Err(TraceError::id(path, position as u64, quote(piece)))
        }
        _ => {
            let found = format!("{:?} in line {line}", quote(piece));
            Err(TraceError::of(path, "ids separated by blanks or commas", found, "remove it from the file"))
        }
    }
}

/// The start of a bad piece, for a message.
pub(super) fn quote(piece: &str) -> String {
    piece.chars().take(QUOTED).collect()
}
