//! A checkpoint that was opened: its header is checked, its tensors are not read yet.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
};

use crate::{
    checkpoint::{
        chunk_words, fault,
        header::{Contents, Found, ROWS, Tensor, foreign},
        little_endian, refused,
    },
    error::Error,
    host::alloc::zeroed,
    table::{
        counters::{COUNTER_WORDS, WORDS_BUT_PADDING},
        layout::Layout,
        parts::Part,
    },
};

/// Longest header that the format allows.
pub(super) const MAX_HEADER: u64 = 100_000_000;
pub(super) const DAMAGED: &str = "the file is damaged: get another copy, or take an older checkpoint";

#[derive(Debug)]
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    pub(crate) contents: Contents,
    pub(crate) layout: Layout,
    /// Whether the rows of the cache lie in the sets of before.
    pub(crate) older_sets: bool,
    tensors: Vec<Tensor>,
    /// A checksum for each tensor.
    checksums: Vec<u32>,
    /// Number of bytes before the first tensor.
    head: u64,
}

impl Reader {
    /// Opens a checkpoint. Reads and checks its header, and checks that the file is as long as the header says.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| unreadable(path, &error);
        let mut file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut head = vec![0; 8];
        file.read_exact(&mut head).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => foreign(&ROWS, path, "length", &format!("{length} bytes")),
            _ => unreadable(path, &error),
        })?;
        let text = head.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        if text > MAX_HEADER || 8 + text > length {
            return Err(foreign(&ROWS, path, "header", &format!("one of {text} bytes in a file of {length}")));
        }
        head.resize(8 + text as usize, 0);
        file.read_exact(&mut head[8..]).map_err(failed)?;
        let found = Found::parse(&ROWS, path, &head[8..])?;
        let wanted = (8 + text).saturating_add(found.data_bytes());
        if length != wanted {
            let remedy = "the file is cut off or something follows it: get it again, or take an older checkpoint";
            return Err(fault(path, "length", format!("{wanted} bytes"), &format!("{length} bytes"), remedy));
        }
        let mut bytes = vec![0; found.checksum_bytes(path)? as usize];
        file.seek(SeekFrom::End(-(bytes.len() as i64))).map_err(failed)?;
        file.read_exact(&mut bytes).map_err(failed)?;
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut checksums: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
        check_sum(path, "header", checksums.remove(0), crc32fast::hash(&head), DAMAGED)?;
        let (contents, layout, tensors) = found.understand(path)?;
        let older_sets = found.has_older_sets();
        Ok(Self { path: path.into(), file, contents, layout, older_sets, tensors, checksums, head: head.len() as u64 })
    }

    /// Calls `each` with every part in pieces (first word, words), and compares the checksums at the end. If this
    /// fails, the pieces that `each` got were damaged; `remedy` is the advice in that error.
    pub(crate) fn walk(
        &mut self,
        remedy: Option<&'static str>,
        mut each: impl FnMut(Part, u64, &[u32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (path, remedy) = (&self.path, remedy.unwrap_or(DAMAGED));
        let failed = |error: io::Error| refused(path, "file", "to read it whole", &error, remedy);
        self.file.seek(SeekFrom::Start(self.head)).map_err(failed)?;
        let mut buffer = Vec::new();
        for (tensor, &wanted) in self.tensors.iter().zip(&self.checksums) {
            let (words, chunk) = (tensor.bytes() / 4, chunk_words(tensor.part, &self.layout));
            let longest = words.min(chunk) as usize;
            if buffer.len() < longest {
                buffer = zeroed("checkpoint", longest)?;
            }
            let mut sum = crc32fast::Hasher::new();
            let mut first = 0;
            while first < words {
                let buffer = &mut buffer[..(words - first).min(chunk) as usize];
                let bytes = bytemuck::cast_slice_mut(buffer);
                self.file.read_exact(bytes).map_err(failed)?;
                sum.update(bytes);
                little_endian(buffer);
                match tensor.part {
                    Part::Counters if tensor.width() * 2 == WORDS_BUT_PADDING => {
                        let table = |table: &[u32]| [table, &[0; COUNTER_WORDS - WORDS_BUT_PADDING]].concat();
                        let counters = buffer.chunks_exact(WORDS_BUT_PADDING).flat_map(table).collect::<Vec<u32>>();
                        each(Part::Counters, 0, &counters)?;
                    }
                    part => each(part, first, buffer)?,
                }
                first += buffer.len() as u64;
            }
            check_sum(path, tensor.name, wanted, sum.finalize(), remedy)?;
        }
        Ok(())
    }
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    refused(path, "file", "one that can be read", error, "check the path and its permissions")
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
