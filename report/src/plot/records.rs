//! Charts of records: lines and heat maps take figures, labels and units from them.

use super::chart::{Chart, Series, Style};
use super::heat::Panel;
use crate::records::{Measurement, Value};

impl Chart {
    /// Adds a line for each value of `label`. Its points ascend in `x` and have their intervals. The label of the y axis gets the unit.
    pub fn lines<'r>(
        &mut self,
        records: impl IntoIterator<Item = &'r Measurement>,
        label: &str,
        x: impl Fn(&Measurement) -> Option<f64>,
        style: impl Fn(&Measurement) -> Style,
    ) {
        for record in records {
            let (Some(label), Some(x)) = (record.key(label), x(record)) else { continue };
            let (label, (factor, unit)) = (label.to_string(), record.unit.scale());
            if self.series.is_empty() {
                self.y_label = format!("{} ({unit})", self.y_label);
            }
            let at = self.series.iter().position(|series| series.label == label).unwrap_or_else(|| {
                self.series.push(Series { label, points: Vec::new(), style: style(record), spread: Vec::new() });
                self.series.len() - 1
            });
            self.series[at].points.push((x, factor * record.value));
            if let Some(spread) = record.spread.filter(|_| record.unit.has_interval()) {
                self.series[at].spread.push((record.value - spread.lowest, spread.highest - record.value));
            }
        }
        for series in &mut self.series {
            let mut places: Vec<usize> = (0..series.points.len()).collect();
            places.sort_by(|&a, &b| series.points[a].0.total_cmp(&series.points[b].0));
            series.points = places.iter().map(|&at| series.points[at]).collect();
            series.spread = places.iter().filter_map(|&at| series.spread.get(at).copied()).collect();
        }
    }
}

impl Panel {
    /// A heat map of the records that have both names: `line` selects the row, `column` the column.
    pub fn of<'r>(
        title: String,
        label: String,
        records: impl IntoIterator<Item = &'r Measurement>,
        (line, lines): (&str, &[f64]),
        (column, columns): (&str, &[f64]),
    ) -> Self {
        let mut values = vec![vec![None; columns.len()]; lines.len()];
        for record in records {
            let place = |name: &str, all: &[f64]| {
                let value = record.setting.number(name)?;
                all.iter().position(|&one| one == value)
            };
            if let (Some(line), Some(column)) = (place(line, lines), place(column, columns)) {
                values[line][column] = Some(record.unit.scale().0 * record.value);
            }
        }
        let names = |all: &[f64]| all.iter().map(|&value| Value::Number(value).to_string()).collect();
        Self { title, label, columns: names(columns), lines: names(lines), values }
    }
}
