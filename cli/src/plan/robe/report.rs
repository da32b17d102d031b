//! The answer of `hotrow plan robe` as tables and as JSON.

use crate::output;
use crate::plan::amount::in_units;
use hotrow::robe::Config;
use hotrow::robe::fidelity::{self, Bound, Fidelity, PairErrors};
use serde::Serialize;
use std::fmt::Write as _;

/// The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) table: Source,
    pub(super) sample: Sample,
    /// All values' mean in every place, one weight: the limit of an array of few weights.
    pub(super) constant: Line,
    pub(super) lines: Vec<Line>,
    pub(super) wanted: Option<Wanted>,
    /// For each chunk.
    pub(super) sizes: Vec<Size>,
    pub(super) sketch: Option<Sketch>,
}

#[derive(Debug, Serialize)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) tables: Vec<u32>,
    pub(super) rows: u32,
    pub(super) dim: u32,
    pub(super) values: u64,
    /// In FP32.
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Sample {
    pub(super) rows: usize,
    /// `row`: each row counts once; else the trace by whose lookups rows count, in fit and sample.
    pub(super) by: String,
    /// Root mean square of the rows' lengths.
    pub(super) rms_length: f64,
}

/// A fit measured.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    compression: f64,
    pub(super) chunk: u32,
    pub(super) weights: u32,
    bytes: u64,
    pub(super) eps: Spread,
    /// As a part of the row's own length; null where that is 0 and the row is not kept.
    pub(super) relative: Spread,
    /// Root mean square of eps.
    pub(super) rms: f64,
    /// The mean of eps^2 against that of one weight for all.
    lost: f64,
    /// The same if all values were independent: by how many elements share the sampled rows' weights.
    pub(super) unlike: Option<f64>,
    pairs: usize,
    #[serde(flatten, with = "Errors")]
    errors: PairErrors,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    #[serde(rename = "percent_95")]
    pub(super) most: f64,
    pub(super) max: f64,
}

#[derive(Serialize)]
#[serde(remote = "PairErrors")]
struct Errors {
    beyond: usize,
    inner_error: f64,
    inner: f64,
    distance_error: f64,
    distance: f64,
}

/// The wanted eps.
#[derive(Debug, Serialize)]
pub(super) struct Wanted(#[serde(with = "WantedFields")] pub(super) fidelity::Wanted);

#[derive(Serialize)]
#[serde(remote = "fidelity::Wanted")]
struct WantedFields {
    eps: f64,
    relative: bool,
    quantile: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Size {
    pub(super) chunk: u32,
    /// None: as many weights as the table has values do not keep the wanted eps either.
    pub(super) weights: Option<u32>,
    compression: Option<f64>,
    bytes: Option<u64>,
    pub(super) eps: Option<f64>,
    /// The largest size tried below it, and its eps, which is too much.
    below: Option<Tried>,
    /// The largest size tried: where none does, the table's own.
    largest: Option<Tried>,
    /// The weights that it takes on average if all values are independent; of a trace that is not known.
    unlike_weights: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Tried(#[serde(with = "TriedFields")] fidelity::Tried);

#[derive(Serialize)]
#[serde(remote = "fidelity::Tried")]
struct TriedFields {
    weights: u32,
    eps: f64,
}

/// ROBE's corollary 6, with its constant, which the paper does not state, as 1.
#[derive(Debug, Serialize)]
pub(super) struct Sketch {
    sigma: f64,
    eps: f64,
    delta: f64,
    k: f64,
    weights: f64,
    /// As many times the table's values.
    of_the_table: f64,
}

impl Line {
    pub(super) fn new(
        config: &Config,
        found: &Fidelity,
        unlike: Option<f64>,
        constant: &Fidelity,
    ) -> Result<Self, hotrow::Error> {
        let lost = found.mean_square();
        Ok(Self {
            compression: config.compression(),
            chunk: config.chunk,
            weights: config.weights,
            bytes: 4 * u64::from(config.weights),
            eps: Spread { median: found.quantile(0.5)?, most: found.quantile(0.95)?, max: found.max() },
            relative: Spread {
                median: found.relative_quantile(0.5)?,
                most: found.relative_quantile(0.95)?,
                max: found.relative_quantile(1.0)?,
            },
            rms: lost.sqrt(),
            lost: if lost == 0.0 { 0.0 } else { lost / constant.mean_square() },
            unlike,
            pairs: found.pairs.len(),
            errors: found.pair_errors(),
        })
    }
}

impl Size {
    pub(super) fn new(chunk: u32, values: u64, found: &fidelity::Size, unlike_weights: Option<f64>) -> Self {
        let weights = found.weights;
        Self {
            chunk,
            weights,
            compression: weights.map(|weights| values as f64 / f64::from(weights)),
            bytes: weights.map(|weights| 4 * u64::from(weights)),
            eps: found.found().map(|tried| tried.eps),
            below: found.below().map(Tried),
            largest: found.tried.last().copied().map(Tried),
            unlike_weights: unlike_weights.map(|weights| weights.max(f64::from(chunk))),
        }
    }
}

impl Sketch {
    pub(super) fn new(bound: &Bound, eps: f64, delta: f64, values: u64) -> Self {
        let of_the_table = bound.weights / values as f64;
        Self { sigma: bound.sigma, eps, delta, k: bound.k, weights: bound.weights, of_the_table }
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let places = (2 - value.abs().log10().floor() as i32).max(0) as usize;
    if places > 6 { format!("{value:.2e}") } else { format!("{value:.places$}") }
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", 100.0 * share) } else { "none kept".to_owned() }
}

/// A value that may be missing.
fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

impl Report {
    /// The loss at each compression; the size for a wanted eps; the paper's bound.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.title(), self.lines_table());
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "\nPairs of rows tried at each size: {}; beyond definition 2 and theorem 3: {}",
            self.lines.first().map_or(0, |line| line.pairs),
            self.lines.iter().map(|line| line.errors.beyond).sum::<usize>()
        );
        if let Some(Wanted(wanted)) = &self.wanted {
            let _ = writeln!(text, "\n{}:\n{}", wanted_text(wanted), self.sizes_table(wanted.relative));
        }
        if let Some(sketch) = &self.sketch {
            let Sketch { sigma, eps, delta, k, weights, of_the_table } = sketch;
            let [eps, sigma, of_the_table] = [eps, sigma, of_the_table].map(|&value| digits(value));
            let _ = writeln!(
                text,
                "\nROBE, corollary 6 with constant 1, eps = {eps}, delta = {delta}: sigma(E) = {sigma}, k = {k:.3e}, |M| = k dim = \
                 {weights:.3e}, {of_the_table} times the table"
            );
        }
        text
    }

    fn title(&self) -> String {
        let Source { name, rows, dim, bytes, .. } = &self.table;
        let Sample { rows: sampled, by, rms_length } = &self.sample;
        let sample = if by == "row" { "rows".to_owned() } else { format!("lookups of {by}") };
        format!(
            "{name}: {rows} rows x {dim}, {} in FP32; measured on {sampled} {sample}, whose length is {} in root mean square",
            in_units(*bytes as f64),
            digits(*rms_length)
        )
    }

    fn lines_table(&self) -> String {
        let header = "compression | chunk | weights | bytes | eps: median | 95 % | largest | of the row: median | 95 % | variance lost | \
                      if unlike | inner products off by | distances off by";
        let mut table = output::table(header.split(" | "), 0);
        let mut add = |first: String, chunk: String, line: &Line| {
            let errors = &line.errors;
            table.add_row([
                first,
                chunk,
                line.weights.to_string(),
                in_units(line.bytes as f64),
                digits(line.eps.median),
                digits(line.eps.most),
                digits(line.eps.max),
                percent(line.relative.median),
                percent(line.relative.most),
                percent(line.lost),
                or_dash(line.unlike, percent),
                format!("{} of {}", digits(errors.inner_error), digits(errors.inner)),
                format!("{} of {}", digits(errors.distance_error), digits(errors.distance)),
            ]);
        };
        for line in &self.lines {
            add(format!("{} x", digits(line.compression)), line.chunk.to_string(), line);
        }
        add("one weight".to_owned(), "-".to_owned(), &self.constant);
        table.to_string()
    }

    /// The size found for each chunk. Beside it the largest size that does not do: below the size found, or the table's own.
    fn sizes_table(&self, relative: bool) -> String {
        let header = "chunk | weights | bytes | times smaller | eps | too few weights | their eps | weights if unlike";
        let mut table = output::table(header.split(" | "), 0);
        let eps = |eps: f64| if relative { percent(eps) } else { digits(eps) };
        for size in &self.sizes {
            let too_few = if size.weights.is_some() { &size.below } else { &size.largest };
            let too_few = too_few.as_ref().map(|tried| &tried.0);
            table.add_row([
                size.chunk.to_string(),
                size.weights.map_or_else(|| "none".to_owned(), |weights| weights.to_string()),
                or_dash(size.bytes, |bytes| in_units(bytes as f64)),
                or_dash(size.compression, digits),
                or_dash(size.eps, eps),
                or_dash(too_few, |tried| tried.weights.to_string()),
                or_dash(too_few, |tried| eps(tried.eps)),
                or_dash(size.unlike_weights, |weights| format!("{weights:.3e}")),
            ]);
        }
        table.to_string()
    }
}

fn wanted_text(wanted: &fidelity::Wanted) -> String {
    let fidelity::Wanted { eps, relative, quantile } = *wanted;
    let eps = if relative { format!("{} % of the row's length", digits(100.0 * eps)) } else { digits(eps) };
    let rows = match quantile {
        1.0 => "each sampled row".to_owned(),
        quantile => format!("{} % of the sampled rows", digits(100.0 * quantile)),
    };
    format!("The smallest array with an eps of at most {eps} for {rows}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, wanted) in [
            (0.0, "0"),
            (1.0, "1.00"),
            (123.456, "123"),
            (98_765.4, "98765"),
            (0.012_345, "0.0123"),
            (0.000_012_3, "1.23e-5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(digits(value), wanted);
        }
        assert_eq!([percent(0.5), percent(f64::INFINITY)], ["50.0 %", "none kept"]);
    }
}
