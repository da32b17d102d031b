//! Puts rows of nearly equal probability into bins, so that a sum over 10^9 rows has some thousand terms.
//!
//! The rows of a bin get their mean probability m, so the bin's mass is right. For `f(p) = 1 - (1-p)^b` the sum over the bin is then off by half the
//! second derivative times the variance. With `y = -b ln(1-p)`, `|f''| p^2 <= f (1-p)^-2 y^2 / (e^y - 1) <= 0.648 f (1-p)^-2` for any b >= 1.
//! Probabilities between q and `q e^w` have a variance of at most `m^2 (e^w - 1)^2 / 4` (a third of it where they are spread evenly). So the relative
//! error, which is never downward, is at most `0.648/8 (1-p)^-2 e^(2w) (e^w - 1)^2`: 2.2e-5 for `w = 1/64`, and about 7e-6 for smooth laws.

use crate::scars::law::Formula;

/// The most by which the logarithm of a probability falls within a bin.
const WIDTH: f64 = 1.0 / 64.0;
/// A bin holds at most this share of the rows before it, plus one. So the first 64 rows have bins of their own, and the rows that share a bin have
/// probabilities of at most 1/65.
const SHARE: u64 = 64;
/// Rows of less weight than `e^-84` (2^-121) of the first row's weight share one bin. For them the model is linear, `1 - (1-p)^b = b p`, for any b
/// below 2^64, and the mean is exact.
const LAST: f64 = -84.0;

/// Cuts the rows into bins. Returns where each bin begins, followed by the number of rows, and the widest bin's fall of the logarithm.
pub(crate) fn cut(law: Formula, rows: u64) -> (Vec<u64>, f64) {
    let (mut starts, mut widest) = (vec![0], 0f64);
    let mut row = 0;
    while row < rows {
        let log = law.log_weight(row as f64);
        let end = if log < LAST {
            rows
        } else {
            // The cast saturates at the largest integer.
            let last = law.last_within(row as f64, WIDTH) as u64;
            let end = last.saturating_add(1).clamp(row + 1, row + 1 + row / SHARE).min(rows);
            widest = widest.max(log - law.log_weight((end - 1) as f64));
            end
        };
        starts.push(end);
        row = end;
    }
    (starts, widest)
}

/// The largest relative error of the expected distinct rows with bins of this width.
pub(crate) fn error(width: f64) -> f64 {
    let rarest = 1.0 - 1.0 / (SHARE + 1) as f64;
    0.648 / 8.0 / (rarest * rarest) * (2.0 * width).exp() * width.exp_m1().powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_derived_from_the_right_maximum() {
        let largest = (1..10_000).map(|i| f64::from(i) * 1e-3).map(|y| y * y / y.exp_m1()).fold(0.0, f64::max);
        assert!(largest < 0.648 && largest > 0.6476, "{largest}");
        assert!(error(WIDTH) < 2.2e-5 && error(WIDTH) > 2e-5, "{}", error(WIDTH));
    }

    #[test]
    fn bins_are_narrow_and_few() {
        for law in [
            Formula::Zipf(0.3),
            Formula::Zipf(1.0),
            Formula::Zipf(2.5),
            Formula::Exponential(1e8),
            Formula::HalfNormal(1e6),
            Formula::Exponential(0.1),
        ] {
            let (starts, widest) = cut(law, 1_000_000_000);
            assert!(starts.is_sorted() && starts.last() == Some(&1_000_000_000), "{law:?}");
            assert!(widest <= WIDTH * (1.0 + 1e-6), "{law:?}: {widest}");
            assert!(starts.len() < 8000, "{law:?}: {}", starts.len());
        }
    }
}
