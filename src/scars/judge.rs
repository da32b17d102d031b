//! Compares counts with their forecasts, with an allowance for chance.

use crate::scars::forecast::{Expected, Forecast};

/// The largest deviation allowed, as a share of the forecast.
const TOLERANCE: f64 = 0.01;

/// The largest deviation that chance may explain when only part of an epoch is run. If chance can move a count further, the run proves
/// nothing.
const BOUND: f64 = 0.03;

/// Number of standard deviations that chance may move a count by.
const CHANCE: f64 = 4.0;

/// A mean so small that a row is seen in one of ten thousand runs only. It counts as zero.
const NOTHING: f64 = 1e-4;

/// Number of batches that are run at least.
const BATCHES: u64 = 64;

/// Most lookups that are run to get beyond chance.
const TO_TELL: u64 = 1 << 20;

/// The comparison of a count with its forecast.
///
/// Example: the [module](crate::scars).
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
    /// Whether chance alone may move the count by more than the allowed deviation. Such a count proves nothing.
    pub too_short: bool,
    /// Whether the deviation is allowed and the run is not too short.
    pub within: bool,
}

impl Expected {
    /// Compares a count with this forecast of rows or lookups, each worth `units`. It may be off by 1 %; if only part of an epoch is counted,
    /// by 4 standard deviations, at most 3 %. If the forecast is zero, the count must be zero.
    #[must_use]
    pub fn judge(self, units: f64, counted: f64, whole_epoch: bool) -> Judgement {
        let Self { mean, variance } = self;
        let (found, bound) = (counted / units, if whole_epoch { TOLERANCE } else { BOUND });
        let (deviation, allowed, chance) = if mean < NOTHING {
            (if found == 0.0 { 0.0 } else { (found - mean) / mean }, 0.0, 0.0)
        } else {
            let chance = CHANCE * variance.max(0.0).sqrt() / mean;
            ((found - mean) / mean, TOLERANCE.max(chance.min(bound)), chance)
        };
        let too_short = chance > bound && deviation.abs() <= chance;
        Judgement {
            predicted: mean * units,
            counted,
            deviation_percent: 100.0 * deviation,
            allowed_percent: 100.0 * allowed,
            too_short,
            within: !too_short && deviation.abs() <= allowed,
        }
    }
}

impl Forecast {
    /// The number of batches like this one, each of `lookups` lookups, after which chance moves no count by more than 3 %. A count that
    /// would need more than 2^20 lookups is left out. At least 64.
    #[must_use]
    pub fn enough_batches(&self, lookups: u64) -> u64 {
        let enough = |of: Expected| (CHANCE / BOUND * of.variance.sqrt() / of.mean).powi(2).ceil();
        let most = (TO_TELL / lookups.max(1)) as f64;
        let counts = [self.distinct, self.misses, self.hits].map(enough);
        counts.into_iter().filter(|&batches| batches <= most).fold(BATCHES as f64, f64::max) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(whole_epoch: bool, mean: f64, variance: f64, counted: f64) -> Judgement {
        Expected { mean, variance }.judge(1.0, counted, whole_epoch)
    }

    #[test]
    fn one_percent_is_the_bound_and_chance_is_allowed_for() {
        // A standard deviation of 0, and of half a percent: five rows of a thousand.
        for (variance, right, wrong) in
            [(0.0, [1010.0, 990.0], [1010.1, 989.9]), (25.0, [1019.0, 981.0], [1021.0, 979.0])]
        {
            assert_eq!(right.map(|counted| judged(false, 1000.0, variance, counted).within), [true; 2]);
            assert_eq!(wrong.map(|counted| judged(false, 1000.0, variance, counted).within), [false; 2]);
        }
        let bytes = Expected { mean: 200.0, variance: 0.0 }.judge(16.0, 199.0 * 16.0, false);
        assert_eq!((bytes.predicted, bytes.deviation_percent, bytes.allowed_percent), (3200.0, -0.5, 1.0));
    }

    #[test]
    fn what_chance_moves_too_far_proves_nothing() {
        // One percent a standard deviation: a count that is right, or off by three percent, proves nothing; one that is off by five is
        // wrong.
        for (counted, too_short) in [(1000.0, true), (970.0, true), (950.0, false)] {
            let found = judged(false, 1000.0, 100.0, counted);
            assert_eq!((found.too_short, found.within), (too_short, false), "{found:?}");
            assert!(found.allowed_percent <= 3.0, "{found:?}");
        }
        // For a whole epoch only one percent is allowed, and chance must not be able to move the count that far.
        assert!(judged(true, 1000.0, 25.0, 1000.0).too_short);
        assert!(judged(true, 1000.0, 6.0, 1009.0).within && !judged(true, 1000.0, 6.0, 1011.0).within);
    }

    #[test]
    fn nothing_predicted_nothing_counted() {
        assert!(judged(false, 0.0, 0.0, 0.0).within && judged(false, 1e-11, 1e-11, 0.0).within);
        for (mean, counted) in [(0.0, 1.0), (1e-11, 1.0), (1000.0, 0.0), (1000.0, f64::NAN)] {
            let found = judged(false, mean, 0.0, counted);
            assert!(!found.within && !found.too_short, "{found:?}");
        }
    }

    #[test]
    fn enough_batches_are_those_that_tell() {
        let all = |variance| Expected { mean: 100.0, variance };
        let forecast = |variance| Forecast { distinct: all(variance), misses: all(variance), ..Forecast::default() };
        // 4 / 0.03 standard deviations of a tenth each, squared. A count without variance needs only the least number.
        assert_eq!(forecast(100.0).enough_batches(100), 178);
        assert_eq!(forecast(0.0).enough_batches(100), 64);
        assert_eq!(forecast(100.0).enough_batches(1 << 13), 64, "178 would take too many lookups");
    }
}
