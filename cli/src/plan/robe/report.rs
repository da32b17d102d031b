//! The answer of `hotrow plan robe` as tables and as JSON.

use super::table::Table;
use crate::object::{self, Field, Object, digits, in_units};
use hotrow::robe::Config;
use hotrow::robe::fidelity::{Bound, Fidelity, PairErrors, Size, Tried, Wanted};

/// What the rows of a table lose.
pub(super) struct Answer<'a> {
    pub(super) table: &'a Table,
    /// Rows that were measured.
    pub(super) sampled: usize,
    /// `row`: each row counts once; else the trace by whose lookups rows count, in fit and sample.
    pub(super) by: &'a str,
    /// Root mean square of the rows' lengths.
    pub(super) rms_length: f64,
    /// All values' mean in every place, one weight: the limit of an array of few weights.
    pub(super) constant: Line,
    pub(super) lines: Vec<Line>,
    pub(super) wanted: Option<Wanted>,
    pub(super) sizes: Vec<ChunkSize>,
    pub(super) sketch: Option<Sketch>,
}

/// A fit measured.
pub(super) struct Line {
    compression: f64,
    pub(super) chunk: u32,
    pub(super) weights: u32,
    pub(super) eps: Spread,
    /// As a part of the row's own length; infinite where that is 0 and the row is not kept.
    pub(super) relative: Spread,
    /// Root mean square of eps.
    pub(super) rms: f64,
    /// The mean of eps^2 against that of one weight for all.
    lost: f64,
    /// The same if all values were independent: by how many elements share the sampled rows' weights.
    pub(super) unlike: Option<f64>,
    pairs: usize,
    errors: PairErrors,
}

/// Of the sampled rows.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) percent_95: f64,
    pub(super) max: f64,
}

/// The size found for chunks of so many values.
pub(super) struct ChunkSize {
    pub(super) chunk: u32,
    pub(super) size: Size,
    /// The weights that it takes on average if all values are independent; of a trace that is not known.
    pub(super) unlike: Option<f64>,
}

/// ROBE's corollary 6, with its constant, which the paper does not state, as 1.
pub(super) struct Sketch {
    pub(super) bound: Bound,
    pub(super) eps: f64,
    pub(super) delta: f64,
}

impl Spread {
    fn json(self) -> Object {
        let Self { median, percent_95, max } = self;
        Object::default().with("median", median).with("percent_95", percent_95).with("max", max)
    }
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
            eps: Spread { median: found.quantile(0.5)?, percent_95: found.quantile(0.95)?, max: found.max() },
            relative: Spread {
                median: found.relative_quantile(0.5)?,
                percent_95: found.relative_quantile(0.95)?,
                max: found.relative_quantile(1.0)?,
            },
            rms: lost.sqrt(),
            lost: if lost == 0.0 { 0.0 } else { lost / constant.mean_square() },
            unlike,
            pairs: found.pairs.len(),
            errors: found.pair_errors(),
        })
    }

    fn bytes(&self) -> u64 {
        4 * u64::from(self.weights)
    }

    fn json(&self) -> Object {
        Object::default()
            .with("compression", self.compression)
            .with("chunk", self.chunk)
            .with("weights", self.weights)
            .with("bytes", self.bytes())
            .with("eps", self.eps.json())
            .with("relative", self.relative.json())
            .with("rms", self.rms)
            .with("lost", self.lost)
            .with("unlike", self.unlike)
            .with("pairs", self.pairs)
            .with("beyond", self.errors.beyond)
            .with("inner_error", self.errors.inner_error)
            .with("inner", self.errors.inner)
            .with("distance_error", self.errors.distance_error)
            .with("distance", self.errors.distance)
    }
}

impl ChunkSize {
    /// How many times fewer weights than the table's values, and their bytes.
    fn smaller(&self, values: u64) -> Option<(f64, u64)> {
        self.size.weights.map(|weights| (values as f64 / f64::from(weights), 4 * u64::from(weights)))
    }

    fn json(&self, values: u64) -> Object {
        let Self { chunk, size, unlike } = self;
        let smaller = self.smaller(values);
        let tried = |tried: Tried| Object::default().with("weights", tried.weights).with("eps", tried.eps);
        Object::default()
            .with("chunk", *chunk)
            // None: as many weights as the table has values do not keep the wanted eps either.
            .with("weights", size.weights)
            .with("compression", smaller.map(|(compression, _)| compression))
            .with("bytes", smaller.map(|(_, bytes)| bytes))
            .with("eps", size.found().map(|tried| tried.eps))
            // The largest size tried below it, and its eps, which is too much.
            .with("below", Object::or_null(size.below().map(tried)))
            // The largest size tried: where none does, the table's own.
            .with("largest", Object::or_null(size.tried.last().copied().map(tried)))
            .with("unlike_weights", *unlike)
    }
}

impl Sketch {
    fn json(&self, values: u64) -> Object {
        let Self { bound, eps, delta } = self;
        Object::default()
            .with("sigma", bound.sigma)
            .with("eps", *eps)
            .with("delta", *delta)
            .with("k", bound.k)
            .with("weights", bound.weights)
            .with("of_the_table", bound.weights / values as f64)
    }
}

impl Answer<'_> {
    /// The schema of `--json`.
    pub(super) fn json(&self) -> Object {
        let values = self.table.values();
        let table = Object::default()
            .with("name", self.table.name.as_str())
            .with("kind", self.table.kind)
            .with("tables", self.table.tables.clone())
            .with("rows", self.table.rows)
            .with("dim", self.table.dim)
            .with("values", values)
            .with("bytes", 4 * values);
        let sample =
            Object::default().with("rows", self.sampled).with("by", self.by).with("rms_length", self.rms_length);
        let wanted = self.wanted.map(|Wanted { eps, relative, quantile }| {
            Object::default().with("eps", eps).with("relative", relative).with("quantile", quantile)
        });
        Object::default()
            .with("table", table)
            .with("sample", sample)
            .with("constant", self.constant.json())
            .with("lines", self.lines.iter().map(Line::json).collect::<Field>())
            .with("wanted", Object::or_null(wanted))
            .with("sizes", self.sizes.iter().map(|size| size.json(values)).collect::<Field>())
            .with("sketch", Object::or_null(self.sketch.as_ref().map(|sketch| sketch.json(values))))
    }

    /// The loss at each compression, and with one weight for all; the size for a wanted eps; the paper's bound.
    pub(super) fn text(&self) -> String {
        let values = self.table.values();
        let lines: Vec<Object> = self.lines.iter().chain([&self.constant]).map(Line::json).collect();
        let mut parts = vec![self.title(), object::table(&lines).to_string()];
        let (pairs, beyond) =
            (self.lines.first().map_or(0, |line| line.pairs), self.lines.iter().map(|line| line.errors.beyond));
        parts.push(format!(
            "Pairs of rows tried at each size: {pairs}; beyond definition 2 and theorem 3: {}",
            beyond.sum::<usize>()
        ));
        if let Some(wanted) = &self.wanted {
            let sizes: Vec<Object> = self.sizes.iter().map(|size| size.json(values)).collect();
            parts.push(format!("{}:\n{}", wanted_text(wanted), object::table(&sizes)));
        }
        if let Some(sketch) = &self.sketch {
            parts.push(sketch.json(values).table("ROBE, corollary 6 with constant 1").to_string());
        }
        parts.join("\n\n") + "\n"
    }

    fn title(&self) -> String {
        let Table { name, rows, dim, .. } = self.table;
        let sample = if self.by == "row" { "rows".to_owned() } else { format!("lookups of {}", self.by) };
        format!(
            "{name}: {rows} rows x {dim}, {} in FP32; measured on {} {sample}, whose length is {} in root mean square",
            in_units(4.0 * self.table.values() as f64),
            self.sampled,
            digits(self.rms_length)
        )
    }
}

fn wanted_text(wanted: &Wanted) -> String {
    let Wanted { eps, relative, quantile } = *wanted;
    let eps = if relative { format!("{} % of the row's length", digits(100.0 * eps)) } else { digits(eps) };
    let rows = match quantile {
        1.0 => "each sampled row".to_owned(),
        quantile => format!("{} % of the sampled rows", digits(100.0 * quantile)),
    };
    format!("The smallest array with an eps of at most {eps} for {rows}")
}
