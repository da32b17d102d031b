//! The answer of `hotrow plan dist` as JSON and as tables.

use super::bill::{Hot, Speed, imbalance};
use super::count::Counted;
use super::memory::Kept;
use super::verify;
use super::wire::{Phase, Wire};
use crate::object::{self, Field, Object, digits};
use hotrow::Precision;

/// The bill of one source of accesses for one number of ranks.
pub(super) struct Answer<'a> {
    /// Parts of the schema of `--json`.
    pub(super) source: &'a Object,
    pub(super) group: &'a Object,
    pub(super) batch: u32,
    pub(super) counted: &'a Counted,
    pub(super) kept: Kept,
    pub(super) speed: &'a Speed,
    /// Numbers of the hottest rows that could be replicated, ascending.
    pub(super) replicas: &'a [u32],
    pub(super) verify: &'a [Object],
}

impl Answer<'_> {
    /// The schema of `--json`.
    pub(super) fn json(&self) -> Object {
        let bill = &self.counted.mean;
        let wire = bill.wire;
        let pulled = [Phase::Requests, Phase::Sizes, Phase::Rows].map(|phase| bill.phase(phase));
        let step = Object::default()
            .with("accesses", bill.part.iter().sum::<f64>())
            .with("distinct_rows", bill.distinct)
            // Distinct rows of each rank's part, summed: of its own shards, and of others.
            .with("own_rows", bill.own_rows)
            .with("asked_rows", bill.asked.rows)
            .with("dirty_rows", bill.asked.dirty)
            .with("far_accesses", bill.asked.accesses)
            .with("far_bags", bill.asked.bags)
            .with("rows_with_requests_bytes", pulled.iter().sum::<f64>());
        Object::default()
            .with("source", self.source.clone())
            .with("group", self.group.clone())
            .with("ranks", wire.ranks)
            .with("shards", wire.shards)
            .with("batch", self.batch)
            .with("total_bytes", bill.total())
            .with("step", step)
            .with("phases", self.phases().into_iter().collect::<Field>())
            .and(self.ranks())
            .with("memory", self.memory())
            .with("time", self.time())
            .with("precisions", self.precisions().into_iter().collect::<Field>())
            .with("replicas", self.replicas().into_iter().collect::<Field>())
            .with("verify", verify::field(self.verify))
    }

    fn phases(&self) -> Vec<Object> {
        let bill = &self.counted.mean;
        let pairs = bill.pairs().count().max(1) as f64;
        let total = bill.total();
        let line = |(phase, seconds): (Phase, f64)| {
            let bytes = bill.phase(phase);
            Object::default()
                .with("phase", phase.name())
                .with("bytes", bytes)
                .with("share", if total > 0.0 { bytes / total } else { 0.0 })
                .with("messages", bill.messages(phase))
                .with("mean_pair_bytes", bytes / pairs)
                .with("largest_pair_bytes", bill.largest_pair(&[phase]).map_or(0.0, |(_, bytes)| bytes))
                .with("seconds", seconds)
        };
        Phase::ALL.into_iter().zip(self.counted.seconds.0).map(line).collect()
    }

    /// What ranks and pairs of ranks move.
    fn ranks(&self) -> Object {
        let bill = &self.counted.mean;
        let through = bill.through();
        let largest = bill.largest_pair(&Phase::ALL);
        let (from, to) = largest.map_or((None, None), |((from, to), _)| (Some(from), Some(to)));
        let rank = Object::default()
            .with("sent_bytes", bill.total() / f64::from(bill.wire.ranks))
            .with("busiest_bytes", through.iter().copied().fold(0.0, f64::max));
        let pair = Object::default()
            .with("mean_bytes", bill.total() / bill.pairs().count().max(1) as f64)
            .with("largest_bytes", largest.map_or(0.0, |(_, bytes)| bytes))
            .with("from", from)
            .with("to", to)
            .with("largest_of_a_step_bytes", self.counted.largest_pair);
        let largest_over_mean = Object::default()
            .with("bytes_ratio", imbalance(&through))
            .with("bytes_of_a_step_ratio", self.counted.imbalance)
            .with("accesses_ratio", imbalance(&bill.part))
            .with("own_rows_accesses_ratio", imbalance(&bill.owned));
        Object::default().with("rank", rank).with("pair", pair).with("imbalance", largest_over_mean)
    }

    fn memory(&self) -> Object {
        Object::default()
            .with("rows", self.kept.rows)
            .with("records_bytes", self.kept.records)
            .with("cache_bytes", self.kept.cache)
            .with("kept_bytes", self.kept.all)
            .with("messages_bytes", self.counted.largest_message)
    }

    fn time(&self) -> Object {
        let (phases, own) = self.counted.seconds;
        let exchange: f64 = phases.iter().sum();
        let all = exchange + own;
        // An option in other units and back is not quite what was given.
        let given = |number: f64| (number * 1e9).round() / 1e9;
        Object::default()
            .with("alpha_us", given(self.speed.alpha * 1e6))
            .with("beta_gbit", given(self.speed.beta * 8e-9))
            .with("gamma_gb", given(self.speed.gamma * 1e-9))
            .with("per_host", self.speed.per_host)
            .with("exchange_seconds", exchange)
            .with("own_seconds", own)
            .with("exchange_share", if all > 0.0 { exchange / all } else { 0.0 })
    }

    /// The bytes of sizes and rows for each precision of the table. Which slots are dirty depends on no precision.
    fn precisions(&self) -> Vec<Object> {
        let bill = &self.counted.mean;
        let pairs = bill.pairs().count() as f64;
        let bytes = |precision| bill.wire.with_precision(precision).answer_bytes(&bill.asked, pairs);
        let plain = bytes(Precision::Fp32);
        let line = |precision: Precision| {
            let packed = bytes(precision);
            Object::default()
                .with("precision", precision.name())
                .with("rows_bytes", packed)
                .with("saved_percent", if plain > 0.0 { 100.0 * (1.0 - packed / plain) } else { 0.0 })
        };
        Precision::ALL.into_iter().map(line).collect()
    }

    /// The bytes of the hottest rows as they are asked for, and if every rank had them: then their home sends the new values to all
    /// others after each step that uses them. Their gradients go home either way.
    fn replicas(&self) -> Vec<Object> {
        let wire = self.counted.mean.wire;
        let others = f64::from(wire.ranks - 1);
        let mut sum = Hot::default();
        let line = |(&rows, hot): (&u32, &Hot)| {
            sum = Hot { asked: sum.asked + hot.asked, dirty: sum.dirty + hot.dirty, used: sum.used + hot.used };
            let asked = Wire::request_bytes(sum.asked) + wire.rows_bytes(sum.asked, sum.dirty);
            let pushed = sum.used * others * wire.row_bytes();
            Object::default()
                .with("rows", rows)
                .with("asked_rows", sum.asked)
                .with("asked_bytes", asked)
                .with("replicated_bytes", pushed)
                .with("more_bytes", pushed - asked)
                .with("memory_bytes", f64::from(rows) * others * wire.row_bytes())
        };
        self.replicas.iter().zip(&self.counted.mean.hot).map(line).collect()
    }
}

/// The text of an answer from its JSON.
pub(super) fn text(json: &Object) -> String {
    let (source, group) = (json.object("source"), json.object("group"));
    let title = format!(
        "{}: {} rows x {} in {}, {} ranks, {} virtual shards, batches of {} bags; {} of {} steps",
        source.text("name"),
        source.number("rows"),
        group.number("dim"),
        group.text("precision"),
        json.number("ranks"),
        json.number("shards"),
        json.number("batch"),
        if source.text("kind") == "trace" { "counted, the mean" } else { "expected, the mean" },
        digits(source.number("steps"))
    );
    let mut parts = vec![title, json.object("step").table("a step, all ranks")];
    parts.push(format!("Bytes of a step, all ranks:\n{}", object::table(json.list("phases"))));
    for (name, title) in [
        ("rank", "a rank, a step"),
        ("pair", "from one rank to another, a step"),
        ("imbalance", "largest rank over the mean rank"),
        ("memory", "memory of a rank"),
        ("time", "time of a step"),
    ] {
        parts.push(json.object(name).table(title));
    }
    parts.push(format!("Rows and their sizes by the table's precision:\n{}", object::table(json.list("precisions"))));
    if !json.list("replicas").is_empty() {
        let table = object::table(json.list("replicas"));
        parts.push(format!("The hottest rows, asked for or replicated on all ranks:\n{table}"));
    }
    if !json.list("verify").is_empty() {
        parts.push(format!("Planned and counted bytes of a step:\n{}", object::table(json.list("verify"))));
    }
    parts.join("\n\n")
}

/// A line for each answer, to compare them.
pub(super) fn summary(answers: &[Object]) -> String {
    let line = |json: &Object| {
        Object::default()
            .with("source", json.text("source name"))
            .with("ranks", json.number("ranks"))
            .with("total_bytes", json.number("total_bytes"))
            .with("rank_sent_bytes", json.number("rank sent_bytes"))
            .with("imbalance", json.number("imbalance bytes_ratio"))
            .with("exchange_seconds", json.number("time exchange_seconds"))
            .with("exchange_share", json.number("time exchange_share"))
            .with("kept_bytes", json.number("memory kept_bytes"))
    };
    object::table(&answers.iter().map(line).collect::<Vec<_>>())
}
