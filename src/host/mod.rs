//! The machine under the crate: memory, files, threads. `trusted.rs` is the only file with `unsafe`.

pub(crate) mod alloc;
pub(crate) mod pages;
pub(crate) mod positioned;
pub(crate) mod spread;
pub(crate) mod trusted;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value of a mutex, even if a thread panicked while it held it: each of the crate's leaves its value whole, at worst one count too few.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
