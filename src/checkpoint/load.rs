//! Loads a checkpoint into a group.

use std::{collections::BTreeMap, path::Path};

use crate::{
    checkpoint::{fault, fields, header::Contents, reader::Reader, robe},
    error::Error,
    lookup::Embedding,
    lookup::{Lookup, LookupKind},
    record::{of_params, rows},
    table::{
        abi::{DIRTY, Field, Params, way_at},
        counters::Counters,
        hash::fmix32,
        metadata,
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
        step_state,
    },
};

/// Reads the configuration and the step number of a checkpoint. Of the tables only the length is checked.
///
/// # Errors
/// [`Error::Checkpoint`] if the file cannot be read, is no checkpoint, is cut off, or has a damaged header.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn contents(path: impl AsRef<Path>) -> Result<Contents, Error> {
    Ok(Reader::open(path.as_ref())?.contents)
}

/// Loads a checkpoint into a group of the same configuration, on any backend and placement. The group then continues as
/// the saved one would have, bit for bit. Learning rate, eps, weight decay, pooling, features, padding, the handling
/// of bad indices, `forward_only` and the placement stay the group's own and may differ.
///
/// The file is read twice: all checksums are compared before the group is changed.
///
/// In older files rows had other sets (SPEC 4). From such a file the changed rows of the cache are written to their records, rounded as at an eviction, the
/// pinned rows are pinned anew, and the cache begins without the others; a warning of the `log` crate says so.
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
    let mut file = Reader::open(path)?;
    let Contents { config, step } = file.contents.clone();
    fields::check_same(path, group.config(), &config)?;

    let (layout, older_sets) = (file.layout.clone(), file.older_sets);
    let sets = layout.sets_of_rows();
    let set_of = |row| if older_sets { fmix32(layout.stripe.whole(row)) % layout.sets } else { sets.set_of(row) };
    file.walk(None, |part, first, words| {
        let (what, checked) = match part {
            Part::Ways => {
                let first_set = (first / layout.set_words()) as u32;
                let checked = metadata::check_by(&set_of, &config, &layout, step, first_set, words);
                ("ways", checked.map_err(|error| error.to_string()))
            }
            Part::Frequencies => {
                let checked = metadata::check_frequencies(&config, first, words);
                ("frequencies", checked.map_err(|error| error.to_string()))
            }
            Part::Counters => ("counters", Counters::check_part(words)),
            Part::Since => ("since", metadata::check_since(first, words).map_err(|error| error.to_string())),
            Part::Clock | Part::Cache | Part::Records => return Ok(()),
        };
        checked.map_err(|error| {
            let remedy = "get a file that checkpoint::save wrote, unchanged";
            fault(path, what, "what a group can have left", &error, remedy)
        })
    })?;
    group.write_part(Part::Clock, 0, &[step])?;
    let changed = "the file changed while it was read, and the group holds a part of it: load another";
    if older_sets {
        return load_without_cache(group, &mut file, changed, path);
    }
    file.walk(Some(changed), |part, first, words| group.write_part(part, first, words))
}

/// Loads a file in which the rows of the cache lie in other sets: writes changed rows to their records, and pins the pinned rows anew.
fn load_without_cache(
    group: &mut (impl Embedding + ?Sized),
    file: &mut Reader,
    changed: &'static str,
    path: &Path,
) -> Result<(), Error> {
    let (Contents { config, step }, layout) = (file.contents.clone(), file.layout.clone());
    let noise = of_params::noise(&Params::new(&config, &layout, Mode::Train, Purpose::WriteBack), step);
    group.reset_discarding()?;
    let (mut ways, mut packed) = (Vec::new(), BTreeMap::new());
    let (floats, width) = (layout.row.row_words as usize, layout.row.record_words as usize);
    // The ways come before the cache, and the cache before the records.
    file.walk(Some(changed), |part, first, words| match part {
        Part::Ways => {
            ways.extend_from_slice(words);
            Ok(())
        }
        Part::Cache => {
            for (slot, row) in ((first / u64::from(layout.row.row_words)) as u32..).zip(words.chunks_exact(floats)) {
                let word = |field| ways[way_at(layout.ways, slot, field)];
                let (weights, state) = bytemuck::cast_slice(row).split_at(layout.row.dim as usize);
                let mut record = vec![0; width];
                let changed = word(Field::Flags) & DIRTY != 0;
                if changed && rows::pack(&layout.row, &noise, word(Field::Tag), weights, state, &mut record) {
                    packed.insert(word(Field::Tag), record);
                }
            }
            Ok(())
        }
        Part::Records => {
            let mut words = words.to_vec();
            let rows = (first / width as u64) as u32..((first as usize + words.len()) / width) as u32;
            for (row, record) in packed.range(rows.clone()) {
                words[(row - rows.start) as usize * width..][..width].copy_from_slice(record);
            }
            group.write_part(part, first, &words)
        }
        Part::Clock | Part::Counters | Part::Frequencies | Part::Since => group.write_part(part, first, words),
    })?;
    let mut pinned = pins::pinned(&layout, &ways);
    pinned.retain(|&row| pins::check_padding(group.config(), &[row]).is_ok());
    let left_out = if pinned.is_empty() { 0 } else { group.pin(&pinned, layout.ways)?.len() };
    log::warn!(
        "{}: rows of its cache lay in other sets, so the cache begins empty: {} changed rows are in their records now, {} of {} pinned rows are pinned \
         anew, and the others find no way in their sets",
        path.display(),
        packed.len(),
        pinned.len() - left_out,
        pinned.len()
    );
    Ok(())
}

/// [`load`] for any kind of table.
///
/// # Errors
/// The errors of [`load`]; [`Error::Checkpoint`] if the file holds the other kind of table.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn load_lookup(group: &mut (impl Lookup + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    match group.kind() {
        LookupKind::Rows(group) => load(group, path),
        LookupKind::Shared(group) => robe::load(group, path.as_ref()),
        LookupKind::Other => Err(super::on_ranks("hotrow_dist::Group::load")),
    }
}
