//! Options and output of all modes: the folder of the results, the begin and end of a run, and its tables.

use crate::failure::Failure;
use crate::options::Options;
use crate::output;
use crate::report::run::Run;
use crate::report::{Select, table};
use std::path::PathBuf;

/// Options of every mode.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Common {
    /// Folder for JSON, CSV, tables and plots
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub(super) out: PathBuf,
    /// Commit to put into the results [default: `HOTROW_COMMIT` when run, else when built, else the clone's]
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
}

impl Common {
    /// Makes the folder of the results, before any measurement.
    pub(super) fn make_folder(&self, options: &Options) -> Result<(), Failure> {
        output::check_folder(&self.out, options.json.as_deref())
    }

    pub(super) fn start(&self, options: &Options, command: &'static str, size: &'static str) -> Run {
        Run::new(command, self.commit.as_deref(), options.seed, size)
    }

    /// Prints the first `printed` tables, writes all with JSON and CSV, and names the files.
    ///
    /// # Errors
    /// If nothing was measured.
    pub(super) fn finish(
        &self,
        options: &Options,
        run: &Run,
        stem: &str,
        (tables, printed): (&[(String, Option<String>)], usize),
        charts: &[[PathBuf; 2]],
    ) -> anyhow::Result<()> {
        output::print(&run.markdown(&tables[..printed]))?;
        let markdown = self.out.join(stem).with_extension("md");
        output::write_file(&markdown, run.markdown(tables).as_bytes())?;
        let [json, csv] = run.write(&self.out.join(stem), options.json.as_deref())?;
        for [svg, png] in charts {
            let png = png.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            output::print(&format!("wrote {} and {png}", svg.display()))?;
        }
        output::print(&format!("wrote {}, {} and {}", markdown.display(), csv.display(), json.display()))?;
        // Copies of the device do not count as measurements of the run.
        if run.records.iter().all(|record| record.spread.is_none() || record.shape == "copy") {
            let why = run.reasons().first().map_or("nothing was asked for", |(why, _)| *why).to_owned();
            anyhow::bail!("{}: wanted measurements, found none: {why}", run.command);
        }
        Ok(())
    }
}

/// A table of a run: its title, the selected records, the names whose values make its lines, and the name whose values make its columns.
pub(super) struct Table {
    title: &'static str,
    records: Select<'static>,
    lines: &'static [&'static str],
    across: &'static str,
}

impl Table {
    /// A table of a shape with a column for each quantity.
    pub(super) const fn new(title: &'static str, shape: &'static str, lines: &'static [&'static str]) -> Self {
        Self { title, records: Select { what: "", shape, setting: "" }, lines, across: "what" }
    }

    /// Selects only these quantities and settings.
    pub(super) const fn only(self, what: &'static str, setting: &'static str) -> Self {
        Self { records: Select { what, setting, ..self.records }, ..self }
    }

    /// Makes a column for each value of this name.
    pub(super) const fn across(self, across: &'static str) -> Self {
        Self { across, ..self }
    }

    pub(super) fn draw(&self, run: &Run) -> (String, Option<String>) {
        (self.title.to_owned(), table(run.select(self.records), self.lines, self.across))
    }
}
