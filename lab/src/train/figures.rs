//! The figures of each setup over its seeds, each with the interval of its mean. Changes are against FP32 with the same seed, so that the
//! effect of the seed cancels.

use super::journal::Record;
use super::run::Outcome;
use super::setting::{Setting, Setup};
use hotrow_cli::names;
use hotrow_cli::report::units::Times;
use hotrow_cli::report::{self, Record as Figure, Unit};
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The probability that an interval holds the true mean.
const CONFIDENCE: f64 = 0.95;

/// The loss in percent of FP32's that Yang 2020 calls neutral.
pub(crate) const NEUTRAL: f64 = 0.02;

/// The largest half width, in percent, of an interval around 0 that counts as neutral. A wider one may hold 0 by scatter alone. The limit
/// is a convention: a smaller cost, such as FP16's with nearest rounding (about 0.1 % on author), can still hide in such an interval.
const TOO_WIDE: f64 = 0.5;

/// The fewest seeds that are judged. With two seeds Student's t is 12.7.
const LEAST_SEEDS: usize = 3;

/// A mean over seeds with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) mean: f64,
    /// The lower end; `None` with fewer than two seeds.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) seeds: usize,
}

impl Interval {
    /// Mean and Student-t interval of `values`, one for each seed; `None` without values.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let seeds = values.len();
        if seeds == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / seeds as f64;
        let half = half_width(values, mean);
        Some(Self { mean, low: half.map(|half| mean - half), high: half.map(|half| mean + half), seeds })
    }

    /// Whether a change is no loss: its interval ends below 0.02 %, or holds 0. `None` with too few seeds, or if the interval is too wide.
    pub(crate) fn no_worse(&self) -> Option<bool> {
        let (low, high) = self.low.zip(self.high).filter(|_| self.seeds >= LEAST_SEEDS)?;
        let neutral = -NEUTRAL <= low && high <= NEUTRAL;
        let holds_0 = low <= 0.0 && high >= 0.0;
        let said = neutral || !holds_0 || high - self.mean <= TOO_WIDE;
        said.then_some(neutral || high < 0.0 || holds_0)
    }

    /// The mean as a record. Scores and changes have the interval as their spread.
    pub(crate) fn record(&self, what: &str, shape: &str, setting: &report::Setting, unit: Unit) -> Figure {
        let times = |(lowest, highest)| Times { median: self.mean, lowest, highest, rounds: self.seeds };
        let spread = self.low.zip(self.high).filter(|_| unit.has_interval()).map(times);
        Figure { spread, ..Figure::new(what, shape, setting, self.mean, unit) }
    }

    /// "+0.310 [+0.220, +0.400]".
    pub(crate) fn text(&self) -> String {
        match self.low.zip(self.high) {
            Some((low, high)) => format!("{:+.3} [{low:+.3}, {high:+.3}]", self.mean),
            None => format!("{:+.3} [one seed]", self.mean),
        }
    }
}

fn half_width(values: &[f64], mean: f64) -> Option<f64> {
    let n = values.len() as f64;
    let freedom = n - 1.0;
    // Fails without degrees of freedom.
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * (variance / n).sqrt())
}

/// The percentage by which `loss` exceeds that of FP32 with the same seed (Yang 2020, eq. 1, for a loss).
pub(crate) fn loss_change(loss: f64, fp32: f64) -> f64 {
    100.0 * (loss - fp32) / fp32
}

/// The percentage by which an accuracy or AUC is below that of FP32 with the same seed (Yang 2020, eq. 1).
fn drop(score: f64, fp32: f64) -> f64 {
    100.0 * (fp32 - score) / fp32
}

/// A run that completed.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) seed: u64,
    pub(crate) outcome: Outcome,
    /// FP32's outcome with the same seed, if there is one; `None` for FP32 itself.
    fp32: Option<Outcome>,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) setup: Setup,
    pub(crate) runs: Vec<Ended>,
    /// Number of runs that failed.
    pub(crate) failed: usize,
}

/// The percentage by which the test log-loss exceeds FP32's.
pub(crate) const LOSS_CHANGE: &str = "test loss change";

/// The percentages by which accuracy and AUC are below FP32's.
pub(crate) const DROPS: [&str; 2] = ["accuracy drop", "AUC drop"];

/// A figure: its name, its unit, and its value in a run, if any.
type Column = (&'static str, Unit, fn(&Outcome, Option<&Outcome>) -> Option<f64>);

/// The figures of a run, and its changes against FP32 with the same seed (Yang 2020, eq. 1).
const FIGURES: [Column; 14] = [
    ("test loss", Unit::Score, |run, _| Some(run.loss)),
    ("accuracy", Unit::Score, |run, _| run.accuracy),
    ("AUC", Unit::Score, |run, _| run.auc),
    ("hit rate", Unit::Share, |run, _| run.hit_rate),
    ("memory by formula", Unit::Times, |run, _| Some(run.memory_paper)),
    ("memory", Unit::Times, |run, _| Some(run.memory_true)),
    ("bytes moved", Unit::Bytes, |run, _| Some(run.bus_bytes as f64)),
    ("samples a second", Unit::PerSecond, |run, _| Some(run.samples_per_second)),
    ("steps", Unit::Count, |run, _| Some(run.steps as f64)),
    ("run", Unit::Seconds, |run, _| Some(run.seconds)),
    ("training loss", Unit::Score, |run, _| Some(run.train_loss)),
    (LOSS_CHANGE, Unit::Change, |run, fp32| Some(loss_change(run.loss, fp32?.loss))),
    (DROPS[0], Unit::Change, |run, fp32| Some(drop(run.accuracy?, fp32?.accuracy?))),
    (DROPS[1], Unit::Change, |run, fp32| Some(drop(run.auc?, fp32?.auc?))),
];

impl Cell {
    /// The figure of this name over the seeds that have it.
    pub(crate) fn figure(&self, what: &str) -> Option<Interval> {
        let (_, _, of) = FIGURES.iter().find(|(known, ..)| *known == what)?;
        Interval::of(&self.runs.iter().filter_map(|run| of(&run.outcome, run.fp32.as_ref())).collect::<Vec<_>>())
    }

    pub(crate) fn mean(&self, what: &str) -> Option<f64> {
        self.figure(what).map(|figure| figure.mean)
    }

    /// Whether all runs completed, and there are enough of them.
    pub(crate) fn is_whole(&self) -> bool {
        self.failed == 0 && self.runs.len() >= LEAST_SEEDS
    }

    /// The loss change, if it can be judged: the cell is complete, every seed has an FP32 run, and some table has low precision. Low
    /// precision shows in the formula of memory, which counts the weights alone.
    pub(crate) fn sound_change(&self) -> Option<Interval> {
        let paired = self.runs.iter().all(|run| run.fp32.is_some());
        let sound = self.is_whole() && paired && self.mean("memory by formula") != Some(1.0);
        self.figure(LOSS_CHANGE).filter(|_| sound)
    }
}

pub(crate) fn find(cells: &[Cell], setting: Setting) -> Option<&Cell> {
    cells.iter().find(|cell| cell.setup == Setup::from(setting))
}

/// The setups in the order of their first records, each with FP32's outcomes.
pub(crate) fn cells(records: &[Record]) -> Vec<Cell> {
    let fp32 = |of: &Record| {
        let base = Setup { batch: of.setup.batch, ..Setup::FP32 };
        let same = records.iter().find(|record| record.seed == of.seed && record.setup == base);
        same.and_then(|record| record.outcome.clone()).filter(|_| of.setup != base)
    };
    let mut cells: Vec<Cell> = Vec::new();
    for record in records {
        let at = cells.iter().position(|cell| cell.setup == record.setup).unwrap_or_else(|| {
            cells.push(Cell { setup: record.setup.clone(), runs: Vec::new(), failed: 0 });
            cells.len() - 1
        });
        match record.outcome.clone() {
            Some(outcome) => cells[at].runs.push(Ended { seed: record.seed, outcome, fp32: fp32(record) }),
            None => cells[at].failed += 1,
        }
    }
    cells
}

/// Figures and changes of each cell: means over the seeds with their intervals.
pub(crate) fn records(task: &str, cells: &[Cell]) -> Vec<Figure> {
    let of = |cell: &Cell| {
        let setting = setting(cell);
        let figure = |(what, unit, _): &Column| Some(cell.figure(what)?.record(what, task, &setting, *unit));
        FIGURES.iter().filter_map(figure).collect::<Vec<_>>()
    };
    cells.iter().flat_map(of).collect()
}

/// Names in a figure's setting: its line, and the size of its cache.
pub(crate) const LINE: &str = "line";
pub(crate) const SIZE: &str = "cache % of rows";

/// The names and values of a setup.
fn setting(cell: &Cell) -> report::Setting {
    let setup = &cell.setup;
    let mut found = report::Setting::default().with("tables", setup.label());
    if let Some(rows) = setup.rows() {
        let (precision, rounding) = (rows.precision.to_string(), rows.rounding.to_string());
        found = found.with(LINE, format!("{precision} {rounding}"));
        found = found.with("precision", precision).with("rounding", rounding);
        found = found.with("cache", rows.cache_name()).with(SIZE, rows.cache_percent);
        if rows.has_cache() {
            found = found.with("policy", names::title(rows.policy)).with("ways", rows.ways);
        }
    }
    if let Some(memory) = cell.mean("memory by formula") {
        found = found.with("memory", memory);
    }
    match setup.batch {
        Some(batch) => found.with("batch", batch as f64).with(LINE, setup.label()),
        None => found,
    }
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
        let half = Interval::of(&unit(n)).unwrap().high.unwrap();
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
        // Quantiles of the normal distribution, of one side, and of one more seed.
        for (n, quantile) in [(3, 1.960), (3, 2.920), (3, 3.182), (121, 1.960)] {
            assert!(!has_quantile(n, quantile), "{n}");
        }
    }

    #[test]
    fn an_interval_worked_by_hand() {
        // Mean 2, standard deviation 1: 4.3027 / sqrt(3).
        let found = Interval::of(&[1.0, 2.0, 3.0]).unwrap();
        assert!((found.mean - 2.0).abs() < 1e-12 && (found.high.unwrap() - 4.484_138).abs() < 1e-5, "{found:?}");
        assert_eq!((found.no_worse(), found.text().as_str()), (None, "+2.000 [-0.484, +4.484]"));
        let no_worse = |values: [f64; 3]| Interval::of(&values).unwrap().no_worse();
        assert_eq!(no_worse([0.01, 0.0101, 0.0102]), Some(true), "above 0, and neutral");
        assert_eq!(no_worse([0.03, 0.0301, 0.0302]), Some(false), "above neutral");
        assert_eq!([[-0.1, 0.0, 0.1], [-9.0, -9.1, -9.2]].map(no_worse), [Some(true); 2]);
    }

    #[test]
    fn few_seeds_claim_nothing() {
        assert_eq!(Interval::of(&[]), None);
        let one = Interval::of(&[0.5]).unwrap();
        assert_eq!((one.mean, one.low, one.high, one.no_worse()), (0.5, None, None, None));
        assert_eq!(one.text(), "+0.500 [one seed]");
    }

    #[test]
    fn worse_is_above_zero() {
        assert!((loss_change(1.02, 1.0) - 2.0).abs() < 1e-12);
        assert!((drop(0.75, 0.8) - 6.25).abs() < 1e-12);
    }
}
