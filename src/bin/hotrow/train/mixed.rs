//! A setting of its own for some tables: `--table C3=int4:stochastic:lfu:10`.

use super::setting::{Choice, Setting};
use super::task::TableSpec;
use crate::names::{PolicyName, RoundingName, option_name};
use clap::ValueEnum;
use std::str::FromStr;

/// What `--table` takes.
pub(crate) const FORM: &str = "NAME=PRECISION[:ROUNDING[:POLICY:PERCENT[:WAYS]]]";

/// A table by name, and its setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableSetting {
    table: String,
    setting: Setting,
}

impl FromStr for TableSetting {
    type Err = String;

    /// Rounding is stochastic where nothing else is said, and there is no cache.
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((table, parts)) = text.split_once('=').filter(|(table, _)| !table.is_empty()) else {
            return Err(format!("wanted {FORM}, found {text:?}; write it as C3=int4:stochastic:lfu:10"));
        };
        let mut parts = parts.split(':');
        let precision = named(parts.next().unwrap_or_default(), "a precision")?;
        let rounding = parts.next().map_or(Ok(RoundingName::Stochastic), |part| named(part, "a rounding"))?;
        let mut setting = Setting::uncached(precision, rounding);
        if let Some(policy) = parts.next() {
            setting.policy = named::<PolicyName>(policy, "a policy")?;
            let percent = parts.next().unwrap_or_default();
            let legal = percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
            setting.cache_percent = legal.ok_or_else(|| fail("a cache of 0 to 100 percent of the rows", percent))?;
        }
        if let Some(ways) = parts.next() {
            setting.ways = ways.parse().ok().filter(|&ways| ways > 0).ok_or_else(|| fail("ways, at least 1", ways))?;
        }
        match parts.next() {
            Some(more) => Err(fail(&format!("nothing after {FORM}"), more)),
            None => Ok(Self { table: table.to_owned(), setting: setting.plain() }),
        }
    }
}

fn named<T: ValueEnum>(text: &str, what: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let names: Vec<String> = T::value_variants().iter().map(option_name).collect();
        fail(&format!("{what} ({})", names.join(", ")), text)
    })
}

fn fail(wanted: &str, found: &str) -> String {
    format!("wanted {wanted}, found {found:?}; write it as C3=int4:stochastic:lfu:10")
}

impl TableSetting {
    /// "C3 int4 stochastic, 10 % lfu".
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.table, self.setting.label())
    }
}

/// Every table in `setting`, small ones in FP32, and those that are named in their own. Of two for one table the later counts.
///
/// # Errors
/// A sentence naming the tables there are, if one of `mixed` is not among them.
pub(crate) fn choice(setting: Setting, mixed: &[TableSetting], tables: &[TableSpec]) -> Result<Choice, String> {
    let mut choice = Choice::uniform(setting, tables);
    for TableSetting { table, setting } in mixed {
        let Some(at) = tables.iter().position(|spec| spec.name == *table) else {
            let names: Vec<&str> = tables.iter().map(|spec| spec.name.as_str()).collect();
            return Err(format!(
                "--table {table}: wanted a table of the task, found none of that name; it has {}",
                names.join(", ")
            ));
        };
        choice.settings[at] = *setting;
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PrecisionName;
    use crate::train::setting::{SMALL_TABLE, WAYS};
    use hotrow::{Init, Pooling};

    const CACHED: Setting = Setting {
        precision: PrecisionName::Int4,
        rounding: RoundingName::Stochastic,
        policy: PolicyName::Lfu,
        cache_percent: 10.0,
        ways: WAYS,
    };

    fn setting(text: &str) -> Setting {
        text.parse::<TableSetting>().unwrap().setting
    }

    #[test]
    fn every_form() {
        assert_eq!("C3=fp32".parse(), Ok(TableSetting { table: "C3".into(), setting: Setting::FP32 }));
        assert_eq!(setting("a=int4:stochastic:lfu:10"), CACHED);
        assert_eq!(setting("a=int4:stochastic:lfu:10:1"), Setting { ways: 1, ..CACHED });
        assert_eq!(setting("a=int8"), Setting::uncached(PrecisionName::Int8, RoundingName::Stochastic));
        assert_eq!(setting("a=fp16:nearest"), Setting::uncached(PrecisionName::Fp16, RoundingName::Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0"), Setting::uncached(PrecisionName::Int2, RoundingName::Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0.5").cache_percent, 0.5);
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
        let mixed = ["large=int2", "large=int4:stochastic:lfu:10", "small=fp16"].map(|text| text.parse().unwrap());
        let found = choice(setting("x=int8"), &mixed, &tables).unwrap();
        assert_eq!(found.settings, [setting("x=fp16"), CACHED, setting("x=int8")]);
        assert_eq!(mixed[1].label(), "large int4 stochastic, 10 % lfu");
        let error = choice(Setting::FP32, &["middle=int2".parse().unwrap()], &tables).unwrap_err();
        assert!(error.contains("middle") && error.contains("small, large, other"), "{error}");
    }
}
