//! Measures what a given table loses in a shared array: the (1 ± eps) of ROBE, definition 2.
//!
//! Definition 2 asks for `|<M(i), x> - <E[i], x>| <= eps |x|` for every x and row i, where E is the table and M(i) the array's row i. By Cauchy and Schwarz
//! the smallest eps of a row is `|M(i) - E[i]|`, reached at `x = M(i) - E[i]`; so it is computed, not sampled over x. Theorem 3 follows by the triangle
//! inequality, in a sharper form: the distance of two rows changes by at most the sum of their eps.
//!
//! The array nearest to a table has as each weight the mean of the elements that read it ([`fit`]): no other has a smaller sum of `eps^2` over all rows. For
//! its proof the paper builds `M = S E` with random signs or normal numbers in S. The hash of ROBE-Z has no signs, so that construction is not measured;
//! [`Bound`] computes its size.
//!
//! Let elements be independent, with variance s^2 about a common mean. An element whose weight is read by c elements keeps `1/c` of its own deviation. If
//! c - 1 follows Poisson's law with mean `a = rows dim / |M|`, a row's expected `eps^2` is `dim s^2 (1 - (1 - e^-a) / a)`: with as many weights as values 37 %
//! of the variance is lost, at a tenth of them 90 %. So a table that was trained in full does not compress well afterwards, unless nearly all its elements are
//! equal; weighted by lookups it does better where few rows get most of them. ROBE's 10,000 times smaller tables are *trained* shared: the gradient finds the
//! array that serves the loss.
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

use crate::Error;
use crate::error::refused;
use hotrow::{
    Source,
    robe::{Config, check_weights},
};

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
        let total = checked(config, table)?;
        check_weights(config, weights)?;
        if let Some(at) = rows.iter().position(|&row| row >= total) {
            let (call, position, row) = ("Fidelity::new", at as u32, rows[at]);
            return Err(hotrow::Error::RowOutOfRange { call, rows: total, position, row }.into());
        }
        if rows.is_empty() {
            return Err(refused("rows", "at least one", &"none", REMEDY));
        }
        let measured = |&row: &u32| -> Result<Row, hotrow::Error> {
            let mut values = vec![0.0; config.dim as usize];
            read(table, row, values.len(), &mut values)?;
            let (mut lost, mut square) = (0.0, 0.0);
            for (element, &value) in (0..).zip(&values) {
                let (value, kept) = (f64::from(value), f64::from(weights[config.location(row, element)]));
                lost += (kept - value) * (kept - value);
                square += value * value;
            }
            Ok(Row { row, eps: lost.sqrt(), norm: square.sqrt() })
        };
        Ok(Self { rows: rows.iter().map(measured).collect::<Result<_, _>>()? })
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

/// The shared array that is nearest to a table in least squares, as [`write_weights`](hotrow::CpuSharedGroup::write_weights) takes it: each weight is the mean
/// of the elements that read it, and 0 if none does.
///
/// One pass over the rows on one core, block by block, with sums in FP64. `config` decides how rows share weights: by its tables, dim, weights and chunk.
/// `uses` tells how often each linear row is looked up; the mean is weighted by it. The fit takes 20 bytes a weight and a block of 4 MiB (or one row, if that
/// is longer).
///
/// # Errors
/// [`Config`](hotrow::Error::Config); the errors of `rows`; [`Source`](hotrow::Error::Source) for the first row with a value that is not finite;
/// [`Length`](hotrow::Error::Length) unless `uses` has one value for each row; [`Error::Argument`] if all uses are 0;
/// [`OutOfMemory`](hotrow::Error::OutOfMemory).
///
/// Example: the [module](crate::fidelity).
pub fn fit(config: &Config, rows: &dyn Source, uses: Option<&[u32]>) -> Result<Vec<f32>, Error> {
    let total = checked(config, rows)?;
    if let Some(uses) = uses {
        let (wanted, found) = (u64::from(total), uses.len() as u64);
        if wanted != found {
            return Err(hotrow::Error::Length { what: "uses", wanted, found }.into());
        }
        if uses.iter().all(|&uses| uses == 0) {
            return Err(refused("uses", "at least one row that is used", &"none", REMEDY));
        }
    }
    let (dim, chunk) = (config.dim as usize, config.chunk as usize);
    // For each weight: the sum of the elements that read it, and their number.
    let mut sums: Vec<[f64; 2]> = zeroed("sums", config.weights as usize)?;
    let block = (BLOCK / dim).clamp(1, total.max(1) as usize);
    let mut values = zeroed("block of rows", block * dim)?;
    for first_row in (0..total).step_by(block) {
        let values = &mut values[..block.min((total - first_row) as usize) * dim];
        read(rows, first_row, dim, values)?;
        for (row, values) in (first_row..).zip(values.chunks_exact(dim)) {
            let uses = uses.map_or(1.0, |uses| f64::from(uses[row as usize]));
            for (values, element) in values.chunks(chunk).zip((0..).step_by(chunk)) {
                for ([sum, reads], &x) in sums[config.location(row, element)..].iter_mut().zip(values) {
                    *sum += uses * f64::from(x);
                    *reads += uses;
                }
            }
        }
    }
    let mut weights = zeroed("weights", sums.len())?;
    for (weight, [sum, reads]) in weights.iter_mut().zip(sums) {
        *weight = if reads > 0.0 { (sum / reads) as f32 } else { 0.0 };
    }
    Ok(weights)
}

const REMEDY: &str = "change the argument";

/// Floats of a block of rows.
const BLOCK: usize = 1 << 20;

/// Checks that such tables can exist and that the source has their rows. Returns the number of rows.
fn checked(config: &Config, source: &dyn Source) -> Result<u32, hotrow::Error> {
    config.check()?;
    let rows = config.tables.iter().sum();
    source.check(rows, config.dim as usize)?;
    Ok(rows)
}

/// Allocates `n` zeros.
fn zeroed<T: Copy + Default>(what: &'static str, n: usize) -> Result<Vec<T>, hotrow::Error> {
    let mut data = Vec::new();
    let bytes = n as u64 * size_of::<T>() as u64;
    data.try_reserve_exact(n).map_err(|_| hotrow::Error::OutOfMemory { what, bytes })?;
    data.resize(n, T::default());
    Ok(data)
}

/// Reads neighbouring rows and checks that every value is finite.
fn read(source: &dyn Source, first_row: u32, dim: usize, values: &mut [f32]) -> Result<(), hotrow::Error> {
    source.rows(first_row, dim, values)?;
    let Some(place) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    Err(hotrow::Error::Source {
        name: "source".into(),
        row: first_row + (place / dim) as u32,
        wanted: "finite values".into(),
        found: format!("{} at element {}", values[place], place % dim),
        remedy: "correct the row",
        source: None,
    })
}

/// ROBE, corollary 6: with probability 1 - delta, `M = S E` of k normal projections is a (1 ± eps) setup for a table E of `rows` x `dim` if
/// `k = Omega(sigma^2 / eps^2 (ln(1 / delta) + max(dim, ln rows)))`; `|M| = k dim`. The paper does not state the constant; here it is 1, so this is an order
/// of magnitude and no promise. It is not the size for ROBE-Z either, whose hash has no signs.
///
/// The paper goes on to `|M| = O(1 / eps^2 max(dim^2, dim ln rows))` for tables of bounded sigma. But sigma grows as rows are added: `sigma^2` is at least the
/// squared length of all rows together divided by dim. Hence `|M| >= rows dim r^2 / eps^2`, where r is the root mean square of the rows' lengths: the
/// corollary asks for fewer weights than the table has values only if eps is larger than r, and an array of zeros achieves that on average.
///
/// ```
/// use hotrow_plan::fidelity::Bound;
///
/// let bound = Bound::new(50.0, 1_000_000, 16, 0.5, 0.01)?;
/// assert_eq!(bound.weights, bound.k * 16.0);
/// assert!(bound.weights > 1_000_000.0); // more than half of the table's values
/// # Ok::<(), hotrow_plan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The largest singular value of the table, which `numpy.linalg.norm(E, 2)` computes.
    pub sigma: f64,
    /// Rows of the sketch M, rounded up.
    pub k: f64,
    /// Weights of the array, |M|.
    pub weights: f64,
}

impl Bound {
    /// The bound for a table of `rows` x `dim` with largest singular value `sigma`.
    ///
    /// # Errors
    /// [`Error::Argument`] if sigma is negative or not finite, eps is not above 0, or delta is not between 0 and 1.
    pub fn new(sigma: f64, rows: u32, dim: u32, eps: f64, delta: f64) -> Result<Self, Error> {
        for (what, holds, wanted, found) in [
            ("sigma", sigma.is_finite() && sigma >= 0.0, "a number from 0 on", sigma),
            ("eps", eps.is_finite() && eps > 0.0, "a number above 0", eps),
            ("delta", delta > 0.0 && delta < 1.0, "a number between 0 and 1", delta),
        ] {
            if !holds {
                return Err(refused(what, wanted, &found, REMEDY));
            }
        }
        let points = f64::from(dim).max(f64::from(rows.max(1)).ln());
        let k = ((sigma / eps).powi(2) * (-delta.ln() + points)).ceil();
        Ok(Self { sigma, k, weights: k * f64::from(dim) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corollary_6_by_hand() {
        // 4 / 0.25 (ln 10 + 8) = 164.84..; with more than e^8 rows, ln rows takes the place of dim.
        let bound = Bound::new(2.0, 100, 8, 0.5, 0.1).unwrap();
        assert_eq!((bound.k, bound.weights), (165.0, 1320.0));
        assert_eq!(Bound::new(2.0, 1_000_000, 8, 0.5, 0.1).unwrap().k, 258.0);
        for (sigma, eps, delta) in [
            (f64::NAN, 0.1, 0.1),
            (-1.0, 0.1, 0.1),
            (1.0, 0.0, 0.1),
            (1.0, f64::INFINITY, 0.1),
            (1.0, 0.1, 0.0),
            (1.0, 0.1, 1.0),
        ] {
            assert!(
                matches!(Bound::new(sigma, 10, 8, eps, delta), Err(Error::Argument { .. })),
                "{sigma} {eps} {delta}"
            );
        }
    }
}
