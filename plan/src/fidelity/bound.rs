//! The size of the array that ROBE's theory asks for (corollary 6).

use rayon::prelude::*;

use crate::{
    Error,
    fidelity::{
        no_answer,
        rows::{blocks, checked, zeroed},
    },
};
use hotrow::{Source, internals::rng::pcg4d, robe::Config};

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
    /// The largest singular value of the table.
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
                return Err(no_answer(what, wanted, &found));
            }
        }
        let points = f64::from(dim).max(f64::from(rows.max(1)).ln());
        let k = ((sigma / eps).powi(2) * (-delta.ln() + points)).ceil();
        Ok(Self { sigma, k, weights: k * f64::from(dim) })
    }
}

/// The most steps of the power iteration.
const STEPS: usize = 10_000;

/// The largest singular value of a table: the root of the largest eigenvalue of E^T E (dim x dim, in FP64, one pass
/// over the rows, 8 dim^2 bytes). Computed by power iteration until it grows by less than 1e-12 of itself, so the
/// result is never above the true value, up to rounding. Only tables and dim of `config` matter.
///
/// # Errors
/// [`Config`](hotrow::Error::Config); the errors of `table`; [`Source`](hotrow::Error::Source) for the first row with a value that is not finite;
/// [`OutOfMemory`](hotrow::Error::OutOfMemory).
pub fn largest_singular_value(config: &Config, table: &dyn Source) -> Result<f64, hotrow::Error> {
    let mut config = config.clone();
    (config.weights, config.chunk) = (1, 1);
    let rows = checked(&config, table)?;
    let dim = config.dim as usize;
    let mut gram: Vec<f64> = zeroed("E^T E", dim * dim)?;
    blocks(table, dim, rows, |_, values| {
        // One thread sums each line and meets the rows in order. Only lines above the diagonal are summed; long and
        // short ones are mixed.
        gram.par_chunks_mut(dim).enumerate().for_each(|(p, line)| {
            for row in values.chunks_exact(dim) {
                let x = f64::from(row[p]);
                for (sum, &y) in line[p..].iter_mut().zip(&row[p..]) {
                    *sum += x * f64::from(y);
                }
            }
        });
    })?;
    for p in 0..dim {
        for q in 0..p {
            gram[p * dim + q] = gram[q * dim + p];
        }
    }
    Ok(largest_eigenvalue(&gram, dim).sqrt())
}

/// The largest eigenvalue of a symmetric matrix that has no negative eigenvalue.
fn largest_eigenvalue(matrix: &[f64], dim: usize) -> f64 {
    // A start in no special direction.
    let mut v: Vec<f64> = (0..dim as u32).map(|k| f64::from(pcg4d([k, 6, 0, 0])[0]) + 1.0).collect();
    let mut value = 0.0;
    for _ in 0..STEPS {
        let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        if length == 0.0 {
            return 0.0;
        }
        v.iter_mut().for_each(|x| *x /= length);
        let next: Vec<f64> =
            matrix.par_chunks(dim).map(|line| line.iter().zip(&v).map(|(a, b)| a * b).sum::<f64>()).collect();
        // Rayleigh's quotient, which power iteration never lets fall.
        let found: f64 = next.iter().zip(&v).map(|(a, b)| a * b).sum();
        let grown = found - value;
        value = found;
        if grown <= 1e-12 * value {
            break;
        }
        v = next;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() <= 1e-9 * wanted.abs()
    }

    #[test]
    fn singular_values_by_hand() {
        let sigma =
            |rows: u32, dim, table: Vec<f32>| largest_singular_value(&Config::new(&[rows], dim, 1, 1), &table).unwrap();
        // A diagonal matrix, one row, one column, rank one, and 2 x 2 with eigenvalues 45 and 5.
        assert!(near(sigma(3, 3, vec![2.0, 0.0, 0.0, 0.0, -7.0, 0.0, 0.0, 0.0, 3.0]), 7.0));
        assert!(near(sigma(1, 2, vec![3.0, 4.0]), 5.0));
        assert!(near(sigma(2, 1, vec![3.0, 4.0]), 5.0));
        assert!(near(sigma(4, 4, vec![1.0; 16]), 4.0));
        assert!(near(sigma(2, 2, vec![3.0, 0.0, 4.0, 5.0]), 45f64.sqrt()));
        assert!(!near(sigma(2, 2, vec![3.0, 0.0, 4.0, 5.1]), 45f64.sqrt()));
        assert_eq!(sigma(5, 3, vec![0.0; 15]), 0.0);
        // More than one block, and a dim that threads share unevenly.
        let rows = 70_000;
        assert!(near(sigma(rows, 17, vec![0.5; 17 * rows as usize]), 0.5 * (17.0 * f64::from(rows)).sqrt()));
    }

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
