//! Fewer bytes, more steps (ROBE): the steps, bytes and time that each setting takes to the loss of the full FP32 table.
//!
//! Each setting chooses its learning rate by short runs. The full FP32 table is trained for `--goal-steps` steps and tested every
//! `--test-every` steps. Its lowest test loss is the goal. Each other setting reports how many steps it needs to reach that loss. Learning
//! rates are constant. Times are measured afterwards, one setting after the other in turn, so that other load slows all settings alike.

use super::charts;
use super::checkpoints::Keep;
use super::compare;
use super::figures::LINE;
use super::journal::{self, Journal, Record, alone};
use super::options::UntilArgs;
use super::run::{End, Model, Outcome, RunOptions};
use super::setting::Setup;
use super::training::Training;
use hotrow_cli::failure::Failure;
use hotrow_cli::options::Options;
use hotrow_cli::output;
use hotrow_cli::plot::Chart;
use hotrow_cli::report::units::median;
use hotrow_cli::report::{self, Record as Figure, Setting, Unit};
use anyhow::Context as _;
use hotrow::OptimizerKind;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Learning rates that are tried, as multiples of the task's own.
const RATES: [f32; 3] = [1.0 / 3.0, 1.0, 3.0];

/// The default number of tests of the full table.
const TESTS: u64 = 40;

/// Rounds of timing. In each round every setting takes several steps in a row; the first round warms up.
const ROUNDS: usize = 9;
const IN_A_ROW: usize = 10;

struct Plan<'a> {
    training: &'a Training,
    limits: Limits,
}

/// Trains the settings and the full table, and prints the comparison.
pub(super) fn run(options: &Options, args: &UntilArgs) -> Result<(), Failure> {
    args.check(options)?;
    let mut training = Training::open(options, &args.run, args.size.batch, None)?;
    training.options.hyper.decay = false;
    let setups = compare::setups(&args.lists, &args.table, &training)?;
    if let Some(folder) = &args.out {
        output::check_folder(folder, options.json.as_deref())?;
    }
    let goal_steps = args.goal_steps.unwrap_or_else(|| training.options.steps(&*training.task));
    let limits = Limits {
        goal_steps,
        // Saturating, since --epochs and --limit may give more steps than --goal-steps accepts.
        most_steps: goal_steps.saturating_mul(args.times.unwrap_or(1).into()),
        test_every: args.test_every.unwrap_or((goal_steps / TESTS).max(1)).min(goal_steps),
        tested: (args.tested as usize).min(training.task.about().test),
        short_steps: (goal_steps / 2).max(1),
    };
    let plan = Plan { training: &training, limits };
    let lr = training.options.hyper.lr;
    let rates = if args.rates.is_empty() { RATES.map(|times| times * lr).to_vec() } else { args.rates.clone() };

    let (mut rows, setups) = plan.rows(&setups, &rates)?;
    plan.follow(&setups, &mut rows)?;
    alone(|| plan.clock(&setups, &mut rows))?;

    let (about, hyper) = (training.task.about(), &training.options.hyper);
    let report = Report {
        task: about.name.to_owned(),
        data: about.source.clone(),
        batch: hyper.batch,
        optimizer: hyper.optimizer,
        dense_lr: hyper.dense_lr,
        limits,
        seeds: training.seeds.clone(),
        settings: rows,
        small: training.small(),
    };
    output::print(&report.markdown())?;
    if let Some(path) = &options.json {
        output::write_json(path, &report)?;
    }
    if let Some(folder) = &args.out {
        output::write_json(&folder.join(FILE), &report)?;
        output::write_file(&folder.join("until.md"), report.markdown().as_bytes())?;
        report.draw(folder)?;
    }
    Ok(())
}

/// Draws the results in a folder again, and writes them to `json`; returns false if the folder has none.
pub(super) fn redraw(json: Option<&Path>, folder: &Path) -> anyhow::Result<bool> {
    let path = folder.join(FILE);
    let wanted = || format!("{}: wanted the results of `train until`; run it again", path.display());
    let report: Report = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        text => serde_json::from_slice(&text.with_context(wanted)?).with_context(wanted)?,
    };
    if let Some(path) = json {
        output::write_json(path, &report)?;
    }
    report.draw(folder)?;
    Ok(true)
}

impl Plan<'_> {
    /// A row for each setup, and the setups with the learning rates that short runs with the first seed chose.
    fn rows(&self, setups: &[Setup], rates: &[f32]) -> anyhow::Result<(Vec<Row>, Vec<Setup>)> {
        let with = |setup: &Setup, rate| Setup { rate: Some(rate), ..setup.clone() };
        let tries = setups.iter().flat_map(|setup| rates.iter().map(move |&rate| with(setup, rate)));
        let tries = journal::each(&tries.collect::<Vec<_>>(), &self.training.seeds[..1]);
        let short = self.limits.short_steps;
        let journal = Journal::new(self.training.subject());
        self.training.run(&journal, &tries, false, &|_, _| self.end(f64::NEG_INFINITY, short, short))?;
        let tried = journal.last(&tries);
        let chosen = setups.iter().zip(tried.chunks(rates.len())).map(|(setup, tried)| {
            let loss = |record: &Record| record.outcome.as_ref().map(|run| run.loss);
            let rates = tried.iter().zip(rates).map(|(record, &rate)| Tried { rate, loss: loss(record) }).collect();
            let mut row = Row { setting: setup.label(), rates, ..Row::default() };
            row.rate = row
                .best()
                .with_context(|| tried.iter().find_map(|record| record.failure.clone()).unwrap_or_default())?;
            let setup = with(setup, row.rate);
            Ok((row, setup))
        });
        Ok(chosen.collect::<anyhow::Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// Trains the full table, which sets the goals, then every other setting until it reaches them.
    fn follow(&self, setups: &[Setup], rows: &mut [Row]) -> anyhow::Result<()> {
        let seeds = &self.training.seeds;
        let Limits { goal_steps, most_steps, test_every: every, .. } = self.limits;
        let (full, others) = (journal::each(&setups[..1], seeds), journal::each(&setups[1..], seeds));
        let mut records = self.training.run_all(&full, &|_, _| self.end(f64::NEG_INFINITY, goal_steps, every))?;
        let lowest = |record: &Record| Some((record.seed, lowest(&record.outcome.as_ref()?.curve)));
        let goals: HashMap<u64, f64> = records.iter().filter_map(lowest).collect();
        let goal = |seed| goals.get(&seed).copied().unwrap_or(f64::NAN);
        records.extend(self.training.run_all(&others, &|_, seed| self.end(goal(seed), most_steps, every))?);
        for (row, records) in rows.iter_mut().zip(records.chunks(seeds.len())) {
            let run = |record: &Record| Some(Followed::new(record.seed, goal(record.seed), record.outcome.clone()?));
            row.runs = records.iter().filter_map(run).collect();
        }
        Ok(())
    }

    /// Ends a run at the goal, after at least as many steps as the full table has and at most `most`.
    fn end(&self, goal: f64, most: u64, every: u64) -> (End, Keep) {
        let Limits { tested, goal_steps: least, .. } = self.limits;
        (End::Loss { goal, every, tested, least, most }, Keep::default())
    }

    /// Times steps of every setting in turn.
    fn clock(&self, setups: &[Setup], rows: &mut [Row]) -> anyhow::Result<()> {
        let options: Vec<RunOptions> = setups.iter().map(|setup| self.training.options_of(setup)).collect();
        let (task, seed) = (&*self.training.task, self.training.seeds[0]);
        let models = setups.iter().zip(&options).map(|(setup, options)| {
            let choice = setup.choice(self.training.tables()).map_err(anyhow::Error::msg)?;
            Model::new(task, &choice, seed, options, None)
        });
        let mut models = models.collect::<anyhow::Result<Vec<_>>>()?;
        let mut took = vec![Vec::new(); models.len()];
        for round in 0..ROUNDS {
            for (model, took) in models.iter_mut().zip(&mut took) {
                for _ in 0..IN_A_ROW {
                    let (start, before) = (Instant::now(), model.in_tables);
                    model.step()?;
                    if round > 0 {
                        took.push([start.elapsed(), model.in_tables - before]);
                    }
                }
            }
        }
        for (row, took) in rows.iter_mut().zip(&took) {
            let of = |at: usize| 1e3 * median(took.iter().map(|took: &[Duration; 2]| took[at].as_secs_f64()).collect());
            (row.step_ms, row.tables_ms) = (of(0), of(1));
        }
        Ok(())
    }
}

/// The file that `--plots` reads.
const FILE: &str = "until.json";

/// Sizes whose difference is less share a place in the picture.
const ALIKE: f64 = 0.05;

/// The results in the schema of `--json` and of until.json.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    task: String,
    data: String,
    batch: usize,
    #[serde(with = "hotrow_cli::names")]
    optimizer: OptimizerKind,
    dense_lr: f32,
    #[serde(flatten)]
    limits: Limits,
    seeds: Vec<u64>,
    /// The settings, the full table first.
    settings: Vec<Row>,
    #[serde(skip)]
    small: String,
}

/// The limits of runs and tests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Limits {
    goal_steps: u64,
    /// Most steps of every other setting.
    most_steps: u64,
    /// Steps between two tests.
    test_every: u64,
    /// Samples of a test.
    tested: usize,
    /// Steps of the short runs that choose a rate.
    short_steps: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Row {
    setting: String,
    /// The learning rate of its runs.
    rate: f32,
    /// The learning rates that were tried.
    rates: Vec<Tried>,
    /// Median milliseconds of a whole step.
    step_ms: f64,
    /// Median milliseconds of the tables' forward and backward.
    tables_ms: f64,
    runs: Vec<Followed>,
}

/// A learning rate, and the test loss after a short run; `None` if it was not finite.
#[derive(Debug, Serialize, Deserialize)]
struct Tried {
    rate: f32,
    loss: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Followed {
    seed: u64,
    /// Bytes of all tables that stay between steps, optimiser state included.
    bytes: u64,
    /// Memory by the formula of Yang 2020, against FP32 weights.
    memory_paper: f64,
    /// The full table's lowest loss.
    goal: f64,
    /// The step that reached the goal; `None` if no step did.
    reached: Option<u64>,
    curve: Vec<(u64, f64)>,
}

fn lowest(curve: &[(u64, f64)]) -> f64 {
    curve.iter().map(|&(_, loss)| loss).fold(f64::INFINITY, f64::min)
}

impl Followed {
    fn new(seed: u64, goal: f64, run: Outcome) -> Self {
        let reached = run.curve.iter().find(|&&(_, loss)| loss <= goal).map(|&(steps, _)| steps);
        let (bytes, memory_paper) = (run.kept_bytes.unwrap_or_default(), run.memory_paper);
        Self { seed, bytes, memory_paper, goal, reached, curve: run.curve }
    }

    fn loss_at(&self, steps: u64) -> f64 {
        self.curve.iter().find(|&&(at, _)| at >= steps).map_or(f64::NAN, |&(_, loss)| loss)
    }
}

/// A figure of a setting, computed with the steps of the full table.
type Column = (&'static str, Unit, fn(&Row, u64) -> Option<f64>);

const FIGURES: [Column; 10] = [
    ("compression", Unit::Times, |row, _| Some(1.0 / row.mean(|run| run.memory_paper))),
    ("kept", Unit::Bytes, |row, _| Some(row.mean(|run| run.bytes as f64))),
    ("rate", Unit::Score, |row, _| Some(row.rate.into())),
    ("loss at fp32's steps", Unit::Score, |row, steps| Some(row.mean(|run| run.loss_at(steps)))),
    ("lowest loss", Unit::Score, |row, _| Some(row.mean(|run| lowest(&run.curve)))),
    ("seeds at goal", Unit::Count, |row, _| Some(row.runs.iter().filter(|run| run.reached.is_some()).count() as f64)),
    ("steps to goal", Unit::Count, |row, _| row.steps()),
    ("a step", Unit::Seconds, |row, _| Some(row.step_ms / 1e3)),
    ("of it tables", Unit::Seconds, |row, _| Some(row.tables_ms / 1e3)),
    ("time to goal", Unit::Seconds, |row, _| Some(row.steps()? * row.step_ms / 1e3)),
];

/// Figures that are also divided by the full table's, with the name of the second column.
const OF_FULL: [(&str, &str); 2] = [("steps to goal", "of fp32's steps"), ("time to goal", "of fp32's time")];

/// Lines of the trade-off: a figure, and its division by the full table's.
const LINES: [(&str, &str); 4] = [
    ("steps to goal", "steps to its loss"),
    ("a step", "time a step"),
    ("time to goal", "time to its loss"),
    ("loss at fp32's steps", "test loss after as many steps"),
];

/// The title of the trade-off's x axis.
const FEWER: &str = "Bytes kept: so many times fewer than the full FP32 table's";

impl Row {
    /// The learning rate with the lowest loss.
    fn best(&self) -> anyhow::Result<f32> {
        let finite = self.rates.iter().filter_map(|tried| Some((tried.loss?, tried.rate)));
        let best = finite.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rate)| rate);
        best.with_context(|| {
            format!(
                "{}: wanted a rate whose losses are finite, found none; give lower --rates or a lower --dense-lr",
                self.setting
            )
        })
    }

    fn mean(&self, of: impl Fn(&Followed) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// Mean steps to the goal; `None` unless every seed reached it.
    fn steps(&self) -> Option<f64> {
        let reached: Option<Vec<u64>> = self.runs.iter().map(|run| run.reached).collect();
        reached.map(|steps| steps.iter().sum::<u64>() as f64 / self.runs.len() as f64)
    }
}

impl Report {
    fn draw(&self, folder: &Path) -> anyhow::Result<()> {
        for (stem, chart) in [("until", self.trade_off()), ("losses", self.losses())] {
            for picture in chart.write(&folder.join(stem))? {
                output::note(&format!("picture: {}", picture.display()));
            }
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let Limits { goal_steps, most_steps, test_every, tested, short_steps } = self.limits;
        let (optimizer, seeds) = (self.optimizer, self.seeds.len());
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

    /// A figure of a setting, and its division by the full table's.
    fn figure(&self, what: &str, row: &Row) -> Option<(f64, f64)> {
        let (_, _, of) = FIGURES.iter().find(|(known, ..)| *known == what)?;
        let value = of(row, self.limits.goal_steps)?;
        Some((value, value / of(self.settings.first()?, self.limits.goal_steps)?))
    }

    /// The figures of each setting, means over the seeds.
    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for row in &self.settings {
            let setting = Setting::default().with("tables", row.setting.as_str());
            for (what, unit, _) in FIGURES {
                let Some((value, of_full)) = self.figure(what, row) else { continue };
                figures.push(Figure::new(what, &self.task, &setting, value, unit));
                let column = OF_FULL.iter().find(|(of, _)| *of == what);
                figures.extend(column.map(|(_, name)| Figure::new(*name, &self.task, &setting, of_full, Unit::Times)));
            }
        }
        figures
    }

    /// A chart of steps and time against the full table's, over the reduction of bytes.
    fn trade_off(&self) -> Chart {
        let fewer = |row: &Row| self.figure("kept", row).map_or(f64::NAN, |(_, share)| 1.0 / share);
        // Of settings with equally many bytes the first one is drawn, since a line has one point at each place.
        let mut rows: Vec<&Row> = Vec::new();
        for row in &self.settings {
            if rows.iter().all(|other| (fewer(row) / fewer(other)).ln().abs() > ALIKE) {
                rows.push(row);
            }
        }
        let mut figures = Vec::new();
        for (what, line) in LINES {
            let found: Vec<Option<(f64, f64)>> = rows.iter().map(|row| self.figure(what, row)).collect();
            let missed = found.iter().filter(|found| found.is_none()).count();
            let left_out =
                if missed > 0 && what == LINES[0].0 { format!(" ({missed} not reached)") } else { String::new() };
            let figure = |(row, found): (&&Row, Option<(f64, f64)>)| {
                let setting = Setting::default().with(FEWER, fewer(row)).with(LINE, format!("{line}{left_out}"));
                Some(Figure::new(line, &self.task, &setting, found?.1, Unit::Times))
            };
            figures.extend(rows.iter().zip(found).filter_map(figure));
        }
        let mut chart = charts::numbers(&figures, FEWER);
        chart.title = format!("{}: fewer bytes, more steps", self.task);
        chart.y_label = "Times the full FP32 table's".to_owned();
        (chart.log_x, chart.log_y) = (true, true);
        chart.series.iter_mut().for_each(|series| series.dashed = series.label == LINES[3].1);
        chart
    }

    /// A chart of test loss over steps, a line for each setting's first seed.
    fn losses(&self) -> Chart {
        let mut figures = Vec::new();
        for row in &self.settings {
            let curve = row.runs.iter().take(1).flat_map(|run| &run.curve);
            figures.extend(curve.map(|&(steps, loss)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(setting: &str, bytes: u64, step_ms: f64, reached: [Option<u64>; 2]) -> Row {
        let run = |(seed, reached)| {
            let curve = vec![(5, 0.7), (10, 0.6), (20, 0.5)];
            Followed { seed, bytes, memory_paper: bytes as f64 / 4000.0, goal: 0.6, reached, curve }
        };
        let runs = (0..).zip(reached).map(run).collect();
        Row { setting: setting.into(), rate: 0.1, step_ms, tables_ms: 0.1, runs, ..Row::default() }
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
            optimizer: OptimizerKind::AdaGrad,
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
        report().draw(folder.path()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }

    #[test]
    fn the_least_finite_loss_chooses() {
        let tried = |losses: [Option<f64>; 3]| {
            let rates = [0.1, 0.2, 0.4].into_iter().zip(losses).map(|(rate, loss)| Tried { rate, loss }).collect();
            Row { rates, ..Row::default() }.best()
        };
        assert_eq!(tried([Some(0.7), Some(0.5), None]).unwrap(), 0.2);
        assert!(tried([None; 3]).unwrap_err().to_string().contains("found none"));
    }
}
