//! A plan of memory as tables and as JSON.

use super::super::BINDING;
use crate::names;
use crate::output;
use hotrow::{MemoryReport, OptimizerKind, Placement, Policy, Precision, TableMemory};
use serde::Serialize;
use std::fmt::Write;

/// One plan. The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    rows: u64,
    dim: u32,
    #[serde(flatten)]
    kind: Kind,
    #[serde(with = "Bytes")]
    bytes: MemoryReport,
    total_bytes: u64,
    kept_bytes: u64,
    device_bytes: u64,
    host_bytes: u64,
    largest_buffer: Largest,
    formula_factor: f64,
    factor: f64,
    factor_with_state: f64,
    tables: Vec<Table>,
}

/// The kind of group that is planned for.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Kind {
    /// Tables that share a cache.
    Cached {
        #[serde(with = "names")]
        precision: Precision,
        cache_percent: f64,
        cache_rows: u32,
        slots: u32,
        #[serde(with = "names")]
        policy: Policy,
        #[serde(with = "names")]
        optimizer: OptimizerKind,
        batch: u32,
        #[serde(with = "names")]
        placement: Placement,
        shard_bytes: Option<u64>,
        shards: u32,
    },
    /// Tables whose rows share an array.
    Shared {
        compression: f64,
        chunk: u32,
        weights: u32,
        #[serde(with = "names")]
        optimizer: OptimizerKind,
        batch: u32,
    },
}

/// Bytes by purpose.
#[derive(Serialize)]
#[serde(remote = "MemoryReport")]
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

#[derive(Debug, Serialize)]
struct Largest {
    what: &'static str,
    bytes: u64,
}

/// The rows of one table.
#[derive(Debug, Serialize)]
struct Table(#[serde(with = "TableBytes")] TableMemory);

#[derive(Serialize)]
#[serde(remote = "TableMemory")]
struct TableBytes {
    rows: u64,
    payload: u64,
    scales: u64,
    state: u64,
    padding: u64,
    frequencies: u64,
    #[serde(getter = "TableMemory::total")]
    total_bytes: u64,
}

impl Plan {
    pub(super) fn new(dim: u32, kind: Kind, report: MemoryReport) -> Self {
        let (what, bytes) = report.largest();
        Self {
            rows: report.rows,
            dim,
            kind,
            total_bytes: report.total(),
            kept_bytes: report.kept(),
            device_bytes: report.device(),
            host_bytes: report.host,
            largest_buffer: Largest { what, bytes },
            formula_factor: report.formula,
            factor: report.factor(),
            factor_with_state: report.factor_with_state(),
            tables: report.tables.iter().copied().map(Table).collect(),
            bytes: report,
        }
    }

    fn title(&self) -> String {
        let Self { rows, dim, .. } = self;
        match &self.kind {
            Kind::Cached { precision, slots, policy, cache_percent, optimizer, placement, batch, .. } => {
                let cache = match slots {
                    0 => "no cache".to_owned(),
                    slots => format!("{} cache of {slots} slots ({cache_percent} %)", names::title(*policy)),
                };
                format!(
                    "{rows} rows x {dim}, {precision}, {cache}, {optimizer}, placement {placement}, batches of {batch} indices"
                )
            }
            Kind::Shared { weights, compression, chunk, optimizer, batch } => format!(
                "{rows} rows x {dim} in {weights} shared weights ({compression:.6} times fewer, chunks of {chunk}), {}, batches of \
                 {batch} indices",
                optimizer
            ),
        }
    }

    /// Every purpose; each table where there are several.
    pub(super) fn text(&self) -> String {
        let formula = match self.kind {
            Kind::Cached { .. } => "Yang 2020",
            Kind::Shared { .. } => "ROBE",
        };
        let mut table = output::table(["purpose", "bytes"], 1);
        for (purpose, bytes) in self.bytes.lines().into_iter().filter(|&(_, bytes)| bytes > 0) {
            table.add_row([purpose.to_owned(), bytes.to_string()]);
        }
        for (name, value) in [
            ("total", self.total_bytes.to_string()),
            ("of it on the device", self.device_bytes.to_string()),
            ("of it in host memory", self.host_bytes.to_string()),
            (&format!("largest buffer ({})", self.largest_buffer.what), self.largest_buffer.bytes.to_string()),
            (&format!("factor, the formula of {formula}"), format!("{:.6}", self.formula_factor)),
            ("factor, all of it against FP32 rows", format!("{:.6}", self.factor)),
            ("the same, against FP32 rows and state", format!("{:.6}", self.factor_with_state)),
        ] {
            table.add_row([name.to_owned(), value]);
        }
        let mut text = format!("{}\n{table}\n", self.title());
        if self.tables.len() > 1 {
            let shared = self.total_bytes - self.tables.iter().map(|table| table.0.total()).sum::<u64>();
            // Writing into a string cannot fail.
            let _ = writeln!(text, "\n{}\n{shared} bytes are shared by the tables", self.tables_table());
        }
        text
    }

    fn tables_table(&self) -> comfy_table::Table {
        let header = ["table", "rows", "payload", "scales", "state", "padding", "frequencies", "bytes"];
        let mut table = output::table(header, 0);
        for (index, Table(of)) in (0..).zip(&self.tables) {
            let cells = [index, of.rows, of.payload, of.scales, of.state, of.padding, of.frequencies, of.total()];
            table.add_row(cells.map(|cell: u64| cell.to_string()));
        }
        table
    }

    /// The plan as a line: names and values. The first values are words.
    fn cells(&self) -> Vec<(&'static str, String)> {
        let dim = ("dim", self.dim.to_string());
        let device = ("device bytes", self.device_bytes.to_string());
        match &self.kind {
            Kind::Cached { precision, policy, optimizer, placement, cache_percent, batch, .. } => vec![
                ("precision", precision.to_string()),
                ("policy", policy.to_string()),
                ("optimizer", optimizer.to_string()),
                ("placement", placement.to_string()),
                dim,
                ("cache %", cache_percent.to_string()),
                ("batch", batch.to_string()),
                device,
                ("host bytes", self.host_bytes.to_string()),
                ("total", self.total_bytes.to_string()),
                ("formula", format!("{:.4}", self.formula_factor)),
                ("factor", format!("{:.4}", self.factor)),
                ("with state", format!("{:.4}", self.factor_with_state)),
            ],
            Kind::Shared { compression, chunk, weights, optimizer, batch } => vec![
                ("optimizer", optimizer.to_string()),
                dim,
                ("compression", format!("{compression:.2}")),
                ("chunk", chunk.to_string()),
                ("batch", batch.to_string()),
                ("weights", weights.to_string()),
                ("kept", self.kept_bytes.to_string()),
                device,
                ("factor", format!("{:.6}", self.factor)),
            ],
        }
    }

    /// The note on a buffer that the device would not bind.
    pub(super) fn too_large(&self) -> Option<String> {
        let Largest { what, bytes } = self.largest_buffer;
        let remedy = match self.kind {
            Kind::Cached { .. } => "make the batch, or the cache, smaller",
            Kind::Shared { .. } => "make the batch smaller, or compress more",
        };
        (bytes > BINDING).then(|| {
            format!(
                "note: {}: the buffer `{what}` takes {bytes} bytes, more than the {BINDING} of a Vulkan binding: {remedy}",
                self.title()
            )
        })
    }
}

/// One line a plan.
pub(super) fn summary(plans: &[Plan]) -> String {
    let lines: Vec<Vec<(&str, String)>> = plans.iter().map(Plan::cells).collect();
    let header: Vec<&str> = lines[0].iter().map(|&(name, _)| name).collect();
    let words = header.iter().position(|&name| name == "dim").unwrap_or(0);
    let mut table = output::table(header, words);
    for line in lines {
        table.add_row(line.into_iter().map(|(_, value)| value));
    }
    table.to_string()
}
