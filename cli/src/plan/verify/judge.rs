//! Predicted against counted: the deviation that is allowed.

use hotrow::scars::sets::Expected;
use serde::Serialize;

/// The largest deviation allowed, as a share of the prediction.
pub(super) const TOLERANCE: f64 = 0.01;

/// Where only a part of an epoch is run, chance is allowed for up to here. A run that chance moves further proves nothing.
pub(super) const BOUND: f64 = 0.03;

/// Standard deviations that chance is taken to move a measure by.
pub(super) const CHANCE: f64 = 4.0;

/// Rows so few that not even one is seen, but once in ten thousand runs.
const NOTHING: f64 = 1e-4;

/// A figure of a run. Its fields are part of the schema of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Measure {
    pub(super) what: &'static str,
    pub(super) predicted: f64,
    pub(super) counted: f64,
    pub(super) deviation_percent: f64,
    pub(super) allowed_percent: f64,
    /// Chance alone may move it further than can be allowed: neither right nor wrong.
    pub(super) too_short: bool,
    pub(super) within: bool,
}

/// What is allowed of a run, in shares: chance up to `bound`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    pub(super) bound: f64,
}

impl Judge {
    /// Judges a figure of rows or lookups, each of so many `units`. Where nothing is predicted, nothing may be counted.
    pub(super) fn measure(self, what: &'static str, predicted: Expected, units: f64, counted: f64) -> Measure {
        let Expected { mean, variance } = predicted;
        let found = counted / units;
        let (deviation, allowed, chance) = if mean < NOTHING {
            (if found == 0.0 { 0.0 } else { (found - mean) / mean }, 0.0, 0.0)
        } else {
            let chance = CHANCE * variance.max(0.0).sqrt() / mean;
            ((found - mean) / mean, TOLERANCE.max(chance.min(self.bound)), chance)
        };
        let too_short = chance > self.bound && deviation.abs() <= chance;
        Measure {
            what,
            predicted: mean * units,
            counted,
            deviation_percent: 100.0 * deviation,
            allowed_percent: 100.0 * allowed,
            too_short,
            within: !too_short && deviation.abs() <= allowed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bound: f64, mean: f64, variance: f64, counted: f64) -> Measure {
        Judge { bound }.measure("rows", Expected { mean, variance }, 1.0, counted)
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
        let bytes =
            Judge { bound: BOUND }.measure("bytes", Expected { mean: 200.0, variance: 0.0 }, 16.0, 199.0 * 16.0);
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
}
