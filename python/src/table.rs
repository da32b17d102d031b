//! A table of either kind, on either backend, for Python.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError, TryLockError},
};

use hotrow::{
    Bags, Context, Counters, CpuGroup, CpuSharedGroup, Embedding, Error, Group, GroupConfig, Lookup, MemoryReport,
    Mode, OutOfRange, OutputSlice, Pooling, Searched, SharedGroup, Source, checkpoint, robe, state::Part,
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    arrays::{self, Floats, Ints, Outputs},
    device,
    errors::{self, raise, refused},
    rule::{self, OwnRule},
    settings::{self, checked},
};

/// The class below Group and SharedGroup.
#[pyclass(frozen, subclass, module = "hotrow._native")]
#[derive(Debug)]
pub(crate) struct Table {
    /// `None` once it is closed.
    open: Mutex<Option<Kind>>,
    dim: u32,
    /// Whether each index has an output row, and not each bag.
    unpooled: bool,
    rows: u64,
    /// Of a group of rows: bytes of a packed row, of what comes before its weights, and of its weights.
    packed: Option<(u64, u64, u64)>,
    device: String,
    /// Whether an index outside its table is left out.
    skips: bool,
}

#[derive(Debug)]
enum Kind {
    Cpu(Box<CpuGroup>),
    Gpu(Box<Group>),
    CpuShared(Box<CpuSharedGroup>),
    GpuShared(Box<SharedGroup>),
}

impl Kind {
    fn lookup(&mut self) -> &mut (dyn Lookup + Send) {
        match self {
            Self::Cpu(group) => &mut **group,
            Self::Gpu(group) => &mut **group,
            Self::CpuShared(group) => &mut **group,
            Self::GpuShared(group) => &mut **group,
        }
    }

    /// # Errors
    /// For a shared array, which has no rows of its own.
    fn rows(&mut self) -> Result<&mut dyn Embedding, Error> {
        self.lookup().as_embedding().ok_or(Error::Order {
            call: "this call",
            wanted: "a Group, whose tables have rows of their own",
            found: "a SharedGroup",
        })
    }

    fn new(config: GroupConfig, context: Option<&Context>, source: Option<&dyn Source>) -> Result<Self, Error> {
        Ok(match (context, source) {
            (None, None) => Self::Cpu(CpuGroup::new(config)?.into()),
            (None, Some(source)) => Self::Cpu(CpuGroup::filled(config, source)?.into()),
            (Some(context), None) => Self::Gpu(Group::new(context, config)?.into()),
            (Some(context), Some(source)) => Self::Gpu(Group::filled(context, config, source)?.into()),
        })
    }
}

/// Indices, offsets and weights of a batch.
type Batch<'a, 'py> = (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>, Option<&'a Bound<'py, PyAny>>);

impl Table {
    /// Runs a call without Python's lock. Calls of several threads wait for each other.
    fn run<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut Kind) -> Result<R, Error> + Send) -> PyResult<R> {
        device::same_process()?;
        // After a panic, which no input should cause, the group may be in no state that it ever should be in: the lock keeps it closed.
        // A rule's step may not call the group that runs it, which is locked.
        if rule::runs() && matches!(self.open.try_lock(), Err(TryLockError::WouldBlock)) {
            let found = "this call of a group: wanted it outside of the group's own rule, found it in the rule's step; use what the step is given";
            return Err(raise("OrderError", found.to_owned()));
        }
        let call = || self.open.lock().ok()?.as_mut().map(call);
        match py.detach(|| catch_unwind(AssertUnwindSafe(call))) {
            Ok(Some(done)) => checked(done),
            Ok(None) => Err(closed()),
            Err(_) => Err(raise("OrderError", FAULT.to_owned())),
        }
    }

    fn look_up<'py>(
        &self,
        py: Python<'py>,
        (indices, offsets, weights): Batch<'_, 'py>,
        mode: Mode,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (indices, offsets) = (Ints::new("indices", indices, self.skips)?, Ints::new("offsets", offsets, false)?);
        let weights = weights.map(|weights| Floats::new("weights", weights, None)).transpose()?;
        let (indices, offsets) = (indices.slice(), offsets.slice());
        let weights = weights.as_ref().map(|weights| weights.slice()).transpose()?;
        let rows = if self.unpooled { indices.len() } else { offsets.len().saturating_sub(1) };
        let mut outputs = Outputs::new(py, out, [rows, self.dim as usize])?;
        let out = outputs.slice(weights)?;
        self.run(py, |group| {
            group.lookup().forward_into(Bags { indices, offsets, weights }, mode, OutputSlice::F32(out))
        })?;
        Ok(outputs.into_given())
    }
}

impl Table {
    /// Bytes of a packed row, if there are so many rows.
    fn packed_stride(&self, first: u32, count: u64) -> PyResult<u64> {
        if u64::from(first) + count > self.rows {
            let found = format!("packed: wanted at most {} rows, found {count} from {first} on; take fewer", self.rows);
            return Err(raise("RowIndexError", found));
        }
        Ok(self.packed_layout()?.0)
    }
}

/// Of a panic, which no input should cause.
const FAULT: &str = "call: wanted a result or an error, found that the call failed inside hotrow; this is a bug: report the lines printed above; \
                     the group is closed";

fn closed() -> PyErr {
    let found = "group: wanted an open one, found one that close() or a fault inside a call has ended; make another";
    raise("OrderError", found.to_owned())
}

/// A whole number that fits its type.
pub(crate) fn number<'py, T: for<'a> FromPyObject<'a, 'py>>(what: &str, any: &Bound<'py, PyAny>) -> PyResult<T> {
    let number = if any.is_instance_of::<pyo3::types::PyBool>() { None } else { any.extract().ok() };
    number.ok_or_else(|| refused(what, "a whole number, 0 or more, of 32 bits", any, "change it"))
}

#[pymethods]
impl Table {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "they are the arguments of Python's call")]
    #[pyo3(signature = (kind, rows, dim, settings, device = "auto", values = None, rule = None, searches = false))]
    fn new(
        py: Python<'_>,
        kind: &str,
        rows: &Bound<'_, PyAny>,
        dim: &Bound<'_, PyAny>,
        settings: &str,
        device: &str,
        values: Option<&Bound<'_, PyAny>>,
        rule: Option<&OwnRule>,
        searches: bool,
    ) -> PyResult<Self> {
        device::same_process()?;
        let (rows, dim) = (Ints::new("rows", rows, false)?, number("dim", dim)?);
        let rows = rows.slice();
        let context = device::open(device)?;
        let device = device::name(context.as_ref());
        if kind == "shared" {
            let config = settings::with(&robe::Config::new(rows, dim, 0, 1), settings)?;
            let (unpooled, skips) = (config.pooling == Pooling::None, config.out_of_range == OutOfRange::Skip);
            let rows = config.rows().total_rows();
            let group = checked(py.detach(|| {
                Ok(match &context {
                    None => Kind::CpuShared(CpuSharedGroup::new(config)?.into()),
                    Some(context) => Kind::GpuShared(SharedGroup::new(context, config)?.into()),
                })
            }))?;
            return Ok(Self { open: Some(group).into(), dim, unpooled, rows, packed: None, device, skips });
        }
        let mut config = settings::with(&GroupConfig::new(rows, dim), settings)?;
        if let Some(own) = rule {
            config = config.with_rule(own.rule());
        }
        let values = values.map(|values| Floats::new("values", values, Some(dim))).transpose()?;
        let values = values.as_ref().map(|values| values.slice()).transpose()?;
        let searched = values.as_ref().map(Searched);
        let source = match &searched {
            Some(searched) if searches => Some(searched as &dyn Source),
            _ => values.as_ref().map(|values| values as &dyn Source),
        };
        let (unpooled, skips) = (config.pooling == Pooling::None, config.out_of_range == OutOfRange::Skip);
        let rows = config.total_rows();
        let mut group = checked(py.detach(|| Kind::new(config, context.as_ref(), source)))?;
        let of_rows = checked(group.rows())?;
        let [stride, before] = of_rows.record_bytes();
        let packed =
            Some((stride, before, (u64::from(dim) * u64::from(of_rows.config().precision.bits())).div_ceil(8)));
        Ok(Self { open: Some(group).into(), dim, unpooled, rows, packed, device, skips })
    }

    /// Weights of a row.
    #[getter]
    fn dim(&self) -> u32 {
        self.dim
    }

    /// Rows of all tables together.
    #[getter]
    fn total_rows(&self) -> u64 {
        self.rows
    }

    /// "cpu", or the name of the GPU.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// Whether a forward waits for its backward.
    #[getter]
    fn pending(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |group| Ok(group.lookup().pending()))
    }

    /// The settings, as JSON.
    #[getter]
    fn settings_json(&self, py: Python<'_>) -> PyResult<String> {
        self.run(py, |group| {
            if let Some(rows) = group.lookup().as_embedding() {
                return Ok(settings::json(rows.config()));
            }
            let array = group.lookup().as_shared_array();
            let other = || Err(refused("settings", "a Group or a SharedGroup", "another kind", "make one"));
            Ok(array.map_or_else(other, |array| settings::json(array.config())))
        })?
    }

    /// Looks up and pools the rows of each bag: one step, whose backward must follow.
    ///
    /// indices: whole numbers, shape (n,), each within its table. offsets: shape (bags + 1,), from 0 to n; the bags of the first table come
    /// first. weights: float32, shape (n,). Arrays of float32 in C order are read where they lie; others, and all whole numbers, are copied first.
    /// out: float32, of the shape of the result, in C order.
    ///
    /// Returns float32 of shape (bags, dim), or (n, dim) with pooling="none"; out, if it is given.
    ///
    /// Raises RowIndexError for an index outside its table (the step did not take place), InvalidValue for an array of another shape or type,
    /// OrderError if the last forward waits for its backward.
    #[pyo3(signature = (indices, offsets, weights = None, out = None))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        weights: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.look_up(py, (indices, offsets, weights), Mode::Train, out)
    }

    /// As forward, but nothing changes: no step, no counter, no row of the cache. No backward follows.
    #[pyo3(signature = (indices, offsets, weights = None, out = None))]
    fn forward_frozen<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        weights: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.look_up(py, (indices, offsets, weights), Mode::Frozen, out)
    }

    /// Updates each row that the last forward has read, once, by the optimiser.
    ///
    /// grad: the gradients of its outputs, float32, in their shape (or flat).
    ///
    /// Raises OrderError without a forward before it, InvalidValue for another number of gradients.
    fn backward(&self, py: Python<'_>, grad: &Bound<'_, PyAny>) -> PyResult<()> {
        let grad = Floats::new("grad", grad, Some(self.dim))?;
        let grad = grad.slice()?;
        self.run(py, |group| group.lookup().backward(grad))
    }

    /// The gradient of each index's weight: float32, shape (n,). Call it between forward and backward, with the arrays of that forward.
    fn weight_gradient<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        grad: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, numpy::PyArray1<f32>>> {
        let (indices, offsets) = (Ints::new("indices", indices, self.skips)?, Ints::new("offsets", offsets, false)?);
        let grad = Floats::new("grad", grad, Some(self.dim))?;
        let (indices, offsets, grad) = (indices.slice(), offsets.slice(), grad.slice()?);
        let found = self.run(py, |group| group.lookup().weight_gradient(Bags::new(indices, offsets), grad))?;
        Ok(numpy::PyArray1::from_vec(py, found))
    }

    /// Gives up the backward of the last forward. Without such a forward nothing happens.
    fn discard_pending(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |group| {
            group.lookup().discard_pending();
            Ok(())
        })
    }

    /// The newest weights of linear rows (the rows of all tables, one table behind the other): float32, shape (n, dim).
    #[pyo3(signature = (rows, out = None))]
    fn read_rows<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rows = Ints::new("rows", rows, false)?;
        let rows = rows.slice();
        let mut outputs = Outputs::new(py, out, [rows.len(), self.dim as usize])?;
        let out = outputs.slice(None)?;
        self.run(py, |group| group.lookup().read_rows(rows).map(|found| out.copy_from_slice(&found)))?;
        Ok(outputs.into_given())
    }

    /// Replaces the weights of linear rows; the state of the optimiser stays. values: float32, shape (n, dim). Of a row that is listed twice the
    /// last value counts; a row with a value that is not finite keeps its old one, and counters() counts it as skipped.
    fn write_rows(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let (rows, values) = (Ints::new("rows", rows, false)?, Floats::new("values", values, Some(self.dim))?);
        let (rows, values) = (rows.slice(), values.slice()?);
        self.run(py, |group| group.rows()?.write_rows(rows, values))
    }

    /// Writes every changed row of the cache to the packed table.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |group| group.lookup().as_embedding().map_or(Ok(()), |rows| rows.flush()))
    }

    /// Flushes, then empties the cache.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |group| group.rows()?.reset())
    }

    /// Sets the learning rate from the next backward on.
    fn set_learning_rate(&self, py: Python<'_>, rate: &Bound<'_, PyAny>) -> PyResult<()> {
        let rate = rate.extract().map_err(|_| refused("lr", "a number", rate, "change it"))?;
        self.run(py, |group| group.lookup().set_learning_rate(rate))
    }

    /// A dict of counts: accesses, hits, evictions, bytes read and written, and others, of all steps and all tables.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all: Counters = self.run(py, |group| group.lookup().counters())?.into_iter().sum();
        counts(py, &all)
    }

    /// A dict of the bytes that the group has allocated, by purpose, with their sums: total, device, host.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        bytes(py, &self.run(py, |group| Ok(group.lookup().memory()))?)
    }

    /// Writes everything that the group keeps between steps to a file: a group that loads it continues bit for bit.
    fn save(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        self.run(py, |group| checkpoint::save_lookup(group.lookup(), path))
    }

    /// Loads a file that save, or the command hotrow import, wrote from a group of the same configuration.
    fn load(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<()> {
        self.run(py, |group| checkpoint::load_lookup(group.lookup(), path))
    }

    /// Frees the tables. Every later call is refused.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        device::same_process()?;
        py.detach(|| self.open.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }

    /// Bytes of a packed row, of what comes before its weights, and of its weights.
    #[getter]
    fn packed_layout(&self) -> PyResult<(u64, u64, u64)> {
        self.packed.ok_or_else(|| refused("packed rows", "a Group", "a SharedGroup", "use save"))
    }

    /// The packed rows from linear row `first` on: uint8, shape (count, bytes of a row). The cache is flushed first.
    fn packed<'py>(
        &self,
        py: Python<'py>,
        first: &Bound<'py, PyAny>,
        count: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (first, count) = (number("first", first)?, number::<u32>("count", count)?);
        let stride = self.packed_stride(first, count.into())?;
        let (bytes, mut words) = (stride * u64::from(count), Vec::new());
        let room = words.try_reserve_exact(bytes as usize / 4);
        room.map_err(|_| errors::of(&Error::OutOfMemory { what: "packed rows", bytes }))?;
        words.resize(bytes as usize / 4, 0);
        self.run(py, |group| {
            let rows = group.rows()?;
            rows.flush()?;
            rows.read_part(Part::Records, u64::from(first) * stride / 4, &mut words)
        })?;
        arrays::bytes(py, count as usize, &words)
    }

    /// Replaces packed rows from linear row `first` on. The cache is emptied first.
    fn write_packed(&self, py: Python<'_>, first: &Bound<'_, PyAny>, packed: &Bound<'_, PyAny>) -> PyResult<()> {
        let first = number("first", first)?;
        let words = arrays::words("packed", packed, self.packed_layout()?.0 as usize)?;
        let stride = self.packed_stride(first, 4 * words.len() as u64 / self.packed_layout()?.0)?;
        self.run(py, |group| {
            let rows = group.rows()?;
            rows.reset()?;
            rows.write_part(Part::Records, u64::from(first) * stride / 4, &words)
        })
    }
}

/// The settings and the rows of the tables of a checkpoint of a group, as JSON.
#[pyfunction]
pub(crate) fn saved_settings(path: std::path::PathBuf) -> PyResult<String> {
    settings::json(&checked(checkpoint::contents(path))?.0)
}

/// Counters by name.
pub(crate) fn counts<'py>(py: Python<'py>, all: &Counters) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    macro_rules! set {
        ($($name:ident),+) => { $(found.set_item(stringify!($name), all.$name)?;)+ };
    }
    set!(accesses, hits, unique, unique_misses, admitted, conflicts, evictions, write_backs, bypass_reads);
    set!(bypass_writes, bytes_read, bytes_written, skipped_rows, out_of_range, padding);
    found.set_item("hit_rate", all.hit_rate())?;
    Ok(found)
}

/// A report by name.
pub(crate) fn bytes<'py>(py: Python<'py>, report: &MemoryReport) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (name, bytes) in report.lines() {
        found.set_item(name, bytes)?;
    }
    for (name, bytes) in [("total", report.total()), ("device", report.device()), ("host", report.host)] {
        found.set_item(name, bytes)?;
    }
    Ok(found)
}

impl Drop for Table {
    fn drop(&mut self) {
        // A copy of the process must not wait for threads that it does not have.
        if device::same_process().is_err()
            && let Some(group) = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            std::mem::forget(group);
        }
    }
}
