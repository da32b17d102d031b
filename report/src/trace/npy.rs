//! `.npy` files: one-dimensional numpy arrays of integers.

use super::error::TraceError;
use super::ids::{Id, Ids};
use super::packed::Input;
use crate::foreign;
use npyz::{DType, Deserialize, NpyFile, TypeChar};
use std::io::Read;
use std::path::Path;

/// All ids of the array; numbering them may take `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Ids<'_>, TraceError> {
    let fail = |found: String| refused(path, (found, foreign::SAVE));
    let start = Input::open(path)?.start(foreign::NPY_HEADER)?;
    let shape = foreign::npy_shape(&start).map_err(|found| refused(path, found))?;
    let mut file = Input::open(path)?;
    let npy = NpyFile::new(&mut file).map_err(|error| fail(error.to_string()))?;
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
        (TypeChar::Uint, 1) => convert(path, npy, most, |id: u8| id.into()),
        (TypeChar::Int, 1) => convert(path, npy, most, |id: i8| i64::from(id) as u64),
        (TypeChar::Uint, 2) => convert(path, npy, most, |id: u16| id.into()),
        (TypeChar::Int, 2) => convert(path, npy, most, |id: i16| i64::from(id) as u64),
        (TypeChar::Uint, 4) => convert(path, npy, most, |id: u32| id.into()),
        (TypeChar::Int, 4) => convert(path, npy, most, |id: i32| i64::from(id) as u64),
        (TypeChar::Uint, 8) => convert(path, npy, most, |id: u64| id),
        (TypeChar::Int, 8) => convert(path, npy, most, |id: i64| id as u64),
        _ => Err(fail(format!("type {}", npy.dtype().descr()))),
    }
}

fn refused(path: &Path, (found, remedy): (String, &str)) -> TraceError {
    TraceError::of(path, "a 1-D .npy array of integers", found, remedy)
}

/// Negative ids become other numbers of 64 bits, which are numbered.
fn convert<'a, T: Deserialize>(
    path: &'a Path,
    npy: NpyFile<impl Read>,
    most: u64,
    number: impl Fn(T) -> u64,
) -> Result<Ids<'a>, TraceError> {
    let fail = |found: String| refused(path, (found, foreign::SAVE));
    let wanted = npy.len();
    let numbers = npy.data::<T>().map_err(|error| fail(error.to_string()))?;
    let mut ids = Ids::new(path, most, false);
    for found in numbers {
        let found = found.map_err(|error| fail(format!("{} of {wanted} elements ({error})", ids.ids.len())))?;
        ids.push(Id::Number(number(found)))?;
    }
    Ok(ids)
}
