//! Lines over the values of a setting, with the 95 % interval of each point.

use crate::plot::{Chart, Series};
use crate::report::{Record, Value};

/// Distance between lines whose points share a place of the axis.
const APART: f64 = 0.05;

/// A line for each value of the `lines` names, over the values of `across` side by side; lines of fewer points than `least` are left
/// out. A colour is a value of the first of `lines`; lines rounded to nearest are dashed.
pub(crate) fn places(records: &[&Record], across: &str, lines: &[&str], least: usize) -> Chart {
    let mut places: Vec<f64> = records.iter().filter_map(|record| record.setting.number(across)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let place = |record: &Record| {
        let value = record.setting.number(across)?;
        places.iter().position(|&place| place == value).map(|at| at as f64)
    };
    let mut chart = chart(records, &place, lines, least);
    chart.x_label = across.to_owned();
    chart.x_names = places.iter().map(|&place| Value::from(place).to_string()).collect();
    let count = chart.series.len();
    for (i, series) in chart.series.iter_mut().enumerate() {
        let aside = (i as f64 - (count - 1) as f64 / 2.0) * APART;
        series.points.iter_mut().for_each(|(x, _)| *x += aside);
    }
    chart
}

/// The same over the numbers of `across`, in ascending order.
pub(crate) fn numbers(records: &[&Record], across: &str, lines: &[&str]) -> Chart {
    let number = |record: &Record| record.setting.number(across).unwrap_or(f64::NAN);
    let mut records = records.to_vec();
    records.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let mut chart = chart(&records, &|record| record.setting.number(across), lines, 1);
    chart.x_label = across.to_owned();
    chart
}

fn chart(records: &[&Record], place: &dyn Fn(&Record) -> Option<f64>, lines: &[&str], least: usize) -> Chart {
    let mut chart = Chart::new("", "");
    let mut colours: Vec<Value> = Vec::new();
    let mut found: Vec<(Vec<Value>, Series)> = Vec::new();
    for record in records {
        let key: Option<Vec<Value>> = lines.iter().map(|name| record.key(name)).collect();
        let (Some(key), Some(x)) = (key, place(record)) else { continue };
        let at = found.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
            if !colours.contains(&key[0]) {
                colours.push(key[0].clone());
            }
            found.push((key.clone(), series(&key, &colours)));
            found.len() - 1
        });
        let half = record.spread.map_or(0.0, |spread| (spread.highest - spread.lowest) / 2.0);
        found[at].1.points.push((x, record.value));
        found[at].1.spread.push((half, half));
    }
    chart.series = found.into_iter().map(|(_, series)| series).filter(|series| series.points.len() >= least).collect();
    chart
}

fn series(key: &[Value], colours: &[Value]) -> Series {
    let names: Vec<String> = key.iter().map(Value::to_string).collect();
    Series {
        label: names.join(", "),
        points: Vec::new(),
        colour: colours.iter().position(|colour| *colour == key[0]).unwrap_or(0),
        dashed: names.iter().any(|name| name == "nearest"),
        markers: true,
        spread: Vec::new(),
    }
}
