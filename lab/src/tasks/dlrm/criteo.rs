//! Turns the lines of Criteo's click logs into samples.

use anyhow::ensure;
use hotrow_report::failure::Failure;
use hotrow_report::fmix32;
pub(super) use hotrow_report::trace::CriteoFile;
use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use std::{collections::HashMap, path::Path};

/// The last of this many parts of the file is the test set. Criteo-Kaggle has seven days, and Yang 2020 tests on the last one.
const PARTS: u64 = 7;

/// Tables of at most this many rows number their categories where others hash them.
const NUMBERED: u32 = 1000;

/// The most bytes that a numbered category takes while its map grows: 9 in each of two places out of 7/8, and in the map before.
pub(super) const BYTES: u64 = 32;

pub(super) fn lines(path: &Path) -> anyhow::Result<u64> {
    let (mut lines, mut file) = (0, CriteoFile::open(path)?);
    while file.next_line()?.is_some() {
        lines += 1;
    }
    Ok(lines)
}

/// The line that begins the test set, which is the last seventh.
pub(super) fn test_begins(path: &Path, lines: u64) -> anyhow::Result<u64> {
    let name = path.display();
    ensure!(
        lines >= PARTS,
        "{name}: wanted at least {PARTS} lines, of which the last seventh is the test set, found {lines}; the file is cut off \
         or the wrong one, get it again"
    );
    Ok(lines - lines / PARTS)
}

/// Hands on the sample of each line, and returns the rows of the tables: as `hashed` says, else as found. Errors name the file and the line.
pub(super) fn samples(
    path: &Path,
    hashed: Option<&[u32; CRITEO_CATEGORIES]>,
    mut take: impl FnMut(Sample) -> Result<(), Failure>,
) -> Result<[u32; CRITEO_CATEGORIES], Failure> {
    let mut tables: [Rows; CRITEO_CATEGORIES] =
        std::array::from_fn(|table| Rows { most: hashed.map(|rows| rows[table]), numbered: HashMap::new() });
    let mut file = CriteoFile::open(path)?;
    while let Some(line) = file.next_line()? {
        let mut categories = line.categories()?.into_iter();
        let rows = tables.each_mut().map(|table| table.of(categories.next().flatten()));
        take(Sample::new(line.counts()?, rows, line.label()?))?;
    }
    Ok(hashed.copied().unwrap_or_else(|| tables.map(|table| table.numbered.len() as u32 + 1)))
}

/// Maps the categories of a field to the rows of its table. Row 0 is the missing category, whether there is one or not.
///
/// As in DLRM, each category has a row of its own, in the order of the file, and those that only the test set has get one, too.
///
/// A hash needs no memory and gives equal categories the same row. But it would put some of few categories into one row, so small tables
/// number categories by first appearance while rows are left.
#[derive(Debug)]
struct Rows {
    /// The rows, if they are given.
    most: Option<u32>,
    numbered: HashMap<u32, u32>,
}

impl Rows {
    fn of(&mut self, category: Option<u32>) -> u32 {
        let Some(category) = category else { return 0 };
        let most = self.most.unwrap_or(u32::MAX);
        let hashed = || 1 + fmix32(category) % (most - 1);
        if most > NUMBERED && self.most.is_some() {
            return hashed();
        }
        let next = self.numbered.len() as u32 + 1;
        match self.numbered.get(&category) {
            Some(&row) => row,
            None if next < most => {
                self.numbered.insert(category, next);
                next
            }
            None => hashed(),
        }
    }
}

/// A line of a click log, from a file or generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) dense: [f32; CRITEO_COUNTS],
    /// The row of each table.
    pub(super) rows: [u32; CRITEO_CATEGORIES],
    pub(super) label: bool,
}

impl Sample {
    pub(super) fn new(counts: [Option<i64>; CRITEO_COUNTS], rows: [u32; CRITEO_CATEGORIES], label: bool) -> Self {
        Self { dense: counts.map(dense_value), rows, label }
    }
}

/// ln(1 + count) as in DLRM; missing and negative counts are 0.
pub(super) fn dense_value(count: Option<i64>) -> f32 {
    (count.unwrap_or(0).max(0) as f64).ln_1p() as f32
}
