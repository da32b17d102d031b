//! A plan of memory as tables and as JSON.

use super::super::BINDING;
use crate::object::{self, Field, Object};
use crate::output;
use hotrow::{MemoryReport, TableMemory};

/// One plan.
pub(super) struct Plan {
    /// The group in words.
    pub(super) title: String,
    /// Its settings, as JSON has them.
    pub(super) settings: Object,
    /// Whose formula of the memory there is for such a group.
    pub(super) formula: &'static str,
    /// What makes its buffers smaller.
    pub(super) remedy: &'static str,
    pub(super) report: MemoryReport,
}

/// The purposes of [`MemoryReport::lines`] in JSON.
const PURPOSES: [&str; 12] = [
    "payload",
    "scales",
    "record_state",
    "cache_weights",
    "cache_state",
    "tags",
    "stamps",
    "frequencies",
    "counters",
    "staging",
    "scratch",
    "padding",
];

impl Plan {
    /// An object of the schema of `--json`.
    pub(super) fn json(&self) -> Object {
        let report = &self.report;
        let lines = PURPOSES.into_iter().zip(report.lines());
        let bytes = lines.fold(Object::default(), |bytes, (name, (_, of))| bytes.with(name, of));
        let (largest, largest_bytes) = report.largest();
        let tables = report.tables.iter().map(|table| {
            Object::default()
                .with("rows", table.rows)
                .with("payload", table.payload)
                .with("scales", table.scales)
                .with("state", table.state)
                .with("padding", table.padding)
                .with("frequencies", table.frequencies)
                .with("total_bytes", table.total())
        });
        Object::default()
            .with("rows", report.rows)
            .with("dim", report.dim)
            .and(self.settings.clone())
            .with("bytes", bytes)
            .with("total_bytes", report.total())
            .with("kept_bytes", report.kept())
            .with("device_bytes", report.device())
            .with("host_bytes", report.host)
            .with("largest_buffer", Object::default().with("what", largest).with("bytes", largest_bytes))
            .with("formula_factor", report.formula)
            .with("factor", report.factor())
            .with("factor_with_state", report.factor_with_state())
            .with("tables", tables.collect::<Field>())
    }

    /// Every purpose; each table where there are several.
    pub(super) fn text(&self) -> String {
        let report = &self.report;
        let (largest, largest_bytes) = report.largest();
        let mut table = output::table(["purpose", "bytes"], 1);
        let totals = [
            ("total", report.total()),
            ("of it on the device", report.device()),
            ("of it in host memory", report.host),
        ];
        let purposes = report.lines().into_iter().filter(|&(_, bytes)| bytes > 0);
        for (purpose, bytes) in purposes.chain(totals) {
            table.add_row([purpose.to_owned(), bytes.to_string()]);
        }
        table.add_row([format!("largest buffer ({largest})"), largest_bytes.to_string()]);
        for (name, factor) in [
            (format!("factor, the formula of {}", self.formula), report.formula),
            ("factor, all of it against FP32 rows".to_owned(), report.factor()),
            ("the same, against FP32 rows and state".to_owned(), report.factor_with_state()),
        ] {
            table.add_row([name, format!("{factor:.6}")]);
        }
        let mut text = format!("{}\n{table}\n", self.title);
        if report.tables.len() > 1 {
            let shared = report.total() - report.tables.iter().map(TableMemory::total).sum::<u64>();
            let tables = object::table(self.json().list("tables"));
            text += &format!("\n{tables}\n{shared} bytes are shared by the tables\n");
        }
        text
    }

    /// The note on a buffer that the device would not bind.
    pub(super) fn too_large(&self) -> Option<String> {
        let (what, bytes) = self.report.largest();
        (bytes > BINDING).then(|| {
            format!(
                "note: {}: the buffer `{what}` takes {bytes} bytes, more than the {BINDING} of a Vulkan binding: {}",
                self.title, self.remedy
            )
        })
    }
}
