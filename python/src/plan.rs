//! Plans that need no device.

use hotrow::{Calls, Counters, Error, GroupConfig, MemoryReport, Policy};
use hotrow_plan::simulate::{Best, Geometry, Simulator};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    arrays::Ints,
    errors::{self, raise, refused},
    settings::{self, checked},
    table::{self, number},
};

/// The largest binding of most Vulkan devices, as `hotrow plan memory` takes it.
const BINDING: u64 = 0x7fff_fffc;

/// The bytes of a group that is not made: a dict by purpose.
#[pyfunction]
pub(crate) fn plan_memory<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    dim: &Bound<'py, PyAny>,
    settings: &str,
    indices: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let (rows, dim, indices) =
        (Ints::new("rows", rows, false)?, number("dim", dim)?, number::<u32>("indices", indices)?);
    let config = settings::with(&GroupConfig::new(rows.slice(), dim), settings)?;
    table::bytes(py, &checked(MemoryReport::plan(&config, BINDING, Calls::from(indices)))?)
}

/// Plays ids through a cache of one shape: a dict of counts.
#[pyfunction]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    trace: &Bound<'py, PyAny>,
    rows: &Bound<'py, PyAny>,
    cache_percent: f64,
    policy: &str,
    ways: &Bound<'py, PyAny>,
    batch: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let ids = Ints::new("trace", trace, false)?;
    let ids = ids.slice();
    let (rows, ways) = (number::<u32>("rows", rows)?, number::<u32>("ways", ways)?);
    let batch = number::<usize>("batch", batch)?;
    if let Some(at) = ids.iter().position(|&id| id >= rows) {
        let found = format!("trace: wanted ids below {rows}, found {} at position {at}; give more rows", ids[at]);
        return Err(raise("RowIndexError", found));
    }
    if batch == 0 {
        return Err(refused("batch", "1 or more", batch, "give the accesses of a batch"));
    }
    let policy = if policy == "best" { None } else { Some(checked(policy.parse::<Policy>())?) };
    if let Some(policy) = policy.filter(|policy| !policy.facts().admits) {
        return Err(refused("policy", "lru, lfu, window, best", policy, "count the hottest rows yourself"));
    }
    // The one that knows the future keeps two words of 8 bytes for each row; a list of that size is refused by name.
    let most = ids.iter().max().map_or(0, |&id| id as usize + 1);
    if policy.is_none() && Vec::<[u64; 4]>::new().try_reserve_exact(most).is_err() {
        let bytes = 32 * most as u64;
        return Err(errors::of(&Error::OutOfMemory { what: "next uses", bytes }));
    }
    let played: PyResult<Counters> = py.detach(|| {
        let shape = Geometry::of_percent(rows.into(), cache_percent, ways)
            .map_err(|error| raise("InvalidValue", error.to_string()))?;
        let batches = || ids.chunks(batch);
        Ok(match policy {
            Some(policy) => {
                let mut cache = checked(Simulator::new(&shape.group(rows, policy)))?;
                batches().for_each(|batch| cache.step(batch));
                cache.counters()
            }
            None => {
                let mut cache = checked(Best::new(batches(), &shape.group(rows, Policy::Lru)))?;
                batches().for_each(|batch| cache.step(batch));
                cache.counters()
            }
        })
    });
    table::counts(py, &played?)
}
