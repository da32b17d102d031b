//! The answer of `hotrow plan` as JSON, as tables and as a plot.

use super::input::{Input, Source};
use super::marginal;
use super::quarters;
use super::tables;
use super::verify::{Run, form};
use hotrow::WAYS;
use hotrow_plan::scars::{Budget, MoreRows, Pinned, Plan, PlannedGroup, Planner, Split, Traffic};
use hotrow_report::object::{self, Field, Object, digits, fields, in_units};
use hotrow_report::plot::{Chart, Style};

/// The shares of the lookups in the table of the skew, in percent.
const SHARES: [f64; 5] = [50.0, 80.0, 90.0, 95.0, 99.0];

pub(super) struct Job<'a> {
    pub(super) input: &'a Input,
    pub(super) group: PlannedGroup,
    pub(super) budget: Budget,
    pub(super) planner: Planner<'a>,
    /// The whole budget, with the memory that the group needs beside cache and batch.
    pub(super) memory: u64,
}

impl Job<'_> {
    pub(super) const fn fixed_batch(&self) -> bool {
        self.budget.smallest_batch == self.budget.largest_batch
    }

    /// The rows to configure for a cache: the slots of whole sets, at most the table's rows.
    pub(super) fn cache_rows(&self, cache: &Pinned) -> u32 {
        cache.slots().min(self.input.rows.into()) as u32
    }
}

pub(super) struct Answer<'a> {
    pub(super) job: Job<'a>,
    pub(super) plan: Plan,
    /// The cache of the cheapest split.
    pub(super) cache: Pinned,
    /// All device bytes of the group by the crate's memory plan. Records are in host memory.
    pub(super) device_bytes: u64,
    pub(super) verify: Vec<Run>,
}

impl Answer<'_> {
    pub(super) fn json(&self) -> Object {
        let Job { input, group, budget, memory, .. } = &self.job;
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
        let config = Object::default()
            .with("dim", group.config.dim)
            .with("precision", group.config.precision.name())
            .with("optimizer", group.config.optimizer.kind.name())
            .with("training", group.training)
            .with("record_bytes", group.record)
            .with("slot_bytes", group.slot);
        let budget = Object::default()
            .with("bytes", *memory)
            .with("sample_bytes", budget.sample)
            .with("smallest_batch", budget.smallest_batch)
            .with("fixed_batch", self.job.fixed_batch())
            .with("batch_cost", budget.batch_cost as u64)
            .with("pinned_ways", budget.pinned_ways);
        let skew = SHARES.iter().map(|&lookups_percent| {
            let hottest = input.skew.rows_for(lookups_percent / 100.0);
            Object::default()
                .with("lookups_percent", lookups_percent)
                .with("rows", hottest)
                .with("rows_percent", 100.0 * hottest as f64 / f64::from(input.rows))
                .with("cache_bytes", hottest.next_multiple_of(WAYS.into()) * group.slot)
        });
        Object::default()
            .with("source", source)
            .with("group", config)
            .with("budget", budget)
            .with("plan", self.plan())
            .with("optimum", self.split(self.plan.cheapest()))
            .with("curve", self.plan.splits.values().map(|split| self.split(split)).collect::<Field>())
            .with("skew", skew.collect::<Field>())
            .with(
                "one_more_row",
                marginal::one_more_row(self.job.input, &self.job.budget, self.sizes()).into_iter().collect::<Field>(),
            )
            .with("verify", self.verify.iter().map(|run| run.json.clone()).collect::<Field>())
    }

    /// Numbers of hottest rows: none, the plan's, and those that serve a share of the lookups.
    fn sizes(&self) -> Vec<u64> {
        let shares = SHARES.iter().map(|percent| self.job.input.skew.rows_for(percent / 100.0));
        shares.chain([0, self.cache.count() as u64]).collect()
    }

    fn plan(&self) -> Object {
        let (Job { input, group, planner, .. }, cache) = (&self.job, &self.cache);
        let samples = self.plan.cheapest().batch;
        let (lookups, cache_rows) = (planner.lookups_of(samples), self.job.cache_rows(cache));
        let epoch = planner.epoch(cache, lookups);
        let without_cache = planner.epoch(&Pinned::none(&input.skew), lookups);
        // The same batches, if the row of each lookup is sent by itself.
        let mut uncoalesced = without_cache;
        uncoalesced.read = planner.lookups_of(input.samples) as f64 * group.record as f64;
        uncoalesced.written = if group.training { uncoalesced.read } else { 0.0 };
        let saved = without_cache.bytes() - epoch.bytes();
        let load = cache.count() * group.record as f64;
        Object::default()
            .with("cache_rows", cache_rows)
            .with("cache_bytes", cache.slots() * group.slot)
            .with("cache_percent", 100.0 * f64::from(cache_rows) / f64::from(input.rows))
            // Rows that find a way: known for a trace, expected for a distribution.
            .with("pinned_rows", cache.count())
            // Hottest rows, as many as there are ways to pin, that find no way; colder rows take their place.
            .with("without_a_way", cache.left_out)
            .with("without_a_way_share", cache.left_out_share)
            .with("batch_samples", samples)
            .with("batch_lookups", lookups)
            .with("device_bytes", self.device_bytes)
            .with("form", form(&input.skew, lookups))
            .with("hit_rate", cache.hit_rate(&input.skew))
            .with("batch", crossing(&planner.batch(cache, lookups)))
            .with("epoch", crossing(&epoch))
            .with("epoch_without_cache", crossing(&without_cache))
            .with("epoch_uncoalesced", crossing(&uncoalesced))
            // Bytes to load the pinned rows once, and the epochs after which the cache has saved as many.
            .with("load_bytes", load)
            .with("load_pays_after_epochs", (saved > 0.0).then(|| load / saved))
            .with("one_more_set", more_rows(self.plan.more))
    }

    fn split(&self, split: &Split) -> Object {
        fields!(split; pinned_rows, cache_bytes)
            .with("batch_samples", split.batch)
            .with("epoch_bytes", split.epoch_bytes)
            .with("epoch_cost", split.cost)
            .with("cost_percent", self.cost_percent(split))
            .with("hit_rate", split.hit_rate)
    }

    /// The cost in percent of the cost without a cache, where the batch has all memory.
    pub(super) fn cost_percent(&self, split: &Split) -> f64 {
        100.0 * split.cost / self.plan.splits[&0].cost
    }

    /// The text: the plan and its traffic, the skew; the runs if asked for. `json` is the plan as JSON.
    pub(super) fn text(&self, json: &Object) -> String {
        let plan = json.object("plan");
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
        if self.cache.count() > 0.0 {
            let [first, second, third, last] = match &self.job.input.source {
                Source::Trace(trace) => quarters::counted(&trace.samples(), &self.cache.rows, self.job.input.rows),
                Source::Distribution(_) => {
                    quarters::expected(&self.job.input.skew, self.cache.per_bin(), self.job.input.per_sample)
                }
            }
            .map(|users| digits(users.round()));
            parts.push(format!(
                "Of 1,024 samples {first} look up a row of the hottest quarter of the pinned rows, {second}, {third} and {last} one of the others (SCARS, Figure 4)."
            ));
        }
        let skew = object::table(json.list("skew"));
        parts.push(format!("The hottest rows that serve a share of the lookups:\n{skew}"));
        if let Source::Trace(trace) = &self.job.input.source
            && !trace.tables.is_empty()
        {
            let table = object::table(&tables::lines(&trace.tables));
            parts.push(format!(
                "The share of each table's lookups that its hottest rows have, of those in use:\n{table}"
            ));
        }
        let rows = json.list("one_more_row");
        if !rows.is_empty() {
            let table = object::table(rows);
            parts.push(format!("One more pinned row, in rows that a batch saves and that the smaller batch costs (SCARS, eq. 11 to 13):\n{table}"));
            parts.extend(marginal::off(rows));
        }
        parts.extend(self.verify.iter().map(Run::text));
        parts.join("\n\n")
    }

    fn title(&self) -> String {
        let (Input { name, rows, samples, per_sample, .. }, PlannedGroup { config, training, .. }) =
            (self.job.input, &self.job.group);
        let work = if *training { format!("training with {}", config.optimizer.kind) } else { "inference".to_owned() };
        let table = format!("{rows} rows x {} in {}", config.dim, config.precision);
        let (lookups, memory) = (digits(*per_sample), in_units(self.job.memory as f64));
        format!("{name}: {table}, {work}; {samples} samples of {lookups} lookups; {memory} of device memory")
    }
}

fn crossing(traffic: &Traffic) -> Object {
    Object::default()
        .with("distinct_rows", traffic.distinct_rows)
        .with("index_bytes", traffic.index)
        .with("read_bytes", traffic.read)
        .with("written_bytes", traffic.written)
}

/// The reason why one more set of rows, and a batch that is smaller by as much, would not cost less.
const fn more_rows(more: MoreRows) -> &'static str {
    match more {
        MoreRows::AllRows => "all-rows",
        MoreRows::AllWays => "all-ways",
        MoreRows::NoRoom => "no-room",
        MoreRows::DoesNotPay => "does-not-pay",
    }
}

const MIB: f64 = (1 << 20) as f64;

/// The highest percentage that is drawn.
const HIGHEST: f64 = 140.0;

/// A chart over the size of the cache: bytes of an epoch in percent of those without a cache, and the hit rate. The plan is marked.
pub(super) fn curve(answer: &Answer<'_>) -> Chart {
    let mut chart = Chart::new("Cache (MiB)", "Percent");
    chart.title = format!("{}: bus bytes and hit rate by cache size", answer.job.input.name);
    chart.log_x = true;
    let (splits, best) = (&answer.plan.splits, answer.plan.cheapest());
    let size = |split: &Split| split.cache_bytes as f64 / MIB;
    let sizes = splits.values().map(size).filter(|&size| size > 0.0);
    let ends = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| (least.min(size), most.max(size)));
    chart.x_range = Some((0.8 * ends.0, 1.25 * ends.1));
    // Values far above are cut off.
    let highest = splits.values().map(|split| answer.cost_percent(split)).fold(100.0, f64::max).min(HIGHEST);
    chart.y_range = Some((0.0, (highest / 20.0).ceil() * 20.0));
    let points = |value: &dyn Fn(&Split) -> f64| -> Vec<(f64, f64)> {
        splits.values().map(|split| (size(split), value(split))).filter(|&(_, y)| y <= HIGHEST).collect()
    };
    let own = if answer.job.budget.batch_cost > 0.0 { " and batches' own cost" } else { "" };
    let batches = if answer.job.fixed_batch() {
        format!(", batches of {}", answer.job.budget.smallest_batch)
    } else {
        format!("; the rest of {} is the batch's", in_units(answer.job.memory as f64))
    };
    let (rows, bytes) = (best.pinned_rows, in_units(best.cache_bytes as f64));
    let plan = format!("the plan: {rows:.0} rows in {bytes}, batches of {} samples", best.batch);
    for (label, points, colour, dashed, markers) in [
        (
            format!("bus bytes of an epoch{own}{batches}; 100: no cache"),
            points(&|split| answer.cost_percent(split)),
            0,
            false,
            false,
        ),
        ("hit rate".to_owned(), points(&|split| 100.0 * split.hit_rate), 2, true, false),
        (plan, vec![(size(best), answer.cost_percent(best))], 1, false, true),
    ] {
        chart.line(label, points, Style { colour, dashed, markers });
    }
    chart
}
