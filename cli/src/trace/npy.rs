//! `.npy` files: one-dimensional numpy arrays of integers.

use super::error::{MAX_ID, TraceError};
use npyz::{DType, Deserialize, NpyFile, TypeChar};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// The longest header. Those of plain arrays have 128 bytes.
const HEADER: u64 = 4096;

/// All ids of the array.
pub(super) fn read(path: &Path) -> Result<Vec<u32>, TraceError> {
    let fail = |found: String| refused(path, &found);
    let mut file = BufReader::new(File::open(path).map_err(TraceError::io(path))?);
    let mut start = Vec::new();
    file.by_ref().take(HEADER).read_to_end(&mut start).map_err(TraceError::io(path))?;
    if !start.starts_with(b"\x93NUMPY") {
        return Err(fail("a file that is not .npy".to_owned()));
    }
    let Some(shape) = hotrow::internals::npy_shape(&start) else {
        return Err(fail("a header that numpy does not write for an array of numbers".to_owned()));
    };
    let npy = NpyFile::new(Cursor::new(start).chain(file)).map_err(|error| fail(error.to_string()))?;
    if npy.shape().len() != 1 || npy.shape() != shape {
        return Err(fail(format!("shape {:?}", npy.shape())));
    }
    if npy.len() > u64::from(u32::MAX) {
        return Err(TraceError::too_long(path));
    }
    let DType::Plain(kind) = npy.dtype() else {
        return Err(fail(format!("type {}", npy.dtype().descr())));
    };
    match (kind.type_char(), kind.size_field()) {
        (TypeChar::Uint, 4) => convert::<u32>(path, npy),
        (TypeChar::Int, 4) => convert::<i32>(path, npy),
        (TypeChar::Uint, 8) => convert::<u64>(path, npy),
        (TypeChar::Int, 8) => convert::<i64>(path, npy),
        _ => Err(fail(format!("type {}", npy.dtype().descr()))),
    }
}

fn refused(path: &Path, found: &str) -> TraceError {
    TraceError::of(path, "a 1-D .npy array of u32, i32, u64 or i64", found, "save it anew")
}

fn convert<T: Deserialize + Copy + Into<i128>>(path: &Path, npy: NpyFile<impl Read>) -> Result<Vec<u32>, TraceError> {
    let fail = |found: String| refused(path, &found);
    let wanted = npy.len();
    let numbers = npy.data::<T>().map_err(|error| fail(error.to_string()))?;
    let mut ids = Vec::new();
    for number in numbers {
        let position = ids.len() as u64;
        let number: i128 = number.map_err(|error| fail(format!("{position} of {wanted} elements ({error})")))?.into();
        match u32::try_from(number) {
            Ok(id) if id <= MAX_ID => ids.push(id),
            _ => return Err(TraceError::id(path, position, number)),
        }
    }
    Ok(ids)
}
