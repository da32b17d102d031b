//! The answer of `hotrow plan robe`: its records, its JSON and its tables.

use super::arrays::setting;
use super::table::Table;
use hotrow::robe::Config;
use hotrow_plan::fidelity::{Fidelity, Size, WantedEps};
use hotrow_report::records::{self, Measurement, Setting, Unit, table};
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
    pub(super) records: Vec<Measurement>,
}

/// Names, figures and units. A figure that is not known is left out.
type Figures<'f> = &'f [(&'f str, Option<f64>, Unit)];

impl Answer<'_> {
    fn push(&mut self, shape: &str, setting: &Setting, figures: Figures<'_>) {
        let known = figures.iter().filter_map(|&(what, value, unit)| Some((what, value?, unit)));
        self.records.extend(known.map(|(what, value, unit)| Measurement::new(what, shape, setting, value, unit)));
    }

    /// The figures of a fit. With `unlike`, the share that would be lost if all values were independent.
    pub(super) fn fit(
        &mut self,
        config: &Config,
        found: &Fidelity,
        unlike: Option<f64>,
    ) -> Result<(), hotrow_plan::Error> {
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
        records::write_json(path, &head, &self.records)
    }

    /// The table, what its rows lose at each compression and with one weight, and the size for a wanted eps.
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
        text
    }
}
