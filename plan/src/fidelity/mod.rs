//! Measures what a given table loses in a shared array: the (1 ± eps) of ROBE, definition 2.
//!
//! # What eps is
//!
//! Definition 2 asks for `|<M(i), x> - <E[i], x>| <= eps |x|` for every x and row i, where E is the table and M(i) the
//! array's row i. By Cauchy and Schwarz the smallest eps of a row is `|M(i) - E[i]|`, reached at `x = M(i) - E[i]`; so
//! it is computed, not sampled over x. A table is a (1 ± eps) setup if no row has a larger eps. [`Fidelity`] has the
//! eps of each row given. Theorem 3 follows by the triangle inequality, in a sharper form: the distance of two rows
//! changes by at most the sum of their eps. [`Pair`] shows both on pairs of rows.
//!
//! # Which array
//!
//! ROBE-Z reads rows from the array linearly: `vec(M) = A m`, where each line of A has a single 1, at the place given
//! by the hash. So the array nearest to a given table, `argmin |A m - vec(E)|`, has as each weight the mean of the
//! elements that read it ([`Fit`]). No other array has a smaller sum of `eps^2` over all rows. With counts of how often
//! rows are looked up it is the weighted mean, which is best over lookups. Weights that no row reads are 0. For its
//! proof the paper builds `M = S E`, `M(i) = (S e_i)^T M` with random signs or normal numbers in S. The hash of ROBE-Z
//! has no signs, so that construction is not measured; [`Bound`] computes its size.
//!
//! # What follows
//!
//! Let elements be independent, with variance s^2 about a common mean. An element whose weight is read by c elements
//! keeps `1/c` of its own deviation, so its expected squared error is `s^2 (1 - 1/c)`. If c - 1 follows Poisson's law
//! with mean `a = rows dim / |M|` (the load), a row's error is `dim s^2 (1 - (1 - e^-a) / a)` ([`unlike_share`]). At a
//! = 1, as many weights as values, 37 % of the variance is lost; at 10, 90 %; at 1,000, 99.9 %. In the limit every
//! element is the table's mean. Clusters of similar rows do not help: the hash does not look at values, so the elements
//! of a weight are still dissimilar.
//!
//! The hash is linear, not random. At loads of a few it may spread elements more or less evenly than Poisson's law,
//! depending on rows, dim and |M|: 6,000 rows of 16 lose 0.13 to 0.32 at a load of 1, where the law says 0.37. From a
//! load of 10 on there is no difference. [`Fit::unlike_share`] counts the elements that the hash really brings
//! together.
//!
//! So, averaged over rows, a table that was trained in full does not compress well afterwards, unless nearly all its
//! elements are equal. Averaged over lookups, a fit with `uses` does better where few rows get most of the lookups:
//! these nearly keep their own weights at the expense of rare rows. ROBE's 10,000 times smaller tables are *trained*
//! shared: the gradient finds the array that serves the loss, not the array nearest to a table. A fit is at best a
//! start for that, and these figures do not forecast the quality of training shared.
//!
//! ```
//! use hotrow::{Init, robe::Config};
//! use hotrow_plan::fidelity::{Fit, unlike_share};
//!
//! // 2,000 rows of independent normal numbers, in a tenth of their size.
//! let (rows, dim) = (2000, 16);
//! let mut table = vec![0.0; rows as usize * dim];
//! for (row, values) in (0..rows).zip(table.chunks_exact_mut(dim)) {
//!     Init::Normal { mean: 0.0, std: 1.0 }.row(7, row, values);
//! }
//! let config = Config::compressed(&[rows], dim as u32, 10.0, 8)?;
//! let fit = Fit::new(&config, &table, None)?;
//! let found = fit.fidelity(&table, &(0..rows).collect::<Vec<_>>())?;
//! let share = found.mean_square() / dim as f64;
//! assert!((share - unlike_share(10.0)).abs() < 0.02, "{share}");
//! # Ok::<(), hotrow_plan::Error>(())
//! ```

mod bound;
mod fit;
mod measure;
mod rows;
mod size;

use crate::error::{Error, refused};
pub use bound::{Bound, largest_singular_value};
pub use fit::Fit;
pub use measure::{Fidelity, Pair, PairErrors, Row};
pub use size::{Size, Tried, WantedEps, load_for, size_for, unlike_share};

/// The error of an argument that has no answer.
fn no_answer(what: &'static str, wanted: &str, found: &dyn std::fmt::Display) -> Error {
    refused(what, wanted, found, "change the argument")
}
