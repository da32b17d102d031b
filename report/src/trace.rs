//! Streams of row ids: read from files, looked up in the data folder, or generated.
//!
//! [`load`] takes what a user writes after `--trace`:
//!
//! | text | meaning |
//! |---|---|
//! | `dir/x.u32` | little-endian u32 ids; bags from `dir/x.offsets.u32` if that is there |
//! | `dir/x.u64` | little-endian u64 ids, with such bags |
//! | `dir/x.oracleGeneral`, `dir/x.oracleGeneral.bin` | libCacheSim's records of 24 bytes; under another name known by the first 1,000 |
//! | `dir/x.npy` | a one-dimensional numpy array of integers |
//! | `dir/x.csv`, `dir/x.tsv` | a table, whose column of ids [`Reading::column`] names if there are several |
//! | `train.txt`, `day_0` | Criteo's click logs, known by their shape: the 26 categories of a line are a bag |
//! | any other file | text: one bag a line, ids separated by blanks or commas |
//! | `wikitext2_words` | a file of the data folder, with or without its ending |
//! | `zipf:rows=1000000,s=1.05,n=100000` | ids 0, 1, .. drawn with probability ~ (id + 1)^-s |
//! | `drift:rows=1000000,s=1.05,every=50000,n=500000` | as zipf, but after every 50,000 accesses other ids are the popular ones |
//! | `uniform:rows=1000000,n=100000` | all ids equally likely |
//! | `meta2021:rows=100000` | the reuse histogram of Meta's published 2021 embedding accesses |
//!
//! Each file may be packed, as `.gz` or `.zst`. Beside it may lie the table of each access, as `dir/x.table.u8`; [`Reading::tables`]
//! names another file.

mod criteo;
mod error;
mod find;
mod generated;
mod ids;
mod lines;
mod npy;
mod packed;
mod records;
mod text;
mod words;

pub use criteo::{CRITEO_CATEGORIES, CRITEO_COUNTS, CriteoFile, CriteoLine};
pub use error::{MAX_ID, TraceError};
pub use find::{find, split_list};
pub use ids::Trace;
pub use words::{companion, read_labels, read_offsets};

use crate::failure::Failure;
use crate::spec::Spec;
use ids::{Id, Ids};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::path::Path;

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

#[derive(Clone, Copy, Debug, Default)]
pub struct Reading<'a> {
    /// The column of a table that holds the ids: its name, or its number from 1 on.
    pub column: Option<&'a str>,
    /// The most bytes that numbering ids may take, if there is a limit.
    pub memory: Option<u64>,
    /// The file of one byte an access, its table, of any trace.
    pub tables: Option<&'a Path>,
}

/// As [`load_as`], with the defaults of [`Reading`].
pub fn load(text: &str, source: &Source<'_>) -> Result<Trace, TraceError> {
    load_as(text, source, &Reading::default())
}

/// Loads or generates the trace that `text` asks for; see the module's table.
pub fn load_as(text: &str, source: &Source<'_>, reading: &Reading<'_>) -> Result<Trace, TraceError> {
    type Generate = fn(&Spec<'_>, u64) -> Result<Vec<u32>, TraceError>;
    let made = |generate: Generate| {
        no_column(text, reading)?;
        let ids = Spec::parse(text, &generated::KINDS, "").map_err(TraceError::Spec);
        let ids = ids.and_then(|spec| generate(&spec, source.seed)).map_err(|error| match error {
            TraceError::Spec(reason) => TraceError::Spec(format!("trace {text}: {reason}")),
            TraceError::Content(reason) => TraceError::Content(format!("trace {text}: {reason}")),
        })?;
        Ok::<_, TraceError>(Trace { name: text.to_owned(), distinct: distinct(&ids), ids, ..Trace::default() })
    };
    let mut beside = None;
    let trace = match text.split(':').next() {
        Some("zipf") => made(generated::zipf),
        Some("drift") => made(generated::drift),
        Some("uniform") => made(generated::uniform),
        Some("meta2021") => made(generated::meta2021),
        _ => {
            let path = find(text, source.data)?;
            let mut trace = read(&path, reading)?;
            if trace.ids.is_empty() {
                return Err(TraceError::empty(&path));
            }
            (trace.name, trace.distinct) = (packed::stem(&path), distinct(&trace.ids));
            beside = packed::beside(&path, ".table.u8");
            Ok(trace)
        }
    }?;
    match reading.tables.map(Path::to_owned).or(beside) {
        Some(path) => with_tables(trace, &path, reading),
        None => Ok(trace),
    }
}

/// Refuses a column of what has none.
fn no_column(text: &str, reading: &Reading<'_>) -> Result<(), TraceError> {
    let Some(column) = reading.column else { return Ok(()) };
    Err(TraceError::Spec(format!(
        "--column: wanted a trace of text beside it, found {text} and {column}; leave it out"
    )))
}

/// Takes the tables from a file of one byte an access. Where two tables share ids, each pair of table and id becomes a row.
fn with_tables(mut trace: Trace, path: &Path, reading: &Reading<'_>) -> Result<Trace, TraceError> {
    let tables = words::bytes(path)?;
    if tables.len() != trace.ids.len() {
        let wanted = format!("as many tables as accesses, {}", trace.ids.len());
        let remedy = "get the file again, or remove it to go without tables";
        return Err(TraceError::of(path, wanted, tables.len(), remedy));
    }
    let mut pairs = Ids::new(path, reading.memory.unwrap_or(u64::MAX), true);
    for (&id, &table) in trace.ids.iter().zip(&tables) {
        pairs.push(Id::Number(u64::from(table) << 32 | u64::from(id)))?;
    }
    if pairs.distinct() != trace.distinct as usize {
        trace.notes.extend(pairs.note("pairs of a table and an id since tables share ids"));
        (trace.distinct, trace.ids, trace.numbered) = (pairs.distinct() as u32, pairs.ids, true);
    }
    Ok(Trace { tables: Some(tables), ..trace })
}

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

/// What a file holds, by its ending or its first lines, without its name and the number of distinct ids.
fn read(path: &Path, reading: &Reading<'_>) -> Result<Trace, TraceError> {
    let name = packed::bare(path);
    let most = reading.memory.unwrap_or(u64::MAX);
    let form = records::named(&name);
    let is_named = form.is_some() || name.ends_with(".u32") || name.ends_with(".npy");
    let found = if is_named || !records::is_oracle(path)? { None } else { Some(records::ORACLE) };
    if is_named || found.is_some() {
        no_column(&path.display().to_string(), reading)?;
    }
    if name.ends_with(".u32") {
        let ids = words::words(path)?;
        if ids.is_empty() {
            return Err(TraceError::empty(path)); // the cause, before offsets that do not fit
        }
        if let Some(at) = ids.iter().position(|&id| id > MAX_ID) {
            return Err(TraceError::id(path, at as u64, ids[at]));
        }
        let offsets = words::offsets_beside(path, ids.len())?;
        Ok(Trace { ids, offsets, ..Trace::default() })
    } else if let Some(form) = form.or(found) {
        let mut trace = records::read(path, form, most)?;
        let note = "taken as libCacheSim's oracleGeneral, by its records; numbers of 64 bits have the ending .u64";
        trace.notes.extend(found.map(|_| format!("{}: {note}", path.display())));
        if !trace.ids.is_empty() {
            trace.offsets = words::offsets_beside(path, trace.ids.len())?;
        }
        Ok(trace)
    } else if name.ends_with(".npy") {
        Ok(npy::read(path, most)?.found("negative or of more than 32 bits"))
    } else {
        text::read(path, reading.column, most)
    }
}
