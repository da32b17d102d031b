//! The options that the benchmarks without criterion share, and the run that they fill.

use std::path::PathBuf;

use hotrow_cli::report::run::Run;

/// Options that cargo and criterion's benchmarks have, too.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// Show that it works, at small sizes
    #[arg(long)]
    pub(crate) test: bool,
    /// The argument that `cargo bench` passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
    /// Runs only if this is part of the benchmark's name
    filter: Option<String>,
    /// Write the results to FILE as JSON, and beside it as CSV
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Common {
    /// Whether the user asks for the benchmark of this name.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()))
    }

    /// A run without figures.
    pub(crate) fn start(&self, name: &'static str) -> Run {
        Run::new(name, None, 1, if self.test { "small" } else { "full" })
    }

    /// Prints the tables and writes the records.
    pub(crate) fn finish(&self, run: &Run, tables: &[(String, Option<String>)]) {
        println!("{}", run.markdown(tables));
        if let Some(path) = &self.json {
            run.write(&path.with_extension(""), Some(path)).unwrap();
        }
    }
}

/// Bytes that a file of the system reports in kB under this name, if it does.
pub(crate) fn memory(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}
