//! `hotrow bench --suite`: every kernel and whole steps at named shapes, each against the device's own copy bandwidth and the
//! goals.

mod bytes;
mod cases;
mod charts;
mod copy;
pub(crate) mod goals;
pub(crate) mod lab;
mod pinned;
pub(crate) mod report;
pub(crate) mod shapes;
mod size;
mod sort;
mod staged;
mod uncached;
mod windows;
pub(crate) mod workload;

pub(crate) use size::Size;

use crate::failure::Failure;
use crate::options::{Backend, Options};
use crate::output;
use anyhow::Context as _;
use clap::ValueEnum;
use hotrow::{adapter, wgpu};
use lab::Lab;
use report::Report;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Named apart from the group of bench's own options.
#[derive(Debug, clap::Args)]
#[group(id = "suite_options")]
pub(crate) struct Args {
    /// Measure every kernel and whole steps at named shapes instead, against the device's own copy bandwidth
    #[arg(long, group = "mode", conflicts_with_all = ["precision", "policy", "hit_rate", "placement", "optimizer", "rows", "dim", "batch",
        "page_kib", "bus_gb_s", "fault_us"])]
    pub(crate) suite: bool,
    /// Sizes of the suite or of --robe [default: full, small on a software driver]
    #[arg(long, value_enum, requires = "mode")]
    pub(crate) size: Option<Size>,
    /// Parts of the suite [default: all]
    #[arg(long, value_enum, value_delimiter = ',', requires = "suite")]
    only: Vec<Part>,
    /// JSON that `benches/side_by_side.py` wrote on the same machine, for the goals that compare; may be given again
    #[arg(long, value_name = "FILE", requires = "suite")]
    beside: Vec<PathBuf>,
    /// Commit to put into the results [default: the environment's `HOTROW_COMMIT`, then and at build]
    #[arg(long, value_name = "HASH", requires = "mode")]
    commit: Option<String>,
}

/// A part of the suite. In this order: what is short or decides a goal comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All rows resident: gather, forward, backward
    Hits,
    /// NVIDIA's shape
    Nvidia,
    /// 95 % hits, the rest over the bus; unified memory
    Bus,
    /// No cache: FP32 and INT8 rows over the bus
    Uncached,
    /// 95 % hits, staged with the next batch prefetched and without, against mapped; bytes counted against bytes copied
    Staged,
    /// A cache larger than a binding
    Windows,
    /// The sort alone
    Sort,
    /// Time against work
    Scaling,
    /// One row takes a tenth of the accesses
    Skew,
    /// SGD, row-wise and element-wise AdaGrad
    Optimizers,
    /// Hot rows pinned: caches of 128 to 1024 MB against none, hot batches, an epoch
    Pinned,
    /// A thousand indices
    Small,
    /// Shaders with wgpu's runtime checks and without
    Trusted,
    /// TBE's shape
    Tbe,
}

/// What other libraries reached on the same machine.
#[derive(Debug)]
pub(crate) struct Beside(Vec<serde_json::Value>);

impl Beside {
    fn read(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let read = |path: &PathBuf| {
            let wanted = || format!("{}: wanted JSON as benches/side_by_side.py writes it", path.display());
            serde_json::from_str(&std::fs::read_to_string(path).with_context(wanted)?).with_context(wanted)
        };
        paths.iter().map(read).collect::<anyhow::Result<_>>().map(Self)
    }

    /// `sorts` is a list of `{"name", "pairs", "pairs_per_second"}`.
    fn pairs_per_second(&self, name: &str, pairs: u32) -> Option<f64> {
        let sorts = self.0.iter().filter_map(|value| value["sorts"].as_array()).flatten();
        sorts
            .filter(|sort| sort["name"] == name && sort["pairs"] == pairs)
            .find_map(|sort| sort["pairs_per_second"].as_f64())
    }
}

/// Runs the suite.
pub(crate) fn run(options: &Options, args: &Args, out: &Path, seconds: Option<u64>) -> Result<(), Failure> {
    if options.backend == Backend::Cpu {
        return Err(Failure::Usage(
            "--suite: wanted a GPU backend, found --backend cpu; the suite measures kernels".into(),
        ));
    }
    std::fs::create_dir_all(out)
        .map_err(|error| anyhow::anyhow!("{}: wanted a folder for the results: {error}", out.display()))?;
    let beside = Beside::read(&args.beside)?;
    let context = match options.backend {
        Backend::Gpu => adapter::open_best(adapter::Wanted::Any)?,
        // One sentence, and how to have it all the same.
        _ => adapter::open_best(adapter::Wanted::Hardware)
            .map_err(|error| anyhow::anyhow!("{error}; --backend gpu takes a software driver too"))?,
    };
    let heard = listen(&context);
    let hardware = context.caps().is_hardware();
    let size = args.size.unwrap_or(if hardware { Size::Full } else { Size::Small });
    let budget = Duration::from_secs(seconds.unwrap_or(size.seconds()));
    let lab = Lab::new(&context, size, options.group_seed(), budget);
    let mut report = Report::new(&context, &lab, options.seed, commit(args));
    report.goals = goals::all();
    report.copies = copy::all(&lab)?;
    report.copy_bytes_per_second = copy::best(&report.copies, copy::Path::WithinDevice);
    report.bus_bytes_per_second = copy::best(&report.copies, copy::Path::ToDevice);
    report.bus_out_bytes_per_second = copy::best(&report.copies, copy::Path::ToHost);
    let parts = Part::value_variants().iter().copied();
    for part in parts.filter(|part| args.only.is_empty() || args.only.contains(part)) {
        let name = part.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        if lab.out_of_time() {
            report.left_out.push(format!("{name}: out of time after {:.0} s", lab.seconds()));
            continue;
        }
        let start = lab.seconds();
        let done = match part {
            Part::Hits => cases::hits(&lab, &mut report),
            Part::Nvidia => cases::nvidia(&lab, &mut report),
            Part::Bus => cases::over_the_bus(&lab, &mut report),
            Part::Uncached => uncached::run(&lab, &mut report),
            Part::Staged => staged::run(&lab, &mut report),
            Part::Windows => windows::run(&lab, &mut report),
            Part::Sort => sort::run(&lab, &mut report, &beside),
            Part::Scaling => cases::scaling(&lab, &mut report),
            Part::Skew => cases::skew(&lab, &mut report),
            Part::Optimizers => cases::optimizers(&lab, &mut report),
            Part::Pinned => pinned::run(&lab, &mut report),
            Part::Small => cases::small(&lab, &mut report),
            Part::Trusted => cases::trusted(&lab, &mut report),
            Part::Tbe => cases::tbe(&lab, &mut report),
        };
        // A part that does not fit this device takes nothing away from the others.
        if let Err(error) = done {
            report.left_out.push(format!("{name}: {error:#}"));
        }
        if let Some(error) = first(&heard) {
            report.left_out.push(format!("{name}: its figures are not to be trusted: {error}"));
        }
        output::note(&format!("suite: {name} took {:.1} s", lab.seconds() - start));
    }
    report.seconds = lab.seconds();
    report.set_shares();
    finish(options, out, &report)
}

fn finish(options: &Options, out: &Path, report: &Report) -> Result<(), Failure> {
    output::print(&report.tables())?;
    let mut written = charts::write(report, out)?;
    let markdown = out.join("goals.md");
    output::write_file(&markdown, report.goals_as_markdown().as_bytes())?;
    let json = options.json.clone().unwrap_or_else(|| out.join("suite.json"));
    output::write_json(&json, report)?;
    written.extend([markdown, json]);
    for path in &written {
        output::print(&format!("wrote {}", path.display()))?;
    }
    // Speed is for the reader to judge; this is not.
    if !report.wrong.is_empty() {
        return Err(anyhow::anyhow!("--suite: {}", report.wrong.join("; ")).into());
    }
    if report.cases.is_empty() && report.pinned.is_none() && report.sorts.is_empty() && report.paces.is_empty() {
        return Err(anyhow::anyhow!("--suite: wanted measurements, found none: {}", report.left_out.join("; ")).into());
    }
    Ok(())
}

/// What a device complained of where nobody asked.
pub(crate) type Heard = Arc<Mutex<Vec<String>>>;

/// Collects what the device complains of. It is this command's own; without a handler of its own wgpu panics, and all figures so far would
/// be lost.
pub(crate) fn listen(context: &hotrow::Context) -> Heard {
    let heard = Heard::default();
    let sink = heard.clone();
    context.device().on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        sink.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
    }));
    heard
}

/// The first complaint since it was last asked.
pub(crate) fn first(heard: &Heard) -> Option<String> {
    heard.lock().unwrap_or_else(PoisonError::into_inner).drain(..).next()
}

pub(crate) fn commit(args: &Args) -> String {
    let by_environment = || std::env::var("HOTROW_COMMIT").ok().filter(|commit| !commit.is_empty());
    let at_build = || option_env!("HOTROW_COMMIT").map(str::to_owned);
    args.commit.clone().or_else(by_environment).or_else(at_build).unwrap_or_else(|| "unknown commit".to_owned())
}
