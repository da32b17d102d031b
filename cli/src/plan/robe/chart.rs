//! The plot of eps over the array's size on logarithmic axes, with the wanted eps.

use crate::plot::{Chart, Series};
use crate::report::object::Object;
use std::ffi::OsStr;
use std::path::Path;

/// Draws median, 95 %, largest and mean square of eps for a single chunk size, or the medians of several. `relative`: as a share of the
/// row's length.
pub(super) fn curve(report: &Object, relative: bool) -> Chart {
    let mut chart = Chart::new("|M| (weights)", if relative { "eps, of the row's length" } else { "eps" });
    let name = Path::new(report.text("table name")).file_name().map(OsStr::to_string_lossy);
    let name = name.unwrap_or_else(|| report.text("table name").into());
    chart.title = format!("{name}: what its rows lose in a shared array (ROBE, definition 2)");
    (chart.log_x, chart.log_y) = (true, true);
    let mut add = |label: String, points: Vec<(f64, f64)>, colour, dashed, markers| {
        chart.series.push(Series { label, points, colour, dashed, markers, spread: Vec::new() });
    };
    let (lines, sizes) = (report.list("lines"), report.list("sizes"));
    let kind = if relative { "relative" } else { "eps" };
    let mut chunks: Vec<f64> = lines.iter().map(|line| line.number("chunk")).collect();
    chunks.dedup();
    let points = |chunk: f64, of: &dyn Fn(&Object) -> f64| -> Vec<(f64, f64)> {
        let lines = lines.iter().filter(|line| line.number("chunk") == chunk);
        lines.map(|line| (line.number("weights"), of(line))).collect()
    };
    let quantile = |chunk: f64, name: &str| points(chunk, &|line| line.number(&format!("{kind} {name}")));
    if let [chunk] = chunks[..] {
        for (label, name, colour) in
            [("largest of the sample", "max", 1), ("95 %", "percent_95", 4), ("median", "median", 0)]
        {
            add(format!("{label}, chunks of {chunk}"), quantile(chunk, name), colour, false, true);
        }
        let of_rows = if relative { report.number("sample rms_length") } else { 1.0 };
        let label = if relative { "root mean square, of that of the lengths" } else { "root mean square" };
        let rms = points(chunk, &|line| line.number("rms") / of_rows);
        add(format!("{label}, chunks of {chunk}"), rms, 5, false, true);
        let constant = report.number("constant rms") / of_rows;
        let unlike = points(chunk, &|line| constant * line.number("unlike").sqrt());
        add("root mean square to be expected, were all values independent".to_owned(), unlike, 7, true, false);
    } else {
        for (colour, &chunk) in chunks.iter().enumerate() {
            add(format!("median, chunks of {chunk}"), quantile(chunk, "median"), colour, false, true);
        }
    }
    let weights = lines.iter().chain(sizes).map(|line| line.number("weights"));
    let ends = weights.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
    let across = |y: f64| vec![(ends.0, y), (ends.1, y)];
    let constant = report.number(&format!("constant {kind} median"));
    add("median of one weight for all values".to_owned(), across(constant), 6, true, false);
    // A figure that was not asked for, or not found, is not a number and is not drawn.
    let (label, one) = (100.0 * report.number("wanted quantile"), chunks.len() == 1);
    let colour = if one { 2 } else { 7 };
    add(format!("wanted of {label} % of the rows"), across(report.number("wanted eps")), colour, true, false);
    for (colour, size) in sizes.iter().enumerate() {
        let (weights, eps) = (size.number("weights"), size.number("eps"));
        let label = format!("{weights} weights do, chunks of {}", size.number("chunk"));
        add(label, vec![(weights, eps)], if one { 3 } else { colour }, true, true);
    }
    let drawn = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let drawn = drawn.filter(|y| y.is_finite() && *y > 0.0);
    let ends = drawn.fold((f64::INFINITY, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
    // Margins keep points off the frame.
    chart.y_range = (ends.1 > 0.0).then_some((0.8 * ends.0, 1.25 * ends.1));
    chart
}
