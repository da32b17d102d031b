//! The plot of a plan: bytes and hit rate over the size of the cache.

use super::report::Answer;
use hotrow_plan::scars::Split;
use hotrow_report::object::in_units;
use hotrow_report::plot::{Chart, Series, Style};

const MIB: f64 = (1 << 20) as f64;

/// The highest percentage that is drawn.
const HIGHEST: f64 = 140.0;

/// A chart over the size of the cache: bytes of an epoch in percent of those without a cache, and the hit rate. The plan is marked.
pub(super) fn curve(answer: &Answer<'_>) -> Chart {
    let mut chart = Chart::new("Cache (MiB)", "Percent");
    chart.title = format!("{}: bus bytes and hit rate by cache size", answer.job.input.name);
    chart.log_x = true;
    let (splits, best) = (&answer.plan.splits, answer.plan.cheapest());
    let size = |split: &Split| split.cache_bytes as f64 / MIB;
    let sizes = splits.values().map(size).filter(|&size| size > 0.0);
    let ends = sizes.fold((f64::INFINITY, 0.0_f64), |(least, most), size| (least.min(size), most.max(size)));
    chart.x_range = Some((0.8 * ends.0, 1.25 * ends.1));
    // Values far above are cut off.
    let highest = splits.values().map(|split| answer.cost_percent(split)).fold(100.0, f64::max).min(HIGHEST);
    chart.y_range = Some((0.0, (highest / 20.0).ceil() * 20.0));
    let points = |value: &dyn Fn(&Split) -> f64| -> Vec<(f64, f64)> {
        splits.values().map(|split| (size(split), value(split))).filter(|&(_, y)| y <= HIGHEST).collect()
    };
    let own = if answer.job.budget.batch_cost > 0.0 { " and batches' own cost" } else { "" };
    let batches = if answer.job.fixed_batch() {
        format!(", batches of {}", answer.job.budget.smallest_batch)
    } else {
        format!("; the rest of {} is the batch's", in_units(answer.job.memory as f64))
    };
    let (rows, bytes) = (best.pinned_rows, in_units(best.cache_bytes as f64));
    let plan = format!("the plan: {rows:.0} rows in {bytes}, batches of {} samples", best.batch);
    for (label, points, colour, dashed, markers) in [
        (
            format!("bus bytes of an epoch{own}{batches}; 100: no cache"),
            points(&|split| answer.cost_percent(split)),
            0,
            false,
            false,
        ),
        ("hit rate".to_owned(), points(&|split| 100.0 * split.hit_rate), 2, true, false),
        (plan, vec![(size(best), answer.cost_percent(best))], 1, false, true),
    ] {
        chart.series.push(Series { label, points, style: Style { colour, dashed, markers }, spread: Vec::new() });
    }
    chart
}
