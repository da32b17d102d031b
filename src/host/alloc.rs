//! Allocation that returns an error instead of ending the program.

use crate::error::Error;

/// Allocates `n` default values (zeros).
///
/// # Errors
/// [`Error::OutOfMemory`] names `what`.
pub fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = reserved(what, n)?;
    data.resize(n, T::default());
    Ok(data)
}

/// As [`zeroed`], or an empty vector and the error.
pub fn room<T: Copy + Default>(what: &'static str, n: usize) -> (Vec<T>, Result<(), Error>) {
    match zeroed(what, n) {
        Ok(data) => (data, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    }
}

/// Allocates an empty vector with room for `n` values.
///
/// # Errors
/// [`Error::OutOfMemory`] names `what`.
pub fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    #[cfg(any(test, feature = "internals"))]
    if fault::due() {
        return Err(Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 });
    }
    let mut data = Vec::new();
    match data.try_reserve_exact(n) {
        Ok(()) => Ok(data),
        Err(_) => Err(Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 }),
    }
}

/// Checks that the system would give `bytes` in one piece. Called before many smaller allocations: a system that
/// overcommits refuses only a single request that is too large, and later kills the program that uses its
/// memory.
pub(crate) fn check(what: &'static str, bytes: u64) -> Result<(), Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory { what, bytes })?;
    reserved::<u8>(what, bytes).map(|_| ())
}

/// Lets an allocation of this thread fail.
#[cfg(any(test, feature = "internals"))]
pub mod fault {
    use std::cell::Cell;

    thread_local!(static LEFT: Cell<Option<u64>> = const { Cell::new(None) });

    /// The allocation after the next `n` fails, once.
    pub fn after(n: u64) {
        LEFT.set(Some(n));
    }

    /// Whether the fault is still to come. It comes no more.
    #[must_use]
    pub fn withdraw() -> bool {
        LEFT.take().is_some()
    }

    pub(super) fn due() -> bool {
        let left = LEFT.get();
        LEFT.set(left.and_then(|left| left.checked_sub(1)));
        left == Some(0)
    }
}
