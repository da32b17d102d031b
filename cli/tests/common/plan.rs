//! `hotrow plan` from outside.
#![allow(unreachable_pub, reason = "test crates include this file")]

use crate::command;
use serde_json::Value;

/// Runs `hotrow plan` and expects an exit code; returns stdout and stderr.
pub fn outcome(arguments: &[&str], code: i32) -> (String, String) {
    command::outcome(&[&["plan"], arguments].concat(), code)
}

/// The plan as `--json` has it, as text.
pub fn json(arguments: &[&str]) -> String {
    command::json(&[&["plan"], arguments].concat())
}

pub fn plan(arguments: &[&str]) -> Value {
    serde_json::from_str(&json(arguments)).unwrap()
}

/// Within a share of `wanted`.
pub fn near(found: &Value, wanted: f64, share: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - wanted).abs() <= share * wanted.abs(), "{found}, wanted {wanted}");
}
