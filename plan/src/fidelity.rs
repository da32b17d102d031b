//! Measures what a given table loses in a shared array: the (1 ± eps) of ROBE, definition 2.
//!
//! # What eps is
//!
//! Definition 2 asks for `|<M(i), x> - <E[i], x>| <= eps |x|` for every x and row i, where E is the table and M(i) the array's row i. By Cauchy and Schwarz
//! the smallest eps of a row is `|M(i) - E[i]|`, reached at `x = M(i) - E[i]`; so it is computed, not sampled over x. A table is a (1 ± eps) setup if no row
//! has a larger eps. Theorem 3 follows by the triangle inequality, in a sharper form: the distance of two rows changes by at most the sum of their eps.
//!
//! # Which array
//!
//! ROBE-Z reads rows from the array linearly: `vec(M) = A m`, where each line of A has a single 1, at the place given by the hash. So the array nearest to a
//! given table, `argmin |A m - vec(E)|`, has as each weight the mean of the elements that read it ([`fit`]). No other array has a smaller sum of `eps^2` over
//! all rows. For its proof the paper builds `M = S E` with random signs or normal numbers in S. The hash of ROBE-Z has no signs, so that construction is not
//! measured; [`Bound`] computes its size.
//!
//! # What follows
//!
//! Let elements be independent, with variance s^2 about a common mean. An element whose weight is read by c elements keeps `1/c` of its own deviation. If
//! c - 1 follows Poisson's law with mean `a = rows dim / |M|`, a row's expected `eps^2` is `dim s^2 (1 - (1 - e^-a) / a)`: with as many weights as values 37 %
//! of the variance is lost, at a tenth of them 90 %. Clusters of similar rows do not help, because the hash does not look at values. So a table that was
//! trained in full does not compress well afterwards, unless nearly all its elements are equal; weighted by lookups it does better where few rows get most of
//! them. ROBE's 10,000 times smaller tables are *trained* shared: the gradient finds the array that serves the loss.
//!
//! ```
//! use hotrow::{Init, robe::Config};
//! use hotrow_plan::fidelity::{Fidelity, fit};
//!
//! // 2,000 rows of independent normal numbers, in a tenth of their size.
//! let (rows, dim) = (2000, 16);
//! let mut table = vec![0.0; rows as usize * dim];
//! for (row, values) in (0..rows).zip(table.chunks_exact_mut(dim)) {
//!     Init::Normal { mean: 0.0, std: 1.0 }.row(7, row, values);
//! }
//! let config = Config::compressed(&[rows], dim as u32, 10.0, 8)?;
//! let weights = fit(&config, &table, None)?;
//! let found = Fidelity::new(&config, &weights, &table, &(0..rows).collect::<Vec<_>>())?;
//! let share = found.mean_square() / dim as f64;
//! assert!((share - 0.9).abs() < 0.02, "{share}");
//! # Ok::<(), hotrow_plan::Error>(())
//! ```

mod bound;
mod fit;
mod rows;

pub use bound::{Bound, largest_singular_value};
pub use fit::fit;

use crate::Error;
use crate::error::refused;
use hotrow::{
    Source,
    robe::{Config, check_weights},
};
use rayon::prelude::*;

/// The error of one row in the array.
///
/// Example: the [module](crate::fidelity).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The linear row.
    pub row: u32,
    /// The smallest eps of definition 2 for this row: the distance between the array's row and the table's.
    pub eps: f64,
    /// The length of the table's row, `|E[i]|`.
    pub norm: f64,
}

impl Row {
    /// Eps as a share of the row's length. Infinite if the table's row is zero and the array's is not.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.eps == 0.0 { 0.0 } else { self.eps / self.norm }
    }
}

/// The distance of a shared array from a table, measured on some rows.
///
/// Example: the [module](crate::fidelity).
#[derive(Clone, Debug, PartialEq)]
pub struct Fidelity {
    /// The rows, in the order given.
    pub rows: Vec<Row>,
}

impl Fidelity {
    /// Measures any array, fitted or trained. `rows` are linear rows; a row given twice counts twice. Computed in FP64.
    ///
    /// # Errors
    /// [`Config`](hotrow::Error::Config); [`Length`](hotrow::Error::Length) unless there are |M| weights; [`Source`](hotrow::Error::Source) for the first
    /// weight or row that is not finite; the errors of `table`; [`RowOutOfRange`](hotrow::Error::RowOutOfRange); [`Error::Argument`] if `rows` is empty.
    pub fn new(config: &Config, weights: &[f32], table: &dyn Source, rows: &[u32]) -> Result<Self, Error> {
        let total = rows::checked(config, table)?;
        check_weights(config, weights)?;
        if let Some(at) = rows.iter().position(|&row| row >= total) {
            let (call, position, row) = ("Fidelity::new", at as u32, rows[at]);
            return Err(hotrow::Error::RowOutOfRange { call, rows: total, position, row }.into());
        }
        if rows.is_empty() {
            return Err(no_answer("rows", "at least one", &"none"));
        }
        let measured = |&row: &u32| -> Result<Row, hotrow::Error> {
            let mut values = vec![0.0; config.dim as usize];
            rows::read(table, row, values.len(), &mut values)?;
            let (mut lost, mut square) = (0.0, 0.0);
            for (element, &value) in (0..).zip(&values) {
                let (value, kept) = (f64::from(value), f64::from(weights[config.location(row, element)]));
                lost += (kept - value) * (kept - value);
                square += value * value;
            }
            Ok(Row { row, eps: lost.sqrt(), norm: square.sqrt() })
        };
        // In order, so that the same error is returned on any number of cores.
        let rows: Vec<_> = rows.par_iter().map(measured).collect();
        Ok(Self { rows: rows.into_iter().collect::<Result<_, _>>()? })
    }

    /// The mean of eps^2, which a fit minimises.
    #[must_use]
    pub fn mean_square(&self) -> f64 {
        self.mean(|row| row.eps * row.eps)
    }

    /// Root mean square of the rows' lengths.
    #[must_use]
    pub fn rms_length(&self) -> f64 {
        self.mean(|row| row.norm * row.norm).sqrt()
    }

    /// The smallest eps, or other figure of a row such as [`Row::relative`], that holds for this share of the rows: 0.5 is the median, 1 the largest.
    pub fn quantile(&self, share: f64, of: impl Fn(&Row) -> f64) -> f64 {
        let mut all: Vec<f64> = self.rows.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (share * all.len() as f64).ceil() as usize;
        all[place.clamp(1, all.len()) - 1]
    }

    fn mean(&self, of: impl Fn(&Row) -> f64) -> f64 {
        self.rows.iter().map(of).sum::<f64>() / self.rows.len() as f64
    }
}

/// The error of an argument that has no answer.
fn no_answer(what: &'static str, wanted: &str, found: &dyn std::fmt::Display) -> Error {
    refused(what, wanted, found, "change the argument")
}
