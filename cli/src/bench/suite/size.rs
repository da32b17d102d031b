//! The size of a benchmark: for a GPU, or small enough that a software driver finishes in two minutes.

use clap::ValueEnum;
use hotrow_report::clock::Rounds;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// Small enough that a software driver finishes in two minutes
    Small,
    /// The shapes of the goals
    Full,
}

impl Size {
    pub(crate) const fn name(self) -> &'static str {
        self.of("small", "full")
    }

    pub(crate) fn is_full(self) -> bool {
        self == Self::Full
    }

    /// Returns `small` or `full`.
    pub(crate) const fn of<T: Copy>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }

    /// The number of rounds: whole ones, ones whose stages are timed, and the time after which three whole ones are enough.
    pub(crate) fn rounds(self) -> Rounds {
        let (whole, detailed, seconds) = self.of((3, 1, 1), (15, 5, 3));
        Rounds { whole, detailed, slice: Duration::from_secs(seconds) }
    }
}
