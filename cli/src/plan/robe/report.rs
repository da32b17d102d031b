//! The answer as tables and as JSON.

use crate::output;
use crate::plan::amount::in_units;
use hotrow::robe::Config;
use hotrow::robe::fidelity::{self, Bound, Fidelity, load_for};
use serde::Serialize;
use std::fmt::Write as _;

/// The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) table: Source,
    pub(super) sample: Sample,
    /// All values' mean in every place, one weight: what any array of few weights comes to.
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
    /// `row`: each row counts once; else the trace by whose lookups they count, in fit and sample.
    pub(super) by: String,
    /// Root mean square of the rows' lengths.
    pub(super) rms_length: f64,
}

/// A fit measured.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) compression: f64,
    pub(super) chunk: u32,
    pub(super) weights: u32,
    pub(super) bytes: u64,
    pub(super) eps: Spread,
    /// Of the row's own length; null where that is 0 and the row is not kept.
    pub(super) relative: Spread,
    /// Root mean square of eps.
    pub(super) rms: f64,
    /// The mean of eps^2 against that of one weight for all.
    pub(super) lost: f64,
    /// What that would be, were all values independent: by how many elements share the sampled rows' weights.
    pub(super) unlike: Option<f64>,
    pub(super) pairs: usize,
    /// Pairs of rows that are beyond what definition 2 and theorem 3 allow: none, or something is wrong.
    pub(super) beyond: usize,
    /// Root mean square over pairs of rows: <M(i), E[j]> - <E[i], E[j]>, and <E[i], E[j]> itself.
    pub(super) inner_error: f64,
    pub(super) inner: f64,
    /// Root mean square of how much distances of rows change, and of the distances.
    pub(super) distance_error: f64,
    pub(super) distance: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    #[serde(rename = "percent_95")]
    pub(super) most: f64,
    pub(super) max: f64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Wanted {
    pub(super) eps: f64,
    pub(super) relative: bool,
    pub(super) quantile: f64,
}

impl From<fidelity::Wanted> for Wanted {
    fn from(wanted: fidelity::Wanted) -> Self {
        Self { eps: wanted.eps, relative: wanted.relative, quantile: wanted.quantile }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Size {
    pub(super) chunk: u32,
    /// None: not even as many weights as the table has values do.
    pub(super) weights: Option<u32>,
    pub(super) compression: Option<f64>,
    pub(super) bytes: Option<u64>,
    pub(super) eps: Option<f64>,
    /// The largest size tried below it, and the eps that is too much.
    pub(super) below: Option<Tried>,
    /// The largest size tried: where none does, the table's own.
    pub(super) largest: Option<Tried>,
    /// What it would take on average, were all values independent; of a trace that is not known.
    pub(super) unlike_weights: Option<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Tried {
    pub(super) weights: u32,
    pub(super) eps: f64,
}

/// Corollary 6.
#[derive(Debug, Serialize)]
pub(super) struct Sketch {
    pub(super) sigma: f64,
    pub(super) eps: f64,
    pub(super) delta: f64,
    pub(super) k: f64,
    pub(super) weights: f64,
    /// As many times the table's values.
    pub(super) of_the_table: f64,
}

impl Line {
    pub(super) fn new(
        config: &Config,
        found: &Fidelity,
        unlike: Option<f64>,
        constant: &Fidelity,
    ) -> Result<Self, hotrow::Error> {
        let pairs = &found.pairs;
        let mean = |of: fn(&fidelity::Pair) -> f64| {
            let squares = pairs.iter().map(of).map(|x| x * x).sum::<f64>();
            (squares / pairs.len().max(1) as f64).sqrt()
        };
        // Bounds and errors are rounded by themselves.
        let within = |error: f64, bound: f64, size: f64| error.abs() <= bound * (1.0 + 1e-9) + 1e-12 * size;
        let (lost, all) = (found.mean_square(), constant.mean_square());
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
            lost: if lost == 0.0 { 0.0 } else { lost / all },
            unlike,
            pairs: pairs.len(),
            beyond: (pairs.iter())
                .filter(|pair| {
                    !within(pair.inner_error, pair.inner_bound, pair.inner.abs())
                        || !within(pair.distance_error, pair.distance_bound, pair.distance)
                })
                .count(),
            inner_error: mean(|pair| pair.inner_error),
            inner: mean(|pair| pair.inner),
            distance_error: mean(|pair| pair.distance_error),
            distance: mean(|pair| pair.distance),
        })
    }
}

impl Size {
    pub(super) fn new(
        chunk: u32,
        values: u64,
        wanted: fidelity::Wanted,
        found: &fidelity::Size,
        constant: &Fidelity,
        by_row: bool,
    ) -> Self {
        let tried = |tried: &fidelity::Tried| Tried { weights: tried.weights, eps: tried.eps };
        let at = found.weights.and_then(|weights| found.tried.iter().find(|tried| tried.weights == weights));
        let below = at.and_then(|at| found.tried.iter().rev().find(|tried| tried.weights < at.weights));
        let squares = constant.rows.iter().map(|row| row.norm * row.norm).sum::<f64>() / constant.rows.len() as f64;
        let square = wanted.eps * wanted.eps * if wanted.relative { squares } else { 1.0 };
        let load = load_for(square / constant.mean_square());
        Self {
            chunk,
            weights: found.weights,
            compression: found.weights.map(|weights| values as f64 / f64::from(weights)),
            bytes: found.weights.map(|weights| 4 * u64::from(weights)),
            eps: at.map(|at| at.eps),
            below: below.map(tried),
            largest: found.tried.last().map(tried),
            unlike_weights: by_row.then(|| (values as f64 / load).max(f64::from(chunk))),
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

impl Report {
    /// What is lost at each compression; the size for a wanted eps; what the paper's bound says.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.title(), self.lines_table());
        let _ = write!(
            text,
            "\nAt each size {} pairs of rows were tried: {} are beyond what definition 2 and theorem 3 allow.\n",
            self.lines.first().map_or(0, |line| line.pairs),
            self.lines.iter().map(|line| line.beyond).sum::<usize>()
        );
        for size in &self.sizes {
            let _ = write!(text, "\n{}\n", self.size_text(size));
        }
        if let Some(sketch) = &self.sketch {
            let _ = write!(text, "\n{}\n", sketch.text());
        }
        text.push_str(
            "\nThe array is the least squares fit of this table. It is no forecast for a table that is trained shared, as P4's are: that finds \
             other values.",
        );
        text
    }

    fn title(&self) -> String {
        let Source { name, rows, dim, bytes, .. } = &self.table;
        let Sample { rows: sampled, by, rms_length } = &self.sample;
        let what = if by == "row" { "rows".to_owned() } else { format!("lookups of {by}") };
        format!(
            "{name}: {rows} rows x {dim}, {} in FP32; measured on {sampled} {what}, whose length is {} in root mean square",
            in_units(*bytes as f64),
            digits(*rms_length)
        )
    }

    fn lines_table(&self) -> String {
        let header = [
            "compression",
            "chunk",
            "weights",
            "bytes",
            "eps: median",
            "95 %",
            "largest",
            "of the row: median",
            "95 %",
            "variance lost",
            "if unlike",
            "inner products off by",
            "distances off by",
        ];
        let mut table = output::table(header, 0);
        let mut add = |first: String, chunk: String, line: &Line| {
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
                line.unlike.map_or_else(|| "-".to_owned(), percent),
                format!("{} of {}", digits(line.inner_error), digits(line.inner)),
                format!("{} of {}", digits(line.distance_error), digits(line.distance)),
            ]);
        };
        for line in &self.lines {
            add(format!("{} x", digits(line.compression)), line.chunk.to_string(), line);
        }
        add("one weight".to_owned(), "-".to_owned(), &self.constant);
        table.to_string()
    }

    /// What is wanted, in words.
    fn wanted_text(&self) -> String {
        let Some(Wanted { eps, relative, quantile }) = self.wanted else { return String::new() };
        let eps = if relative { format!("{} % of the row's length", digits(100.0 * eps)) } else { digits(eps) };
        let rows = match quantile {
            1.0 => "each sampled row".to_owned(),
            quantile => format!("{} % of the sampled rows", digits(100.0 * quantile)),
        };
        format!("eps of at most {eps} for {rows}")
    }

    fn eps_text(&self, eps: f64) -> String {
        if self.wanted.is_some_and(|wanted| wanted.relative) { percent(eps) } else { digits(eps) }
    }

    fn size_text(&self, size: &Size) -> String {
        let wanted = self.wanted_text();
        let chunk = size.chunk;
        let (Some(weights), Some(compression), Some(bytes), Some(eps)) =
            (size.weights, size.compression, size.bytes, size.eps)
        else {
            let largest = size.largest.map_or_else(
                || "it is smaller than a chunk".to_owned(),
                |tried| format!("{} weights give {}", tried.weights, self.eps_text(tried.eps)),
            );
            let unlike = size.unlike_weights.map_or_else(String::new, |weights| {
                let times = digits(weights / self.table.values as f64);
                format!(
                    " Were all values independent it would take about {weights:.3e} weights, {times} times the table."
                )
            });
            return format!("{wanted}, chunks of {chunk}: no array that is smaller than the table; {largest}.{unlike}");
        };
        let below = size.below.map_or_else(
            || "one chunk, no array is smaller".to_owned(),
            |tried| format!("{} weights give {}, too much", tried.weights, self.eps_text(tried.eps)),
        );
        format!(
            "{wanted}, chunks of {chunk}: {weights} weights, {}, {} times smaller, give {} ({below}).",
            in_units(bytes as f64),
            digits(compression),
            self.eps_text(eps)
        )
    }
}

impl Sketch {
    fn text(&self) -> String {
        let Self { sigma, eps, delta, k, weights, of_the_table } = self;
        format!(
            "P4, corollary 6, for eps = {} and delta = {delta}, with its constant, which the paper does not state, as 1: sigma(E) = {}, k = \
             {k:.3e}, |M| = k dim = {weights:.3e}, {} times the table. It is about sketches with random signs, which ROBE's hash has not; with \
             constant 1 it asks for less than the table only where eps is above the rows' root mean square length.",
            digits(*eps),
            digits(*sigma),
            digits(*of_the_table)
        )
    }
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
