//! Loads a checkpoint into a group.

use std::path::Path;

use crate::{
    checkpoint::{
        fault,
        kind::{self, check_same},
        reader::{DAMAGED, Reader},
        robe,
    },
    config::GroupConfig,
    error::Error,
    lookup::{Embedding, Lookup},
    table::{counters::Counters, layout::Layout, metadata, parts::Part, step_state},
};

/// Reads the configuration and the step number of a checkpoint. Placement, pieces, initial values and `forward_only` are not kept; here they
/// are the defaults of [`GroupConfig::new`], but that `forward_only` is set where rows of the precision do not train. Of the tables only the length is checked.
///
/// # Errors
/// [`Error::Checkpoint`] if the file cannot be read, is no checkpoint, is cut off, or has a damaged header.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn contents(path: impl AsRef<Path>) -> Result<(GroupConfig, u32), Error> {
    let Reader { config, step, .. } = Reader::open(path.as_ref())?;
    Ok((config, step))
}

/// Loads a checkpoint into a group of the same configuration, on any backend and placement. The group then continues as
/// the saved one would have, bit for bit. Learning rate, eps, weight decay, pooling, features, padding, the handling
/// of bad indices, `forward_only` and the placement stay the group's own and may differ.
///
/// The file is read twice: all checksums are compared before the group is changed.
///
/// # Errors
/// [`Error::Order`] between forward and backward, or between prefetch and forward. [`Error::Checkpoint`] if the file
/// cannot be read, is no checkpoint, is cut off, is damaged, or has another configuration; the group is then unchanged.
/// Three errors can come after the group was changed in part: [`Error::Checkpoint`] if the file changes or vanishes
/// before its second reading (the error says so), [`Error::Store`] if a staged group's store fails, [`Error::Device`]
/// if the device is lost. Load again then, into a new group if the device is lost.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn load(group: &mut (impl Embedding + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    if group.pending() {
        return Err(step_state::backward_first("checkpoint::load"));
    }
    // Fails early, before a long file is read, if a batch is prefetched.
    group.read_part(Part::Clock, 0, &mut [0])?;
    let mut file = Reader::<GroupConfig>::open(path)?;
    check_same(path, group.config(), &file.config)?;

    let (config, step, layout) = (file.config.clone(), file.step, Layout::new(&file.config, u64::MAX)?);
    let parts = kind::parts(&config, &layout);
    file.walk(DAMAGED, |at, first, words| {
        let (part, tensor) = &parts[at];
        let checked = match part {
            Part::Ways => {
                let first_set = (first / layout.set_words()) as u32;
                let checked = metadata::check(&config, &layout, step, first_set, words);
                checked.map_err(|error| error.to_string())
            }
            Part::Frequencies => metadata::check_frequencies(&config, first, words).map_err(|error| error.to_string()),
            Part::Counters => Counters::check_part(words),
            Part::Since => metadata::check_since(first, words).map_err(|error| error.to_string()),
            Part::Clock | Part::Cache | Part::Records => return Ok(()),
        };
        checked.map_err(|error| {
            let remedy = "get a file that checkpoint::save wrote, unchanged";
            fault(path, tensor.name, "what a group can have left", &error, remedy)
        })
    })?;
    group.write_part(Part::Clock, 0, &[step])?;
    let changed = "the file changed while it was read, and the group holds a part of it: load another";
    file.walk(changed, |at, first, words| group.write_part(parts[at].0, first, words))
}

/// [`load`] for any kind of table.
///
/// # Errors
/// The errors of [`load`]; [`Error::Checkpoint`] if the file holds the other kind of table.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn load_lookup(group: &mut (impl Lookup + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    if let Some(group) = group.as_embedding() {
        return load(group, path);
    }
    match group.as_shared_array() {
        Some(array) => robe::load(array, path.as_ref()),
        None => Err(super::on_ranks("hotrow_dist::Group::load")),
    }
}
