//! The answer of `hotrow plan robe`: its records, its JSON, its tables and its chart.

use super::arrays::setting;
use super::table::Table;
use crate::plot::{Chart, Series, Style};
use crate::report::{self, Record, Setting, Unit, table};
use hotrow::robe::Config;
use hotrow::robe::fidelity::{Bound, Fidelity, Size, WantedEps};
use std::ffi::OsStr;
use std::path::Path;

/// The answer, which is filled record by record.
pub(super) struct Answer<'t> {
    pub(super) table: &'t Table,
    /// Number of rows measured.
    pub(super) rows: usize,
    /// `row`: each row counts once. Else the name of the trace whose lookups weight the rows.
    pub(super) by: &'t str,
    /// The fit of one weight: the mean of all values in every place is the limit for an array of few weights.
    pub(super) constant: Fidelity,
    pub(super) wanted: Option<WantedEps>,
    pub(super) records: Vec<Record>,
}

/// Names, figures and units. A figure that is not known is left out.
type Figures<'f> = &'f [(&'f str, Option<f64>, Unit)];

impl Answer<'_> {
    fn push(&mut self, shape: &str, setting: &Setting, figures: Figures<'_>) {
        let known = figures.iter().filter_map(|&(what, value, unit)| Some((what, value?, unit)));
        self.records.extend(known.map(|(what, value, unit)| Record::new(what, shape, setting, value, unit)));
    }

    /// The figures of a fit. With `unlike`, the share that would be lost if all values were independent.
    pub(super) fn fit(&mut self, config: &Config, found: &Fidelity, unlike: Option<f64>) -> Result<(), hotrow::Error> {
        let (lost, errors) = (found.mean_square(), found.pair_errors());
        let figures = [
            ("bytes", Some(4.0 * f64::from(config.weights)), Unit::Bytes),
            ("eps, median", Some(found.quantile(0.5)?), Unit::Length),
            ("eps, 95 %", Some(found.quantile(0.95)?), Unit::Length),
            ("eps, largest", Some(found.max()), Unit::Length),
            ("eps, root mean square", Some(lost.sqrt()), Unit::Length),
            // As a share of the row's own length; not finite for a row of length 0 that is not kept exactly.
            ("relative, median", Some(found.relative_quantile(0.5)?), Unit::Share),
            ("relative, 95 %", Some(found.relative_quantile(0.95)?), Unit::Share),
            ("relative, largest", Some(found.relative_quantile(1.0)?), Unit::Share),
            // The mean of eps^2 divided by that of one weight for all.
            ("lost", Some(if lost == 0.0 { 0.0 } else { lost / self.constant.mean_square() }), Unit::Share),
            // From the number of elements that share the sampled rows' weights.
            ("lost if unlike", unlike, Unit::Share),
            ("pairs", Some(found.pairs.len() as f64), Unit::Count),
            ("pairs beyond", Some(errors.beyond as f64), Unit::Count),
            ("inner product, error", Some(errors.inner_error), Unit::Length),
            ("inner product", Some(errors.inner), Unit::Length),
            ("distance, error", Some(errors.distance_error), Unit::Length),
            ("distance", Some(errors.distance), Unit::Length),
        ];
        let shape = if config.weights == 1 { "one weight" } else { "array" };
        self.push(shape, &setting(config, config.compression()), &figures);
        Ok(())
    }

    /// The size found for a wanted eps. `unlike` is the mean number of weights needed if all values are independent; it is not known for a
    /// trace.
    pub(super) fn size(&mut self, chunk: u32, size: &Size, unlike: Option<f64>) {
        let values = self.table.values() as f64;
        let weights = |weights: Option<u32>| weights.map(f64::from);
        let [below, largest] = [size.below(), size.tried.last().copied()];
        let figures = [
            // None if as many weights as the table has values do not keep the wanted eps either.
            ("weights", weights(size.weights), Unit::Count),
            ("compression", weights(size.weights).map(|weights| values / weights), Unit::Times),
            ("bytes", weights(size.weights).map(|weights| 4.0 * weights), Unit::Bytes),
            ("eps", size.found().map(|tried| tried.eps), Unit::Length),
            // The largest size tried below it, whose eps is too large.
            ("weights below", weights(below.map(|tried| tried.weights)), Unit::Count),
            ("eps below", below.map(|tried| tried.eps), Unit::Length),
            // If no size is enough, that of the table.
            ("most weights tried", weights(largest.map(|tried| tried.weights)), Unit::Count),
            ("eps of those", largest.map(|tried| tried.eps), Unit::Length),
            ("weights if unlike", unlike, Unit::Count),
        ];
        self.push("size", &Setting::default().with("chunk", chunk), &figures);
    }

    /// ROBE's corollary 6. The paper does not state its constant; 1 is used.
    pub(super) fn sketch(&mut self, bound: &Bound, eps: f64, delta: f64) {
        let of_the_table = bound.weights / self.table.values() as f64;
        let figures = [
            ("sigma", Some(bound.sigma), Unit::Length),
            ("k", Some(bound.k), Unit::Count),
            ("weights", Some(bound.weights), Unit::Count),
            ("of the table", Some(of_the_table), Unit::Times),
        ];
        self.push("corollary 6", &Setting::default().with("eps", eps).with("delta", delta), &figures);
    }

    /// Writes the table, the sample, the wanted eps, and the records.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let Table { name, kind, tables, rows, dim, .. } = self.table;
        let (values, rms_length) = (self.table.values(), self.constant.rms_length());
        let wanted = self.wanted.map(|WantedEps { eps, relative, quantile, .. }| {
            serde_json::json!({ "eps": eps, "relative": relative, "quantile": quantile })
        });
        let head = serde_json::json!({
            "command": "plan robe",
            "table": {
                "name": name, "kind": kind, "tables": tables, "rows": rows, "dim": dim, "values": values, "bytes": 4 * values,
            },
            "sample": { "rows": self.rows, "by": self.by, "rms_length": rms_length },
            "wanted": wanted,
        });
        report::write_json(path, &head, &self.records)
    }

    /// The table, what its rows lose at each compression and with one weight, the size for a wanted eps, and the paper's bound.
    pub(super) fn text(&self) -> String {
        let Table { name, kind, rows, dim, .. } = self.table;
        let bytes = Unit::Bytes.show(4.0 * self.table.values() as f64);
        let length = Unit::Length.show(self.constant.rms_length());
        let mut text = format!(
            "plan robe: {name} ({kind}), {rows} rows x {dim}, {bytes}; {} rows by {}, of root mean square length {length}\n",
            self.rows, self.by
        );
        let mut add = |title: String, shape: &str, lines: &[&str], across: &str| {
            let shown = self.records.iter().filter(|record| record.shape == shape);
            text += &table(shown, lines, across).map(|table| format!("\n{title}\n\n{table}\n")).unwrap_or_default();
        };
        let lose = "What rows lose in an array, by its weights; eps: the distance of a row from what comes back.";
        add(lose.to_owned(), "array", &["chunk", "what"], "weights");
        add("With one weight for all values.".to_owned(), "one weight", &["what"], "weights");
        if let Some(WantedEps { eps, relative, quantile, .. }) = self.wanted {
            let eps = if relative { format!("{} % of a row's length", 100.0 * eps) } else { eps.to_string() };
            let title = format!("The smallest array that keeps {} % of the rows within {eps}.", 100.0 * quantile);
            add(title, "size", &["what"], "chunk");
        }
        add("ROBE, corollary 6 with constant 1.".to_owned(), "corollary 6", &["eps", "delta"], "what");
        text
    }

    fn of<'r>(&'r self, what: &'r str, shape: &'static str) -> impl Iterator<Item = &'r Record> {
        self.records.iter().filter(move |record| record.shape == shape && record.what == what)
    }

    /// Median, 95 %, largest and root mean square of eps over the size of the array, or, for several chunks, the medians; the eps of one
    /// weight and the wanted one across; and the sizes found. If a share of the length is wanted, all are shares.
    pub(super) fn chart(&self) -> Chart {
        let relative = self.wanted.is_some_and(|wanted| wanted.relative);
        let (kind, factor) = if relative { ("relative", 100.0) } else { ("eps", 1.0) };
        let median = format!("{kind}, median");
        let mut chart = Chart::new("|M| (weights)", if relative { "eps, of the row's length" } else { "eps" });
        let name = Path::new(&self.table.name).file_name().map(OsStr::to_string_lossy);
        let name = name.unwrap_or_else(|| self.table.name.as_str().into());
        chart.title = format!("{name}: what its rows lose in a shared array (ROBE, definition 2)");
        (chart.log_x, chart.log_y) = (true, true);
        let mut chunks: Vec<f64> =
            self.of("bytes", "array").filter_map(|record| record.setting.number("chunk")).collect();
        chunks.dedup();
        let weights = |record: &Record| record.setting.number("weights");
        let style = |colour| Style { colour, dashed: false, markers: true };
        if chunks.len() == 1 {
            for (what, colour) in [("largest", 1), ("95 %", 4), ("median", 0), ("root mean square", 5)] {
                let what = format!("{kind}, {what}");
                chart.lines(self.of(&what, "array"), "what", weights, |_| style(colour));
            }
        } else {
            let colour = |record: &Record| {
                style(chunks.iter().position(|&chunk| record.setting.number("chunk") == Some(chunk)).unwrap_or(0))
            };
            chart.lines(self.of(&median, "array"), "chunk", weights, colour);
            chart.series.iter_mut().for_each(|series| series.label = format!("median, chunks of {}", series.label));
        }
        let all: Vec<f64> = chart.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
        let ends = [all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max)];
        let mut add = |label, points, (colour, markers)| {
            chart.series.push(Series { label, points, colour, dashed: true, markers, spread: Vec::new() });
        };
        for record in self.of(&median, "one weight") {
            let points = ends.map(|x| (x, factor * record.value)).into();
            add("median of one weight for all values".to_owned(), points, (6, false));
        }
        if let Some(WantedEps { eps, quantile, .. }) = self.wanted {
            let points = ends.map(|x| (x, factor * eps)).into();
            add(format!("wanted of {} % of the rows", 100.0 * quantile), points, (2, false));
        }
        for (found, colour) in self.of("weights", "size").zip(3..) {
            let eps = self.of("eps", "size").find(|record| record.setting == found.setting);
            let points = eps.map(|eps| (found.value, factor * eps.value)).into_iter().collect();
            add(format!("{} weights do, {}", found.value, found.setting), points, (colour, true));
        }
        let drawn = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1);
        let drawn = drawn.filter(|y| y.is_finite() && *y > 0.0);
        let ends = drawn.fold((f64::INFINITY, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
        // Margins keep points off the frame.
        chart.y_range = (ends.1 > 0.0).then_some((0.8 * ends.0, 1.25 * ends.1));
        chart
    }
}
