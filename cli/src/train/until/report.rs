//! Fewer bytes, more steps: JSON, a table, and two pictures.

use crate::names::{OptimizerName, option_name};
use crate::output;
use crate::plot::Chart;
use crate::report::units::median;
use crate::report::{self, Record as Figure, Setting, Unit};
use crate::train::charts::{self, LINE};
use crate::train::outcome::Outcome;
use crate::train::summary;
use crate::train::training::Training;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that `--plots` reads.
const FILE: &str = "until.json";

/// Numbers of bytes that differ by less have one place in the picture.
const ALIKE: f64 = 0.05;

/// Everything: the schema of `--json` and of until.json.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    task: String,
    data: String,
    /// Samples in a batch.
    batch: usize,
    #[serde(with = "crate::names")]
    optimizer: OptimizerName,
    dense_lr: f32,
    #[serde(flatten)]
    limits: Limits,
    seeds: Vec<u64>,
    /// The full table first.
    settings: Vec<Row>,
    #[serde(skip)]
    small: String,
}

/// How far runs go, and how often they are tested.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Limits {
    /// Steps of the full table.
    pub(super) goal_steps: u64,
    /// Steps of the others at most.
    pub(super) most_steps: u64,
    /// Steps between tests.
    pub(super) test_every: u64,
    /// Samples of a test.
    pub(super) tested: usize,
    /// Steps of a short run that a rate is chosen by.
    pub(super) short_steps: u64,
}

/// A setting.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) setting: String,
    /// The rate it was trained with.
    pub(super) rate: f32,
    /// Those it was chosen from.
    pub(super) rates: Vec<Tried>,
    /// Of a step; of forward and backward of its tables. Medians, in milliseconds.
    step_ms: f64,
    tables_ms: f64,
    pub(super) runs: Vec<Followed>,
}

/// A rate, and the test loss after a short run; none, if one was not finite.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tried {
    pub(super) rate: f32,
    pub(super) loss: Option<f64>,
}

/// A run of a seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Followed {
    seed: u64,
    /// Bytes of all tables that stay, optimiser state included.
    bytes: u64,
    /// The papers' formula against FP32 weights.
    memory_paper: f64,
    /// The full table's lowest loss.
    goal: f64,
    /// The step at which it was reached; none: not within the steps there were.
    reached: Option<u64>,
    /// Steps and test losses.
    curve: Vec<(u64, f64)>,
}

/// The lowest loss of a curve.
pub(super) fn lowest(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|&(_, loss)| loss).fold(f64::INFINITY, f64::min)
}

impl Followed {
    pub(super) fn new(seed: u64, goal: f64, run: Outcome) -> Self {
        let reached = run.curve.iter().find(|&&(_, loss)| loss <= goal).map(|&(steps, _)| steps);
        let (bytes, memory_paper) = (run.kept_bytes.unwrap_or_default(), run.memory_paper);
        Self { seed, bytes, memory_paper, goal, reached, curve: run.curve }
    }

    /// The loss after so many steps.
    fn loss_at(&self, steps: u64) -> f64 {
        self.curve.iter().find(|&&(at, _)| at >= steps).map_or(f64::NAN, |&(_, loss)| loss)
    }
}

impl Row {
    /// A setting, and the rates that were tried.
    pub(super) const fn new(setting: String, rates: Vec<Tried>) -> Self {
        Self { setting, rate: 0.0, rates, step_ms: 0.0, tables_ms: 0.0, runs: Vec::new() }
    }

    /// The rate of the least loss.
    pub(super) fn best(&self) -> anyhow::Result<f32> {
        let finite = self.rates.iter().filter_map(|tried| Some((tried.loss?, tried.rate)));
        let best = finite.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rate)| rate);
        best.with_context(|| {
            format!(
                "{}: wanted a rate whose losses are finite, found none; give lower --rates or a lower --dense-lr",
                self.setting
            )
        })
    }

    /// Takes the times of steps, and those of their tables.
    pub(super) fn timed(&mut self, took: &[[Duration; 2]]) {
        let of = |at: usize| 1e3 * median(took.iter().map(|took| took[at].as_secs_f64()).collect());
        (self.step_ms, self.tables_ms) = (of(0), of(1));
    }

    fn mean(&self, of: impl Fn(&Followed) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// Mean steps to the goal; none unless every seed came there.
    fn steps(&self) -> Option<f64> {
        let reached: Option<Vec<u64>> = self.runs.iter().map(|run| run.reached).collect();
        reached.map(|steps| steps.iter().sum::<u64>() as f64 / self.runs.len() as f64)
    }

    /// Mean seconds to the goal.
    fn seconds(&self) -> Option<f64> {
        self.steps().map(|steps| steps * self.step_ms / 1e3)
    }

    fn bytes(&self) -> f64 {
        self.mean(|run| run.bytes as f64)
    }
}

impl Report {
    pub(super) fn new(training: &Training, limits: Limits, settings: Vec<Row>) -> Self {
        let (about, options) = (training.task.about(), &training.options);
        Self {
            task: about.name.to_owned(),
            data: about.source.clone(),
            batch: options.batch,
            optimizer: options.rule.optimizer,
            dense_lr: options.dense_lr,
            limits,
            seeds: training.seeds.clone(),
            settings,
            small: training.small(),
        }
    }

    /// Writes until.json, until.md and the pictures, whose names it returns.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        output::write_json(&folder.join(FILE), self)?;
        output::write_file(&folder.join("until.md"), self.markdown().as_bytes())?;
        self.draw(folder)
    }

    /// The results in a folder; none without the file.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE);
        let wanted = || format!("{}: wanted the results of `train until`; run it again", path.display());
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            text => serde_json::from_slice(&text.with_context(wanted)?).with_context(wanted),
        }
    }

    /// Writes the pictures.
    pub(super) fn draw(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut written = self.trade_off().write(&folder.join("until"))?.to_vec();
        written.extend(self.losses().write(&folder.join("losses"))?);
        Ok(written)
    }

    pub(super) fn markdown(&self) -> String {
        let Limits { goal_steps, most_steps, test_every, tested, short_steps } = self.limits;
        let (optimizer, seeds) = (option_name(&self.optimizer), self.seeds.len());
        format!(
            "{}\n{}batches of {}, {optimizer}, dense part adagrad at {}, constant rates; {seeds} seeds\n\
             goal: the lowest test loss of fp32 in {goal_steps} steps, tested every {test_every} on {tested} samples; the others \
             have {most_steps} steps at most\n\
             rate: the best of those tried in {short_steps} steps with the first seed\n\n{}",
            self.data,
            self.small,
            self.batch,
            self.dense_lr,
            report::table(&self.figures(), &["tables"], "what").unwrap_or_default(),
        )
    }

    /// The figures of each setting, means over the seeds.
    fn figures(&self) -> Vec<Figure> {
        let full = self.settings.first();
        let of_full = |value: Option<f64>, of: fn(&Row) -> Option<f64>| Some(value? / of(full?)?);
        let mut figures = Vec::new();
        for row in &self.settings {
            let setting = Setting::default().with("tables", row.setting.as_str());
            let reached = row.runs.iter().filter(|run| run.reached.is_some()).count();
            let found = [
                ("compression", Some(1.0 / row.mean(|run| run.memory_paper)), Unit::Times),
                ("kept", Some(row.bytes()), Unit::Bytes),
                ("rate", Some(row.rate.into()), Unit::Score),
                ("loss at fp32's steps", Some(row.mean(|run| run.loss_at(self.limits.goal_steps))), Unit::Score),
                ("lowest loss", Some(row.mean(|run| lowest(&run.curve))), Unit::Score),
                ("seeds at goal", Some(reached as f64), Unit::Count),
                ("steps to goal", row.steps(), Unit::Count),
                ("of fp32's steps", of_full(row.steps(), Row::steps), Unit::Times),
                ("a step", Some(row.step_ms / 1e3), Unit::Seconds),
                ("of it tables", Some(row.tables_ms / 1e3), Unit::Seconds),
                ("time to goal", row.seconds(), Unit::Seconds),
                ("of fp32's time", of_full(row.seconds(), Row::seconds), Unit::Times),
            ];
            figures.extend(summary::figures(&self.task, &setting, found));
        }
        figures
    }

    /// Against the full table, over how many times fewer bytes there are.
    fn trade_off(&self) -> Chart {
        let full = self.settings.first();
        // Of settings of as many bytes the one that was asked for first: a line has one point a place.
        let mut rows: Vec<&Row> = Vec::new();
        for row in &self.settings {
            if rows.iter().all(|other| (row.bytes() / other.bytes()).ln().abs() > ALIKE) {
                rows.push(row);
            }
        }
        let loss = |row: &Row| Some(row.mean(|run| run.loss_at(self.limits.goal_steps)));
        let missed = rows.iter().filter(|row| row.steps().is_none()).count();
        let left_out = if missed == 0 { String::new() } else { format!(" ({missed} not reached)") };
        type Line<'a> = (String, &'a dyn Fn(&Row) -> Option<f64>);
        let lines: [Line<'_>; 4] = [
            (format!("steps to its loss{left_out}"), &Row::steps),
            ("time a step".into(), &|row| Some(row.step_ms)),
            ("time to its loss".into(), &Row::seconds),
            ("test loss after as many steps".into(), &loss),
        ];
        let mut figures = Vec::new();
        for (what, of) in &lines {
            let figure = |row: &&Row| {
                let fewer = Setting::default().with(FEWER, full?.bytes() / row.bytes()).with(LINE, what.as_str());
                Some(Figure::new(what.as_str(), &self.task, &fewer, of(row)? / of(full?)?, Unit::Times))
            };
            figures.extend(rows.iter().filter_map(figure));
        }
        let mut chart = charts::numbers(&figures, FEWER);
        chart.title = format!("{}: fewer bytes, more steps", self.task);
        chart.y_label = "Times the full FP32 table's".to_owned();
        (chart.log_x, chart.log_y) = (true, true);
        if let Some(loss) = chart.series.last_mut() {
            loss.dashed = true;
        }
        chart
    }

    /// Test loss over steps, a line a setting: the first seed's.
    fn losses(&self) -> Chart {
        let mut figures = Vec::new();
        for row in &self.settings {
            let curve = row.runs.first().map(|run| &run.curve[..]).unwrap_or_default();
            figures.extend(curve.iter().map(|&(steps, loss)| {
                let setting = Setting::default().with(LINE, row.setting.as_str()).with("Steps", steps as f64);
                Figure::new("test loss", &self.task, &setting, loss, Unit::Score)
            }));
        }
        let mut chart = charts::numbers(&figures, "Steps");
        chart.series.iter_mut().for_each(|series| series.markers = false);
        chart.title = format!("{}: test loss, seed {}", self.task, self.seeds.first().copied().unwrap_or_default());
        chart.y_label = "Test log-loss".to_owned();
        chart.log_x = true;
        chart
    }
}

/// The x axis of the trade-off.
const FEWER: &str = "Bytes kept: so many times fewer than the full FP32 table's";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: &str, bytes: u64, step_ms: f64, reached: [Option<u64>; 2]) -> Row {
        let run = |(seed, reached)| {
            let curve = vec![(5, 0.7), (10, 0.6), (20, 0.5)];
            Followed { seed, bytes, memory_paper: bytes as f64 / 4000.0, goal: 0.6, reached, curve }
        };
        let runs = (0..).zip(reached).map(run).collect();
        Row { rate: 0.1, step_ms, tables_ms: 0.1, runs, ..Row::new(setting.into(), Vec::new()) }
    }

    fn report() -> Report {
        let settings = vec![
            row("fp32", 4000, 2.0, [Some(10), Some(20)]),
            row("robe 10x", 400, 1.0, [Some(30), Some(60)]),
            row("robe 100x", 40, 1.0, [Some(30), None]),
            row("robe 100x, chunks of 8", 40, 1.0, [None, None]),
        ];
        Report {
            task: "tiny".into(),
            data: "made up".into(),
            batch: 32,
            optimizer: OptimizerName::AdaGrad,
            dense_lr: 0.1,
            limits: Limits { goal_steps: 10, most_steps: 100, test_every: 5, tested: 50, short_steps: 5 },
            seeds: vec![0, 1],
            settings,
            small: String::new(),
        }
    }

    #[test]
    fn ratios_are_of_the_full_table_s() {
        let text = report().markdown();
        let line = |label: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("| {label} "))).unwrap();
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("fp32")[6..], ["2", "15", "1.00 x", "2.00 ms", "100.0 us", "30.00 ms", "1.00 x"]);
        let robe = line("robe 10x");
        assert_eq!(robe[1..6], ["10.00 x", "400 B", "0.10000", "0.60000", "0.50000"]);
        assert_eq!(robe[6..], ["2", "45", "3.00 x", "1.00 ms", "100.0 us", "45.00 ms", "1.50 x"]);
        assert_eq!(line("robe 100x")[6..], ["1", "-", "-", "1.00 ms", "100.0 us", "-", "-"]);
    }

    #[test]
    fn what_was_not_reached_has_no_point() {
        let chart = report().trade_off();
        let of = |label: &str| &chart.series.iter().find(|series| series.label.starts_with(label)).unwrap().points;
        assert_eq!(*of("steps to its loss (1 not reached)"), [(1.0, 1.0), (10.0, 3.0)]);
        assert_eq!(*of("time to its loss"), [(1.0, 1.0), (10.0, 1.5)]);
        assert_eq!((of("time a step").len(), of("test loss").len()), (3, 3));
        assert_eq!(report().losses().series.len(), 4);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(report().write(folder.path()).unwrap().len(), 4);
    }

    #[test]
    fn the_least_finite_loss_chooses() {
        let tried = |losses: [Option<f64>; 3]| {
            let rates = [0.1, 0.2, 0.4].into_iter().zip(losses).map(|(rate, loss)| Tried { rate, loss }).collect();
            Row::new("x".into(), rates).best()
        };
        assert_eq!(tried([Some(0.7), Some(0.5), None]).unwrap(), 0.2);
        assert!(tried([None; 3]).unwrap_err().to_string().contains("found none"));
        let took = |ms| [ms, ms / 2].map(Duration::from_millis);
        let mut row = Row::new("x".into(), Vec::new());
        row.timed(&[took(2), took(100), took(4)]);
        assert_eq!((row.step_ms, row.tables_ms), (4.0, 2.0));
    }
}
