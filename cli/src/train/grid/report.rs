//! A grid's results: CSV and JSON of all figures, tables in the shape of Yang 2020's Tables 2 to 6, and its Figures 2 and 4 to 7.

use super::super::cells::LOW;
use super::super::charts::{self, LINE};
use super::super::claims::{self, Claim, NEUTRAL};
use super::super::journal::{Record, Subject};
use super::super::setting::{Setting, WAYS};
use super::super::summary::{self, DROPS, LOSS_CHANGE, SIZE};
use crate::names::{self, PolicyName, option_name};
use crate::output;
use crate::plot::Chart;
use crate::report::{self, Record as Figure};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The results of a grid: the head of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Report {
    schema: u32,
    #[serde(flatten)]
    subject: Subject,
    pub(super) runs: usize,
    pub(in super::super) claims: Vec<Claim>,
    pub(super) failures: Vec<Failed>,
    #[serde(skip)]
    figures: Vec<Figure>,
    /// Policies and ways with a table of their own.
    #[serde(skip)]
    caches: Vec<(PolicyName, u32)>,
}

/// A run that did not come to an end.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Failed {
    setting: String,
    seed: u64,
    reason: String,
}

impl Report {
    /// `records`: one a run.
    pub(in super::super) fn new(subject: &Subject, records: &[Record]) -> Self {
        // In a fixed order, whichever run ended first: so the last bits of sums are fixed too.
        let mut records: Vec<&Record> = records.iter().filter(|record| record.setup.rows().is_some()).collect();
        let place = |record: &Record| record.setup.rows().unwrap_or(Setting::FP32);
        records.sort_by(|a, b| place(a).cmp_place(&place(b)).then(a.seed.cmp(&b.seed)));
        let failures = records.iter().filter_map(|record| {
            let reason = record.failure.clone()?;
            Some(Failed { setting: record.setup.label(), seed: record.seed, reason })
        });
        let failures = failures.collect();
        let settings: Vec<Setting> = records.iter().map(|record| place(record)).collect();
        let has = |(policy, ways): &(PolicyName, u32)| {
            settings.iter().any(|of| of.has_cache() && (of.policy, of.ways) == (*policy, *ways))
        };
        // Other ways were run for few cells, and have a table of their own.
        let caches = [PolicyName::Lru, PolicyName::Lfu].into_iter().flat_map(|policy| [(policy, 1), (policy, WAYS)]);
        let records: Vec<Record> = records.into_iter().cloned().collect();
        let cells = summary::cells(&records);
        Self {
            schema: 2,
            subject: subject.clone(),
            runs: records.len(),
            claims: claims::judge(&cells),
            failures,
            figures: summary::records(&subject.task, &cells),
            caches: caches.filter(has).collect(),
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

    /// Tables, claims, failures.
    pub(in super::super) fn markdown(&self) -> String {
        let mut parts = vec![format!("# {}: low precision against FP32", self.subject.task), self.fp32()];
        let score = if self.has("accuracy") { "accuracy" } else { "AUC" };
        let drop = self.drop();
        for (title, what) in
            [("Increase of the test log-loss".to_owned(), LOSS_CHANGE), (format!("Drop of the {score}"), drop)]
        {
            if self.has(what) {
                parts.push(format!("## {title}, %"));
                parts.extend(self.changes(what));
            }
        }
        let titled = |title: &str, table: Option<String>| table.map(|table| format!("## {title}\n\n{table}"));
        parts.extend(titled("Hit rate (Yang 2020, Table 6)", report::table(&self.hit_rates(), &[SIZE], "cache")));
        parts.extend(titled("Memory and speed", self.costs()));
        parts.extend(titled("Claims", Some(self.claims_table())));
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

    /// Accuracy's drop, or that of the AUC where the task has no accuracy.
    fn drop(&self) -> &'static str {
        if self.has(DROPS[0]) { DROPS[0] } else { DROPS[1] }
    }

    fn fp32(&self) -> String {
        let of = |what: &str| self.figures.iter().find(|figure| figure.what == what && figure.is("tables", "fp32"));
        let scores = ["test loss", "accuracy", "AUC"].iter().filter_map(|&what| of(what));
        let scores: Vec<String> = scores.map(|figure| format!("{} {}", figure.what, figure.text())).collect();
        if scores.is_empty() {
            return "No run in FP32.".to_owned();
        }
        format!(
            "FP32: {}. Changes are in percent of FP32's with the same seed, worse above 0; ±: half of the 95 % interval over the seeds.",
            scores.join(", ")
        )
    }

    /// The tables of a change.
    fn changes(&self, what: &str) -> Vec<String> {
        let of = |keep: &dyn Fn(&Figure) -> bool| -> Vec<&Figure> {
            self.figures.iter().filter(|figure| figure.what == what && keep(figure)).collect()
        };
        let plain = of(&|figure| figure.is("cache", "none") && !figure.is("precision", "fp32"));
        let mut tables =
            vec![("Without a cache (Yang 2020, Table 2)".to_owned(), report::table(plain, &["rounding"], "precision"))];
        for &(policy, ways) in &self.caches {
            let (name, source) = (cache_name(policy, ways), source(policy, ways));
            let table = report::table(of(&|figure| figure.is("cache", &name)), &[SIZE], LINE);
            tables.push((format!("{name} ({source})"), table));
        }
        let lfu = |figure: &Figure| figure.is("policy", "LFU") && figure.is("rounding", "stochastic");
        let other =
            |figure: &Figure| figure.setting.number("ways").is_some_and(|ways| ways != 1.0 && ways != f64::from(WAYS));
        let with_others: Vec<&Figure> = of(&|figure| lfu(figure) && other(figure));
        let beside = |figure: &Figure| {
            let same = |name: &str, other: &Figure| figure.key(name) == other.key(name);
            lfu(figure) && with_others.iter().any(|other| same("precision", other) && same(SIZE, other))
        };
        let by_ways = report::table(of(&beside), &["precision", SIZE], "ways");
        tables.push(("LFU, stochastic, by ways (Yang 2020, Figure 6)".to_owned(), by_ways));
        tables.into_iter().filter_map(|(title, table)| Some(format!("{title}:\n\n{}", table?))).collect()
    }

    /// The hit rate of each cache and size. It does not depend on how rows are stored: the first cell stands for all.
    fn hit_rates(&self) -> Vec<Figure> {
        let mut rates: Vec<Figure> = Vec::new();
        for name in self.caches.iter().map(|&(policy, ways)| cache_name(policy, ways)) {
            for figure in self.figures.iter().filter(|figure| figure.what == "hit rate" && figure.is("cache", &name)) {
                let same = |other: &Figure| other.is("cache", &name) && other.key(SIZE) == figure.key(SIZE);
                if !rates.iter().any(same) {
                    rates.push(in_line(figure, &name));
                }
            }
        }
        rates
    }

    /// Costs of each setting without a cache, and under 32-way LFU with stochastic rounding.
    fn costs(&self) -> Option<String> {
        const COSTS: [&str; 6] =
            ["memory by formula", "memory", "hit rate", "bytes moved", "samples a second", LOSS_CHANGE];
        let lfu = cache_name(PolicyName::Lfu, WAYS);
        let listed = |figure: &&Figure| {
            let rounded = figure.is("rounding", "stochastic") || figure.is("tables", "fp32");
            let cache = figure.is("cache", "none") || figure.is("cache", &lfu);
            COSTS.contains(&figure.what.as_str()) && rounded && cache
        };
        report::table(self.figures.iter().filter(listed), &["tables"], "what")
    }

    fn claims_table(&self) -> String {
        let mut table = output::table(["claim", "verdict", "found"], 3);
        for claim in &self.claims {
            table.add_row([&claim.claim, claim.verdict.name(), &claim.found()]);
        }
        table.to_string()
    }

    /// Writes the charts that there is data for; returns the files.
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

    /// Yang 2020's Figures 2 and 4 to 8 of a change, by name.
    pub(in super::super) fn charts(&self, what: &str) -> Vec<(String, Chart)> {
        let figures: Vec<&Figure> = self.figures.iter().filter(|figure| figure.what == what).collect();
        let stochastic_lfu = |figure: &Figure| figure.is("policy", "LFU") && figure.is("rounding", "stochastic");
        let mut charts = Vec::new();
        let mut policies = Vec::new();
        for &(policy, ways) in &self.caches {
            let name = cache_name(policy, ways);
            let of = with_uncached(&figures, &name);
            let stem = format!("by-size-{}-{ways}", option_name(&policy));
            charts.push((stem, name.clone(), charts::places(&of, SIZE, 1)));
            policies.extend(of.iter().map(|figure| {
                let rounding = figure.key("rounding").map(|rounding| rounding.to_string()).unwrap_or_default();
                in_line(figure, &format!("{name} {rounding}"))
            }));
        }
        for precision in LOW.map(|precision| option_name(&precision)) {
            let of: Vec<Figure> =
                policies.iter().filter(|figure| figure.is("precision", &precision)).cloned().collect();
            // One point is the cell without a cache, which is the same for all.
            let title = format!("{precision}, policies and ways");
            charts.push((format!("by-policy-{precision}"), title, charts::places(&of, SIZE, 2)));
            let of = figures.iter().filter(|figure| figure.is("precision", &precision) && stochastic_lfu(figure));
            let by_size =
                |figure: &&Figure| in_line(figure, &format!("{} %", figure.setting.number(SIZE).unwrap_or_default()));
            let of: Vec<Figure> = of.map(by_size).collect();
            // Two points are the grid's 1 and 32 ways, which other charts show.
            let title = format!("{precision} stochastic, LFU by ways");
            charts.push((format!("by-ways-{precision}"), title, charts::places(&of, "ways", 3)));
        }
        let lfu = cache_name(PolicyName::Lfu, WAYS);
        let by_memory = figures.iter().filter(|figure| figure.is("rounding", "stochastic")).filter_map(|figure| {
            let uncached = figure.is("cache", "none").then(|| in_line(figure, "no cache"));
            uncached.or_else(|| figure.is("cache", &lfu).then(|| (*figure).clone()))
        });
        let title = "memory by formula, stochastic rounding, 32-way LFU (points: cache sizes)".to_owned();
        let mut memory = charts::numbers(&by_memory.collect::<Vec<_>>(), "memory");
        memory.x_label = "Memory against FP32".to_owned();
        charts.push(("by-memory".to_owned(), title, memory));
        let finish = |(stem, title, mut chart): (String, String, Chart)| {
            chart.title = format!("{}: {title}", self.subject.task);
            chart.y_label = format!("{what} against FP32, % (worse above 0)");
            // Nearest INT2 is a thousand times as far from FP32 as stochastic FP16.
            (chart.symmetric_y, chart.band) = (Some(NEUTRAL / 2.0), Some(NEUTRAL));
            (stem, chart)
        };
        charts.into_iter().map(finish).collect()
    }
}

/// The figure in this line of a chart.
fn in_line(figure: &Figure, line: &str) -> Figure {
    Figure { setting: figure.setting.clone().with(LINE, line), ..figure.clone() }
}

/// Figures with this cache, and those without one, of size 0.
fn with_uncached(figures: &[&Figure], cache: &str) -> Vec<Figure> {
    let of = |figure: &&&Figure| figure.is("cache", cache) || figure.is("cache", "none");
    figures.iter().filter(of).map(|figure| (*figure).clone()).collect()
}

/// "32-way LFU".
fn cache_name(policy: PolicyName, ways: u32) -> String {
    format!("{ways}-way {}", names::title(policy))
}

fn source(policy: PolicyName, ways: u32) -> &'static str {
    match (policy, ways) {
        (PolicyName::Lfu, WAYS) => "Yang 2020, Tables 3 and 9",
        (PolicyName::Lru, WAYS) => "Yang 2020, Table 8",
        (PolicyName::Lru, _) => "Yang 2020, Table 4",
        _ => "Yang 2020, Table 5",
    }
}
