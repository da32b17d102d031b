//! Three pictures: kernels against the copy, time against work, goal against reached.

use super::report::Report;
use crate::plot::{Bars, Chart, Series};
use std::path::{Path, PathBuf};

/// Writes what there are figures for; returns the files.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    let kernels = kernels(report);
    if !kernels.bars.is_empty() {
        written.extend(kernels.write(&folder.join("suite-kernels"))?);
    }
    let work = work(report);
    if !work.series.is_empty() {
        written.extend(work.write(&folder.join("suite-work"))?);
    }
    let goals = goals(report);
    if !goals.bars.is_empty() {
        written.extend(goals.write(&folder.join("suite-goals"))?);
    }
    Ok(written)
}

/// Cases whose kernels are drawn: one of each kind. All are in the tables.
const DRAWN: [&str; 6] =
    ["hits-uniform", "hits-zipf", "windows-large", "nvidia-row-wise", "mapped-int8", "tbe-1.15-int8"];

/// What each kernel reaches, then the sorts.
fn kernels(report: &Report) -> Bars {
    let mut bars = Bars::new("Bytes that must move a second, % of the device's own copy");
    bars.title = format!("Kernels: {}", report.title());
    for case in report.cases.iter().filter(|case| DRAWN.contains(&case.name.as_str())) {
        for kernel in &case.kernels {
            if let (Some(share), Some(bytes)) = (kernel.share_of_copy, kernel.bytes)
                && bytes >= 0.02 * case.bytes(kernel.phase)
            {
                bars.push(&format!("{}: {}, {}", case.name, kernel.kernel, kernel.phase), 100.0 * share);
            }
        }
    }
    for sort in &report.sorts {
        if let Some(share) = sort.share_of_copy {
            bars.push(&format!("sort: {} pairs, {} bits", sort.pairs, sort.key_bits), 100.0 * share);
        }
    }
    bars
}

fn work(report: &Report) -> Chart {
    let mut chart = Chart::new("Distinct rows in a step", "Milliseconds");
    chart.title = format!("Time against work: {}", report.title());
    (chart.log_x, chart.log_y) = (true, true);
    let mut line = |label: &str, colour, points: Vec<(f64, f64)>| {
        if !points.is_empty() {
            chart.series.push(Series {
                label: label.to_owned(),
                points,
                colour,
                dashed: false,
                markers: true,
                spread: Vec::new(),
            });
        }
    };
    let points = |of: fn(&super::report::Point) -> f64| {
        report.scaling.iter().map(|point| (point.distinct, 1e3 * of(point))).collect()
    };
    line("step", 6, points(|point| point.seconds));
    line("forward", 0, points(|point| point.forward.median));
    line("backward", 1, points(|point| point.backward.median));
    // Room for the last number of the axis.
    let ends =
        report.scaling.iter().map(|point| point.distinct).chain(report.sorts.iter().map(|sort| f64::from(sort.pairs)));
    let (least, most) = ends.fold((f64::MAX, 0.0f64), |(least, most), x| (least.min(x), most.max(x)));
    let sorts = report.sorts.iter().filter(|sort| sort.key_bits == 32);
    line(
        "sort of as many pairs, 32 bits",
        2,
        sorts.map(|sort| (f64::from(sort.pairs), 1e3 * sort.seconds.median)).collect(),
    );
    chart.x_range = (most > 0.0).then_some((least, most * 1.6));
    chart
}

/// 100 and above is met.
fn goals(report: &Report) -> Bars {
    let mut bars = Bars::new("Reached, % of the goal (100 and above: met)");
    bars.title = format!("Goals: {}", report.title());
    bars.mark = Some(100.0);
    for goal in &report.goals {
        if let Some(share) = goal.progress() {
            bars.push(&format!("{} ({})", goal.what, goal.goal), 100.0 * share);
        }
    }
    bars
}
