//! Turns the lines of Criteo's click logs into samples.

use super::sample::{Kept, Sample};
use crate::task::Needed;
use anyhow::{Context as _, ensure};
use hotrow::hash::fmix32;
use hotrow_cli::trace::{CRITEO_CATEGORIES, CriteoFile};
use std::collections::HashMap;
use std::path::Path;

/// The last of this many parts of the file is the test set. Criteo-Kaggle has seven days, and Yang 2020 tests on the last one.
const PARTS: usize = 7;

/// Tables of at most this many rows number their categories; larger ones hash them.
const NUMBERED: u32 = 1000;

/// Reads the training and test samples of a file. The last seventh of the lines is the test set; `limit` keeps the first samples of the
/// training set, of which those are kept that are `needed`. Errors name the file and the line.
pub(super) fn read(
    path: &Path,
    rows: &[u32; CRITEO_CATEGORIES],
    limit: Option<usize>,
    needed: Needed<'_>,
) -> anyhow::Result<(Kept, Vec<Sample>)> {
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
    let short = || {
        let (all, bytes) = (train + test, size_of::<Sample>());
        format!("{name}: wanted memory for {all} samples of {bytes} bytes, found too little; take fewer with --limit N")
    };
    let mut kept = Kept::new(train, needed).with_context(short)?;
    let mut tested = Vec::new();
    tested.try_reserve_exact(test).with_context(short)?;
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
        if number < train { kept.push(sample) } else { tested.push(sample) }
    }
    Ok((kept, tested))
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
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A line with `count` as its first count and `category` as its first and last category.
    fn line(label: &str, count: &str, category: &str) -> String {
        format!("{label}\t{count}{}\t{category}{}\t{category}\n", "\t7".repeat(12), "\t".repeat(24))
    }

    fn write(dir: &TempDir, content: &str) -> PathBuf {
        let path = dir.path().join("day.txt");
        fs::write(&path, content).unwrap();
        path
    }

    const ROWS: [u32; CRITEO_CATEGORIES] = {
        let mut rows = [5; CRITEO_CATEGORIES];
        rows[25] = 5000;
        rows
    };

    #[test]
    fn lines_become_samples() {
        let dir = TempDir::new().unwrap();
        // All training samples, and the test samples.
        let whole = |text: &str, limit| {
            let (train, test) = read(&write(&dir, text), &ROWS, limit, &|_| None).unwrap();
            ((0..train.count as u32).map(|place| *train.at(place)).collect::<Vec<Sample>>(), test)
        };
        let text: String =
            (0..15).map(|i| line(&(i % 2).to_string(), &(i - 1).to_string(), &format!("{i:x}"))).collect();
        for text in [text.clone(), text.replace('\n', "\r\n"), text.trim_end().to_owned()] {
            let (train, test) = whole(&text, None);
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
        let (limited, whole) = (whole(&text, Some(3)), whole(&text, None));
        assert_eq!(limited.0, whole.0[..3]);
        assert_eq!(limited.1.len(), whole.1.len());
        assert!(limited.1.iter().zip(&whole.1).all(|(limited, whole)| limited.label == whole.label));
        // A part keeps its samples; categories are numbered by all lines.
        let (part, test) = read(&write(&dir, &text), &ROWS, None, &|count| Some(vec![2, count as u32 - 1])).unwrap();
        assert_eq!((part.count, part.held(), test == whole.1), (13, 2, true));
        assert!([2, 12].iter().all(|&place| *part.at(place) == whole.0[place as usize]));
        assert!(std::panic::catch_unwind(|| *part.at(3)).is_err(), "it is not there");
    }

    #[test]
    fn hashed_rows_are_spread_and_in_range() {
        let of = |rows| Rows { rows, numbered: HashMap::new() };
        let mut rows = of(1001);
        let mut hits = vec![0; 1001];
        (0..100_000).for_each(|category| hits[rows.of(Some(category)) as usize] += 1);
        // About 100 in each row, with a deviation of 10; row 0 is for missing categories.
        assert_eq!(hits[0], 0);
        assert!(hits[1..].iter().all(|&hits| (50..150).contains(&hits)), "{hits:?}");
        assert_eq!(rows.of(None), 0);
        let mut two = of(2);
        assert_eq!([Some(7), Some(8), None].map(|category| two.of(category)), [1, 1, 0]);
    }

    #[test]
    fn bad_files_are_refused_by_line() {
        let dir = TempDir::new().unwrap();
        let good = line("1", "3", "ab").repeat(6);
        for (content, found) in [
            (String::new(), "found 0"),
            (good.clone(), "found 6"),
            (good.clone() + "1\t2\n", "\"2 fields\" in line 7"),
            (good.clone() + &line("1", "3", "ab\t"), "\"42 fields\" in line 7"),
            (good.clone() + &line("3", "3", "ab"), "\"3\" in line 7"),
            (good.clone() + &line("1", "3", "zz"), "\"zz\" in line 7"),
            (good.clone() + &line("1", "x", "ab"), "\"x\" in line 7"),
            (good.replacen("1\t", "", 6) + &line("1", "3", "ab"), "no label\" in line 1"),
        ] {
            let error = read(&write(&dir, &content), &ROWS, None, &|_| None).unwrap_err().to_string();
            assert!(error.contains("day.txt: wanted") && error.contains(found) && error.contains("; "), "{error}");
        }
        assert!(read(&write(&dir, &line("1", "3", "ab").repeat(7)), &ROWS, None, &|_| None).is_ok());
    }
}
