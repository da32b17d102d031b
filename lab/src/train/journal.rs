//! The journal of runs and their outcomes. In a folder it is a file with a line for each run, written to the disk as soon as the run ends,
//! so that a killed command can continue.

use super::run::Outcome;
use super::setting::Setup;
use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Name of the file in the folder of the results.
pub(crate) const FILE: &str = "runs.jsonl";

/// Task, data and hyperparameters. They are equal for all runs of a file, so that runs can be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subject {
    pub(crate) task: String,
    /// Every hyperparameter that can change a result, and the data, as text.
    pub(crate) hyper: BTreeMap<String, String>,
    /// The fingerprint of the data; `None` in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
}

/// Hyperparameters that older files do not name, with the values of their runs.
const BEFORE: [(&str, &str); 1] = [("loss_scale", "none")];

impl Subject {
    /// The first difference, as (name, here, there). An unknown fingerprint equals any other.
    pub(crate) fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        if self.task != other.task {
            return Some(("task".to_owned(), self.task.clone(), other.task.clone()));
        }
        let names = self.hyper.keys().chain(other.hyper.keys());
        let unsaid = |name: &String| BEFORE.iter().find(|(other, _)| other == name).map_or("nothing", |(_, had)| had);
        let value = |of: &Self, name: &String| of.hyper.get(name).cloned().unwrap_or_else(|| unsaid(name).to_owned());
        let prints = self.fingerprint.clone().zip(other.fingerprint.clone());
        let prints = prints.map(|(here, there)| ("the data's fingerprint".to_owned(), here, there));
        let mut all = names.map(|name| (name.clone(), value(self, name), value(other, name))).chain(prints);
        all.find(|(_, here, there)| here != there)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) subject: Subject,
    #[serde(flatten)]
    pub(crate) setup: Setup,
    pub(crate) seed: u64,
    /// The outcome of a run that completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
    /// The reason why a run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

impl Record {
    fn is_of(&self, (setup, seed): &Run) -> bool {
        self.seed == *seed && self.setup == *setup
    }
}

/// A run to do: its setup and seed.
pub(crate) type Run = (Setup, u64);

/// Every setup with every seed, setup by setup.
pub(crate) fn each(setups: &[Setup], seeds: &[u64]) -> Vec<Run> {
    setups.iter().flat_map(|setup| seeds.iter().map(|&seed| (setup.clone(), seed))).collect()
}

pub(crate) type Runner<'a> = dyn Fn(&Setup, u64) -> anyhow::Result<Outcome> + Sync + 'a;

#[derive(Debug)]
pub(crate) struct Journal {
    subject: Subject,
    records: Mutex<Vec<Record>>,
    /// The file, locked against other processes. `None`: runs are kept in memory only.
    file: Option<(PathBuf, File)>,
}

impl Journal {
    /// A journal in memory only.
    pub(crate) const fn new(subject: Subject) -> Self {
        Self { subject, records: Mutex::new(Vec::new()), file: None }
    }

    /// Opens or makes the file of `folder`, and reads its runs. A torn line that a killed process left is cut off.
    pub(crate) fn open(folder: &Path, subject: Subject) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| {
            format!("{}: wanted to keep the grid's runs there; check the folder and its permissions", folder.display())
        })?;
        let path = folder.join(FILE);
        let of = || format!("{}: wanted to read and write the grid's runs; check its permissions", path.display());
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).with_context(of)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{}: another hotrow writes to it; wait for its end, or choose another --out", path.display())
            }
            // Some file systems have no locks; there the user is responsible.
            Err(TryLockError::Error(_)) => {}
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(of)?;
        let (records, kept) = read(&text, &path)?;
        if let Some((name, here, there)) = records.iter().find_map(|record| subject.difference(&record.subject)) {
            bail!(
                "{}: wanted runs with {name} = {here}, found {there}; results of different runs are kept apart: \
                 choose another --out, or the same options",
                path.display()
            );
        }
        // The lock is held by now, so the file may be cut.
        file.set_len(kept as u64).and_then(|()| file.seek(SeekFrom::End(0))).with_context(of)?;
        if text[..kept].last().is_some_and(|&byte| byte != b'\n') {
            file.write_all(b"\n").with_context(of)?;
        }
        Ok(Self { subject, records: Mutex::new(records), file: Some((path, file)) })
    }

    /// The runs among `runs` that have not completed.
    pub(crate) fn missing(&self, runs: &[Run]) -> Vec<Run> {
        let records = self.records();
        let ended = |run: &Run| records.iter().any(|record| record.outcome.is_some() && record.is_of(run));
        runs.iter().filter(|run| !ended(run)).cloned().collect()
    }

    /// The last record of each of `runs`, in their order.
    pub(crate) fn last(&self, runs: &[Run]) -> Vec<Record> {
        let latest = latest(self.records());
        runs.iter().filter_map(|run| latest.iter().find(|record| record.is_of(run))).cloned().collect()
    }

    /// The records of `runs`, or the failure of the first run that did not complete.
    pub(crate) fn ended(&self, runs: &[Run]) -> anyhow::Result<Vec<Record>> {
        let records = self.last(runs);
        let failed = records.iter().find_map(|record| Some((record, record.failure.as_ref()?)));
        if let Some((Record { setup, seed, .. }, why)) = failed {
            let batch = setup.batch.map(|batch| format!("batch {batch}, ")).unwrap_or_default();
            bail!("{batch}{}, seed {seed}: {why}", setup.label())
        }
        Ok(records)
    }

    /// Executes every run, `at_once` at a time. A run that fails or panics is recorded, and the others continue, unless `stop`.
    ///
    /// These are plain threads. A run waits for a pool of its own, and a rayon thread that waits would begin another run meanwhile, nested
    /// in the first.
    pub(crate) fn run(&self, runs: &[Run], at_once: usize, stop: bool, runner: &Runner<'_>) -> anyhow::Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((setup, seed)) = runs.get(next.fetch_add(1, Relaxed)) {
                let result = catch_unwind(AssertUnwindSafe(|| alone(|| runner(setup, *seed))));
                let (outcome, failure) = match result.unwrap_or_else(|panic| Err(anyhow!("panic: {}", said(&*panic)))) {
                    // JSON has no NaN, and a mean would become NaN.
                    Ok(outcome) if !outcome.loss.is_finite() => (None, Some(format!("test loss {}", outcome.loss))),
                    Ok(outcome) => (Some(outcome), None),
                    Err(error) => (None, Some(format!("{error:#}"))),
                };
                let (subject, setup, failed) = (self.subject.clone(), setup.clone(), failure.is_some());
                let added = self.add(Record { subject, setup, seed: *seed, outcome, failure });
                if added.is_err() || (stop && failed) {
                    // Runs that cannot be recorded are not begun.
                    next.store(runs.len(), Relaxed);
                }
                added?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..at_once.clamp(1, runs.len().max(1))).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| bail!("panic: {}", said(&*panic))))
        })
    }

    /// Adds a run. On return its line is on the disk.
    fn add(&self, record: Record) -> anyhow::Result<()> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, file)) = &self.file {
            let line = serde_json::to_string(&record)? + "\n";
            let mut file: &File = file;
            file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).with_context(|| {
                format!("{}: wanted to add a run; is the disk full? The runs before it are kept", path.display())
            })?;
        }
        records.push(record);
        Ok(())
    }

    fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Does `work` in a thread pool of one thread, so that a run uses one core.
pub(crate) fn alone<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build()?.install(work)
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// The runs in the file of a folder, of any subject; none if there is no file.
pub(crate) fn load(folder: &Path) -> anyhow::Result<Vec<Record>> {
    let path = folder.join(FILE);
    let text = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("{}: wanted to read the grid's runs", path.display()))?,
    };
    Ok(read(&text, &path)?.0)
}

/// The subject of all runs. Runs of different subjects are refused.
pub(crate) fn common(records: &[Record], folder: &Path) -> anyhow::Result<Option<Subject>> {
    let Some(first) = records.first() else { return Ok(None) };
    let mut subject = first.subject.clone();
    for record in records {
        if let Some((name, first, other)) = subject.difference(&record.subject) {
            bail!(
                "{}: wanted runs that can be compared, found {name} = {first} and {name} = {other}; keep the lines of one \
                 of them there, and the others in another folder",
                folder.join(FILE).display()
            );
        }
        // Older runs have no fingerprint; the first fingerprint found applies to all.
        subject.fingerprint = subject.fingerprint.or_else(|| record.subject.fingerprint.clone());
    }
    Ok(Some(subject))
}

/// One record for each run: the last that completed, else the last.
pub(crate) fn latest(records: Vec<Record>) -> Vec<Record> {
    let mut latest: Vec<Record> = Vec::new();
    for record in records {
        match latest.iter_mut().find(|other| other.seed == record.seed && other.setup == record.setup) {
            Some(other) if record.outcome.is_some() || other.outcome.is_none() => *other = record,
            Some(_) => {}
            None => latest.push(record),
        }
    }
    latest
}

/// The beginning of every record.
const START: &[u8] = br#"{"task":""#;

/// The runs of a file, and the length of the part that holds them. An incomplete last line was left by a killed process, if anything shows
/// that the file is a journal.
fn read(text: &[u8], path: &Path) -> anyhow::Result<(Vec<Record>, usize)> {
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let lines = text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let record = |(at, line): (usize, &[u8])| {
        serde_json::from_slice(line).with_context(|| {
            format!(
                "{}, line {}: wanted a run of a grid, found something else; remove the line, or choose another --out",
                path.display(),
                at + 1
            )
        })
    };
    let mut records: Vec<Record> = lines.map(record).collect::<anyhow::Result<_>>()?;
    let tail = &text[whole..];
    if let Ok(last) = serde_json::from_slice(tail) {
        records.push(last);
        return Ok((records, text.len()));
    }
    let torn = tail.starts_with(START) || START.starts_with(tail);
    if records.is_empty() && !torn {
        bail!(
            "{}: wanted a file of runs, found {} bytes that begin with {:?}; it is left as it is: choose another --out",
            path.display(),
            text.len(),
            String::from_utf8_lossy(&tail[..tail.len().min(20)])
        );
    }
    Ok((records, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn subject() -> Subject {
        Subject { task: "author".into(), hyper: [("lr".to_owned(), "0.1".to_owned())].into(), fingerprint: None }
    }

    fn record(seed: u64) -> Record {
        let failure = Some(format!("reason {seed}"));
        Record { subject: subject(), setup: Setup::FP32, seed, outcome: None, failure }
    }

    fn seeds(records: &[Record]) -> Vec<u64> {
        records.iter().map(|record| record.seed).collect()
    }

    #[test]
    fn runs_come_back() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path()).unwrap().is_empty());
        let journal = Journal::open(folder.path(), subject()).unwrap();
        let before = journal.records();
        assert!(before.is_empty());
        journal.add(record(1)).unwrap();
        journal.add(record(2)).unwrap();
        let error = Journal::open(folder.path(), subject()).unwrap_err().to_string();
        assert!(error.contains("another hotrow"), "{error}");
        drop(journal);
        let journal = Journal::open(folder.path(), subject()).unwrap();
        let before = journal.records();
        assert_eq!(seeds(&before), [1, 2]);
        assert_eq!(before[1].failure.as_deref(), Some("reason 2"));
        journal.add(record(3)).unwrap();
        assert_eq!(seeds(&load(folder.path()).unwrap()), [1, 2, 3]);
    }

    #[test]
    fn a_torn_line_is_cut_off_wherever_it_tore() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let [one, two] = [1, 2].map(|seed| serde_json::to_string(&record(seed)).unwrap() + "\n");
        // A line that lacks only its newline is complete.
        for kept in 0..two.len() - 1 {
            std::fs::write(&path, format!("{one}{}", &two[..kept])).unwrap();
            let journal = Journal::open(folder.path(), subject()).unwrap();
            let before = journal.records();
            assert_eq!(seeds(&before), [1], "{kept} bytes of the second line");
            journal.add(record(3)).unwrap();
            assert_eq!(seeds(&load(folder.path()).unwrap()), [1, 3]);
        }
    }

    #[test]
    fn a_run_that_ended_counts_before_one_that_did_not() {
        let failed = |seed, reason: &str| Record { failure: Some(reason.to_owned()), ..record(seed) };
        let ended: Outcome = serde_json::from_value(serde_json::json!({
            "loss": 1.0, "memory_paper": 1.0, "memory_true": 1.0, "bus_bytes": 1, "samples_per_second": 1.0, "steps": 1,
            "seconds": 1.0, "train_loss": 1.0,
        }))
        .unwrap();
        let ended = Record { outcome: Some(ended), failure: None, ..record(1) };
        let found = latest(vec![failed(1, "first"), failed(2, "first"), ended, failed(1, "later"), failed(2, "later")]);
        assert_eq!(seeds(&found), [1, 2]);
        assert!(found[0].outcome.is_some());
        assert_eq!(found[1].failure.as_deref(), Some("later"));
    }

    #[test]
    fn what_is_not_ours_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let line = serde_json::to_string(&record(1)).unwrap();
        let mut other = subject();
        for (name, wanted) in [("lr", "lr = 0.2, found 0.1"), ("eps", "eps = 1, found nothing")] {
            std::fs::write(&path, format!("{line}\ntorn")).unwrap();
            other.hyper = [("lr".to_owned(), "0.1".to_owned())].into();
            other.hyper.insert(name.to_owned(), if name == "lr" { "0.2" } else { "1" }.to_owned());
            let error = Journal::open(folder.path(), other.clone()).unwrap_err().to_string();
            assert!(error.contains(wanted) && error.contains("--out"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{line}\ntorn"));
        }
        let words = Subject { task: "words".into(), ..subject() };
        assert!(Journal::open(folder.path(), words).unwrap_err().to_string().contains("task = words, found author"));
        std::fs::write(&path, format!("{line}\nnonsense\n{line}\n")).unwrap();
        let error = Journal::open(folder.path(), subject()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn data_that_changed_under_their_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let of = |print: &str| Subject { fingerprint: Some(print.to_owned()), ..subject() };
        let journal = Journal::open(folder.path(), of("aa")).unwrap();
        journal.add(Record { subject: of("aa"), ..record(1) }).unwrap();
        drop(journal);
        let error = Journal::open(folder.path(), of("bb")).unwrap_err().to_string();
        assert!(error.contains("the data's fingerprint = bb, found aa") && error.contains("--out"), "{error}");
        assert_eq!(Journal::open(folder.path(), of("aa")).unwrap().records()[0].subject, of("aa"));
    }

    #[test]
    fn files_from_before_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let line = serde_json::to_string(&record(1)).unwrap();
        assert!(!line.contains("fingerprint"), "{line}");
        std::fs::write(folder.path().join(FILE), format!("{line}\n")).unwrap();
        let mut now = Subject { fingerprint: Some("aa".to_owned()), ..subject() };
        now.hyper.insert("loss_scale".to_owned(), "none".to_owned());
        assert_eq!(seeds(&Journal::open(folder.path(), now.clone()).unwrap().records()), [1]);
        now.hyper.insert("loss_scale".to_owned(), "backoff".to_owned());
        let error = Journal::open(folder.path(), now).unwrap_err().to_string();
        assert!(error.contains("loss_scale = backoff, found none"), "{error}");
    }

    #[test]
    fn a_run_that_lacks_its_newline_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let [one, two] = [1, 2].map(|seed| serde_json::to_string(&record(seed)).unwrap());
        for (text, known) in [(one.clone(), vec![1]), (format!("{one}\n{two}"), vec![1, 2])] {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(seeds(&load(folder.path()).unwrap()), known);
            let journal = Journal::open(folder.path(), subject()).unwrap();
            let before = journal.records();
            assert_eq!(seeds(&before), known);
            journal.add(record(3)).unwrap();
            assert_eq!(seeds(&load(folder.path()).unwrap()), [&known[..], &[3]].concat());
        }
    }

    #[test]
    fn a_first_line_that_tore_is_cut_off_and_another_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let line = serde_json::to_string(&record(1)).unwrap();
        for kept in 0..line.len() {
            std::fs::write(&path, &line[..kept]).unwrap();
            assert!(Journal::open(folder.path(), subject()).unwrap().records().is_empty(), "{kept} bytes");
            assert_eq!(std::fs::read(&path).unwrap(), b"");
        }
        for foreign in ["somebody's notes", "{\"name\": 1}", "\n\nnotes"] {
            std::fs::write(&path, foreign).unwrap();
            let error = Journal::open(folder.path(), subject()).unwrap_err().to_string();
            assert!(error.contains("wanted a file of runs, found") && error.contains("--out"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
            assert!(load(folder.path()).is_err(), "{foreign}");
        }
    }

    #[test]
    fn runs_of_two_subjects_have_nothing_in_common() {
        let print = |print: Option<&str>| Record {
            subject: Subject { fingerprint: print.map(str::to_owned), ..subject() },
            ..record(1)
        };
        let of = |records: &[Record]| common(records, Path::new("there"));
        assert_eq!(of(&[]).unwrap(), None);
        let known = of(&[print(None), print(Some("aa")), print(None)]).unwrap().unwrap();
        assert_eq!(known, print(Some("aa")).subject);
        let error = of(&[print(None), print(Some("aa")), print(Some("bb"))]).unwrap_err().to_string();
        assert!(error.contains("fingerprint = aa and the data's fingerprint = bb"), "{error}");
        let mut other = record(2);
        other.subject.hyper.insert("lr".to_owned(), "0.2".to_owned());
        let error = of(&[record(1), other]).unwrap_err().to_string();
        assert!(error.contains("found lr = 0.1 and lr = 0.2") && error.contains("another folder"), "{error}");
    }
}
