//! `hotrow plan` from outside.

use super::command;
use serde_json::Value;

/// The arguments of a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs `hotrow plan` and expects an exit code. Returns stdout and stderr.
pub(crate) fn outcome(arguments: &[&str], code: i32) -> (String, String) {
    command::outcome(&[&["plan"], arguments].concat(), code)
}

/// The plan that `--json` writes, as text.
pub(crate) fn json(arguments: &[&str]) -> String {
    command::json(&[&["plan"], arguments].concat())
}

pub(crate) fn plan(arguments: &[&str]) -> Value {
    command::value(&[&["plan"], arguments].concat())
}

/// Within a share of `wanted`.
pub(crate) fn near(found: &Value, wanted: f64, share: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - wanted).abs() <= share * wanted.abs(), "{found}, wanted {wanted}");
}
