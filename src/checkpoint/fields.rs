//! Writes a configuration as text, the metadata of a checkpoint, and reads it back.

use std::path::Path;

use crate::{
    checkpoint::fault,
    config::{GroupConfig, Optimizer, OptimizerKind, StatePrecision, Stripe},
    error::Error,
    robe,
};

/// The rule's name as checkpoints have it.
fn rule(kind: OptimizerKind) -> String {
    kind.name().replace('-', "_")
}

/// The settings of an optimiser that a file has only where they are not the usual ones, as texts.
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

/// Those of the [`settings`] that are not the usual ones.
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
            ways: self.parsed("ways")?,
            policy: self.parsed("policy")?,
            counter_bits: self.parsed("counter_bits")?,
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::{CounterBits, OutOfRange, Policy, Pooling, Precision, RandomBits, Rounding};

    type Texts = HashMap<&'static str, String>;

    fn read(texts: &Texts) -> Result<GroupConfig, Error> {
        Fields { path: Path::new("file"), text: &|field| texts.get(field).map(String::as_str) }.config()
    }

    /// The field that an error names.
    fn named<T>(result: Result<T, Error>) -> &'static str {
        match result {
            Err(Error::Checkpoint { what, .. }) => what,
            Err(error) => panic!("{error}"),
            Ok(_) => "",
        }
    }

    /// No field has the value of a new configuration.
    fn unlike() -> GroupConfig {
        let mut config = GroupConfig::new(&[100, 300], 12)
            .with_features(vec![1, 0, 1])
            .with_precision(Precision::Int4)
            .with_state(Some(StatePrecision::Int8))
            .with_rounding(Rounding::Nearest)
            .with_random_bits(RandomBits::Eight)
            .with_cache_rows(50)
            .with_ways(8)
            .with_policy(Policy::Lfu)
            .with_counter_bits(CounterBits::Sixteen)
            .with_pooling(Pooling::Mean)
            .with_optimizer(
                Optimizer::adam(0.25)
                    .with_eps(0.125)
                    .with_weight_decay(0.0625)
                    .with_decoupled(true)
                    .with_beta1(0.75)
                    .with_beta2(0.875)
                    .with_own_count(true)
                    .with_clip_value(Some(3.0))
                    .with_clip_norm(Some(5.0)),
            )
            .with_out_of_range(OutOfRange::Skip)
            .with_seed(12);
        config.stripe = Stripe { shift: 2, first: 3 };
        config
    }

    #[test]
    fn every_field_reads_back() {
        let texts: Texts = of(&unlike()).into_iter().collect();
        assert_eq!((texts.len(), read(&texts)), (25, Ok(unlike())));
        for field in texts.keys() {
            let usual = ["state", "stripe", "clip_value", "clip_norm"];
            let (mut without, mut bad) = (texts.clone(), texts.clone());
            without.remove(field);
            let settings = ["decoupled", "beta1", "beta2", "own_count"];
            let may_lack = usual.contains(field) || settings.contains(field);
            assert_eq!(named(read(&without)), if may_lack { "" } else { field });
            // Another configuration comes out, so the field does count.
            assert!(!may_lack || read(&without) != Ok(unlike()), "{field}");
            bad.insert(field, "?".into());
            assert_eq!(named(read(&bad)), *field);
        }
    }

    #[test]
    fn usual_fields_are_left_out() {
        let usual = GroupConfig::new(&[100, 300], 12);
        let texts: Texts = of(&usual).into_iter().collect();
        assert_eq!((texts.len(), read(&texts)), (17, Ok(usual.clone())));
        let adam: Texts =
            of(&usual.with_optimizer(Optimizer::adam(0.1).with_clip_norm(Some(2.0)))).into_iter().collect();
        assert_eq!((adam.len(), adam.get("clip_norm").map(String::as_str)), (18, Some("2.0")));
    }

    #[test]
    fn a_stripe_begins_below_its_step() {
        for (shift, first) in [(0, 0), (1, 1), (4, 15), (31, (1 << 31) - 1)] {
            assert_eq!(to_stripe(&stripe(Stripe { shift, first })), Some(Stripe { shift, first }));
        }
        for text in ["[0,1]", "[4,16]", "[32,0]", "[4]", "[4,1,1]", "", "4,1"] {
            assert_eq!(to_stripe(text), None, "{text}");
        }
    }

    #[test]
    fn what_would_change_the_bits_is_named() {
        type Change = fn(&mut GroupConfig);
        let check = |change: Change| {
            let mut theirs = unlike();
            change(&mut theirs);
            named(check_same(Path::new("file"), &unlike(), &theirs))
        };
        let wrong: [(&str, Change); 14] = [
            ("tables", |config| config.tables[1] = 301),
            ("tables", |config| config.tables = vec![400]),
            ("dim", |config| config.dim = 13),
            ("precision", |config| config.precision = Precision::Int2),
            ("rounding", |config| config.rounding = Rounding::Stochastic),
            ("random_bits", |config| config.random_bits = RandomBits::Sixteen),
            ("cache_rows", |config| config.cache_rows = 57),
            ("cache_rows", |config| config.cache_rows = 0),
            ("policy", |config| config.policy = Policy::Lru),
            ("counter_bits", |config| config.counter_bits = CounterBits::Eight),
            ("optimizer", |config| config.optimizer.kind = OptimizerKind::RowWiseAdam),
            ("own_count", |config| config.optimizer.own_count = false),
            ("seed", |config| config.seed = 13),
            ("stripe", |config| config.stripe.first = 2),
        ];
        for (field, change) in wrong {
            assert_eq!(check(change), field);
        }
        let free: [Change; 5] = [
            |_| (),
            |config| config.cache_rows = 56,
            |config| config.optimizer.lr = 1.0,
            |config| config.pooling = Pooling::Sum,
            |config| config.features.clear(),
        ];
        assert!(free.into_iter().all(|change| check(change).is_empty()));
        assert_eq!(differing_tables(&[1, 2, 3], &[1, 5, 4]), ["table 1 with 2 rows", "table 1 with 5 rows"]);
        assert_eq!(differing_tables(&[1], &[1, 5]), ["1 tables", "2 tables"]);
        assert_eq!(differing_tables(&[1], &[1]), ["", ""]);
    }

    #[test]
    fn a_shared_array_s_states_must_be_equal_only_if_there_are_any() {
        let config = robe::Config::new(&[100], 4, 64, 4);
        let state = |config: &robe::Config| of_robe(config).into_iter().find(|field| field.0 == "state").unwrap().2;
        assert!(!state(&config.clone().with_optimizer(Optimizer::sgd(0.1))));
        assert!(state(&config.with_optimizer(Optimizer::adagrad(0.1))));
    }
}
