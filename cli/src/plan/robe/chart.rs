//! The plot: eps over the array's size, both in powers of ten; the wanted eps is marked.

use super::report::{Answer, Line, Spread};
use crate::plot::{Chart, Series};
use std::ffi::OsStr;
use std::path::Path;

fn series(label: String, points: Vec<(f64, f64)>, colour: usize) -> Series {
    Series { label, points, colour, dashed: false, markers: false, spread: Vec::new() }
}

/// Of one chunk size median, 95 % and the largest; of several the medians.
pub(super) fn curve(answer: &Answer<'_>) -> Chart {
    let relative = answer.wanted.is_some_and(|wanted| wanted.relative);
    let of_row = if relative { ", of the row's length" } else { "" };
    let mut chart = Chart::new("|M| (weights)", &format!("eps{of_row}"));
    let name = Path::new(&answer.table.name)
        .file_name()
        .map_or_else(|| answer.table.name.clone().into(), OsStr::to_string_lossy);
    chart.title = format!("{name}: what its rows lose in a shared array (ROBE, definition 2)");
    (chart.log_x, chart.log_y) = (true, true);
    let spread = |line: &Line| -> Spread { if relative { line.relative } else { line.eps } };
    let mut chunks: Vec<u32> = answer.lines.iter().map(|line| line.chunk).collect();
    chunks.dedup();
    let points = |chunk: u32, of: &dyn Fn(&Line) -> f64| -> Vec<(f64, f64)> {
        let lines = answer.lines.iter().filter(|line| line.chunk == chunk);
        lines.map(|line| (f64::from(line.weights), of(line))).collect()
    };
    if let [chunk] = chunks[..] {
        let of = |label: &str, colour, of: &dyn Fn(&Line) -> f64| Series {
            markers: true,
            ..series(format!("{label}, chunks of {chunk}"), points(chunk, of), colour)
        };
        chart.series.push(of("largest of the sample", 1, &|line| spread(line).max));
        chart.series.push(of("95 %", 4, &|line| spread(line).percent_95));
        chart.series.push(of("median", 0, &|line| spread(line).median));
        let of_rows = if relative { answer.rms_length } else { 1.0 };
        let label = if relative { "root mean square, of that of the lengths" } else { "root mean square" };
        chart.series.push(of(label, 5, &|line| line.rms / of_rows));
        let constant = answer.constant.rms / of_rows;
        let unlike = points(chunk, &|line| line.unlike.map_or(f64::NAN, |share| constant * share.sqrt()));
        let label = "root mean square to be expected, were all values independent".to_owned();
        chart.series.push(Series { dashed: true, ..series(label, unlike, 7) });
    } else {
        for (colour, &chunk) in chunks.iter().enumerate() {
            let of = series(format!("median, chunks of {chunk}"), points(chunk, &|line| spread(line).median), colour);
            chart.series.push(Series { markers: true, ..of });
        }
    }
    let weights = || answer.lines.iter().map(|line| f64::from(line.weights));
    let found = answer.sizes.iter().filter_map(|size| size.size.weights.map(f64::from));
    let all = || weights().chain(found.clone());
    let ends = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let across = |y: f64| vec![(ends.0, y), (ends.1, y)];
    let constant = spread(&answer.constant).median;
    chart
        .series
        .push(Series { dashed: true, ..series("median of one weight for all values".to_owned(), across(constant), 6) });
    if let Some(wanted) = &answer.wanted {
        let label = format!("wanted of {} % of the rows", 100.0 * wanted.quantile);
        chart
            .series
            .push(Series { dashed: true, ..series(label, across(wanted.eps), if chunks.len() == 1 { 2 } else { 7 }) });
        for (colour, size) in answer.sizes.iter().enumerate() {
            let colour = if chunks.len() == 1 { 3 } else { colour };
            let Some(tried) = size.size.found() else { continue };
            let label = format!("{} weights do, chunks of {}", tried.weights, size.chunk);
            let found = series(label, vec![(f64::from(tried.weights), tried.eps)], colour);
            chart.series.push(Series { markers: true, dashed: true, ..found });
        }
    }
    let drawn = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let drawn = drawn.filter(|y| y.is_finite() && *y > 0.0);
    let ends = drawn.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), y| (low.min(y), high.max(y)));
    // Nothing lies on the frame.
    chart.y_range = (ends.1 > 0.0).then_some((0.8 * ends.0, 1.25 * ends.1));
    chart
}
