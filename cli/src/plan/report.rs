//! The answer of `hotrow plan` as JSON and as tables.

use super::input::{Input, Source};
use super::verify::{Run, form};
use crate::report::object::{self, Field, Object, digits, in_units};
use hotrow::WAYS;
use hotrow::scars::sets::{
    CacheQuarters, GroupBytes, MoreRows, PinnedCache, PinnedRows, PlannedGroup, RowTraffic, SetBudget, SetCurve,
    SetSplit,
};
use hotrow::scars::{Draws, ScalingClaim};

/// The shares of the lookups in the table of the skew, in percent.
const SHARES: [f64; 5] = [50.0, 80.0, 90.0, 95.0, 99.0];

/// The input of a plan.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) input: &'a Input,
    pub(super) group: PlannedGroup,
    pub(super) bytes: GroupBytes,
    pub(super) budget: SetBudget,
    /// The whole budget, with the memory that the group needs beside cache and batch.
    pub(super) memory: u64,
}

/// The resulting plan.
pub(super) struct Answer<'a> {
    pub(super) job: Job<'a>,
    pub(super) curve: SetCurve,
    /// The cache of the cheapest split.
    pub(super) cache: PinnedCache,
    pub(super) more: MoreRows,
    /// All device bytes of the group by the crate's memory plan. Records are in host memory.
    pub(super) device_bytes: u64,
    /// The best split if every hot row found a way and caches had any size. The difference to it is the cost of hashing.
    pub(super) ideal: SetSplit,
    /// The use of the quarters of the pinned rows (SCARS Figure 4).
    pub(super) quarters: CacheQuarters,
    /// SCARS' scaling claim: the factor of rows and batch, and the growth of the communication.
    pub(super) scaling: Option<(f64, Vec<ScalingClaim>)>,
    pub(super) verify: Vec<Run>,
}

impl Answer<'_> {
    /// The schema of `--json`.
    pub(super) fn json(&self) -> Object {
        let (Job { input, group, bytes, budget, memory }, quarters) = (&self.job, &self.quarters);
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
            // The relative error of expected distinct rows. Rows of nearly one probability are computed together.
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
        let skew = SHARES.iter().map(|&lookups_percent| {
            let hottest = input.skew.rows_for(lookups_percent / 100.0);
            Object::default()
                .with("lookups_percent", lookups_percent)
                .with("rows", hottest)
                .with("rows_percent", 100.0 * hottest as f64 / f64::from(input.rows))
                .with("cache_bytes", hottest.next_multiple_of(WAYS.into()) * bytes.slot)
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
            .with("verify", self.verify.iter().map(|run| run.json.clone()).collect::<Field>())
    }

    fn plan(&self) -> Object {
        let (Job { input, bytes, budget, .. }, cache) = (&self.job, &self.cache);
        let (samples, table) = (self.curve.cheapest().batch, input.table());
        let (traffic, lookups) = (budget.traffic(&table), table.of_samples(samples));
        let cache_rows = cache.slots().min(input.rows.into());
        let epoch = traffic.epoch(&cache.pinned, lookups);
        let without_cache = traffic.epoch(&PinnedRows::none(table.skew), lookups);
        let saved = without_cache.bytes.total() - epoch.bytes.total();
        let load = cache.pinned.rows() * bytes.record as f64;
        Object::default()
            // The number to configure: the slots of whole sets, at most the table's rows.
            .with("cache_rows", cache_rows)
            .with("cache_bytes", cache.slots() * bytes.slot)
            .with("cache_percent", 100.0 * cache_rows as f64 / f64::from(input.rows))
            // Rows that find a way: known for a trace, expected for a distribution.
            .with("pinned_rows", cache.pinned.rows())
            // Hottest rows, as many as there are ways to pin, that find no way; colder rows take their place.
            .with("without_a_way", cache.left_out)
            .with("batch_samples", samples)
            .with("batch_lookups", lookups)
            .with("device_bytes", self.device_bytes)
            .with("form", form(Draws::of_batch(table.skew, lookups)))
            .with("hit_rate", cache.pinned.hit_rate(table.skew))
            .with("batch", crossing(&traffic.batch(&cache.pinned, lookups)))
            .with("epoch", crossing(&epoch))
            // The same batches without a cache, and lookups that each send their row.
            .with("epoch_without_cache", crossing(&without_cache))
            .with("epoch_uncoalesced", crossing(&traffic.uncoalesced(lookups)))
            // Bytes to load the pinned rows once, and the epochs after which the cache has saved as many.
            .with("load_bytes", load)
            .with("load_pays_after_epochs", (saved > 0.0).then(|| load / saved))
            .with("one_more_set", more_rows(self.more))
    }

    /// SCARS' scaling claim without pinned rows.
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
        let input = self.job.input;
        let lookups = input.table().of_samples(self.curve.cheapest().batch);
        let scaling = Object::default().with("times", *times).with("rows", input.rows).with("lookups", lookups);
        Some(scaling.with("lines", lines.collect::<Field>()))
    }

    /// The text: the plan and its traffic, the skew, the quarters; the scaling and the runs if asked for. `json` is the plan as JSON.
    pub(super) fn text(&self, json: &Object) -> String {
        let (plan, quarters) = (json.object("plan"), json.object("portions"));
        let mut parts = vec![self.title(), plan.clone().plain().table("plan")];
        if self.device_bytes > self.job.memory {
            parts.push("The group takes more than the budget.".to_owned());
        }
        let all = |traffic: &Object| {
            ["index_bytes", "read_bytes", "written_bytes"].map(|name| traffic.number(name)).iter().sum::<f64>()
        };
        let epoch = all(&plan.object("epoch"));
        let with_all = |traffic: Object| {
            let bytes = all(&traffic);
            traffic.with("all_bytes", bytes).with("times an epoch", bytes / epoch)
        };
        let traffic: Vec<Object> = plan.parts().into_iter().map(with_all).collect();
        parts.push(format!("Bytes over the bus:\n{}", object::table(&traffic)));
        let skew = object::table(json.list("skew"));
        parts.push(format!("The hottest rows that serve a share of the lookups:\n{skew}"));
        let quarters = quarters.table("quarters of the pinned rows, hottest first");
        parts.push(quarters);
        if let Some(scaling) = self.scaling() {
            let (times, lines) = (scaling.table("SCARS' scaling claim"), object::table(scaling.list("lines")));
            parts.push(format!("{times}\n\n{lines}"));
        }
        parts.extend(self.verify.iter().map(Run::text));
        parts.join("\n\n")
    }

    fn title(&self) -> String {
        let PlannedGroup { rows, dim, precision, optimizer, training, .. } = self.job.group;
        let Input { name, samples, per_sample, .. } = self.job.input;
        let work = if training { format!("training with {}", optimizer.kind) } else { "inference".to_owned() };
        format!(
            "{name}: {rows} rows x {dim} in {precision}, {work}; {samples} samples of {} lookups; {} of device memory",
            digits(*per_sample),
            in_units(self.job.memory as f64)
        )
    }
}

/// The bytes over the bus as JSON.
fn crossing(traffic: &RowTraffic) -> Object {
    Object::default()
        .with("distinct_rows", traffic.distinct_rows)
        .with("index_bytes", traffic.bytes.index)
        .with("read_bytes", traffic.bytes.read)
        .with("written_bytes", traffic.bytes.written)
}

/// A split of the budget as JSON.
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

/// Whether one more set of rows, and a batch that is smaller by as much, would cost less; else the reason.
const fn more_rows(more: MoreRows) -> &'static str {
    match more {
        MoreRows::Pays => "pays",
        MoreRows::DoesNotPay => "does-not-pay",
        MoreRows::AllRows => "all-rows",
        MoreRows::AllWays => "all-ways",
        MoreRows::NoRoom => "no-room",
    }
}
