//! The results of a grid: CSV and JSON of all figures, tables as in Yang 2020's Tables 2 to 6, and its Figures 2 and 4 to 7.

use super::super::asked::LOW;
use super::super::charts;
use super::super::figures::{self, Cell, DROPS, LINE, LOSS_CHANGE, NEUTRAL, SIZE};
use super::super::journal::{Record, Subject};
use super::super::setting::{Setting, WAYS};
use hotrow_cli::output;
use hotrow_cli::plot::Chart;
use hotrow_cli::report::goals::{HEAD, Judged, goals};
use hotrow_cli::report::{self, Record as Figure, Unit};
use hotrow::{Policy, Rounding};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The results of a grid: the head of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Report {
    schema: u32,
    #[serde(flatten)]
    subject: Subject,
    pub(super) runs: usize,
    pub(super) goals: Vec<Judged>,
    pub(super) failures: Vec<Failed>,
    #[serde(skip)]
    figures: Vec<Figure>,
}

#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Failed {
    setting: String,
    seed: u64,
    reason: String,
}

/// Caches with a table and a chart of their own: name, name of the chart, and the place in Yang 2020. Other ways are run for few cells only.
const CACHES: [(&str, &str, &str); 4] = [
    ("1-way LRU", "lru-1", "Table 4"),
    ("32-way LRU", "lru-32", "Table 8"),
    ("1-way LFU", "lfu-1", "Table 5"),
    (LFU, "lfu-32", "Tables 3 and 9"),
];
const LFU: &str = "32-way LFU";

impl Report {
    /// `records` has one record for each run.
    pub(in super::super) fn new(subject: &Subject, records: &[Record]) -> Self {
        // A fixed order, independent of the order in which runs ended, fixes the last bits of sums.
        let rows = |record: &Record| Some((record.setup.rows()?, record.clone()));
        let mut records: Vec<(Setting, Record)> = records.iter().filter_map(rows).collect();
        records.sort_by(|(a, one), (b, other)| a.cmp_place(b).then(one.seed.cmp(&other.seed)));
        let records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
        let failed = |record: &Record| {
            Some(Failed { setting: record.setup.label(), seed: record.seed, reason: record.failure.clone()? })
        };
        let cells = figures::cells(&records);
        let to_judge = to_judge(&subject.task, &cells);
        Self {
            schema: 3,
            subject: subject.clone(),
            runs: records.len(),
            goals: goals("grid").iter().map(|goal| goal.judge(&to_judge, true)).collect(),
            failures: records.iter().filter_map(failed).collect(),
            figures: figures::records(&subject.task, &cells),
        }
    }

    /// Writes grid.csv, grid.json and grid.md.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        report::write_csv(&folder.join("grid.csv"), &self.figures)?;
        self.write_json(&folder.join("grid.json"))?;
        output::write_file(&folder.join("grid.md"), self.markdown().as_bytes())
    }

    pub(super) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        report::write_json(path, self, &self.figures)
    }

    pub(in super::super) fn markdown(&self) -> String {
        let mut parts = vec![format!("# {}: low precision against FP32", self.subject.task), self.fp32()];
        let drop = self.drop();
        let score = drop.trim_end_matches(" drop");
        for (title, what) in
            [("Increase of the test log-loss".to_owned(), LOSS_CHANGE), (format!("Drop of the {score}"), drop)]
        {
            if self.has(what) {
                parts.push(format!("## {title}, %"));
                parts.extend(self.changes(what));
            }
        }
        let mut goals = output::table(HEAD, 1);
        self.goals.iter().for_each(|goal| _ = goals.add_row(goal.line()));
        for (title, table) in [
            ("Hit rate (Yang 2020, Table 6)", report::table(&self.hit_rates(), &[SIZE], "cache")),
            ("Memory and speed", self.costs()),
            ("Goals", Some(goals.to_string())),
        ] {
            parts.extend(table.map(|table| format!("## {title}\n\n{table}")));
        }
        let failed = |failed: &Failed| format!("- {}, seed {}: {}", failed.setting, failed.seed, failed.reason);
        if !self.failures.is_empty() {
            let failures: Vec<String> = self.failures.iter().map(failed).collect();
            parts.push(format!("## Runs that failed\n\n{}", failures.join("\n")));
        }
        let hyper: Vec<String> = self.subject.hyper.iter().map(|(name, value)| format!("{name} {value}")).collect();
        parts.push(format!("Taken with: {}.\n", hyper.join(", ")));
        parts.join("\n\n")
    }

    fn has(&self, what: &str) -> bool {
        self.figures.iter().any(|figure| figure.what == what)
    }

    /// The name of accuracy's drop, or of the AUC's if the task has no accuracy.
    fn drop(&self) -> &'static str {
        if self.has("accuracy") { DROPS[0] } else { DROPS[1] }
    }

    fn fp32(&self) -> String {
        let of = |what: &&str| self.figures.iter().find(|figure| figure.what == *what && figure.is("tables", "fp32"));
        let scores = ["test loss", "accuracy", "AUC"].iter().filter_map(of);
        let scores: Vec<String> = scores.map(|figure| format!("{} {}", figure.what, figure.text())).collect();
        if scores.is_empty() {
            return "No run in FP32.".to_owned();
        }
        format!(
            "FP32: {}. Changes are in percent of FP32's with the same seed, worse above 0; ±: half of the 95 % interval over the seeds.",
            scores.join(", ")
        )
    }

    fn changes(&self, what: &str) -> Vec<String> {
        let of = |keep: &dyn Fn(&Figure) -> bool| -> Vec<&Figure> {
            self.figures.iter().filter(|figure| figure.what == what && keep(figure)).collect()
        };
        let plain = of(&|figure| figure.is("cache", "none") && !figure.is("precision", "fp32"));
        let mut tables =
            vec![("Without a cache (Yang 2020, Table 2)".to_owned(), report::table(plain, &["rounding"], "precision"))];
        for (name, _, source) in CACHES {
            let table = report::table(of(&|figure| figure.is("cache", name)), &[SIZE], LINE);
            tables.push((format!("{name} (Yang 2020, {source})"), table));
        }
        let other = of(&|figure| stochastic_lfu(figure) && !figure.is("ways", "1") && !figure.is("ways", "32"));
        let beside = |figure: &Figure| {
            let same = |other: &&Figure| ["precision", SIZE].iter().all(|name| figure.key(name) == other.key(name));
            stochastic_lfu(figure) && other.iter().any(same)
        };
        let by_ways = report::table(of(&beside), &["precision", SIZE], "ways");
        tables.push(("LFU, stochastic, by ways (Yang 2020, Figure 6)".to_owned(), by_ways));
        tables.into_iter().filter_map(|(title, table)| Some(format!("{title}:\n\n{}", table?))).collect()
    }

    /// The hit rate of each cache and size. It does not depend on precision and rounding, so the first cell stands for all.
    fn hit_rates(&self) -> Vec<Figure> {
        let mut rates: Vec<Figure> = Vec::new();
        for (name, ..) in CACHES {
            for figure in self.figures.iter().filter(|figure| figure.what == "hit rate" && figure.is("cache", name)) {
                if !rates.iter().any(|rate| rate.is("cache", name) && rate.key(SIZE) == figure.key(SIZE)) {
                    rates.push(in_line(figure, name));
                }
            }
        }
        rates
    }

    /// A table of costs: each setting without a cache, and with 32-way LFU and stochastic rounding.
    fn costs(&self) -> Option<String> {
        const COSTS: [&str; 6] =
            ["memory by formula", "memory", "hit rate", "bytes moved", "samples a second", LOSS_CHANGE];
        let listed = |figure: &&Figure| {
            let rounded = figure.is("rounding", "stochastic") || figure.is("tables", "fp32");
            COSTS.contains(&figure.what.as_str()) && rounded && (figure.is("cache", "none") || figure.is("cache", LFU))
        };
        report::table(self.figures.iter().filter(listed), &["tables"], "what")
    }

    /// Draws the charts that have data, and returns the files.
    pub(in super::super) fn draw(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut charts = Vec::new();
        for (stem, what) in [("loss", LOSS_CHANGE), ("score", self.drop())] {
            charts.extend(self.charts(what).into_iter().map(|(name, chart)| (format!("{stem}-{name}"), chart)));
        }
        let mut hits = charts::places(&self.hit_rates(), SIZE, 1);
        (hits.title, hits.y_range) = (format!("{}: hit rate over training", self.subject.task), Some((0.0, 100.0)));
        hits.y_label = "Hit rate, %".to_owned();
        charts.push(("hit-rate".to_owned(), hits));
        let mut written = Vec::new();
        for (stem, chart) in charts.into_iter().filter(|(_, chart)| !chart.series.is_empty()) {
            written.extend(chart.write(&folder.join(stem))?);
        }
        Ok(written)
    }

    /// The charts of Yang 2020's Figures 2 and 4 to 8 for a change, by name.
    pub(in super::super) fn charts(&self, what: &str) -> Vec<(String, Chart)> {
        let figures: Vec<&Figure> = self.figures.iter().filter(|figure| figure.what == what).collect();
        let of = |keep: &dyn Fn(&Figure) -> bool| -> Vec<&Figure> {
            figures.iter().copied().filter(|figure| keep(figure)).collect()
        };
        let mut charts = Vec::new();
        let mut policies = Vec::new();
        for (name, stem, _) in
            CACHES.into_iter().filter(|(name, ..)| !of(&|figure| figure.is("cache", name)).is_empty())
        {
            // A cell without a cache is drawn at size 0.
            let sizes = |figure: &Figure| figure.is("cache", name) || figure.is("cache", "none");
            charts.push((format!("by-size-{stem}"), name.to_owned(), charts::places(of(&sizes), SIZE, 1)));
            policies.extend(of(&sizes).into_iter().map(|figure| {
                let rounding = figure.key("rounding").map(|rounding| rounding.to_string()).unwrap_or_default();
                in_line(figure, &format!("{name} {rounding}"))
            }));
        }
        for precision in LOW.map(|precision| precision.to_string()) {
            // A line of one point is the cell without a cache, which all lines share.
            let by_policy = policies.iter().filter(|figure| figure.is("precision", &precision));
            let title = format!("{precision}, policies and ways");
            charts.push((format!("by-policy-{precision}"), title, charts::places(by_policy, SIZE, 2)));
            // A line of two points has the grid's 1 and 32 ways, which other charts show.
            let by_ways = of(&|figure| figure.is("precision", &precision) && stochastic_lfu(figure));
            let by_ways = by_ways
                .into_iter()
                .map(|one| in_line(one, &format!("{} %", one.setting.number(SIZE).unwrap_or_default())));
            let title = format!("{precision} stochastic, LFU by ways");
            let chart = charts::places(&by_ways.collect::<Vec<_>>(), "ways", 3);
            charts.push((format!("by-ways-{precision}"), title, chart));
        }
        let by_memory = of(&|figure| figure.is("rounding", "stochastic")).into_iter().filter_map(|figure| {
            let uncached = figure.is("cache", "none").then(|| in_line(figure, "no cache"));
            uncached.or_else(|| figure.is("cache", LFU).then(|| figure.clone()))
        });
        let title = "memory by formula, stochastic rounding, 32-way LFU (points: cache sizes)".to_owned();
        let mut memory = charts::numbers(&by_memory.collect::<Vec<_>>(), "memory");
        memory.x_label = "Memory against FP32".to_owned();
        charts.push(("by-memory".to_owned(), title, memory));
        let finish = |(stem, title, mut chart): (String, String, Chart)| {
            chart.title = format!("{}: {title}", self.subject.task);
            chart.y_label = format!("{what} against FP32, % (worse above 0)");
            // INT2 with nearest rounding is a thousand times as far from FP32 as FP16 with stochastic rounding.
            (chart.symmetric_y, chart.band) = (Some(NEUTRAL / 2.0), Some(NEUTRAL));
            (stem, chart)
        };
        charts.into_iter().map(finish).collect()
    }
}

/// The figures of the goals. A figure is missing if runs are missing or failed, or if its interval is too wide.
fn to_judge(task: &str, cells: &[Cell]) -> Vec<Figure> {
    let sound_change =
        |cell: &Cell| cell.sound_change().filter(|_| figures::find(cells, Setting::FP32).is_some_and(Cell::is_whole));
    let mut found = Vec::new();
    let mut push = |what: &str, cell: &Cell, value| {
        let setting = report::Setting::default().with("tables", cell.setup.label());
        found.push(Figure::new(what, task, &setting, value, Unit::Score));
    };
    let rows: Vec<(&Cell, Setting)> = cells.iter().filter_map(|cell| Some((cell, cell.setup.rows()?))).collect();
    for &(cell, setting) in &rows {
        let Some(change) = sound_change(cell) else { continue };
        if let Some(no_worse) = change.no_worse() {
            let least = 1.0 + change.low.unwrap_or(0.0) / 100.0;
            push("least loss against FP32", cell, least);
            push("least loss against FP32, or neutral", cell, if no_worse { least.min(1.0) } else { least });
        }
        let nearest = Setting { rounding: Rounding::Nearest, ..setting };
        if let Some(nearest) = figures::find(cells, nearest).and_then(sound_change) {
            push("loss against nearest", cell, (100.0 + change.mean) / (100.0 + nearest.mean));
        }
    }
    let hits = |cell: &Cell| cell.mean("hit rate").filter(|_| cell.is_whole());
    let many = rows.into_iter().filter(|(_, of)| of.has_cache() && (of.policy, of.ways) == (Policy::Lfu, WAYS));
    let against_one =
        many.map(|(cell, of)| Some((cell, hits(cell)? / hits(figures::find(cells, Setting { ways: 1, ..of })?)?)));
    // Every cache size, or no figure.
    for (cell, ratio) in against_one.collect::<Option<Vec<_>>>().unwrap_or_default() {
        push("hits against 1-way", cell, ratio);
    }
    found
}

fn stochastic_lfu(figure: &Figure) -> bool {
    figure.is("policy", "LFU") && figure.is("rounding", "stochastic")
}

/// Puts the figure into this line of a chart.
fn in_line(figure: &Figure, line: &str) -> Figure {
    Figure { setting: figure.setting.clone().with(LINE, line), ..figure.clone() }
}
