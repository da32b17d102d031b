//! Values of a configuration in options and results, under the names that the library gives them.

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hotrow::{Error, Placement, Policy, Precision};
use serde::de::{Deserialize as _, Deserializer, Error as _};
use serde::ser::Serializer;
use std::fmt::Display;
use std::str::FromStr;

/// Policies that admit rows.
pub fn admitting() -> impl Iterator<Item = Policy> + Clone {
    Policy::ALL.into_iter().filter(|policy| policy.facts().admits)
}

/// Policies that are compared where an option names none: those of Yang 2020, which take sets of any number of ways.
pub const COMPARED: [Policy; 2] = [Policy::Lru, Policy::Lfu];

/// Every precision, those of groups that only look up too.
pub fn precisions() -> impl Iterator<Item = Precision> {
    Precision::ALL.into_iter().chain(Precision::READ_ONLY)
}

/// Placements, without `Auto`, which chooses one.
pub const PLACES: [Placement; 3] = [Placement::Device, Placement::Mapped, Placement::Staged];

/// Reads an option that is one of `values`; help and messages list them.
pub fn one_of<T>(values: impl IntoIterator<Item = T>) -> impl TypedValueParser<Value = T>
where
    T: Display + FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    let names = values.into_iter().map(|value| value.to_string());
    PossibleValuesParser::new(names).try_map(|name: String| name.parse::<T>())
}

/// The default of an option that takes several values, as a user would write it.
pub fn list(values: impl IntoIterator<Item: Display>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",")
}

/// Writes a value's name, for `#[serde(with = "names")]`.
pub fn serialize<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub fn deserialize<'de, T: FromStr<Err = Error>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A policy's name in titles and tables: LRU, LFU, static, window.
pub fn title(policy: Policy) -> String {
    if COMPARED.contains(&policy) { policy.name().to_uppercase() } else { policy.to_string() }
}

/// The name of an enum's value in options.
pub fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
