//! `hotrow bench import`: figures that the measuring web page saved, of several machines in one plot.

use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::plot::{Chart, Series, Style};
use crate::report::{Record, Setting, Unit, Value, table};
use anyhow::{Context as _, ensure};
use hotrow::Precision;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Draw figures of several machines, saved by the measuring web page, in one plot, with a table and CSV of all
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// JSON files that the page saved, at most 8
    #[arg(required = true, value_name = "FILE", value_parser = output::file())]
    files: Vec<PathBuf>,
    /// Folder for CSV and plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

const SCHEMA: &str = "hotrow-web/1";

/// The most bytes of a file. The page saves less than a tenth of that.
const MOST_BYTES: u64 = 1 << 20;

/// The most figures of a file, likewise.
const MOST_FIGURES: usize = 1000;

/// The number of colours of a chart.
const MOST_FILES: usize = 8;

/// The most letters of a machine's name and of a measure's.
const NAME: usize = 48;

/// Parts of the names of adapters that compute on the processor's cores. WebGPU does not tell them apart.
const SOFTWARE: [&str; 4] = ["swiftshader", "llvmpipe", "lavapipe", "basic render"];

/// What the page saves. Further fields are ignored.
#[derive(Deserialize)]
struct Page {
    #[serde(rename = "crate")]
    version: String,
    date: String,
    agent: String,
    adapter: Adapter,
    self_test: SelfTest,
    figures: Vec<serde_json::Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Adapter {
    name: String,
    vendor: String,
    architecture: String,
    device: String,
    description: String,
    backend: String,
    subgroups: bool,
    timestamps: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct SelfTest {
    cases: u64,
    passed: u64,
}

#[derive(Deserialize)]
struct Figure {
    measure: String,
    /// The kernel, if it is one.
    stage: Option<String>,
    precision: Option<String>,
    dim: Option<u32>,
    rows: Option<u32>,
    hit_rate: Option<f64>,
    seconds: f64,
    bytes: f64,
    rounds: u32,
}

/// A machine with the figures of its file.
#[derive(Clone, Debug, Serialize)]
struct Machine {
    /// Another one for each machine.
    name: String,
    software: bool,
    file: String,
    #[serde(rename = "crate")]
    version: String,
    date: String,
    agent: String,
    adapter: Adapter,
    self_test: SelfTest,
    figures: Vec<Line>,
}

/// A figure as a line of the CSV.
#[derive(Clone, Debug, Serialize)]
struct Line {
    machine: String,
    measure: String,
    precision: Option<String>,
    dim: Option<u32>,
    rows: Option<u32>,
    hit_rate: Option<f64>,
    seconds: f64,
    bytes: f64,
    bytes_per_second: f64,
    rounds: u32,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    if args.files.len() > MOST_FILES {
        return Err(Failure::Usage(format!(
            "bench import: wanted at most {MOST_FILES} files, one for each colour of a plot, found {}; call it for some of them at a time",
            args.files.len()
        )));
    }
    output::check_files(options.json.as_deref(), None, &[], &args.files)?;
    let mut machines = args.files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
    tell_apart(&mut machines);
    output::check_folder(&args.out, options.json.as_deref())?;
    let lines: Vec<&Line> = machines.iter().flat_map(|machine| &machine.figures).collect();
    let records: Vec<Record> = lines.iter().flat_map(|line| line.records()).collect();
    output::print(&text(&machines, &records))?;
    for (stem, chart) in charts(&machines, &records) {
        let [svg, png] = chart.write(&args.out.join(stem))?;
        output::print(&format!("wrote {} and {}", svg.display(), png.display()))?;
    }
    let csv = args.out.join("import.csv");
    output::write_csv(&csv, &lines)?;
    output::print(&format!("wrote {}", csv.display()))?;
    if let Some(json) = &options.json {
        output::write_json(json, &serde_json::json!({ "command": "bench import", "machines": &machines }))?;
        output::print(&format!("wrote {}", json.display()))?;
    }
    Ok(())
}

/// Reads a file of the page. A file that cannot be opened is bad usage, one with other content a failed job.
fn read(path: &Path) -> Result<Machine, Failure> {
    let file = path.display();
    let opened = File::open(path).and_then(|opened| Ok((opened.metadata()?, opened)));
    let opened = match opened {
        Ok((found, _)) if found.is_dir() => Err("a folder".to_owned()),
        Ok((_, opened)) => Ok(opened),
        Err(reason) => Err(reason.to_string()),
    };
    let opened = opened.map_err(|found| {
        Failure::Usage(format!(
            "bench import: wanted a file that the web page saved, found {file}: {found}; check its name"
        ))
    })?;
    let mut bytes = Vec::new();
    opened.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("{file}: it could not be read"))?;
    let machine = Machine::of(path, &bytes);
    Ok(machine.map_err(|fault| anyhow::anyhow!("{file}: {fault}"))?)
}

/// Reads the bytes of a page's file, and composes text and charts. Returns the number of figures.
pub(crate) fn compose(bytes: &[u8]) -> Result<usize, String> {
    let mut machines = vec![Machine::of(Path::new("page.json"), bytes).map_err(|error| error.to_string())?];
    machines.push(machines[0].clone());
    tell_apart(&mut machines);
    let records: Vec<Record> =
        machines.iter().flat_map(|machine| &machine.figures).flat_map(|line| line.records()).collect();
    let _ = (text(&machines, &records), charts(&machines, &records));
    Ok(machines[0].figures.len())
}

impl Machine {
    fn of(path: &Path, bytes: &[u8]) -> anyhow::Result<Self> {
        let again = "save it again with the page's button";
        ensure!(
            bytes.len() as u64 <= MOST_BYTES,
            "wanted at most {} KiB, found more; this is no file of the page",
            MOST_BYTES >> 10
        );
        let json: serde_json::Value =
            serde_json::from_slice(bytes).map_err(|why| anyhow::anyhow!("wanted JSON, found {why}; {again}"))?;
        let schema = json.get("schema").map_or_else(|| "none".to_owned(), ToString::to_string);
        ensure!(
            json["schema"] == SCHEMA,
            "wanted \"schema\": \"{SCHEMA}\", found {}; take a file of the page, and a page of this version of hotrow",
            plain(&schema)
        );
        let page: Page = serde_json::from_value(json)
            .map_err(|why| anyhow::anyhow!("wanted all fields of {SCHEMA}, found {why}; {again}"))?;
        let SelfTest { cases, passed } = page.self_test;
        ensure!(
            cases > 0 && passed == cases,
            "wanted a passed self-test, found {passed} of {cases} cases passed; kernels that are not known to be right have no speed: update \
             browser and driver, and measure again"
        );
        ensure!(
            (1..=MOST_FIGURES).contains(&page.figures.len()),
            "wanted 1 to {MOST_FIGURES} figures, found {}; let the page run to its end",
            page.figures.len()
        );
        let adapter = page.adapter;
        let software = adapter.is_software();
        let name = if software { adapter.title() + " (software)" } else { adapter.title() };
        let line = |(number, figure)| {
            Line::of(&name, figure).map_err(|why| anyhow::anyhow!("figure {number}: {why}; measure again"))
        };
        let figures = (1..).zip(page.figures).map(line).collect::<anyhow::Result<_>>()?;
        let [version, date, agent] = [page.version, page.date, page.agent].map(|text| printable(&text, 200));
        let file = path.display().to_string();
        Ok(Self { name, software, file, version, date, agent, adapter, self_test: page.self_test, figures })
    }

    /// What the page says about the machine.
    fn about(&self) -> String {
        let Adapter { backend, subgroups, timestamps, .. } = &self.adapter;
        let with = |is: bool| if is { "with" } else { "without" };
        format!(
            "- {}: {}, {} subgroups, {} timestamps; self-test passed, {} cases; {}, {}; {}{}\n",
            self.name,
            plain(backend),
            with(*subgroups),
            with(*timestamps),
            self.self_test.cases,
            self.version,
            self.date,
            self.agent,
            if self.software { "; a software adapter: its figures show that it runs, not how fast" } else { "" },
        )
    }
}

impl Adapter {
    /// Its name. A browser that protects its user may leave any of the texts empty.
    fn title(&self) -> String {
        let parts = [&self.vendor, &self.architecture, &self.device].map(|part| plain(part));
        let joined = parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ");
        let named =
            [plain(&self.name), plain(&self.description), plain(&joined)].into_iter().find(|name| !name.is_empty());
        named.unwrap_or_else(|| "unnamed adapter".to_owned())
    }

    fn is_software(&self) -> bool {
        let Self { name, vendor, architecture, device, description, .. } = self;
        let said = [name, vendor, architecture, device, description].map(|text| text.to_lowercase());
        said.iter().any(|text| SOFTWARE.iter().any(|part| text.contains(part)))
    }
}

/// A text of a file for one line of a terminal and for a cell of a table.
fn printable(text: &str, letters: usize) -> String {
    let harmless = |c: char| if c.is_control() { ' ' } else { c };
    text.replace('|', "/").chars().map(harmless).take(letters).collect::<String>().trim().to_owned()
}

fn plain(text: &str) -> String {
    printable(text, NAME)
}

impl Line {
    fn of(machine: &str, figure: serde_json::Value) -> anyhow::Result<Self> {
        let figure: Figure = serde_json::from_value(figure)
            .map_err(|why| anyhow::anyhow!("wanted all fields of a figure, found {why}"))?;
        let Figure { measure, stage, precision, dim, rows, hit_rate, seconds, bytes, rounds } = figure;
        let (measure, machine) = (plain(&measure), machine.to_owned());
        ensure!(!measure.is_empty(), "wanted the name of a measure, found none");
        let measure = stage.map_or(measure.clone(), |stage| format!("{measure} {}", plain(&stage)));
        ensure!(seconds > 0.0, "{measure}: wanted seconds above 0, found {seconds}");
        let bytes_per_second = bytes / seconds;
        ensure!(
            bytes >= 0.0 && bytes_per_second.is_finite(),
            "{measure}: wanted bytes from 0 on, found {bytes} in {seconds} s"
        );
        ensure!(rounds > 0, "{measure}: wanted at least one round, found {rounds}");
        if let Some(name) = &precision {
            let known = Precision::ALL.map(|precision| precision.to_string());
            ensure!(
                known.contains(name),
                "{measure}: wanted a precision of {}, found {}",
                known.join(", "),
                plain(name)
            );
        }
        let share = hit_rate.is_none_or(|rate| (0.0..=1.0).contains(&rate));
        ensure!(share, "{measure}: wanted a hit_rate from 0 to 1, found {}", hit_rate.unwrap_or_default());
        // A point of a curve.
        if ["forward", "backward"].contains(&measure.as_str()) {
            let has = [precision.is_some(), dim.is_some(), rows.is_some(), hit_rate.is_some()];
            let lacks = ["precision", "dim", "rows", "hit_rate"].into_iter().zip(has).find(|(_, has)| !has);
            ensure!(lacks.is_none(), "{measure}: wanted a {}, found none", lacks.map_or("", |(name, _)| name));
        }
        Ok(Self { machine, measure, precision, dim, rows, hit_rate, seconds, bytes, bytes_per_second, rounds })
    }

    /// Time and bandwidth.
    fn records(&self) -> [Record; 2] {
        let number = |of: Option<u32>| of.map_or_else(|| Value::from("-"), Value::from);
        let setting = Setting::default()
            .with("machine", self.machine.as_str())
            .with("measure", self.measure.as_str())
            .with("precision", self.precision.as_deref().map_or_else(|| "-".to_owned(), str::to_uppercase))
            .with("dim", number(self.dim))
            .with("rows", number(self.rows));
        // A column of the table takes all rates that round to its percent.
        let setting = self
            .hit_rate
            .iter()
            .fold(setting, |setting, rate| setting.with("hits", 100.0 * rate).with("percent", (100.0 * rate).round()));
        let record = |what: &str, value, unit| Record::new(what, "import", &setting, value, unit);
        [record("time", self.seconds, Unit::Seconds), record("bandwidth", self.bytes_per_second, Unit::BytesPerSecond)]
    }
}

/// Gives every machine another name: those of one name get the name of their file, and a number where this is the same too.
fn tell_apart(machines: &mut [Machine]) {
    let names: Vec<String> = machines.iter().map(|machine| machine.name.clone()).collect();
    let mut known = BTreeSet::new();
    for (machine, name) in machines.iter_mut().zip(&names) {
        if names.iter().filter(|other| *other == name).count() > 1 {
            let stem = Path::new(&machine.file).file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
            machine.name = format!("{name} ({})", plain(&stem));
        }
        let base = machine.name.clone();
        let mut number = 1;
        // Another machine may be called what this one is called now.
        while known.contains(&machine.name) || (machine.name != *name && names.contains(&machine.name)) {
            number += 1;
            machine.name = format!("{base}, {number}");
        }
        known.insert(machine.name.clone());
        machine.figures.iter_mut().for_each(|line| line.machine.clone_from(&machine.name));
    }
}

fn key(record: &Record, name: &str) -> String {
    record.key(name).map(|value| value.to_string()).unwrap_or_default()
}

/// The machines, bandwidth by hit rate, and all other figures.
fn text(machines: &[Machine], records: &[Record]) -> String {
    let about: String = machines.iter().map(Machine::about).collect();
    let mut text = format!("hotrow bench import {}\n{about}", env!("CARGO_PKG_VERSION"));
    // Machines stand below each other.
    let mut shapes = BTreeMap::new();
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_cached_key(|record| {
        let next = shapes.len();
        *shapes.entry(["measure", "precision", "dim", "rows"].map(|name| key(record, name))).or_insert(next)
    });
    let (rates, others): (Vec<&Record>, Vec<&Record>) =
        sorted.into_iter().partition(|record| record.key("percent").is_some());
    let rates = rates.into_iter().filter(|record| record.is("what", "bandwidth"));
    let lines = ["measure", "precision", "dim", "rows", "machine"];
    for (title, table) in [
        ("Bandwidth, by hit rate in percent.", table(rates, &lines, "percent")),
        ("Other figures.", table(others, &lines, "what")),
    ] {
        text += &table.map(|table| format!("\n{title}\n\n{table}\n")).unwrap_or_default();
    }
    text
}

/// The charts with their file stems, one for each precision and dim: bandwidth against hit rate, two lines a machine.
fn charts(machines: &[Machine], records: &[Record]) -> Vec<(String, Chart)> {
    let is_point = |record: &&Record| {
        record.is("what", "bandwidth") && (record.is("measure", "forward") || record.is("measure", "backward"))
    };
    let points: Vec<&Record> = records.iter().filter(is_point).collect();
    let shapes: BTreeSet<[String; 2]> =
        points.iter().map(|record| ["precision", "dim"].map(|name| key(record, name))).collect();
    let chart = |[precision, dim]: [String; 2]| {
        let mine: Vec<&Record> = points
            .iter()
            .filter(|record| record.is("precision", &precision) && record.is("dim", &dim))
            .copied()
            .collect();
        let sizes: BTreeSet<String> = mine.iter().map(|record| key(record, "rows")).collect();
        let label = |record: &Record| {
            let rows = if sizes.len() > 1 { format!(", {} rows", key(record, "rows")) } else { String::new() };
            format!("{}, {}{rows}", key(record, "machine"), key(record, "measure"))
        };
        let mut chart = Chart::new("Hit rate (% of accesses)", "Bandwidth");
        let rows = sizes.first().filter(|_| sizes.len() == 1).map_or_else(String::new, |rows| format!("{rows} "));
        chart.title = format!("Bandwidth against hit rate: {precision}, {rows}rows x {dim}");
        chart.x_range = Some((0.0, 100.0));
        let style = |record: &Record| Style {
            colour: machines.iter().position(|machine| record.is("machine", &machine.name)).unwrap_or(0),
            dashed: record.is("measure", "backward"),
            markers: true,
        };
        let labelled: Vec<Record> = mine
            .into_iter()
            .map(|record| Record { setting: record.setting.clone().with("line", label(record)), ..record.clone() })
            .collect();
        chart.lines(&labelled, "line", |record| record.setting.number("hits"), style);
        let top = |series: &Series| series.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let (slowest, fastest) = chart.series.iter().map(top).fold((f64::MAX, 0.0), |(a, b), y| (y.min(a), y.max(b)));
        // Beside a machine ten times as fast a line would lie on the axis.
        chart.log_y = fastest > 10.0 * slowest;
        chart.y_range = (!chart.log_y).then_some((0.0, fastest * 1.05));
        (format!("import-{}-{dim}", precision.to_lowercase()), chart)
    };
    shapes.into_iter().map(chart).collect()
}
