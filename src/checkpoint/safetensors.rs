//! The header of a safetensors file, for checkpoints and for the files of `hotrow export` and `import`.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use safetensors::tensor::{Dtype, Metadata};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    checkpoint::{fault, refused},
    error::Error,
};

/// Longest header that the format allows.
const MAX_HEADER: u64 = 100_000_000;

/// Type, shape and place of a tensor.
#[derive(Debug, Serialize)]
struct Info {
    dtype: Dtype,
    shape: Vec<u64>,
    /// Its first byte and its end, counted from behind the header.
    data_offsets: [u64; 2],
}

/// A header, sorted, so that the same tables give the same bytes.
#[derive(Debug, Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    texts: BTreeMap<&'a str, &'a str>,
    #[serde(flatten)]
    tensors: BTreeMap<&'a str, Info>,
}

/// The first bytes of a file with these texts and these tensors, which follow one behind another: the header's length, then the header.
#[must_use]
pub fn header<'a>(
    texts: &'a [(&str, String)],
    tensors: impl IntoIterator<Item = (&'a str, Dtype, Vec<u64>)>,
) -> Vec<u8> {
    let mut end = 0;
    let tensors = tensors.into_iter().map(|(name, dtype, shape)| {
        let begin = end;
        end += shape.iter().product::<u64>() * (dtype.bitsize() as u64 / 8);
        (name, Info { dtype, shape, data_offsets: [begin, end] })
    });
    let tensors = tensors.collect();
    let texts = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let header = serde_json::to_string(&Header { texts, tensors });
    let mut text = header.unwrap_or_else(|_| unreachable!("texts and numbers under names"));
    // The tensors begin at a multiple of 8 bytes.
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// The names in an object of JSON. One that is there twice is refused: readers would keep one of the two.
///
/// Example: the [module](crate::checkpoint).
#[derive(Debug, Default)]
pub struct Names(HashSet<String>);

impl<'de> Visitor<'de> for Names {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if let Some(name) = self.0.replace(name) {
                return Err(A::Error::custom(format_args!("the tensor {name:?} twice")));
            }
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self::default())
    }
}

/// Reads the header at the beginning of a file, preceded by its length, and checks that the file is as long as it says. Returns its bytes and its tensors.
///
/// # Errors
/// [`Error::Checkpoint`] names `header` or `length`.
pub fn read(path: &Path, file: &mut File) -> Result<(Vec<u8>, Metadata), Error> {
    let failed = |error: io::Error| unreadable(path, &error);
    let beyond = |of: &str, found, remedy| {
        fault(path, "header", format!("a header of at most {of}"), &format!("one of {found}"), remedy)
    };
    let length = file.metadata().map_err(failed)?.len();
    let mut head = [0; 8];
    file.read_exact(&mut head).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            fault(path, "header", "a safetensors file", &format!("{length} bytes"), "the file is cut off, get it again")
        }
        _ => unreadable(path, &error),
    })?;
    let text = u64::from_le_bytes(head);
    if text > MAX_HEADER {
        let of = format!("{MAX_HEADER} bytes, the format's limit");
        return Err(beyond(&of, text, "the file is of another format"));
    }
    if 8 + text > length {
        let of = format!("the file's {length} bytes");
        return Err(beyond(&of, text, "the file is cut off or of another format, get it again"));
    }
    let mut head = head.to_vec();
    head.resize(8 + text as usize, 0);
    file.read_exact(&mut head[8..]).map_err(failed)?;
    let found = serde_json::from_slice::<Names>(&head[8..]).and_then(|_| serde_json::from_slice(&head[8..]));
    let found: Metadata = found.map_err(|error| {
        let remedy = "the file is damaged or of another format, get it again";
        fault(path, "header", "the header of a safetensors file", &error, remedy)
    })?;
    check_length(path, length, head.len() as u128 + found.data_len() as u128)?;
    Ok((head, found))
}

/// Refuses a file that is shorter or longer than its header says.
///
/// # Errors
/// [`Error::Checkpoint`] names `length`.
pub fn check_length(path: &Path, found: u64, wanted: u128) -> Result<(), Error> {
    let (found, remedy) = match u128::from(found).checked_sub(wanted) {
        None => (format!("{found}"), "the file is cut off: get it again, or take an older one"),
        Some(0) => return Ok(()),
        Some(more) => {
            let remedy = "something follows the tensors: get the file again, or save it anew";
            (format!("{found}, {more} more"), remedy)
        }
    };
    Err(fault(path, "length", format!("{wanted} bytes, as its header says"), &found, remedy))
}

pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    refused(path, "file", "one that can be read", error, "check the path and its permissions")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_begin_at_a_multiple_of_8_bytes_at_every_length_of_the_text() {
        for n in 0..8 {
            let texts = [("n", "x".repeat(n))];
            let bytes = header(&texts, [("b", Dtype::U32, vec![3, 2]), ("a", Dtype::U8, vec![5])]);
            let (length, text) = bytes.split_first_chunk().unwrap();
            assert_eq!((u64::from_le_bytes(*length), bytes.len() % 8), (text.len() as u64, 0));
            let (padded, text) = (text.len(), std::str::from_utf8(text).unwrap().trim_end());
            assert_eq!(padded, text.len().next_multiple_of(8), "{n}");
            let found: Metadata = serde_json::from_str(text).unwrap();
            let place = |name| found.info(name).unwrap().data_offsets;
            assert_eq!((place("b"), place("a"), found.data_len()), ((0, 24), (24, 29), 29));
        }
    }
}
