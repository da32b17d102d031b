//! The plots of a plan: bytes and hit rate over the size of the cache, and who uses which quarter of it.

use super::amount::in_units;
use super::report::{QUARTERS, Report};
use crate::plot::{Bars, Chart, Series};
use hotrow::scars::sets::SetSplit;

const MIB: f64 = (1 << 20) as f64;

/// The highest percentage drawn.
const HIGHEST: f64 = 140.0;

/// What an epoch costs against one without a cache, and the hit rate, over the cache's size; the plan is marked.
pub(super) fn curve(report: &Report) -> Chart {
    let mut chart = Chart::new("Cache (MiB)", "Percent");
    chart.title = format!("{}: bus bytes and hit rate by cache size", report.source.name);
    chart.log_x = true;
    let size = |point: &SetSplit| point.cache_bytes as f64 / MIB;
    let sizes = report.curve.iter().map(|point| &point.0).map(size).filter(|&size| size > 0.0);
    let (least, most) =
        sizes.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), size| (least.min(size), most.max(size)));
    chart.x_range = Some((0.8 * least, 1.25 * most));
    // What lies far above is cut off.
    let highest =
        report.curve.iter().map(|point| &point.0).map(|point| point.cost_percent).fold(100.0, f64::max).min(HIGHEST);
    chart.y_range = Some((0.0, (highest / 20.0).ceil() * 20.0));
    let line = |label: &str, colour, dashed, value: fn(&SetSplit) -> f64| Series {
        label: label.to_owned(),
        points: report
            .curve
            .iter()
            .map(|point| &point.0)
            .map(|point| (size(point), value(point)))
            .filter(|&(_, y)| y <= HIGHEST)
            .collect(),
        colour,
        dashed,
        markers: false,
        spread: Vec::new(),
    };
    let own = if report.budget.batch_cost > 0 { " and batches' own cost" } else { "" };
    let label = if report.budget.fixed_batch {
        format!("bus bytes of an epoch{own}, batches of {}; 100: no cache", report.budget.smallest_batch)
    } else {
        format!(
            "bus bytes of an epoch{own}; the rest of {} is the batch's; 100: no cache",
            in_units(report.budget.bytes as f64)
        )
    };
    chart.series.push(line(&label, 0, false, |point| point.cost_percent));
    chart.series.push(line("hit rate", 2, true, |point| 100.0 * point.hit_rate));
    let best = &report.optimum.0;
    chart.series.push(Series {
        label: format!(
            "the plan: {:.0} rows in {}, batches of {} samples",
            best.pinned_rows,
            in_units(best.cache_bytes as f64),
            best.batch
        ),
        points: vec![(size(best), best.cost_percent)],
        colour: 1,
        dashed: false,
        markers: true,
        spread: Vec::new(),
    });
    chart
}

/// SCARS Figure 4.
pub(super) fn quarters(report: &Report) -> Bars {
    let mut bars = Bars::new(&format!("samples of {} that use it", report.portions.samples));
    bars.title = format!("{}: who uses which quarter of the pinned rows (SCARS Figure 4)", report.source.name);
    for (quarter, users) in QUARTERS.iter().zip(report.portions.users) {
        bars.push(quarter, users);
    }
    bars
}
