//! Finds records in a report of `bench`.

use serde_json::Value;

/// The records of a report with this `what` and these settings.
pub(crate) fn records<'r>(report: &'r Value, what: &str, wanted: &[(&str, Value)]) -> Vec<&'r Value> {
    let all = report["records"].as_array().expect("a list of records");
    let has = |record: &Value| {
        let key = |name: &str| if name == "shape" { record[name].clone() } else { record["setting"][name].clone() };
        wanted.iter().all(|(name, value)| match value.as_f64() {
            Some(number) => key(name).as_f64() == Some(number),
            None => key(name) == *value,
        })
    };
    all.iter().filter(|record| record["what"] == what && has(record)).collect()
}

/// The goal of this name.
pub(crate) fn goal<'r>(report: &'r Value, id: &str) -> &'r Value {
    report["goals"].as_array().unwrap().iter().find(|goal| goal["id"] == id).unwrap()
}

pub(crate) fn number(record: &Value) -> f64 {
    record["value"].as_f64().expect("a figure")
}
