//! A plan as tables and as JSON.

use super::{BINDING, Choice};
use crate::names::{CachePolicyName, OptimizerName, PlacementName, PrecisionName, option_name};
use crate::output;
use hotrow::internals::Pieces as _;
use hotrow::{GroupConfig, Layout, MemoryReport, TableMemory};
use serde::Serialize;
use std::fmt::Write;

/// One plan. The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    rows: u64,
    dim: u32,
    precision: PrecisionName,
    cache_percent: f64,
    cache_rows: u32,
    slots: u32,
    policy: CachePolicyName,
    optimizer: OptimizerName,
    batch: u32,
    placement: PlacementName,
    shard_bytes: Option<u64>,
    shards: u32,
    #[serde(flatten)]
    taken: Taken,
}

/// What every plan says of its memory.
#[derive(Debug, Serialize)]
pub(super) struct Taken {
    bytes: Bytes,
    total_bytes: u64,
    pub(super) kept_bytes: u64,
    pub(super) device_bytes: u64,
    host_bytes: u64,
    largest_buffer: Largest,
    formula_factor: f64,
    pub(super) factor: f64,
    factor_with_state: f64,
    tables: Vec<Table>,
    #[serde(skip)]
    report: MemoryReport,
}

impl Taken {
    pub(super) fn of(report: MemoryReport) -> Self {
        Self {
            bytes: Bytes::of(&report),
            total_bytes: report.total(),
            kept_bytes: report.kept(),
            device_bytes: report.device(),
            host_bytes: report.host,
            largest_buffer: Largest::of(&report),
            formula_factor: report.formula,
            factor: report.factor(),
            factor_with_state: report.factor_with_state(),
            tables: report.tables.iter().map(Table::of).collect(),
            report,
        }
    }

    /// Every purpose; each table where there are several. `formula`: whose.
    pub(super) fn text(&self, title: &str, formula: &str) -> String {
        let report = &self.report;
        let mut table = output::table(["purpose", "bytes"], 1);
        for (purpose, bytes) in report.lines().into_iter().filter(|&(_, bytes)| bytes > 0) {
            table.add_row([purpose.to_owned(), bytes.to_string()]);
        }
        let (largest, bytes) = report.largest();
        for (what, value) in [
            ("total".to_owned(), report.total().to_string()),
            ("of it on the device".to_owned(), report.device().to_string()),
            ("of it in host memory".to_owned(), report.host.to_string()),
            (format!("largest buffer ({largest})"), bytes.to_string()),
            (format!("factor, {formula}"), format!("{:.6}", report.formula)),
            ("factor, all of it against FP32 rows".to_owned(), format!("{:.6}", report.factor())),
            ("the same, against FP32 rows and state".to_owned(), format!("{:.6}", report.factor_with_state())),
        ] {
            table.add_row([what, value]);
        }
        let mut text = format!("{title}\n{table}\n");
        if report.tables.len() > 1 {
            let header = ["table", "rows", "payload", "scales", "state", "padding", "frequencies", "bytes"];
            let mut each = output::table(header, 0);
            for (index, table) in report.tables.iter().enumerate() {
                each.add_row([index as u64].iter().chain(&Table::of(table).cells()).map(u64::to_string));
            }
            let own: u64 = report.tables.iter().map(TableMemory::total).sum();
            // Writing into a string cannot fail.
            let _ = writeln!(text, "\n{each}\n{} bytes are shared by the tables", report.total() - own);
        }
        text
    }

    /// The note on a buffer that the device would not bind.
    pub(super) fn too_large(&self, title: &str, remedy: &str) -> Option<String> {
        let Largest { what, bytes } = self.largest_buffer;
        (bytes > BINDING).then(|| {
            format!(
                "note: {title}: the buffer `{what}` takes {bytes} bytes, more than the {BINDING} of a Vulkan binding: {remedy}"
            )
        })
    }
}

/// Bytes by purpose.
#[derive(Debug, Serialize)]
struct Bytes {
    payload: u64,
    scales: u64,
    record_state: u64,
    cache_weights: u64,
    cache_state: u64,
    tags: u64,
    stamps: u64,
    frequencies: u64,
    counters: u64,
    staging: u64,
    scratch: u64,
    padding: u64,
}

impl Bytes {
    const fn of(report: &MemoryReport) -> Self {
        Self {
            payload: report.payload,
            scales: report.scales,
            record_state: report.record_state,
            cache_weights: report.cache_weights,
            cache_state: report.cache_state,
            tags: report.tags,
            stamps: report.stamps,
            frequencies: report.frequencies,
            counters: report.counters,
            staging: report.staging,
            scratch: report.scratch,
            padding: report.padding,
        }
    }
}

/// The largest buffer.
#[derive(Debug, Serialize)]
struct Largest {
    what: &'static str,
    bytes: u64,
}

impl Largest {
    fn of(report: &MemoryReport) -> Self {
        let (what, bytes) = report.largest();
        Self { what, bytes }
    }
}

/// What the rows of one table take.
#[derive(Debug, Serialize)]
struct Table {
    rows: u64,
    payload: u64,
    scales: u64,
    state: u64,
    padding: u64,
    frequencies: u64,
    total_bytes: u64,
}

impl Table {
    fn of(table: &TableMemory) -> Self {
        let &TableMemory { rows, payload, scales, state, padding, frequencies, .. } = table;
        Self { rows, payload, scales, state, padding, frequencies, total_bytes: table.total() }
    }

    fn cells(&self) -> [u64; 7] {
        [self.rows, self.payload, self.scales, self.state, self.padding, self.frequencies, self.total_bytes]
    }
}

impl Plan {
    pub(super) fn new(choice: Choice, config: &GroupConfig, layout: &Layout, report: MemoryReport) -> Self {
        Self {
            rows: report.rows,
            dim: choice.dim,
            precision: choice.precision,
            cache_percent: choice.cache_percent,
            cache_rows: config.cache_rows,
            slots: layout.slots(),
            policy: choice.policy,
            optimizer: choice.optimizer,
            batch: choice.batch,
            placement: choice.placement,
            shard_bytes: config.shard_bytes(),
            shards: layout.shards,
            taken: Taken::of(report),
        }
    }

    fn title(&self) -> String {
        let names = [option_name(&self.precision), option_name(&self.optimizer), option_name(&self.placement)];
        let [precision, optimizer, placement] = names;
        let cache = match self.slots {
            0 => "no cache".to_owned(),
            slots => format!("{} cache of {slots} slots ({} %)", self.policy.name(), self.cache_percent),
        };
        format!(
            "{} rows x {}, {precision}, {cache}, {optimizer}, placement {placement}, batches of {} indices",
            self.rows, self.dim, self.batch
        )
    }

    pub(super) fn text(&self) -> String {
        self.taken.text(&self.title(), "P1's formula")
    }

    /// The note on a buffer that the device would not bind.
    pub(super) fn too_large(&self) -> Option<String> {
        self.taken.too_large(&self.title(), "make the batch, or the cache, smaller")
    }
}

/// One line a plan.
pub(super) fn summary(plans: &[Plan]) -> String {
    let header = [
        "precision",
        "policy",
        "optimizer",
        "placement",
        "dim",
        "cache %",
        "batch",
        "device bytes",
        "host bytes",
        "total",
        "formula",
        "factor",
        "with state",
    ];
    let mut table = output::table(header, 4);
    for plan in plans {
        table.add_row([
            option_name(&plan.precision),
            option_name(&plan.policy),
            option_name(&plan.optimizer),
            option_name(&plan.placement),
            plan.dim.to_string(),
            plan.cache_percent.to_string(),
            plan.batch.to_string(),
            plan.taken.device_bytes.to_string(),
            plan.taken.host_bytes.to_string(),
            plan.taken.total_bytes.to_string(),
            format!("{:.4}", plan.taken.formula_factor),
            format!("{:.4}", plan.taken.factor),
            format!("{:.4}", plan.taken.factor_with_state),
        ]);
    }
    table.to_string()
}
