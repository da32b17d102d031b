//! Options that every subcommand takes.

use crate::failure::{Failure, ensure_usage};
use crate::names::one_of;
use crate::output;
use crate::spec::read;
use crate::trace::{self, Reading, Source, Trace, TraceError};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use hotrow::{Context, Error, adapter};
use hotrow_dist::{WireForm, WireOptions};
use hotrow_plan::simulate::WINDOW_WAYS;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most rows of a group of tables.
pub const MOST_ROWS: u32 = u32::MAX - 1;

/// Options that every subcommand takes, before or after its name.
#[derive(Debug, Args)]
pub struct Options {
    /// Write the results to FILE as JSON
    #[arg(long, global = true, value_name = "FILE", value_parser = output::file())]
    pub json: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, global = true, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// Backend
    #[arg(long, global = true, value_enum, default_value_t = Backend::Auto)]
    pub backend: Backend,
    /// Folder in which traces are looked up by name [default: the environment's `HOTROW_DATA`]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// How traces are read.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct TraceArgs {
    /// Column of ids in a trace that is a table (CSV): its name in the header, or its number, from 1 on
    #[arg(long, value_name = "NAME|N", allow_negative_numbers = true)]
    pub column: Option<String>,
    /// Most memory for numbering ids that are text or have more than 32 bits
    #[arg(long, value_name = "BYTES", default_value_t = ByteSize::gib(4), value_parser = size)]
    pub memory: ByteSize,
}

/// How rows and gradients go between ranks.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub struct WireArgs {
    /// Form of rows between ranks: exact, fp16 or int8
    #[arg(long, value_name = "FORM", default_value_t = WireForm::Exact, value_parser = one_of(WireForm::ALL))]
    pub wire_rows: WireForm,
    /// Form of gradients between ranks: exact, fp16 or int8
    #[arg(long, value_name = "FORM", default_value_t = WireForm::Exact, value_parser = one_of(WireForm::ALL))]
    pub wire_gradients: WireForm,
    /// Sum the gradients of each row before they are sent, by slices of the batch
    #[arg(long)]
    pub summed: bool,
}

impl WireArgs {
    pub const fn options(self) -> WireOptions {
        WireOptions { rows: self.wire_rows, gradients: self.wire_gradients, summed: self.summed }
    }
}

/// The setting of the policy window.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub struct WindowArgs {
    /// Ways of a set that hold recent rows under --policy window, fewer than its 32; 0 is LFU that ages
    #[arg(long, value_name = "N", default_value_t = WINDOW_WAYS, allow_negative_numbers = true, value_parser = whole(0u32..=31))]
    pub window_ways: u32,
}

/// The device that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// A hardware GPU if there is one, else the CPU; for simulate the CPU
    Auto,
    /// A GPU, software ones included
    Gpu,
    /// The CPU
    Cpu,
}

impl Backend {
    /// Opens the adapter; `None` is the CPU. A note says why `auto` chose the CPU, and begins with `doing`, such as `running`.
    pub fn open(self, doing: &str) -> Result<Option<Context>, Error> {
        Ok(match self {
            Self::Cpu => None,
            Self::Gpu => Some(adapter::open_best()?),
            Self::Auto => match adapter::open_hardware() {
                Ok(context) => Some(context),
                Err(reason) => {
                    output::note(&format!("{doing} on the CPU backend: {reason}"));
                    None
                }
            },
        })
    }
}

/// The trace that a command takes if none is given. A note on stderr says so: `doing` is the work that follows, `real` the word for its accesses.
pub fn generated_trace(doing: &str, real: &str) -> String {
    const GENERATED: &str = "zipf:rows=100000,s=1.05,n=1000000";
    output::note(&format!("no --trace: {doing}, {GENERATED}; name a file, or a trace of --data DIR, for real {real}"));
    GENERATED.to_owned()
}

impl Options {
    /// The seed of a group, made from both halves of the option.
    pub const fn group_seed(&self) -> u32 {
        (self.seed ^ (self.seed >> 32)) as u32
    }

    /// Refuses `--backend gpu` if no kernel runs, and `--data` if no trace is looked up.
    pub fn check_used(&self, runs_kernels: bool, looks_up: bool) -> Result<(), Failure> {
        ensure_usage!(
            self.backend != Backend::Gpu || runs_kernels,
            "--backend: wanted auto or cpu, found gpu; nothing runs on a GPU here, leave it out"
        );
        match &self.data {
            Some(folder) if !looks_up => Err(Failure::Usage(format!(
                "--data: wanted --trace beside it, found {} alone; only traces are looked up there, leave it out",
                folder.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Writes the results to the file of `--json`, if there is one.
    pub fn write_json(&self, results: &impl Serialize) -> anyhow::Result<()> {
        self.json.as_deref().map_or(Ok(()), |path| output::write_json(path, results))
    }

    /// The data folder, from the option or the environment.
    pub fn data(&self) -> Option<PathBuf> {
        let by_environment = || std::env::var_os("HOTROW_DATA").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        self.data.clone().or_else(by_environment)
    }

    /// The files of those traces that are files.
    pub fn trace_files(&self, texts: &[String]) -> Vec<PathBuf> {
        let data = self.data();
        texts.iter().filter_map(|text| trace::find(text, data.as_deref()).ok()).collect()
    }

    /// Loads the trace that `text` names, with the file of each access's table if there is one. A wrong specification of a generated trace is bad usage; a
    /// damaged file is not. Notes say how a file was read, where there is a choice.
    pub fn trace(&self, text: &str, args: &TraceArgs, tables: Option<&Path>) -> Result<Trace, Failure> {
        let data = self.data();
        let reading = Reading { column: args.column.as_deref(), memory: Some(args.memory.0), tables };
        let found = trace::load_as(text, &Source { data: data.as_deref(), seed: self.seed }, &reading);
        let found = found.map_err(|error| match error {
            TraceError::Spec(text) => Failure::Usage(text),
            error => error.into(),
        })?;
        found.notes.iter().for_each(|note| output::note(&format!("note: {note}")));
        Ok(found)
    }
}

fn size(text: &str) -> Result<ByteSize, String> {
    read(text, "a size, such as 64MiB", |_: &ByteSize| true)
}

pub fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + Into<u64> + Copy + PartialOrd,
{
    move |text| {
        let (first, last) = (Into::<u64>::into(*range.start()), Into::<u64>::into(*range.end()));
        let bounds = if last == u64::MAX { format!("from {first} on") } else { format!("from {first} to {last}") };
        let wanted = format_args!("a whole number {bounds}, such as {}", first.max(last.min(32)));
        read(text, wanted, |number| range.contains(number))
    }
}

/// Reads a power of two of at most `most`: a number of ranks or of virtual shards.
pub fn power(most: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let wanted = format_args!("a power of two from 1 to {most}, such as 8");
        read(text, wanted, |number: &u32| number.is_power_of_two() && *number <= most)
    }
}

/// Reads a compression: how many times fewer weights than values.
pub fn compression(text: &str) -> Result<f64, String> {
    // No group has more than 2^56 values.
    read(text, "a number from 1 to 7.2e16, such as 100", |times| (1.0..=7.2e16).contains(times))
}

pub fn number(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    read(text, format_args!("a number from {} to {}", range.start(), range.end()), |number| range.contains(number))
}

/// Reads a percentage, 0 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    number(text, 0.0..=100.0)
}
