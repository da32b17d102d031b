//! A run of a benchmark: the machine, the records, the goals, and the list of all that was left out.

use crate::goals::{HEAD, Judged, goals};
use crate::object::in_units;
use crate::records::{self, Measurement, Select, Setting, Unit};
use crate::units::{self, Times};
use crate::{clock, output};
use hotrow::Context;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the JSON. It grows when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 2;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    pub adapter: String,
    /// `cpu`, or the graphics interface.
    pub backend: String,
    driver: String,
    /// Whether the adapter is software; its times show only that the kernels run.
    pub software: bool,
    timing: String,
    /// Seconds of a step of the device's time stamps; `None` without them.
    timestamp_step: Option<f64>,
    subgroup: Option<(u32, u32)>,
    binding_bytes: u64,
    threads: usize,
}

impl Machine {
    /// The cores of the host.
    pub fn cpu() -> Self {
        let threads = rayon::current_num_threads();
        let [backend, timing] = ["cpu", "wall clock"].map(str::to_owned);
        Self { adapter: format!("CPU, {threads} threads"), backend, timing, threads, ..Self::default() }
    }

    /// The device of a context.
    pub fn of(context: &Context) -> Self {
        let (info, caps) = (context.device().adapter_info(), context.caps());
        Self {
            adapter: info.name,
            backend: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            software: !caps.is_hardware(),
            timing: if !hotrow::Timeline::new(context).has_stamps() {
                "wall clock: the device has no timestamps"
            } else if context.device().features().contains(hotrow::wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES) {
                "device timestamps between dispatches"
            } else {
                "device timestamps, a pass for each dispatch where stages are told apart"
            }
            .to_owned(),
            timestamp_step: clock::step(context),
            subgroup: caps.subgroup,
            binding_bytes: caps.binding_bytes,
            threads: rayon::current_num_threads(),
        }
    }

    /// The name, for tables and charts.
    pub fn title(&self) -> String {
        let warning =
            if self.software { "software adapter: these figures show that it runs, not how fast: " } else { "" };
        format!("{warning}{}", self.adapter)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct LeftOut {
    what: String,
    why: String,
}

/// A run. Its JSON has these fields, then the records.
#[derive(Debug, Default, Serialize)]
pub struct Run {
    schema: u32,
    pub command: &'static str,
    version: &'static str,
    commit: String,
    date: String,
    seed: u64,
    size: &'static str,
    machines: Vec<Machine>,
    seconds: f64,
    /// Descriptions of the records' shapes.
    shapes: BTreeMap<String, String>,
    goals: Vec<Judged>,
    left_out: Vec<LeftOut>,
    notes: Vec<String>,
    /// Failed checks that must hold on every machine. The command fails with them.
    pub wrong: Vec<String>,
    #[serde(skip)]
    pub records: Vec<Measurement>,
}

impl Run {
    pub fn new(command: &'static str, commit: Option<&str>, seed: u64, size: &'static str) -> Self {
        let commit = commit.map_or_else(self::commit, str::to_owned);
        let (version, date) =
            (env!("CARGO_PKG_VERSION"), jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        Self { schema: SCHEMA, command, version, commit, date, seed, size, ..Self::default() }
    }

    pub fn on(&mut self, machine: Machine) {
        self.machines.push(machine);
    }

    pub fn title(&self) -> String {
        self.machines.iter().map(Machine::title).collect::<Vec<_>>().join("; ")
    }

    pub fn describe(&mut self, shape: impl Into<String>, what: impl Into<String>) {
        self.shapes.insert(shape.into(), what.into());
    }

    /// Returns a collector of figures of a shape under a setting.
    pub fn at(&mut self, shape: impl Into<String>, setting: &Setting) -> At<'_> {
        At { run: self, shape: shape.into(), setting: setting.clone() }
    }

    pub fn select<'r>(&'r self, select: Select<'r>) -> impl Iterator<Item = &'r Measurement> + Clone {
        self.records.iter().filter(move |record| select.has(record))
    }

    /// The value of the first record that a filter accepts.
    pub fn value(&self, what: &str, shape: &str, setting: &str) -> Option<f64> {
        let select = Select { what, shape, setting };
        self.records.iter().find(|record| select.has(record)).map(|record| record.value)
    }

    /// Adds a measurement that was left out, with the reason.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.left_out.push(LeftOut { what: what.into(), why: why.into() });
    }

    /// Notes which of these tables, by their bytes, fit the last-level cache, where that is known.
    pub fn note_cached(&mut self, what: &str, cache: Option<u64>, tables: &BTreeSet<(u64, String)>) {
        let held = |size: u64| {
            let fits = tables.iter().filter(|(bytes, _)| *bytes <= size);
            let fits: Vec<_> = fits.map(|(bytes, name)| format!("{name} ({})", in_units(*bytes as f64))).collect();
            let what = if fits.is_empty() { "no table" } else { "these, so that they show no memory bandwidth: " };
            format!("of {}, which holds {what}{}", in_units(size as f64), fits.join(", "))
        };
        let found = cache.map_or("of unknown size; what it holds shows no memory bandwidth".to_owned(), held);
        self.notes.push(format!("{what}: last-level cache {found}"));
    }

    /// Judges the goals of the command. `judged`: figures may reach or miss them, as on hardware at the goals' sizes.
    pub fn judge(&mut self, judged: bool, seconds: f64) {
        let mode = self.command.rsplit(' ').next().unwrap_or_default();
        let left_out: Vec<_> = self.left_out.iter().map(|one| (one.what.as_str(), one.why.as_str())).collect();
        self.goals = goals(mode).iter().map(|goal| goal.judge(&self.records, judged, &left_out)).collect();
        self.seconds = seconds;
    }

    pub fn goal_table(&self) -> String {
        let table = output::table(HEAD.map(str::to_owned), |at| at == 0, self.goals.iter().map(Judged::line));
        format!("Goals: {}; size {}.\n\n{table}\n", self.title(), self.size)
    }

    /// The run in Markdown: machines, shapes, the given tables, goals, and all that was left out.
    pub fn markdown(&self, tables: &[(String, String)]) -> String {
        let mut text =
            format!("hotrow {} {} at {}, {}, seed {}\n", self.command, self.version, self.commit, self.date, self.seed);
        for machine in &self.machines {
            let driver = format!("{} {}", machine.backend, machine.driver);
            let step = machine.timestamp_step.map_or(String::new(), |at| format!(", steps of {}", units::seconds(at)));
            text += &format!("{}: {}; {}{step}\n", machine.title(), driver.trim(), machine.timing);
        }
        for (shape, what) in &self.shapes {
            text += &format!("- {shape}: {what}\n");
        }
        for (title, table) in tables {
            text += &format!("\n{title}\n\n{table}\n");
            let gaps = "-: the workload has no such figure, or it was left out for a reason named below.\n";
            text += if table.contains(" - |") { gaps } else { "" };
        }
        for note in &self.notes {
            text += &format!("\n{note}.\n");
        }
        if !self.goals.is_empty() {
            text += &format!("\n{}", self.goal_table());
        }
        for wrong in &self.wrong {
            text += &format!("WRONG: {wrong}.\n");
        }
        for (why, all) in self.reasons() {
            text += &format!("Left out: {}: {why}.\n", all.join("; "));
        }
        text
    }

    /// The measurements that were left out, by reason.
    pub fn reasons(&self) -> IndexMap<&str, Vec<&str>> {
        let mut reasons = IndexMap::<&str, Vec<&str>>::new();
        self.left_out.iter().for_each(|one| reasons.entry(&one.why).or_default().push(&one.what));
        reasons
    }

    /// Writes `stem.csv` and `stem.json`, or `json` instead; returns the two paths.
    pub fn write(&self, stem: &Path, json: Option<&Path>) -> anyhow::Result<[PathBuf; 2]> {
        let json = json.map_or_else(|| stem.with_extension("json"), Path::to_owned);
        let csv = stem.with_extension("csv");
        records::write_json(&json, self, &self.records)?;
        let by = [("version", self.version), ("commit", &self.commit), ("machines", &self.title())];
        records::write_csv(&csv, &self.records, &by)?;
        Ok([json, csv])
    }
}

/// The commit of the environment when run, else when built, else of the clone.
pub fn commit() -> String {
    let by_environment = || std::env::var("HOTROW_COMMIT").ok().filter(|commit| !commit.is_empty());
    let at_build = || option_env!("HOTROW_COMMIT").map(str::to_owned);
    let found = by_environment().or_else(at_build).or_else(|| of_clone(env!("CARGO_MANIFEST_DIR").as_ref()));
    found.unwrap_or_else(|| "unknown commit".to_owned())
}

/// Git in a folder, whatever a hook of git in another one says.
fn git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE").env("GIT_OPTIONAL_LOCKS", "0");
    git.arg("-C").arg(folder);
    git
}

/// The commit of the clone with this package, whether it has changes that are not in it, and whether it is newer than the program; `None` without git.
fn of_clone(package: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let done = git(package).args(arguments).output().ok().filter(|done| done.status.success())?;
        Some(String::from_utf8(done.stdout).ok()?.trim().to_owned())
    };
    // An unpacked archive may lie in another project's clone.
    git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
    let commit = git(&["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty= with uncommitted changes"])?;
    let moved = package.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    let time = |file: PathBuf| fs::metadata(file).and_then(|file| file.modified()).ok();
    let late = std::env::current_exe().ok().and_then(time).zip(time(moved)).is_some_and(|(built, moved)| built < moved);
    Some(if late { format!("{commit}, checked out or made after the program was built") } else { commit })
}

/// Collects figures of a shape under a setting.
#[derive(Debug)]
pub struct At<'r> {
    run: &'r mut Run,
    shape: String,
    setting: Setting,
}

impl At<'_> {
    /// Adds a single figure, if there is one.
    pub fn push(&mut self, what: &str, value: impl Into<Option<f64>>, unit: Unit) {
        let record = |value| Measurement::new(what, &self.shape, &self.setting, value, unit);
        self.run.records.extend(value.into().map(record));
    }

    /// Adds the bytes a second of several rounds that each moved `bytes`.
    pub fn rated(&mut self, what: &str, times: Times, bytes: f64) {
        let [median, lowest, highest] = [times.median, times.highest, times.lowest].map(|seconds| bytes / seconds);
        let one = Measurement::new(what, &self.shape, &self.setting, median, Unit::BytesPerSecond);
        self.run.records.push(Measurement { spread: Some(Times { median, lowest, highest, ..times }), ..one });
    }

    /// Adds the seconds of several rounds, if there are any.
    pub fn timed(&mut self, what: &str, times: impl Into<Option<Times>>) {
        let record = |times| Measurement::timed(what, &self.shape, &self.setting, times);
        self.run.records.extend(times.into().map(record));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_names_its_commit() {
        let folder = tempfile::tempdir().unwrap();
        let [clone, tree, package] = ["clone", "tree", "clone/package"].map(|name| folder.path().join(name));
        fs::create_dir_all(&package).unwrap();
        let git = |arguments: &str| {
            let mut git = git(&clone);
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments.split(' '));
            git.output().is_ok_and(|done| done.status.success())
        };
        if !git("init") {
            eprintln!("SKIPPED: wanted git, found none");
            return;
        }
        assert_eq!(of_clone(&package), None, "without a commit");
        fs::write(package.join("Cargo.toml"), "").unwrap();
        assert!(git("add .") && git("commit -m one") && git(&format!("worktree add {}", tree.display())));
        // The clone is newer than this program.
        let late = "checked out or made after the program was built";
        let commit = of_clone(&package).unwrap();
        let (hash, rest) = commit.split_at(12);
        assert!(hash.bytes().all(|digit| digit.is_ascii_hexdigit()) && rest == format!(", {late}"), "{commit}");
        assert_eq!(of_clone(&tree.join("package")), Some(commit.clone()), "a worktree");
        // As if it were older.
        let log = fs::File::options().write(true).open(clone.join(".git/logs/HEAD")).unwrap();
        log.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(of_clone(&package).as_deref(), Some(hash));
        fs::write(package.join("Cargo.toml"), "changed").unwrap();
        assert_eq!(of_clone(&package), Some(format!("{hash} with uncommitted changes")));
        // An archive that was unpacked in it, and one beside it.
        for archive in [clone.join("archive"), folder.path().join("archive")] {
            fs::create_dir(&archive).unwrap();
            fs::write(archive.join("Cargo.toml"), "").unwrap();
            assert_eq!(of_clone(&archive), None, "{}", archive.display());
        }
    }

    #[test]
    fn reasons_are_named_once() {
        let mut run = Run::new("bench", Some("abc"), 0, "small");
        for (what, why) in [("a", "memory"), ("b", "time"), ("c", "memory")] {
            run.leave_out(what, why);
        }
        assert!(run.markdown(&[]).contains("Left out: a; c: memory.\nLeft out: b: time.\n"));
        let tables = [(8 << 20, "b"), ((8 << 20) + 1, "c"), (8 << 20, "b"), (1 << 20, "z")];
        for (cache, note) in [
            (Some(8 << 20), "no memory bandwidth: z (1.0 MiB), b (8.0 MiB).\n"),
            (Some(1), "holds no table"),
            (None, "unknown size"),
        ] {
            run.note_cached("x", cache, &tables.map(|(bytes, name)| (bytes, name.to_owned())).into());
            assert!(run.markdown(&[]).contains(note), "{note}");
        }
    }
}
