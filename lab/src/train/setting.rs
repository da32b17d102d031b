//! The settings that differ between the runs of a comparison or grid.

use super::task::TableSpec;
use hotrow_cli::names;
use hotrow::simulate::Geometry;
use hotrow::{Error, GroupConfig, Policy, Precision, Rounding, robe};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Tables of at most this many rows stay in FP32 (Yang 2020, 4.3), since there is little to save.
pub(crate) const SMALL_TABLE: u32 = 1000;

/// The default number of ways of a set.
pub(crate) const WAYS: u32 = 32;

/// The default number of values that lie together in a shared array.
pub(crate) const CHUNK: u32 = 32;

/// The setting of a table: a cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    #[serde(with = "names")]
    pub(crate) precision: Precision,
    /// No effect in FP32.
    #[serde(with = "names")]
    pub(crate) rounding: Rounding,
    /// No effect without a cache.
    #[serde(with = "names")]
    pub(crate) policy: Policy,
    /// Rows of the cache in percent of the table's; 0 for no cache.
    pub(crate) cache_percent: f64,
    /// Ways of a set of the cache.
    pub(crate) ways: u32,
}

impl Setting {
    /// The baseline of every comparison.
    pub(crate) const FP32: Self = Self::uncached(Precision::Fp32, Rounding::Nearest);

    /// A setting without a cache.
    pub(crate) const fn uncached(precision: Precision, rounding: Rounding) -> Self {
        Self { precision, rounding, policy: Policy::Lru, cache_percent: 0.0, ways: WAYS }
    }

    /// A setting with LFU and stochastic rounding.
    pub(crate) const fn lfu(precision: Precision, cache_percent: f64, ways: u32) -> Self {
        Self { precision, rounding: Rounding::Stochastic, policy: Policy::Lfu, cache_percent, ways }
    }

    /// The setting with fixed values in fields that have no effect, so that settings with equal effects are equal.
    pub(crate) fn plain(self) -> Self {
        let rounding = if self.precision == Precision::Fp32 { Rounding::Nearest } else { self.rounding };
        if self.has_cache() { Self { rounding, ..self } } else { Self::uncached(self.precision, rounding) }
    }

    pub(crate) fn has_cache(&self) -> bool {
        self.cache_percent > 0.0
    }

    /// The order of settings in lists: FP32 and settings without a cache first, then by cache, then by size.
    pub(crate) fn cmp_place(&self, other: &Self) -> Ordering {
        let place = |of: &Self| (of.precision as u8, of.has_cache(), of.rounding as u8, of.policy as u8, of.ways);
        place(self).cmp(&place(other)).then(self.cache_percent.total_cmp(&other.cache_percent))
    }

    /// "int4 stochastic, 10 % lfu".
    pub(crate) fn label(&self) -> String {
        let mut label = self.precision.to_string();
        if self.precision != Precision::Fp32 {
            label = format!("{label} {}", self.rounding);
        }
        if self.has_cache() {
            label = format!("{label}, {} % {}", self.cache_percent, self.policy);
            match self.ways {
                WAYS => {}
                1 => label.push_str(", 1 way"),
                ways => label = format!("{label}, {ways} ways"),
            }
        }
        label
    }

    /// "32-way LFU", or "none".
    pub(crate) fn cache_name(&self) -> String {
        if self.has_cache() { format!("{}-way {}", self.ways, names::title(self.policy)) } else { "none".to_owned() }
    }

    /// Applies the setting to a group's configuration. The number of slots does not depend on the number of ways, as in `hotrow simulate`.
    pub(crate) fn apply(&self, config: &mut GroupConfig) {
        config.precision = self.precision;
        config.rounding = self.rounding;
        config.policy = self.policy;
        config.ways = self.ways;
        let rows = config.total_rows();
        // An error means that there is no cache, or that there are no rows, which `GroupConfig::check` refuses by name.
        let slots = Geometry::of_percent(rows, self.cache_percent, self.ways).map_or(0, |shape| shape.slots);
        config.cache_rows = u64::from(slots).min(rows) as u32;
    }
}

/// The size of a shared array.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Size {
    /// The quotient of the number of values of all rows and the number of weights, whatever the precision.
    Compression(f64),
    Weights(u32),
}

/// A shared array for all tables with this setting that may share a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename = "robe")]
pub(crate) struct Robe {
    #[serde(flatten)]
    pub(crate) size: Size,
    pub(crate) chunk: u32,
    #[serde(with = "names")]
    pub(crate) precision: Precision,
    /// No effect in FP32.
    #[serde(with = "names")]
    pub(crate) rounding: Rounding,
}

impl Robe {
    /// An array of FP32 weights.
    pub(crate) const fn fp32(size: Size, chunk: u32) -> Self {
        Self { size, chunk, precision: Precision::Fp32, rounding: Rounding::Stochastic }
    }

    /// "robe 1000x, chunks of 8, int8 stochastic".
    pub(crate) fn label(&self) -> String {
        let size = match self.size {
            Size::Compression(times) => format!("robe {times}x"),
            Size::Weights(weights) => format!("robe of {weights} weights"),
        };
        let chunk = if self.chunk == CHUNK { String::new() } else { format!(", chunks of {}", self.chunk) };
        let precision = match self.precision {
            Precision::Fp32 => String::new(),
            precision => format!(", {precision} {}", self.rounding),
        };
        size + &chunk + &precision
    }

    /// The configuration of a group of tables.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal array.
    pub(crate) fn config(&self, rows: &[u32], dim: u32) -> Result<robe::Config, Error> {
        let config = match self.size {
            Size::Compression(times) => robe::Config::compressed(rows, dim, times, self.chunk)?,
            Size::Weights(weights) => robe::Config::new(rows, dim, weights, self.chunk),
        };
        let (precision, rounding) = (self.precision, self.rounding);
        let config = config.with_precision(precision).with_rounding(rounding);
        config.check().map(|()| config)
    }
}

/// The kind of a table with its setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Kind {
    /// A table whose rows have their own memory, with a cache or without.
    Rows(Setting),
    /// A table whose rows share an array.
    Robe(Robe),
}

impl Kind {
    /// The baseline of every comparison.
    pub(crate) const FP32: Self = Self::Rows(Setting::FP32);

    pub(crate) fn label(&self) -> String {
        match self {
            Self::Rows(setting) => setting.label(),
            Self::Robe(robe) => robe.label(),
        }
    }

    /// Whether it takes less memory than FP32 rows. Small tables never do.
    pub(crate) fn is_smaller(&self) -> bool {
        match self {
            Self::Rows(setting) => setting.precision != Precision::Fp32,
            Self::Robe(_) => true,
        }
    }
}

impl From<Setting> for Kind {
    fn from(setting: Setting) -> Self {
        Self::Rows(setting)
    }
}

/// The setting of each table of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub(crate) settings: Vec<Kind>,
}

/// The differences between runs of a comparison, apart from the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The setting of every table without a setting of its own; small tables stay FP32.
    pub(crate) setting: Kind,
    /// Settings of single tables; a later entry for the same table wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) named: Vec<(String, Kind)>,
    /// The samples in a batch, if several sizes are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) batch: Option<usize>,
    /// The learning rate of the tables, if several are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f32>,
}

impl Setup {
    /// FP32 for all tables, which the others are compared with.
    pub(crate) const FP32: Self = Self { setting: Kind::FP32, named: Vec::new(), batch: None, rate: None };

    /// "int4 stochastic, 10 % lfu; C3 robe 10x".
    pub(crate) fn label(&self) -> String {
        let named = self.named.iter().map(|(table, kind)| format!("{table} {}", kind.label()));
        [self.setting.label()].into_iter().chain(named).collect::<Vec<_>>().join("; ")
    }

    /// The setting of all tables, if they have their own memory and none has a setting of its own.
    pub(crate) fn rows(&self) -> Option<Setting> {
        match self.setting {
            Kind::Rows(setting) if self.named.is_empty() => Some(setting),
            _ => None,
        }
    }

    /// The setting of each of `tables`.
    ///
    /// # Errors
    /// A sentence with all table names, if a named table is not among them.
    pub(crate) fn choice(&self, tables: &[TableSpec]) -> Result<Choice, String> {
        let of = |table: &TableSpec| if table.rows <= SMALL_TABLE { Kind::FP32 } else { self.setting };
        let mut settings: Vec<Kind> = tables.iter().map(of).collect();
        for (name, kind) in &self.named {
            let Some(at) = tables.iter().position(|table| table.name == *name) else {
                let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
                return Err(format!(
                    "--table {name}: wanted a table of the task, found none of that name; it has {}",
                    names.join(", ")
                ));
            };
            settings[at] = *kind;
        }
        Ok(Choice { settings })
    }
}

impl From<Setting> for Setup {
    fn from(setting: Setting) -> Self {
        Self { setting: setting.into(), ..Self::FP32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotrow::{Init, Policy, Pooling, Precision, Rounding};

    const CACHED: Setting = Setting {
        precision: Precision::Int4,
        rounding: Rounding::Stochastic,
        policy: Policy::Lfu,
        cache_percent: 10.0,
        ways: WAYS,
    };

    fn table(rows: u32) -> TableSpec {
        let (pooling, init) = (Pooling::Sum, Init::Constant(0.0));
        TableSpec { name: rows.to_string(), rows, dim: 4, pooling, init, stream: 0 }
    }

    #[test]
    fn labels_say_what_counts() {
        assert_eq!(Setting::FP32.label(), "fp32");
        assert_eq!(CACHED.label(), "int4 stochastic, 10 % lfu");
        assert_eq!(Setting { ways: 1, cache_percent: 0.1, ..CACHED }.label(), "int4 stochastic, 0.1 % lfu, 1 way");
        assert_eq!(Setting { ways: 2, ..CACHED }.label(), "int4 stochastic, 10 % lfu, 2 ways");
        assert_eq!(Setting { cache_percent: 0.0, ways: 2, ..CACHED }.label(), "int4 stochastic");
    }

    #[test]
    fn what_means_nothing_makes_no_difference() {
        let [one, other] = [1, 8].map(|ways| Setting { ways, cache_percent: 0.0, ..CACHED });
        assert_ne!(one, other);
        assert_eq!(one.plain(), other.plain());
        assert_eq!(Setting { precision: Precision::Fp32, cache_percent: 0.0, ..CACHED }.plain(), Setting::FP32);
        assert_eq!(CACHED.plain(), CACHED);
    }

    #[test]
    fn a_group_is_configured() {
        let mut config = GroupConfig::new(&[2000, 3000], 4);
        CACHED.apply(&mut config);
        assert_eq!((config.precision, config.rounding), (Precision::Int4, Rounding::Stochastic));
        // 500 rows are rounded up to whole sets of 32.
        assert_eq!((config.policy, config.cache_rows), (Policy::Lfu, 512));
        Setting { ways: 1, ..CACHED }.apply(&mut config);
        assert_eq!((config.cache_rows, config.ways), (512, 1), "as many slots, whatever the ways");
        Setting::FP32.apply(&mut config);
        assert_eq!((config.precision, config.cache_rows, config.ways), (Precision::Fp32, 0, WAYS));
        let mut small = GroupConfig::new(&[10], 4);
        CACHED.apply(&mut small);
        assert_eq!((small.cache_rows, small.check()), (10, Ok(())), "never more than the rows");
    }

    #[test]
    fn small_tables_stay_in_fp32() {
        let tables = [table(1000), table(1001)];
        for kind in [Kind::Rows(CACHED), Kind::Robe(Robe::fp32(Size::Compression(10.0), 8))] {
            let setup = Setup { setting: kind, ..Setup::FP32 };
            assert_eq!(setup.choice(&tables).unwrap().settings, [Kind::FP32, kind]);
        }
    }

    #[test]
    fn settings_come_back_from_json() {
        let text = serde_json::to_string(&CACHED).unwrap();
        assert_eq!(
            text,
            r#"{"precision":"int4","rounding":"stochastic","policy":"lfu","cache_percent":10.0,"ways":32}"#
        );
        assert_eq!(serde_json::from_str::<Setting>(&text).unwrap(), CACHED);
        // Both kinds are read as themselves.
        assert_eq!(serde_json::from_str::<Kind>(&text).unwrap(), Kind::Rows(CACHED));
        let kinds = [Size::Compression(1000.0), Size::Weights(5000)].map(|size| Kind::Robe(Robe::fp32(size, 32)));
        let texts = kinds.map(|kind| serde_json::to_string(&kind).unwrap());
        assert_eq!(
            texts[0],
            r#"{"kind":"robe","compression":1000.0,"chunk":32,"precision":"fp32","rounding":"stochastic"}"#
        );
        assert_eq!(texts[1], r#"{"kind":"robe","weights":5000,"chunk":32,"precision":"fp32","rounding":"stochastic"}"#);
        assert_eq!(texts.map(|text| serde_json::from_str::<Kind>(&text).unwrap()), kinds);
    }

    #[test]
    fn an_array_for_all_its_tables() {
        let robe = Robe::fp32;
        let config = robe(Size::Compression(10.0), 8).config(&[1000, 250], 16).unwrap();
        assert_eq!((config.tables.len(), config.weights, config.chunk), (2, 2000, 8));
        assert_eq!(robe(Size::Weights(77), 8).config(&[1000, 250], 16).unwrap().weights, 77);
        for (size, chunk, wanted) in [
            (Size::Compression(10_000.0), 8, "compression"),
            (Size::Compression(0.5), 8, "compression"),
            (Size::Weights(77), 78, "weights"),
            (Size::Weights(77), 0, "chunk"),
        ] {
            let error = robe(size, chunk).config(&[1000, 250], 16).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn labels_of_arrays_say_what_counts() {
        assert_eq!(Robe::fp32(Size::Compression(1000.0), CHUNK).label(), "robe 1000x");
        assert_eq!(Robe::fp32(Size::Compression(2.5), 8).label(), "robe 2.5x, chunks of 8");
        let int8 = Robe { precision: Precision::Int8, ..Robe::fp32(Size::Weights(5000), 1) };
        assert_eq!(int8.label(), "robe of 5000 weights, chunks of 1, int8 stochastic");
        let config = int8.config(&[1000], 16).unwrap();
        assert_eq!((config.precision, config.rounding), (Precision::Int8, Rounding::Stochastic));
    }
}
