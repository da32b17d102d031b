//! An experiment as data: its task, settings, end and what is shown, from a file or from the command line.

use crate::end::{self, Goal, Measure};
use crate::growth::Growth;
use crate::lines::Lines;
use crate::report::{ChartOf, TableOf};
use crate::setting::{Key, Setup, keys};
use crate::tasks::{self, TaskArgs};
use anyhow::{Context as _, Error, anyhow, ensure};
use hotrow_report::names;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, num::NonZero, path::Path};
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
    pub(crate) goal: Option<Goal>,
    /// Runs of each setting, each with a seed of its own; three if it does not say.
    pub(crate) seeds: Option<NonZero<u32>>,
    /// The training, whose lists multiply the settings.
    #[serde(default)]
    train: Table,
    /// What is compared with FP32, which comes first. The lists of each entry are multiplied.
    #[serde(default, rename = "setting")]
    settings: Vec<Table>,
    /// Instead of a training: how more rows and larger batches change the communication.
    pub(crate) growth: Option<Growth>,
    #[serde(default, rename = "table")]
    pub(crate) tables: Vec<TableOf>,
    #[serde(default, rename = "chart")]
    pub(crate) charts: Vec<ChartOf>,
}

/// The end of each run; at most one of them. Without any the task's own epochs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct End {
    epochs: Option<NonZero<u32>>,
    steps: Option<NonZero<u64>>,
    seconds: Option<NonZero<u32>>,
}

impl End {
    /// `epochs` are the task's own.
    pub(crate) fn of(&self, epochs: u32) -> end::End {
        match (self.steps, self.seconds) {
            (Some(steps), _) => end::End::Steps(steps.get()),
            (None, Some(seconds)) => end::End::Seconds(seconds.get().into()),
            (None, None) => end::End::Epochs(self.epochs.map_or(epochs, NonZero::get)),
        }
    }
}

impl Experiment {
    /// With what it has by default.
    fn whole(self) -> anyhow::Result<Self> {
        let (mut experiment, default): (_, Self) = (self, toml::from_str(DEFAULT)?);
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
        let End { epochs, steps, seconds } = &experiment.end;
        let given = [epochs.is_some(), steps.is_some(), seconds.is_some()].iter().filter(|given| **given).count();
        ensure!(given < 2, "end: wanted one of epochs, steps and seconds, found {given} of them");
        if let Some((measure, at)) = experiment.goal.and_then(|goal| Some((goal.measure, goal.at?))) {
            let (wanted, most) = if measure == Measure::Auc { ("up to 1", 1.0) } else { ("and finite", f64::MAX) };
            ensure!(at > 0.0 && at <= most, "at: wanted a goal above 0 {wanted}, found {at}");
        }
        let alone = seconds.is_none() || experiment.goal.is_none();
        ensure!(alone, "seconds: wanted epochs or steps beside a goal, found seconds");
        Ok(experiment)
    }

    /// An experiment from words such as `precision=int8,int4`: keys with their values, lists separated by commas. `and` begins another entry
    /// of settings, and `C3.precision=int2` is the setting of one table.
    pub(crate) fn of_words(words: &[String]) -> anyhow::Result<Self> {
        let (mut part, mut settings, mut tables) = (Table::new(), vec![Table::new()], Table::new());
        let within = |of: &mut Table, name: &str, key: &Key, text: &str| {
            if let Value::Table(inner) = of.entry(name).or_insert_with(|| Table::new().into()) {
                inner.insert(key.name.to_owned(), value(key, text));
            }
        };
        for word in words {
            if word == "and" {
                settings.push(Table::new());
                continue;
            }
            let (name, text) =
                word.split_once('=').with_context(|| format!("wanted KEY=VALUE[,VALUE..] or and, found {word:?}"))?;
            let (table, name) = name.rsplit_once('.').map_or((None, name), |(table, name)| (Some(table), name));
            let key = keys().find(|key| key.word() == name).with_context(|| {
                format!("{word}: wanted a key, which is one of {}", names::list(keys().map(|key| key.word())))
            })?;
            match (table, key.part) {
                (Some(table), _) => within(&mut tables, table, &key, text),
                (None, "setting") => {
                    settings.last_mut().map(|entry| entry.insert(name.to_owned(), value(&key, text)));
                }
                (None, of) => within(&mut part, of, &key, text),
            }
        }
        if !tables.is_empty() {
            settings.iter_mut().for_each(|entry| _ = entry.insert("tables".to_owned(), tables.clone().into()));
        }
        settings.retain(|entry| !entry.is_empty());
        if !settings.is_empty() {
            part.insert("setting".to_owned(), settings.into_iter().map(Value::Table).collect::<Vec<_>>().into());
        }
        part.try_into::<Self>()?.whole()
    }

    /// Ends each run after so many steps, or so many of the first setting.
    pub(crate) const fn shorten(&mut self, steps: NonZero<u64>) {
        self.end = End { epochs: None, steps: Some(steps), seconds: None };
    }

    /// Whether a run may be cut and go on from a checkpoint.
    pub(crate) const fn may_resume(&self) -> bool {
        self.goal.is_none() && self.end.seconds.is_none()
    }

    /// The parts of a file by name. A part has the file's keys where it has none of its own.
    ///
    /// # Errors
    /// A line with the number of the file's line, a key, what was wanted and what was found.
    pub(crate) fn read(text: &str, data: Option<&Path>) -> Result<BTreeMap<String, Self>, String> {
        let file = Lines::parse(text)?;
        let of = |name: String| {
            let experiment =
                file.part::<Self>(&name)?.whole().map_err(|error| file.say(&name, None, &format!("{error:#}")))?;
            let setups = experiment.setups_by_entry(data);
            setups.map_err(|(entry, error)| file.say(&name, entry, &format!("{error:#}")))?;
            Ok((name, experiment))
        };
        file.parts().into_iter().map(of).collect()
    }

    /// The task's epochs and the setups, the first of which the others are compared with.
    pub(crate) fn setups(&self, data: Option<&Path>) -> anyhow::Result<(u32, Vec<Setup>)> {
        self.setups_by_entry(data).map_err(|(_, error)| error)
    }

    /// An error is of an entry of the settings, if it has the number of one.
    fn setups_by_entry(&self, data: Option<&Path>) -> Result<(u32, Vec<Setup>), (Option<usize>, Error)> {
        let of_none = |error| (None, error);
        self.task.check(data).map_err(of_none)?;
        let (epochs, hyper) = tasks::defaults(self.task.name(data));
        let mut training = Table::try_from(hyper).map_err(|error| of_none(error.into()))?;
        if self.goal.is_some() {
            training.insert("decay".to_owned(), false.into());
        }
        training.extend(self.train.clone());
        let mut setups: Vec<Setup> = Vec::new();
        for (at, entry) in [Table::new()].iter().chain(&self.settings).enumerate() {
            for setup in Setup::product(entry, &training).map_err(|error| (at.checked_sub(1), error))? {
                if !setups.iter().any(|other| other.is_as(&setup)) {
                    setups.push(setup);
                }
            }
        }
        let asked = self.train.get("hot-batches").is_some_and(|asked| asked.to_string().contains("true"));
        if asked && !setups.iter().any(|setup| setup.hyper.hot_batches) {
            let wanted = "hot-batches: wanted a setting with a pinned-percent above 0, found none; give one";
            return Err(of_none(anyhow!(wanted)));
        }
        Ok((epochs, setups))
    }
}

/// The keys, for the help of the command line.
pub(crate) fn help() -> String {
    let line = |key: Key| format!("  {:<14} {:<12} {}", key.word(), key.value, key.help);
    format!("Keys:\n{}", keys().map(line).collect::<Vec<_>>().join("\n"))
}

/// A value as TOML has it: a number, a truth value, else text; a list if there are commas.
fn value(key: &Key, text: &str) -> Value {
    let one = |text: &str| {
        let whole = || text.parse::<i64>().ok().map(Value::from);
        let number = || text.parse::<f64>().ok().map(Value::from);
        let truth = || text.parse::<bool>().ok().map(Value::from);
        whole().or_else(number).or_else(truth).unwrap_or_else(|| text.into())
    };
    match text {
        _ if key.value == "FILE" => text.into(),
        _ if text.contains(',') => {
            // The numbers of a value, as in backoff:factor=2,window=50, begin no other one.
            let mut values: Vec<String> = Vec::new();
            for piece in text.split(',').map(str::trim) {
                match values.last_mut() {
                    Some(last) if piece.contains('=') && !piece.contains(':') => *last += &format!(",{piece}"),
                    _ => values.push(piece.to_owned()),
                }
            }
            values.iter().map(|text| one(text)).collect::<Vec<_>>().into()
        }
        _ => one(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{self, Done};
    use crate::published;
    use crate::run::Outcome;
    use crate::setting::Setting;

    fn setups(experiment: &Experiment) -> Vec<String> {
        experiment.setups(None).unwrap().1.iter().map(Setup::label).collect()
    }

    fn words(line: &str) -> anyhow::Result<Experiment> {
        Experiment::of_words(&line.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    /// The parts of the files of the folder, and the number of files.
    fn parts() -> (Vec<(String, Experiment)>, usize) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
        let of = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let parts = Experiment::read(&std::fs::read_to_string(&path).unwrap(), None);
            parts.unwrap_or_else(|error| panic!("{}:{error}", path.display()))
        };
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(of).collect();
        let count = files.len();
        (files.into_iter().flatten().collect(), count)
    }

    #[test]
    fn every_file_of_the_folder_is_an_experiment() {
        let (parts, files) = parts();
        for (name, part) in parts {
            let (_, setups) = part.setups(None).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(setups[0].setting == Setting::FP32 && setups[0].tables.is_empty(), "{name}");
        }
        assert_eq!(files, 8);
    }

    #[test]
    fn the_device_has_its_baselines() {
        let parts = Experiment::read(include_str!("../experiments/device.toml"), None).unwrap();
        let [device, cpu] = ["dlrm", "cpu"].map(|part| setups(&parts[part]));
        for wanted in ["fp32, mapped", "fp32, mapped, 5 % pinned", "fp16 nearest, mapped", "fp16 stochastic, mapped"] {
            assert!(device.iter().any(|label| label == wanted), "{wanted}: {device:?}");
        }
        let of_device = |label: &String| ["mapped", "pages", "pinned"].iter().any(|word| label.contains(word));
        assert!(!cpu.iter().any(of_device) && device.iter().any(of_device), "{cpu:?}");
    }

    /// A number whose line or column has another name here would never be shown.
    #[test]
    fn every_published_number_stands_in_some_table() {
        let mut missing = published::places(None);
        let (accuracy, auc, hit_rate, curve) = (Some(0.5), Some(0.5), Some(0.5), vec![(1, 0.5)]);
        let hit_rates = vec![("C1".to_owned(), 0.5)];
        let outcome = Outcome { accuracy, auc, hit_rate, hit_rates, curve, kept_bytes: 1, ..Outcome::default() };
        let mut unused: Vec<&str> = figures::PLACES.into_iter().filter(|name| *name != "what").collect();
        for (_, part) in parts().0 {
            let of = |setup| Done { setup, seed: 0, outcome: Ok(outcome.clone()) };
            let done: Vec<Done> = part.setups(None).unwrap().1.into_iter().map(of).collect();
            let records = figures::records("", &figures::cells(&done, part.goal.map(|goal| (goal, 1))));
            let found: Vec<String> = part.tables.iter().flat_map(|table| table.published(&records)).collect();
            missing.retain(|number| !found.contains(number));
            unused.retain(|name| records.iter().all(|record| record.key(name).is_none()));
        }
        assert_eq!(unused, [""; 0], "names that no record has");
        // Batches that are larger than ours
        let of = |time| [16384, 32768, 65536].map(|batch| format!("scars Table VII {time}, {batch}, fp32"));
        assert_eq!(missing, [of("1 h"), of("10 h")].concat());
    }

    #[test]
    fn words_are_the_keys_of_a_file() {
        let of_words =
            words("task=author precision=int8,int4 cache-percent=0,5 lr=0.5 epochs=1 goal=auc times=2").unwrap();
        let text = "[part.a]\ntask.name = 'author'\ntrain.lr = 0.5\nend.epochs = 1\ngoal = { goal = 'auc', times = 2 }\n\
                    [[part.a.setting]]\nprecision = ['int8', 'int4']\ncache-percent = [0, 5]";
        let of_file = &Experiment::read(text, None).unwrap()["a"];
        assert_eq!(of_words.setups(None).unwrap(), of_file.setups(None).unwrap());
        assert_eq!((setups(&of_words).len(), format!("{:?}", of_words.goal)), (5, format!("{:?}", of_file.goal)));
        assert_eq!(setups(&words("").unwrap()).len(), 12, "what is compared without settings");
        // Each line of the file has words and the labels of the setups that they make.
        for line in include_str!("../tests/labels.txt").lines().filter(|line| !line.starts_with('#')) {
            let (line, labels) = line.split_once(" => ").unwrap();
            assert_eq!(setups(&words(line).unwrap()).join(" | "), labels, "{line}");
        }
    }

    /// A case of the file is an experiment's text, then `=> ` and the refusal.
    #[test]
    fn what_is_no_experiment_is_refused_by_line_and_key() {
        let keys = include_str!("../tests/keys.txt"); // for the gate, which compiles no dense parts
        let (setups, places) = (keys_of_setups(), figures::PLACES.join(", "));
        let known = keys
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .chain([("setups", setups.as_str()), ("places", &places)]);
        let known: Vec<(String, String)> =
            known.map(|(name, keys)| (format!("<{name}>"), keys.replace('`', ""))).collect();
        let (_, cases) = include_str!("../tests/bad-files.txt").split_once('\n').unwrap();
        for case in cases.split("\n\n") {
            let (text, wanted) = case.trim_end().rsplit_once("\n=> ").unwrap();
            let wanted = known.iter().fold(wanted.to_owned(), |wanted, (name, keys)| wanted.replace(name, keys));
            assert_eq!(Experiment::read(text, None).unwrap_err(), wanted, "{text}");
        }
    }

    fn keys_of_setups() -> String {
        names::list(keys().filter(|key| matches!(key.part, "setting" | "train")).map(|key| key.name))
    }
}
