//! From a file to a group.

use std::path::Path;

use crate::{
    checkpoint::{fault, fields, header::Contents, reader::Reader, robe},
    error::Error,
    lookup::Embedding,
    lookup::{Lookup, LookupKind},
    table::{batch, parts::Part, ways},
};

/// What a checkpoint holds, without its tables; of these only the length is checked.
///
/// # Errors
/// [`Error::Checkpoint`] for a file that cannot be read, is none of ours, is cut off, or whose header is damaged.
pub fn contents(path: impl AsRef<Path>) -> Result<Contents, Error> {
    Ok(Reader::open(path.as_ref())?.contents)
}

/// Takes over what a group of the same configuration saved, on whatever backend and wherever its table lay; it goes on as that one would
/// have, bit for bit. Learning rate, eps, weight decay, pooling, features, the treatment of bad indices and the placement are the
/// group's own and may differ.
///
/// The file is read twice: its checksums are compared before anything of the group is changed.
///
/// # Errors
/// [`Error::Order`] between forward and backward, or between prefetch and forward; [`Error::Checkpoint`] for a file that cannot be read,
/// is none of ours, is cut off, damaged, or of another configuration: nothing has changed then. Only if the file changes or vanishes
/// while it is read the second time does the group hold a part of it; the error says so. So it is after [`Error::Store`], from a staged
/// group's store that takes no more, and after [`Error::Device`], if the device is lost: load again, into a new group if need be.
pub fn load(group: &mut (impl Embedding + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    if group.pending() {
        return Err(batch::backward_first("checkpoint::load"));
    }
    // Tells of a prefetched batch, too, before a long file is read.
    group.read_part(Part::Clock, 0, &mut [0])?;
    let mut file = Reader::open(path)?;
    let Contents { config, step } = file.contents.clone();
    fields::check_same(path, group.config(), &config)?;

    let layout = file.layout.clone();
    file.walk(None, |part, first, words| {
        if part != Part::Ways {
            return Ok(());
        }
        let first_set = (first / layout.set_words()) as u32;
        ways::check(&layout, config.policy, step, first_set, words).map_err(|error| {
            let remedy = "get a file that checkpoint::save wrote, unchanged";
            fault(path, "ways", "what a group can have left", &error, remedy)
        })
    })?;
    group.write_part(Part::Clock, 0, &[step])?;
    let changed = "the file changed while it was read, and the group holds a part of it: load another";
    file.walk(Some(changed), |part, first, words| group.write_part(part, first, words))
}

/// As [`load`], of whichever kind of table.
///
/// # Errors
/// As [`load`]; [`Error::Checkpoint`] for a file of the other kind.
pub fn load_lookup(group: &mut (impl Lookup + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    match group.kind() {
        LookupKind::Rows(group) => load(group, path),
        LookupKind::Shared(group) => robe::load(group, path.as_ref()),
    }
}
