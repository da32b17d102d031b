//! Writes the header, the tensors and the checksums of a checkpoint.

use std::path::Path;

use crate::{
    checkpoint::{
        VERSION,
        beside::Beside,
        fault,
        kind::{Kind, Tensor},
        little_endian, safetensors,
    },
    error::Error,
    host::alloc::zeroed,
};

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
