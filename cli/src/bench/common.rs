//! Options that modes of `hotrow bench` share, and the files of a run.

use hotrow::{GroupConfig, Optimizer, OptimizerKind, Precision};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::one_of;
use hotrow_report::options::{Options, TraceArgs, whole};
use hotrow_report::output;
use hotrow_report::records::{Measurement, Select, table};
use hotrow_report::run::Run;
use hotrow_report::trace::Trace;
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

/// A table whose rows a trace looks up.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Table {
    #[command(flatten)]
    pub(super) reading: TraceArgs,
    /// Accesses of a bag, for a trace without bags
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(1u32..=1 << 16))]
    lookups: u32,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 64, value_parser = whole(1u32..=65536))]
    dim: u32,
    /// Precision of the table
    #[arg(long, default_value_t = Precision::Int8, value_parser = one_of(Precision::ALL))]
    precision: Precision,
    /// Update rule
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Rows that the cache holds, in percent of all rows
    #[arg(long, value_name = "P", default_value_t = 10, value_parser = whole(0u32..=100))]
    cache_percent: u32,
}

impl Table {
    pub(super) fn config(&self, trace: &Trace, seed: u32) -> GroupConfig {
        let rows = trace.ids.iter().max().map_or(1, |&row| row + 1);
        let mut config = GroupConfig::new(&[rows], self.dim)
            .with_precision(self.precision)
            .with_optimizer(Optimizer::usual(self.optimizer, 0.01))
            .with_cache_rows((u64::from(rows) * u64::from(self.cache_percent)).div_ceil(100) as u32);
        config.seed = seed;
        config
    }

    /// The start of each bag of a trace, and the end of the last one.
    pub(super) fn bags(&self, trace: &Trace) -> Result<Vec<u32>, Failure> {
        let offsets = trace.bags(Some(self.lookups).filter(|_| trace.offsets.is_none()))?;
        let (most, name, found) = (trace.ids.len(), &trace.name, self.lookups);
        ensure_usage!(
            offsets.len() >= 2,
            "--lookups: wanted at most {most}, the accesses of {name}, found {found}; take a longer trace"
        );
        Ok(offsets)
    }
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

/// The figures of `data/published.json`, which papers print; the shape of each is its paper's table.
fn published() -> anyhow::Result<Vec<Measurement>> {
    Ok(serde_json::from_str(include_str!("../../data/published.json"))?)
}

/// The tables of a run's command that have figures, with their titles. A table that names a paper's tables among its shapes has their figures, too.
fn tables(run: &Run) -> anyhow::Result<Vec<(String, String)>> {
    let all = csv::Reader::from_reader(&include_bytes!("../../data/tables.csv")[..]).into_deserialize();
    let theirs = published()?;
    let draw = |one: Shown| {
        let select = Select { what: &one.what, shape: &one.shape, setting: &one.setting };
        let lines: Vec<&str> = one.lines.split('|').collect();
        let ours = run.select(select).filter(|_| run.command.ends_with(&one.command));
        let beside = theirs.iter().filter(|record| !one.shape.is_empty() && select.has(record));
        ours.clone().next()?;
        Some((one.title, table(ours.chain(beside), &lines, &one.across)?))
    };
    all.filter_map(|line| line.map(draw).transpose()).map(|drawn| Ok(drawn?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow_report::records::{Setting, Unit};

    #[test]
    fn published_tables_are_whole_and_stand_beside_ours() {
        let (all, shown) = (published().unwrap(), include_str!("../../data/tables.csv"));
        for (table, cells) in (3..15).zip([[28; 4], [42; 4], [24; 4]].concat()) {
            let shape = format!("ROBE Table {table}");
            // 256 M rows at 10x, dense, are blank in the paper.
            let blank = usize::from([3, 5].contains(&table));
            assert_eq!(all.iter().filter(|one| one.shape == shape).count(), cells - blank, "{shape}");
        }
        assert!(all.iter().all(|one| shown.split([',', '|', '"', '\n']).any(|shape| shape == one.shape)));
        let mut run = Run::new("bench robe", None, 1, "full");
        assert!(tables(&run).unwrap().is_empty(), "without ours theirs do not stand alone");
        let setting = Setting::default().with("rows", 256e6).with("compression", 100.0).with("chunk", 32.0);
        run.at("array", &setting).push("forward", 0.005, Unit::Seconds);
        let text: String = tables(&run).unwrap().into_iter().map(|(title, table)| title + &table).collect();
        // Figure 3 (a) and (b): 0.36 and 14.34 ms.
        let has =
            |line: &str| text.lines().any(|one| one.split_whitespace().collect::<Vec<_>>().join(" ").contains(line));
        assert!(has("array | 256 M | - | 5.00 |") && has("ROBE Table 3 | 256 M | - | 0.36 |"), "{text}");
        assert!(
            has("dense gradient | ROBE Table 5 | 256 M | - | 14.3 |") && !has("ROBE Table 3 | 256 M | - | 5.00 |"),
            "{text}"
        );
    }
}
