//! The answer as tables and as JSON.

use super::amount::in_units;
use super::portions::Portions;
use super::verify::Run;
use crate::names::{OptimizerName, PrecisionName, option_name};
use crate::output;
use serde::Serialize;
use std::fmt::Write;

/// The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) source: Source,
    pub(super) group: Group,
    pub(super) budget: Budget,
    pub(super) plan: Plan,
    /// The plan as a point of the curve: its cheapest.
    pub(super) optimum: Point,
    /// The best split if every hottest row found a way and caches had any size: what hashing costs.
    pub(super) ideal: Point,
    pub(super) curve: Vec<Point>,
    pub(super) skew: Vec<SkewLine>,
    pub(super) portions: Portions,
    pub(super) scaling: Option<Scaling>,
    pub(super) verify: Vec<Run>,
}

/// What is planned for.
#[derive(Debug, Serialize)]
pub(super) struct Source {
    pub(super) name: String,
    /// `trace` or `distribution`.
    pub(super) kind: &'static str,
    pub(super) rows: u64,
    /// Rows that the trace uses.
    pub(super) used_rows: Option<u64>,
    pub(super) samples: u64,
    pub(super) lookups_per_sample: f64,
    /// Of an epoch.
    pub(super) lookups: f64,
    /// Relative error of expected distinct rows, from putting rows of nearly one probability together.
    pub(super) error: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) dim: u32,
    pub(super) precision: PrecisionName,
    pub(super) optimizer: OptimizerName,
    pub(super) training: bool,
    /// A row as it crosses the bus.
    pub(super) record_bytes: u64,
    /// A row in the cache.
    pub(super) slot_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Budget {
    pub(super) bytes: u64,
    pub(super) sample_bytes: u64,
    pub(super) smallest_batch: u64,
    pub(super) fixed_batch: bool,
    pub(super) batch_cost: u64,
    pub(super) pinned_ways: u32,
}

/// The cache and the batch.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// What to configure as cache rows: the slots of whole sets, at most the table's rows.
    pub(super) cache_rows: u64,
    /// Of whole sets.
    pub(super) cache_bytes: u64,
    /// Of the table's rows.
    pub(super) cache_percent: f64,
    /// Rows that find a way: known of a trace, expected of a distribution.
    pub(super) pinned_rows: f64,
    /// Of as many hottest rows as there are pinned ways, those that find none; colder ones take what is free.
    pub(super) without_a_way: f64,
    pub(super) batch_samples: u64,
    pub(super) batch_lookups: u64,
    /// All that the group allocates on the device, by the crate's memory plan; its records are in host memory.
    pub(super) device_bytes: u64,
    /// Of the expected distinct rows: `binomial` or `hypergeometric`.
    pub(super) form: &'static str,
    pub(super) hit_rate: f64,
    pub(super) batch: Traffic,
    pub(super) epoch: Traffic,
    /// The same batches without a cache.
    pub(super) epoch_without_cache: Traffic,
    /// Without a cache, each lookup's row sent for itself.
    pub(super) epoch_uncoalesced: Traffic,
    /// What brings the pinned rows to the device, once.
    pub(super) load_bytes: f64,
    /// Epochs after which that is saved against the same batches without a cache; `null` where nothing is saved.
    pub(super) load_pays_after_epochs: Option<f64>,
    pub(super) one_more_set: OneMore,
}

/// Whether a set of rows more, and as much less of a batch, would cost less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OneMore {
    Pays,
    DoesNotPay,
    /// Every row that is used is pinned.
    AllRows,
    /// The cache is the largest that the crate takes: as many ways as the table has rows, and at most 2^31.
    AllWays,
    /// None beside the smallest batch.
    NoRoom,
}

impl OneMore {
    const fn text(self) -> &'static str {
        match self {
            Self::Pays => "yes",
            Self::DoesNotPay => "no: it saves less than it takes from the batch",
            Self::AllRows => "no: every row is pinned",
            Self::AllWays => "no: the largest cache of this table",
            Self::NoRoom => "no room beside the smallest batch",
        }
    }
}

/// What crosses the bus.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Traffic {
    /// Distinct rows of a batch, summed.
    pub(super) distinct_rows: f64,
    pub(super) index_bytes: f64,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
}

impl Traffic {
    pub(super) fn total(&self) -> f64 {
        self.index_bytes + self.read_bytes + self.written_bytes
    }
}

/// A split of the budget, as the model has it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// Rows that find a way, as in the plan.
    pub(super) pinned_rows: f64,
    pub(super) cache_bytes: u64,
    pub(super) batch_samples: u64,
    pub(super) epoch_bytes: f64,
    /// With the fixed cost of its batches: what is made small.
    pub(super) epoch_cost: f64,
    /// Of the cost without a cache, all memory being the batch's.
    pub(super) cost_percent: f64,
    pub(super) hit_rate: f64,
}

/// How few rows carry a share of the lookups.
#[derive(Debug, Serialize)]
pub(super) struct SkewLine {
    pub(super) lookups_percent: f64,
    pub(super) rows: u64,
    pub(super) rows_percent: f64,
    pub(super) cache_bytes: u64,
}

/// P3's scaling claim: what is communicated when rows and batch grow alike.
#[derive(Debug, Serialize)]
pub(super) struct Scaling {
    pub(super) times: f64,
    /// Of the table that grows, and of its batch.
    pub(super) rows: u64,
    pub(super) lookups: u64,
    pub(super) lines: Vec<ScalingLine>,
}

/// Growths, 1 being as much as before; an epoch has as many lookups after as before.
#[derive(Debug, Serialize)]
pub(super) struct ScalingLine {
    pub(super) distribution: String,
    pub(super) claimed: f64,
    /// Of the rows of a batch: what the claim is compared with.
    pub(super) batch_growth: f64,
    pub(super) batch_growth_with_indices: f64,
    pub(super) epoch_growth: f64,
    pub(super) epoch_growth_with_indices: f64,
    pub(super) holds: bool,
    /// The first power of two from which it holds, if any does.
    pub(super) holds_from_lookups: Option<u64>,
}

/// Rows and lookups, which may be expectations.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 1e4 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

impl Report {
    /// The plan; who carries how much; the rest where it was asked for.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n\n{}\n", self.title(), self.plan_table(), self.skew_table());
        let portions = &self.portions;
        let [a, b, c, d] = portions.users.map(|users| format!("{users:.0}"));
        let hot = percent(portions.hot_share);
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "\nOf {} samples {a} use the hottest quarter of the pinned rows, {b} the second, {c} the third, {d} the coldest (P3 \
             Figure 4); {hot} of all samples are hot: all their rows are pinned.",
            portions.samples
        );
        if let Some(scaling) = &self.scaling {
            let _ = write!(text, "\n{}", scaling.text());
        }
        for run in &self.verify {
            let _ = write!(text, "\n{}", run.text());
        }
        text
    }

    fn title(&self) -> String {
        let Source { name, rows, samples, lookups_per_sample, .. } = &self.source;
        let Group { dim, precision, optimizer, training, .. } = &self.group;
        let [precision, optimizer] = [option_name(precision), option_name(optimizer)];
        let what = if *training { format!("training with {optimizer}") } else { "inference".to_owned() };
        format!(
            "{name}: {rows} rows x {dim} in {precision}, {what}; {samples} samples of {} lookups; {} of device memory",
            number(*lookups_per_sample),
            in_units(self.budget.bytes as f64)
        )
    }

    fn plan_table(&self) -> String {
        let (plan, group) = (&self.plan, &self.group);
        let mut table = output::table(["plan", ""], 1);
        let mut line = |what: &str, value: String| {
            table.add_row([what.to_owned(), value]);
        };
        line("cache rows", format!("{} ({:.2} % of the table)", plan.cache_rows, plan.cache_percent));
        line("bytes of the cache", in_units(plan.cache_bytes as f64));
        line("rows pinned", format!("{:.0}", plan.pinned_rows));
        line("hot rows that find no way", format!("{:.0}", plan.without_a_way));
        line("batch", format!("{} samples, {} lookups", plan.batch_samples, plan.batch_lookups));
        let over = if plan.device_bytes > self.budget.bytes { ", more than the budget" } else { "" };
        line("device memory of the group", format!("{}{over}", in_units(plan.device_bytes as f64)));
        line("expected hit rate", percent(plan.hit_rate));
        line(&format!("distinct rows of a batch ({})", plan.form), number(plan.batch.distinct_rows));
        for (when, traffic) in [("a batch", &plan.batch), ("an epoch", &plan.epoch)] {
            let bytes = [traffic.index_bytes, traffic.read_bytes, traffic.written_bytes].map(in_units);
            let [index, read, written] = bytes;
            line(&format!("bus bytes of {when}"), in_units(traffic.total()));
            line("  of indices, read, written", format!("{index}, {read}, {written}"));
        }
        let against =
            |other: &Traffic| format!("{} ({:.2} x)", in_units(other.total()), other.total() / plan.epoch.total());
        line("an epoch without a cache", against(&plan.epoch_without_cache));
        line("  and each lookup sent for itself", against(&plan.epoch_uncoalesced));
        line("to load the pinned rows, once", {
            let pays = plan.load_pays_after_epochs.filter(|_| plan.load_bytes > 0.0);
            let pays = pays.map_or_else(String::new, |epochs| format!(", saved after {} epochs", number(epochs)));
            format!("{}{pays}", in_units(plan.load_bytes))
        });
        line("a slot, a record", format!("{} B, {} B", group.slot_bytes, group.record_bytes));
        line("does one more set of rows pay", plan.one_more_set.text().to_owned());
        table.to_string()
    }

    fn skew_table(&self) -> String {
        let mut table = output::table(["lookups", "hottest rows", "of the table", "cache that holds them"], 0);
        for line in &self.skew {
            table.add_row([
                format!("{} %", line.lookups_percent),
                line.rows.to_string(),
                format!("{:.3} %", line.rows_percent),
                in_units(line.cache_bytes as f64),
            ]);
        }
        table.to_string()
    }
}

impl Scaling {
    fn text(&self) -> String {
        let header = [
            "distribution",
            "batch: rows",
            "and indices",
            "epoch: rows",
            "and indices",
            "P3: below",
            "holds",
            "from lookups",
        ];
        let mut table = output::table(header, 1);
        for line in &self.lines {
            let growths =
                [line.batch_growth, line.batch_growth_with_indices, line.epoch_growth, line.epoch_growth_with_indices];
            let holds = if line.holds { "yes" } else { "no" };
            let from = line.holds_from_lookups.map_or_else(|| "never".to_owned(), |lookups| lookups.to_string());
            let rest = [line.claimed.to_string(), holds.to_owned(), from];
            table.add_row(
                std::iter::once(line.distribution.clone()).chain(growths.map(|by| format!("{by:.3}"))).chain(rest),
            );
        }
        format!(
            "P3's scaling claim, from {} rows and batches of {} lookups to {} times both, nothing pinned; how many times the \
             communication is:\n{table}\nA scale that grows with the table stretches everything: each batch then crosses as many times the rows. \
             The claim needs a scale that is held, and batches that are large against it.\n",
            self.rows, self.lookups, self.times
        )
    }
}
