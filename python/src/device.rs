//! The device of this process, and the process itself.

use std::sync::{Mutex, OnceLock, PoisonError};

use hotrow::{Context, adapter};
use pyo3::PyResult;

use crate::{
    errors::{raise, refused},
    settings::checked,
};

/// The device that all groups of the process share, opened once. `None` is the CPU.
pub(crate) fn open(device: &str) -> PyResult<Option<Context>> {
    static OPENED: Mutex<Option<Context>> = Mutex::new(None);
    let software = match device {
        "cpu" => return Ok(None),
        "gpu" => true,
        "auto" => false,
        _ => return Err(refused("device", "auto, cpu or gpu", device, "choose one of them")),
    };
    static HARDWARE: OnceLock<bool> = OnceLock::new();
    let is_hardware = || adapter::adapters().first().is_some_and(adapter::is_hardware);
    if !software && !*HARDWARE.get_or_init(is_hardware) {
        return Ok(None);
    }
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(context) = opened.as_ref().filter(|context| context.check().is_ok()) {
        return Ok(Some(context.clone()));
    }
    *opened = Some(checked(adapter::open_best())?);
    Ok(opened.clone())
}

/// The name of the device for people.
pub(crate) fn name(context: Option<&Context>) -> String {
    context.map_or_else(|| "cpu".to_owned(), |context| context.device().adapter_info().name)
}

/// Refuses a process that was forked after the first group was made: its threads, and its connection to the driver, are the parent's.
pub(crate) fn same_process() -> PyResult<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let (now, first) = (std::process::id(), *FIRST.get_or_init(std::process::id));
    if now == first {
        return Ok(());
    }
    Err(raise(
        "OrderError",
        format!(
            "fork: wanted the process {first}, which made the first group, found its copy {now}, which has none of its threads; \
             start processes with multiprocessing's \"spawn\" or \"forkserver\", or make groups in the new process only"
        ),
    ))
}
