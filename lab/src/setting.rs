//! What differs between the runs of an experiment: the setting of the tables' rows, and the training. An experiment's file, the command line, and
//! the files of runs and checkpoints spell both alike.

use crate::batch::TableSpec;
use crate::hyper::Hyper;
use anyhow::{Context as _, bail, ensure};
use hotrow::robe::{self, Addressing, Backward};
use hotrow::{Error, GroupConfig, Placement, Policy, Precision, RandomBits, Rounding};
use hotrow_plan::simulate::{Geometry, WINDOW_WAYS};
use hotrow_report::names;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The default number of ways of a set.
pub(crate) const WAYS: u32 = 32;

/// The default number of values that lie together in a shared array.
const CHUNK: u32 = 32;

/// A key of an experiment, which is an option of the command line, too: the part that has it, its name, a name for its value, and a help text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) part: &'static str,
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
}

impl Key {
    /// The key on the command line.
    pub(crate) fn word(&self) -> &'static str {
        if (self.part, self.name) == ("task", "name") { "task" } else { self.name }
    }
}

/// Every key. Settings and training take lists, whose product is taken; the first keys vary least.
pub(crate) fn keys() -> impl Iterator<Item = Key> {
    let lines = include_str!("../data/keys.csv").lines();
    lines.filter_map(|line| match line.splitn(4, ',').collect::<Vec<_>>()[..] {
        [part, name, value, help] => Some(Key { part, name, value, help }),
        _ => None,
    })
}

/// The part of a key that a setup may have.
fn part(name: &str) -> Option<&'static str> {
    of_setups().find(|key| key.name == name).map(|key| key.part)
}

/// The keys of setups.
fn of_setups() -> impl Iterator<Item = Key> {
    keys().filter(|key| matches!(key.part, "setting" | "train"))
}

/// How the rows of a table are kept: by themselves, with a cache or without, or in an array that they share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Setting {
    #[serde(with = "names")]
    pub(crate) precision: Precision,
    /// No effect in FP32.
    #[serde(with = "names")]
    pub(crate) rounding: Rounding,
    /// Of stochastic rounding. A shared array has always 24.
    #[serde(serialize_with = "bits", deserialize_with = "of_bits")]
    pub(crate) random_bits: RandomBits,
    /// No effect without a cache.
    #[serde(with = "names")]
    pub(crate) policy: Policy,
    /// Rows of the cache in percent of the table's; 0 for no cache.
    pub(crate) cache_percent: f64,
    /// Rows that are pinned in percent of the table's, in a cache of that size or beside the cache (SCARS): those that training looks up most.
    pub(crate) pinned_percent: f64,
    /// Whether each table has a cache of its own; else the tables of a group share one.
    pub(crate) cache_each: bool,
    /// Percent of all tables that have a cache, the largest first, and at least one (Yang 2020, Table 10).
    pub(crate) cached_tables: f64,
    /// Ways of a set of the cache.
    pub(crate) ways: u32,
    /// Of these the recent ones. No effect but under [`Policy::Window`].
    pub(crate) window_ways: u32,
    /// The size of a shared array: the quotient of all values and the weights, whatever the precision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compression: Option<f64>,
    /// The size of a shared array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weights: Option<u32>,
    /// Values that lie together in a shared array.
    pub(crate) chunk: u32,
    /// Where the rows of a shared array lie: chunks that overlap, or whole rows (the hashing trick).
    #[serde(with = "names")]
    pub(crate) addressing: Addressing,
    /// The weights of a shared array that a backward visits. No loss depends on it.
    #[serde(with = "names")]
    pub(crate) backward: Backward,
    /// Rows in FP16, INT8 and INT4, by their look-ups, with the bytes that all would have in this precision; FP32: all in `precision`.
    #[serde(with = "names")]
    pub(crate) by_use: Precision,
    /// Whether the rows lie in the host's memory, which the device reads over the bus.
    pub(crate) mapped: bool,
    /// FP32 rows in whole pages that move between the host and the device, which holds so many percent of them (SPEC 4); 0 for none.
    pub(crate) pages_percent: f64,
    /// Rows that one stands for: the vector of row i is the sum of quotient row i / q and remainder row i mod q (PSS, eq. 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quotient: Option<u32>,
}

impl Default for Setting {
    fn default() -> Self {
        Self { rounding: Rounding::Stochastic, policy: Policy::Lfu, ..Self::FP32 }
    }
}

impl Setting {
    /// The baseline of every comparison.
    pub(crate) const FP32: Self = Self {
        precision: Precision::Fp32,
        rounding: Rounding::Nearest,
        random_bits: RandomBits::TwentyFour,
        policy: Policy::Lru,
        cache_percent: 0.0,
        pinned_percent: 0.0,
        cache_each: false,
        cached_tables: 100.0,
        ways: WAYS,
        window_ways: WINDOW_WAYS,
        compression: None,
        weights: None,
        chunk: CHUNK,
        addressing: Addressing::Hashed,
        backward: Backward::Auto,
        by_use: Precision::Fp32,
        mapped: false,
        pages_percent: 0.0,
        quotient: None,
    };

    /// The setting with the baseline's values for keys that have no effect, so that settings with equal effects are equal.
    fn plain(mut self) -> anyhow::Result<Self> {
        // Twice, since what goes may be what another key needs.
        for _ in 0..2 {
            let (mut plain, mut own) = (Table::try_from(Self::FP32)?, Table::try_from(self)?);
            own.retain(|key, _| self.lacks(key).is_none());
            plain.extend(own);
            self = plain.try_into()?;
        }
        Ok(self)
    }

    pub(crate) const fn has_cache(&self) -> bool {
        self.cache_percent > 0.0
    }

    pub(crate) const fn has_pins(&self) -> bool {
        self.pinned_percent > 0.0
    }

    /// The ways of a set that pinned rows may have.
    pub(crate) fn pinned_ways(&self) -> u32 {
        let share = self.pinned_percent / (self.pinned_percent + self.cache_percent);
        ((f64::from(self.ways) * share).round() as u32).max(1)
    }

    pub(crate) const fn is_shared(&self) -> bool {
        self.compression.is_some() || self.weights.is_some()
    }

    /// Whether rows are in several precisions.
    pub(crate) fn is_mixed(&self) -> bool {
        self.by_use != Precision::Fp32
    }

    /// Whether no row is rounded.
    fn is_exact(&self) -> bool {
        self.precision == Precision::Fp32 && !self.is_mixed()
    }

    /// Whether it takes less memory than FP32 rows. Small tables never do.
    pub(crate) fn is_smaller(&self) -> bool {
        self.precision != Precision::Fp32 || self.is_shared() || self.quotient.is_some() || self.is_mixed()
    }

    /// The setting that a key needs to have an effect here, and the setting found in its place.
    fn lacks(&self, key: &str) -> Option<(&'static str, &'static str)> {
        match key {
            "precision" if self.is_mixed() => Some(("no by-use", "rows by their use")),
            "rounding" if self.is_exact() => Some(("a precision below fp32", "fp32")),
            "random-bits" if self.rounding == Rounding::Nearest => Some(("rounding stochastic", "nearest")),
            "random-bits" if self.is_exact() => Some(("a precision below fp32", "fp32")),
            "random-bits" if self.is_shared() => Some(("neither compression nor weights", "a shared array")),
            "ways" if !self.has_cache() && !self.has_pins() => {
                Some(("a cache-percent or pinned-percent above 0", "no cache and no pins"))
            }
            "policy" | "window-ways" | "cache-each" | "cached-tables" if !self.has_cache() => {
                Some(("a cache-percent above 0", "no cache"))
            }
            "window-ways" if !self.policy.facts().recent => Some(("policy window", "another policy")),
            "chunk" if self.addressing == Addressing::Rows => Some(("addressing hashed", "rows")),
            "chunk" | "addressing" | "backward" if !self.is_shared() => {
                Some(("compression or weights", "rows of their own"))
            }
            "hot-batches" if !self.has_pins() => Some(("a pinned-percent above 0", "no pins")),
            "cache-percent" | "pinned-percent" | "mapped" | "pages-percent" if self.is_shared() => {
                Some(("neither compression nor weights", "a shared array"))
            }
            "by-use" if self.is_shared() || self.quotient.is_some() || self.has_pins() || self.mapped => {
                Some(("no compression, weights, quotient, pinned-percent or mapped", "one of them"))
            }
            "pages-percent" if self.is_mixed() => Some(("no by-use", "rows by their use")),
            "pages-percent" if self.has_cache() || self.has_pins() || self.quotient.is_some() => {
                Some(("no cache-percent, pinned-percent or quotient", "one of them"))
            }
            "pages-percent" if self.precision != Precision::Fp32 => Some(("precision fp32", "another precision")),
            "pages-percent" if self.mapped => Some(("no mapped", "mapped rows")),
            "quotient" if self.is_shared() => Some(("neither compression nor weights", "a shared array")),
            "pinned-percent" if self.quotient.is_some() => Some(("no quotient", "a quotient")),
            _ => None,
        }
    }

    /// Behind the policy's name: " of 0" for a window of other than the default ways.
    pub(crate) fn of_window(&self) -> String {
        if self.window_ways == WINDOW_WAYS { String::new() } else { format!(" of {}", self.window_ways) }
    }

    /// The rounding's name: "stochastic", or "stochastic of 8 bits".
    pub(crate) fn rounding(&self) -> String {
        match self.random_bits {
            RandomBits::TwentyFour => self.rounding.to_string(),
            bits => format!("{} of {bits} bits", self.rounding),
        }
    }

    /// Behind the policy's name: whether each table has a cache, and how many have one.
    pub(crate) fn of_tables(&self) -> String {
        let each = if self.cache_each { " each" } else { "" };
        let some = (self.cached_tables < 100.0).then(|| format!(", for {} % of the tables", self.cached_tables));
        each.to_owned() + &some.unwrap_or_default()
    }

    /// "int4 stochastic, 10 % lfu", or "robe 1000x, chunks of 8, int8 stochastic".
    pub(crate) fn label(&self) -> String {
        let Self { precision, policy, chunk, backward, ways, .. } = self;
        let below = *precision != Precision::Fp32;
        let array = if self.addressing == Addressing::Rows { "hashed rows" } else { "robe" };
        let of_weights = |weights| format!("{array} of {weights} weights");
        let rows = match below {
            _ if self.is_mixed() => format!("by use, as {}, {}", self.by_use, self.rounding()),
            true => format!("{precision} {}", self.rounding()),
            false => precision.to_string(),
        };
        let ways = if *ways == 1 { "1 way".to_owned() } else { format!("{ways} ways") };
        let cache = || format!("{} % {policy}{}{}", self.cache_percent, self.of_window(), self.of_tables());
        let parts = [
            self.quotient.map(|times| format!("quotient-remainder {times}x")),
            self.weights.map(of_weights).or_else(|| Some(format!("{array} {}x", self.compression?))),
            (*chunk != CHUNK).then(|| format!("chunks of {chunk}")),
            (*backward != Backward::Auto).then(|| format!("{backward} backward")),
            (below || !self.is_shared()).then_some(rows),
            self.mapped.then(|| "mapped".to_owned()),
            (self.pages_percent > 0.0).then(|| format!("{} % in moved pages", self.pages_percent)),
            self.has_pins().then(|| format!("{} % pinned", self.pinned_percent)),
            self.has_cache().then(cache),
            (self.ways != WAYS).then_some(ways),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Applies the setting to a group's configuration. The number of slots does not depend on the number of ways, as in `hotrow simulate`.
    pub(crate) fn apply(&self, config: &mut GroupConfig) {
        config.precision = self.precision;
        // The first values are drawn here, and given as a source.
        (config.rounding, config.write_rounding) = (self.rounding, self.rounding);
        config.random_bits = self.random_bits;
        config.policy = if self.has_cache() || !self.has_pins() { self.policy } else { Policy::Static };
        config.ways = self.ways;
        config.window_ways = self.window_ways;
        if self.mapped {
            config.placement = Placement::Mapped;
        }
        let rows = config.total_rows();
        // An error means that there is no cache, or that there are no rows, which `GroupConfig::check` refuses by name.
        let shape = |rows| Geometry::of_percent(rows, self.cache_percent + self.pinned_percent, self.ways);
        let slots = shape(rows).map_or(0, |shape| shape.slots);
        config.cache_rows = u64::from(slots).min(rows) as u32;
        if self.cache_each && config.tables.len() > 1 {
            let sets: Vec<u32> =
                config.tables.iter().map(|&rows| shape(rows.into()).map_or(0, |shape| shape.sets)).collect();
            let all: u32 = sets.iter().sum();
            config.cache_rows = u64::from(all).saturating_mul(self.ways.into()).min(rows) as u32;
            // A cache that covers its group's rows has a slot for each without shares.
            if u64::from(config.cache_rows) < rows {
                config.cache_shares = sets.iter().map(|&sets| share(sets, all)).collect();
            }
        }
    }

    /// The array that tables share; `None` if their rows have their own memory.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal array.
    pub(crate) fn array(&self, rows: &[u32], dim: u32) -> Result<Option<robe::Config>, Error> {
        let whole = self.addressing == Addressing::Rows;
        let chunk = if whole { dim } else { self.chunk };
        let mut config = match (self.compression, self.weights) {
            (None, None) => return Ok(None),
            (_, Some(weights)) => robe::Config::new(rows, dim, weights, chunk),
            (Some(times), None) => robe::Config::compressed(rows, dim, times, chunk)?,
        };
        if whole && self.weights.is_none() {
            config.weights -= config.weights % dim;
        }
        let config =
            config.with_addressing(self.addressing).with_precision(self.precision).with_rounding(self.rounding);
        let config = config.with_backward(self.backward);
        config.check().map(|()| Some(config))
    }

    /// The setting of single values.
    fn of(table: &Table) -> anyhow::Result<Self> {
        let setting: Self = table.clone().try_into()?;
        let Self { cache_percent: percent, ways, window_ways, policy, compression, weights, .. } = setting;
        ensure!((0.0..=100.0).contains(&percent), "cache-percent: wanted a number from 0 to 100, found {percent}");
        let pages = setting.pages_percent;
        ensure!((0.0..=100.0).contains(&pages), "pages-percent: wanted a number from 0 to 100, found {pages}");
        let addressing = setting.addressing;
        ensure!(addressing != Addressing::Direct, "addressing: wanted hashed or rows, found direct");
        let backward = setting.backward;
        ensure!(backward != Backward::Atomic, "backward: wanted auto, dense or sparse, found atomic");
        let (of_tables, pinned) = (setting.cached_tables, setting.pinned_percent);
        ensure!(
            pinned >= 0.0 && pinned + percent <= 100.0,
            "pinned-percent: wanted a number from 0, with cache-percent at most 100, found {pinned} and {percent}"
        );
        ensure!(
            pinned == 0.0 || percent == 0.0 || setting.pinned_ways() < ways,
            "pinned-percent: wanted a way of the {ways} of a set beside the pinned ones, found none; ask for more ways or fewer pins"
        );
        ensure!(
            of_tables > 0.0 && of_tables <= 100.0,
            "cached-tables: wanted a number above 0, up to 100, found {of_tables}"
        );
        ensure!((1..=1024).contains(&ways), "ways: wanted a whole number from 1 to 1024, found {ways}");
        let names = names::list(names::admitting());
        ensure!(policy.facts().admits, "policy: wanted one of {names}, found {policy}");
        ensure!(
            !policy.facts().recent || window_ways < ways,
            "window-ways: wanted fewer than the {ways} ways of a set, found {window_ways}; ask for fewer, or for more ways"
        );
        let wanted = "quotient: wanted a whole number from 2 to 65536, found";
        ensure!(
            setting.quotient.is_none_or(|q| (2..=1 << 16).contains(&q)),
            "{wanted} {}",
            setting.quotient.unwrap_or(0)
        );
        let both = compression.is_some() && weights.is_some();
        ensure!(!both, "weights: wanted it or compression, found both; leave one out");
        let times = compression.unwrap_or(1.0);
        ensure!(times >= 1.0 && times.is_finite(), "compression: wanted a finite number from 1 on, found {times}");
        Ok(setting)
    }
}

/// The least share of `all` sets that is `sets` whole ones (SPEC 3, "Shares").
fn share(sets: u32, all: u32) -> f32 {
    let mut share = sets as f32 / all as f32;
    while ((share * all as f32) as u32) < sets {
        share = share.next_up();
    }
    share
}

fn bits<S: Serializer>(bits: &RandomBits, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(bits.bits())
}

fn of_bits<'de, D: Deserializer<'de>>(from: D) -> Result<RandomBits, D::Error> {
    i64::deserialize(from)?.to_string().parse().map_err(D::Error::custom)
}

/// The setting of all tables and of single ones, and the training: a run is a setup with a seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setup {
    /// The setting of every table without a setting of its own; small tables stay FP32.
    pub(crate) setting: Setting,
    /// The settings of single tables.
    pub(crate) tables: BTreeMap<String, Setting>,
    pub(crate) hyper: Hyper,
    /// The values of the training's lists: "batch 64, lr 0.1".
    #[serde(skip)]
    pub(crate) varied: String,
}

impl Setup {
    /// Every combination of the lists of an entry; `training` has every key of the training, and perhaps lists.
    pub(crate) fn product(entry: &Table, training: &Table) -> anyhow::Result<Vec<Self>> {
        let mut all = training.clone();
        all.extend(entry.iter().map(|(name, value)| (name.clone(), value.clone())));
        let named = named(all.remove("tables"))?;
        if let Some(name) = all.keys().find(|name| part(name).is_none()) {
            bail!("{name}: wanted tables or one of {}, found {name}", names::list(of_setups().map(|key| key.name)));
        }
        let mut tables = vec![(Table::new(), Vec::new())];
        for Key { name, part, .. } in of_setups() {
            let values = match all.get(name) {
                None => continue,
                Some(Value::Array(values)) => values.as_slice(),
                Some(value) => std::slice::from_ref(value),
            };
            ensure!(!values.is_empty(), "{name}: wanted at least one value, found none");
            let with = |(table, varied): &(Table, Vec<String>), value: &Value| {
                let (mut table, mut varied) = (table.clone(), varied.clone());
                table.insert(name.to_owned(), value.clone());
                if part == "train" && values.len() > 1 {
                    varied.push(format!("{name} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
                }
                (table, varied)
            };
            tables = tables.iter().flat_map(|table| values.iter().map(|value| with(table, value))).collect();
        }
        let mut setups = Vec::new();
        for (table, varied) in tables {
            let (hyper, setting) = table.into_iter().partition::<Table, _>(|(name, _)| part(name) == Some("train"));
            let (mut hyper, setting): (Hyper, Setting) = (hyper.try_into()?, Setting::of(&setting)?);
            hyper.check()?;
            hyper.hot_batches &= setting.has_pins() || named.values().any(Setting::has_pins);
            setups.push(Self { setting, tables: named.clone(), hyper, varied: varied.join(", ") });
        }
        for name in entry.keys() {
            let lacks: Option<Vec<_>> = setups.iter().map(|setup| setup.setting.lacks(name)).collect();
            if let Some((wanted, found)) = lacks.and_then(|lacks| lacks.into_iter().next()) {
                bail!("{name}: wanted {wanted} beside it, found {found}; give that, or leave {name} out");
            }
        }
        for setup in &mut setups {
            setup.setting = setup.setting.plain()?;
        }
        Ok(setups)
    }

    /// The settings and what was varied: "int8 stochastic, 5 % lfu; C3 int2 stochastic; batch 64".
    pub(crate) fn label(&self) -> String {
        if self.varied.is_empty() { self.settings() } else { format!("{}; {}", self.settings(), self.varied) }
    }

    /// The settings: "int8 stochastic, 5 % lfu; C3 int2 stochastic".
    pub(crate) fn settings(&self) -> String {
        let named = self.tables.iter().map(|(name, setting)| format!("; {name} {}", setting.label()));
        named.fold(self.setting.label(), |label, named| label + &named)
    }

    /// Whether a run of it is a run of the other.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        (self.setting, &self.tables, self.hyper) == (other.setting, &other.tables, other.hyper)
    }

    /// The setting of each of the task's tables; those of at most `small` rows stay FP32.
    ///
    /// # Errors
    /// A named table is not among them, or no table is large enough for a setting below FP32.
    pub(crate) fn choice(&self, tables: &[TableSpec], small: u32) -> anyhow::Result<Vec<Setting>> {
        let of = |table: &TableSpec| if table.rows <= small { Setting::FP32 } else { self.setting };
        let mut settings: Vec<Setting> = tables.iter().map(of).collect();
        let mut largest: Vec<usize> = (0..tables.len()).collect();
        largest.sort_by_key(|&at| std::cmp::Reverse(tables[at].rows));
        let cached = (tables.len() as f64 * self.setting.cached_tables / 100.0).round().max(1.0) as usize;
        largest.iter().skip(cached).for_each(|&at| settings[at].cache_percent = 0.0);
        for setting in &mut settings {
            *setting = Setting { cached_tables: 100.0, ..*setting }.plain()?;
        }
        for (name, setting) in &self.tables {
            let at = tables.iter().position(|table| table.name == *name).with_context(|| {
                let names = names::list(tables.iter().map(|table| table.name.as_str()));
                format!("table {name}: wanted a table of the task, found none of that name; it has {names}")
            })?;
            settings[at] = *setting;
        }
        ensure!(
            !self.setting.is_smaller() || settings.iter().any(Setting::is_smaller),
            "{}: wanted a table of more than {small} rows to keep so, found none (smaller ones stay FP32); take larger \
             tables, name one, or lower small-table",
            self.label()
        );
        Ok(settings)
    }
}

/// The settings of single tables, which have no lists.
fn named(tables: Option<Value>) -> anyhow::Result<BTreeMap<String, Setting>> {
    let Some(tables) = tables else { return Ok(BTreeMap::new()) };
    let tables: BTreeMap<String, Table> = tables.try_into().context("tables")?;
    let of = |(name, table): (String, Table)| {
        let setting = Setting::of(&table).and_then(Setting::plain).with_context(|| format!("table {name}"))?;
        Ok((name, setting))
    };
    tables.into_iter().map(of).collect()
}
