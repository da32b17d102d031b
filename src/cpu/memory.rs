//! Allocation that fails with a named error.

use crate::Error;

/// `n` zeros (or whatever the default is).
pub(super) fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = reserved(what, n)?;
    data.resize(n, T::default());
    Ok(data)
}

/// Room for `n` values.
pub(super) fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut data = Vec::new();
    match data.try_reserve_exact(n) {
        Ok(()) => Ok(data),
        Err(_) => Err(Error::OutOfMemory { what, bytes: n as u64 * size_of::<T>() as u64 }),
    }
}

/// The parts, one behind the other.
pub(super) fn joined(what: &'static str, parts: &[Vec<u32>]) -> Result<Vec<u32>, Error> {
    let mut all = reserved(what, parts.iter().map(Vec::len).sum())?;
    parts.iter().for_each(|part| all.extend_from_slice(part));
    Ok(all)
}
