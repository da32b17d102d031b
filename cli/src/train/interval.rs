//! How far a run is from FP32's, over seeds: differences are taken seed by seed, so that what a seed does to both goes out.

use crate::report::units::Times;
use crate::report::{Record, Setting, Unit};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Share of the cases in which an interval holds the true mean.
const CONFIDENCE: f64 = 0.95;

/// A mean over seeds, and between which ends it lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    /// `None` with fewer than two seeds: nothing is known about the spread.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    /// Seeds.
    pub(crate) seeds: usize,
}

impl Interval {
    /// Mean and Student-t interval of `values`, one a seed; none without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let seeds = values.len();
        if seeds == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / seeds as f64;
        let half = half_width(values, mean);
        Some(Self { mean, low: half.map(|half| mean - half), high: half.map(|half| mean + half), seeds })
    }

    /// Half its width, if it has one.
    pub(crate) fn half(&self) -> Option<f64> {
        self.high.map(|high| high - self.mean)
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| low <= value && value <= high)
    }

    /// Whether both ends are at most `reach` from 0.
    pub(crate) fn lies_within(&self, reach: f64) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| -reach <= low && high <= reach)
    }

    /// The mean as a figure; of scores and changes with the interval as its spread.
    pub(crate) fn record(&self, what: &str, shape: &str, setting: &Setting, unit: Unit) -> Record {
        let times = |(lowest, highest)| Times { median: self.mean, lowest, highest, rounds: self.seeds };
        let judged = matches!(unit, Unit::Score | Unit::Change);
        let spread = self.low.zip(self.high).filter(|_| judged).map(times);
        Record { spread, ..Record::new(what, shape, setting, self.mean, unit) }
    }

    /// "+0.31 % [+0.22, +0.40]".
    pub(crate) fn show(&self, unit: &str) -> String {
        let mean = format!("{:+.3}{unit}", self.mean);
        match self.low.zip(self.high) {
            Some((low, high)) => format!("{mean} [{low:+.3}, {high:+.3}]"),
            None => format!("{mean} [one seed]"),
        }
    }
}

fn half_width(values: &[f64], mean: f64) -> Option<f64> {
    let n = values.len() as f64;
    let freedom = n - 1.0;
    // Fails without freedom.
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * (variance / n).sqrt())
}

/// Yang 2020, eq. 1, on a loss: by how many percent `loss` is above that of FP32 with the same seed.
pub(crate) fn loss_change(loss: f64, fp32: f64) -> f64 {
    100.0 * (loss - fp32) / fp32
}

/// Yang 2020, eq. 1: by how many percent an accuracy (or AUC) is below that of FP32 with the same seed.
pub(crate) fn drop(score: f64, fp32: f64) -> f64 {
    100.0 * (fp32 - score) / fp32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of mean 0 and variance `n`, so that half the interval is the quantile itself.
    fn unit(n: usize) -> Vec<f64> {
        let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let values: Vec<f64> = (0..n).map(|i| if i == n - 1 && n % 2 == 1 { 0.0 } else { sign(i) }).collect();
        let variance = values.iter().map(|value| value * value).sum::<f64>() / (n - 1) as f64;
        values.iter().map(|value| value * (n as f64 / variance).sqrt()).collect()
    }

    /// Whether half the interval of n seeds is `quantile`, to the digits that tables print.
    fn has_quantile(n: usize, quantile: f64) -> bool {
        let half = Interval::of(&unit(n)).unwrap().half().unwrap();
        (half - quantile).abs() < 6e-4 * quantile
    }

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        // Two-sided 95 %: degrees of freedom 1, 2, 3, 4, 9, 19, 30, 120.
        let known =
            [(2, 12.706), (3, 4.303), (4, 3.182), (5, 2.776), (10, 2.262), (20, 2.093), (31, 2.042), (121, 1.980)];
        for (n, quantile) in known {
            assert!(has_quantile(n, quantile), "{n}: {:?}", Interval::of(&unit(n)));
        }
    }

    #[test]
    fn wrong_quantiles_are_noticed() {
        // The normal distribution's, the one-sided one, and that of one seed more.
        for (n, quantile) in [(3, 1.960), (3, 2.920), (3, 3.182), (121, 1.960)] {
            assert!(!has_quantile(n, quantile), "{n}");
        }
    }

    #[test]
    fn an_interval_worked_by_hand() {
        // Mean 2, standard deviation 1: 4.3027 / sqrt(3).
        let found = Interval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((found.mean - 2.0).abs() < 1e-12 && (found.half().unwrap() - 2.484_138).abs() < 1e-5, "{found:?}");
        assert!(found.contains(0.0) && !found.contains(5.0));
        assert!(found.lies_within(4.49) && !found.lies_within(4.48));
        assert_eq!(found.show(" %"), "+2.000 % [-0.484, +4.484]");
    }

    #[test]
    fn few_seeds_claim_nothing() {
        assert_eq!(Interval::of(&[]), None);
        let one = Interval::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.low, one.half()), (0.5, None, None));
        assert!(!one.contains(0.5) && !one.lies_within(9.0));
        assert_eq!(one.show(" %"), "+0.500 % [one seed]");
    }

    #[test]
    fn worse_is_above_zero() {
        assert!((loss_change(1.02, 1.0) - 2.0).abs() < 1e-12);
        assert!((drop(0.75, 0.8) - 6.25).abs() < 1e-12);
    }
}
