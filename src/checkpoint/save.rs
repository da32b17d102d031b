//! Saves a group to a checkpoint.

use std::path::Path;

use crate::{
    checkpoint::{
        VERSION,
        beside::Beside,
        fault,
        kind::{self, Contents, Kind, Tensor},
        little_endian, robe, safetensors,
    },
    error::Error,
    host::alloc::zeroed,
    lookup::{Embedding, Lookup, LookupKind},
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
    let contents = Contents { config: group.config().clone(), step: clock[0] };
    write(path.as_ref(), &contents, |part, first, words| group.read_part(part, first, words))
}

/// Writes a checkpoint whose parts `read` gives in pieces: a part, its first word, the words to fill.
///
/// # Errors
/// Those of `read`; [`Error::Checkpoint`] if the file cannot be written.
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn write(
    path: &Path,
    contents: &Contents,
    mut read: impl FnMut(Part, u64, &mut [u32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let Contents { config, step } = contents;
    let parts = kind::parts(config, &Layout::new(config, u64::MAX)?);
    write_tensors(path, config, *step, |at, first, words| read(parts[at].0, first, words))
}

/// Writes a checkpoint whose tensors `read` gives in pieces: the place of a tensor in the list, its first word, the words to fill.
pub(super) fn write_tensors<K: Kind>(
    path: &Path,
    config: &K,
    step: u32,
    mut read: impl FnMut(usize, u64, &mut [u32]) -> Result<(), Error>,
) -> Result<(), Error> {
    let tensors = config.tensors()?;
    let config = serde_json::to_string(&config.kept())
        .map_err(|error| fault(path, "config", "one that JSON can hold", &error, K::FOREIGN))?;
    let texts =
        [("format", K::FORMAT.into()), ("version", VERSION.into()), ("step", step.to_string()), ("config", config)];
    let checksums = Tensor::checksums(tensors.len());
    let all = tensors.iter().chain([&checksums]);
    let head = safetensors::header(&texts, all.map(|tensor| (tensor.name, tensor.dtype, tensor.shape.clone())));
    let mut file = Beside::create(path)?;
    file.write(&head)?;
    let mut checksums = vec![crc32fast::hash(&head)];
    let longest = tensors.iter().map(|tensor| tensor.words().min(tensor.chunk())).max();
    let mut buffer = zeroed("checkpoint", longest.unwrap_or(0) as usize)?;
    for (at, tensor) in tensors.iter().enumerate() {
        let mut sum = crc32fast::Hasher::new();
        let mut first = 0;
        while first < tensor.words() {
            let buffer = &mut buffer[..(tensor.words() - first).min(tensor.chunk()) as usize];
            read(at, first, buffer)?;
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
