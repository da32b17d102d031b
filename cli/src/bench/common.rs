//! The options of every mode of `hotrow bench`, and the files of a run.

use hotrow_report::failure::Failure;
use hotrow_report::options::Options;
use hotrow_report::output;
use hotrow_report::records::{Select, table};
use hotrow_report::run::Run;
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

    /// Prints the first `printed` tables of the run's command, writes all with JSON and CSV, and names the files.
    ///
    /// # Errors
    /// If nothing was measured.
    pub(super) fn finish(
        &self,
        options: &Options,
        run: &Run,
        stem: &str,
        printed: usize,
        charts: &[[PathBuf; 2]],
    ) -> anyhow::Result<()> {
        let tables = tables(run)?;
        output::print(&run.markdown(&tables[..printed.min(tables.len())]))?;
        let markdown = self.out.join(stem).with_extension("md");
        output::write_file(&markdown, run.markdown(&tables).as_bytes())?;
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

/// A line of `data/tables.csv`: the title, the selected records, the names, separated by `|`, whose values make the lines, and the name whose values
/// make the columns.
#[derive(serde::Deserialize)]
struct Shown {
    command: String,
    title: String,
    what: String,
    shape: String,
    setting: String,
    lines: String,
    across: String,
}

/// The tables of a run's command that have figures, with their titles.
fn tables(run: &Run) -> anyhow::Result<Vec<(String, String)>> {
    let all = csv::Reader::from_reader(&include_bytes!("../../data/tables.csv")[..]).into_deserialize();
    let draw = |one: Shown| {
        let select = Select { what: &one.what, shape: &one.shape, setting: &one.setting };
        let lines: Vec<&str> = one.lines.split('|').collect();
        let drawn = run.command.ends_with(&one.command).then(|| table(run.select(select), &lines, &one.across))?;
        Some((one.title, drawn?))
    };
    all.filter_map(|line| line.map(draw).transpose()).map(|drawn| Ok(drawn?)).collect()
}
