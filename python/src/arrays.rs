//! Arrays of the caller as slices: without a copy where type and order fit, else converted by numpy, or refused.

use bytemuck::{cast_slice, cast_slice_mut};
use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyModule};

use crate::errors::{raise, refused, unfit};

/// Kinds of memory that DLPack numbers and the CPU reads: its own, and pinned for CUDA or ROCm.
const HOST: [i32; 3] = [1, 3, 11];

fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// The array itself, or one of an object that has DLPack, the buffer protocol, or is a list.
fn array<'py>(what: &str, any: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    if let Ok(array) = any.cast::<PyUntypedArray>() {
        return Ok(array.clone());
    }
    let py = any.py();
    let unfit = |error| unfit(py, what, "an array that numpy can read", error, "pass a numpy array");
    let convert = if any.hasattr("__dlpack_device__")? {
        let device = any.call_method0("__dlpack_device__").and_then(|device| device.extract::<(i32, i32)>());
        let (kind, _) = device.map_err(unfit)?;
        if !HOST.contains(&kind) {
            let found = format!("one on a device (DLPack's type {kind})");
            return Err(refused(what, "an array in host memory", found, "copy it to the CPU first"));
        }
        "from_dlpack"
    } else {
        "asarray"
    };
    Ok(numpy(py)?.call_method1(convert, (any,)).map_err(unfit)?.cast_into::<PyUntypedArray>()?)
}

/// The letter of numpy's kind of type: `i`, `u`, `f`, ...
fn kind(array: &Bound<'_, PyUntypedArray>) -> u8 {
    array.dtype().kind()
}

/// The array in C order, aligned, and in a type of this machine.
fn converted<'py, T: numpy::Element>(
    array: &Bound<'py, PyUntypedArray>,
    dtype: &str,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let py = array.py();
    let made = numpy(py)?.call_method1("require", (array, dtype, "CA"));
    let made = made.map_err(|error| unfit(py, "array", "one that numpy can convert", error, "convert it before"))?;
    Ok(made.cast_into::<PyArrayDyn<T>>()?)
}

fn read<'py, T: numpy::Element>(array: &Bound<'py, PyArrayDyn<T>>) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    array.try_readonly().map_err(|error| refused("array", "one that no other call writes", error, "pass a copy"))
}

fn shape(array: &Bound<'_, PyUntypedArray>) -> String {
    let axes: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    format!("shape ({})", axes.join(", "))
}

/// Whole numbers from 0 to 2^32 - 1, in one dimension.
pub(crate) enum Ints<'py> {
    Words(PyReadonlyArrayDyn<'py, u32>),
    Signed(PyReadonlyArrayDyn<'py, i32>),
    Narrowed(Vec<u32>),
}

impl<'py> Ints<'py> {
    /// A number beyond 32 bits is refused, or if `skips`, an index of no table.
    pub(crate) fn new(what: &str, any: &Bound<'py, PyAny>, skips: bool) -> PyResult<Self> {
        let array = array(what, any)?;
        if array.ndim() != 1 {
            return Err(refused(what, "an array of one dimension", shape(&array), "reshape it"));
        }
        if let Ok(words) = array.cast::<PyArrayDyn<u32>>() {
            let words = read(words)?;
            if words.as_slice().is_ok() {
                return Ok(Self::Words(words));
            }
        } else if let Ok(words) = array.cast::<PyArrayDyn<i32>>() {
            let words = read(words)?;
            // Every sign is looked at, so that the loop has no branch.
            if words.as_slice().is_ok_and(|words| words.iter().fold(0, |all, word| all | word) >= 0) {
                return Ok(Self::Signed(words));
            }
        }
        match kind(&array) {
            b'i' => narrowed(what, read(&converted::<i64>(&array, "int64")?)?.as_slice()?, skips).map(Self::Narrowed),
            b'u' => narrowed(what, read(&converted::<u64>(&array, "uint64")?)?.as_slice()?, skips).map(Self::Narrowed),
            // An empty list is an array of floats.
            _ if array.is_empty() => Ok(Self::Narrowed(Vec::new())),
            _ => Err(refused(what, "whole numbers", array.dtype(), "convert it to uint32, int32 or int64")),
        }
    }

    pub(crate) fn slice(&self) -> PyResult<&[u32]> {
        Ok(match self {
            Self::Words(words) => words.as_slice()?,
            Self::Signed(words) => cast_slice(words.as_slice()?),
            Self::Narrowed(words) => words,
        })
    }
}

fn narrowed<T: Copy + std::fmt::Display>(what: &str, values: &[T], skips: bool) -> PyResult<Vec<u32>>
where
    u32: TryFrom<T>,
{
    let narrow = |(at, &value): (usize, &T)| {
        // No table has a row of the last number.
        u32::try_from(value).or(if skips { Ok(u32::MAX) } else { Err(()) }).map_err(|()| {
            let found = format!("{what}: wanted 0 to 4294967295, found {value} at position {at}; correct the number");
            raise("RowIndexError", found)
        })
    };
    values.iter().enumerate().map(narrow).collect()
}

/// Floats of shape `[n]`, or `[n, dim]` where a row has values.
pub(crate) struct Floats<'py>(PyReadonlyArrayDyn<'py, f32>);

impl<'py> Floats<'py> {
    /// An array of type float64 is refused, because it would be rounded; a list is not.
    pub(crate) fn new(what: &str, any: &Bound<'py, PyAny>, dim: Option<u32>) -> PyResult<Self> {
        let given = array(what, any)?;
        let wide = |dim: u32| given.ndim() == 2 && given.shape()[1] == dim as usize;
        if given.ndim() != 1 && !dim.is_some_and(wide) {
            let wanted = dim.map_or_else(|| "one dimension".to_owned(), |dim| format!("shape (n, {dim})"));
            return Err(refused(what, &wanted, shape(&given), "reshape it"));
        }
        if let Ok(floats) = given.cast::<PyArrayDyn<f32>>() {
            let floats = read(floats)?;
            if floats.as_slice().is_ok() {
                return Ok(Self(floats));
            }
        }
        let fits = kind(&given) == b'f' && given.dtype().itemsize() <= 4;
        let is_list = !any.hasattr("dtype")? && matches!(kind(&given), b'f' | b'i');
        if !fits && !is_list {
            return Err(refused(what, "float32", given.dtype(), "convert it with astype(numpy.float32)"));
        }
        Ok(Self(read(&converted(&given, "float32")?)?))
    }

    pub(crate) fn slice(&self) -> PyResult<&[f32]> {
        Ok(self.0.as_slice()?)
    }
}

/// A new array without values.
fn new_array<'py, T: numpy::Element>(
    py: Python<'py>,
    shape: [usize; 2],
    dtype: &str,
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let made = numpy(py)?.call_method1("empty", (shape, dtype));
    let made = made.map_err(|error| unfit(py, "result", "memory", error, "make the batch smaller"))?;
    Ok(made.cast_into::<PyArrayDyn<T>>()?)
}

/// The caller's array for outputs of shape `[rows, dim]`, or a new one.
pub(crate) struct Outputs<'py> {
    given: Bound<'py, PyAny>,
    memory: PyReadwriteArrayDyn<'py, f32>,
}

impl<'py> Outputs<'py> {
    pub(crate) fn new(py: Python<'py>, given: Option<&Bound<'py, PyAny>>, [rows, dim]: [usize; 2]) -> PyResult<Self> {
        let Some(given) = given else {
            let made = new_array::<f32>(py, [rows, dim], "float32")?;
            return Ok(Self { memory: made.readwrite(), given: made.into_any() });
        };
        let remedy = "make it with numpy.empty, of that shape and float32";
        // An array made of anything else would be a copy.
        if given.cast::<PyUntypedArray>().is_err() && !given.hasattr("__dlpack__")? {
            return Err(refused("out", "an array", given.get_type(), remedy));
        }
        let found = array("out", given)?;
        if found.shape() != [rows, dim] {
            return Err(refused("out", &format!("shape ({rows}, {dim})"), shape(&found), remedy));
        }
        let Ok(floats) = found.cast::<PyArrayDyn<f32>>() else {
            return Err(refused("out", "float32", found.dtype(), remedy));
        };
        let locked = |error| refused("out", "an array that this call alone uses and may write", error, remedy);
        let memory = floats.try_readwrite().map_err(locked)?;
        if memory.as_slice().is_err() {
            return Err(refused("out", "an aligned array in C order without gaps", "another", remedy));
        }
        Ok(Self { given: given.clone(), memory })
    }

    /// The memory. numpy's own arrays are known to be apart from the call's other arrays; those that came by DLPack are not.
    pub(crate) fn slice(&mut self, others: &[&[u32]]) -> PyResult<&mut [f32]> {
        let out = self.memory.as_slice_mut()?;
        let (start, end) = (out.as_ptr().cast(), out.as_ptr_range().end.cast());
        if others.iter().map(|other| other.as_ptr_range()).any(|other| other.start < end && start < other.end) {
            return Err(refused("out", "memory apart from the call's other arrays", "the same", "pass another array"));
        }
        Ok(out)
    }

    pub(crate) fn into_given(self) -> Bound<'py, PyAny> {
        self.given
    }
}

/// Words as an array of bytes, `[rows, bytes of a row]`.
pub(crate) fn bytes<'py>(py: Python<'py>, rows: usize, words: &[u32]) -> PyResult<Bound<'py, PyAny>> {
    let made = new_array::<u8>(py, [rows, (4 * words.len()).checked_div(rows).unwrap_or(0)], "uint8")?;
    made.readwrite().as_slice_mut()?.copy_from_slice(cast_slice(words));
    Ok(made.into_any())
}

/// The words of an array of bytes, `[rows, bytes of a row]`.
pub(crate) fn words(what: &str, any: &Bound<'_, PyAny>, row: usize) -> PyResult<Vec<u32>> {
    let array = array(what, any)?;
    if array.ndim() != 2 || array.shape()[1] != row || !array.dtype().is_equiv_to(&numpy::dtype::<u8>(any.py())) {
        let found = format!("{} of {}", array.dtype(), shape(&array));
        return Err(refused(what, &format!("uint8 of shape (n, {row})"), found, "change what packed() returned"));
    }
    let bytes = converted::<u8>(&array, "uint8")?;
    let mut words = vec![0; array.len() / 4];
    cast_slice_mut(&mut words).copy_from_slice(read(&bytes)?.as_slice()?);
    Ok(words)
}
