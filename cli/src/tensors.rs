//! Files of safetensors whose tensors are matrices: read and written in pieces.

use anyhow::{Context as _, bail};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;

/// A matrix of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: [u64; 2],
    /// The byte of the file at which it begins.
    begin: u64,
}

impl Matrix {
    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.shape[1] * (self.dtype.bitsize() as u64 / 8)
    }
}

/// A file that is open for reading, also from several threads.
#[derive(Debug)]
pub(crate) struct Tensors {
    path: PathBuf,
    file: Mutex<File>,
    head: u64,
    metadata: Metadata,
}

impl Tensors {
    /// Opens a file, and checks its header and its length.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let readable = || format!("{shown}: wanted a file that can be read; check the path and its permissions");
        let mut file = File::open(path).with_context(readable)?;
        let length = file.metadata().with_context(readable)?.len();
        let mut text = [0; 8];
        let cut = |found: &dyn std::fmt::Display| {
            format!(
                "{shown}: wanted a safetensors file, found {found}; the file is cut off or of another format, get it again"
            )
        };
        if length < 8 {
            bail!(cut(&format!("{length} bytes")));
        }
        file.read_exact(&mut text).with_context(readable)?;
        let text = u64::from_le_bytes(text);
        if text > MAX_HEADER || 8 + text > length {
            bail!(cut(&format!("a header of {text} bytes in a file of {length}")));
        }
        let mut header = vec![0; text as usize];
        file.read_exact(&mut header).with_context(readable)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| anyhow::anyhow!(cut(&error)))?;
        let (head, wanted) = (8 + text, (8 + text).saturating_add(metadata.data_len() as u64));
        if length != wanted {
            bail!(
                "{shown}: wanted {wanted} bytes, as its header says, found {length}; the file is cut off or damaged, get it again"
            );
        }
        Ok(Self { path: path.into(), file: Mutex::new(file), head, metadata })
    }

    /// A text beside the tensors.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(field).map(String::as_str)
    }

    /// The names of all tensors, in order of the file.
    pub(crate) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// The tensor of this name, which must be a matrix of this type.
    pub(crate) fn matrix(&self, name: &str, dtype: Dtype) -> anyhow::Result<Matrix> {
        let path = self.path.display();
        let Some(info) = self.metadata.info(name) else {
            bail!("{path}: wanted a tensor {name}, found {}; name one of these", listed(&self.names()));
        };
        if info.dtype != dtype {
            let remedy = if dtype == Dtype::F32 {
                "save tensor.float(), or name another --format"
            } else {
                "name another --format or tensor"
            };
            bail!("{path}: wanted {dtype:?} in tensor {name}, found {:?}; {remedy}", info.dtype);
        }
        let [rows, columns] = info.shape[..] else {
            bail!(
                "{path}: wanted two axes in tensor {name}, rows and columns, found {:?}; reshape it, or name others with --tensor",
                info.shape
            );
        };
        let begin = self.head + info.data_offsets.0 as u64;
        Ok(Matrix { name: name.to_owned(), dtype, shape: [rows as u64, columns as u64], begin })
    }

    /// Reads neighbouring rows of a matrix, as many as fit into `out`.
    pub(crate) fn read(&self, matrix: &Matrix, first_row: u64, out: &mut [u8]) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(matrix.begin + first_row * matrix.row_bytes()))?;
        file.read_exact(out)
    }
}

/// Names in a message, not all of a large model's.
pub(crate) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    match names {
        [] => "none".to_owned(),
        _ => names[..names.len().min(SHOWN)].join(", ") + &more,
    }
}

/// The header of a file that is written: sorted, so that the same tables give the same bytes.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    texts: BTreeMap<&'a str, &'a str>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

/// The first bytes of a file with these texts and these matrices of one type, which follow in this order.
pub(crate) fn header(
    texts: &[(&str, String)],
    dtype: Dtype,
    matrices: &[(String, [usize; 2])],
) -> anyhow::Result<Vec<u8>> {
    let mut end = 0;
    let tensors = matrices.iter().map(|(name, shape)| {
        let begin = end;
        end += shape[0] * shape[1] * (dtype.bitsize() / 8);
        (name.clone(), TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (begin, end) })
    });
    let tensors = tensors.collect();
    let texts = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let mut text = serde_json::to_string(&Header { texts, tensors })?;
    // The tensors begin at a multiple of 8 bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    Ok([&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat())
}
