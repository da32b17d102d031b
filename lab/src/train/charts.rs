//! Charts of figures over the values of a setting.

use super::figures::LINE;
use hotrow_cli::plot::{Chart, Style};
use hotrow_cli::report::{Record, Value};

/// Distance of points of different lines at one place of the axis.
const APART: f64 = 0.05;

/// A chart with a line for each [`LINE`], over the values of `across` side by side. Lines of fewer than `least` points are left out.
pub(crate) fn places<'r>(records: impl IntoIterator<Item = &'r Record>, across: &str, least: usize) -> Chart {
    let records: Vec<&Record> = records.into_iter().collect();
    let mut places: Vec<f64> = records.iter().filter_map(|record| record.setting.number(across)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let place = |record: &Record| {
        let value = record.setting.number(across)?;
        places.iter().position(|&place| place == value).map(|at| at as f64)
    };
    let mut chart = lines(&records, across, place);
    chart.series.retain(|series| series.points.len() >= least);
    chart.x_names = places.iter().map(|&place| Value::from(place).to_string()).collect();
    let middle = (chart.series.len() as f64 - 1.0) / 2.0;
    for (i, series) in chart.series.iter_mut().enumerate() {
        series.points.iter_mut().for_each(|(x, _)| *x += (i as f64 - middle) * APART);
    }
    chart
}

/// A chart with a line for each [`LINE`], over the numbers of `across`.
pub(crate) fn numbers<'r>(records: impl IntoIterator<Item = &'r Record>, across: &str) -> Chart {
    lines(&records.into_iter().collect::<Vec<_>>(), across, |record| record.setting.number(across))
}

/// Lines of nearest rounding are dashed and have the colour of the same setting with stochastic rounding.
fn lines(records: &[&Record], across: &str, x: impl Fn(&Record) -> Option<f64>) -> Chart {
    let mut colours: Vec<String> = Vec::new();
    for colour in records.iter().map(|record| colour(record)) {
        if !colours.contains(&colour) {
            colours.push(colour);
        }
    }
    let style = |record: &Record| Style {
        colour: colours.iter().position(|known| *known == colour(record)).unwrap_or(0),
        dashed: record.is("rounding", "nearest"),
        markers: true,
    };
    let mut chart = Chart::new(across, "");
    chart.lines(records.iter().copied(), LINE, x, style);
    chart
}

/// The name of the line without its rounding, which decides its colour.
fn colour(record: &Record) -> String {
    let line = record.key(LINE).map(|line| line.to_string()).unwrap_or_default();
    line.trim_end_matches(" nearest").trim_end_matches(" stochastic").to_owned()
}
