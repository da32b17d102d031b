//! Tables and charts of records, as an experiment describes them.

use crate::figures;
use crate::published::Published;
use hotrow_report::plot::{Chart, Style};
use hotrow_report::records::{self, Measurement, Select, shown};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Distance of points of different lines at one place of the axis.
const APART: f64 = 0.05;

/// A table: a line for each combination of values of `lines`, a column for each value of `across`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct TableOf {
    title: String,
    #[serde(deserialize_with = "figures::names")]
    what: Vec<String>,
    /// Conditions on the setting, separated by `; `: `name=value|value`, `name!=value`, or `name` for any value.
    #[serde(default, rename = "where", deserialize_with = "figures::conditions")]
    filter: String,
    #[serde(deserialize_with = "figures::places")]
    lines: Vec<String>,
    #[serde(deserialize_with = "figures::place")]
    across: String,
    /// A paper's table, whose numbers stand beside ours.
    published: Option<Published>,
}

/// A chart: a line for each combination of values of `line`, over the numbers of `x`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ChartOf {
    /// The name of the pictures without their ending.
    file: String,
    title: String,
    #[serde(deserialize_with = "figures::names")]
    what: Vec<String>,
    #[serde(rename = "where", deserialize_with = "figures::conditions")]
    filter: String,
    #[serde(deserialize_with = "figures::places")]
    line: Vec<String>,
    #[serde(deserialize_with = "figures::place")]
    x: String,
    y_label: String,
    /// Draw the values of `x` side by side, whatever their distance.
    places: bool,
    log_x: bool,
    log_y: bool,
    /// The ends of the y axis; points beyond are left out.
    y_range: Option<(f64, f64)>,
    /// A grey band around 0.
    band: Option<f64>,
    /// Leave out lines of fewer points.
    least: usize,
    no_markers: bool,
}

/// The records with one of these figures whose setting meets the conditions.
fn chosen<'r>(records: &'r [Measurement], what: &[String], setting: &'r str) -> impl Iterator<Item = &'r Measurement> {
    let what = what.join("|");
    records.iter().filter(move |record| Select { what: &what, shape: "", setting }.has(record))
}

impl TableOf {
    /// Whether it shows this figure.
    pub(crate) fn has(&self, what: &str) -> bool {
        self.what.iter().any(|one| one == what)
    }

    /// The title and the table; `None` if no record is chosen.
    pub(crate) fn text(&self, records: &[Measurement]) -> Option<String> {
        let mut chosen: Vec<&Measurement> = chosen(records, &self.what, &self.filter).collect();
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        let of_paper = self.published.as_ref().map(|of| of.beside(&chosen, &self.lines, &self.across));
        let (numbers, from) = of_paper.unwrap_or_default();
        chosen.extend(&numbers);
        let title =
            [&self.title, &from].into_iter().filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(", ");
        let table = records::table(chosen, &lines, &self.across)?;
        Some(if title.is_empty() { table } else { format!("{title}:\n\n{table}") })
    }

    /// The published numbers that stand beside one of `records`.
    #[cfg(test)]
    pub(crate) fn published(&self, records: &[Measurement]) -> Vec<String> {
        let chosen: Vec<&Measurement> = chosen(records, &self.what, &self.filter).collect();
        let of = |of| crate::published::places(Some((of, &chosen, &self.lines, &self.across)));
        self.published.as_ref().map(of).unwrap_or_default()
    }
}

impl ChartOf {
    /// Writes the pictures; none if no record is chosen.
    pub(crate) fn draw(&self, task: &str, records: &[Measurement], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let drawn = self.chart(task, records).write_any(&folder.join(&self.file))?;
        Ok(drawn.into_iter().flatten().collect())
    }

    fn chart(&self, task: &str, records: &[Measurement]) -> Chart {
        let line = |record: &Measurement| record.words(&self.line);
        let within = |record: &&Measurement| {
            self.y_range.is_none_or(|(low, high)| (low..=high).contains(&(record.unit.scale().0 * record.value)))
        };
        let chosen: Vec<&Measurement> = chosen(records, &self.what, &self.filter).filter(within).collect();
        let mut places: Vec<f64> = chosen.iter().filter_map(|record| record.setting.number(&self.x)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        // Lines of nearest rounding are dashed and have the colour of the same setting with stochastic rounding.
        let colour = |record: &Measurement| line(record).replace(" nearest", "").replace(" stochastic", "");
        let mut colours: Vec<String> = Vec::new();
        for colour in chosen.iter().map(|record| colour(record)) {
            if !colours.contains(&colour) {
                colours.push(colour);
            }
        }
        let style = |record: &Measurement| Style {
            colour: colours.iter().position(|known| *known == colour(record)).unwrap_or(0),
            dashed: line(record).contains("nearest"),
            markers: !self.no_markers,
        };
        let x = |record: &Measurement| {
            let number = record.setting.number(&self.x)?;
            let place = || places.iter().position(|&place| place == number).map(|at| at as f64);
            if self.places { place() } else { Some(number) }
        };
        let mut chart = Chart::new(&self.x, &self.y_label);
        chart.lines(chosen, line, x, style);
        chart.series.retain(|series| series.points.len().min(places.len()) >= self.least);
        if self.places {
            chart.x_names = places.iter().map(|&place| shown(&place.into())).collect();
            let middle = (chart.series.len() as f64 - 1.0) / 2.0;
            for (i, series) in chart.series.iter_mut().enumerate() {
                series.points.iter_mut().for_each(|(x, ..)| *x += (i as f64 - middle) * APART);
            }
        }
        chart.title = format!("{task}: {}", self.title);
        (chart.log_x, chart.log_y, chart.y_range, chart.band) = (self.log_x, self.log_y, self.y_range, self.band);
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow_report::records::{Setting, Unit};

    fn records() -> Vec<Measurement> {
        let record = |rounding: &str, cache: f64, value: f64| {
            let setting = Setting::default().with("precision", "int8").with("rounding", rounding).with("cache", cache);
            Measurement::new("loss", "tiny", &setting, value, Unit::Change)
        };
        vec![record("nearest", 0.0, 3.0), record("nearest", 50.0, 2.0), record("stochastic", 0.0, 1.0)]
    }

    #[test]
    fn conditions_choose() {
        let (records, what) = (records(), ["loss".to_owned()]);
        let chosen = |filter: &str| {
            let chosen: Vec<&Measurement> = chosen(&records, &what, filter).collect();
            records.iter().map(|record| chosen.contains(&record)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(""), [true; 3]);
        assert_eq!(chosen("rounding=nearest; cache=0"), [true, false, false]);
        assert_eq!(chosen("cache=0|50; rounding!=nearest"), [false, false, true]);
        assert_eq!((chosen("cache"), chosen("colour")), (vec![true; 3], vec![false; 3]));
    }

    #[test]
    fn lines_have_their_points() {
        let line = vec!["precision".to_owned(), "rounding".to_owned()];
        let chart =
            ChartOf { what: vec!["loss".to_owned()], line, x: "cache".to_owned(), places: true, ..ChartOf::default() };
        let found = chart.chart("tiny", &records());
        let [nearest, stochastic] = &found.series[..] else { panic!("{found:?}") };
        assert_eq!((found.x_names.join("|"), nearest.label.as_str()), ("0|50".into(), "int8, nearest"));
        assert_eq!([nearest, stochastic].map(|line| line.style.dashed), [true, false]);
        assert!((stochastic.points[0].0 - 0.025).abs() < 1e-9, "side by side");
        assert_eq!(ChartOf { least: 2, ..chart }.chart("tiny", &records()).series.len(), 1);
    }
}
