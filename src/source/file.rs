//! FP32 rows in a file.

use std::{fmt::Debug, fs::File, io, path::Path};

use crate::{
    error::{Error, cause},
    host::positioned::read_exact_at,
    source::Source,
};

/// A file of FP32 values, little-endian, row after row.
#[derive(Debug)]
pub(crate) struct F32File {
    name: String,
    file: File,
    /// Byte at which the floats begin.
    start: u64,
    shape: Shape,
}

/// The shape that the file's header states.
#[derive(Debug)]
enum Shape {
    Bytes(u64),
    #[cfg(feature = "npy")]
    Array(Vec<u64>),
}

/// A file that holds only FP32 values, little-endian, row after row, `[rows, dim]`, without a header. It is read piece by piece while the table is
/// made.
///
/// ```
/// use hotrow::{CpuGroup, GroupConfig, f32_file, prelude::*};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("rows.f32");
/// let values: Vec<u8> = (0..8).flat_map(|k| (k as f32).to_le_bytes()).collect();
/// std::fs::write(&path, values).unwrap(); // 2 rows x 4
/// let mut group = CpuGroup::filled(GroupConfig::new(&[2], 4), &f32_file(&path)?)?;
/// assert_eq!(group.read_rows(&[1])?, [4.0, 5.0, 6.0, 7.0]);
/// # Ok::<(), hotrow::Error>(())
/// ```
///
/// # Errors
/// [`Error::Store`] if the file cannot be opened.
pub fn f32_file(path: &Path) -> Result<impl Source + Debug + Send + use<>, Error> {
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = opened.map_err(|error| failed(path, &error))?;
    Ok(F32File { name: path.display().to_string(), file, start: 0, shape: Shape::Bytes(bytes) })
}

/// As [`f32_file`], for a numpy array (`.npy`) of type `float32` in C order.
///
/// # Errors
/// [`Error::Store`] if the file cannot be opened or is not such an array.
#[cfg(feature = "npy")]
pub fn npy_file(path: &Path) -> Result<impl Source + Debug + Send + use<>, Error> {
    use std::io::{Read, Seek};

    let mut file = File::open(path).map_err(|error| failed(path, &error))?;
    let mut start = Vec::new();
    let read = file.by_ref().take(HEADER).read_to_end(&mut start).and_then(|_| file.rewind());
    read.map_err(|error| failed(path, &error))?;
    let foreign = |found| Err(failed(path, &io::Error::new(io::ErrorKind::InvalidData, found)));
    if !start.starts_with(b"\x93NUMPY") {
        return foreign("a file that is not .npy");
    }
    if plain_shape(&start).is_none() {
        return foreign(
            "a header that numpy does not write for an array of numbers, or more bytes than 64 bits can count",
        );
    }
    let header = npyz::NpyHeader::from_reader(&mut file).map_err(|error| failed(path, &error))?;
    let kind = header.dtype().descr();
    if kind != "'<f4'" || header.order() != npyz::Order::C {
        return Err(Error::Store {
            store: path.display().to_string(),
            what: "format",
            wanted: "'<f4' in C order".into(),
            found: format!("{kind} in {:?} order", header.order()),
            remedy: "save numpy.ascontiguousarray(rows, dtype='<f4')",
            source: None,
        });
    }
    let start = file.stream_position().map_err(|error| failed(path, &error))?;
    Ok(F32File { name: path.display().to_string(), file, start, shape: Shape::Array(header.shape().to_vec()) })
}
/// The longest header. Those of plain arrays have 128 bytes.
#[cfg(feature = "npy")]
const HEADER: u64 = 4096;

/// The shape in a header of numpy's, if `npyz` can read that header: it multiplies dimensions without a check, takes any number of bytes for the
/// header's length, and calls itself for each bracket.
#[cfg(feature = "npy")]
pub(crate) fn plain_shape(start: &[u8]) -> Option<Vec<u64>> {
    let (version, rest) = start.strip_prefix(b"\x93NUMPY")?.split_at_checked(2)?;
    let (length, rest) = match version[0] {
        1 => (u64::from(u16::from_le_bytes(*rest.first_chunk()?)), &rest[2..]),
        _ => (u64::from(u32::from_le_bytes(*rest.first_chunk()?)), &rest[4..]),
    };
    let text = std::str::from_utf8(rest.get(..usize::try_from(length).ok()?)?).ok()?;
    let brackets = |open| text.matches(open).count();
    if brackets('(') != 1 || brackets('{') != 1 || brackets('[') != 0 || brackets('\\') != 0 {
        return None;
    }
    let (axes, _) = text.split_once("'shape'")?.1.split_once('(')?.1.split_once(')')?;
    let axes = axes.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let shape = axes.map(|axis| axis.parse().ok()).collect::<Option<Vec<u64>>>()?;
    // The longest element of numpy's plain numbers has 32 bytes.
    shape.iter().try_fold(32, |all: u64, axis| all.checked_mul((*axis).max(1))).map(|_| shape)
}

impl Source for F32File {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        let at = self.start + u64::from(first_row) * dim as u64 * 4;
        read_exact_at(&self.file, bytemuck::cast_slice_mut(out), at).map_err(|error| Error::Source {
            name: self.name.clone(),
            row: first_row,
            wanted: format!("{} floats from here on", out.len()),
            found: error.to_string(),
            remedy: "leave the file as it is while the table is made",
            source: Some(cause(&error)),
        })
    }

    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        let (wanted, found, fits) = match &self.shape {
            &Shape::Bytes(bytes) => {
                let wanted = u64::from(rows) * dim as u64 * 4;
                (format!("{wanted} bytes"), format!("{bytes} bytes"), bytes == wanted)
            }
            #[cfg(feature = "npy")]
            Shape::Array(shape) => {
                let wanted = [u64::from(rows), dim as u64];
                (format!("{wanted:?}"), format!("{shape:?}"), *shape == wanted)
            }
        };
        if fits {
            return Ok(());
        }
        let remedy = "name a file of the table's rows and dim";
        Err(Error::Store { store: self.name.clone(), what: "shape", wanted, found, remedy, source: None })
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::Store {
        store: path.display().to_string(),
        what: "opening",
        wanted: "a file of floats".into(),
        found: error.to_string(),
        remedy: "name another file",
        source: Some(cause(error)),
    }
}
