//! A checkpoint that was opened: its header is checked, its tensors are not read yet.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use safetensors::tensor::{Dtype, Metadata};

use crate::{
    checkpoint::{
        VERSION, fault,
        kind::{CHECKSUMS, Kind, Tensor},
        little_endian, refused, safetensors as file,
        safetensors::unreadable,
    },
    error::Error,
    host::alloc::zeroed,
};

pub(super) const DAMAGED: &str = "the file is damaged: get another copy, or take an older checkpoint";

#[derive(Debug)]
pub(crate) struct Reader<K> {
    path: PathBuf,
    file: File,
    pub(crate) config: K,
    pub(crate) step: u32,
    pub(crate) tensors: Vec<Tensor>,
    /// A checksum for each tensor.
    checksums: Vec<u32>,
    /// Number of bytes before the first tensor.
    head: u64,
}

impl<K: Kind> Reader<K> {
    /// Opens a checkpoint. Reads and checks its header, and checks that the file is as long as the header says.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| unreadable(path, &error);
        let mut file = File::open(path).map_err(failed)?;
        let (head, found) = file::read(path, &mut file)?;
        let text = |field: &str| {
            let text = found.metadata().as_ref().and_then(|texts| texts.get(field));
            text.map_or("none", String::as_str)
        };
        if text("format") != K::FORMAT {
            let wanted = format!("a safetensors file of format {:?}", K::FORMAT);
            return Err(fault(path, "format", wanted, text("format"), K::FOREIGN));
        }
        if text("version") != VERSION {
            let remedy = "read it with the release of hotrow that wrote it, or save it anew with this one";
            return Err(fault(path, "version", VERSION, text("version"), remedy));
        }
        let sums =
            found.info(CHECKSUMS).filter(|info| info.dtype == Dtype::U32 && info.shape.iter().product::<usize>() > 0);
        let Some(sums) = sums else {
            return Err(fault(path, CHECKSUMS, "words behind the tensors", "none", K::FOREIGN));
        };
        let mut checksums = zeroed("checkpoint", sums.shape.iter().product())?;
        file.seek(SeekFrom::Start((head.len() + sums.data_offsets.0) as u64)).map_err(failed)?;
        file.read_exact(bytemuck::cast_slice_mut(&mut checksums)).map_err(failed)?;
        little_endian(&mut checksums);
        check_sum(path, "header", checksums.remove(0), crc32fast::hash(&head), DAMAGED)?;

        let step = text("step").parse().map_err(|_| fault(path, "step", "a whole number", text("step"), K::FOREIGN))?;
        let (config, tensors) = configured(path, text("config"))?;
        check_places::<K>(path, &found, &tensors)?;
        Ok(Self { path: path.into(), file, config, step, tensors, checksums, head: head.len() as u64 })
    }

    /// Calls `each` with every tensor in pieces (its place in the list, first word, words), and compares the checksums at the end. If this
    /// fails, the pieces that `each` got were damaged; `remedy` is the advice in that error.
    pub(crate) fn walk(
        &mut self,
        remedy: &'static str,
        mut each: impl FnMut(usize, u64, &[u32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = &self.path;
        let failed = |error: io::Error| refused(path, "file", "to read it whole", &error, remedy);
        self.file.seek(SeekFrom::Start(self.head)).map_err(failed)?;
        let longest = self.tensors.iter().map(|tensor| tensor.words().min(tensor.chunk())).max();
        let mut buffer = zeroed("checkpoint", longest.unwrap_or(0) as usize)?;
        for (at, (tensor, &wanted)) in self.tensors.iter().zip(&self.checksums).enumerate() {
            let mut sum = crc32fast::Hasher::new();
            let mut first = 0;
            while first < tensor.words() {
                let buffer = &mut buffer[..(tensor.words() - first).min(tensor.chunk()) as usize];
                let bytes = bytemuck::cast_slice_mut(buffer);
                self.file.read_exact(bytes).map_err(failed)?;
                sum.update(bytes);
                little_endian(buffer);
                each(at, first, buffer)?;
                first += buffer.len() as u64;
            }
            check_sum(path, tensor.name, wanted, sum.finalize(), remedy)?;
        }
        Ok(())
    }
}

/// Reads a configuration, and the tensors of its group. Its text must be the one that this version writes.
fn configured<K: Kind>(path: &Path, text: &str) -> Result<(K, Vec<Tensor>), Error> {
    let refused = |found: &dyn std::fmt::Display| fault(path, "config", "one that a group can have", found, K::FOREIGN);
    let config: K = serde_json::from_str(text).map_err(|error| refused(&error))?;
    let written = serde_json::to_string(&config).map_err(|error| refused(&error))?;
    if let Some(at) =
        (0..text.len().max(written.len())).find(|&at| text.as_bytes().get(at) != written.as_bytes().get(at))
    {
        return Err(refused(&format!("a text that hotrow writes in another way from byte {at} on")));
    }
    let tensors = config.tensors().map_err(|error| refused(&error))?;
    Ok((config, tensors))
}

/// Checks that a file has these tensors and no others, where they would have been written.
fn check_places<K: Kind>(path: &Path, found: &Metadata, tensors: &[Tensor]) -> Result<(), Error> {
    let mut end = 0;
    let checksums = Tensor::checksums(tensors.len());
    for tensor in tensors.iter().chain([&checksums]) {
        let (Tensor { name, dtype, shape, .. }, begin) = (tensor, end);
        end += tensor.words() * 4;
        let wanted = format!("{dtype:?} {shape:?} at {begin} to {end}");
        let found = found.info(name).map_or("none".into(), |info| {
            format!("{:?} {:?} at {} to {}", info.dtype, info.shape, info.data_offsets.0, info.data_offsets.1)
        });
        if wanted != found {
            return Err(fault(path, name, wanted, &found, K::FOREIGN));
        }
    }
    match found.offset_keys().into_iter().find(|name| *name != CHECKSUMS && tensors.iter().all(|one| one.name != name))
    {
        None => Ok(()),
        Some(name) => Err(fault(path, "tensors", "those of a checkpoint", &name, K::FOREIGN)),
    }
}

pub(super) fn check_sum(
    path: &Path,
    what: &'static str,
    wanted: u32,
    found: u32,
    remedy: &'static str,
) -> Result<(), Error> {
    if wanted == found {
        return Ok(());
    }
    Err(fault(path, what, format!("checksum {wanted:08x}"), &format!("{found:08x}"), remedy))
}
