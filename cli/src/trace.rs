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
mod distinct;
mod error;
mod find;
mod labels;
mod limits;
mod list;
mod meta2021;
mod npy;
mod offsets;
mod spec;
mod text;
mod uniform;
mod words;
mod zipf;

pub use criteo::{CRITEO_CATEGORIES, CRITEO_COUNTS, CriteoFile, CriteoLine};
pub use error::TraceError;
pub use find::find;
pub use labels::{companion, read as read_labels};
pub use limits::MAX_ID;
pub use list::split_list;
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
    let (ids, offsets, name) = match text.split(':').next() {
        Some("zipf") => (zipf::generate(&Spec::parse(text, &["rows", "s", "n"])?, source.seed)?, None, text.to_owned()),
        Some("uniform") => {
            (uniform::generate(&Spec::parse(text, &["rows", "n"])?, source.seed)?, None, text.to_owned())
        }
        Some("meta2021") => {
            (meta2021::generate(&Spec::parse(text, &["rows", "n"])?, source.seed)?, None, text.to_owned())
        }
        _ => {
            let path = find(text, source.data)?;
            let (ids, offsets) = read(&path)?;
            if ids.is_empty() {
                return Err(TraceError::Empty { path });
            }
            (ids, offsets, find::stem(&path))
        }
    };
    let distinct = distinct::count(&ids);
    Ok(Trace { name, ids, offsets, distinct })
}

/// Ids and bags of a file, by its ending.
fn read(path: &Path) -> Result<(Vec<u32>, Option<Vec<u32>>), TraceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".u32") || name.ends_with(".u32.zst") {
        let ids = words::read(path)?;
        if ids.is_empty() {
            return Err(TraceError::Empty { path: path.into() }); // the cause, before offsets that do not fit
        }
        check_ids(path, &ids)?;
        let offsets = offsets::beside(path, ids.len())?;
        Ok((ids, offsets))
    } else if name.ends_with(".npy") {
        Ok((npy::read(path)?, None))
    } else if name.ends_with(".tsv") {
        let (ids, offsets) = criteo::read(path)?;
        Ok((ids, Some(offsets)))
    } else if [".zst", ".gz", ".npz", ".parquet"].iter().any(|ending| name.ends_with(ending)) {
        Err(TraceError::Format { path: path.into() })
    } else {
        let (ids, offsets) = text::read(path)?;
        Ok((ids, Some(offsets)))
    }
}

fn check_ids(path: &Path, ids: &[u32]) -> Result<(), TraceError> {
    match ids.iter().position(|&id| id > MAX_ID) {
        Some(at) => Err(TraceError::Id { path: path.into(), position: at as u64, found: ids[at].to_string() }),
        None => Ok(()),
    }
}
