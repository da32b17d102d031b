//! What fewer bytes cost in steps and time: JSON, a table, and two pictures.

use super::{Plan, median};
use crate::names::{OptimizerName, option_name};
use crate::output;
use crate::plot::{Chart, Series};
use crate::train::compare::small;
use crate::train::course::Took;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What the next `--plots` reads.
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
    optimizer: OptimizerName,
    dense_lr: f32,
    /// Steps of the full table.
    goal_steps: u64,
    /// Steps of the others at most.
    most_steps: u64,
    /// Steps between tests.
    test_every: u64,
    /// Samples of a test.
    tested: usize,
    /// Steps of a short run that a rate is chosen by.
    short_steps: u64,
    seeds: Vec<u64>,
    /// The full table first.
    settings: Vec<Row>,
    #[serde(skip)]
    small: String,
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
    pub(super) seed: u64,
    /// Bytes of all tables that stay, optimiser state included.
    pub(super) bytes: u64,
    /// The papers' formula against FP32 weights.
    pub(super) memory_paper: f64,
    /// The full table's lowest loss.
    pub(super) goal: f64,
    /// The step at which it was reached; none: not within the steps there were.
    pub(super) reached: Option<u64>,
    /// Steps and test losses.
    pub(super) curve: Vec<(u64, f64)>,
}

impl Followed {
    pub(super) fn new(seed: u64, (bytes, memory_paper): (u64, f64)) -> Self {
        Self { seed, bytes, memory_paper, goal: f64::NAN, reached: None, curve: Vec::new() }
    }

    pub(super) fn lowest(&self) -> f64 {
        self.curve.iter().map(|&(_, loss)| loss).fold(f64::INFINITY, f64::min)
    }

    pub(super) fn first_at_most(&self, goal: f64) -> Option<u64> {
        self.curve.iter().find(|&&(_, loss)| loss <= goal).map(|&(steps, _)| steps)
    }

    /// The loss after so many steps.
    fn loss_at(&self, steps: u64) -> f64 {
        self.curve.iter().find(|&&(at, _)| at >= steps).map_or(f64::NAN, |&(_, loss)| loss)
    }
}

impl Row {
    pub(super) fn new(setting: String) -> Self {
        Self { setting, rate: 0.0, rates: Vec::new(), step_ms: 0.0, tables_ms: 0.0, runs: Vec::new() }
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

    pub(super) fn timed(&mut self, took: &[Took]) {
        let of = |of: fn(&Took) -> _| 1e3 * median(took.iter().map(of).collect()).as_secs_f64();
        (self.step_ms, self.tables_ms) = (of(|took| took.step), of(|took| took.tables));
    }

    fn mean(&self, of: impl Fn(&Followed) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// Mean steps to the goal; none unless every seed came there.
    fn steps(&self) -> Option<f64> {
        let reached: Option<Vec<u64>> = self.runs.iter().map(|run| run.reached).collect();
        reached.map(|steps| steps.iter().sum::<u64>() as f64 / self.runs.len() as f64)
    }

    fn bytes(&self) -> f64 {
        self.mean(|run| run.bytes as f64)
    }
}

impl Report {
    pub(super) fn new(plan: &Plan<'_>, short_steps: u64, seeds: &[u64], settings: Vec<Row>) -> Self {
        Self {
            task: plan.task.name().to_owned(),
            data: plan.task.source(),
            batch: plan.options.batch,
            optimizer: plan.options.rule.optimizer,
            dense_lr: plan.options.dense_lr,
            goal_steps: plan.goal_steps,
            most_steps: plan.most,
            test_every: plan.every,
            tested: plan.tested.min(plan.task.test_len()),
            short_steps,
            seeds: seeds.to_vec(),
            settings,
            small: small(plan.task.tables()),
        }
    }

    /// Writes until.json, until.md and the pictures, whose names it returns.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        output::write_json(&folder.join(FILE), self)?;
        output::write_file(&folder.join("until.md"), self.markdown().as_bytes())?;
        self.draw(folder)
    }

    /// What was written to a folder, if it is there.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE);
        let wanted = || format!("{}: wanted what --until-full wrote; run it again", path.display());
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
        format!(
            "{}\n{}batches of {}, {}, dense part adagrad at {}, constant rates; {} seeds\n\
             goal: the lowest test loss of fp32 in {} steps, tested every {} on {} samples; the others have {} steps at most\n\
             rate: the best of those tried in {} steps with the first seed\n\
             compression: of the weights, by the papers' formula; kept: with the optimiser's state and all else that stays\n\
             ms: a step, and forward and backward of its tables, medians of steps taken by turns\n\n{}",
            self.data,
            self.small,
            self.batch,
            option_name(&self.optimizer),
            self.dense_lr,
            self.seeds.len(),
            self.goal_steps,
            self.test_every,
            self.tested,
            self.most_steps,
            self.short_steps,
            self.table(),
        )
    }

    fn table(&self) -> comfy_table::Table {
        let header = [
            "tables",
            "compression",
            "kept MB",
            "rate",
            "loss at fp32's steps",
            "lowest loss",
            "steps to goal",
            "of fp32's",
            "ms",
            "of it tables",
            "s to goal",
            "of fp32's",
        ];
        let mut table = output::table(header, 1);
        let Some(full) = self.settings.first() else { return table };
        let seconds = |row: &Row| row.steps().map(|steps| steps * row.step_ms / 1e3);
        let against = |value: Option<f64>, full: Option<f64>| {
            value.zip(full).map_or_else(String::new, |(value, full)| format!("{:.2}x", value / full))
        };
        for row in &self.settings {
            let reached = row.runs.iter().filter(|run| run.reached.is_some()).count();
            let steps = match row.steps() {
                Some(steps) => format!("{steps:.0}"),
                None if reached == 0 => "not reached".to_owned(),
                None => format!("reached by {reached} of {}", row.runs.len()),
            };
            table.add_row([
                row.setting.clone(),
                format!("{:.1}x", 1.0 / row.mean(|run| run.memory_paper)),
                format!("{:.3}", row.bytes() / 1e6),
                format!("{:.3}", row.rate),
                format!("{:.4}", row.mean(|run| run.loss_at(self.goal_steps))),
                format!("{:.4}", row.mean(Followed::lowest)),
                steps,
                against(row.steps(), full.steps()),
                format!("{:.2}", row.step_ms),
                format!("{:.2}", row.tables_ms),
                seconds(row).map_or_else(String::new, |seconds| format!("{seconds:.1}")),
                against(seconds(row), seconds(full)),
            ]);
        }
        table
    }

    /// Against the full table, over how many times fewer bytes there are.
    fn trade_off(&self) -> Chart {
        let mut chart =
            Chart::new("Bytes kept: so many times fewer than the full FP32 table's", "Times the full FP32 table's");
        chart.title = format!("{}: fewer bytes, more steps", self.task);
        (chart.log_x, chart.log_y) = (true, true);
        let Some(full) = self.settings.first() else { return chart };
        // Of settings of as many bytes the one that was asked for first: a line has one point a place.
        let mut rows: Vec<&Row> = Vec::new();
        for row in &self.settings {
            if rows.iter().all(|other| (row.bytes() / other.bytes()).ln().abs() > ALIKE) {
                rows.push(row);
            }
        }
        rows.sort_by(|a, b| b.bytes().total_cmp(&a.bytes()));
        let loss = |row: &Row| row.mean(|run| run.loss_at(self.goal_steps));
        let steps = |row: &Row| Some(row.steps()? / full.steps()?);
        let step = |row: &Row| Some(row.step_ms / full.step_ms);
        let missed = rows.iter().filter(|row| row.steps().is_none()).count();
        let left_out = if missed == 0 { String::new() } else { format!(" ({missed} not reached)") };
        let mut line = |label: String, dashed, of: &dyn Fn(&Row) -> Option<f64>| {
            let points = rows.iter().filter_map(|row| Some((full.bytes() / row.bytes(), of(row)?)));
            let colour = chart.series.len();
            let points = points.collect();
            chart.series.push(Series { label, points, colour, dashed, markers: true, spread: Vec::new() });
        };
        line(format!("steps to its loss{left_out}"), false, &steps);
        line("time a step".into(), false, &step);
        line("time to its loss".into(), false, &|row| Some(steps(row)? * step(row)?));
        line("test loss after as many steps".into(), true, &|row| Some(loss(row) / loss(full)));
        chart
    }

    /// Test loss over steps, a line a setting: the first seed's.
    fn losses(&self) -> Chart {
        let mut chart = Chart::new("Steps", "Test log-loss");
        chart.title = format!("{}: test loss, seed {}", self.task, self.seeds[0]);
        chart.log_x = true;
        for (colour, row) in self.settings.iter().enumerate() {
            let Some(run) = row.runs.first() else { continue };
            let points = run.curve.iter().map(|&(steps, loss)| (steps as f64, loss)).collect();
            let label = row.setting.clone();
            chart.series.push(Series { label, points, colour, dashed: false, markers: false, spread: Vec::new() });
        }
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn row(setting: &str, bytes: u64, step_ms: f64, reached: [Option<u64>; 2]) -> Row {
        let run = |(seed, reached)| {
            let curve = vec![(5, 0.7), (10, 0.6), (20, 0.5)];
            Followed { reached, curve, goal: 0.6, ..Followed::new(seed, (bytes, bytes as f64 / 4000.0)) }
        };
        let runs = (0..).zip(reached).map(run).collect();
        Row { rate: 0.1, step_ms, tables_ms: 0.1, runs, ..Row::new(setting.into()) }
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
            optimizer: OptimizerName::Adagrad,
            dense_lr: 0.1,
            goal_steps: 10,
            most_steps: 100,
            test_every: 5,
            tested: 50,
            short_steps: 5,
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
        assert_eq!(line("fp32")[6..], ["15", "1.00x", "2.00", "0.10", "0.0", "1.00x"]);
        let robe = line("robe 10x");
        assert_eq!(robe[1..6], ["10.0x", "0.000", "0.100", "0.6000", "0.5000"]);
        assert_eq!(robe[6..], ["45", "3.00x", "1.00", "0.10", "0.0", "1.50x"]);
        assert!(line("robe 100x").contains(&"reached by 1 of 2".to_owned()), "{text}");
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
            Row { rates, ..Row::new("x".into()) }.best()
        };
        assert_eq!(tried([Some(0.7), Some(0.5), None]).unwrap(), 0.2);
        assert!(tried([None; 3]).unwrap_err().to_string().contains("found none"));
        let took = |ms| Took { step: Duration::from_millis(ms), tables: Duration::from_millis(ms / 2) };
        let mut row = Row::new("x".into());
        row.timed(&[took(2), took(100), took(4)]);
        assert_eq!((row.step_ms, row.tables_ms), (4.0, 2.0));
    }
}
