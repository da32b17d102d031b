//! `hotrow bench compare`: the figures of several machines side by side, from files of `bench`, `bench suite` and the web page.

use anyhow::ensure;
use hotrow_report::failure::{self, Failure};
use hotrow_report::options::{Options, number};
use hotrow_report::output;
use hotrow_report::plot::{Chart, Style};
use hotrow_report::records::{self, Measurement, Select, Setting, Unit, shown, table};
use hotrow_report::run::{Machine, SCHEMA, commit};
use hotrow_report::units::{Times, decimals};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Set the figures of several machines side by side: how many times as fast as the first each is, and their curves in one plot
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// JSON files of `bench`, `bench suite`, `bench robe` or the web page, 2 to 8, all of the same one
    #[arg(required = true, num_args = 2..=8, value_name = "FILE", value_parser = output::file())]
    files: Vec<PathBuf>,
    /// End with exit code 1 if a whole call is slower than in the first file by more than this, such as 10%, and by more than chance explains
    #[arg(long, value_name = "PERCENT", value_parser = |text: &str| number(text.trim_end_matches('%'), 0.0..=1e6))]
    worse: Option<f64>,
    /// Folder for CSV and plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

const PAGE: &str = "web page";
/// The most MiB of a file; a whole suite has a twentieth of that.
const MOST_MIB: u64 = 32;
/// The most letters of a machine's name.
const NAME: usize = 48;

/// What is read of a file, and named in the comparison's. Further fields are ignored.
#[derive(Deserialize, Serialize)]
struct Report {
    command: String,
    version: String,
    #[serde(default)]
    commit: String,
    date: String,
    machines: Vec<Machine>,
    /// Only the page has one: in a browser nobody has run the tests.
    #[serde(skip_serializing)]
    self_test: Option<SelfTest>,
    #[serde(default, skip_serializing)]
    shapes: BTreeMap<String, String>,
    #[serde(skip_serializing)]
    records: Vec<Measurement>,
}

#[derive(Deserialize)]
struct SelfTest {
    cases: u64,
    passed: u64,
}

/// A file under the name of its machine, which is another one for each file.
#[derive(Serialize)]
struct Measured {
    name: String,
    #[serde(flatten)]
    report: Report,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    output::check_files(options.json.as_deref(), None, &[], &args.files)?;
    let read = args.files.iter().map(|path| Ok((path.as_path(), Report::open(path)?)));
    let all = named(read.collect::<Result<Vec<_>, Failure>>()?);
    let compared = compare(&all)?;
    output::check_folder(&args.out, options.json.as_deref())?;
    output::print(&text(&all, &compared))?;
    for (stem, chart) in charts(&all) {
        let [svg, png] = chart.write(&args.out.join(stem))?;
        output::print(&format!("wrote {} and {}", svg.display(), png.display()))?;
    }
    let csv = args.out.join("compare.csv");
    let by = [("version", env!("CARGO_PKG_VERSION")), ("commit", &commit())];
    records::write_csv(&csv, &compared, &by)?;
    output::print(&format!("wrote {}", csv.display()))?;
    if let Some(json) = &options.json {
        let head = serde_json::json!({ "command": "bench compare", by[0].0: by[0].1, by[1].0: by[1].1, "files": all, "worse": args.worse });
        records::write_json(json, &head, &compared)?;
        output::print(&format!("wrote {}", json.display()))?;
    }
    Ok(args.worse.map_or(Ok(()), |percent| judge(&all, &compared, percent))?)
}

/// Reads a file, and composes all that is made of it beside itself. Returns the number of figures.
pub(crate) fn compose(bytes: &[u8]) -> Result<usize, String> {
    let read = || Report::of(bytes).map_err(|error| error.to_string());
    let all = named(vec![(Path::new("a.json"), read()?), (Path::new("b.json"), read()?)]);
    let compared = compare(&all).map_err(|error| error.to_string())?;
    let _ = (text(&all, &compared), charts(&all));
    Ok(all[0].report.records.len())
}

impl Report {
    /// Reads a file. One that cannot be read is bad usage, one with other content a failed job.
    fn open(path: &Path) -> Result<Self, Failure> {
        let (file, mut bytes) = (path.display(), Vec::new());
        let read = File::open(path).and_then(|opened| opened.take((MOST_MIB << 20) + 1).read_to_end(&mut bytes));
        read.map_err(|why| {
            let wanted = "bench compare: wanted a JSON file of bench, bench suite, bench robe or the web page";
            Failure::Usage(format!("{wanted}, found {file}: {why}; check its name"))
        })?;
        Ok(Self::of(&bytes).map_err(|fault| anyhow::anyhow!("{file}: {fault}"))?)
    }

    fn of(bytes: &[u8]) -> anyhow::Result<Self> {
        let again = "let the command or the page write it again";
        ensure!(bytes.len() as u64 <= MOST_MIB << 20, "wanted at most {MOST_MIB} MiB, found more; take another file");
        let json: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|why| anyhow::anyhow!("wanted JSON, found {why}; {again}"))?;
        ensure!(
            json["schema"] == SCHEMA,
            "wanted \"schema\": {SCHEMA}, found {}; measure with this version of hotrow",
            plain(&json["schema"].to_string())
        );
        let mut found: Self = serde_json::from_value(json).map_err(|why| {
            anyhow::anyhow!("wanted all fields of a report, found {}; {again}", failure::plain(&why.to_string()))
        })?;
        ensure!(!found.machines.is_empty(), "wanted the machine that measured, found none; {again}");
        let SelfTest { cases, passed } = found.self_test.as_ref().unwrap_or(&SelfTest { cases: 0, passed: 0 });
        ensure!(
            passed == cases && (*cases > 0 || found.command != PAGE),
            "wanted a passed self-test, found {passed} of {cases} cases passed; kernels that are not known to be right have no speed: update \
             browser and driver, and measure again"
        );
        for (number, record) in (1..).zip(&found.records) {
            if let Some(fault) = fault(record) {
                let [what, shape] = [&record.what, &record.shape].map(|text| plain(text));
                anyhow::bail!("figure {number}, {what} of {shape}: {fault}; measure again");
            }
        }
        // JSON has no number for a figure that is not finite.
        found.records.retain(|record| record.value.is_finite());
        ensure!(!found.records.is_empty(), "wanted figures, found none; let the measurement run to its end");
        Ok(found)
    }
}

/// What is impossible about a figure.
fn fault(record: &Measurement) -> Option<String> {
    let Measurement { value, unit, spread, setting, .. } = record;
    // A clock may be too coarse for a kernel, but no time is negative.
    if *value < 0.0 && *unit != Unit::Change {
        let (factor, name) = unit.scale();
        return Some(format!("wanted no figure below 0, found {} {name}", factor * value).trim_end().to_owned());
    }
    if spread.is_some_and(|times| !(times.lowest <= times.median && times.median <= times.highest && times.rounds > 0))
    {
        return Some("wanted a median between the lowest and the highest of its rounds, found another".to_owned());
    }
    let rate =
        ["hits", "aim"].into_iter().filter_map(|name| setting.number(name)).find(|rate| !(0.0..=100.0).contains(rate));
    rate.map(|rate| format!("wanted a hit rate from 0 to 100 percent, found {rate}"))
}

/// A text of a file for one line of a terminal and for a cell of a table.
fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() { ' ' } else { c };
    text.replace('|', "/").chars().map(harmless).take(NAME).collect::<String>().trim().to_owned()
}

/// Names each file by its machines; those of one name get the name of their file, and their number where this is the same too.
fn named(files: Vec<(&Path, Report)>) -> Vec<Measured> {
    let of = |machine: &Machine| machine.adapter.clone() + if machine.software { " (software)" } else { "" };
    let title = |report: &Report| plain(&report.machines.iter().map(of).collect::<Vec<_>>().join("; "));
    let titles: Vec<String> = files.iter().map(|(_, report)| title(report)).collect();
    let mut all: Vec<Measured> = Vec::new();
    for ((path, report), title) in files.into_iter().zip(&titles) {
        let stem = path.file_stem().map(|stem| plain(&stem.to_string_lossy())).unwrap_or_default();
        let alone = titles.iter().filter(|other| *other == title).count() == 1;
        let name = if alone { title.clone() } else { format!("{title} ({stem})") };
        let known = all.iter().any(|one| one.name == name);
        let name = if known { format!("{name}, file {}", all.len() + 1) } else { name };
        all.push(Measured { name, report });
    }
    all
}

impl Measured {
    /// What must be the same in two figures of a quantity that are compared: shape with its description, and setting but for what was measured.
    fn key(&self, record: &Measurement, without: &[&str]) -> String {
        let mut setting = serde_json::to_value(&record.setting).unwrap_or_default();
        if let Some(names) = setting.as_object_mut() {
            names.retain(|name, _| !without.contains(&name.as_str()));
        }
        let shape = &record.shape;
        format!("{shape}\n{}\n{setting}", self.report.shapes.get(shape).map_or("", String::as_str))
    }

    /// Times, and rates that were measured themselves: those worked out from a time have no spread.
    fn figures(&self) -> impl Iterator<Item = (String, &Measurement)> {
        let measured = |Measurement { value, unit, spread, .. }: &&Measurement| {
            *value > 0.0 && (*unit == Unit::Seconds || *unit == Unit::BytesPerSecond && spread.is_some())
        };
        self.report
            .records
            .iter()
            .filter(measured)
            .map(|record| (record.what.clone() + "\n" + &self.key(record, &["hits"]), record))
    }
}

/// Where a median of other rounds would lie, at two standard errors: 2.5 ranges over the number of rounds, within the range. (The standard error of a
/// median is 1.25 deviations over the root of the rounds, and for up to some twenty rounds the range has about as many deviations as that root.)
fn ends(times: &Times) -> [f64; 2] {
    let reach = 2.5 * (times.highest - times.lowest) / times.rounds as f64;
    [(times.median - reach).max(times.lowest), (times.median + reach).min(times.highest)]
}

/// How many times as fast as the first a figure is, with the ends that the rounds of both allow.
fn speed(first: &Measurement, found: &Measurement, setting: &Setting) -> Measurement {
    let is_time = found.unit == Unit::Seconds;
    let of = |first: f64, found: f64| if is_time { first / found } else { found / first };
    let value = of(first.value, found.value);
    let spread = first.spread.zip(found.spread).map(|(a, b)| {
        let (ours, theirs) = (ends(&a), ends(&b));
        let [one, other] = [of(ours[0], theirs[1]), of(ours[1], theirs[0])];
        let (lowest, highest) = (one.min(other), one.max(other));
        Times { median: value, lowest, highest, rounds: a.rounds.min(b.rounds), coarse: a.coarse || b.coarse }
    });
    let spread = spread.filter(|times| times.highest.is_finite());
    Measurement { spread, ..Measurement::new("speed", &found.shape, setting, value, Unit::Times) }
}

/// The figures of the first file that another one has too, of all machines, each with how many times as fast as the first it is.
fn compare(all: &[Measured]) -> anyhow::Result<Vec<Measurement>> {
    let others: Vec<BTreeMap<String, &Measurement>> = all.iter().map(|one| one.figures().collect()).collect();
    let mut compared = Vec::new();
    for (key, first) in all[0].figures() {
        if !others[1..].iter().any(|other| other.contains_key(&key)) {
            continue;
        }
        for (one, found) in all.iter().zip(&others).filter_map(|(one, other)| Some((one, *other.get(&key)?))) {
            let setting = first.setting.clone().with("machine", one.name.as_str());
            compared.push(Measurement { setting: setting.clone(), ..found.clone() });
            let speed = speed(first, found, &setting.with("of", found.what.as_str()));
            compared.extend((one.name != all[0].name).then_some(speed));
        }
    }
    ensure!(
        !compared.is_empty(),
        "bench compare: wanted figures of the same workloads in the first file and another, found none; measure all with one command and the same \
         sizes"
    );
    Ok(compared)
}

/// Figures of whole calls. Those of single kernels are in the CSV.
const WHOLE: Select<'_> = Select { what: "", shape: "", setting: "!kernel; !stage" };

/// A figure that is compared: its quantity, and its setting without the machine.
fn place(record: &Measurement) -> (String, String) {
    let what = record.setting.get("of").map_or(record.what.clone(), shown);
    let mut setting = record.setting.to_string();
    setting.truncate(setting.find("machine ").unwrap_or(setting.len()));
    (what, setting.trim_end_matches(", ").to_owned())
}

/// Fails if a whole call is slower than the first's by more than the bound even at the upper end of its spread, or has no figure.
fn judge(all: &[Measured], compared: &[Measurement], percent: f64) -> anyhow::Result<()> {
    let speeds = compared.iter().filter(|record| record.what == "speed" && WHOLE.has(record));
    let (mut judged, mut slower, bound) = (0, Vec::new(), decimals(percent));
    for (record, spread) in speeds.filter_map(|record| Some((record, record.spread?))) {
        judged += 1;
        if spread.highest * (1.0 + percent / 100.0) < 1.0 {
            let ((what, setting), machine) = (place(record), record.words(&["machine"]));
            slower.push(format!("{what} of {}, {setting} on {machine}: {}", record.shape, record.text()));
        }
    }
    // A figure that is gone, or 0, is no speed.
    let judgeable = all[0].figures().filter(|(_, record)| record.spread.is_some() && WHOLE.has(record));
    let wanted: Vec<(String, &Measurement)> = judgeable.collect();
    for other in &all[1..] {
        let has: BTreeSet<String> = other.figures().map(|(key, _)| key).collect();
        let gone = wanted.iter().filter(|(key, _)| !has.contains(key));
        slower.extend(gone.map(|(_, record)| {
            let (what, setting) = place(record);
            format!("{what} of {}, {setting} on {}: none", record.shape, other.name)
        }));
    }
    ensure!(judged > 0, "--worse: wanted figures of several rounds in both files, found none; leave --worse out");
    let (found, of) = (slower.len(), wanted.len());
    output::print(&format!("--worse {bound} %: {found} of {of} figures of several rounds are slower, or gone"))?;
    slower.iter().try_for_each(|figure| output::print(&format!("- {figure}")))?;
    ensure!(
        slower.is_empty(),
        "--worse: wanted every figure of the first file, none slower by more than {bound} %, found {found} that are slower or gone, listed above; \
         measure again, or find the change that costs this"
    );
    Ok(())
}

/// The machines, their mean speed, and the figures of whole calls with how many times as fast as the first each machine is.
fn text(all: &[Measured], compared: &[Measurement]) -> String {
    let mut text = format!("hotrow bench compare {}, commit {}\n", env!("CARGO_PKG_VERSION"), commit());
    for one in all {
        let Measured { name, report: Report { command, version, commit, date, .. } } = one;
        let speeds = Select { what: "speed", shape: "", setting: &format!("machine={name}") };
        let speeds: Vec<f64> =
            compared.iter().filter(|record| speeds.has(record)).map(|record| record.value.ln()).collect();
        let n = speeds.len();
        let mean = (speeds.iter().sum::<f64>() / n as f64).exp();
        let of = all[0].figures().count();
        let mean = format!("; {mean:.2} times as fast as the first, the geometric mean of {n} of its {of} figures");
        let mean = if n == 0 { "" } else { &mean };
        let [command, version, commit, date] = [command, version, commit, date].map(|text| plain(text));
        text += &format!("- {name}: {command}, hotrow {version}, commit {commit}, {date}{mean}\n");
    }
    // A line of the table is a figure, a column a machine.
    let whole = compared.iter().filter(|record| WHOLE.has(record));
    let line = |record: &Measurement| {
        let (what, place) = place(record);
        let setting = Setting::default().with("figure", what).with("setting", place);
        let setting = setting.with("machine", record.words(&["machine"]));
        Measurement { setting, spread: record.spread.filter(|_| record.unit == Unit::Times), ..record.clone() }
    };
    let lines: Vec<Measurement> = whole.map(line).collect();
    let shown = table(&lines, &["shape", "figure", "setting"], "machine").unwrap_or_default();
    text + "\nFigure / speed against the first (spread).\n\n" + &shown + "\n"
}

/// The charts with their file stems: what all machines have over one axis, a colour for each machine.
fn charts<'a>(all: &'a [Measured]) -> Vec<(String, Chart)> {
    [
        ("hits", "Hit rate (% of accesses)", "Logical bandwidth", ["forward logical", "backward logical"]),
        ("distinct", "Distinct rows in a step", "Time", ["forward", "backward"]),
        ("pairs", "Pairs sorted", "Time", ["sort, 32 bits", ""]),
        ("row bytes", "Bytes of a row", "Random rows", ["random read", "random update"]),
    ]
    .into_iter()
    .filter_map(|(axis, x, y, whats)| {
        const FREE: [&str; 5] = ["hits", "aim", "distinct", "pairs", "row bytes"];
        let on = |record: &&Measurement| whats.contains(&record.what.as_str()) && record.setting.number(axis).is_some();
        let curves = |one: &'a Measured| -> Vec<(String, &'a Measurement)> {
            one.report.records.iter().filter(on).map(|record| (one.key(record, &FREE), record)).collect()
        };
        let found: Vec<_> = all.iter().map(curves).collect();
        let has = |key: &String| found.iter().all(|curves| curves.iter().any(|(other, _)| other == key));
        // Of several curves one is drawn: INT8 if all have it, the largest table.
        let common: Vec<&String> = found[0].iter().map(|(key, _)| key).filter(|key| has(key)).collect();
        let drawn = *common.iter().find(|key| key.contains("\"INT8\"")).or_else(|| common.last())?;
        let first = found[0].iter().find(|(key, _)| key == drawn)?;
        let mut chart = Chart::new(x, y);
        let of =
            ["curve", "precision", "table MiB"].map(|name| Some(format!(": {name} {}", shown(&first.1.key(name)?))));
        chart.title = format!("{y} by machine{}", of.into_iter().flatten().next().unwrap_or_default());
        (chart.log_x, chart.log_y) = (axis != "hits", axis != "hits");
        chart.x_range = (axis == "hits").then_some((0.0, 100.0));
        for (colour, (one, curves)) in all.iter().zip(&found).enumerate() {
            let style = |record: &Measurement| Style { colour, dashed: record.what == whats[1], markers: true };
            let records = curves.iter().filter(|(key, _)| key == drawn).map(|(_, record)| *record);
            let label = |record: &Measurement| format!("{}, {}", one.name, record.what);
            chart.lines(records, label, |record| record.setting.number(axis), style);
        }
        let tops = chart.series.iter().map(|series| series.points.iter().map(|point| point.1).fold(0.0, f64::max));
        let (slowest, fastest) = tops.fold((f64::MAX, 0.0), |(a, b): (f64, f64), top| (a.min(top), b.max(top)));
        // Beside a machine ten times as fast a line would lie on the axis.
        chart.log_y |= fastest > 10.0 * slowest;
        chart.y_range = (!chart.log_y).then_some((0.0, fastest * 1.05));
        Some((format!("compare-{}", axis.replace(' ', "-")), chart))
    })
    .collect()
}
