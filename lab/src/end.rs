//! The ends of runs: epochs, steps, seconds, or a test that is as good as a goal.

use crate::metrics::Score;
use serde::{Deserialize, Serialize};
use std::num::NonZero;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Epochs(u32),
    Steps(u64),
    Seconds(f64),
    /// When a test is as good as `best`, after at least `least` and at most `most` steps. There is a test every `every` steps, with the first
    /// `tested` samples of the test set.
    Goal {
        measure: Measure,
        best: f64,
        every: u64,
        tested: usize,
        least: u64,
        most: u64,
    },
}

/// What a goal measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    Loss,
    Auc,
}

impl Measure {
    pub(crate) fn of(self, score: &Score) -> f64 {
        if self == Self::Loss { score.loss } else { score.auc.unwrap_or(f64::NAN) }
    }

    pub(crate) fn is_reached(self, found: f64, best: f64) -> bool {
        if self == Self::Loss { found <= best } else { found >= best }
    }

    /// The best of the tests of a run.
    pub(crate) fn best(self, curve: &[(u64, f64)]) -> Option<f64> {
        let found = curve.iter().map(|&(_, found)| found);
        found.reduce(|best, found| if self.is_reached(found, best) { found } else { best })
    }
}

/// Trains until a test is as good as the goal. The first setting is trained for its end; its best test is the goal of the others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Goal {
    #[serde(rename = "goal")]
    pub(crate) measure: Measure,
    /// The goal itself, instead of the first setting's.
    pub(crate) at: Option<f64>,
    /// The most steps, as a multiple of the first setting's.
    times: Option<NonZero<u64>>,
    test_every: Option<NonZero<u64>>,
    tested: Option<NonZero<usize>>,
}

/// The default number of tests in the first setting's steps.
const TESTS: u64 = 40;

impl Goal {
    /// The end of a run. `steps` are those of the first setting, and `best` is the goal; `None` if the run sets it.
    pub(crate) fn of(&self, steps: u64, best: Option<f64>) -> End {
        let never = if self.measure == Measure::Loss { f64::NEG_INFINITY } else { f64::INFINITY };
        let times = if best.is_some() { self.times.map_or(1, NonZero::get) } else { 1 };
        End::Goal {
            measure: self.measure,
            best: best.unwrap_or(never),
            every: self.test_every.map_or((steps / TESTS).max(1), NonZero::get).min(steps),
            tested: self.tested.map_or(4096, NonZero::get),
            least: steps,
            most: steps.saturating_mul(times),
        }
    }
}
