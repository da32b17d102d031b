//! Measurements as records of one figure each, and the tables, CSV and JSON made from them.

use crate::object::{self, Object};
use crate::output;
use crate::units::{self, Times};
use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Seconds,
    Bytes,
    BytesPerSecond,
    /// A share, where 1 is all.
    Share,
    Times,
    Count,
    PerSecond,
    /// The length of a vector, or a product of two.
    Length,
    /// A loss in nats, or a score from 0 to 1. Its spread is the 95 % interval of a mean.
    Score,
    /// A difference from another figure, in percent. Its spread is the 95 % interval of a mean.
    Change,
}

impl Unit {
    /// The value with its unit, for tables.
    pub fn show(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => "-".to_owned(),
            Self::Seconds => units::seconds(value),
            Self::Bytes => units::bytes(value),
            Self::BytesPerSecond => format!("{:.2} GB/s", value * 1e-9),
            Self::Share => format!("{:.1} %", 100.0 * value),
            Self::Times => format!("{value:.2} x"),
            Self::Count => shown(&value.into()),
            Self::PerSecond => format!("{}/s", units::count(value)),
            Self::Length => units::short(value),
            // Of a training that diverged.
            Self::Score | Self::Change if value.abs() >= 1e6 => format!("{value:.3e}"),
            Self::Score => format!("{value:.5}"),
            Self::Change => format!("{value:+.3}"),
        }
    }

    /// The factor for values and the name of the unit, if the unit stands above a table or along an axis.
    pub const fn scale(self) -> (f64, &'static str) {
        match self {
            Self::Seconds => (1e3, "ms"),
            Self::Bytes => (1e-6, "MB"),
            Self::BytesPerSecond => (1e-9, "GB/s"),
            Self::Share => (1e2, "%"),
            Self::Times => (1.0, "x"),
            Self::PerSecond => (1e-6, "million/s"),
            Self::Count => (1.0, "number"),
            Self::Length => (1.0, "length"),
            Self::Score => (1.0, "nats, or of 1"),
            Self::Change => (1.0, "%"),
        }
    }

    /// Whether the spread of a figure is the interval of a mean over seeds, which tables and charts show.
    pub const fn has_interval(self) -> bool {
        matches!(self, Self::Score | Self::Change)
    }
}

/// A value of a setting as text. Large numbers are shortened.
pub fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if number >= 1e5 => units::count(number),
        Some(number) => units::decimals(number),
        // JSON has no number for what is not finite.
        None => value.as_str().unwrap_or("NaN").to_owned(),
    }
}

/// The setting of a figure: names and values, numbers or texts, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "IndexMap<Cow<'static, str>, Value>")]
pub struct Setting(IndexMap<Cow<'static, str>, Value>);

impl TryFrom<IndexMap<Cow<'static, str>, Value>> for Setting {
    type Error = String;

    fn try_from(read: IndexMap<Cow<'static, str>, Value>) -> Result<Self, String> {
        match read.iter().find(|(_, value)| !value.is_number() && !value.is_string()) {
            Some((name, value)) => Err(format!("setting {name}: wanted a number or a text, found {value}")),
            None => Ok(read.into_iter().fold(Self::default(), |setting, (name, value)| setting.with(name, value))),
        }
    }
}

impl Setting {
    /// Adds a value to the setting, or replaces the value of an existing name. Every number is an FP64 one.
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.0.shift_remove(&name);
        self.0.insert(name, value.as_f64().map_or(value, Value::from));
        self
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The value of this name, if it is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_f64()
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
        f.write_str(&all.join(", "))
    }
}

/// JSON has no number for a figure that is not finite: it is null there.
fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// A figure: a quantity of a shape under a setting.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measurement {
    pub what: String,
    /// The shape: the name of a workload.
    pub shape: String,
    pub setting: Setting,
    /// The figure; the median of several rounds.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    pub unit: Unit,
    /// The times whose median the figure is, if there were several rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Times>,
}

impl Measurement {
    pub fn new(what: impl Into<String>, shape: impl Into<String>, setting: &Setting, value: f64, unit: Unit) -> Self {
        Self { what: what.into(), shape: shape.into(), setting: setting.clone(), value, unit, spread: None }
    }

    /// A record of the seconds of several rounds.
    pub fn timed(what: impl Into<String>, shape: impl Into<String>, setting: &Setting, times: Times) -> Self {
        let one = Self::new(what, shape, setting, times.median, Unit::Seconds);
        Self { spread: (times.rounds > 1).then_some(times), ..one }
    }

    /// The value of column `name`: `what`, `shape`, `unit`, or a name of the setting.
    pub fn key(&self, name: &str) -> Option<Value> {
        match name {
            "what" => Some(self.what.as_str().into()),
            "shape" => Some(self.shape.as_str().into()),
            "unit" => Some(self.unit.scale().1.into()),
            name => self.setting.get(name).cloned(),
        }
    }

    /// The values of the columns of these names that it has, separated by commas.
    pub fn words(&self, names: &[impl AsRef<str>]) -> String {
        let values = names.iter().filter_map(|name| self.key(name.as_ref())).map(|value| shown(&value));
        values.collect::<Vec<_>>().join(", ")
    }

    /// Whether column `name` has this text.
    pub fn is(&self, name: &str, text: &str) -> bool {
        self.key(name).is_some_and(|value| shown(&value) == text)
    }

    /// Shape and setting as text: `hits-uniform: precision FP32, kernel gather`.
    pub fn place(&self) -> String {
        format!("{}: {}", self.shape, self.setting).trim_end_matches(": ").to_owned()
    }

    /// The value with its unit, followed by its spread: the interval, or the distance of the slowest and the fastest round in percent of
    /// the median, and a word where the clock steps too coarsely.
    pub fn text(&self) -> String {
        let value = self.unit.show(self.value);
        match self.spread {
            Some(Times { lowest, highest, .. }) if self.unit.has_interval() => {
                let half = self.unit.show((highest - lowest) / 2.0);
                format!("{value} ±{}", half.trim_start_matches('+'))
            }
            Some(Times { median: 0.0, coarse: true, .. }) => "below a step of the clock".to_owned(),
            Some(Times { median, lowest, highest, coarse, .. }) if median > 0.0 => {
                let clock = if coarse { ", coarse clock" } else { "" };
                format!("{value} ({:.0} %{clock})", 100.0 * (highest - lowest) / median)
            }
            _ => value,
        }
    }
}

/// A filter of records. `what` and `shape` are names separated by `|`; empty accepts all. `setting` is a list separated by `; `:
/// `name=text|text` asks for one of these values, `name!=text` for another one, `name` for any value, `!name` for none.
#[derive(Clone, Copy, Debug)]
pub struct Select<'s> {
    pub what: &'s str,
    pub shape: &'s str,
    pub setting: &'s str,
}

impl Select<'_> {
    pub fn has(&self, record: &Measurement) -> bool {
        let one_of = |names: &str, name: &str| names.is_empty() || names.split('|').any(|one| one == name);
        let fits = |wanted: &str| match (wanted.split_once('='), wanted.strip_prefix('!')) {
            (Some((name, text)), _) => match name.strip_suffix('!') {
                Some(name) => !record.is(name, text),
                None => text.split('|').any(|text| record.is(name, text)),
            },
            (None, Some(name)) => record.key(name).is_none(),
            (None, None) => wanted.is_empty() || record.key(wanted).is_some(),
        };
        one_of(self.what, &record.what) && one_of(self.shape, &record.shape) && self.setting.split("; ").all(fits)
    }
}

/// A table in Markdown: a line for each combination of values of the `lines` names, a column for each value of the `across` name. Numbers
/// are sorted, names keep their order. If all figures have one unit, the head of the first column names it and the figures stand without
/// unit and spread. `None` if no record has all these names.
pub fn table<'r>(records: impl IntoIterator<Item = &'r Measurement>, lines: &[&str], across: &str) -> Option<String> {
    let place = |record: &'r Measurement| -> Option<(Vec<Value>, Vec<Value>, &'r Measurement)> {
        let line = lines.iter().map(|name| record.key(name)).collect::<Option<_>>()?;
        Some((line, vec![record.key(across)?], record))
    };
    let cells: Vec<_> = records.into_iter().filter_map(place).collect();
    let (firsts, heads) = (distinct(cells.iter().map(|cell| &cell.0)), distinct(cells.iter().map(|cell| &cell.1)));
    let unit = cells.first()?.2.unit;
    let alike = across != "what" && !unit.has_interval() && cells.iter().all(|cell| cell.2.unit == unit);
    let text = |record: &Measurement| match record.value {
        _ if !alike => record.text(),
        value if value.is_finite() => units::short(unit.scale().0 * value),
        _ => "-".to_owned(),
    };
    let names = lines.iter().map(|name| (*name).to_owned());
    let mut head: Vec<String> = names.chain(heads.iter().map(|head| shown(&head[0]))).collect();
    if alike {
        head[0] = format!("{} ({})", head[0], unit.scale().1);
    }
    let line = |first: &Vec<Value>| {
        let figures = |head: &&Vec<Value>| {
            let here = cells.iter().filter(|(line, across, _)| line == first && across == *head);
            let texts: Vec<String> = here.map(|(_, _, record)| text(record)).collect();
            if texts.is_empty() { "-".to_owned() } else { texts.join(" / ") }
        };
        first.iter().map(shown).chain(heads.iter().map(figures)).collect::<Vec<_>>()
    };
    Some(output::table(head, |at| at < lines.len(), firsts.into_iter().map(line)))
}

/// The distinct keys: ascending if each is one number, else in order of their first occurrence.
fn distinct<'k>(keys: impl Iterator<Item = &'k Vec<Value>>) -> Vec<&'k Vec<Value>> {
    let mut found = Vec::new();
    for key in keys {
        if !found.contains(&key) {
            found.push(key);
        }
    }
    if found.iter().all(|key| key.len() == 1 && key[0].is_number()) {
        let number = |key: &Vec<Value>| key[0].as_f64().unwrap_or(f64::NAN);
        found.sort_by(|a, b| number(a).total_cmp(&number(b)));
    }
    found
}

impl Measurement {
    /// The record as a line of CSV, in which the setting is one column of `name=value`.
    fn line(&self) -> Object {
        let exact = |(name, value): (&Cow<'_, str>, &Value)| {
            format!("{name}={}", value.as_f64().map_or_else(|| shown(value), |number| number.to_string()))
        };
        let (unit, times) = (serde_json::to_value(self.unit).unwrap_or_default(), self.spread.as_ref());
        Object::default()
            .with("what", self.what.as_str())
            .with("shape", self.shape.as_str())
            .with("setting", self.setting.0.iter().map(exact).collect::<Vec<_>>().join("; "))
            .with("value", self.value)
            .with("unit", unit)
            .with("lowest", times.map(|times| times.lowest))
            .with("highest", times.map(|times| times.highest))
            .with("rounds", times.map(|times| times.rounds))
    }
}

/// Writes a line for each record, with further columns that have the same text in every line.
pub fn write_csv(path: &Path, records: &[Measurement], columns: &[(&'static str, &str)]) -> anyhow::Result<()> {
    let line = |record: &Measurement| columns.iter().fold(record.line(), |line, &(name, text)| line.with(name, text));
    object::write_csv(path, &records.iter().map(line).collect::<Vec<_>>())
}

/// Writes a JSON object: the fields of `head`, then the records, one in each line.
pub fn write_json(path: &Path, head: &impl Serialize, records: &[Measurement]) -> anyhow::Result<()> {
    let lines = records.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?.join(",\n    ");
    let head = serde_json::to_string_pretty(head)?;
    let text = format!("{},\n  \"records\": [\n    {lines}\n  ]\n}}\n", head.trim_end_matches("\n}"));
    output::write_file(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Measurement> {
        let setting = |rate: f64| Setting::default().with("precision", "INT8").with("hit rate", rate);
        let times = Times { median: 0.002, lowest: 0.001, highest: 0.003, rounds: 5, coarse: false };
        vec![
            Measurement::timed("forward", "small", &setting(50.0), times),
            Measurement::new("forward", "small", &setting(0.0), 0.004, Unit::Seconds),
            Measurement::new("hits", "small", &setting(0.0), 0.25, Unit::Share),
            Measurement::new("other", "small", &Setting::default(), 9.0, Unit::Count),
        ]
    }

    #[test]
    fn a_table_has_a_line_a_key_and_numbers_in_order() {
        let shown = table(&records(), &["shape", "precision"], "hit rate").unwrap();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert!(lines[0].contains("| shape | precision |") && lines[0].find(" 0 ") < lines[0].find(" 50 "), "{shown}");
        assert!(lines[2].contains("4.00 ms / 25.0 %") && lines[2].contains("2.00 ms (100 %)"), "{shown}");
        assert_eq!(table(&records(), &["no such name"], "what"), None);
        let shown = [Unit::Count.show(f64::NAN), Unit::Share.show(0.1234), Unit::Times.show(1.5)];
        assert_eq!(shown, ["-", "12.3 %", "1.50 x"]);
    }

    #[test]
    fn what_is_written_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let (json, csv) = (folder.path().join("a.json"), folder.path().join("a.csv"));
        write_json(&json, &serde_json::json!({"schema": 2}), &records()).unwrap();
        let text = std::fs::read_to_string(json).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        let back: Vec<Measurement> = serde_json::from_value(read["records"].clone()).unwrap();
        assert_eq!((back, &read["schema"]), (records(), &2.into()));
        assert!(text.starts_with("{\n  \"schema\": 2,\n  \"records\": [\n    {\"what\":\"forward\","), "{text}");
        let missing = r#"{"what":"a","shape":"","setting":{"z":1,"a":"b"},"value":null,"unit":"bytes"}"#;
        let missing: Measurement = serde_json::from_str(missing).unwrap();
        assert!(missing.value.is_nan() && missing.setting.to_string() == "z 1, a b", "the order stays: {missing:?}");
        for wrong in ["null", "true", "[1]"] {
            let found = serde_json::from_str::<Setting>(&format!("{{\"z\":{wrong}}}")).unwrap_err().to_string();
            assert!(found.starts_with("setting z: wanted a number or a text, found"), "{found}");
        }
        let again = missing.setting.with("z", 4_000_000u32);
        assert_eq!((again.number("z"), again.to_string().as_str()), (Some(4e6), "a b, z 4 M"), "each name once");
        write_csv(&csv, &records(), &[("commit", "abc")]).unwrap();
        let text = std::fs::read_to_string(csv).unwrap();
        assert!(text.starts_with("what,shape,setting,value,unit,lowest,highest,rounds,commit\n"), "{text}");
        assert!(text.contains("forward,small,precision=INT8; hit rate=50,0.002,seconds,0.001,0.003,5,abc"), "{text}");
    }
}
