//! `hotrow bench compare`: the times of several machines side by side, from files of `bench`, `bench suite` and the web page.

use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::plot::{Chart, Style};
use crate::report::run::{Machine, SCHEMA};
use crate::report::{self, Measurement, Select, Setting, Unit, table};
use anyhow::ensure;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Set the times of several machines side by side: how many times as fast as the first each is, and their curves in one plot
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// JSON files of `bench`, `bench suite`, `bench robe` or the web page, 2 to 8, all of the same one
    #[arg(required = true, num_args = 2..=8, value_name = "FILE", value_parser = output::file())]
    files: Vec<PathBuf>,
    /// Folder for CSV and plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

const PAGE: &str = "web page";
/// The most MiB of a file; a whole suite has a twentieth of that.
const MOST_MIB: u64 = 32;
/// The most letters of a machine's name.
const NAME: usize = 48;

/// What is read of a file. Further fields are ignored.
#[derive(Deserialize)]
struct Report {
    command: String,
    version: String,
    date: String,
    machines: Vec<Machine>,
    /// Only the page has one: in a browser nobody has run the tests.
    self_test: Option<SelfTest>,
    #[serde(default)]
    shapes: BTreeMap<String, String>,
    records: Vec<Measurement>,
}

#[derive(Deserialize)]
struct SelfTest {
    cases: u64,
    passed: u64,
}

/// A file under the name of its machine, which is another one for each file.
struct Measured {
    name: String,
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
    report::write_csv(&csv, &compared)?;
    output::print(&format!("wrote {}", csv.display()))?;
    if let Some(json) = &options.json {
        report::write_json(json, &serde_json::json!({ "command": "bench compare" }), &compared)?;
        output::print(&format!("wrote {}", json.display()))?;
    }
    Ok(())
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
        let mut found: Self = serde_json::from_value(json)
            .map_err(|why| anyhow::anyhow!("wanted all fields of a report, found {why}; {again}"))?;
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
    /// What must be the same in two figures that are compared: quantity, shape with its description, and setting but for what was measured.
    fn key(&self, record: &Measurement, without: &[&str]) -> String {
        let mut setting = serde_json::to_value(&record.setting).unwrap_or_default();
        if let Some(names) = setting.as_object_mut() {
            names.retain(|name, _| !without.contains(&name.as_str()));
        }
        let shape = &record.shape;
        format!("{}\n{shape}\n{}\n{setting}", record.what, self.report.shapes.get(shape).map_or("", String::as_str))
    }

    fn times(&self) -> impl Iterator<Item = (String, &Measurement)> {
        let times = self.report.records.iter().filter(|record| record.unit == Unit::Seconds && record.value > 0.0);
        times.map(|record| (self.key(record, &["hits"]), record))
    }
}

/// The times of the first file that another one has too, of all machines, each with how many times as fast as the first it is.
fn compare(all: &[Measured]) -> anyhow::Result<Vec<Measurement>> {
    let others: Vec<BTreeMap<String, &Measurement>> = all.iter().map(|one| one.times().collect()).collect();
    let mut compared = Vec::new();
    for (key, first) in all[0].times() {
        if !others[1..].iter().any(|other| other.contains_key(&key)) {
            continue;
        }
        for (one, found) in all.iter().zip(&others).filter_map(|(one, other)| Some((one, *other.get(&key)?))) {
            let setting = first.setting.clone().with("machine", one.name.as_str());
            compared.push(Measurement { setting: setting.clone(), ..found.clone() });
            let (setting, times) = (setting.with("of", found.what.as_str()), first.value / found.value);
            let speed = Measurement::new("speed", &found.shape, &setting, times, Unit::Times);
            compared.extend((one.name != all[0].name).then_some(speed));
        }
    }
    ensure!(
        !compared.is_empty(),
        "bench compare: wanted times of the same workloads in the first file and another, found none; measure all with one command and the same \
         sizes"
    );
    Ok(compared)
}

/// The machines, their mean speed, and the times of whole calls with how many times as fast as the first each machine is.
fn text(all: &[Measured], compared: &[Measurement]) -> String {
    let mut text = format!("hotrow bench compare {}\n", env!("CARGO_PKG_VERSION"));
    for Measured { name, report: Report { command, version, date, .. } } in all {
        let speeds = Select { what: "speed", shape: "", setting: &format!("machine={name}") };
        let speeds: Vec<f64> =
            compared.iter().filter(|record| speeds.has(record)).map(|record| record.value.ln()).collect();
        let n = speeds.len();
        let mean = (speeds.iter().sum::<f64>() / n as f64).exp();
        let mean = format!("; {mean:.2} times as fast as the first, the geometric mean of {n} times");
        let mean = if n == 0 { "" } else { &mean };
        text += &format!("- {name}: {}, hotrow {}, {}{mean}\n", plain(command), plain(version), plain(date));
    }
    // A line of the table is a figure, a column a machine. The times of single kernels are in the CSV.
    let whole = compared.iter().filter(|record| record.key("kernel").is_none() && record.key("stage").is_none());
    let line = |record: &Measurement| {
        let what = record.setting.get("of").map_or(record.what.clone(), ToString::to_string);
        let mut setting = record.setting.to_string();
        setting.truncate(setting.find("machine ").unwrap_or(setting.len()));
        let place = setting.trim_end_matches(", ").to_owned();
        let machine = record.key("machine").unwrap_or("".into());
        let setting = Setting::default().with("figure", what).with("setting", place).with("machine", machine);
        Measurement { setting, spread: None, ..record.clone() }
    };
    let lines: Vec<Measurement> = whole.map(line).collect();
    let shown = table(&lines, &["shape", "figure", "setting"], "machine").unwrap_or_default();
    text + "\nTimes / speed against the first.\n\n" + &shown + "\n"
}

/// The charts with their file stems: what all machines have over one axis, a colour for each machine.
fn charts(all: &[Measured]) -> Vec<(String, Chart)> {
    [
        ("hits", "Hit rate (% of accesses)", "Logical bandwidth", ["forward logical", "backward logical"]),
        ("distinct", "Distinct rows in a step", "Time", ["forward", "backward"]),
        ("pairs", "Pairs sorted", "Time", ["sort, 32 bits", ""]),
    ]
    .into_iter()
    .filter_map(|(axis, x, y, whats)| {
        let curves = |one: &'_ Measured| -> Vec<(String, Measurement)> {
            let on =
                |record: &&Measurement| whats.contains(&record.what.as_str()) && record.setting.number(axis).is_some();
            let curve = |record: &Measurement| {
                let alike = Measurement { what: String::new(), ..record.clone() };
                let key = one.key(&alike, &["hits", "aim", "distinct", "pairs"]);
                let label = format!("{}, {}", one.name, record.what);
                (key, Measurement { setting: record.setting.clone().with("line", label), ..record.clone() })
            };
            one.report.records.iter().filter(on).map(curve).collect()
        };
        let found: Vec<_> = all.iter().map(curves).collect();
        let has = |key: &String| found.iter().all(|curves| curves.iter().any(|(other, _)| other == key));
        // Of several curves one is drawn: INT8 if all have it.
        let common: Vec<&String> = found[0].iter().map(|(key, _)| key).filter(|key| has(key)).collect();
        let drawn = *common.iter().find(|key| key.contains("\"INT8\"")).or_else(|| common.first())?;
        let first = found[0].iter().find(|(key, _)| key == drawn)?;
        let mut chart = Chart::new(x, y);
        let of = first.1.key("curve").or_else(|| first.1.key("precision")).unwrap_or("".into());
        chart.title = format!("{y} by machine: {of}");
        (chart.log_x, chart.log_y) = (axis != "hits", axis != "hits");
        chart.x_range = (axis == "hits").then_some((0.0, 100.0));
        for (colour, curves) in found.iter().enumerate() {
            let style = |record: &Measurement| Style { colour, dashed: record.what == whats[1], markers: true };
            let records = curves.iter().filter(|(key, _)| key == drawn).map(|(_, record)| record);
            chart.lines(records, "line", |record| record.setting.number(axis), style);
        }
        let tops = chart.series.iter().map(|series| series.points.iter().map(|point| point.1).fold(0.0, f64::max));
        let (slowest, fastest) = tops.fold((f64::MAX, 0.0), |(a, b): (f64, f64), top| (a.min(top), b.max(top)));
        // Beside a machine ten times as fast a line would lie on the axis.
        chart.log_y |= fastest > 10.0 * slowest;
        chart.y_range = (!chart.log_y).then_some((0.0, fastest * 1.05));
        Some((format!("compare-{axis}"), chart))
    })
    .collect()
}
