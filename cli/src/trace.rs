//! Streams of row ids: read from files, looked up in the data folder, or generated.
//!
//! [`load`] takes what a user writes after `--trace`:
//!
//! | text | meaning |
//! |---|---|
//! | `dir/x.u32`, `dir/x.u32.zst` | little-endian u32 ids; bags from `dir/x.offsets.u32[.zst]` if that is there |
//! | `dir/x.npy` | a one-dimensional numpy array of u32, i32, u64 or i64 |
//! | `dir/x.tsv` | Criteo's click logs: the 26 categories of a line are a bag |
//! | any other file | text: one bag a line, ids separated by blanks or commas |
//! | `wikitext2_words` | a file of the data folder, with or without its ending |
//! | `zipf:rows=1000000,s=1.05,n=100000` | ids 0, 1, .. drawn with probability ~ (id + 1)^-s |
//! | `uniform:rows=1000000,n=100000` | all ids equally likely |
//! | `meta2021:rows=100000` | the reuse histogram of Meta's published 2021 embedding accesses |

mod criteo;
mod error;
mod find;
mod generated;
mod labels;
mod meta2021;
mod npy;
mod offsets;
mod spec;
mod text;
mod words;

pub use criteo::{CRITEO_CATEGORIES, CRITEO_COUNTS, CriteoFile, CriteoLine};
pub use error::{MAX_ID, TraceError};
pub use find::{find, split_list};
pub use labels::{companion, read as read_labels};
pub use offsets::read as read_offsets;

use crate::failure::Failure;
use rayon::prelude::*;
use spec::Spec;
use std::cmp::Reverse;
use std::path::Path;

/// Row ids in access order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The file's name without folder and ending, or the text that asked for a generated trace.
    pub name: String,
    /// One id per access. Never empty.
    pub ids: Vec<u32>,
    /// The start of each bag in `ids`, and the end of the last one. Ascending, from 0 to `ids.len()`.
    pub offsets: Option<Vec<u32>>,
    /// Number of distinct ids.
    pub distinct: u32,
}

impl Trace {
    /// The start of each bag, and the end of the last one. A trace without bags is cut into whole ones of `lookups` accesses, or of one.
    ///
    /// # Errors
    /// Bad usage if `lookups` is given for a trace that has bags.
    pub fn bags(&self, lookups: Option<u32>) -> Result<Vec<u32>, Failure> {
        match (&self.offsets, lookups) {
            (Some(_), Some(found)) => Err(Failure::Usage(format!(
                "--lookups: wanted none, since {} has bags of its own, found {found}; leave it out",
                self.name
            ))),
            (Some(offsets), None) => Ok(offsets.clone()),
            (None, lookups) => {
                let each = lookups.unwrap_or(1);
                Ok((0..=self.ids.len() as u32 / each).map(|bag| bag * each).collect())
            }
        }
    }

    /// The `rows` most used ids, most used first; among equals the smaller id first.
    #[must_use]
    pub fn hottest(&self, rows: usize) -> Vec<u32> {
        let mut ids = self.ids.clone();
        ids.par_sort_unstable();
        let mut counted: Vec<(Reverse<usize>, u32)> =
            ids.chunk_by(|a, b| a == b).map(|same| (Reverse(same.len()), same[0])).collect();
        counted.par_sort_unstable();
        counted.into_iter().take(rows).map(|(_, id)| id).collect()
    }
}

/// The data folder and the seed of generated traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The data folder in which bare names are looked up.
    pub data: Option<&'a Path>,
    /// Seed of generated traces: the same seed gives the same trace on every machine.
    pub seed: u64,
}

/// Loads or generates the trace that `text` asks for; see the module's table.
///
/// # Errors
/// [`TraceError`] says what was wanted, what was found and what to do.
pub fn load(text: &str, source: &Source<'_>) -> Result<Trace, TraceError> {
    type Generate = fn(&Spec<'_>, u64) -> Result<Vec<u32>, TraceError>;
    let made = |keys: &[&str], generate: Generate| {
        Ok::<_, TraceError>((generate(&Spec::parse(text, keys)?, source.seed)?, None, text.to_owned()))
    };
    let (ids, offsets, name) = match text.split(':').next() {
        Some("zipf") => made(&["rows", "s", "n"], generated::zipf)?,
        Some("uniform") => made(&["rows", "n"], generated::uniform)?,
        Some("meta2021") => made(&["rows", "n"], meta2021::generate)?,
        _ => {
            let path = find(text, source.data)?;
            let (ids, offsets) = read(&path)?;
            if ids.is_empty() {
                return Err(TraceError::empty(&path));
            }
            (ids, offsets, find::stem(&path))
        }
    };
    let distinct = distinct(&ids);
    Ok(Trace { name, ids, offsets, distinct })
}

/// The number of distinct ids.
fn distinct(ids: &[u32]) -> u32 {
    let words = ids.iter().max().map_or(0, |&largest| largest as usize / 64 + 1);
    // A bit for each possible id, if that takes less memory than a copy of the ids.
    if words <= ids.len() / 2 + 1024 {
        let mut seen = vec![0_u64; words];
        ids.iter().for_each(|&id| seen[id as usize / 64] |= 1 << (id % 64));
        return seen.iter().map(|word| word.count_ones()).sum();
    }
    let mut sorted = ids.to_vec();
    sorted.par_sort_unstable();
    sorted.dedup();
    sorted.len() as u32
}

/// Ids and bags of a file, by its ending.
fn read(path: &Path) -> Result<(Vec<u32>, Option<Vec<u32>>), TraceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".u32") || name.ends_with(".u32.zst") {
        let ids = words::read(path)?;
        if ids.is_empty() {
            return Err(TraceError::empty(path)); // the cause, before offsets that do not fit
        }
        if let Some(at) = ids.iter().position(|&id| id > MAX_ID) {
            return Err(TraceError::id(path, at as u64, ids[at]));
        }
        let offsets = offsets::beside(path, ids.len())?;
        Ok((ids, offsets))
    } else if name.ends_with(".npy") {
        Ok((npy::read(path)?, None))
    } else if name.ends_with(".tsv") {
        let (ids, offsets) = criteo::read(path)?;
        Ok((ids, Some(offsets)))
    } else if [".zst", ".gz", ".npz", ".parquet"].iter().any(|ending| name.ends_with(ending)) {
        let wanted = ".u32, .u32.zst, .npy, .tsv or text";
        Err(TraceError::of(path, wanted, "another packed format", "convert or unpack it first"))
    } else {
        let (ids, offsets) = text::read(path)?;
        Ok((ids, Some(offsets)))
    }
}
