//! Results as objects of serde values, and the tables and CSV made from them.

use crate::{output, units};
use bytesize::ByteSize;
use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// A JSON object that keeps the order of its fields.
///
/// In tables, the end of a field's name sets its unit: `bytes` is a size, `percent` a percentage, `rate` and `share` a share of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Object(IndexMap<&'static str, Field>);

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Field {
    /// A number, a text, a list of them, or null.
    Plain(Value),
    Object(Object),
    /// Objects, of which a table has a line each.
    List(Vec<Object>),
}

/// An object of fields of a value, each under its own name.
#[macro_export]
macro_rules! fields {
    ($of:expr; $($name:ident),+) => { $crate::object::Object::default()$(.with(stringify!($name), $of.$name))+ };
}
pub use fields;

impl Object {
    /// Adds a field, or replaces the value of an existing one.
    pub fn with(mut self, name: &'static str, value: impl Into<Field>) -> Self {
        self.0.insert(name, value.into());
        self
    }

    /// Adds the fields of another object.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// A field with an object, or with null.
    pub fn or_null(object: Option<Self>) -> Field {
        object.map_or(Field::Plain(Value::Null), Field::Object)
    }

    /// The object in the field of this name; empty if there is none.
    pub fn object(&self, name: &str) -> Self {
        if let Some(Field::Object(object)) = self.0.get(name) { object.clone() } else { Self::default() }
    }

    /// The list of objects in the field of this name.
    pub fn list(&self, name: &str) -> &[Self] {
        if let Some(Field::List(objects)) = self.0.get(name) { objects } else { &[] }
    }

    /// The number at `path`, which is the name of an object and of its field; not a number if there is none.
    pub fn number(&self, path: &str) -> f64 {
        self.value(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    /// The text at `path`; empty if there is none.
    pub fn text(&self, path: &str) -> &str {
        self.value(path).and_then(Value::as_str).unwrap_or_default()
    }

    fn value(&self, path: &str) -> Option<&Value> {
        let (name, inner) = path.split_once(' ').unwrap_or((path, ""));
        match self.0.get(name)? {
            Field::Plain(value) if inner.is_empty() => Some(value),
            Field::Object(object) => object.value(inner),
            Field::Plain(_) | Field::List(_) => None,
        }
    }

    /// The objects among the fields, each with its name as the first field.
    pub fn parts(&self) -> Vec<Self> {
        let part = |(name, field): (&&'static str, &Field)| match field {
            Field::Object(object) => Some(Self::default().with("", name.replace('_', " ")).and(object.clone())),
            Field::Plain(_) | Field::List(_) => None,
        };
        self.0.iter().filter_map(part).collect()
    }

    /// The plain fields.
    pub fn plain(mut self) -> Self {
        self.0.retain(|_, field| matches!(field, Field::Plain(_)));
        self
    }

    /// A table with a line for each field, also of inner objects. Whole bytes are exact.
    pub fn table(&self, title: &str) -> String {
        let line = |(words, name, value): (String, &str, &Value)| {
            let text = show(name, value);
            let is_exact = value.as_u64().is_none_or(|value| text.starts_with(&value.to_string()));
            [words, if is_exact { text } else { format!("{value} ({text})") }]
        };
        output::table([title.to_owned(), String::new()], |_| true, self.flat("").into_iter().map(line))
    }

    /// Names and values of the plain fields, also of inner objects, with the object's name in front.
    fn flat(&self, before: &str) -> Vec<(String, &'static str, &Value)> {
        let mut all = Vec::new();
        for (name, field) in &self.0 {
            let words = format!("{before}{}", name.replace('_', " "));
            match field {
                Field::Plain(value) => all.push((words, *name, value)),
                Field::Object(object) => all.extend(object.flat(&format!("{words} "))),
                Field::List(_) => {}
            }
        }
        all
    }
}

impl<T: Into<Value>> From<T> for Field {
    fn from(value: T) -> Self {
        Self::Plain(value.into())
    }
}

impl From<Object> for Field {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl FromIterator<Object> for Field {
    fn from_iter<I: IntoIterator<Item = Object>>(objects: I) -> Self {
        Self::List(objects.into_iter().collect())
    }
}

/// A table with a line for each object. The object with most fields names the columns; lists are left out.
pub fn table(objects: &[Object]) -> String {
    let flat: Vec<_> = objects.iter().map(|object| object.flat("")).collect();
    let Some(head) = flat.iter().max_by_key(|fields| fields.len()) else { return String::new() };
    let cell = |fields: &[(String, &str, &Value)], words: &String| {
        let found = fields.iter().find(|(known, ..)| known == words);
        found.map_or_else(|| "-".to_owned(), |(_, name, value)| show(name, value))
    };
    let lines = flat.iter().map(|fields| head.iter().map(|(words, ..)| cell(fields, words)));
    output::table(head.iter().map(|(words, ..)| words.clone()), |at| head[at].2.is_string(), lines)
}

/// Writes objects of plain fields as CSV.
pub fn write_csv(path: &Path, objects: &[Object]) -> anyhow::Result<()> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    if let Some(first) = objects.first() {
        csv.write_record(first.flat("").into_iter().map(|(_, name, _)| name))?;
    }
    for object in objects {
        let cell = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        csv.write_record(object.flat("").into_iter().map(|(_, _, value)| cell(value)))?;
    }
    output::write_file(path, &csv.into_inner()?)
}

/// A value as text for a table.
fn show(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(|value| show(name, value)).collect::<Vec<_>>().join(", "),
        Value::Number(number) => {
            let of = number.as_f64().unwrap_or(f64::NAN);
            match name.rsplit('_').next() {
                _ if name == "timestamp_step" => units::seconds(of),
                Some("bytes") => in_units(of),
                // Adding 0 removes the minus of a zero.
                Some("percent") => format!("{:.3} %", (1e3 * of).round() / 1e3 + 0.0),
                Some("rate" | "share") => format!("{:.3} %", 100.0 * of),
                _ if number.is_f64() => digits(of),
                _ => number.to_string(),
            }
        }
        Value::Object(_) => String::new(),
    }
}

/// Bytes in the largest unit in which they are at least 1.
pub fn in_units(bytes: f64) -> String {
    ByteSize(bytes.round() as u64).display().iec().to_string()
}

/// A number with four significant digits, or with all digits before the point.
pub fn digits(value: f64) -> String {
    if value.fract() == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    let places = (3 - value.abs().log10().floor() as i32).max(0) as usize;
    if places > 7 { format!("{value:.3e}") } else { format!("{value:.places$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables, JSON and CSV of whole results are compared in tests/golden; this is what they do not show.
    #[test]
    fn a_missing_value_is_a_stroke_and_a_path_finds_inner_fields() {
        let inner = Object::default().with("read_bytes", 3 << 20).with("hit_rate", 0.25);
        let object = Object::default().with("order", "real").with("value", f64::NAN).with("epoch", inner);
        let object = object.with("list", Field::from_iter([])).with("deviation_percent", -1e-9);
        let shown = table(std::slice::from_ref(&object));
        assert!(shown.contains("| order | value | epoch read bytes | epoch hit rate | deviation percent |"), "{shown}");
        assert!(shown.contains("| real  |     - |          3.0 MiB |       25.000 % |           0.000 % |"), "{shown}");
        assert_eq!((object.number("epoch hit_rate"), object.text("order")), (0.25, "real"));
        assert!(object.number("epoch order").is_nan() && object.text("epoch").is_empty());
        assert!(object.parts()[0].table("a").contains("3145728 (3.0 MiB)"));
        // The columns of a missing object.
        let sizes = [None, Some(Object::default().with("weights", 3))].map(Object::or_null);
        let shown = table(&sizes.map(|below| Object::default().with("chunk", 8).with("below", below)));
        assert!(shown.contains("| chunk | below weights |") && shown.contains("|     8 |             - |"), "{shown}");
        let numbers = [0.0, 123.456, 98_765.4, 0.012_345, 0.000_012_34, f64::INFINITY].map(digits);
        assert_eq!(numbers, ["0", "123.5", "98765", "0.01235", "1.234e-5", "inf"]);
    }
}
