//! Sources of FP32 rows that fill a table, instead of the random values of [`Init`](crate::Init).

#[cfg(any(unix, windows))]
mod file;

#[cfg(any(unix, windows))]
pub use file::f32_file;
#[cfg(all(feature = "npy", any(unix, windows)))]
pub use file::npy_file;
#[cfg(all(feature = "npy", any(unix, windows)))]
pub(crate) use file::plain_shape;

use crate::error::Error;

/// FP32 rows that fill a new table. The group asks for them block by block, from several threads, and packs each block
/// at once, so the whole table is never in memory in FP32.
///
/// These are sources: a slice or vector of `rows * dim` floats, a file ([`f32_file`]), and a closure with the arguments of
/// [`Source::rows`]:
///
/// ```
/// # use hotrow::{CpuGroup, Error, GroupConfig, prelude::*};
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
    /// Writes neighbouring linear rows, from `first_row` on, into `out`, which has the shape `[rows, dim]`.
    ///
    /// # Errors
    /// Any error, for example [`Error::Source`], if the rows cannot be given. The table is then not made.
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error>;

    /// Checks that the source has `rows` rows of `dim` floats. Called before the table is made.
    ///
    /// # Errors
    /// [`Error::Source`] or [`Error::Length`] if the source knows that it has another size.
    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        let _ = (rows, dim);
        Ok(())
    }

    /// The range of a row's codes, where the table has codes. By default that of its weights.
    fn range(&self) -> Range {
        Range::Whole
    }
}

/// The range of a row's codes (SPEC 2).
///
/// Example: [`Searched`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// From the lowest to the highest weight.
    Whole,
    /// Of 625 ranges within that the one with the least sum of squared errors: INT2 loses a third to a half of its error, INT4 a sixth. Weights are rounded to
    /// nearest. It takes as long as 625 roundings, so it is for rows that are converted once.
    Searched,
}

/// A source whose rows get searched ranges.
///
/// ```
/// # use hotrow::{CpuGroup, GroupConfig, Precision, Searched, prelude::*};
/// let rows: Vec<f32> = (0..64).map(|x| (x as f32).sin().powi(5)).collect();
/// let config = GroupConfig::new(&[1], 64).with_precision(Precision::Int2);
/// let mut whole = CpuGroup::filled(config.clone(), &rows)?;
/// let mut searched = CpuGroup::filled(config, &Searched(&rows))?;
/// let error = |found: Vec<f32>| found.iter().zip(&rows).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
/// assert!(error(searched.read_rows(&[0])?) < error(whole.read_rows(&[0])?));
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Debug)]
pub struct Searched<'a, S: ?Sized>(pub &'a S);

impl<S: Source + ?Sized> Source for Searched<'_, S> {
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        self.0.rows(first_row, dim, out)
    }

    fn check(&self, rows: u32, dim: usize) -> Result<(), Error> {
        self.0.check(rows, dim)
    }

    fn range(&self) -> Range {
        Range::Searched
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
