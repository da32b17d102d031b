//! Numbers that papers print, for tables to show beside ours. The texts of the papers have no pages: a number has its section.

use hotrow_report::records::Measurement;
use serde::Deserialize;

/// The papers, each with its numbers, in the units in which a table shows them.
const PAPERS: [(&str, &str); 4] = [
    ("yang-2020", include_str!("../published/yang-2020.csv")),
    ("zhang-2018", include_str!("../published/zhang-2018.csv")),
    ("scars", include_str!("../published/scars.csv")),
    ("robe", include_str!("../published/robe.csv")),
];

/// A number: the paper's table and section, what was trained there, its line and column among ours.
#[derive(Clone, Debug, Deserialize)]
struct Number {
    table: String,
    section: String,
    data: String,
    line: String,
    column: String,
    value: f64,
}

/// A table of a paper, such as `yang-2020 Table 3`, with its numbers: at least one.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Published {
    name: String,
    numbers: Vec<Number>,
}

/// Every number, with the name of its table.
fn numbers() -> Result<Vec<(String, Number)>, String> {
    let of = |(paper, text): (&str, &'static str)| {
        let read = csv::Reader::from_reader(text.as_bytes()).into_deserialize::<Number>();
        let named = move |number: Number| (format!("{paper} {}", number.table), number);
        read.map(move |one| one.map(named).map_err(|error| format!("lab/published: {error}"))).collect::<Vec<_>>()
    };
    PAPERS.into_iter().flat_map(of).collect()
}

impl TryFrom<String> for Published {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let numbers: Vec<Number> =
            numbers()?.into_iter().filter(|(of, _)| *of == name).map(|(_, number)| number).collect();
        if numbers.is_empty() {
            return Err(format!("wanted a table of lab/published, such as yang-2020 Table 3, found {name}"));
        }
        Ok(Self { name, numbers })
    }
}

impl Published {
    /// The numbers that have one of ours at their line and column, each with a record of the same place.
    fn placed(&self, ours: &[&Measurement], lines: &[String], across: &str) -> Vec<(&Number, Measurement)> {
        let place = |of: &Number| {
            let record = ours.iter().find(|record| record.words(lines) == of.line && record.is(across, &of.column))?;
            Some(Measurement { value: of.value / record.unit.scale().0, spread: None, ..(*record).clone() })
        };
        self.numbers.iter().filter_map(|number| Some((number, place(number)?))).collect()
    }

    /// The records of the numbers that have a place, and a sentence that says where they are from, and how many have none.
    pub(crate) fn beside(&self, ours: &[&Measurement], lines: &[String], across: &str) -> (Vec<Measurement>, String) {
        let records: Vec<Measurement> =
            self.placed(ours, lines, across).into_iter().map(|(_, record)| record).collect();
        let (found, all) = (records.len(), self.numbers.len());
        let missing =
            if found < all { format!("; {} of {all} have no place here", all - found) } else { String::new() };
        let Number { section, data, .. } = &self.numbers[0];
        let from = format!("here / published ({}, section {section}: {data}{missing})", self.name);
        (records, from)
    }
}

/// Table, line and column of the numbers of `of` that have a place, or of all numbers.
#[cfg(test)]
pub(crate) fn places(of: Option<(&Published, &[&Measurement], &[String], &str)>) -> Vec<String> {
    let written = |name: &str, number: &Number| format!("{name}, {}, {}", number.line, number.column);
    match of {
        Some((table, ours, lines, across)) => {
            table.placed(ours, lines, across).iter().map(|(number, _)| written(&table.name, number)).collect()
        }
        None => numbers().unwrap().iter().map(|(name, number)| written(name, number)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow_report::records::{Setting, Unit};

    #[test]
    fn numbers_stand_at_their_place() {
        let table = Published::try_from("yang-2020 Table 6".to_owned()).unwrap();
        let record = |size: f64, cache: &str| {
            let setting = Setting::default().with("cache % of rows", size).with("cache", cache);
            Measurement::new("hit rate", "tiny", &setting, 0.5, Unit::Share)
        };
        let ours = [record(5.0, "32-way LFU"), record(5.0, "4-way LFU"), record(7.0, "32-way LFU")];
        let ours: Vec<&Measurement> = ours.iter().collect();
        let lines = ["cache % of rows".to_owned()];
        let (records, from) = table.beside(&ours, &lines, "cache");
        let [record] = &records[..] else { panic!("{records:?}") };
        assert!((record.value - 0.7766).abs() < 1e-9 && record.setting == ours[0].setting, "{record:?}");
        assert!(from.contains("section 4.3.2: DLRM on Criteo-Kaggle, dim 128; 11 of 12 have no place here"), "{from}");
        let (none, from) = table.beside(&ours[1..], &lines, "cache");
        assert!(none.is_empty() && from.contains("12 of 12"), "no number stands at another cache or size: {none:?}");
        let error = Published::try_from("yang-2020 Table 66".to_owned()).unwrap_err();
        assert!(error.ends_with("such as yang-2020 Table 3, found yang-2020 Table 66"), "{error}");
    }
}
