//! A grid's results as CSV, JSON and Markdown tables in the shape of P1's Tables 2 to 6.

use super::cells::LOW;
use super::claims::{self, Claim};
use super::interval::Interval;
use super::record::{Record, Subject};
use super::setting::{Setting, WAYS};
use super::summary::{self, Cell, Row};
use crate::names::{PolicyName, PrecisionName, RoundingName, option_name};
use crate::output;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Everything a grid came to: the schema of the JSON file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    pub(crate) subject: Subject,
    pub(crate) cells: Vec<Cell>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) failures: Vec<Failed>,
}

/// A run that did not come to an end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failed {
    pub(crate) setting: Setting,
    pub(crate) seed: u64,
    pub(crate) reason: String,
}

/// What a column is of: P1's tables give the accuracy, this crate the loss too.
type Measure = fn(&Cell) -> Option<Interval>;

impl Report {
    /// `records`: one a run.
    pub(crate) fn new(subject: &Subject, records: &[Record]) -> Self {
        let cells = summary::cells(records);
        let failed = |record: &Record| {
            let reason = record.failure.clone()?;
            Some(Failed { setting: record.setting, seed: record.seed, reason })
        };
        let failures = records.iter().filter_map(failed).collect();
        Self { subject: subject.clone(), claims: claims::judge(&cells), cells, failures }
    }

    /// Writes grid.csv, grid.json and grid.md.
    pub(crate) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let rows: Vec<Row<'_>> = self.cells.iter().map(|cell| cell.row(&self.subject.task)).collect();
        output::write_csv(&folder.join("grid.csv"), &rows)?;
        output::write_json(&folder.join("grid.json"), self)?;
        output::write_file(&folder.join("grid.md"), self.markdown().as_bytes())
    }

    /// Tables, claims, failures.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let mut say = |line: &str| {
            let _ = writeln!(text, "{line}");
        };
        say(&format!("# {}: low precision against FP32\n", self.subject.task));
        say(&self.fp32());
        for section in self.sections() {
            say(&section);
        }
        say(&format!("## Claims\n\n{}\n", self.claims_table()));
        let exceptions: Vec<&String> = self.claims.iter().flat_map(|claim| &claim.exceptions).collect();
        if !exceptions.is_empty() {
            say("Exceptions:\n");
            exceptions.iter().for_each(|exception| say(&format!("- {exception}")));
            say("");
        }
        if !self.failures.is_empty() {
            say("## Runs that failed\n");
            self.failures.iter().for_each(|failed| say(&failed.show()));
            say("");
        }
        let hyper: Vec<String> = self.subject.hyper.iter().map(|(name, value)| format!("{name} {value}")).collect();
        say(&format!("Taken with: {}.", hyper.join(", ")));
        text
    }

    fn fp32(&self) -> String {
        let Some(cell) = self.find(Setting::FP32) else { return "No run in FP32.\n".to_owned() };
        let mut text = match cell.loss {
            Some(loss) => format!("FP32: test log-loss {loss:.5}"),
            None => "FP32: no run came to its end".to_owned(),
        };
        for (name, value) in [("accuracy", cell.accuracy), ("AUC", cell.auc)] {
            if let Some(value) = value {
                let _ = write!(text, ", {name} {value:.4}");
            }
        }
        format!(
            "{text}; {} seeds. Changes are in percent of FP32's with the same seed, worse above 0, with half of their \
             95 % interval. Columns: nearest / stochastic.\n",
            cell.runs
        )
    }

    fn sections(&self) -> Vec<String> {
        let mut sections = Vec::new();
        let score = if self.cells.iter().any(|cell| cell.accuracy.is_some()) { "accuracy" } else { "AUC" };
        let measures: [(&str, Measure); 2] =
            [("Test log-loss", |cell| cell.loss_change), (score, |cell| cell.score_drop())];
        for (name, measure) in measures {
            if !self.cells.iter().any(|cell| measure(cell).is_some()) {
                continue;
            }
            let what = if name == "Test log-loss" {
                "Increase of the test log-loss".into()
            } else {
                format!("Drop of the {name}")
            };
            sections.push(format!("## {what}, %\n"));
            sections.extend(self.no_cache(measure));
            for (policy, ways) in self.caches() {
                sections.extend(self.cached(policy, ways, measure));
            }
            sections.extend(self.by_ways(measure));
        }
        sections.extend(self.hit_rates());
        sections.extend(self.costs());
        sections
    }

    /// Policies and ways that the grid has.
    pub(super) fn caches(&self) -> Vec<(PolicyName, u32)> {
        let mut caches = Vec::new();
        for policy in [PolicyName::Lru, PolicyName::Lfu] {
            // Other ways were run for few cells, and have a table of their own.
            for ways in [1, WAYS] {
                let has = |cell: &Cell| {
                    cell.setting.has_cache() && (cell.setting.policy, cell.setting.ways) == (policy, ways)
                };
                if self.cells.iter().any(has) {
                    caches.push((policy, ways));
                }
            }
        }
        caches
    }

    /// Cache sizes that the grid has, ascending.
    pub(super) fn sizes(&self) -> Vec<f64> {
        let mut sizes: Vec<f64> =
            self.cells.iter().filter(|cell| cell.setting.has_cache()).map(|cell| cell.setting.cache_percent).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }

    /// P1 Table 2.
    fn no_cache(&self, measure: Measure) -> Option<String> {
        let mut table = output::table([""].into_iter().map(str::to_owned).chain(LOW.map(|p| option_name(&p))), 1);
        let mut any = false;
        for rounding in [RoundingName::Nearest, RoundingName::Stochastic] {
            let shown = LOW.map(|precision| self.show(Setting::uncached(precision, rounding), measure));
            any |= shown.iter().any(Option::is_some);
            table.add_row([option_name(&rounding)].into_iter().chain(shown.map(or_dash)));
        }
        any.then(|| format!("Without a cache (P1 Table 2):\n\n{table}\n"))
    }

    /// P1 Tables 3 to 5, 8 and 9.
    fn cached(&self, policy: PolicyName, ways: u32, measure: Measure) -> Option<String> {
        let header = ["cache, % of rows".to_owned()].into_iter().chain(LOW.map(|p| option_name(&p)));
        let mut table = output::table(header, 1);
        let mut any = false;
        for cache_percent in self.sizes() {
            let pair = |precision: PrecisionName| {
                let of = |rounding| self.show(Setting { precision, rounding, policy, cache_percent, ways }, measure);
                let (nearest, stochastic) = (of(RoundingName::Nearest), of(RoundingName::Stochastic));
                (nearest.is_some() || stochastic.is_some())
                    .then(|| format!("{} / {}", or_dash(nearest), or_dash(stochastic)))
            };
            let shown = LOW.map(pair);
            if shown.iter().all(Option::is_none) {
                continue;
            }
            any = true;
            table.add_row([cache_percent.to_string()].into_iter().chain(shown.map(or_dash)));
        }
        any.then(|| format!("{} ({}):\n\n{table}\n", cache_name(policy, ways), papers(policy, ways)))
    }

    /// P1's Figure 6 in numbers.
    fn by_ways(&self, measure: Measure) -> Option<String> {
        let mut ways: Vec<u32> = self
            .cells
            .iter()
            .filter(|cell| cell.setting.has_cache() && cell.setting.policy == PolicyName::Lfu)
            .map(|cell| cell.setting.ways)
            .collect();
        ways.sort_unstable();
        ways.dedup();
        if !ways.iter().any(|&ways| ways != 1 && ways != WAYS) {
            return None;
        }
        let header = ["precision".to_owned(), "cache, % of rows".to_owned()];
        let header = header.into_iter().chain(ways.iter().map(|ways| format!("{ways}-way")));
        let mut table = output::table(header, 1);
        for precision in LOW {
            for cache_percent in self.sizes() {
                let (rounding, policy) = (RoundingName::Stochastic, PolicyName::Lfu);
                let of = |&ways: &u32| self.show(Setting { precision, rounding, policy, cache_percent, ways }, measure);
                let shown: Vec<Option<String>> = ways.iter().map(of).collect();
                if shown.iter().filter(|shown| shown.is_some()).count() > 2 {
                    let row = [option_name(&precision), cache_percent.to_string()];
                    table.add_row(row.into_iter().chain(shown.into_iter().map(or_dash)));
                }
            }
        }
        Some(format!("LFU, stochastic, by ways (P1 Figure 6):\n\n{table}\n"))
    }

    pub(super) fn find(&self, setting: Setting) -> Option<&Cell> {
        claims::find(&self.cells, setting)
    }

    /// What is hit does not depend on how rows are stored: a mean over precisions and roundings.
    pub(super) fn hit_rate(&self, policy: PolicyName, ways: u32, size: f64) -> Option<f64> {
        let mine = self.cells.iter().filter(|cell| {
            let of = cell.setting;
            (of.policy, of.ways, of.cache_percent) == (policy, ways, size)
        });
        let rates: Vec<f64> = mine.filter_map(|cell| cell.hit_rate).collect();
        (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
    }

    /// P1 Tables 6 and 10.
    fn hit_rates(&self) -> Option<String> {
        let caches = self.caches();
        let header = ["cache, % of rows".to_owned()];
        let mut table =
            output::table(header.into_iter().chain(caches.iter().map(|&(policy, ways)| cache_name(policy, ways))), 1);
        let mut any = false;
        for size in self.sizes() {
            let rate = |&(policy, ways): &(PolicyName, u32)| {
                self.hit_rate(policy, ways, size).map(|rate| format!("{:.2}", 100.0 * rate))
            };
            let shown: Vec<Option<String>> = caches.iter().map(rate).collect();
            if shown.iter().any(Option::is_some) {
                any = true;
                table.add_row([size.to_string()].into_iter().chain(shown.into_iter().map(or_dash)));
            }
        }
        any.then(|| format!("## Hit rate, % (P1 Table 6)\n\n{table}\n"))
    }

    /// What each setting without a cache, and under 32-way LFU with stochastic rounding, takes.
    fn costs(&self) -> Option<String> {
        let header =
            ["setting", "memory, P1's formula", "memory, all of it", "hit rate %", "GB moved", "samples/s", "loss %"];
        let mut table = output::table(header, 1);
        let mut any = false;
        for cell in &self.cells {
            let of = cell.setting;
            let lfu = of.policy == PolicyName::Lfu && of.ways == WAYS;
            if of.rounding == RoundingName::Nearest && of != Setting::FP32 || of.has_cache() && !lfu {
                continue;
            }
            any = true;
            let number = |value: Option<f64>, scale: f64, digits: usize| {
                or_dash(value.map(|value| format!("{:.digits$}", value * scale)))
            };
            table.add_row([
                of.label(),
                number(cell.memory_paper, 1.0, 4),
                number(cell.memory_true, 1.0, 4),
                number(cell.hit_rate, 100.0, 2),
                number(cell.bus_bytes, 1e-9, 3),
                number(cell.samples_per_second, 1.0, 0),
                or_dash(cell.loss_change.as_ref().map(|change| change.show(""))),
            ]);
        }
        any.then(|| format!("## Memory and speed\n\n{table}\n"))
    }

    fn show(&self, setting: Setting, measure: Measure) -> Option<String> {
        let change = measure(self.find(setting)?)?;
        let half = change.half().map_or_else(|| "one seed".to_owned(), |half| format!("{half:.3}"));
        Some(format!("{:+.3} ±{half}", change.mean))
    }

    pub(crate) fn claims_table(&self) -> String {
        let mut table = output::table(["claim", "verdict", "found"], 3);
        for claim in &self.claims {
            table.add_row([claim.claim.as_str(), claim.verdict.name(), claim.found.as_str()]);
        }
        table.to_string()
    }
}

impl Failed {
    pub(crate) fn show(&self) -> String {
        format!("- {}, seed {}: {}", self.setting.label(), self.seed, self.reason)
    }
}

fn or_dash(shown: Option<String>) -> String {
    shown.unwrap_or_else(|| "–".to_owned())
}

/// "32-way LFU".
pub(crate) fn cache_name(policy: PolicyName, ways: u32) -> String {
    format!("{ways}-way {}", policy.name())
}

fn papers(policy: PolicyName, ways: u32) -> &'static str {
    match (policy, ways) {
        (PolicyName::Lfu, WAYS) => "P1 Tables 3 and 9",
        (PolicyName::Lru, WAYS) => "P1 Table 8",
        (PolicyName::Lru, _) => "P1 Table 4",
        (PolicyName::Lfu, _) => "P1 Table 5",
    }
}

#[cfg(test)]
pub(in crate::train) mod tests;
