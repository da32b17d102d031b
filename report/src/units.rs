//! The median, and quantities as text for tables, charts and messages.

use serde::{Deserialize, Serialize};

/// Seconds of several rounds, or other figures of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Times {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
    pub rounds: usize,
    /// Whether the device's clock steps too coarsely for this time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub coarse: bool,
}

impl Times {
    /// The times of these rounds; all zero without any.
    pub fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let (Some(&lowest), Some(&highest)) = (rounds.first(), rounds.last()) else { return Self::default() };
        let n = rounds.len();
        Self { median: f64::midpoint(rounds[(n - 1) / 2], rounds[n / 2]), lowest, highest, rounds: n, coarse: false }
    }

    /// The times of two parts that follow each other.
    pub fn plus(self, other: Self) -> Self {
        Self {
            median: self.median + other.median,
            lowest: self.lowest + other.lowest,
            highest: self.highest + other.highest,
            rounds: self.rounds.min(other.rounds),
            coarse: self.coarse || other.coarse,
        }
    }
}

/// The median: the mean of the two middle values if their number is even, not a number for no values.
pub fn median(values: Vec<f64>) -> f64 {
    if values.is_empty() { f64::NAN } else { Times::of(values).median }
}

/// The slowest of several times divided by the fastest.
pub fn apart(seconds: &[f64]) -> Option<f64> {
    let (low, high) = (seconds.iter().copied().reduce(f64::min)?, seconds.iter().copied().reduce(f64::max)?);
    (seconds.len() > 1).then(|| high / low)
}

/// `12.34 ms`; from nanoseconds to seconds.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds if seconds >= 1e-7 || seconds == 0.0 => format!("{:.1} us", seconds * 1e6),
        seconds => format!("{:.0} ns", seconds * 1e9),
    }
}

/// `136 B`, `1.23 KB`, `1.23 MB`, `12.34 GB`: powers of ten.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes * 1e-9),
        bytes if bytes >= 1e6 => format!("{:.2} MB", bytes * 1e-6),
        bytes if bytes >= 1e3 => format!("{:.2} KB", bytes * 1e-3),
        bytes => format!("{bytes:.0} B"),
    }
}

/// A number of things, rounded to two decimals of its unit: `4 M`, `12.5 K`, `512`.
pub fn count(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{} M", decimals(n / 1e6)),
        n if n >= 1e3 => format!("{} K", decimals(n / 1e3)),
        n => decimals(n),
    }
}

/// A number with at most two decimals and without trailing zeros: 10, 12.5.
pub fn decimals(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number with at most three significant digits, for cells of a chart.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 1e4 => format!("{:.0}K", value / 1e3),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value if value >= 0.0995 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
        assert!(median(Vec::new()).is_nan());
        let times = Times::of(vec![3.0, 1.0, 5.0]);
        assert_eq!((times.median, times.lowest, times.highest, times.rounds), (3.0, 1.0, 5.0, 3));
        assert_eq!(times.plus(times), Times { median: 6.0, lowest: 2.0, highest: 10.0, ..times });
        assert_eq!(Times::of(Vec::new()), Times::default());
        assert_eq!((apart(&[2.0, 1.0, 1.5]), apart(&[2.0])), (Some(2.0), None));
    }

    #[test]
    fn quantities_are_short_and_have_their_unit() {
        assert_eq!([2.0, 0.0021, 3.2e-6, 0.0, 5e-8].map(seconds), ["2.00 s", "2.10 ms", "3.2 us", "0.0 us", "50 ns"]);
        assert_eq!([2.5e9, 3e6, 1234.0, 136.0].map(bytes), ["2.50 GB", "3.00 MB", "1.23 KB", "136 B"]);
        assert_eq!([4e6, 51.2e6, 15_624.0, 2e3, 12.0].map(count), ["4 M", "51.2 M", "15.62 K", "2 K", "12"]);
        let shown = [0.0123, 0.1, 0.996, 9.99, 10.0, 99.96, 123.4, 12_345.0].map(short);
        assert_eq!(shown, ["0.012", "0.10", "1.00", "9.99", "10.0", "100", "123", "12K"]);
    }
}
