//! Saves a group to a checkpoint.

use std::path::Path;

use crate::{
    checkpoint::{kind, robe, writer::write_tensors},
    config::GroupConfig,
    error::Error,
    lookup::{Embedding, Lookup},
    table::{layout::Layout, parts::Part, step_state},
};

/// Writes everything that `group` keeps between steps to `path`. The file is written beside `path` and renamed; it is
/// on disk when this returns. If the process is killed or this fails, the old file is still there. A killed process
/// leaves a file `<name>.tmp-<process>-<number>` behind; it does no harm, and the next save to the same name removes
/// it. If `path` is a link, the file that it leads to is replaced; the new file has the permissions of the old one.
///
/// # Errors
/// [`Error::Order`] between forward and backward, or between prefetch and forward. [`Error::Checkpoint`] if the file
/// cannot be written, for example because the disk is full, or if there is a pipe or a device. [`Error::Device`] if the device is lost.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn save(group: &mut (impl Embedding + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::save"));
    }
    let mut clock = [0];
    group.read_part(Part::Clock, 0, &mut clock)?;
    let config = group.config().clone();
    write(path.as_ref(), &config, clock[0], |part, first, words| group.read_part(part, first, words))
}

/// Writes a checkpoint whose parts `read` gives in pieces: a part, its first word, the words to fill.
///
/// # Errors
/// Those of `read`; [`Error::Checkpoint`] if the file cannot be written.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn write(
    path: &Path,
    config: &GroupConfig,
    step: u32,
    mut read: impl FnMut(Part, u64, &mut [u32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let parts = kind::parts(config, &Layout::new(config, u64::MAX)?);
    write_tensors(path, config, step, |at, first, words| read(parts[at].0, first, words))
}

/// [`save`] for any kind of table. A shared array is copied into host memory as a whole.
///
/// # Errors
/// The errors of [`save`].
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn save_lookup(group: &mut (impl Lookup + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    if let Some(group) = group.as_embedding() {
        return save(group, path);
    }
    match group.as_shared_array() {
        Some(array) => robe::save(array, path.as_ref()),
        None => Err(super::on_ranks("hotrow_dist::Group::save")),
    }
}
