//! Saves a group to a checkpoint.

use std::path::Path;

use crate::{
    checkpoint::{
        beside::Beside,
        chunk_words,
        header::{self, Contents},
        little_endian, robe,
    },
    error::Error,
    host::alloc::zeroed,
    lookup::Embedding,
    lookup::{Lookup, LookupKind},
    table::{counters::Counters, layout::Layout, parts::Part, step_state},
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
    let layout = group.layout().clone();
    let contents = Contents { config: group.config().clone(), step: clock[0] };
    write(path.as_ref(), &contents, &layout, |part, first, words| group.read_part(part, first, words))
}

/// Writes a checkpoint whose parts `read` gives in pieces: a part, its first word, the words to fill.
///
/// # Errors
/// Those of `read`; [`Error::Checkpoint`] if the file cannot be written.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn write(
    path: &Path,
    contents: &Contents,
    layout: &Layout,
    mut read: impl FnMut(Part, u64, &mut [u32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut counters = zeroed("counters", Part::Counters.words(&contents.config, layout) as usize)?;
    read(Part::Counters, 0, &mut counters)?;
    let (counters, width) = Counters::stored(&counters);
    let tensors = header::tensors(&contents.config, layout, width as u64 / 2);
    let head = header::write(contents, &tensors);
    let mut file = Beside::create(path)?;
    file.write(&head)?;
    let mut checksums = vec![crc32fast::hash(&head)];
    let mut buffer = Vec::new();
    for tensor in &tensors {
        let (words, chunk) = (tensor.bytes() / 4, chunk_words(tensor.part, layout));
        let longest = words.min(chunk) as usize;
        if buffer.len() < longest {
            buffer = zeroed("checkpoint", longest)?;
        }
        let mut sum = crc32fast::Hasher::new();
        let mut first = 0;
        while first < words {
            let buffer = &mut buffer[..(words - first).min(chunk) as usize];
            match tensor.part {
                Part::Counters => buffer.copy_from_slice(&counters),
                part => read(part, first, buffer)?,
            }
            first += buffer.len() as u64;
            little_endian(buffer);
            let bytes = bytemuck::cast_slice(buffer);
            sum.update(bytes);
            file.write(bytes)?;
        }
        checksums.push(sum.finalize());
    }
    little_endian(&mut checksums);
    file.write(bytemuck::cast_slice(&checksums))?;
    file.replace()
}

/// [`save`] for any kind of table. A shared array is copied into host memory as a whole.
///
/// # Errors
/// The errors of [`save`].
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn save_lookup(group: &mut (impl Lookup + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    match group.kind() {
        LookupKind::Rows(group) => save(group, path),
        LookupKind::Shared(group) => robe::save(group, path.as_ref()),
        LookupKind::Other => Err(super::on_ranks("hotrow_dist::Group::save")),
    }
}
