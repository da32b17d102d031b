//! Configurations from Python's settings: each field of the library's under its own name.

use pyo3::PyResult;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::errors::{self, raise, refused};

/// Fields that are no settings.
const HIDDEN: [&str; 3] = ["stripe", "tables", "rule"];

/// The configuration with the settings of a JSON object.
pub(crate) fn with<T: Serialize + DeserializeOwned>(config: &T, json: &str) -> PyResult<T> {
    let fault = |error: serde_json::Error| refused("settings", "names and values", error, "correct them");
    let base: Map<String, Value> = serde_json::to_value(config).and_then(serde_json::from_value).map_err(fault)?;
    let given: Map<String, Value> = serde_json::from_str(json).map_err(fault)?;
    let mut all = base.clone();
    for (name, value) in given {
        let Some(field) = base.get(&name).filter(|_| !HIDDEN.contains(&&*name)) else {
            let names: Vec<&str> = base.keys().map(|name| &**name).filter(|name| !HIDDEN.contains(name)).collect();
            return Err(refused("settings", &format!("names among {}", names.join(", ")), name, "correct the name"));
        };
        let shown = match &value {
            Value::Bool(is) => (if *is { "True" } else { "False" }).to_owned(),
            value => value.to_string(),
        };
        let value = match (field, value) {
            // An optimiser names what differs.
            (Value::Object(usual), Value::Object(differs)) if name == "optimizer" => {
                if let Some(name) = differs.keys().find(|name| !usual.contains_key(*name)) {
                    let names: Vec<&str> = usual.keys().map(|name| &**name).collect();
                    return Err(refused("optimizer", &format!("names among {}", names.join(", ")), name, "correct it"));
                }
                Value::Object(usual.clone().into_iter().chain(differs).collect())
            }
            (_, value) => value,
        };
        all.insert(name.clone(), value.clone());
        // One by one, so that the message names the field.
        let alone = base.clone().into_iter().chain([(name.clone(), value)]).collect();
        if let Err(error) = serde_json::from_value::<T>(Value::Object(alone)) {
            let error = error.to_string();
            return Err(if error.starts_with(&format!("{name}: ")) {
                raise("InvalidValue", errors::in_python(&error))
            } else {
                refused(&name, &errors::wanted(&error), shown, "see help(hotrow.Group)")
            });
        }
    }
    serde_json::from_value(Value::Object(all)).map_err(fault)
}

/// The settings of a configuration as a JSON object.
pub(crate) fn json(config: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(config).map_err(|error| refused("settings", "values", error, "report it"))
}

/// An error of the library, as an exception.
pub(crate) fn checked<T>(result: Result<T, hotrow::Error>) -> PyResult<T> {
    result.map_err(|error| errors::of(&error))
}
