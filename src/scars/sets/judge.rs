//! A count beside its forecast: the deviation that is allowed.

use crate::scars::sets::forecast::{Expected, Forecast};

/// The largest deviation allowed, as a share of the forecast.
const TOLERANCE: f64 = 0.01;

/// Where only a part of an epoch is run, chance is allowed for up to here. A run that chance moves further proves nothing.
const BOUND: f64 = 0.03;

/// Standard deviations that chance is taken to move a count by.
const CHANCE: f64 = 4.0;

/// Rows so few that not even one is seen, but once in ten thousand runs.
const NOTHING: f64 = 1e-4;

/// Batches of a distribution that are run, unless it takes more to tell.
const BATCHES: u64 = 64;

/// Most lookups that are run to tell.
const TO_TELL: u64 = 1 << 20;

/// Compares counts with forecasts. A deviation of 1 % is allowed, or as much as chance explains up to a bound.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judge {
    bound: f64,
}

/// A count beside its forecast.
///
/// Example: the [module](crate::scars::sets).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Judgement {
    /// The mean of the forecast.
    pub predicted: f64,
    /// The count.
    pub counted: f64,
    /// The count less the mean, in percent of the mean.
    pub deviation_percent: f64,
    /// The largest deviation allowed, in percent of the mean.
    pub allowed_percent: f64,
    /// Chance alone may move the count further than can be allowed: it is neither right nor wrong.
    pub too_short: bool,
    /// The deviation is allowed, and the run is not too short.
    pub within: bool,
}

impl Judge {
    /// For counts of a whole epoch: chance is not allowed for.
    pub const WHOLE_EPOCH: Self = Self { bound: TOLERANCE };

    /// For counts of a part of an epoch: chance, 4 standard deviations, is allowed for up to 3 %.
    pub const PART: Self = Self { bound: BOUND };

    /// Compares a count with a forecast of rows or lookups, each of so many `units`. Where nothing is forecast, nothing may be counted.
    #[must_use]
    pub fn judge(self, forecast: Expected, units: f64, counted: f64) -> Judgement {
        let Expected { mean, variance } = forecast;
        let found = counted / units;
        let (deviation, allowed, chance) = if mean < NOTHING {
            (if found == 0.0 { 0.0 } else { (found - mean) / mean }, 0.0, 0.0)
        } else {
            let chance = CHANCE * variance.max(0.0).sqrt() / mean;
            ((found - mean) / mean, TOLERANCE.max(chance.min(self.bound)), chance)
        };
        let too_short = chance > self.bound && deviation.abs() <= chance;
        Judgement {
            predicted: mean * units,
            counted,
            deviation_percent: 100.0 * deviation,
            allowed_percent: 100.0 * allowed,
            too_short,
            within: !too_short && deviation.abs() <= allowed,
        }
    }

    /// So many batches like `batch`, of `lookups`, that chance moves no count of theirs by more than 3 %, where that takes at most 2^20
    /// lookups; at least 64.
    #[must_use]
    pub fn enough_batches(batch: &Forecast, lookups: u64) -> u64 {
        let enough = |of: Expected| (CHANCE / BOUND * of.variance.sqrt() / of.mean).powi(2).ceil();
        let most = (TO_TELL / lookups.max(1)) as f64;
        let counts = [batch.distinct, batch.misses, batch.hits].map(enough);
        counts.into_iter().filter(|&batches| batches <= most).fold(BATCHES as f64, f64::max) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bound: f64, mean: f64, variance: f64, counted: f64) -> Judgement {
        Judge { bound }.judge(Expected { mean, variance }, 1.0, counted)
    }

    fn within(mean: f64, variance: f64, counted: f64) -> bool {
        judged(BOUND, mean, variance, counted).within
    }

    #[test]
    fn one_percent_is_the_bound() {
        assert!(within(1000.0, 0.0, 1010.0) && within(1000.0, 0.0, 990.0));
        assert!(!within(1000.0, 0.0, 1010.1) && !within(1000.0, 0.0, 989.9));
        let found = judged(BOUND, 200.0, 0.0, 199.0);
        assert_eq!((found.deviation_percent, found.allowed_percent), (-0.5, 1.0));
        let bytes = Judge::PART.judge(Expected { mean: 200.0, variance: 0.0 }, 16.0, 199.0 * 16.0);
        assert_eq!((bytes.predicted, bytes.deviation_percent, bytes.within), (3200.0, -0.5, true));
    }

    #[test]
    fn chance_is_allowed_for_and_no_more() {
        // Five rows more or less of a thousand: half a percent a standard deviation.
        assert!(within(1000.0, 25.0, 1019.0) && !within(1000.0, 25.0, 1021.0));
    }

    #[test]
    fn what_chance_moves_too_far_proves_nothing() {
        // A percent a standard deviation: neither a right figure nor one off by three holds, one off by five is wrong.
        for (counted, too_short) in [(1000.0, true), (970.0, true), (950.0, false)] {
            let found = judged(BOUND, 1000.0, 100.0, counted);
            assert_eq!((found.too_short, found.within), (too_short, false), "{found:?}");
            assert!(found.allowed_percent <= 3.0, "{found:?}");
        }
        // Of a whole epoch one percent is all that is allowed, and chance may not move it as far.
        assert!(judged(TOLERANCE, 1000.0, 25.0, 1000.0).too_short);
        assert!(judged(TOLERANCE, 1000.0, 6.0, 1009.0).within && !judged(TOLERANCE, 1000.0, 6.0, 1011.0).within);
    }

    #[test]
    fn nothing_predicted_nothing_counted() {
        assert!(within(0.0, 0.0, 0.0));
        let none = judged(BOUND, 1e-11, 1e-11, 0.0);
        assert_eq!((none.within, none.deviation_percent, none.allowed_percent), (true, 0.0, 0.0));
        for (mean, counted) in [(0.0, 1.0), (1e-11, 1.0), (1000.0, 0.0), (1000.0, f64::NAN)] {
            let found = judged(BOUND, mean, 0.0, counted);
            assert!(!found.within && !found.too_short, "{found:?}");
        }
    }

    #[test]
    fn enough_batches_are_those_that_tell() {
        let forecast = |variance| {
            let all = Expected { mean: 100.0, variance };
            Forecast { distinct: all, misses: all, touched: all, hits: all }
        };
        // 4 / 0.03 standard deviations of a tenth each, squared; a certain count needs no more than the least.
        assert_eq!(Judge::enough_batches(&forecast(100.0), 100), 178);
        assert_eq!(Judge::enough_batches(&forecast(0.0), 100), 64);
        assert_eq!(Judge::enough_batches(&forecast(100.0), 1 << 13), 64, "178 would take too many lookups");
    }
}
