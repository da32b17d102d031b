//! Saves and loads a parameter-shared group. Its array is copied into memory as a whole, since it is far smaller than
//! the table it stands for.

use std::path::Path;

use crate::{
    checkpoint::{
        kind::check_same,
        reader::{DAMAGED, Reader},
        writer::write_tensors,
    },
    error::Error,
    host::alloc::zeroed,
    lookup::SharedArray,
    robe::{RobeSnapshot, config::Config},
    table::{counters::Counters, step_state},
};

pub(crate) fn save(group: &mut (impl SharedArray + ?Sized), path: &Path) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::save_lookup"));
    }
    let RobeSnapshot { t, weight_words, state_words, counters } = group.snapshot()?;
    let tensors = [counted(&counters), weight_words, state_words];
    write_tensors(path, group.config(), t, |at, first, words| {
        words.copy_from_slice(&tensors[at][first as usize..][..words.len()]);
        Ok(())
    })
}

/// Reads the configuration and the step number of a shared array's checkpoint. Of the weights only the length is checked. The way of the backward and
/// initial values are not kept; here they are that of [`Config::new`], and 0.
///
/// ```
/// use hotrow::{CpuSharedGroup, Error, checkpoint, prelude::*, robe::Config};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("array.safetensors");
/// let mut group = CpuSharedGroup::new(Config::compressed(&[1000], 16, 10.0, 8)?)?;
/// checkpoint::save_lookup(&mut group, &path)?;
/// let (config, step) = checkpoint::array_contents(&path)?;
/// let mut again = CpuSharedGroup::new(config)?;
/// checkpoint::load_lookup(&mut again, &path)?;
/// assert_eq!((again.snapshot(), step), (group.snapshot(), 0));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Checkpoint`] if the file cannot be read, is no checkpoint of a shared array, or has a damaged header.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn array_contents(path: impl AsRef<Path>) -> Result<(Config, u32), Error> {
    let Reader { config, step, .. } = Reader::open(path.as_ref())?;
    Ok((config, step))
}

pub(crate) fn load(group: &mut (impl SharedArray + ?Sized), path: &Path) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::load_lookup"));
    }
    let mut file = Reader::<Config>::open(path)?;
    check_same(path, group.config(), &file.config)?;
    let tensors = file.tensors.iter().map(|tensor| zeroed("checkpoint", tensor.words() as usize));
    let mut tensors = tensors.collect::<Result<Vec<Vec<u32>>, Error>>()?;
    file.walk(DAMAGED, |at, first, words| {
        tensors[at][first as usize..][..words.len()].copy_from_slice(words);
        Ok(())
    })?;
    let mut tensors = tensors.into_iter();
    let mut next = || tensors.next().unwrap_or_default();
    let (counters, weight_words, state_words) = (uncounted(&next()), next(), next());
    group.restore(&RobeSnapshot { t: file.step, weight_words, state_words, counters })
}

/// The counters as words: accesses, out of range, and in the first row the skipped weights.
fn counted(counters: &[Counters]) -> Vec<u32> {
    let counts = counters.iter().flat_map(|table| [table.accesses, table.out_of_range, table.skipped_rows]);
    counts.flat_map(|count| [count as u32, (count >> 32) as u32]).collect()
}

/// Without the bytes, which follow from the accesses.
fn uncounted(words: &[u32]) -> Vec<Counters> {
    let of = |row: &[u32]| {
        let count = |at: usize| u64::from(row[2 * at]) | u64::from(row[2 * at + 1]) << 32;
        Counters { accesses: count(0), out_of_range: count(1), skipped_rows: count(2), ..Counters::default() }
    };
    words.chunks_exact(6).map(of).collect()
}
