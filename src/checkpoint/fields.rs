//! Writes a configuration as text, the metadata of a checkpoint, and reads it back.

use std::path::Path;

use crate::{
    checkpoint::fault,
    config::{
        GroupConfig, Optimizer, OptimizerKind, OutOfRange, Policy, Pooling, Precision, RandomBits, Rounding, WAYS,
    },
    error::Error,
    robe,
};

/// Maps each variant of an enum to a word, and back.
macro_rules! words {
    ($type:ident, $to:ident, $from:ident, $($variant:ident = $word:literal),+) => {
        fn $to(value: $type) -> &'static str {
            match value { $($type::$variant => $word),+ }
        }
        fn $from(word: &str) -> Option<$type> {
            match word { $($word => Some($type::$variant),)+ _ => None }
        }
    };
}

words!(Precision, precision, to_precision, Fp32 = "fp32", Fp16 = "fp16", Int8 = "int8", Int4 = "int4", Int2 = "int2");
words!(Rounding, rounding, to_rounding, Nearest = "nearest", Stochastic = "stochastic");
words!(RandomBits, random_bits, to_random_bits, Eight = "8", Sixteen = "16", TwentyFour = "24");
words!(Policy, policy, to_policy, Lru = "lru", Lfu = "lfu", Static = "static");
words!(Pooling, pooling, to_pooling, Sum = "sum", Mean = "mean", None = "none");
words!(OutOfRange, out_of_range, to_out_of_range, Error = "error", Clamp = "clamp", Skip = "skip");
words!(OptimizerKind, kind, to_kind, Sgd = "sgd", AdaGrad = "adagrad", RowWiseAdaGrad = "row_wise_adagrad");

fn list(numbers: &[u32]) -> String {
    serde_json::json!(numbers).to_string()
}

fn to_list(text: &str) -> Option<Vec<u32>> {
    serde_json::from_str(text).ok()
}

/// The fields of a configuration that a checkpoint keeps: all except the placement and the initial values.
pub(crate) fn of(config: &GroupConfig) -> Vec<(&'static str, String)> {
    let Optimizer { kind: rule, lr, eps, weight_decay } = config.optimizer;
    vec![
        ("tables", list(&config.tables)),
        ("features", list(&config.features)),
        ("dim", config.dim.to_string()),
        ("precision", precision(config.precision).into()),
        ("rounding", rounding(config.rounding).into()),
        ("random_bits", random_bits(config.random_bits).into()),
        ("cache_rows", config.cache_rows.to_string()),
        ("ways", config.ways.to_string()),
        ("policy", policy(config.policy).into()),
        ("pooling", pooling(config.pooling).into()),
        ("optimizer", kind(rule).into()),
        // `{:?}` of a float reads back as the same float.
        ("lr", format!("{lr:?}")),
        ("eps", format!("{eps:?}")),
        ("weight_decay", format!("{weight_decay:?}")),
        ("out_of_range", out_of_range(config.out_of_range).into()),
        ("seed", config.seed.to_string()),
    ]
}

/// The fields of a parameter-shared group's configuration, each with whether it must be equal for training to continue
/// bit for bit.
pub(crate) fn of_robe(config: &robe::Config) -> Vec<(&'static str, String, bool)> {
    let Optimizer { kind: rule, lr, eps, weight_decay } = config.optimizer;
    vec![
        ("tables", list(&config.tables), true),
        ("features", list(&config.features), false),
        ("dim", config.dim.to_string(), true),
        ("weights", config.weights.to_string(), true),
        ("chunk", config.chunk.to_string(), true),
        ("precision", precision(config.precision).into(), true),
        ("rounding", rounding(config.rounding).into(), true),
        ("block", config.block.to_string(), true),
        ("pooling", pooling(config.pooling).into(), false),
        ("optimizer", kind(rule).into(), true),
        ("lr", format!("{lr:?}"), false),
        ("eps", format!("{eps:?}"), false),
        ("weight_decay", format!("{weight_decay:?}"), false),
        ("out_of_range", out_of_range(config.out_of_range).into(), false),
        ("seed", config.seed.to_string(), true),
    ]
}

/// The metadata of a file.
pub(crate) struct Fields<'f> {
    pub(crate) path: &'f Path,
    /// Returns the text of a field.
    pub(crate) text: &'f dyn Fn(&str) -> Option<&'f str>,
}

impl Fields<'_> {
    pub(crate) fn get<T>(&self, field: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        let found = (self.text)(field);
        found.and_then(read).ok_or_else(|| {
            let remedy = "get a file written by hotrow, or a newer hotrow";
            fault(self.path, field, "a value that a configuration can have", found.unwrap_or("nothing"), remedy)
        })
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, field: &'static str) -> Result<T, Error> {
        self.get(field, |text| text.parse().ok())
    }

    /// Reads the configuration that [`of`] wrote.
    pub(crate) fn config(&self) -> Result<GroupConfig, Error> {
        Ok(GroupConfig {
            features: self.get("features", to_list)?,
            precision: self.get("precision", to_precision)?,
            rounding: self.get("rounding", to_rounding)?,
            random_bits: self.get("random_bits", to_random_bits)?,
            cache_rows: self.number("cache_rows")?,
            // Files of versions without a choice of ways lack this field.
            ways: if (self.text)("ways").is_none() { WAYS } else { self.number("ways")? },
            policy: self.get("policy", to_policy)?,
            pooling: self.get("pooling", to_pooling)?,
            optimizer: Optimizer {
                kind: self.get("optimizer", to_kind)?,
                lr: self.number("lr")?,
                eps: self.number("eps")?,
                weight_decay: self.number("weight_decay")?,
            },
            out_of_range: self.get("out_of_range", to_out_of_range)?,
            seed: self.number("seed")?,
            ..GroupConfig::new(&self.get("tables", to_list)?, self.number("dim")?)
        })
    }
}

/// Checks that a group configured as `ours` can continue a checkpoint of `theirs` bit for bit: shapes, packing and
/// random bits are the same. Optimiser settings, pooling and the handling of bad indices may differ.
pub(crate) fn check_same(path: &Path, ours: &GroupConfig, theirs: &GroupConfig) -> Result<(), Error> {
    let sets = |config: &GroupConfig| {
        let sets = config.cache_rows.div_ceil(config.ways);
        if sets == 0 { "no cache".into() } else { format!("{sets} sets of {}", config.ways) }
    };
    let [tables, their_tables] = differing_tables(&ours.tables, &theirs.tables);
    let fields = [
        ("tables", tables, their_tables),
        ("dim", ours.dim.to_string(), theirs.dim.to_string()),
        ("precision", precision(ours.precision).into(), precision(theirs.precision).into()),
        ("rounding", rounding(ours.rounding).into(), rounding(theirs.rounding).into()),
        ("random_bits", random_bits(ours.random_bits).into(), random_bits(theirs.random_bits).into()),
        ("cache_rows", sets(ours), sets(theirs)),
        ("policy", policy(ours.policy).into(), policy(theirs.policy).into()),
        ("optimizer", kind(ours.optimizer.kind).into(), kind(theirs.optimizer.kind).into()),
        ("seed", ours.seed.to_string(), theirs.seed.to_string()),
    ];
    match fields.into_iter().find(|(_, wanted, found)| wanted != found) {
        None => Ok(()),
        Some((field, wanted, found)) => {
            let remedy =
                "load it into a group of the configuration that checkpoint::contents gives, or take another file";
            Err(fault(path, field, wanted, &found, remedy))
        }
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
