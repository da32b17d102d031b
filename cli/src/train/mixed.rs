//! The values of `--table`: a setting to compare with the others (`robe:compression=1000,chunk=32`), or one of its own for a table
//! (`C3=robe:weights=5000`, `C3=int4:stochastic:lfu:10`).

use super::robe::{CHUNK, Robe, Size};
use super::setting::{Kind, Setting, WAYS};
use crate::names::{ADMITTING, PrecisionName, RoundingName, option_name};
use std::fmt::Display;
use std::str::FromStr;

/// The form of a value of `--table`.
pub(crate) const FORM: &str = "[NAME=]KIND[:KEY=VALUE,..]|NAME=PRECISION[:ROUNDING[:POLICY:PERCENT[:WAYS]]]";

/// A setting, and the table it is of: none, if it is one to compare with the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableSetting {
    pub(super) table: Option<String>,
    pub(super) kind: Kind,
}

impl FromStr for TableSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(kind) = kind(text) {
            return Ok(Self { table: None, kind: kind? });
        }
        let Some((table, parts)) = text.split_once('=').filter(|(table, _)| !table.is_empty()) else {
            return Err(format!(
                "wanted {FORM}, KIND being cached or robe, found {text:?}; write it as robe:compression=1000,chunk=32 or \
                 C3=int4:stochastic:lfu:10"
            ));
        };
        let kind = kind(parts).unwrap_or_else(|| short(parts).map(Kind::Rows))?;
        Ok(Self { table: Some(table.to_owned()), kind })
    }
}

/// A setting by its kind and the names of its options; none, if the text does not begin with a kind.
fn kind(text: &str) -> Option<Result<Kind, String>> {
    let (kind, options) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "cached" => Some(cached(options).map(Kind::Rows)),
        "robe" => Some(robe(options).map(Kind::Robe)),
        _ => None,
    }
}

/// Options by name. One that is not in `known`, or comes twice, is an error.
fn named_options<'t>(text: &'t str, kind: &str, known: &[&str]) -> Result<Vec<(&'t str, &'t str)>, String> {
    let mut options: Vec<(&str, &str)> = Vec::new();
    for option in text.split(',').filter(|_| !text.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if !known.contains(&key) {
            return Err(format!("{kind}: wanted {}, found {key:?}; write each as KEY=VALUE", known.join(", ")));
        }
        if options.iter().any(|&(other, _)| other == key) {
            return Err(format!("{kind}: wanted {key} once, found it twice; leave one out"));
        }
        options.push((key, value));
    }
    Ok(options)
}

fn cached(text: &str) -> Result<Setting, String> {
    let options = named_options(text, "cached", &CACHED)?;
    let setting = of_options(&options)?;
    for (key, means, wanted, found) in [
        ("rounding", setting.precision != PrecisionName::Fp32, "a precision that rounds", "fp32"),
        ("policy", setting.has_cache(), "a cache-percent above 0", "no cache"),
        ("ways", setting.has_cache(), "a cache-percent above 0", "no cache"),
    ] {
        if !means && options.iter().any(|&(given, _)| given == key) {
            return Err(format!("cached: wanted {wanted} beside {key}, found {found}; leave {key} out"));
        }
    }
    Ok(setting.plain())
}

/// `int4:stochastic:lfu:10`: the values of the options of `cached` in their order.
fn short(text: &str) -> Result<Setting, String> {
    let values: Vec<&str> = text.split(':').collect();
    if let Some(more) = values.get(CACHED.len()) {
        return Err(fail(&format!("nothing after {FORM}"), more));
    }
    let mut options: Vec<(&str, &str)> = CACHED.into_iter().zip(values).collect();
    if options.len() == 3 {
        // A policy says nothing without a size.
        options.push(("cache-percent", ""));
    }
    of_options(&options).map(Setting::plain)
}

/// The options of `cached`.
const CACHED: [&str; 5] = ["precision", "rounding", "policy", "cache-percent", "ways"];

/// FP32 without a cache, where nothing else is said; stochastic rounding and LFU.
fn of_options(options: &[(&str, &str)]) -> Result<Setting, String> {
    let mut setting = Setting::lfu(PrecisionName::Fp32, 0.0, WAYS);
    for &(key, value) in options {
        match key {
            "precision" => setting.precision = named(value, "a precision", &PrecisionName::ALL)?,
            "rounding" => setting.rounding = named(value, "a rounding", &RoundingName::ALL)?,
            "policy" => setting.policy = named(value, "a policy", &ADMITTING)?,
            "cache-percent" => {
                let percent = value.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
                setting.cache_percent =
                    percent.ok_or_else(|| fail("a cache of 0 to 100 percent of the rows", value))?;
            }
            _ => {
                let ways = value.parse().ok().filter(|&ways| ways > 0);
                setting.ways = ways.ok_or_else(|| fail("ways, at least 1", value))?;
            }
        }
    }
    Ok(setting)
}

fn robe(text: &str) -> Result<Robe, String> {
    let (mut compression, mut weights, mut chunk) = (None, None, CHUNK);
    let (mut precision, mut rounding) = (PrecisionName::Fp32, None);
    for (key, value) in named_options(text, "robe", &["compression", "weights", "chunk", "precision", "rounding"])? {
        let fail = |wanted: &str| format!("robe: wanted {wanted}, found {key}={value}; write it as robe:{EXAMPLE}");
        let whole = |wanted| value.parse().ok().filter(|&number: &u32| number > 0).ok_or_else(|| fail(wanted));
        match key {
            "compression" => {
                let times = value.parse().ok().filter(|times: &f64| times.is_finite() && *times >= 1.0);
                compression = Some(Size::Compression(times.ok_or_else(|| fail("a compression, a number from 1 on"))?));
            }
            "weights" => weights = Some(Size::Weights(whole("weights, a whole number from 1 on")?)),
            "precision" => precision = named(value, "a precision", &PrecisionName::ALL)?,
            "rounding" => rounding = Some(named(value, "a rounding", &RoundingName::ALL)?),
            _ => chunk = whole("values in a chunk, a whole number from 1 on")?,
        }
    }
    match (compression, weights) {
        (Some(size), None) | (None, Some(size)) => {
            if precision == PrecisionName::Fp32 && rounding.is_some() {
                return Err(
                    "robe: wanted a precision that rounds beside rounding, found fp32; leave rounding out".to_owned()
                );
            }
            let rounding = rounding.unwrap_or(RoundingName::Stochastic);
            Ok(Robe { precision, rounding, ..Robe::fp32(size, chunk) })
        }
        (found, _) => Err(format!(
            "robe: wanted compression or weights, found {}; write it as robe:{EXAMPLE}",
            if found.is_some() { "both" } else { "neither" }
        )),
    }
}

const EXAMPLE: &str = "compression=1000,chunk=32";

fn named<T: Copy + Display>(text: &str, what: &str, values: &[T]) -> Result<T, String> {
    let names: Vec<String> = values.iter().map(option_name).collect();
    let found = names.iter().position(|name| name == text);
    found.map(|at| values[at]).ok_or_else(|| fail(&format!("{what} ({})", names.join(", ")), text))
}

fn fail(wanted: &str, found: &str) -> String {
    format!(
        "wanted {wanted}, found {found:?}; write it as C3=int4:stochastic:lfu:10 or \
         cached:precision=int4,cache-percent=10,policy=lfu"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PolicyName;
    use crate::train::setting::{SMALL_TABLE, Setup};
    use crate::train::task::TableSpec;
    use hotrow::{Init, Pooling};

    const CACHED: Setting = Setting {
        precision: PrecisionName::Int4,
        rounding: RoundingName::Stochastic,
        policy: PolicyName::Lfu,
        cache_percent: 10.0,
        ways: WAYS,
    };

    fn parsed(text: &str) -> TableSetting {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn setting(text: &str) -> Setting {
        match parsed(text).kind {
            Kind::Rows(setting) => setting,
            Kind::Robe(robe) => panic!("{robe:?}"),
        }
    }

    #[test]
    fn every_form() {
        assert_eq!(parsed("C3=fp32"), TableSetting { table: Some("C3".into()), kind: Kind::FP32 });
        assert_eq!(setting("a=int4:stochastic:lfu:10"), CACHED);
        assert_eq!(setting("a=int4:stochastic:lfu:10:1"), Setting { ways: 1, ..CACHED });
        assert_eq!(setting("a=int8"), Setting::uncached(PrecisionName::Int8, RoundingName::Stochastic));
        assert_eq!(setting("a=fp16:nearest"), Setting::uncached(PrecisionName::Fp16, RoundingName::Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0"), Setting::uncached(PrecisionName::Int2, RoundingName::Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0.5").cache_percent, 0.5);
    }

    #[test]
    fn options_have_names() {
        assert_eq!(parsed("cached"), TableSetting { table: None, kind: Kind::FP32 });
        assert_eq!(setting("cached:precision=int4,cache-percent=10"), CACHED);
        assert_eq!(setting("cached:policy=lfu,cache-percent=10,rounding=stochastic,ways=32,precision=int4"), CACHED);
        let other = Setting {
            precision: PrecisionName::Fp16,
            rounding: RoundingName::Nearest,
            policy: PolicyName::Lru,
            cache_percent: 0.5,
            ways: 2,
        };
        let text = "C1=cached:precision=fp16,rounding=nearest,policy=lru,cache-percent=0.5,ways=2";
        assert_eq!(parsed(text), TableSetting { table: Some("C1".into()), kind: other.into() });
        let robe = |size, chunk| Kind::Robe(Robe::fp32(size, chunk));
        assert_eq!(parsed("robe:compression=1000").kind, robe(Size::Compression(1000.0), CHUNK));
        assert_eq!(parsed("robe:chunk=8,compression=2.5").kind, robe(Size::Compression(2.5), 8));
        let nearest =
            Robe { precision: PrecisionName::Int8, rounding: RoundingName::Nearest, ..Robe::fp32(Size::Weights(7), 2) };
        assert_eq!(parsed("robe:weights=7,chunk=2,precision=int8,rounding=nearest").kind, Kind::Robe(nearest));
        "robe:weights=7,rounding=nearest".parse::<TableSetting>().unwrap_err();
        let named = parsed("C3=robe:weights=5000,chunk=1");
        assert_eq!(named, TableSetting { table: Some("C3".into()), kind: robe(Size::Weights(5000), 1) });
    }

    #[test]
    fn refusals_name_what_was_found() {
        for (text, wanted, found) in [
            ("C3", "NAME=", "\"C3\""),
            ("=int4", "NAME=", "\"=int4\""),
            ("C3=", "fp32, fp16, int8, int4, int2", "\"\""),
            ("C3=int3", "fp32, fp16, int8, int4, int2", "\"int3\""),
            ("C3=int4:up", "nearest, stochastic", "\"up\""),
            ("C3=int4:nearest:fifo:10", "lru, lfu", "\"fifo\""),
            ("C3=int4:nearest:lfu", "percent", "\"\""),
            ("C3=int4:nearest:lfu:101", "0 to 100 percent", "\"101\""),
            ("C3=int4:nearest:lfu:NaN", "0 to 100 percent", "\"NaN\""),
            ("C3=int4:nearest:lfu:10:0", "at least 1", "\"0\""),
            ("C3=int4:nearest:lfu:10:32:7", "nothing after", "\"7\""),
            ("robes", "KIND being cached or robe", "\"robes\""),
            ("robe", "compression or weights", "neither"),
            ("robe:", "compression or weights", "neither"),
            ("robe:compression=10,weights=10", "compression or weights", "both"),
            ("robe:compression=0.5", "from 1 on", "compression=0.5"),
            ("robe:compression=inf", "from 1 on", "compression=inf"),
            ("robe:compression=ten", "from 1 on", "compression=ten"),
            ("robe:weights=0", "from 1 on", "weights=0"),
            ("robe:weights=5000000000", "from 1 on", "weights=5000000000"),
            ("robe:weights=10,chunk=0", "from 1 on", "chunk=0"),
            ("robe:compression=10,chunks=8", "compression, weights, chunk", "\"chunks\""),
            ("robe:compression=10,compression=20", "compression once", "twice"),
            ("robe:compression", "from 1 on", "compression="),
            ("C3=robe:policy=lfu", "compression, weights, chunk", "\"policy\""),
            ("cached:compression=10", "precision, rounding, policy", "\"compression\""),
            ("cached:precision=int3", "fp32, fp16, int8, int4, int2", "\"int3\""),
            ("cached:cache-percent=101", "0 to 100 percent", "\"101\""),
            ("cached:ways=0", "at least 1", "\"0\""),
            ("cached:rounding=nearest,cache-percent=5", "rounds beside rounding", "fp32"),
            ("cached:precision=int8,policy=lru", "above 0 beside policy", "no cache"),
            ("C3=cached:precision=int8,cache-percent=0,ways=4", "above 0 beside ways", "no cache"),
            ("cached:,", "precision, rounding", "\"\""),
        ] {
            let error = text.parse::<TableSetting>().unwrap_err();
            for part in ["wanted ", wanted, found, "; "] {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    #[test]
    fn tables_are_set_by_name() {
        let table = |name: &str, rows| TableSpec {
            name: name.into(),
            rows,
            dim: 4,
            pooling: Pooling::Sum,
            init: Init::Constant(0.0),
            stream: 0,
        };
        let tables = [table("small", SMALL_TABLE), table("large", 5000), table("other", 5000)];
        let mixed = ["large=int2", "large=int4:stochastic:lfu:10", "small=robe:weights=40", "cached"].map(parsed);
        let named = mixed.iter().filter_map(|setting| Some((setting.table.clone()?, setting.kind)));
        let setup = Setup { named: named.collect(), ..setting("x=int8").into() };
        let found = setup.choice(&tables).unwrap();
        assert_eq!(found.settings[1..], [CACHED, setting("x=int8")].map(Kind::from));
        assert_eq!(found.settings[0], mixed[2].kind, "small, and named");
        let label = "int8 stochastic; large int2 stochastic; large int4 stochastic, 10 % lfu; small robe of 40 weights";
        assert_eq!(setup.label(), label);
        let middle = Setup { named: vec![("middle".into(), CACHED.into())], ..Setup::FP32 };
        let error = middle.choice(&tables).unwrap_err();
        assert!(error.contains("middle") && error.contains("small, large, other"), "{error}");
    }
}
