//! Allocation that fails with a named error.

use crate::error::Error;

/// `n` zeros (or whatever the default is).
pub(crate) fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = reserved(what, n)?;
    data.resize(n, T::default());
    Ok(data)
}

/// Room for `n` values.
pub(crate) fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    match data.try_reserve_exact(n) {
        Ok(()) => Ok(data),
        Err(_) => Err(Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 }),
    }
}

/// Whether the system would give `bytes` in one piece. Asked before many smaller pieces are: a system that promises more than it has
/// refuses only what is too large by itself, and kills later.
pub(crate) fn check(what: &'static str, bytes: u64) -> Result<(), Error> {
    let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory { what, bytes })?;
    reserved::<u8>(what, bytes).map(|_| ())
}
