//! Files that are plain, `.gz` or `.zst` by their ending, and texts by their first bytes, unpacked while they are read.

use super::error::TraceError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek as _};
use std::path::{Path, PathBuf};

/// The endings of packed files, and the names of their formats.
const ENDINGS: [(&str, &str); 2] = [("zst", "zstd"), ("gz", "gzip")];

/// What packed files begin with.
const MAGIC: [(&[u8], &str); 2] = [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b\x08", "gzip")];

/// The endings of files of numbers, which may have any bytes.
const NUMBERS: [&str; 5] = [".u8", ".u32", ".u64", ".oraclegeneral", ".oraclegeneral.bin"];

/// A file's name without the ending of its packing.
pub(super) fn bare(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)?.strip_suffix('.'));
    packed.unwrap_or(&name).to_owned()
}

/// The file's name without its endings.
pub(super) fn stem(path: &Path) -> String {
    let mut name = bare(path);
    if name.to_lowercase().ends_with(".oraclegeneral.bin") {
        name.truncate(name.len() - ".bin".len());
    }
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name,
    }
}

/// The file `ending` beside a file, under the same name, packed or not.
pub(super) fn beside(path: &Path, ending: &str) -> Option<PathBuf> {
    companion(path.parent().unwrap_or(Path::new("")), &format!("{}{ending}", stem(path)))
}

/// `name` in a folder, packed or not.
pub(super) fn companion(folder: &Path, name: &str) -> Option<PathBuf> {
    let packed = ENDINGS.iter().map(|(ending, _)| folder.join(format!("{name}.{ending}")));
    packed.chain([folder.join(name)]).find(|path| path.is_file())
}

pub(super) struct Input {
    pub(super) path: PathBuf,
    format: Option<&'static str>,
    /// Whether it begins as gzip does.
    is_gzip: bool,
    /// The most bytes that it may have unpacked.
    most: u64,
    reader: Box<dyn BufRead + Send>,
}

impl Input {
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let mut file = File::open(path).map_err(TraceError::io(path))?;
        // Else a few kB could fill the memory.
        let length = file.metadata().map_err(TraceError::io(path))?.len();
        let most = length.saturating_mul(4096).saturating_add(8 << 20);
        let ending = path.extension().unwrap_or_default();
        let mut format = ENDINGS.iter().find(|(known, _)| ending == *known).map(|&(_, format)| format);
        let (mut start, name) = (Vec::new(), bare(path).to_lowercase());
        file.by_ref().take(4).read_to_end(&mut start).and_then(|_| file.rewind()).map_err(TraceError::io(path))?;
        if format.is_some() || !NUMBERS.iter().any(|ending| name.ends_with(ending)) {
            format = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|&(_, format)| format).or(format);
        }
        let is_gzip = format == Some("gzip") && start.starts_with(MAGIC[1].0);
        let unpacked: Box<dyn Read + Send> = match format {
            Some("gzip") => Box::new(MultiGzDecoder::new(BufReader::new(file))),
            Some(_) => {
                let unpacked = zstd::stream::read::Decoder::new(file);
                Box::new(unpacked.map_err(|error| TraceError::unreadable(path, format, error))?)
            }
            None => Box::new(file),
        };
        let left = if format.is_some() { most } else { u64::MAX };
        let reader = Box::new(BufReader::with_capacity(1 << 16, Limited { unpacked, left }));
        Ok(Self { path: path.into(), format, is_gzip, most, reader })
    }

    /// All bytes, of which there may be so many.
    pub(super) fn bytes(mut self, most: u64) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(most + 1).read_to_end(&mut bytes);
        match read {
            Err(error) => Err(self.fail(error)),
            Ok(read) if read as u64 > most => Err(TraceError::too_long(&self.path)),
            Ok(_) => Ok(bytes),
        }
    }

    /// Reads up to a line's end, or so many bytes.
    pub(super) fn line(&mut self, most: u64, bytes: &mut Vec<u8>) -> Result<usize, TraceError> {
        let read = self.reader.by_ref().take(most).read_until(b'\n', bytes);
        read.map_err(|error| self.fail(error))
    }

    /// The first bytes, or the next ones, at most so many.
    pub(super) fn start(&mut self, most: u64) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(most).read_to_end(&mut bytes);
        read.map_err(|error| self.fail(error)).map(|_| bytes)
    }

    pub(super) fn fail(&self, error: io::Error) -> TraceError {
        if self.is_gzip && error.to_string() == "invalid gzip header" {
            let (wanted, found) = ("gzip to the end of the file", "other bytes behind the end of the packed data");
            return TraceError::of(&self.path, wanted, found, "remove them, or get the file again");
        }
        let Some(format) = self.format.filter(|_| error.kind() == ErrorKind::FileTooLarge) else {
            return TraceError::unreadable(&self.path, self.format, error);
        };
        let wanted = format!("at most {} bytes, 8 MiB and 4,096 times the length of the packed file", self.most);
        TraceError::of(&self.path, wanted, "more", &format!("unpack it with the program {format}"))
    }
}

impl Read for Input {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.reader.read(out)
    }
}

/// Fails behind so many bytes.
struct Limited {
    unpacked: Box<dyn Read + Send>,
    left: u64,
}

impl Read for Limited {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.unpacked.read(out)?;
        self.left = self.left.checked_sub(read as u64).ok_or(ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}
