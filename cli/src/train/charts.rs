//! P1's Figures 2 and 4 to 7 from a grid, with the 95 % interval of each point.

use super::claims::NEUTRAL;
use super::interval::Interval;
use super::report::{Report, cache_name};
use super::setting::{Setting, WAYS};
use super::summary::Cell;
use crate::names::{PolicyName, PrecisionName, RoundingName, option_name};
use crate::plot::{Chart, Series};
use std::path::{Path, PathBuf};

/// Distance between lines whose points share a place of the axis.
const APART: f64 = 0.05;

/// How a cell is compared with FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Loss,
    Score,
}

impl Measure {
    fn of(self, cell: &Cell) -> Option<Interval> {
        match self {
            Self::Loss => cell.loss_change,
            Self::Score => cell.score_drop(),
        }
    }

    const fn stem(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Score => "score",
        }
    }
}

/// Writes the charts that there is data for; returns the files.
pub(crate) fn write(report: &Report, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut charts = Vec::new();
    for measure in [Measure::Loss, Measure::Score] {
        for (policy, ways) in report.caches() {
            let stem = format!("{}-by-size-{}-{ways}", measure.stem(), option_name(&policy));
            charts.push((stem, by_size(report, measure, policy, ways)));
        }
        for precision in super::cells::LOW {
            let name = option_name(&precision);
            charts.push((format!("{}-by-policy-{name}", measure.stem()), by_policy(report, measure, precision)));
            charts.push((format!("{}-by-ways-{name}", measure.stem()), by_ways(report, measure, precision)));
        }
        charts.push((format!("{}-by-memory", measure.stem()), by_memory(report, measure)));
    }
    charts.push(("hit-rate".to_owned(), hit_rate(report)));
    let mut written = Vec::new();
    for (stem, chart) in charts.into_iter().filter(|(_, chart)| !chart.series.is_empty()) {
        written.extend(chart.write(&folder.join(stem))?);
    }
    Ok(written)
}

/// A line in the making: places, changes and how far their intervals reach.
#[derive(Default)]
struct Line {
    points: Vec<(f64, f64)>,
    spread: Vec<(f64, f64)>,
}

impl Line {
    fn push(&mut self, x: f64, change: &Interval) {
        let half = change.half().unwrap_or(0.0);
        self.points.push((x, change.mean));
        self.spread.push((half, half));
    }

    fn series(self, label: String, colour: usize, dashed: bool) -> Series {
        Series { label, points: self.points, colour, dashed, markers: true, spread: self.spread }
    }
}

fn chart(report: &Report, measure: Measure, x_label: &str, title: &str) -> Chart {
    let score = if report.cells.iter().any(|cell| cell.accuracy.is_some()) { "accuracy" } else { "AUC" };
    let y_label = match measure {
        Measure::Loss => "Test log-loss above FP32's, %".to_owned(),
        Measure::Score => format!("Test {score} below FP32's, %"),
    };
    let mut chart = Chart::new(x_label, &y_label);
    chart.title = format!("{}: {title}", report.subject.task);
    // Nearest INT2 is a thousand times as far from FP32 as stochastic FP16.
    chart.symmetric_y = Some(NEUTRAL / 2.0);
    chart.band = Some(NEUTRAL);
    chart
}

/// No cache, then the sizes.
fn places(report: &Report) -> Vec<f64> {
    let mut places = vec![0.0];
    places.extend(report.sizes());
    places
}

fn size_names(places: &[f64]) -> Vec<String> {
    places.iter().map(|&size| if size == 0.0 { "none".to_owned() } else { format!("{size} %") }).collect()
}

/// Moves whole lines apart where their points would lie on each other.
pub(super) fn spread_out(chart: &mut Chart) {
    let count = chart.series.len();
    for (i, series) in chart.series.iter_mut().enumerate() {
        let aside = (i as f64 - (count - 1) as f64 / 2.0) * APART;
        series.points.iter_mut().for_each(|(x, _)| *x += aside);
    }
}

const ROUNDINGS: [RoundingName; 2] = [RoundingName::Stochastic, RoundingName::Nearest];

/// P1 Figure 2: a line for each precision and rounding.
fn by_size(report: &Report, measure: Measure, policy: PolicyName, ways: u32) -> Chart {
    let mut chart = chart(report, measure, "Cache, % of rows", &cache_name(policy, ways));
    let places = places(report);
    chart.x_names = size_names(&places);
    for (colour, precision) in super::cells::LOW.into_iter().enumerate() {
        for rounding in ROUNDINGS {
            let setting = Setting { precision, rounding, policy, cache_percent: 0.0, ways };
            let line = size_line(report, measure, setting, &places);
            if !line.points.is_empty() {
                let label = format!("{} {}", option_name(&precision), option_name(&rounding));
                chart.series.push(line.series(label, colour, rounding == RoundingName::Nearest));
            }
        }
    }
    spread_out(&mut chart);
    chart
}

/// The changes of a setting at each cache size.
fn size_line(report: &Report, measure: Measure, setting: Setting, places: &[f64]) -> Line {
    let mut line = Line::default();
    for (place, &cache_percent) in places.iter().enumerate() {
        let cell = report.find(Setting { cache_percent, ..setting }.plain());
        if let Some(change) = cell.and_then(|cell| measure.of(cell)) {
            line.push(place as f64, &change);
        }
    }
    line
}

/// P1 Figures 4 and 5: a line for each policy, number of ways and rounding.
fn by_policy(report: &Report, measure: Measure, precision: PrecisionName) -> Chart {
    let mut chart =
        chart(report, measure, "Cache, % of rows", &format!("{}, policies and ways", option_name(&precision)));
    let places = places(report);
    chart.x_names = size_names(&places);
    for (colour, (policy, ways)) in report.caches().into_iter().enumerate() {
        for rounding in ROUNDINGS {
            let setting = Setting { precision, rounding, policy, cache_percent: 0.0, ways };
            let line = size_line(report, measure, setting, &places);
            // One point is the cell without a cache, which is the same for all.
            if line.points.len() > 1 {
                let label = format!("{}, {}", cache_name(policy, ways), option_name(&rounding));
                chart.series.push(line.series(label, colour, rounding == RoundingName::Nearest));
            }
        }
    }
    spread_out(&mut chart);
    chart
}

/// P1 Figure 6: a line for each cache size, LFU.
fn by_ways(report: &Report, measure: Measure, precision: PrecisionName) -> Chart {
    let title = format!("{} stochastic, LFU by ways", option_name(&precision));
    let mut chart = chart(report, measure, "Ways of a set", &title);
    let (rounding, policy) = (RoundingName::Stochastic, PolicyName::Lfu);
    let mut ways: Vec<u32> = report
        .cells
        .iter()
        .filter(|cell| cell.setting.has_cache() && cell.setting.policy == policy)
        .map(|cell| cell.setting.ways)
        .collect();
    ways.sort_unstable();
    ways.dedup();
    chart.x_names = ways.iter().map(u32::to_string).collect();
    for (colour, cache_percent) in report.sizes().into_iter().enumerate() {
        let mut line = Line::default();
        for (place, &ways) in ways.iter().enumerate() {
            let cell = report.find(Setting { precision, rounding, policy, cache_percent, ways });
            if let Some(change) = cell.and_then(|cell| measure.of(cell)) {
                line.push(place as f64, &change);
            }
        }
        // Two points are the grid's 1 and 32 ways, which other charts show.
        if line.points.len() > 2 {
            chart.series.push(line.series(format!("{cache_percent} %"), colour, false));
        }
    }
    spread_out(&mut chart);
    chart
}

/// P1 Figures 7, 8 and 10: stochastic rounding, without a cache and with 32-way LFU.
fn by_memory(report: &Report, measure: Measure) -> Chart {
    let mut chart = chart(
        report,
        measure,
        "Memory against FP32 (P1's formula)",
        "memory, stochastic rounding, 32-way LFU (points: cache sizes)",
    );
    let rounding = RoundingName::Stochastic;
    let mut line = Line::default();
    // From the smallest: a line runs to the right.
    for precision in super::cells::LOW.into_iter().rev() {
        push_memory(&mut line, measure, report.find(Setting::uncached(precision, rounding)));
    }
    if !line.points.is_empty() {
        chart.series.push(line.series("no cache: int2, int4, int8, fp16".to_owned(), 6, true));
    }
    for (colour, precision) in super::cells::LOW.into_iter().enumerate() {
        let mut line = Line::default();
        for cache_percent in report.sizes() {
            let setting = Setting { precision, rounding, policy: PolicyName::Lfu, cache_percent, ways: WAYS };
            push_memory(&mut line, measure, report.find(setting));
        }
        if !line.points.is_empty() {
            chart.series.push(line.series(format!("{} with a cache", option_name(&precision)), colour, false));
        }
    }
    chart
}

fn push_memory(line: &mut Line, measure: Measure, cell: Option<&Cell>) {
    if let Some((memory, change)) = cell.and_then(|cell| cell.memory_paper.zip(measure.of(cell))) {
        line.push(memory, &change);
    }
}

/// P1 Table 6 as a chart.
fn hit_rate(report: &Report) -> Chart {
    let mut chart = Chart::new("Cache, % of rows", "Hit rate, %");
    chart.title = format!("{}: hit rate over training", report.subject.task);
    let places = report.sizes();
    chart.x_names = size_names(&places);
    for (colour, (policy, ways)) in report.caches().into_iter().enumerate() {
        let at = |(place, &size): (usize, &f64)| Some((place as f64, 100.0 * report.hit_rate(policy, ways, size)?));
        let points: Vec<(f64, f64)> = places.iter().enumerate().filter_map(at).collect();
        if !points.is_empty() {
            let (label, dashed) = (cache_name(policy, ways), policy == PolicyName::Lfu);
            chart.series.push(Series { label, points, colour, dashed, markers: true, spread: Vec::new() });
        }
    }
    chart.y_range = Some((0.0, 100.0));
    chart
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::made_up;
    use super::*;

    /// The charts of made-up results; `HOTROW_CHARTS` names a folder to keep them in.
    #[test]
    fn a_full_grid_has_every_chart() {
        let folder = tempfile::tempdir().unwrap();
        let kept = std::env::var_os("HOTROW_CHARTS").map(PathBuf::from);
        let folder = kept.as_deref().unwrap_or(folder.path());
        let written = write(&made_up(), folder).unwrap();
        let names: Vec<String> =
            written.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        for measure in ["loss", "score"] {
            for of in ["by-size-lru-1", "by-size-lru-32", "by-size-lfu-1", "by-size-lfu-32", "by-memory"] {
                assert!(names.contains(&format!("{measure}-{of}.png")), "{of}: {names:?}");
            }
            for of in
                ["by-policy-fp16", "by-policy-int8", "by-policy-int4", "by-policy-int2", "by-ways-int4", "by-ways-int2"]
            {
                assert!(names.contains(&format!("{measure}-{of}.svg")), "{of}: {names:?}");
            }
        }
        assert!(names.contains(&"hit-rate.png".to_owned()));
        assert_eq!(names.len(), 2 * (2 * (5 + 6) + 1));
    }

    #[test]
    fn a_line_has_its_points_and_intervals() {
        let report = made_up();
        let chart = by_size(&report, Measure::Loss, PolicyName::Lfu, WAYS);
        assert_eq!(chart.x_names, ["none", "0.1 %", "1 %", "5 %", "10 %", "30 %", "50 %"]);
        assert_eq!(chart.series.len(), 8);
        let line = chart.series.iter().find(|series| series.label == "int4 stochastic").unwrap();
        let setting = Setting::uncached(PrecisionName::Int4, RoundingName::Stochastic);
        let change = report.find(setting).unwrap().loss_change.unwrap();
        assert_eq!(line.points.len(), 7);
        assert_eq!((line.points[0].1, line.spread[0].1), (change.mean, change.half().unwrap()));
        assert!(!line.dashed && line.points[0].0.abs() < 0.5);
    }

    #[test]
    fn without_runs_nothing_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let report = Report::new(&made_up().subject, &[]);
        assert!(write(&report, folder.path()).unwrap().is_empty());
    }
}
