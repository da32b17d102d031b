//! The answer of `hotrow plan robe`: the parts of its JSON, and its tables.

use crate::report::object::{self, Object};
use hotrow::robe::Config;
use hotrow::robe::fidelity::{Bound, Fidelity, Size, Tried, WantedEps};

/// The figures of a fit. `constant` is the fit of one weight.
pub(super) fn line(
    config: &Config,
    found: &Fidelity,
    unlike: Option<f64>,
    constant: &Fidelity,
) -> Result<Object, hotrow::Error> {
    let (lost, errors) = (found.mean_square(), found.pair_errors());
    let spread = |[median, most, max]: [f64; 3]| {
        Object::default().with("median", median).with("percent_95", most).with("max", max)
    };
    let relative = |share| found.relative_quantile(share);
    Ok(Object::default()
        .with("compression", config.compression())
        .with("chunk", config.chunk)
        .with("weights", config.weights)
        .with("bytes", 4 * u64::from(config.weights))
        .with("eps", spread([found.quantile(0.5)?, found.quantile(0.95)?, found.max()]))
        // As a share of the row's own length; null for a row of length 0 that is not kept exactly.
        .with("relative", spread([relative(0.5)?, relative(0.95)?, relative(1.0)?]))
        // Root mean square of eps.
        .with("rms", lost.sqrt())
        // The mean of eps^2 divided by that of one weight for all.
        .with("lost", if lost == 0.0 { 0.0 } else { lost / constant.mean_square() })
        // The same if all values were independent, from the number of elements that share the sampled rows' weights.
        .with("unlike", unlike)
        .with("pairs", found.pairs.len())
        .with("beyond", errors.beyond)
        .with("inner_error", errors.inner_error)
        .with("inner", errors.inner)
        .with("distance_error", errors.distance_error)
        .with("distance", errors.distance))
}

pub(super) fn wanted(wanted: WantedEps) -> Object {
    Object::default().with("eps", wanted.eps).with("relative", wanted.relative).with("quantile", wanted.quantile)
}

/// The size found for a table of `values` values. `unlike` is the mean number of weights needed if all values are independent; it is not
/// known for a trace.
pub(super) fn size(chunk: u32, values: u64, size: &Size, unlike: Option<f64>) -> Object {
    let tried = |tried: Tried| Object::default().with("weights", tried.weights).with("eps", tried.eps);
    Object::default()
        .with("chunk", chunk)
        // Null if as many weights as the table has values do not keep the wanted eps either.
        .with("weights", size.weights)
        .with("compression", size.weights.map(|weights| values as f64 / f64::from(weights)))
        .with("bytes", size.weights.map(|weights| 4 * u64::from(weights)))
        .with("eps", size.found().map(|tried| tried.eps))
        // The largest size tried below it, whose eps is too large.
        .with("below", Object::or_null(size.below().map(tried)))
        // The largest size tried; if no size is enough, that of the table.
        .with("largest", Object::or_null(size.tried.last().copied().map(tried)))
        .with("unlike_weights", unlike)
}

/// ROBE's corollary 6. The paper does not state its constant; 1 is used.
pub(super) fn sketch(bound: &Bound, eps: f64, delta: f64, values: u64) -> Object {
    Object::default()
        .with("sigma", bound.sigma)
        .with("eps", eps)
        .with("delta", delta)
        .with("k", bound.k)
        .with("weights", bound.weights)
        .with("of_the_table", bound.weights / values as f64)
}

/// The text: the table, its loss at each compression and with one weight, the size for a wanted eps, and the paper's bound.
pub(super) fn text(report: &Object) -> String {
    let table = Object::default().with("table", report.object("table")).with("sample", report.object("sample"));
    let lines = [report.list("lines"), &[report.object("constant")]].concat();
    let mut parts = vec![table.table("plan robe"), object::table(&lines)];
    if !report.list("sizes").is_empty() {
        parts.push(report.object("wanted").table("the smallest array that keeps"));
        parts.push(object::table(report.list("sizes")));
    }
    let sketch = report.object("sketch");
    if sketch != Object::default() {
        parts.push(sketch.table("ROBE, corollary 6 with constant 1"));
    }
    parts.join("\n\n") + "\n"
}
