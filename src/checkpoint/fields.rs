//! Writes a configuration as text, the metadata of a checkpoint, and reads it back.

use std::path::Path;

use crate::{
    checkpoint::fault,
    config::{CounterBits, GroupConfig, Optimizer, OptimizerKind, StatePrecision, Stripe, WAYS},
    error::Error,
    robe,
};

/// The rule's name as checkpoints have it.
fn rule(kind: OptimizerKind) -> String {
    kind.name().replace('-', "_")
}

/// The settings of an optimiser that files of older versions lack, as texts.
fn settings(optimizer: &Optimizer) -> [(&'static str, String); 6] {
    let Optimizer { decoupled, beta1, beta2, own_count, clip_value, clip_norm, .. } = optimizer;
    [
        ("decoupled", decoupled.to_string()),
        ("beta1", format!("{beta1:?}")),
        ("beta2", format!("{beta2:?}")),
        ("own_count", own_count.to_string()),
        ("clip_value", format!("{:?}", clip_value.unwrap_or_default())),
        ("clip_norm", format!("{:?}", clip_norm.unwrap_or_default())),
    ]
}

/// Those of the [`settings`] that are not the usual ones: a file has no others.
fn unusual(optimizer: &Optimizer) -> impl Iterator<Item = (&'static str, String)> {
    let usual = settings(&Optimizer::sgd(0.0));
    settings(optimizer).into_iter().zip(usual).filter(|(found, usual)| found != usual).map(|(found, _)| found)
}

fn list(numbers: &[u32]) -> String {
    serde_json::json!(numbers).to_string()
}

fn to_list(text: &str) -> Option<Vec<u32>> {
    serde_json::from_str(text).ok()
}

/// The fields of a configuration that a checkpoint keeps: all except the placement and the initial values.
pub(crate) fn of(config: &GroupConfig) -> Vec<(&'static str, String)> {
    let Optimizer { kind, lr, eps, weight_decay, .. } = config.optimizer;
    let mut fields = vec![
        ("tables", list(&config.tables)),
        ("features", list(&config.features)),
        ("dim", config.dim.to_string()),
        ("precision", config.precision.to_string()),
        ("rounding", config.rounding.to_string()),
        ("random_bits", config.random_bits.to_string()),
        ("cache_rows", config.cache_rows.to_string()),
        ("ways", config.ways.to_string()),
        ("policy", config.policy.to_string()),
        ("counter_bits", config.counter_bits.to_string()),
        ("pooling", config.pooling.to_string()),
        ("optimizer", rule(kind)),
        // `{:?}` of a float reads back as the same float.
        ("lr", format!("{lr:?}")),
        ("eps", format!("{eps:?}")),
        ("weight_decay", format!("{weight_decay:?}")),
        ("out_of_range", config.out_of_range.to_string()),
        ("seed", config.seed.to_string()),
    ];
    fields.extend(unusual(&config.optimizer));
    if config.state == Some(StatePrecision::Int8) {
        fields.push(("state", StatePrecision::Int8.to_string()));
    }
    if config.stripe != Stripe::ALL {
        fields.push(("stripe", stripe(config.stripe)));
    }
    fields
}

/// The rows that a shard has of a group over several ranks, as text.
fn stripe(Stripe { shift, first }: Stripe) -> String {
    list(&[shift, first])
}

/// Reads what [`stripe`] wrote.
fn to_stripe(text: &str) -> Option<Stripe> {
    let [shift, first] = to_list(text)?.try_into().ok()?;
    (shift < 32 && first < 1 << shift).then_some(Stripe { shift, first })
}

/// The fields of a parameter-shared group's configuration, each with whether it must be equal for training to continue
/// bit for bit.
pub(crate) fn of_robe(config: &robe::Config) -> Vec<(&'static str, String, bool)> {
    let Optimizer { kind, lr, eps, weight_decay, .. } = config.optimizer;
    vec![
        ("tables", list(&config.tables), true),
        ("features", list(&config.features), false),
        ("dim", config.dim.to_string(), true),
        ("weights", config.weights.to_string(), true),
        ("chunk", config.chunk.to_string(), true),
        ("addressing", config.addressing.to_string(), true),
        ("precision", config.precision.to_string(), true),
        ("rounding", config.rounding.to_string(), true),
        ("block", config.block.to_string(), true),
        ("state", config.state_precision().to_string(), config.states() > 0),
        ("pooling", config.pooling.to_string(), false),
        ("optimizer", rule(kind), true),
        ("lr", format!("{lr:?}"), false),
        ("eps", format!("{eps:?}"), false),
        ("weight_decay", format!("{weight_decay:?}"), false),
        ("out_of_range", config.out_of_range.to_string(), false),
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

    pub(crate) fn parsed<T: std::str::FromStr>(&self, field: &'static str) -> Result<T, Error> {
        self.get(field, |text| text.parse().ok())
    }

    fn optimizer(&self) -> Result<Optimizer, Error> {
        let mut optimizer = Optimizer::sgd(self.parsed("lr")?);
        optimizer.kind = self.parsed("optimizer")?;
        optimizer.eps = self.parsed("eps")?;
        optimizer.weight_decay = self.parsed("weight_decay")?;
        let has = |field: &str| (self.text)(field).is_some();
        let bound = |field| if has(field) { self.parsed(field).map(Some) } else { Ok(None) };
        optimizer.clip_value = bound("clip_value")?;
        optimizer.clip_norm = bound("clip_norm")?;
        if has("decoupled") {
            optimizer.decoupled = self.parsed("decoupled")?;
        }
        if has("own_count") {
            optimizer.own_count = self.parsed("own_count")?;
        }
        if has("beta1") {
            optimizer.beta1 = self.parsed("beta1")?;
        }
        if has("beta2") {
            optimizer.beta2 = self.parsed("beta2")?;
        }
        Ok(optimizer)
    }

    /// Reads the configuration that [`of`] wrote.
    pub(crate) fn config(&self) -> Result<GroupConfig, Error> {
        Ok(GroupConfig {
            features: self.get("features", to_list)?,
            precision: self.parsed("precision")?,
            // A file of the usual type lacks this field.
            state: if (self.text)("state").is_none() { None } else { self.parsed("state").map(Some)? },
            rounding: self.parsed("rounding")?,
            random_bits: self.parsed("random_bits")?,
            cache_rows: self.parsed("cache_rows")?,
            // Files of versions without a choice of ways lack this field.
            ways: if (self.text)("ways").is_none() { WAYS } else { self.parsed("ways")? },
            policy: self.parsed("policy")?,
            // Files of versions without a choice of counters lack this field.
            counter_bits: match (self.text)("counter_bits") {
                None => CounterBits::ThirtyTwo,
                Some(_) => self.parsed("counter_bits")?,
            },
            pooling: self.parsed("pooling")?,
            optimizer: self.optimizer()?,
            out_of_range: self.parsed("out_of_range")?,
            seed: self.parsed("seed")?,
            stripe: if (self.text)("stripe").is_none() { Stripe::ALL } else { self.get("stripe", to_stripe)? },
            ..GroupConfig::new(&self.get("tables", to_list)?, self.parsed("dim")?)
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
        ("precision", ours.precision.to_string(), theirs.precision.to_string()),
        ("rounding", ours.rounding.to_string(), theirs.rounding.to_string()),
        ("random_bits", ours.random_bits.to_string(), theirs.random_bits.to_string()),
        ("cache_rows", sets(ours), sets(theirs)),
        ("policy", ours.policy.to_string(), theirs.policy.to_string()),
        ("counter_bits", ours.counter_bits.to_string(), theirs.counter_bits.to_string()),
        ("optimizer", rule(ours.optimizer.kind), rule(theirs.optimizer.kind)),
        ("own_count", ours.optimizer.counts_rows().to_string(), theirs.optimizer.counts_rows().to_string()),
        ("seed", ours.seed.to_string(), theirs.seed.to_string()),
        ("stripe", stripe(ours.stripe), stripe(theirs.stripe)),
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
