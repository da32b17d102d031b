//! Turns the lines of Criteo's click logs into samples.

use super::Sample;
use anyhow::ensure;
use hotrow::hash::fmix32;
use hotrow_cli::trace::{CRITEO_CATEGORIES, CriteoFile};
use std::collections::HashMap;
use std::path::Path;

/// The last of this many parts of the file is the test set. Criteo-Kaggle has seven days, and Yang 2020 tests on the last one.
const PARTS: usize = 7;

/// Tables of at most this many rows number their categories; larger ones hash them.
const NUMBERED: u32 = 1000;

/// Reads the training and test samples of a file. The last seventh of the lines is the test set; `limit` keeps the first samples of the
/// training set. Errors name the file and the line.
pub(super) fn read(
    path: &Path,
    rows: &[u32; CRITEO_CATEGORIES],
    limit: Option<usize>,
) -> anyhow::Result<[Vec<Sample>; 2]> {
    // The file is read twice. Counting first saves memory and gives the exact start of the test set.
    let mut lines = 0;
    let mut file = CriteoFile::open(path)?;
    while file.next_line()?.is_some() {
        lines += 1;
    }
    let (name, test) = (path.display(), lines / PARTS);
    ensure!(
        test > 0,
        "{name}: wanted at least {PARTS} lines, of which the last seventh is the test set, found {lines}; the file is cut off \
         or the wrong one, get it again"
    );
    let train = (lines - test).min(limit.unwrap_or(usize::MAX));
    let [mut trained, mut tested] = [const { Vec::new() }; 2];
    let mut tables = rows.map(|rows| Rows { rows, numbered: HashMap::new() });
    let mut file = CriteoFile::open(path)?;
    for number in 0.. {
        let Some(line) = file.next_line()? else { break };
        if (train..lines - test).contains(&number) {
            continue; // beyond the limit
        }
        let mut categories = line.categories()?.into_iter();
        let rows = tables.each_mut().map(|table| table.of(categories.next().flatten()));
        let sample = Sample::new(line.counts()?, rows, line.label()?);
        if number < train { trained.push(sample) } else { tested.push(sample) }
    }
    Ok([trained, tested])
}

/// Maps the categories of a field to the rows of its table. Row 0 is the missing category.
///
/// A hash needs no memory and gives equal categories the same row. But it would put some of few categories into one row, so small tables
/// number categories by first appearance while rows are left.
#[derive(Debug)]
struct Rows {
    rows: u32,
    numbered: HashMap<u32, u32>,
}

impl Rows {
    fn of(&mut self, category: Option<u32>) -> u32 {
        let Some(category) = category else { return 0 };
        let hashed = || 1 + fmix32(category) % (self.rows - 1);
        if self.rows > NUMBERED {
            return hashed();
        }
        let next = self.numbered.len() as u32 + 1;
        match self.numbered.get(&category) {
            Some(&row) => row,
            None if next < self.rows => {
                self.numbered.insert(category, next);
                next
            }
            None => hashed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with `count` as its first count and `category` as its first and last category.
    fn line(label: &str, count: &str, category: &str) -> String {
        format!("{label}\t{count}{}\t{category}{}\t{category}\n", "\t7".repeat(12), "\t".repeat(24))
    }

    const ROWS: [u32; CRITEO_CATEGORIES] = {
        let mut rows = [5; CRITEO_CATEGORIES];
        rows[25] = 5000;
        rows
    };

    #[test]
    fn lines_become_samples() {
        let folder = tempfile::tempdir().unwrap();
        let whole = |text: &str, limit| {
            std::fs::write(folder.path().join("day.txt"), text).unwrap();
            read(&folder.path().join("day.txt"), &ROWS, limit).unwrap()
        };
        let text: String =
            (0..15).map(|i| line(&(i % 2).to_string(), &(i - 1).to_string(), &format!("{i:x}"))).collect();
        for text in [text.clone(), text.replace('\n', "\r\n"), text.trim_end().to_owned()] {
            let [train, test] = whole(&text, None);
            assert_eq!((train.len(), test.len()), (13, 2), "15 lines: the last 2 are the last seventh");
            assert_eq!((train[0].label, train[1].label, test[1].label), (false, true, false));
            // Counts -1, 0, 1, 2; negative ones become 0.
            let first: Vec<f32> = (0..4).map(|sample| train[sample].dense[0]).collect();
            assert_eq!(first, [0.0, 0.0, 2f32.ln(), 3f32.ln()]);
            assert_eq!(train[0].dense[1..], [8f64.ln() as f32; 12]);
            // A missing category is row 0; four others have rows of their own, further ones share them.
            assert_eq!(train[0].rows[1..25], [0; 24]);
            let small: Vec<u32> = (0..6).map(|sample| train[sample].rows[0]).collect();
            assert_eq!(small, [1, 2, 3, 4, 1 + fmix32(4) % 4, 1 + fmix32(5) % 4]);
            // A large table hashes.
            assert_eq!(test[1].rows[25], 1 + fmix32(14) % 4999);
        }
        let ([few, tested], [all, whole]) = (whole(&text, Some(3)), whole(&text, None));
        assert_eq!((&few[..], tested.len()), (&all[..3], whole.len()));
    }
}
