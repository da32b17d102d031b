//! Measures what rows lose in a shared array.

use rayon::prelude::*;

use crate::{
    Error,
    fidelity::{
        no_answer,
        rows::{check_rows, checked, read},
    },
};
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

/// Two rows i and j, as definition 2 and theorem 3 compare them.
///
/// Example: the [module](crate::fidelity).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The linear rows.
    pub rows: [u32; 2],
    /// `<E[i], E[j]>`.
    pub inner: f64,
    /// `<M(i), E[j]> - <E[i], E[j]>`: definition 2 with `x = E[j]`.
    pub inner_error: f64,
    /// The largest error that definition 2 allows: i's eps times `|E[j]|`.
    pub inner_bound: f64,
    /// `|E[i] - E[j]|`.
    pub distance: f64,
    /// `|M(i) - M(j)| - |E[i] - E[j]|`.
    pub distance_error: f64,
    /// The largest error that theorem 3 allows: the sum of both eps.
    pub distance_bound: f64,
}

impl Pair {
    /// Whether definition 2 and theorem 3 hold, but for the rounding of errors and bounds.
    #[must_use]
    pub fn is_within(&self) -> bool {
        let within = |error: f64, bound: f64, size: f64| error.abs() <= bound * (1.0 + 1e-9) + 1e-12 * size;
        within(self.inner_error, self.inner_bound, self.inner.abs())
            && within(self.distance_error, self.distance_bound, self.distance)
    }
}

/// Errors of pairs of rows, in root mean square.
///
/// Example: the [module](crate::fidelity).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PairErrors {
    /// Pairs beyond the bounds of definition 2 and theorem 3: none, or something is wrong.
    pub beyond: usize,
    /// [`Pair::inner_error`].
    pub inner_error: f64,
    /// [`Pair::inner`].
    pub inner: f64,
    /// [`Pair::distance_error`].
    pub distance_error: f64,
    /// [`Pair::distance`].
    pub distance: f64,
}

/// The distance of a shared array from a table, measured on some rows.
///
/// Example: the [module](crate::fidelity).
#[derive(Clone, Debug, PartialEq)]
pub struct Fidelity {
    /// The rows, in the order given.
    pub rows: Vec<Row>,
    /// Row k of the first half with row k of the second half; of an odd number of rows the last has no partner.
    pub pairs: Vec<Pair>,
}

impl Fidelity {
    /// Measures any array: one that was fitted, or one that was trained while another table was trained in full. `rows`
    /// are linear rows; a row given twice counts twice. Computed in FP64.
    ///
    /// # Errors
    /// [`Config`](hotrow::Error::Config); [`Length`](hotrow::Error::Length) unless there are |M| weights; [`Source`](hotrow::Error::Source) for the first weight or row
    /// that is not finite; the errors of `table`; [`RowOutOfRange`](hotrow::Error::RowOutOfRange); [`Error::Argument`] if `rows` is empty.
    pub fn new(config: &Config, weights: &[f32], table: &dyn Source, rows: &[u32]) -> Result<Self, Error> {
        checked(config, table)?;
        check_weights(config, weights)?;
        check_rows(config, rows, "Fidelity::new")?;
        if rows.is_empty() {
            return Err(no_answer("rows", "at least one", &"none"));
        }
        let both = |row: u32| -> Result<Both, Error> {
            let mut values = vec![0.0; config.dim as usize];
            read(table, row, values.len(), &mut values)?;
            let place = |element| config.location(row, element);
            let kept = (0..config.dim).map(|element| weights[place(element)]).collect();
            Ok(Both { row, values, kept })
        };
        let (first, second) = rows.split_at(rows.len().div_ceil(2));
        let measured = |k: usize| -> Result<(Row, Option<(Row, Pair)>), Error> {
            let one = both(first[k])?;
            let Some(&other) = second.get(k) else { return Ok((one.measured(), None)) };
            let other = both(other)?;
            Ok((one.measured(), Some((other.measured(), one.beside(&other)))))
        };
        // In order, so that the same error is returned on any number of cores.
        let pairs: Vec<_> = (0..first.len()).into_par_iter().map(measured).collect();
        let mut found = Self { rows: Vec::with_capacity(rows.len()), pairs: Vec::with_capacity(second.len()) };
        let mut others = Vec::with_capacity(second.len());
        for pair in pairs {
            let (one, other) = pair?;
            found.rows.push(one);
            if let Some((other, pair)) = other {
                others.push(other);
                found.pairs.push(pair);
            }
        }
        found.rows.extend(others);
        Ok(found)
    }

    /// The largest eps. With all rows given it is the eps of the table.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.rows.iter().map(|row| row.eps).fold(0.0, f64::max)
    }

    /// The mean eps.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean_of(|row| row.eps)
    }

    /// The mean of eps^2, which a fit minimises.
    #[must_use]
    pub fn mean_square(&self) -> f64 {
        self.mean_of(|row| row.eps * row.eps)
    }

    /// The smallest eps that holds for this share of the rows: 0.5 is the median, 1 the largest.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the share is from 0 to 1.
    pub fn quantile(&self, share: f64) -> Result<f64, Error> {
        self.quantile_of(share, |row| row.eps)
    }

    /// [`quantile`](Self::quantile) of eps as a share of the row's length.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the share is from 0 to 1.
    pub fn relative_quantile(&self, share: f64) -> Result<f64, Error> {
        self.quantile_of(share, Row::relative)
    }

    /// Root mean square of the rows' lengths.
    #[must_use]
    pub fn rms_length(&self) -> f64 {
        self.mean_square_length().sqrt()
    }

    pub(super) fn mean_square_length(&self) -> f64 {
        self.rows.iter().map(|row| row.norm * row.norm).sum::<f64>() / self.rows.len() as f64
    }

    /// Errors of the pairs, in root mean square, and the pairs that are beyond their bounds.
    #[must_use]
    pub fn pair_errors(&self) -> PairErrors {
        let rms = |of: fn(&Pair) -> f64| {
            let squares = self.pairs.iter().map(of).map(|x| x * x).sum::<f64>();
            (squares / self.pairs.len().max(1) as f64).sqrt()
        };
        PairErrors {
            beyond: self.pairs.iter().filter(|pair| !pair.is_within()).count(),
            inner_error: rms(|pair| pair.inner_error),
            inner: rms(|pair| pair.inner),
            distance_error: rms(|pair| pair.distance_error),
            distance: rms(|pair| pair.distance),
        }
    }

    fn mean_of(&self, of: impl Fn(&Row) -> f64) -> f64 {
        self.rows.iter().map(of).sum::<f64>() / self.rows.len() as f64
    }

    fn quantile_of(&self, share: f64, of: impl Fn(&Row) -> f64) -> Result<f64, Error> {
        check_quantile(share)?;
        let mut all: Vec<f64> = self.rows.iter().map(of).collect();
        all.sort_unstable_by(f64::total_cmp);
        let place = (share * all.len() as f64).ceil() as usize;
        Ok(all[place.clamp(1, all.len()) - 1])
    }
}

pub(crate) fn check_quantile(share: f64) -> Result<(), Error> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(no_answer("quantile", "a number from 0 to 1", &share))
}

/// A row of the table, and of the array.
struct Both {
    row: u32,
    values: Vec<f32>,
    kept: Vec<f32>,
}

fn length(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

fn differences<'a>(a: &'a [f32], b: &'a [f32]) -> impl Iterator<Item = f64> + 'a {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b))
}

impl Both {
    fn measured(&self) -> Row {
        let norm = length(self.values.iter().map(|&x| f64::from(x)));
        Row { row: self.row, eps: length(differences(&self.kept, &self.values)), norm }
    }

    fn beside(&self, other: &Self) -> Pair {
        let (one, two) = (self.measured(), other.measured());
        let along = || other.values.iter().map(|&x| f64::from(x));
        let distance = length(differences(&self.values, &other.values));
        Pair {
            rows: [self.row, other.row],
            inner: self.values.iter().zip(along()).map(|(&a, b)| f64::from(a) * b).sum(),
            inner_error: differences(&self.kept, &self.values).zip(along()).map(|(a, b)| a * b).sum(),
            inner_bound: one.eps * two.norm,
            distance,
            distance_error: length(differences(&self.kept, &other.kept)) - distance,
            distance_bound: one.eps + two.eps,
        }
    }
}
