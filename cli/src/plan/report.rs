//! The answer of `hotrow plan` as JSON and as tables.

use super::amount::{self, in_units};
use super::input::{Input, Source};
use super::verify::{Run, form};
use crate::output::{self, Field, Object};
use hotrow::WAYS;
use hotrow::scars::sets::{
    CacheQuarters, GroupBytes, MoreRows, PinnedCache, PinnedRows, PlannedGroup, RowTraffic, SetBudget, SetCurve,
    SetSplit,
};
use hotrow::scars::{Draws, ScalingClaim};
use std::fmt::Write;

/// Shares of the lookups that the skew table has, in percent.
const SHARES: [f64; 5] = [50.0, 80.0, 90.0, 95.0, 99.0];

/// Quarters of the pinned rows, hottest first.
pub(super) const QUARTERS: [&str; 4] = ["hottest", "second", "third", "coldest"];

/// What is planned for, and what was found.
pub(super) struct Answer<'a> {
    pub(super) input: &'a Input,
    pub(super) group: PlannedGroup,
    pub(super) bytes: GroupBytes,
    pub(super) budget: SetBudget,
    /// All memory, also what the group takes beside its cache and its batch.
    pub(super) memory: u64,
    pub(super) curve: SetCurve,
    /// The cache of the cheapest split.
    pub(super) cache: PinnedCache,
    /// Whether a set of rows more, and as much less of a batch, would cost less; else why not.
    pub(super) more: MoreRows,
    /// All that the group allocates on the device, by the crate's memory plan; its records are in host memory.
    pub(super) device_bytes: u64,
    /// The best split if every hottest row found a way and caches had any size: the difference is what hashing costs.
    pub(super) ideal: SetSplit,
    /// Who uses which quarter of the pinned rows (SCARS Figure 4).
    pub(super) quarters: CacheQuarters,
    /// SCARS' scaling claim: how many times rows and batch grow, and by how much the communication does.
    pub(super) scaling: Option<(f64, Vec<ScalingClaim>)>,
    pub(super) verify: Vec<Run>,
}

/// Expected traffic of the plan.
struct Traffic {
    batch: RowTraffic,
    epoch: RowTraffic,
    /// The same batches without a cache.
    without_cache: RowTraffic,
    /// Without a cache, each lookup's row sent by itself.
    uncoalesced: RowTraffic,
    /// Bytes that bring the pinned rows to the device, once.
    load: f64,
    /// Epochs after which that is saved against the same batches without a cache; `None` where nothing is saved.
    pays_after: Option<f64>,
}

/// How few rows carry a share of the lookups.
struct SkewLine {
    lookups_percent: f64,
    rows: u64,
    rows_percent: f64,
    /// Bytes of a cache that holds them.
    cache_bytes: u64,
}

impl Answer<'_> {
    /// Samples and lookups of a batch.
    fn batch(&self) -> (u64, u64) {
        let samples = self.curve.cheapest().batch;
        (samples, self.input.table().of_samples(samples))
    }

    /// The number to configure as cache rows: the slots of whole sets, at most the table's rows. And their percentage of the table.
    fn cache_rows(&self) -> (u64, f64) {
        let all = u64::from(self.input.rows);
        let rows = self.cache.slots().min(all);
        (rows, 100.0 * rows as f64 / all as f64)
    }

    fn hit_rate(&self) -> f64 {
        self.cache.pinned.hit_rate(&self.input.skew)
    }

    fn form(&self) -> &'static str {
        form(Draws::of_batch(&self.input.skew, self.batch().1))
    }

    fn traffic(&self) -> Traffic {
        let (table, lookups) = (self.input.table(), self.batch().1);
        let traffic = self.budget.traffic(&table);
        let epoch = traffic.epoch(&self.cache.pinned, lookups);
        let without_cache = traffic.epoch(&PinnedRows::none(table.skew), lookups);
        let saved = without_cache.bytes.total() - epoch.bytes.total();
        let load = self.cache.pinned.rows() * self.bytes.record as f64;
        Traffic {
            batch: traffic.batch(&self.cache.pinned, lookups),
            epoch,
            without_cache,
            uncoalesced: traffic.uncoalesced(lookups),
            load,
            pays_after: (saved > 0.0).then(|| load / saved),
        }
    }

    fn skew(&self) -> impl Iterator<Item = SkewLine> {
        SHARES.iter().map(|&lookups_percent| {
            let rows = self.input.skew.rows_for(lookups_percent / 100.0);
            let rows_percent = 100.0 * rows as f64 / f64::from(self.input.rows);
            let cache_bytes = rows.next_multiple_of(WAYS.into()) * self.bytes.slot;
            SkewLine { lookups_percent, rows, rows_percent, cache_bytes }
        })
    }

    /// The schema of `--json`.
    pub(super) fn json(&self) -> Object {
        let Self { input, group, bytes, budget, memory, quarters, .. } = self;
        let (kind, used_rows) = match &input.source {
            Source::Trace(trace) => ("trace", Some(trace.ranked.len())),
            Source::Distribution(_) => ("distribution", None),
        };
        let source = Object::default()
            .with("name", input.name.as_str())
            .with("kind", kind)
            .with("rows", input.rows)
            .with("used_rows", used_rows)
            .with("samples", input.samples)
            .with("lookups_per_sample", input.per_sample)
            .with("lookups", input.samples as f64 * input.per_sample)
            // Relative error of expected distinct rows, from putting rows of nearly one probability together.
            .with("error", input.skew.error());
        let group = Object::default()
            .with("dim", group.dim)
            .with("precision", group.precision.name())
            .with("optimizer", group.optimizer.kind.name())
            .with("training", group.training)
            .with("record_bytes", bytes.record)
            .with("slot_bytes", bytes.slot);
        let budget = Object::default()
            .with("bytes", *memory)
            .with("sample_bytes", budget.memory.sample)
            .with("smallest_batch", budget.memory.smallest_batch)
            .with("fixed_batch", budget.fixed_batch)
            .with("batch_cost", budget.memory.batch_cost as u64)
            .with("pinned_ways", budget.pinned_ways);
        let skew = self.skew().map(|line| {
            Object::default()
                .with("lookups_percent", line.lookups_percent)
                .with("rows", line.rows)
                .with("rows_percent", line.rows_percent)
                .with("cache_bytes", line.cache_bytes)
        });
        let portions = Object::default()
            .with("samples", quarters.samples)
            .with("users", quarters.users)
            .with("hot_share", quarters.hot_share);
        Object::default()
            .with("source", source)
            .with("group", group)
            .with("budget", budget)
            .with("plan", self.plan())
            .with("optimum", split(self.curve.cheapest()))
            .with("ideal", split(&self.ideal))
            .with("curve", self.curve.splits.values().map(split).collect::<Field>())
            .with("skew", skew.collect::<Field>())
            .with("portions", portions)
            .with("scaling", Object::or_null(self.scaling()))
            .with("verify", self.verify.iter().map(Run::json).collect::<Field>())
    }

    /// The cache and the batch.
    fn plan(&self) -> Object {
        let (samples, lookups) = self.batch();
        let (cache_rows, cache_percent) = self.cache_rows();
        let Traffic { batch, epoch, without_cache, uncoalesced, load, pays_after } = self.traffic();
        Object::default()
            .with("cache_rows", cache_rows)
            .with("cache_bytes", self.cache.slots() * self.bytes.slot)
            .with("cache_percent", cache_percent)
            // Rows that find a way: known of a trace, expected of a distribution.
            .with("pinned_rows", self.cache.pinned.rows())
            // Hot rows that find no way, of as many as there are pinned ways; colder ones take what is free.
            .with("without_a_way", self.cache.left_out)
            .with("batch_samples", samples)
            .with("batch_lookups", lookups)
            .with("device_bytes", self.device_bytes)
            .with("form", self.form())
            .with("hit_rate", self.hit_rate())
            .with("batch", crossing(&batch))
            .with("epoch", crossing(&epoch))
            .with("epoch_without_cache", crossing(&without_cache))
            .with("epoch_uncoalesced", crossing(&uncoalesced))
            .with("load_bytes", load)
            .with("load_pays_after_epochs", pays_after)
            .with("one_more_set", more_rows(self.more).0)
    }

    fn scaling(&self) -> Option<Object> {
        let (times, claims) = self.scaling.as_ref()?;
        let lines = claims.iter().map(|claim| {
            Object::default()
                .with("distribution", claim.distribution.as_str())
                .with("claimed", claim.claimed)
                .with("batch_growth", claim.growth.batch_rows)
                .with("batch_growth_with_indices", claim.growth.batch)
                .with("epoch_growth", claim.growth.epoch_rows)
                .with("epoch_growth_with_indices", claim.growth.epoch)
                .with("holds", claim.holds)
                .with("holds_from_lookups", claim.holds_from_lookups)
        });
        let scaling =
            Object::default().with("times", *times).with("rows", self.input.rows).with("lookups", self.batch().1);
        Some(scaling.with("lines", lines.collect::<Field>()))
    }

    /// The plan; the skew; the quarters; the scaling and the runs where they were asked for.
    pub(super) fn text(&self) -> String {
        let CacheQuarters { samples, users, hot_share, .. } = &self.quarters;
        let mut text = format!("{}\n\n{}\n\n{}\n", self.title(), self.plan_table(), self.skew_table());
        let mut quarters = output::table(["quarter of the pinned rows", &format!("of {samples} samples use it")], 1);
        for (quarter, users) in QUARTERS.iter().zip(users) {
            quarters.add_row([(*quarter).to_owned(), format!("{users:.0}")]);
        }
        quarters.add_row(["all rows of the sample are pinned".to_owned(), percent(*hot_share)]);
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\n{quarters}");
        if let Some((times, claims)) = &self.scaling {
            let _ = writeln!(text, "\n{}", self.scaling_table(*times, claims));
        }
        for run in &self.verify {
            let _ = write!(text, "\n{}", run.text());
        }
        text
    }

    fn title(&self) -> String {
        let PlannedGroup { rows, dim, precision, optimizer, training, .. } = self.group;
        let Input { name, samples, per_sample, .. } = self.input;
        let work = if training { format!("training with {}", optimizer.kind) } else { "inference".to_owned() };
        format!(
            "{name}: {rows} rows x {dim} in {precision}, {work}; {samples} samples of {} lookups; {} of device memory",
            amount::rows(*per_sample),
            in_units(self.memory as f64)
        )
    }

    fn plan_table(&self) -> String {
        let mut table = output::table(["plan", ""], 1);
        let mut line = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        let (cache_rows, cache_percent) = self.cache_rows();
        line("cache rows", format!("{cache_rows} ({cache_percent:.2} % of the table)"));
        line("bytes of the cache", in_units((self.cache.slots() * self.bytes.slot) as f64));
        line("rows pinned", format!("{:.0}", self.cache.pinned.rows()));
        line("hot rows that find no way", format!("{:.0}", self.cache.left_out));
        let (samples, lookups) = self.batch();
        line("batch", format!("{samples} samples, {lookups} lookups"));
        let over = if self.device_bytes > self.memory { ", more than the budget" } else { "" };
        line("device memory of the group", format!("{}{over}", in_units(self.device_bytes as f64)));
        line("expected hit rate", percent(self.hit_rate()));
        let Traffic { batch, epoch, without_cache, uncoalesced, load, pays_after } = self.traffic();
        line(&format!("distinct rows of a batch ({})", self.form()), amount::rows(batch.distinct_rows));
        for (when, bytes) in [("a batch", &batch.bytes), ("an epoch", &epoch.bytes)] {
            line(&format!("bus bytes of {when}"), in_units(bytes.total()));
            line("  of indices, read, written", [bytes.index, bytes.read, bytes.written].map(in_units).join(", "));
        }
        for (name, other) in [
            ("an epoch without a cache", without_cache.bytes.total()),
            ("  and each lookup sent by itself", uncoalesced.bytes.total()),
        ] {
            line(name, format!("{} ({:.2} x)", in_units(other), other / epoch.bytes.total()));
        }
        let pays = pays_after.filter(|_| load > 0.0);
        let pays = pays.map_or_else(String::new, |epochs| format!(", saved after {} epochs", amount::rows(epochs)));
        line("to load the pinned rows, once", format!("{}{pays}", in_units(load)));
        line("a slot, a record", format!("{} B, {} B", self.bytes.slot, self.bytes.record));
        line("does one more set of rows pay", more_rows(self.more).1.to_owned());
        table.to_string()
    }

    fn skew_table(&self) -> String {
        let mut table = output::table(["lookups", "hottest rows", "of the table", "cache that holds them"], 0);
        for line in self.skew() {
            table.add_row([
                format!("{} %", line.lookups_percent),
                line.rows.to_string(),
                format!("{:.3} %", line.rows_percent),
                in_units(line.cache_bytes as f64),
            ]);
        }
        table.to_string()
    }

    fn scaling_table(&self, times: f64, claims: &[ScalingClaim]) -> String {
        let header =
            "distribution | batch: rows | and indices | epoch: rows | and indices | claim | holds | from lookups";
        let mut table = output::table(header.split(" | "), 1);
        for ScalingClaim { distribution, claimed, growth, holds, holds_from_lookups, .. } in claims {
            let from = holds_from_lookups.map_or_else(|| "never".to_owned(), |lookups| lookups.to_string());
            let growths = [growth.batch_rows, growth.batch, growth.epoch_rows, growth.epoch];
            let verdict = [format!("below {claimed}"), if *holds { "yes" } else { "no" }.to_owned(), from];
            let growths = growths.map(|times| format!("{times:.3}"));
            table.add_row([distribution.clone()].into_iter().chain(growths).chain(verdict));
        }
        format!(
            "SCARS' scaling claim: growth of the communication from {} rows and batches of {} lookups to {times} times both, nothing \
             pinned\n{table}",
            self.input.rows,
            self.batch().1
        )
    }
}

/// Bytes over the bus.
fn crossing(traffic: &RowTraffic) -> Object {
    Object::default()
        .with("distinct_rows", traffic.distinct_rows)
        .with("index_bytes", traffic.bytes.index)
        .with("read_bytes", traffic.bytes.read)
        .with("written_bytes", traffic.bytes.written)
}

/// A split of the budget, as the model has it.
fn split(split: &SetSplit) -> Object {
    Object::default()
        .with("pinned_rows", split.pinned_rows)
        .with("cache_bytes", split.cache_bytes)
        .with("batch_samples", split.batch)
        .with("epoch_bytes", split.epoch_bytes)
        .with("epoch_cost", split.cost)
        .with("cost_percent", split.cost_percent)
        .with("hit_rate", split.hit_rate)
}

/// Whether one more set pays: in JSON, and in words.
const fn more_rows(more: MoreRows) -> (&'static str, &'static str) {
    match more {
        MoreRows::Pays => ("pays", "yes"),
        MoreRows::DoesNotPay => ("does-not-pay", "no: it saves less than it takes from the batch"),
        MoreRows::AllRows => ("all-rows", "no: every row is pinned"),
        MoreRows::AllWays => ("all-ways", "no: the largest cache of this table"),
        MoreRows::NoRoom => ("no-room", "no room beside the smallest batch"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
