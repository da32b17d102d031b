//! A configuration as texts, the metadata of a checkpoint. They are what serde makes of it: names without quotes, numbers and lists as JSON. The
//! optimiser's settings lie beside the other fields.

use std::{cell::Cell, collections::BTreeMap, path::Path};

use serde::{
    Deserializer, Serialize,
    de::{
        DeserializeOwned, Error as _, IntoDeserializer, Visitor,
        value::{Error as Unread, MapDeserializer},
    },
};
use serde_json::{Value, json};

use crate::{
    checkpoint::fault,
    config::{GroupConfig, OptimizerKind, Policy, StatePrecision},
    error::Error,
};

/// Texts by the names of fields.
pub(crate) type Texts = BTreeMap<String, String>;

/// What no file has.
const LEFT_OUT: [&str; 3] = ["placement", "init", "forward_only"];
/// What a file has only where it is not as in a new configuration.
const SELDOM: [&str; 13] = [
    "write_rounding",
    "window_ways",
    "cache_shares",
    "state",
    "decoupled",
    "beta1",
    "beta2",
    "own_count",
    "clip_value",
    "clip_norm",
    "stripe",
    "padding",
    "backward",
];

/// The name in files, where the rule of the optimiser lies beside its settings.
fn in_files(field: &'static str) -> &'static str {
    if field == "kind" { "optimizer" } else { field }
}

/// The texts of a configuration's fields, without those that are not set.
pub(crate) fn texts(config: &impl Serialize) -> Texts {
    let Value::Object(mut fields) = json!(config) else { return Texts::new() };
    if let Some(Value::Object(mut optimizer)) = fields.remove("optimizer") {
        fields.extend(optimizer.remove("kind").map(|kind| (in_files("kind").into(), kind)));
        fields.append(&mut optimizer);
    }
    fields.retain(|field, _| !LEFT_OUT.contains(&&**field));
    let text = |value| match value {
        Value::Null => None,
        Value::String(name) => Some(name),
        // `{:?}` of a float reads back as the same float.
        Value::Number(number) if number.is_f64() => number.as_f64().map(|float| format!("{:?}", float as f32)),
        other => Some(other.to_string()),
    };
    fields.into_iter().filter_map(|(field, value)| Some((field, text(value)?))).collect()
}

/// The texts that the checkpoint of a group keeps of its configuration.
pub(crate) fn of(config: &GroupConfig) -> Texts {
    let usual = texts(&GroupConfig::new(&[], 0));
    let mut texts = texts(config);
    texts.retain(|field, text| !SELDOM.contains(&&**field) || usual.get(field) != Some(text));
    // The usual type is not written, whether it was chosen or not.
    if state(config) == StatePrecision::chosen(config.precision, None) {
        texts.remove("state");
    }
    texts
}

/// The type of the states of elements, chosen or usual.
fn state(config: &GroupConfig) -> StatePrecision {
    StatePrecision::chosen(config.precision, config.state)
}

/// The error for a text that no configuration has.
pub(crate) fn unread(path: &Path, field: &'static str, texts: &Texts) -> Error {
    let found = texts.get(field).map_or("nothing", String::as_str);
    let remedy = "get a file written by hotrow, or a newer hotrow";
    fault(path, field, "a value that a configuration can have", found, remedy)
}

/// Reads the configuration that [`of`] wrote, or that of a shared array.
pub(crate) fn config<C: DeserializeOwned>(path: &Path, texts: &Texts) -> Result<C, Error> {
    let at = Cell::new("");
    C::deserialize(Source { texts, at: &at }).map_err(|_| unread(path, at.get(), texts))
}

/// Gives a struct its fields, those of the optimiser too, and a field its text. The field that was begun last is `at`; an error is about it.
#[derive(Clone, Copy)]
struct Source<'t> {
    texts: &'t Texts,
    at: &'t Cell<&'static str>,
}

impl<'t> Source<'t> {
    fn text(self) -> Result<&'t str, Unread> {
        self.texts.get(self.at.get()).map(String::as_str).ok_or_else(|| Unread::custom("no text"))
    }
}

impl<'t> IntoDeserializer<'t, Unread> for Source<'t> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Source<'de> {
    type Error = Unread;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        let is_there = |field| self.texts.contains_key(field) || !SELDOM.contains(&field);
        let fields = fields.iter().filter(|field| !LEFT_OUT.contains(field) && is_there(in_files(field)));
        visitor.visit_map(MapDeserializer::new(fields.map(|field| {
            self.at.set(in_files(field));
            (*field, self)
        })))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_some(self)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_str(self.text()?)
    }

    /// Reads every float exactly, which `serde_json` does not.
    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_f32(self.text()?.parse().map_err(Unread::custom)?)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let value: Value = serde_json::from_str(self.text()?).map_err(Unread::custom)?;
        value.deserialize_any(visitor).map_err(Unread::custom)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f64 char str bytes byte_buf unit unit_struct newtype_struct seq tuple tuple_struct map enum
        identifier ignored_any
    }
}

/// Checks that a group configured as `ours` can continue a checkpoint of `theirs` bit for bit: shapes, packing and
/// random bits are the same. Optimiser settings, pooling and the handling of bad indices may differ.
///
/// # Errors
/// [`Error::Checkpoint`] names the first field that differs.
pub fn check_same(path: &Path, ours: &GroupConfig, theirs: &GroupConfig) -> Result<(), Error> {
    let [tables, their_tables] = differing_tables(&ours.tables, &theirs.tables);
    let shown = |config: &GroupConfig, tables| {
        let sets = u64::from(config.cache_rows).min(config.total_rows()).div_ceil(config.ways.into());
        let sets = if sets == 0 { "no cache".into() } else { format!("{sets} sets of {}", config.ways) };
        let own_count = config.optimizer.counts_rows().to_string();
        // An optimiser without states of elements does not look at it.
        let kind = config.optimizer.kind;
        let each = !matches!(kind, OptimizerKind::Sgd | OptimizerKind::RowWiseAdaGrad);
        let state = if each { state(config).to_string() } else { "none".into() };
        // Other policies do not look at it.
        let window_ways = if config.policy == Policy::Window { config.window_ways } else { 0 };
        let shown = [
            ("tables", tables),
            ("cache_rows", sets),
            ("own_count", own_count),
            ("state", state),
            ("window_ways", window_ways.to_string()),
        ];
        let mut texts = texts(config);
        texts.extend(shown.map(|(field, text)| (field.to_owned(), text)));
        texts
    };
    let (ours, theirs) = (shown(ours, tables), shown(theirs, their_tables));
    let remedy = "load it into a group of the configuration that checkpoint::contents gives, or take another file";
    same(path, &SAME, &ours, |field| &theirs[field], remedy)
}

/// What a group must have in common with its checkpoint.
const SAME: [&str; 15] = [
    "tables",
    "dim",
    "precision",
    "rounding",
    "random_bits",
    "cache_rows",
    "policy",
    "counter_bits",
    "window_ways",
    "cache_shares",
    "optimizer",
    "own_count",
    "state",
    "seed",
    "stripe",
];

/// Checks that the texts of `fields` are the wanted ones.
pub(crate) fn same<'t>(
    path: &Path,
    fields: &[&'static str],
    wanted: &Texts,
    found: impl Fn(&str) -> &'t str,
    remedy: &'static str,
) -> Result<(), Error> {
    match fields.iter().find(|&&field| wanted[field] != found(field)) {
        None => Ok(()),
        Some(&field) => Err(fault(path, field, &*wanted[field], found(field), remedy)),
    }
}

/// Describes in a few words how two lists of tables differ; there may be thousands of tables.
fn differing_tables(ours: &[u32], theirs: &[u32]) -> [String; 2] {
    if ours.len() != theirs.len() {
        return [ours, theirs].map(|tables| format!("{} tables", tables.len()));
    }
    match (0..ours.len()).find(|&at| ours[at] != theirs[at]) {
        None => Default::default(),
        Some(at) => [ours, theirs].map(|tables| format!("table {at} with {} rows", tables[at])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Optimizer, stripe::Stripe};

    /// Fields that the files of whole groups lack, and floats that JSON writes otherwise. The files in `tests/data` have the others.
    #[test]
    fn every_stripe_and_float_reads_back() {
        let mut wanted = GroupConfig::new(&[100, 300], 12);
        let padded = wanted.clone().with_padding(vec![None, Some(7)]);
        assert_eq!(
            (&*of(&padded)["padding"], config(Path::new("file"), &of(&padded))),
            ("[null,7]", Ok(padded.clone()))
        );
        for (shift, first) in [(0, 0), (1, 1), (4, 15), (31, (1 << 31) - 1)] {
            wanted.stripe = Stripe { shift, first };
            for (lr, text) in [(1e14, "100000000000000.0"), (5e-5, "5e-5"), (0.1, "0.1"), (-0.0, "-0.0")] {
                wanted.optimizer = Optimizer::sgd(lr).with_eps(f32::from_bits(0x3000_0001 + first));
                let texts = of(&wanted);
                assert_eq!((texts.len(), &*texts["lr"]), (17 + usize::from(shift > 0), text));
                assert_eq!(config(Path::new("file"), &texts), Ok(wanted.clone()));
            }
        }
        for text in ["[0,1]", "[4,16]", "[32,0]", "[4]", "[4,1,1]", "", "4,1"] {
            let mut texts = of(&wanted);
            texts.insert("stripe".into(), text.into());
            let refused = config::<GroupConfig>(Path::new("file"), &texts);
            assert!(matches!(refused, Err(Error::Checkpoint { what: "stripe", .. })), "{text}");
        }
    }

    #[test]
    fn another_stripe_and_other_tables_are_named() {
        let ours = GroupConfig::new(&[100, 300], 12);
        let theirs = GroupConfig { stripe: Stripe { shift: 1, first: 0 }, ..ours.clone() };
        let refused = check_same(Path::new("file"), &ours, &theirs);
        assert!(matches!(refused, Err(Error::Checkpoint { what: "stripe", .. })), "{refused:?}");
        assert_eq!(check_same(Path::new("file"), &theirs, &theirs), Ok(()));
        assert_eq!(differing_tables(&[1, 2, 3], &[1, 5, 4]), ["table 1 with 2 rows", "table 1 with 5 rows"]);
        assert_eq!(differing_tables(&[1], &[1, 5]), ["1 tables", "2 tables"]);
        assert_eq!(differing_tables(&[1], &[1]), ["", ""]);
    }
}
