//! Arrays of the caller as slices in C order: floats without a copy where type and order fit, else converted by numpy, or refused. Whole numbers are
//! copied before they are checked, so that a thread that writes to them meanwhile cannot undo the check.

use bytemuck::{cast_slice, cast_slice_mut};
use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::{prelude::*, sync::PyOnceLock, types::PyModule};

use crate::errors::{self, raise, refused, unfit};

/// Kinds of memory that DLPack numbers and the CPU reads: its own, and pinned for CUDA or ROCm.
const HOST: [i32; 3] = [1, 3, 11];

fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// The array itself, or one of an object that has DLPack, the buffer protocol, or is a list. Its memory has the values that the object shows.
fn array<'py>(what: &str, any: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = any.py();
    if let Ok(array) = any.cast::<PyUntypedArray>() {
        if !array.is_exact_instance_of::<PyUntypedArray>() && any.hasattr("mask")? {
            return Err(refused(what, "an array without a mask", "a masked one", "pass what filled() returns"));
        }
        return Ok(array.clone());
    }
    let unfit = |error| unfit(py, what, "an array that numpy can read", error, "pass a numpy array");
    let convert = if any.hasattr("__dlpack_device__")? {
        let device = any.call_method0("__dlpack_device__").and_then(|device| device.extract::<(i32, i32)>());
        let (kind, _) = device.map_err(unfit)?;
        if !HOST.contains(&kind) {
            let found = format!("one on a device (DLPack's type {kind})");
            return Err(refused(what, "an array in host memory", found, "copy it to the CPU first"));
        }
        // Such a tensor of torch shows the opposite of what DLPack would hand over.
        if any.hasattr("is_neg")? && any.call_method0("is_neg")?.is_truthy()? {
            return Err(refused(what, "values in memory", "the negative bit", "call resolve_neg()"));
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

/// The array if its memory has its values in C order, aligned, without gaps. The one place that decides so: `as_slice` takes Fortran order, too.
fn in_order<'a, 'py, T: numpy::Element>(array: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyArrayDyn<T>>> {
    let array = array.cast::<PyArrayDyn<T>>().ok()?;
    (array.is_c_contiguous() && (array.is_empty() || array.is_aligned())).then_some(array)
}

/// The array itself if it is in order, else a copy in C order, aligned, and in a type of this machine.
fn converted<'py, T: numpy::Element>(
    what: &str,
    array: &Bound<'py, PyUntypedArray>,
    dtype: &str,
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let py = array.py();
    let made = match in_order::<T>(array) {
        Some(array) => array.clone(),
        None => {
            let made = numpy(py)?.call_method1("require", (array, dtype, "CA"));
            let fault = |error| unfit(py, what, "an array that numpy can convert", error, "convert it before");
            in_order(&made.map_err(fault)?).ok_or_else(|| refused(what, "C order", "another", "copy it"))?.clone()
        }
    };
    made.try_readonly().map_err(|error| refused(what, "an array that no other call writes", error, "pass a copy"))
}

fn shape(array: &Bound<'_, PyUntypedArray>) -> String {
    let axes: Vec<String> = array.shape().iter().map(ToString::to_string).collect();
    format!("shape ({})", axes.join(", "))
}

/// A copy of whole numbers from 0 to 2^32 - 1, in one dimension.
pub(crate) struct Ints(Vec<u32>);

impl Ints {
    /// A number beyond 32 bits is refused, or if `skips`, an index of no table.
    pub(crate) fn new(what: &'static str, any: &Bound<'_, PyAny>, skips: bool) -> PyResult<Self> {
        let array = array(what, any)?;
        if array.ndim() != 1 {
            return Err(refused(what, "an array of one dimension", shape(&array), "reshape it"));
        }
        if in_order::<u32>(&array).is_some() {
            let mut words = room(what, array.len())?;
            words.extend_from_slice(converted(what, &array, "uint32")?.as_slice()?);
            return Ok(Self(words));
        }
        match kind(&array) {
            b'i' if array.dtype().itemsize() == 4 => {
                narrowed(what, converted::<i32>(what, &array, "int32")?.as_slice()?, skips)
            }
            b'i' => narrowed(what, converted::<i64>(what, &array, "int64")?.as_slice()?, skips),
            b'u' => narrowed(what, converted::<u64>(what, &array, "uint64")?.as_slice()?, skips),
            // An empty list is an array of floats.
            _ if array.is_empty() => Ok(Self(Vec::new())),
            // So is one of whole numbers whose types have no other type in common.
            b'O' => narrowed(what, &objects(what, array.as_any())?, skips),
            b'f' if is_list(any)? => {
                let list = numpy(any.py())?.call_method1("array", (any, "object"))?;
                narrowed(what, &objects(what, &list)?, skips)
            }
            _ => Err(refused(what, "whole numbers", array.dtype(), "convert it to uint32, int32 or int64")),
        }
    }

    pub(crate) fn slice(&self) -> &[u32] {
        &self.0
    }
}

/// Arrays without `dtype`, as those of Python's `array`, have `itemsize`.
fn is_list(any: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!any.hasattr("dtype")? && !any.hasattr("itemsize")?)
}

/// The whole numbers of an array of objects.
fn objects(what: &str, array: &Bound<'_, PyAny>) -> PyResult<Vec<i128>> {
    let whole = |item: Bound<'_, PyAny>| match item.extract::<i128>() {
        Ok(number) if !item.is_instance_of::<pyo3::types::PyBool>() => Ok(number),
        _ => Err(refused(what, "whole numbers of 64 bits", item.repr()?, "convert it to uint32, int32 or int64")),
    };
    array.try_iter()?.map(|item| whole(item?)).collect()
}

/// Room for so many numbers.
fn room(what: &'static str, len: usize) -> PyResult<Vec<u32>> {
    let mut room = Vec::new();
    let failed = |_| errors::of(&hotrow::Error::OutOfMemory { what, bytes: 4 * len as u64 });
    room.try_reserve_exact(len).map_err(failed).map(|()| room)
}

fn narrowed<T: Copy + std::fmt::Display>(what: &'static str, values: &[T], skips: bool) -> PyResult<Ints>
where
    u32: TryFrom<T>,
{
    let mut words = room(what, values.len())?;
    for (at, &value) in values.iter().enumerate() {
        // No table has a row of the last number.
        words.push(u32::try_from(value).or(if skips { Ok(u32::MAX) } else { Err(()) }).map_err(|()| {
            let found = format!("{what}: wanted 0 to 4294967295, found {value} at position {at}; correct the number");
            raise("RowIndexError", found)
        })?);
    }
    Ok(Ints(words))
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
        let narrow = kind(&given) == b'f' && given.dtype().itemsize() <= 4;
        let fits = narrow || (matches!(kind(&given), b'f' | b'i') && is_list(any)?);
        if !fits {
            return Err(refused(what, "float32", given.dtype(), "convert it with astype(numpy.float32)"));
        }
        let is_large = |x: &&f64| x.is_finite() && x.abs() > f32::MAX.into();
        if !narrow && let Some(x) = converted::<f64>(what, &given, "float64")?.as_slice()?.iter().find(is_large) {
            return Err(refused(what, "numbers within float32's 3.4e38", format!("{x:e}"), "scale them"));
        }
        Ok(Self(converted(what, &given, "float32")?))
    }

    pub(crate) fn slice(&self) -> PyResult<&[f32]> {
        Ok(self.0.as_slice()?)
    }

    pub(crate) fn shape(&self) -> &[usize] {
        self.0.shape()
    }
}

/// A new array without values.
pub(crate) fn new_array<'py, T: numpy::Element>(
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
        if in_order::<f32>(&found).is_none() {
            return Err(refused("out", "an aligned array in C order without gaps", "another", remedy));
        }
        Ok(Self { given: given.clone(), memory })
    }

    /// The memory. An array of numpy's own is known to be apart from the weights; one that came by DLPack is not.
    pub(crate) fn slice(&mut self, weights: Option<&[f32]>) -> PyResult<&mut [f32]> {
        let out = self.memory.as_slice_mut()?;
        let (out_at, weights_at) = (out.as_ptr_range(), weights.unwrap_or_default().as_ptr_range());
        if weights_at.start < out_at.end && out_at.start < weights_at.end {
            return Err(refused("out", "memory apart from the weights", "the same", "pass another array"));
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
pub(crate) fn words(what: &'static str, any: &Bound<'_, PyAny>, row: usize) -> PyResult<Vec<u32>> {
    let array = array(what, any)?;
    if array.ndim() != 2 || array.shape()[1] != row || !array.dtype().is_equiv_to(&numpy::dtype::<u8>(any.py())) {
        let found = format!("{} of {}", array.dtype(), shape(&array));
        return Err(refused(what, &format!("uint8 of shape (n, {row})"), found, "change what packed() returned"));
    }
    let mut words = room(what, array.len() / 4)?;
    words.resize(array.len() / 4, 0);
    cast_slice_mut(&mut words).copy_from_slice(converted::<u8>(what, &array, "uint8")?.as_slice()?);
    Ok(words)
}

/// The array, of the type `dtype` if one is given, in C order and in this machine's order of bytes.
#[pyfunction]
#[pyo3(signature = (what, any, dtype = None))]
pub(crate) fn as_array<'py>(what: &str, any: &Bound<'py, PyAny>, dtype: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let array = array(what, any)?;
    let Some(dtype) = dtype else { return Ok(array.into_any()) };
    if array.dtype().call_method1("newbyteorder", ("=",))?.str()? != dtype {
        return Err(refused(what, dtype, array.dtype(), "convert it with astype"));
    }
    numpy(any.py())?.call_method1("require", (array, dtype, "CA"))
}
