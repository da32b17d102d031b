//! An experiment as data: its task, settings, end and what is shown, from a file or from the command line.

use crate::growth::Growth;
use crate::report::{ChartOf, TableOf};
use crate::run::{self, Measure};
use crate::setting::{Key, Setup, keys};
use crate::tasks::{self, TaskArgs};
use anyhow::{Context as _, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// The experiment of `train` without options: settings, tables and charts.
const DEFAULT: &str = include_str!("../data/train.toml");

/// A part of a file: what is trained, until when, and what is shown.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Experiment {
    #[serde(default)]
    pub(crate) task: TaskArgs,
    #[serde(default)]
    pub(crate) end: End,
    /// Runs of each setting, each with a seed of its own.
    #[serde(default = "three")]
    pub(crate) seeds: u32,
    /// The training, whose lists multiply the settings.
    #[serde(default)]
    train: Table,
    /// What is compared with FP32, which comes first. The lists of each entry are multiplied.
    #[serde(default, rename = "setting")]
    settings: Vec<Table>,
    /// Draw how unevenly the rows of each table are used.
    #[serde(default)]
    pub(crate) skew: bool,
    /// Instead of a training: how more rows and larger batches change the communication.
    pub(crate) growth: Option<Growth>,
    #[serde(default, rename = "table")]
    pub(crate) tables: Vec<TableOf>,
    #[serde(default, rename = "chart")]
    pub(crate) charts: Vec<ChartOf>,
}

const fn three() -> u32 {
    3
}

/// The end of each run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct End {
    epochs: Option<u32>,
    steps: Option<u64>,
    seconds: Option<f64>,
    pub(crate) goal: Option<Measure>,
    /// The goal itself; without it the best test of the first setting.
    pub(crate) at: Option<f64>,
    times: Option<u64>,
    test_every: Option<u64>,
    tested: Option<usize>,
}

/// The default number of tests in the first setting's steps.
const TESTS: u64 = 40;

impl End {
    fn check(&self) -> anyhow::Result<()> {
        let Self { epochs, steps, seconds, goal, at, times, test_every, tested } = self;
        let given = [epochs.is_some(), steps.is_some(), seconds.is_some()].into_iter().filter(|given| *given).count();
        ensure!(given < 2, "end: wanted one of epochs, steps and seconds, found {given} of them; leave the others out");
        ensure!(goal.is_none() || seconds.is_none(), "seconds: wanted epochs or steps beside a goal, found seconds");
        let seconds = seconds.unwrap_or(1.0);
        ensure!(seconds > 0.0 && seconds <= 1e6, "seconds: wanted a number above 0, at most 1000000, found {seconds}");
        for (name, given) in [
            ("at", at.is_some()),
            ("times", times.is_some()),
            ("test-every", test_every.is_some()),
            ("tested", tested.is_some()),
        ] {
            ensure!(
                goal.is_some() || !given,
                "{name}: wanted a goal beside it, found none; give that, or leave {name} out"
            );
        }
        let counts = [
            ("epochs", epochs.map(u64::from)),
            ("steps", *steps),
            ("times", *times),
            ("test-every", *test_every),
            ("tested", tested.map(|tested| tested as u64)),
        ];
        for (name, count) in counts {
            ensure!(count != Some(0), "{name}: wanted a whole number from 1 on, found 0");
        }
        Ok(())
    }

    /// The end without a goal. `epochs` are the task's own.
    pub(crate) fn plain(&self, epochs: u32) -> run::End {
        match (self.steps, self.seconds) {
            (Some(steps), _) => run::End::Steps(steps),
            (None, Some(seconds)) => run::End::Seconds(seconds),
            (None, None) => run::End::Epochs(self.epochs.unwrap_or(epochs)),
        }
    }

    /// The end of a run. With a goal `steps` are those of the first setting, and `best` is the goal; `None` if the run sets it.
    pub(crate) fn of(&self, epochs: u32, steps: u64, best: Option<f64>) -> run::End {
        let Some(measure) = self.goal else { return self.plain(epochs) };
        let never = if measure == Measure::Loss { f64::NEG_INFINITY } else { f64::INFINITY };
        run::End::Goal {
            measure,
            best: best.unwrap_or(never),
            every: self.test_every.unwrap_or((steps / TESTS).max(1)).min(steps),
            tested: self.tested.unwrap_or(4096),
            least: steps,
            most: if best.is_some() { steps.saturating_mul(self.times.unwrap_or(1)) } else { steps },
        }
    }

    /// Ends each run after so many steps, or so many for the first setting.
    pub(crate) fn shorten(&mut self, steps: u64) {
        (self.steps, self.epochs, self.seconds) = (Some(steps), None, None);
        self.test_every = self.test_every.map(|every| every.min(steps));
    }

    /// Whether a run may be cut and go on from a checkpoint.
    pub(crate) const fn may_resume(&self) -> bool {
        self.goal.is_none() && self.seconds.is_none()
    }
}

impl Experiment {
    fn of(part: Table, name: &str) -> anyhow::Result<Self> {
        let mut experiment: Self = part.try_into().with_context(|| name.to_owned())?;
        let default: Self = toml::from_str(DEFAULT)?;
        let no_lists = !experiment.train.values().any(Value::is_array);
        if experiment.settings.is_empty() && no_lists && experiment.growth.is_none() {
            experiment.settings = default.settings;
        }
        if experiment.tables.is_empty() {
            experiment.tables = default.tables;
        }
        if experiment.charts.is_empty() {
            experiment.charts = default.charts;
        }
        experiment.end.check().with_context(|| name.to_owned())?;
        Ok(experiment)
    }

    /// The parts of a file by name. A part has the file's keys where it has none of its own.
    pub(crate) fn read(text: &str) -> anyhow::Result<BTreeMap<String, Self>> {
        let mut file: Table = text.parse()?;
        let parts = file.remove("part").context("part: wanted at least one table [part.NAME], found none")?;
        let parts: BTreeMap<String, Table> = parts.try_into().context("part")?;
        let of = |(name, part): (String, Table)| {
            let mut whole = file.clone();
            whole.extend(part);
            let experiment = Self::of(whole, &name)?;
            Ok((name, experiment))
        };
        parts.into_iter().map(of).collect()
    }

    /// The task's epochs and the setups, the first of which the others are compared with.
    pub(crate) fn setups(&self, data: Option<&Path>) -> anyhow::Result<(u32, Vec<Setup>)> {
        self.task.check(data)?;
        ensure!((1..=1000).contains(&self.seeds), "seeds: wanted a whole number from 1 to 1000, found {}", self.seeds);
        let (epochs, hyper) = tasks::defaults(self.task.name(data));
        let mut training = Table::try_from(hyper)?;
        if self.end.goal.is_some() {
            training.insert("decay".to_owned(), false.into());
        }
        training.extend(self.train.clone());
        let mut setups: Vec<Setup> = Vec::new();
        for entry in [Table::new()].iter().chain(&self.settings) {
            for setup in Setup::product(entry, &training)? {
                if !setups.iter().any(|other| other.is_as(&setup)) {
                    setups.push(setup);
                }
            }
        }
        Ok((epochs, setups))
    }
}

/// An experiment from the options of a command line: one for each key, lists separated by commas, and `--setting` and `--table` for more.
#[derive(Clone, Debug)]
pub(crate) struct Flags(Table);

impl Flags {
    pub(crate) fn experiment(&self) -> anyhow::Result<Experiment> {
        Experiment::of(self.0.clone(), "options")
    }

    /// The parts of an experiment that options give.
    fn read(found: &ArgMatches) -> anyhow::Result<Self> {
        let mut parts = Table::new();
        for key in keys() {
            let Some(text) = found.get_one::<String>(flag(&key)) else { continue };
            let part = parts.entry(key.part).or_insert_with(|| Table::new().into());
            if let Value::Table(part) = part {
                part.insert(key.name.to_owned(), value(&key, text));
            }
        }
        let mut settings: Vec<Table> = Vec::new();
        if let Some(Value::Table(lists)) = parts.remove("setting") {
            settings.push(lists);
        }
        let words = |name: &str| found.get_many::<String>(name).into_iter().flatten();
        for text in words("setting") {
            settings.push(pairs(text.split_whitespace())?);
        }
        let mut tables = Table::new();
        for text in words("table") {
            let mut words = text.split_whitespace();
            let name = words.next().context("--table: wanted a name and KEY=VALUE, found nothing")?;
            tables.insert(name.to_owned(), pairs(words)?.into());
        }
        if !tables.is_empty() {
            settings.resize(settings.len().max(1), Table::new());
            settings.iter_mut().for_each(|entry| _ = entry.insert("tables".to_owned(), tables.clone().into()));
        }
        if !settings.is_empty() {
            parts.insert("setting".to_owned(), settings.into_iter().map(Value::Table).collect::<Vec<_>>().into());
        }
        Ok(Self(parts))
    }
}

/// The option of a key.
fn flag(key: &Key) -> &'static str {
    if (key.part, key.name) == ("task", "name") { "task" } else { key.name }
}

/// The entry that words such as `precision=int8,int4` make.
fn pairs<'a>(words: impl Iterator<Item = &'a str>) -> anyhow::Result<Table> {
    words
        .map(|word| {
            let (name, text) = word
                .split_once('=')
                .with_context(|| format!("wanted KEY=VALUE[,VALUE..] separated by blanks, found {word:?}"))?;
            let known = keys().find(|key| key.name == name);
            Ok((name.to_owned(), known.map_or_else(|| text.into(), |key| value(&key, text))))
        })
        .collect()
}

/// A value as TOML has it: a number, a truth value, else text; a list if there are commas.
fn value(key: &Key, text: &str) -> Value {
    let one = |text: &str| {
        let text = text.trim();
        let whole = || text.parse::<i64>().ok().map(Value::from);
        let number = || text.parse::<f64>().ok().map(Value::from);
        let truth = || text.parse::<bool>().ok().map(Value::from);
        whole().or_else(number).or_else(truth).unwrap_or_else(|| text.into())
    };
    match text {
        _ if key.value == "FILE" => text.into(),
        _ if text.contains(',') => text.split(',').map(one).collect::<Vec<_>>().into(),
        _ => one(text),
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        Self::read(found)
            .map_err(|error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error:#}\n")))
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(found)?;
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let option = |key: Key| {
            let arg = Arg::new(flag(&key)).long(flag(&key)).value_name(key.value).help(key.help);
            arg.allow_negative_numbers(true).help_heading(format!("Keys of the {}", key.part))
        };
        let more = |name: &'static str, form: &'static str, help: &'static str| {
            Arg::new(name).long(name).value_name(form).help(help).action(ArgAction::Append)
        };
        command.args(keys().map(option)).args([
            more(
                "setting",
                "KEY=VALUE ..",
                "More settings to compare; lists are multiplied. May be given several times",
            ),
            more(
                "table",
                "NAME KEY=VALUE ..",
                "The setting of one table, beside all others. May be given several times",
            ),
        ])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::Setting;
    use clap::{Args as _, FromArgMatches as _};

    fn setups(experiment: &Experiment) -> Vec<String> {
        experiment.setups(None).unwrap().1.iter().map(Setup::label).collect()
    }

    fn flags(line: &[&str]) -> anyhow::Result<Experiment> {
        let command = Flags::augment_args(Command::new("train").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(line)?)?.experiment()
    }

    #[test]
    fn every_file_of_the_folder_is_an_experiment() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let mut files = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let parts = Experiment::read(&std::fs::read_to_string(&path).unwrap());
            let parts = parts.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            for (name, part) in parts {
                let (_, setups) =
                    part.setups(None).unwrap_or_else(|error| panic!("{} {name}: {error:#}", path.display()));
                assert!(setups[0].setting == Setting::FP32 && setups[0].tables.is_empty(), "{name}");
                let mut runs: Vec<String> = setups.iter().map(Setup::label).collect();
                runs.sort();
                runs.dedup();
                assert_eq!(runs.len(), setups.len(), "{name}: each run has a name of its own");
            }
            files += 1;
        }
        assert_eq!(files, 5);
    }

    #[test]
    fn the_grid_of_yang_2020_is_whole() {
        let text = include_str!("../experiments/yang-2020.toml");
        let parts = Experiment::read(text).unwrap();
        let (full, claims) = (setups(&parts["author"]), setups(&parts["words"]));
        // 4 precisions x 2 roundings x (no cache + 2 policies x 2 numbers of ways x 6 sizes), FP32, and for Figure 6 2 precisions x 4 sizes
        // x 4 numbers of ways.
        assert_eq!((full.len(), claims.len()), (4 * 2 * (1 + 2 * 2 * 6) + 1 + 2 * 4 * 4, 1 + 8 + 5));
        assert!(claims.iter().all(|label| full.contains(label)), "the grid has the cells of the other tasks");
    }

    #[test]
    fn options_are_the_keys_of_a_file() {
        let line =
            ["--task", "author", "--precision", "int8,int4", "--cache-percent", "0,5", "--lr", "0.5", "--epochs", "1"];
        let of_line = flags(&line).unwrap();
        let text = "[part.a]\ntask.name = 'author'\ntrain.lr = 0.5\nend.epochs = 1\n[[part.a.setting]]\nprecision = ['int8', 'int4']\n\
                    cache-percent = [0, 5]";
        let of_file = &Experiment::read(text).unwrap()["a"];
        assert_eq!(of_line.setups(None).unwrap(), of_file.setups(None).unwrap());
        assert_eq!(setups(&of_line).len(), 5);
        let more = flags(&[
            "--setting",
            "compression=10,100 chunk=8",
            "--setting",
            "precision=int2",
            "--table",
            "C3 weights=40",
        ]);
        let wanted =
            ["fp32", "robe 10x, chunks of 8; C3 robe of 40 weights", "robe 100x, chunks of 8; C3 robe of 40 weights"];
        let found = setups(&more.unwrap());
        assert_eq!(found[..3], wanted);
        assert_eq!(found[3], "int2 stochastic; C3 robe of 40 weights");
        assert_eq!(setups(&flags(&["--table", "C3 precision=int2"]).unwrap()), ["fp32", "fp32; C3 int2 stochastic"]);
        assert_eq!(setups(&flags(&["--batch", "64,16"]).unwrap()), ["fp32; batch 64", "fp32; batch 16"]);
        assert_eq!(setups(&flags(&[]).unwrap()).len(), 11, "what is compared without settings");
    }

    #[test]
    fn what_cannot_be_asked_for() {
        for (line, wanted) in [
            (&["--epochs", "1", "--steps", "2"][..], "end: wanted one of epochs, steps and seconds, found 2"),
            (&["--epochs", "0"], "epochs: wanted a whole number from 1 on, found 0"),
            (&["--times", "2"], "times: wanted a goal beside it, found none"),
            (&["--goal", "gain"], "unknown variant `gain`"),
            (&["--goal", "loss", "--seconds", "1"], "seconds: wanted epochs or steps beside a goal"),
            (&["--seconds", "-1"], "seconds: wanted a number above 0"),
            (&["--setting", "precision"], "wanted KEY=VALUE[,VALUE..] separated by blanks, found \"precision\""),
            (&["--setting", "colour=red"], "colour: wanted tables or one of precision,"),
            (&["--task", "author", "--cardinalities", "50"], "cardinalities: wanted task dlrm beside it, found author"),
            (&["--cardinalities", "1"], "wanted a cap of at least 2 rows"),
            (&["--dim", "0"], "dim: wanted a whole number from 1 to 4096, found 0"),
            (&["--limit", "0"], "limit: wanted a whole number from 1 on"),
            (&["--task", "clicks"], "unknown variant `clicks`"),
        ] {
            let error = flags(line).and_then(|experiment| experiment.setups(None).map(|_| ())).unwrap_err();
            assert!(format!("{error:#}").contains(wanted), "{line:?}: {error:#}");
        }
        for (text, wanted) in [
            ("seeds = 1", "part: wanted at least one table [part.NAME]"),
            ("seed = 1\n[part.a]", "unknown field `seed`"),
            ("[part.a]\nseeds = 0", "seeds: wanted a whole number from 1 to 1000"),
        ] {
            let error = Experiment::read(text).and_then(|parts| parts["a"].setups(None).map(|_| ())).unwrap_err();
            assert!(format!("{error:#}").contains(wanted), "{text}: {error:#}");
        }
    }
}
