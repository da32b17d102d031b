//! What a table loses in a shared array: the (1 +- eps) of P4, definition 2, measured on a table at hand.
//!
//! # What eps is
//!
//! Definition 2 asks for `|<M(i), x> - <E[i], x>| <= eps |x|` for every x and row i, where E is the table and M(i) what the array gives for
//! row i. By Cauchy and Schwarz a row's smallest eps is `|M(i) - E[i]|`, at `x = M(i) - E[i]`: it is computed, not sampled over x. A table
//! is a (1 +- eps) setup if its largest does not exceed eps; [`Fidelity`] has it of every row asked for. Theorem 3 follows, sharper, by
//! the triangle inequality: a distance of two rows is kept within the sum of their eps. [`Pair`] shows both on pairs of rows.
//!
//! # Which array
//!
//! Rows come out of ROBE-Z's array linearly: `vec(M) = A m`, and each line of A has a single 1, at the place that the hash gives. So
//! the array nearest to a given table, `argmin |A m - vec(E)|`, is the mean of the elements that read each weight ([`Fit`]), and no other
//! array has a smaller sum of `eps^2` over all rows. With counts of how often rows are looked up it is the weighted mean, which is best
//! over lookups. What no row reads is 0. The paper builds `M = S E`, `M(i) = (S e_i)^T M` with random signs or normal numbers in
//! S, for its proof; ROBE's hash has no signs, so that construction is not measured here. [`Bound`] is what it would take.
//!
//! # What follows
//!
//! Let elements be independent, of variance s^2 about a common mean. An element whose weight is read by c elements keeps `1/c` of its own
//! deviation: its expected squared error is `s^2 (1 - 1/c)`. With c - 1 by Poisson's law of mean `a = rows dim / |M|`, the load, a row's
//! is `dim s^2 (1 - (1 - e^-a) / a)` ([`unlike_share`]). At a = 1, as many weights as values, 37 % of the variance is lost already; at 10,
//! 90 %; at 1,000, 99.9 %. In the limit every element is the table's mean. Clusters of like rows do not help, for the hash does not look at
//! values: what meets in a weight is still unlike.
//!
//! The hash is linear, not random, and at loads of a few it may spread elements more evenly than Poisson's law or less, as n, dim and |M|
//! have it: with 6,000 rows of 16 it loses from 0.13 to 0.32 at a load of 1, where the law says 0.37. From a load of 10 on there is no
//! difference. [`Fit::unlike_share`] goes by the elements that the hash really brings together.
//!
//! So, row by row, a table that was trained in full does not compress well after the fact, unless nearly all its elements are alike. Lookup by
//! lookup a fit with `uses` does better, where few rows take most of the lookups: these keep nearly their own weights, and rare rows pay.
//! P4's 10,000 times smaller tables are *trained* shared: the gradient finds the array that serves the loss, not the one that is near to a
//! table. A fit is a start for that at best, and what this module says of a table is no forecast of its quality when trained shared.
//!
//! ```
//! use hotrow::robe::{Config, fidelity::{Fit, unlike_share}};
//! use hotrow::Init;
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
//! # Ok::<(), hotrow::Error>(())
//! ```

mod bound;
mod fit;
mod measure;
mod rows;
mod size;

pub use bound::{Bound, largest_singular_value};
pub use fit::Fit;
pub use measure::{Fidelity, Pair, PairErrors, Row};
pub use size::{Size, Tried, Wanted, load_for, size_for, unlike_share};
