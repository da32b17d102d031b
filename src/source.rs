//! What a table may be filled from instead of [`Init`](crate::Init): FP32 rows of your own.

#[cfg(any(unix, windows))]
mod file;

#[cfg(any(unix, windows))]
pub use file::F32File;

use crate::error::Error;

/// FP32 rows to fill a table from. They are asked for block by block, from several threads, and packed at once: the table is never in
/// memory in FP32.
///
/// A slice or vector of `rows * dim` floats is a source, an [`F32File`] is one, and so is a function that does what [`Source::rows`] does:
///
/// ```
/// # use hotrow::{CpuGroup, Embedding, Error, GroupConfig};
/// let config = GroupConfig::new(&[1000], 16);
/// let mut group = CpuGroup::filled(config, &|first_row: u32, dim: usize, out: &mut [f32]| {
///     for (row, weights) in (first_row..).zip(out.chunks_exact_mut(dim)) {
///         weights.fill(row as f32);
///     }
///     Ok(())
/// })?;
/// assert_eq!(group.read_rows(&[7])?, [7.0; 16]);
/// # Ok::<(), Error>(())
/// ```
pub trait Source: Sync {
    /// Writes neighbouring linear rows of `dim` floats, from `first_row` on, into `out`: `[rows, dim]`.
    ///
    /// # Errors
    /// Whatever keeps it from that, [`Error::Source`] say. The table is not made then.
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error>;

    /// Asked before anything is made: whether it has `rows` rows of `dim` floats.
    ///
    /// # Errors
    /// [`Error::Source`] or [`Error::Length`] if it knows that it has not.
    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        let _ = (rows, dim);
        Ok(())
    }
}

impl<F: Fn(u32, usize, &mut [f32]) -> Result<(), Error> + Sync> Source for F {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        self(first_row, dim, out)
    }
}

impl Source for &[f32] {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        out.copy_from_slice(&self[first_row as usize * dim..][..out.len()]);
        Ok(())
    }

    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        let (wanted, found) = (u64::from(rows) * dim as u64, self.len() as u64);
        if wanted == found { Ok(()) } else { Err(Error::Length { what: "source", wanted, found }) }
    }
}

impl Source for Vec<f32> {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        self.as_slice().rows(first_row, dim, out)
    }

    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        self.as_slice().check(rows, dim)
    }
}
