//! The click logs of Criteo. A line is a label (missing in test files), 13 counts and 26 categories of up to 8 hexadecimal digits,
//! separated by tabs; counts and categories may be empty.
//!
//! [`CriteoFile`] reads them. As a trace (`.tsv`) a line is a bag of 26 ids, one for each category; labels and counts are ignored. Ids are
//! numbered by first appearance over all fields together, so that equal digits in two fields are two rows. An empty category is a value of
//! its own, as in DLRM.

use super::error::{MAX_ID, TraceError};
use super::text::quote;
use flate2::read::MultiGzDecoder;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Counts of a line.
pub const CRITEO_COUNTS: usize = 13;

/// Categories of a line.
pub const CRITEO_CATEGORIES: usize = 26;

/// Fields of a line, without the label.
const FEATURES: usize = CRITEO_COUNTS + CRITEO_CATEGORIES;

/// The longest legal line; without a limit a file without line ends would fill the memory.
const LONGEST: u64 = 4096;

/// A click log, read line by line; decompressed if its name ends in `.gz` or `.zst`.
pub struct CriteoFile {
    path: PathBuf,
    input: Box<dyn BufRead + Send>,
    bytes: Vec<u8>,
    number: u64,
}

impl fmt::Debug for CriteoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriteoFile").field("path", &self.path).field("number", &self.number).finish_non_exhaustive()
    }
}

impl CriteoFile {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file cannot be opened, or a `.zst` file has another format.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(TraceError::io(path))?;
        let ending = path.extension().unwrap_or_default();
        let input: Box<dyn BufRead + Send> = if ending == "gz" {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else if ending == "zst" {
            let unpacked = zstd::stream::read::Decoder::new(file).map_err(unreadable(path))?;
            Box::new(BufReader::new(unpacked))
        } else {
            Box::new(BufReader::new(file))
        };
        Ok(Self { path: path.into(), input, bytes: Vec::new(), number: 0 })
    }

    /// The next line, or `None` at the end of the file.
    ///
    /// # Errors
    /// Unless the line has 39 or 40 fields, and if reading fails.
    pub fn next_line(&mut self) -> Result<Option<CriteoLine<'_>>, TraceError> {
        self.bytes.clear();
        let read = self.input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut self.bytes);
        if read.map_err(unreadable(&self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let end = [&b"\r\n"[..], b"\n"].into_iter().find_map(|end| self.bytes.strip_suffix(end));
        let mut line = CriteoLine { path: &self.path, number: self.number, label: None, features: [b""; FEATURES] };
        let bytes = end.unwrap_or(&self.bytes);
        let found = bytes.split(|&byte| byte == b'\t').count();
        let mut fields = bytes.split(|&byte| byte == b'\t');
        if bytes.len() as u64 > LONGEST || !(FEATURES..=FEATURES + 1).contains(&found) {
            let found = match bytes.len() as u64 {
                0 => "an empty line".to_owned(),
                length if length > LONGEST => format!("more than {LONGEST} bytes without a line end"),
                _ => format!("{found} fields"),
            };
            let wanted = "39 fields separated by tabs, or 40 with the label";
            return Err(line.fail(wanted, &found, "remove the line; if these are other ids, rename the file to .txt"));
        }
        if found > FEATURES {
            line.label = fields.next();
        }
        line.features.iter_mut().zip(fields).for_each(|(feature, field)| *feature = field);
        Ok(Some(line))
    }
}

/// The error for a file that cannot be read, by its format.
fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> TraceError {
    let format = match path.extension().unwrap_or_default().to_str() {
        Some("gz") => Some("gzip"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    move |reason| TraceError::unreadable(path, format, reason)
}

/// A line of a [`CriteoFile`]. Its fields are parsed on demand.
#[derive(Clone, Debug)]
pub struct CriteoLine<'a> {
    path: &'a Path,
    number: u64,
    label: Option<&'a [u8]>,
    features: [&'a [u8]; FEATURES],
}

impl CriteoLine<'_> {
    /// Whether the advertisement was clicked.
    ///
    /// # Errors
    /// Unless the line has a label, 0 or 1.
    pub fn label(&self) -> Result<bool, TraceError> {
        let remedy = "train on a file with labels (train.txt, not test.txt), or repair the line";
        match self.label {
            Some(b"0") => Ok(false),
            Some(b"1") => Ok(true),
            Some(other) => Err(self.fail("a label of 0 or 1", &lossy(other), remedy)),
            None => Err(self.fail("a label of 0 or 1", "39 fields, no label", remedy)),
        }
    }

    /// The counts; `None` for an empty field.
    ///
    /// # Errors
    /// If a field is no integer of 64 bits.
    pub fn counts(&self) -> Result<[Option<i64>; CRITEO_COUNTS], TraceError> {
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        self.fields(0, "an integer or nothing as count", number)
    }

    /// The categories; `None` for an empty field.
    ///
    /// # Errors
    /// If a field is not 1 to 8 hexadecimal digits.
    pub fn categories(&self) -> Result<[Option<u32>; CRITEO_CATEGORIES], TraceError> {
        self.fields(CRITEO_COUNTS, "up to 8 hexadecimal digits or nothing as category", hexadecimal)
    }

    /// The values of `N` fields from `first` on.
    fn fields<T: Copy, const N: usize>(
        &self,
        first: usize,
        wanted: &str,
        read: fn(&[u8]) -> Option<T>,
    ) -> Result<[Option<T>; N], TraceError> {
        let mut values = [None; N];
        for ((value, &field), i) in values.iter_mut().zip(&self.features[first..]).zip(1..) {
            if !field.is_empty() {
                let refused = || self.fail(&format!("{wanted} {i} of {N}"), &lossy(field), "repair or remove the line");
                *value = Some(read(field).ok_or_else(refused)?);
            }
        }
        Ok(values)
    }

    fn fail(&self, wanted: &str, found: &str, remedy: &str) -> TraceError {
        TraceError::of(self.path, wanted, format!("{found:?} in line {}", self.number), remedy)
    }
}

/// Parses hexadecimal digits. Unlike the standard library it refuses a sign.
fn hexadecimal(field: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(field).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    digits.filter(|digits| digits.len() <= 8).and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

fn lossy(field: &[u8]) -> String {
    quote(&String::from_utf8_lossy(field))
}

/// All ids and the starts of the bags.
pub(super) fn read(path: &Path) -> Result<(Vec<u32>, Vec<u32>), TraceError> {
    let mut file = CriteoFile::open(path)?;
    let (mut ids, mut offsets) = (Vec::new(), vec![0]);
    let mut rows: HashMap<(usize, Option<u32>), u32> = HashMap::new();
    while let Some(line) = file.next_line()? {
        for category in line.categories()?.into_iter().enumerate() {
            let next = rows.len() as u32;
            let id = *rows.entry(category).or_insert(next);
            if id > MAX_ID {
                return Err(TraceError::id(path, ids.len() as u64, id));
            }
            ids.push(id);
        }
        offsets.push(u32::try_from(ids.len()).map_err(|_| TraceError::too_long(path))?);
    }
    Ok((ids, offsets))
}
