//! The click logs of Criteo. A line is a label (missing in test files), 13 counts and 26 categories of up to 8 hexadecimal digits,
//! separated by tabs; counts and categories may be empty.
//!
//! [`CriteoFile`] reads them. As a trace a line is a bag of 26 ids, one for each category; labels and counts are ignored. Ids are
//! numbered by first appearance over all fields together, so that equal digits in two fields are two rows. An empty category is a value of
//! its own, as in DLRM.

use super::error::TraceError;
use super::ids::{Id, Ids, Trace};
use super::lines::{Line, Lines, quote};
use std::fmt;
use std::path::Path;

pub const CRITEO_COUNTS: usize = 13;

pub const CRITEO_CATEGORIES: usize = 26;

/// Fields of a line, without the label.
const FEATURES: usize = CRITEO_COUNTS + CRITEO_CATEGORIES;

/// The longest legal line; without a limit a file without line ends would fill the memory.
const LONGEST: u64 = 4096;

/// A click log, read line by line; unpacked if its name ends in `.gz` or `.zst`.
pub struct CriteoFile(Lines);

impl fmt::Debug for CriteoFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CriteoFile").finish_non_exhaustive()
    }
}

impl CriteoFile {
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Lines::open(path, LONGEST).map(Self)
    }

    /// The next line, or `None` at the end of the file.
    pub fn next_line(&mut self) -> Result<Option<CriteoLine<'_>>, TraceError> {
        self.0.next()?.map(CriteoLine::of).transpose()
    }
}

/// A line of a [`CriteoFile`]. Its fields are parsed on demand.
#[derive(Clone, Copy, Debug)]
pub struct CriteoLine<'a> {
    line: Line<'a>,
    label: Option<&'a [u8]>,
    features: [&'a [u8]; FEATURES],
}

impl<'a> CriteoLine<'a> {
    fn of(line: Line<'a>) -> Result<Self, TraceError> {
        let found = line.bytes.split(|&byte| byte == b'\t').count();
        let mut fields = line.bytes.split(|&byte| byte == b'\t');
        if !(FEATURES..=FEATURES + 1).contains(&found) {
            let found = if line.bytes.is_empty() { "an empty line".to_owned() } else { format!("{found} fields") };
            let wanted = "39 fields separated by tabs, or 40 with the label";
            return Err(line.fail(wanted, &found, "repair or remove the line"));
        }
        let label = if found > FEATURES { fields.next() } else { None };
        let mut features = [&b""[..]; FEATURES];
        features.iter_mut().zip(fields).for_each(|(feature, field)| *feature = field);
        Ok(Self { line, label, features })
    }

    /// Whether the advertisement was clicked.
    pub fn label(&self) -> Result<bool, TraceError> {
        let remedy = "train on a file with labels (train.txt, not test.txt), or repair the line";
        match self.label {
            Some(b"0") => Ok(false),
            Some(b"1") => Ok(true),
            Some(other) => Err(self.fail("a label of 0 or 1", &quote(other), remedy)),
            None => Err(self.fail("a label of 0 or 1", "39 fields, no label", remedy)),
        }
    }

    /// The counts; `None` for an empty field.
    pub fn counts(&self) -> Result<[Option<i64>; CRITEO_COUNTS], TraceError> {
        let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
        self.fields(0, "an integer or nothing as count", number)
    }

    /// The categories; `None` for an empty field.
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
                let refused = || self.fail(&format!("{wanted} {i} of {N}"), &quote(field), "repair or remove the line");
                *value = Some(read(field).ok_or_else(refused)?);
            }
        }
        Ok(values)
    }

    fn fail(&self, wanted: &str, found: &str, remedy: &str) -> TraceError {
        self.line.fail(wanted, &format!("{found:?}"), remedy)
    }
}

/// Parses hexadecimal digits. Unlike the standard library it refuses a sign.
fn hexadecimal(field: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(field).ok().filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    digits.filter(|digits| digits.len() <= 8).and_then(|digits| u32::from_str_radix(digits, 16).ok())
}

/// Whether a text is such a log, by its first line. `named` says that its name is one's: then only the number of fields counts.
pub(super) fn is(first: &[u8], named: bool) -> bool {
    let Ok(line) = CriteoLine::of(Line::alone(first)) else { return false };
    // Bags of 39 or 40 decimal ids have no letter, and no field that is empty or begins with a zero.
    let telling = |field: &&[u8]| {
        field.is_empty() || field.len() > 1 && field[0] == b'0' || field.iter().any(u8::is_ascii_alphabetic)
    };
    let label = line.label.is_none() || line.label().is_ok();
    named || label && line.counts().is_ok() && line.categories().is_ok() && line.features.iter().any(telling)
}

/// The ids of the 26 tables; numbering them may take `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Trace, TraceError> {
    let mut file = CriteoFile::open(path)?;
    let (mut ids, mut offsets, mut tables) = (Ids::new(path, most, true), vec![0], Vec::new());
    while let Some(line) = file.next_line()? {
        for (field, category) in (0..).zip(line.categories()?) {
            // A category has 32 bits, and 0 is the missing one.
            let value = category.map_or(0, |category| u64::from(category) + 1);
            ids.push(Id::Number(u64::from(field) << 40 | value))?;
            tables.push(field);
        }
        offsets.push(u32::try_from(ids.ids.len()).map_err(|_| TraceError::too_long(path))?);
    }
    Ok(Trace { offsets: Some(offsets), tables: Some(tables), ..ids.found("the categories of Criteo's 26 tables") })
}
