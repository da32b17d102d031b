//! What the benchmarks without criterion share: options, who measures, where results go.

use std::path::PathBuf;

use hotrow::Context;
use serde::Serialize;

/// Options that cargo and criterion's benchmarks have, too.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// Show that it works, at small sizes
    #[arg(long)]
    pub(crate) test: bool,
    /// What `cargo bench` says to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
    /// Runs only if this is part of the benchmark's name
    filter: Option<String>,
    /// Write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    /// Whether the benchmark of this name is asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
    }

    pub(crate) fn write(&self, results: &impl Serialize) {
        if let Some(path) = &self.json {
            let mut text = serde_json::to_string_pretty(results).unwrap();
            text.push('\n');
            std::fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// Where figures come from: without it they are worth nothing.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    adapter: String,
    driver: String,
    /// A software adapter: its times show that it runs, not how fast.
    software_adapter: bool,
    threads: usize,
}

impl Machine {
    pub(crate) fn of(context: &Context) -> Self {
        let info = context.device().adapter_info();
        Self {
            driver: format!("{} {}", info.driver, info.driver_info),
            software_adapter: !context.caps().is_hardware(),
            adapter: info.name,
            threads: rayon::current_num_threads(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let software = if self.software_adapter { ", a software adapter: it runs, no speed is claimed" } else { "" };
        write!(f, "{} ({}), {} threads{software}", self.adapter, self.driver, self.threads)
    }
}

/// The one in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { f64::midpoint(values[(n - 1) / 2], values[n / 2]) }
}
