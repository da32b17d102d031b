//! Allocation that returns an error instead of ending the program.

use crate::error::Error;

/// Allocates `n` default values (zeros). The error names `what`.
pub(crate) fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = reserved(what, n)?;
    data.resize(n, T::default());
    Ok(data)
}

/// Allocates an empty vector with room for `n` values. The error names `what`.
pub(crate) fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    match data.try_reserve_exact(n) {
        Ok(()) => Ok(data),
        Err(_) => Err(Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 }),
    }
}

/// Checks that the system would give `bytes` in one piece. Called before many smaller allocations: a system that
/// overcommits refuses only a single request that is too large, and later kills the program that uses what it was
/// promised.
pub(crate) fn check(what: &'static str, bytes: u64) -> Result<(), Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory { what, bytes })?;
    reserved::<u8>(what, bytes).map(|_| ())
}
