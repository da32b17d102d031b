//! The answer of `hotrow plan` as tables and as JSON.

use super::amount::in_units;
use super::cache::Job;
use super::input;
use super::verify::Run;
use crate::output;
use hotrow::WAYS;
use hotrow::scars::sets::{CacheQuarters, MoreRows, PinnedCache, PinnedRows, RowTraffic, SetCurve, SetSplit};
use hotrow::scars::{Bytes, Draws, Growth, ScalingClaim, scaling_claims};
use serde::Serialize;
use std::fmt::Write;

/// Shares of the lookups that the skew table has, in percent.
const SHARES: [f64; 5] = [50.0, 80.0, 90.0, 95.0, 99.0];

/// The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) source: Source,
    group: Group,
    pub(super) budget: Budget,
    plan: Plan,
    /// The plan as a point of the curve: its cheapest.
    pub(super) optimum: Point,
    /// The best split if every hottest row found a way and caches had any size: the difference is what hashing costs.
    ideal: Point,
    pub(super) curve: Vec<Point>,
    skew: Vec<SkewLine>,
    #[serde(with = "Portions")]
    pub(super) portions: CacheQuarters,
    pub(super) scaling: Option<Scaling>,
    pub(super) verify: Vec<Run>,
}

/// The lookups that are planned for.
#[derive(Debug, Serialize)]
pub(super) struct Source {
    pub(super) name: String,
    /// `trace` or `distribution`.
    kind: &'static str,
    rows: u64,
    /// Rows that the trace uses.
    used_rows: Option<u64>,
    samples: u64,
    lookups_per_sample: f64,
    /// Lookups of an epoch.
    lookups: f64,
    /// Relative error of expected distinct rows, from putting rows of nearly one probability together.
    error: f64,
}

#[derive(Debug, Serialize)]
struct Group {
    dim: u32,
    precision: &'static str,
    optimizer: &'static str,
    training: bool,
    /// A row as it crosses the bus.
    record_bytes: u64,
    /// A row in the cache.
    slot_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Budget {
    pub(super) bytes: u64,
    sample_bytes: u64,
    pub(super) smallest_batch: u64,
    pub(super) fixed_batch: bool,
    pub(super) batch_cost: u64,
    pinned_ways: u32,
}

/// The cache and the batch.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The number to configure as cache rows: the slots of whole sets, at most the table's rows.
    cache_rows: u64,
    /// Bytes of whole sets.
    cache_bytes: u64,
    /// Cache rows in percent of the table's rows.
    cache_percent: f64,
    /// Rows that find a way: known of a trace, expected of a distribution.
    pinned_rows: f64,
    /// Hot rows that find no way, of as many as there are pinned ways; colder ones take what is free.
    without_a_way: f64,
    batch_samples: u64,
    batch_lookups: u64,
    /// All that the group allocates on the device, by the crate's memory plan; its records are in host memory.
    device_bytes: u64,
    /// The form of the expected distinct rows: `binomial` or `hypergeometric`.
    form: &'static str,
    hit_rate: f64,
    #[serde(with = "Traffic")]
    batch: RowTraffic,
    #[serde(with = "Traffic")]
    epoch: RowTraffic,
    /// The same batches without a cache.
    #[serde(with = "Traffic")]
    epoch_without_cache: RowTraffic,
    /// Without a cache, each lookup's row sent by itself.
    #[serde(with = "Traffic")]
    epoch_uncoalesced: RowTraffic,
    /// Bytes that bring the pinned rows to the device, once.
    load_bytes: f64,
    /// Epochs after which that is saved against the same batches without a cache; `null` where nothing is saved.
    load_pays_after_epochs: Option<f64>,
    /// Whether a set of rows more, and as much less of a batch, would cost less; else why not.
    #[serde(with = "OneMore")]
    one_more_set: MoreRows,
}

/// Whether one more set pays: its word in JSON.
#[derive(Debug, Serialize)]
#[serde(remote = "MoreRows", rename_all = "kebab-case")]
enum OneMore {
    Pays,
    DoesNotPay,
    AllRows,
    AllWays,
    NoRoom,
}

/// Whether one more set pays, in words.
const fn more_rows(more: MoreRows) -> &'static str {
    match more {
        MoreRows::Pays => "yes",
        MoreRows::DoesNotPay => "no: it saves less than it takes from the batch",
        MoreRows::AllRows => "no: every row is pinned",
        MoreRows::AllWays => "no: the largest cache of this table",
        MoreRows::NoRoom => "no room beside the smallest batch",
    }
}

/// Bytes over the bus.
#[derive(Serialize)]
#[serde(remote = "RowTraffic")]
struct Traffic {
    distinct_rows: f64,
    #[serde(flatten, with = "TrafficBytes")]
    bytes: Bytes,
}

#[derive(Serialize)]
#[serde(remote = "Bytes")]
struct TrafficBytes {
    #[serde(rename = "index_bytes")]
    index: f64,
    #[serde(rename = "read_bytes")]
    read: f64,
    #[serde(rename = "written_bytes")]
    written: f64,
}

/// A split of the budget, as the model has it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point(#[serde(with = "SplitFields")] pub(super) SetSplit);

#[derive(Serialize)]
#[serde(remote = "SetSplit")]
struct SplitFields {
    pinned_rows: f64,
    cache_bytes: u64,
    #[serde(rename = "batch_samples")]
    batch: u64,
    epoch_bytes: f64,
    #[serde(rename = "epoch_cost")]
    cost: f64,
    cost_percent: f64,
    hit_rate: f64,
}

/// How few rows carry a share of the lookups.
#[derive(Debug, Serialize)]
struct SkewLine {
    lookups_percent: f64,
    rows: u64,
    rows_percent: f64,
    cache_bytes: u64,
}

/// Who uses which quarter of the pinned rows (SCARS Figure 4).
#[derive(Serialize)]
#[serde(remote = "CacheQuarters")]
struct Portions {
    samples: u64,
    users: [f64; 4],
    hot_share: f64,
}

/// SCARS' scaling claim: the growth of the communication when rows and batch grow alike.
#[derive(Debug, Serialize)]
pub(super) struct Scaling {
    times: f64,
    /// Rows of the table before it grows, and lookups of its batch.
    rows: u64,
    lookups: u64,
    lines: Vec<ScalingLine>,
}

#[derive(Debug, Serialize)]
struct ScalingLine(#[serde(with = "ClaimFields")] ScalingClaim);

#[derive(Serialize)]
#[serde(remote = "ScalingClaim")]
struct ClaimFields {
    distribution: String,
    claimed: f64,
    #[serde(flatten, with = "GrowthFields")]
    growth: Growth,
    holds: bool,
    holds_from_lookups: Option<u64>,
}

/// Growths, 1 being as much as before; an epoch has as many lookups after as before.
#[derive(Serialize)]
#[serde(remote = "Growth")]
struct GrowthFields {
    #[serde(rename = "batch_growth")]
    batch_rows: f64,
    #[serde(rename = "batch_growth_with_indices")]
    batch: f64,
    #[serde(rename = "epoch_growth")]
    epoch_rows: f64,
    #[serde(rename = "epoch_growth_with_indices")]
    epoch: f64,
}

/// The form of the expected distinct rows of a batch.
pub(super) const fn form(draws: Draws) -> &'static str {
    match draws {
        Draws::Epoch => "hypergeometric",
        Draws::Independent => "binomial",
    }
}

impl Plan {
    pub(super) fn new(job: &Job<'_>, cache: &PinnedCache, batch: u64, more: MoreRows, device_bytes: u64) -> Self {
        let table = job.input.table();
        let (traffic, lookups) = (job.budget.traffic(&table), table.of_samples(batch));
        let rows = u64::from(job.input.rows);
        let cache_rows = cache.slots().min(rows);
        let epoch = traffic.epoch(&cache.pinned, lookups);
        let without_cache = traffic.epoch(&PinnedRows::none(table.skew), lookups);
        let saved = without_cache.bytes.total() - epoch.bytes.total();
        let load_bytes = cache.pinned.rows() * job.bytes.record as f64;
        Self {
            cache_rows,
            cache_bytes: cache.slots() * job.bytes.slot,
            cache_percent: 100.0 * cache_rows as f64 / rows as f64,
            pinned_rows: cache.pinned.rows(),
            without_a_way: cache.left_out,
            batch_samples: batch,
            batch_lookups: lookups,
            device_bytes,
            form: form(Draws::of_batch(table.skew, lookups)),
            hit_rate: cache.pinned.hit_rate(table.skew),
            batch: traffic.batch(&cache.pinned, lookups),
            epoch,
            epoch_without_cache: without_cache,
            epoch_uncoalesced: traffic.uncoalesced(lookups),
            load_bytes,
            load_pays_after_epochs: (saved > 0.0).then(|| load_bytes / saved),
            one_more_set: more,
        }
    }
}

impl Scaling {
    pub(super) fn new(times: f64, rows: u64, lookups: u64, record: u64) -> Result<Self, hotrow::Error> {
        let claims = scaling_claims(times, rows, lookups, record as f64 / 4.0)?;
        Ok(Self { times, rows, lookups, lines: claims.into_iter().map(ScalingLine).collect() })
    }
}

impl Report {
    pub(super) fn new(job: &Job<'_>, plan: Plan, found: SetCurve, ideal: SetSplit, portions: CacheQuarters) -> Self {
        let Job { args, input, group, bytes, budget, memory } = job;
        let (kind, used_rows) = match &input.source {
            input::Source::Trace(trace) => ("trace", Some(trace.ranked.len() as u64)),
            input::Source::Distribution(_) => ("distribution", None),
        };
        let rows = u64::from(input.rows);
        let skew = |&lookups_percent: &f64| {
            let hottest = input.skew.rows_for(lookups_percent / 100.0);
            let slots = hottest.next_multiple_of(WAYS.into());
            let rows_percent = 100.0 * hottest as f64 / rows as f64;
            SkewLine { lookups_percent, rows: hottest, rows_percent, cache_bytes: slots * bytes.slot }
        };
        Self {
            source: Source {
                name: input.name.clone(),
                kind,
                rows,
                used_rows,
                samples: input.samples,
                lookups_per_sample: input.per_sample,
                lookups: input.samples as f64 * input.per_sample,
                error: input.skew.error(),
            },
            group: Group {
                dim: group.dim,
                precision: args.precision.name(),
                optimizer: args.optimizer.name(),
                training: group.training,
                record_bytes: bytes.record,
                slot_bytes: bytes.slot,
            },
            budget: Budget {
                bytes: *memory,
                sample_bytes: budget.memory.sample,
                smallest_batch: budget.memory.smallest_batch,
                fixed_batch: budget.fixed_batch,
                batch_cost: args.batch_cost,
                pinned_ways: budget.pinned_ways,
            },
            plan,
            optimum: Point(found.cheapest().clone()),
            ideal: Point(ideal),
            curve: found.splits.into_values().map(Point).collect(),
            skew: SHARES.iter().map(skew).collect(),
            portions,
            scaling: None,
            verify: Vec::new(),
        }
    }

    /// The plan; the skew; the quarters; the scaling and the runs where they were asked for.
    pub(super) fn text(&self) -> String {
        let CacheQuarters { samples, users, hot_share, .. } = &self.portions;
        let mut text = format!("{}\n\n{}\n\n{}\n", self.title(), self.plan_table(), self.skew_table());
        let mut quarters = output::table(["quarter of the pinned rows", &format!("of {samples} samples use it")], 1);
        for (quarter, users) in QUARTERS.iter().zip(users) {
            quarters.add_row([(*quarter).to_owned(), format!("{users:.0}")]);
        }
        quarters.add_row(["all rows of the sample are pinned".to_owned(), percent(*hot_share)]);
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\n{quarters}");
        if let Some(scaling) = &self.scaling {
            let _ = writeln!(text, "\n{}", scaling.text());
        }
        for run in &self.verify {
            let _ = write!(text, "\n{}", run.text());
        }
        text
    }

    fn title(&self) -> String {
        let Source { name, rows, samples, lookups_per_sample, .. } = &self.source;
        let Group { dim, precision, optimizer, training, .. } = &self.group;
        let work = if *training { format!("training with {optimizer}") } else { "inference".to_owned() };
        format!(
            "{name}: {rows} rows x {dim} in {precision}, {work}; {samples} samples of {} lookups; {} of device memory",
            number(*lookups_per_sample),
            in_units(self.budget.bytes as f64)
        )
    }

    fn plan_table(&self) -> String {
        let (plan, group) = (&self.plan, &self.group);
        let mut table = output::table(["plan", ""], 1);
        let mut line = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
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
            let bytes = [traffic.bytes.index, traffic.bytes.read, traffic.bytes.written].map(in_units);
            line(&format!("bus bytes of {when}"), in_units(traffic.bytes.total()));
            line("  of indices, read, written", bytes.join(", "));
        }
        let against = |other: &RowTraffic| {
            let bytes = other.bytes.total();
            format!("{} ({:.2} x)", in_units(bytes), bytes / plan.epoch.bytes.total())
        };
        line("an epoch without a cache", against(&plan.epoch_without_cache));
        line("  and each lookup sent by itself", against(&plan.epoch_uncoalesced));
        let pays = plan.load_pays_after_epochs.filter(|_| plan.load_bytes > 0.0);
        let pays = pays.map_or_else(String::new, |epochs| format!(", saved after {} epochs", number(epochs)));
        line("to load the pinned rows, once", format!("{}{pays}", in_units(plan.load_bytes)));
        line("a slot, a record", format!("{} B, {} B", group.slot_bytes, group.record_bytes));
        line("does one more set of rows pay", more_rows(plan.one_more_set).to_owned());
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

/// Quarters of the pinned rows, hottest first.
pub(super) const QUARTERS: [&str; 4] = ["hottest", "second", "third", "coldest"];

impl Scaling {
    fn text(&self) -> String {
        let header =
            "distribution | batch: rows | and indices | epoch: rows | and indices | claim | holds | from lookups";
        let mut table = output::table(header.split(" | "), 1);
        for ScalingLine(line) in &self.lines {
            let Growth { batch_rows, batch, epoch_rows, epoch, .. } = line.growth;
            let from = line.holds_from_lookups.map_or_else(|| "never".to_owned(), |lookups| lookups.to_string());
            let claim = format!("below {}", line.claimed);
            let rest = [claim, if line.holds { "yes" } else { "no" }.to_owned(), from];
            let growths = [batch_rows, batch, epoch_rows, epoch].map(|times| format!("{times:.3}"));
            table.add_row([line.distribution.clone()].into_iter().chain(growths).chain(rest));
        }
        format!(
            "SCARS' scaling claim: growth of the communication from {} rows and batches of {} lookups to {} times both, nothing pinned\n{table}",
            self.rows, self.lookups, self.times
        )
    }
}

/// Rows and lookups, which may be expectations.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 1e4 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
