//! What a checkpoint is of: a group of rows or a shared array. The type of its configuration says so.

use std::path::Path;

use safetensors::tensor::Dtype;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    checkpoint::{CHUNK, fault},
    config::{GroupConfig, OptimizerKind, Precision, StatePrecision},
    error::Error,
    robe::config::Config,
    rules::Facts,
    table::{counters::COUNTER_WORDS, layout::Layout, parts::Part},
};

/// Name of the last tensor.
pub(super) const CHECKSUMS: &str = "checksums";

/// A tensor of a file.
///
/// Example: the [module](crate::checkpoint).
#[derive(Debug)]
pub struct Tensor {
    pub(super) name: &'static str,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<u64>,
    /// Words that are read and written together.
    whole: u64,
}

impl Tensor {
    fn new(name: &'static str, dtype: Dtype, shape: &[u64], whole: u64) -> Self {
        Self { name, dtype, shape: shape.to_vec(), whole }
    }

    /// The last tensor of a file with `tensors` others: the checksums of the header and of each of them.
    pub(super) fn checksums(tensors: usize) -> Self {
        Self::new(CHECKSUMS, Dtype::U32, &[tensors as u64 + 1], 1)
    }

    /// Number of its words of 32 bits.
    pub(super) fn words(&self) -> u64 {
        self.shape.iter().product::<u64>() * (self.dtype.bitsize() as u64 / 8) / 4
    }

    /// Most words that are read or written at once: a whole number of sets, slots or records.
    pub(super) fn chunk(&self) -> u64 {
        (CHUNK / 4 / self.whole).max(1) * self.whole
    }
}

/// A configuration that a file has as JSON.
pub trait Kind: Serialize + DeserializeOwned {
    /// The format that the file's header names.
    const FORMAT: &'static str;
    /// The remedy if a file is of another one.
    const FOREIGN: &'static str;

    /// The configuration as files have it: without what each group chooses by itself.
    #[must_use]
    fn kept(&self) -> Self;

    /// The tensors in file order, of a configuration that a group can have.
    ///
    /// # Errors
    /// [`Error::Config`].
    fn tensors(&self) -> Result<Vec<Tensor>, Error>;

    /// What a group must have in common with its checkpoint to continue it bit for bit.
    fn same(&self) -> Vec<(&'static str, Value)>;
}

/// Checks that a group configured as `ours` can continue a checkpoint of `theirs` bit for bit: shapes, packing and
/// random bits are the same. Optimiser settings, pooling and the handling of bad indices may differ.
///
/// # Errors
/// [`Error::Checkpoint`] names the first field that differs.
pub fn check_same<K: Kind>(path: &Path, ours: &K, theirs: &K) -> Result<(), Error> {
    let differs = |((_, ours), (_, theirs)): &((_, Value), (_, Value))| ours != theirs;
    let Some(((field, ours), (_, theirs))) = ours.same().into_iter().zip(theirs.same()).find(differs) else {
        return Ok(());
    };
    let [wanted, found] = difference(&ours, &theirs);
    let remedy = "load it into a group of the configuration that checkpoint::contents gives, or take another file";
    Err(fault(path, field, wanted, &found, remedy))
}

/// Describes in a few words how two settings differ; there may be thousands of tables.
fn difference(ours: &Value, theirs: &Value) -> [String; 2] {
    if let (Value::Array(ours), Value::Array(theirs)) = (ours, theirs) {
        return match (0..ours.len()).find(|&at| ours.get(at) != theirs.get(at)) {
            Some(at) if ours.len() == theirs.len() => [ours, theirs].map(|all| format!("{} at entry {at}", all[at])),
            _ => [ours, theirs].map(|all| format!("{} entries", all.len())),
        };
    }
    [ours, theirs].map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The parts of a group as tensors, in file order: U64 first, so that each tensor is aligned to its type.
pub(super) fn parts(config: &GroupConfig, layout: &Layout) -> Vec<(Part, Tensor)> {
    let (slots, rows, ways) = (u64::from(layout.slots()), u64::from(layout.total_rows), u64::from(layout.ways));
    let (counters, since) = (COUNTER_WORDS as u64, Part::Since.words(config, layout) / 2);
    let (row, record) = (u64::from(layout.row.row_words), u64::from(layout.row.record_words));
    let tables = config.tables.len() as u64;
    let tensor = Tensor::new;
    let mut parts = vec![
        (Part::Counters, tensor("counters", Dtype::U64, &[tables, counters / 2], counters)),
        (Part::Since, tensor("since", Dtype::U64, &[since], 1)),
        (Part::Ways, tensor("ways", Dtype::U32, &[u64::from(layout.sets), 4, ways], layout.set_words())),
        (Part::Cache, tensor("cache", Dtype::F32, &[slots, row], row)),
        (Part::Records, tensor("records", Dtype::U8, &[rows, layout.stride()], record)),
        (Part::Frequencies, tensor("frequencies", Dtype::U32, &[rows], 1)),
    ];
    parts.retain(|(part, _)| part.words(config, layout) > 0);
    parts
}

/// The type of the states of elements, chosen or usual; an optimiser without such states has none.
fn state(facts: &Facts, kind: OptimizerKind, precision: Precision, state: Option<StatePrecision>) -> Value {
    match facts.states {
        [] => json!("none"),
        _ => json!(StatePrecision::chosen(precision, kind, state)),
    }
}

impl Kind for GroupConfig {
    const FORMAT: &'static str = "hotrow checkpoint";
    const FOREIGN: &'static str = "give the path of a file that checkpoint::save wrote, unchanged";

    fn kept(&self) -> Self {
        let Self { placement, init, piece_bytes, window_bytes, .. } = Self::new(&[], 0);
        let forward_only = !self.precision.trains();
        Self { placement, init, forward_only, piece_bytes, window_bytes, ..self.clone() }
    }

    fn tensors(&self) -> Result<Vec<Tensor>, Error> {
        let layout = Layout::new(self, u64::MAX)?;
        Ok(parts(self, &layout).into_iter().map(|(_, tensor)| tensor).collect())
    }

    fn same(&self) -> Vec<(&'static str, Value)> {
        let sets = u64::from(self.cache_rows).min(self.total_rows()).div_ceil(self.ways.into());
        let sets = if sets == 0 { "no cache".into() } else { format!("{sets} sets of {}", self.ways) };
        // Other policies do not look at it.
        let window_ways = if self.policy.facts().recent { self.window_ways } else { 0 };
        vec![
            ("tables", json!(self.tables)),
            ("dim", json!(self.dim)),
            ("precision", json!(self.precision)),
            ("rounding", json!(self.rounding)),
            ("random_bits", json!(self.random_bits)),
            ("cache_rows", json!(sets)),
            ("policy", json!(self.policy)),
            ("counter_bits", json!(self.counter_bits)),
            ("window_ways", json!(window_ways)),
            ("cache_shares", json!(self.cache_shares)),
            ("optimizer", json!(self.optimizer.kind)),
            ("rule", json!(self.own())),
            ("own_count", json!(self.optimizer.counts_rows())),
            ("state", state(&self.facts(), self.optimizer.kind, self.precision, self.state)),
            ("seed", json!(self.seed)),
            ("stripe", json!(self.stripe)),
        ]
    }
}

impl Kind for Config {
    const FORMAT: &'static str = "hotrow robe checkpoint";
    const FOREIGN: &'static str =
        "give the path of a file that checkpoint::save_lookup wrote of a shared array, unchanged";

    fn kept(&self) -> Self {
        let Self { backward, window_bytes, .. } = Self::new(&[], 0, 0, 0);
        Self { init: Default::default(), backward, window_bytes, ..self.clone() }
    }

    /// FP32 weights are floats, those of other precisions the words that hold them.
    fn tensors(&self) -> Result<Vec<Tensor>, Error> {
        self.check()?;
        let dtype = if self.precision == Precision::Fp32 { Dtype::F32 } else { Dtype::U32 };
        let [weights, states] = self.array_bytes().map(|bytes| bytes / 4);
        let tensor = |name, dtype, shape: &[u64]| Tensor::new(name, dtype, shape, 1);
        let mut tensors = vec![
            tensor("counters", Dtype::U64, &[self.tables.len() as u64, 3]),
            tensor("weights", dtype, &[weights]),
            tensor("states", dtype, &[states]),
        ];
        tensors.truncate(if self.states() > 0 { 3 } else { 2 });
        Ok(tensors)
    }

    fn same(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("tables", json!(self.tables)),
            ("dim", json!(self.dim)),
            ("weights", json!(self.weights)),
            ("chunk", json!(self.chunk)),
            ("addressing", json!(self.addressing)),
            ("precision", json!(self.precision)),
            ("rounding", json!(self.rounding)),
            ("block", json!(self.block)),
            ("optimizer", json!(self.optimizer.kind)),
            ("seed", json!(self.seed)),
            ("state", state(self.optimizer.kind.facts(), self.optimizer.kind, self.precision, self.state)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stripe::Stripe;

    #[test]
    fn another_stripe_and_other_tables_are_named() {
        let ours = GroupConfig::new(&[100, 300], 12);
        let file = Path::new("file");
        let with = |stripe, tables: &[u32]| {
            let theirs = GroupConfig { stripe, ..ours.clone().with_tables(tables.to_vec()) };
            let text = serde_json::to_string(&theirs).unwrap();
            assert_eq!(serde_json::from_str::<GroupConfig>(&text).unwrap(), theirs);
            check_same(file, &ours, &theirs).map_err(|error| error.to_string())
        };
        let refused = |found| {
            Err(format!(
                "checkpoint file, {found}; {}",
                "load it into a group of the configuration that checkpoint::contents gives, or take another file"
            ))
        };
        assert_eq!(with(Stripe::ALL, &[100, 300]), Ok(()));
        assert_eq!(
            with(Stripe { shift: 4, first: 15 }, &[100, 300]),
            refused("stripe: wanted 0 at entry 0, found 4 at entry 0")
        );
        assert_eq!(with(Stripe::ALL, &[100, 301]), refused("tables: wanted 300 at entry 1, found 301 at entry 1"));
        assert_eq!(with(Stripe::ALL, &[100]), refused("tables: wanted 2 entries, found 1 entries"));
        for text in ["[0,1]", "[4,16]", "[32,0]", "[4]", "[4,1,1]"] {
            assert!(serde_json::from_str::<Stripe>(text).is_err(), "{text}");
        }
    }
}
