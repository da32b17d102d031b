//! The settings that options ask for: lists such as `--precision int8,int4`, the cells of a grid, and values of `--table`. Such a value is
//! a setting to compare with the others (`robe:compression=1000,chunk=32`), or a setting of one table (`C3=robe:weights=5000`,
//! `C3=int4:stochastic:lfu:10`).

use super::setting::{CHUNK, Kind, Robe, Setting, Size};
use hotrow_cli::names::{ADMITTING, one_of};
use hotrow_cli::options::{compression, percent, whole};
use Precision::{Fp16, Fp32, Int2, Int4, Int8};
use clap::ValueEnum;
use hotrow::{Policy, Precision, Rounding};
use std::str::FromStr;

/// Lists of values of settings. An empty list means that the option was not given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Lists {
    /// Precisions of the tables
    #[arg(long, value_delimiter = ',', value_parser = one_of(Precision::ALL))]
    pub(crate) precision: Vec<Precision>,
    /// Rounding of the tables [default: stochastic; in a grid both]
    #[arg(long, value_delimiter = ',', value_parser = one_of(Rounding::ALL))]
    pub(crate) rounding: Vec<Rounding>,
    /// Replacement policies of the caches [default: lfu; in a grid both]
    #[arg(long, value_delimiter = ',', value_parser = one_of(ADMITTING))]
    pub(crate) policy: Vec<Policy>,
    /// Rows of the caches in percent of the tables' [default: 0; in a grid seven sizes]
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', allow_negative_numbers = true, value_parser = percent)]
    pub(crate) cache_percent: Vec<f64>,
    /// Ways of a set of the caches [default: 32; in a grid 1 and 32, and others for some cells]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = whole(1u32..=1024))]
    pub(crate) ways: Vec<u32>,
}

/// The cells of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cells {
    /// The cells that the goals need: no cache, INT8 with 1 and 5 %, INT4 with 5, 10 and 30 %
    Claims,
    /// Every precision, rounding, policy and cache size
    Full,
}

/// Precisions below FP32.
pub(crate) const LOW: [Precision; 4] = [Fp16, Int8, Int4, Int2];

/// The defaults of options that are not given.
const DEFAULT: &str = "--precision int8 --rounding stochastic --policy lfu --cache-percent 0 --ways 32";

/// The settings that are trained by default. Nearest rounding loses most, stochastic rounding less, and a small cache of hot rows gives
/// back the rest, in a fraction of the memory.
const TELLING: [&str; 5] = [
    "--precision fp16,int8 --rounding nearest,stochastic",
    "--precision int8 --cache-percent 5",
    "--precision int4 --rounding nearest,stochastic",
    "--precision int4 --cache-percent 10",
    "--precision int2 --cache-percent 0,10,30",
];

/// The lines of [`Cells::Claims`].
const CLAIMS: [&str; 3] = [
    "--precision fp16,int8,int4,int2 --rounding nearest,stochastic",
    "--precision int8 --cache-percent 1,5",
    "--precision int4 --cache-percent 5,10,30",
];

/// The line of [`Cells::Full`], with the cache sizes of Yang 2020's tables, and a line for its Figure 6.
const FULL: &str = "--precision fp16,int8,int4,int2 --rounding nearest,stochastic --policy lru,lfu \
                    --cache-percent 0,0.1,1,5,10,30,50 --ways 32,1";
const MORE_WAYS: &str = "--precision int4,int2 --cache-percent 5,10,30,50 --ways 2,4,8,16";

/// Parses a line of options.
fn lists(line: &str) -> Lists {
    parsed(line.split_whitespace().map(str::to_owned)).unwrap_or_default()
}

/// FP32, and the settings of these lines of options.
fn settings_of(lines: &[&str]) -> Vec<Setting> {
    distinct(lines.iter().flat_map(|line| lists(line).product(&lists(DEFAULT))).collect())
}

/// The settings that are compared by default.
pub(super) fn telling() -> Vec<Setting> {
    settings_of(&TELLING)
}

impl Lists {
    /// Whether any list was given.
    pub(crate) fn any(&self) -> bool {
        let Self { precision, rounding, policy, cache_percent, ways } = self;
        [precision.len(), rounding.len(), policy.len(), cache_percent.len(), ways.len()] != [0; 5]
    }

    /// Requirements of lists that have no effect alone.
    pub(super) fn rules(&self) -> [Rule; 3] {
        let cached = self.cache_percent.iter().any(|&percent| percent > 0.0);
        let rounds = self.precision.is_empty() || self.precision.iter().any(|&one| one != Fp32);
        let no_cache = (!cached).then(|| "no cache".to_owned());
        let exact = (!rounds).then(|| "fp32 alone".to_owned());
        [
            ("--rounding", !self.rounding.is_empty(), "a --precision below fp32", exact),
            ("--policy", !self.policy.is_empty(), "a --cache-percent above 0", no_cache.clone()),
            ("--ways", !self.ways.is_empty(), "a --cache-percent above 0", no_cache),
        ]
    }

    /// Every combination of the given lists, FP32 first; nothing if no list was given.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        if !self.any() {
            return Vec::new();
        }
        distinct(self.product(&lists(DEFAULT)))
    }

    /// Every combination; an empty list is replaced by the default's.
    fn product(&self, default: &Self) -> Vec<Setting> {
        fn or<'a, T>(given: &'a [T], default: &'a [T]) -> &'a [T] {
            if given.is_empty() { default } else { given }
        }
        let mut settings = Vec::new();
        for &precision in or(&self.precision, &default.precision) {
            for &rounding in or(&self.rounding, &default.rounding) {
                for &policy in or(&self.policy, &default.policy) {
                    for &cache_percent in or(&self.cache_percent, &default.cache_percent) {
                        let with = |&ways| Setting { precision, rounding, policy, cache_percent, ways };
                        settings.extend(or(&self.ways, &default.ways).iter().map(with));
                    }
                }
            }
        }
        settings
    }

    /// Whether every value of the cell is in the list of its option.
    fn take(&self, cell: &Setting) -> bool {
        fn has<T: PartialEq>(list: &[T], value: &T) -> bool {
            list.is_empty() || list.contains(value)
        }
        let cache = has(&self.policy, &cell.policy) && has(&self.ways, &cell.ways);
        let rows = has(&self.precision, &cell.precision) && has(&self.rounding, &cell.rounding);
        rows && has(&self.cache_percent, &cell.cache_percent) && (cache || !cell.has_cache())
    }
}

impl Cells {
    /// The cells without repetition, FP32 first, even if the lists exclude it: the others are compared with it.
    pub(crate) fn settings(self, asked: &Lists) -> Vec<Setting> {
        let mut cells = settings_of(if self == Self::Claims { &CLAIMS } else { &[MORE_WAYS] });
        cells.retain(|cell| asked.take(cell));
        distinct(match self {
            Self::Claims => cells,
            // Ways that the user names apply to every cell.
            Self::Full if !asked.ways.is_empty() => asked.product(&lists(FULL)),
            Self::Full => [asked.product(&lists(FULL)), cells].concat(),
        })
    }
}

/// The settings without repetition, FP32 first.
fn distinct(settings: Vec<Setting>) -> Vec<Setting> {
    let mut distinct = vec![Setting::FP32];
    for setting in settings.into_iter().map(Setting::plain) {
        if !distinct.contains(&setting) {
            distinct.push(setting);
        }
    }
    distinct
}

/// The form of a value of `--table`.
pub(crate) const FORM: &str = "[NAME=]KIND[:KEY=VALUE,..]|NAME=PRECISION[:ROUNDING[:POLICY:PERCENT[:WAYS]]]";

/// A setting, and the name of its table. Without a name the setting is one to compare with the others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableSetting {
    pub(super) table: Option<String>,
    pub(super) kind: Kind,
}

impl FromStr for TableSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A value names its options without dashes.
        let with_form =
            |error: String| format!("{}; write it as {FORM}, KIND being cached or robe", error.replace("--", ""));
        if let Some(kind) = kind(text) {
            return Ok(Self { table: None, kind: kind.map_err(with_form)? });
        }
        let Some((table, parts)) = text.split_once('=').filter(|(table, _)| !table.is_empty()) else {
            return Err(with_form(format!("wanted a setting, found {text:?}")));
        };
        let kind = kind(parts).unwrap_or_else(|| short(parts)).map_err(with_form)?;
        Ok(Self { table: Some(table.to_owned()), kind })
    }
}

/// Parses a kind and its options; `None` if the text does not begin with a kind.
fn kind(text: &str) -> Option<Result<Kind, String>> {
    let (kind, options) = text.split_once(':').unwrap_or((text, ""));
    let options = || options.split(',').filter(|option| !option.is_empty()).map(|option| format!("--{option}"));
    match kind {
        "cached" => Some(parsed(options()).and_then(|lists| cached(&lists, true))),
        "robe" => Some(parsed(options()).and_then(|args| robe(&args))),
        _ => None,
    }
}

/// Parses `int4:stochastic:lfu:10`, values of the options of `cached` in their order. Values without an effect are allowed.
fn short(text: &str) -> Result<Kind, String> {
    let values: Vec<&str> = text.split(':').collect();
    if values.len() == 3 || values.len() > 5 {
        return Err(format!("wanted 1, 2, 4 or 5 values, found {} in {text:?}", values.len()));
    }
    let options = ["precision", "rounding", "policy", "cache-percent", "ways"].into_iter().zip(values);
    parsed(options.map(|(name, value)| format!("--{name}={value}"))).and_then(|lists| cached(&lists, false))
}

/// Parses options of a setting like those of a command.
fn parsed<A: clap::Args>(options: impl Iterator<Item = String>) -> Result<A, String> {
    let command = A::augment_args(clap::Command::new("--table").no_binary_name(true).disable_help_flag(true));
    command.try_get_matches_from(options).and_then(|found| A::from_arg_matches(&found)).map_err(|error| {
        // Only the message, without the usage below it, on one line.
        let message = error.to_string();
        let lines = message.split("\n\n").next().unwrap_or_default().lines().map(str::trim);
        lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
    })
}

/// The setting of these lists. Defaults: FP32 without a cache, stochastic rounding, LFU. `strictly`: options without an effect are refused.
fn cached(lists: &Lists, strictly: bool) -> Result<Kind, String> {
    let settings = lists.product(&Lists { precision: vec![Fp32], ..self::lists(DEFAULT) });
    let [setting] = settings[..] else { return Err("wanted each option once, found one twice".to_owned()) };
    let precision = vec![setting.precision];
    match strictly {
        true => refuse(Lists { precision, ..lists.clone() }.rules()).map(|()| setting.plain().into()),
        false => Ok(setting.plain().into()),
    }
}

#[derive(clap::Args)]
struct RobeArgs {
    #[command(flatten)]
    size: SizeArgs,
    #[arg(long, value_name = "N", default_value_t = CHUNK, value_parser = whole(1..=u32::MAX))]
    chunk: u32,
    #[arg(long, default_value = "fp32", value_parser = one_of(Precision::ALL))]
    precision: Precision,
    #[arg(long, value_parser = one_of(Rounding::ALL))]
    rounding: Option<Rounding>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct SizeArgs {
    #[arg(long, value_name = "X", value_parser = compression)]
    compression: Option<f64>,
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    weights: Option<u32>,
}

fn robe(args: &RobeArgs) -> Result<Kind, String> {
    let &RobeArgs { size: SizeArgs { compression, weights }, chunk, precision, rounding } = args;
    let exact = (precision == Fp32).then(|| precision.to_string());
    refuse([("--rounding", rounding.is_some(), "a --precision below fp32", exact)])?;
    let size = weights.map(Size::Weights).or(compression.map(Size::Compression)).ok_or("wanted a size, found none")?;
    let robe = Robe::fp32(size, chunk);
    Ok(Kind::Robe(Robe { precision, rounding: rounding.unwrap_or(robe.rounding), ..robe }))
}

/// An option, whether it was given, its requirement, and the value found instead; `None` if the requirement is met.
pub(super) type Rule = (&'static str, bool, &'static str, Option<String>);

/// Refuses the first option that has no effect.
pub(super) fn refuse(rules: impl IntoIterator<Item = Rule>) -> Result<(), String> {
    let ignored =
        rules.into_iter().find_map(|(option, given, wanted, found)| Some((option, wanted, found.filter(|_| given)?)));
    ignored.map_or(Ok(()), |(option, wanted, found)| {
        Err(format!("{option}: wanted {wanted} beside it, found {found}; give that, or leave {option} out"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::setting::{SMALL_TABLE, Setup, WAYS};
    use crate::train::task::TableSpec;
    use Rounding::{Nearest, Stochastic};
    use hotrow::{Init, Pooling};

    #[test]
    fn the_full_grid_has_every_cell_once() {
        let cells = Cells::Full.settings(&Lists::default());
        // 4 precisions x 2 roundings x (no cache + 2 policies x 2 numbers of ways x 6 sizes), FP32, and for Figure 6 2 precisions x 4 sizes
        // x 4 numbers of ways.
        assert_eq!(cells.len(), 4 * 2 * (1 + 2 * 2 * 6) + 1 + 2 * 4 * 4);
        assert_eq!(cells[0], Setting::FP32);
        assert!(cells.iter().enumerate().all(|(i, cell)| !cells[..i].contains(cell)));
        assert_eq!(cells.iter().filter(|cell| !cell.has_cache()).count(), 9, "no policy or ways without a cache");
    }

    #[test]
    fn the_claims_need_few() {
        let cells = Cells::Claims.settings(&Lists::default());
        assert_eq!(cells.len(), 1 + 8 + 5);
        let full = Cells::Full.settings(&Lists::default());
        assert!(cells.iter().all(|cell| full.contains(cell)), "the full grid answers the claims too");
    }

    #[test]
    fn lists_narrow() {
        let lists = Lists { precision: vec![Int4], rounding: vec![Stochastic], ..Lists::default() };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 24 + 16);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1 + 3);
        let lists = Lists { policy: vec![Policy::Lru], ..lists };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 12);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1, "cells without a cache have no policy");
        let lists = Lists { cache_percent: vec![2.0], ways: vec![4], ..lists };
        let cells = Cells::Full.settings(&lists);
        let asked = Setting { policy: Policy::Lru, ..Setting::lfu(Int4, 2.0, 4) };
        assert_eq!(cells, [Setting::FP32, asked], "sizes and ways of the user's own");
    }

    const CACHED: Setting =
        Setting { precision: Int4, rounding: Stochastic, policy: Policy::Lfu, cache_percent: 10.0, ways: WAYS };

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
        assert_eq!(setting("a=int8"), Setting::uncached(Int8, Stochastic));
        assert_eq!(setting("a=fp16:nearest"), Setting::uncached(Fp16, Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0"), Setting::uncached(Int2, Nearest));
        assert_eq!(setting("a=int2:nearest:lru:0.5").cache_percent, 0.5);
    }

    #[test]
    fn options_have_names() {
        assert_eq!(parsed("cached"), TableSetting { table: None, kind: Kind::FP32 });
        assert_eq!(setting("cached:precision=int4,cache-percent=10"), CACHED);
        assert_eq!(setting("cached:policy=lfu,cache-percent=10,rounding=stochastic,ways=32,precision=int4"), CACHED);
        let other = Setting { precision: Fp16, rounding: Nearest, policy: Policy::Lru, cache_percent: 0.5, ways: 2 };
        let text = "C1=cached:precision=fp16,rounding=nearest,policy=lru,cache-percent=0.5,ways=2";
        assert_eq!(parsed(text), TableSetting { table: Some("C1".into()), kind: other.into() });
        let robe = |size, chunk| Kind::Robe(Robe::fp32(size, chunk));
        assert_eq!(parsed("robe:compression=1000").kind, robe(Size::Compression(1000.0), CHUNK));
        assert_eq!(parsed("robe:chunk=8,compression=2.5").kind, robe(Size::Compression(2.5), 8));
        let nearest = Robe { precision: Int8, rounding: Nearest, ..Robe::fp32(Size::Weights(7), 2) };
        assert_eq!(parsed("robe:weights=7,chunk=2,precision=int8,rounding=nearest").kind, Kind::Robe(nearest));
        "robe:weights=7,rounding=nearest".parse::<TableSetting>().unwrap_err();
        let named = parsed("C3=robe:weights=5000,chunk=1");
        assert_eq!(named, TableSetting { table: Some("C3".into()), kind: robe(Size::Weights(5000), 1) });
    }

    #[test]
    fn refusals_name_what_was_found() {
        for (text, wanted, found) in [
            ("C3", "wanted a setting", "\"C3\""),
            ("=int4", "wanted a setting", "\"=int4\""),
            ("C3=", "fp32, fp16, int8, int4, int2", "precision"),
            ("C3=int3", "fp32, fp16, int8, int4, int2", "'int3'"),
            ("C3=int4:up", "nearest, stochastic", "'up'"),
            ("C3=int4:nearest:fifo:10", "lru, lfu", "'fifo'"),
            ("C3=int4:nearest:lfu", "4 or 5 values", "found 3"),
            ("C3=int4:nearest:lfu:101", "0 to 100", "'101'"),
            ("C3=int4:nearest:lfu:NaN", "0 to 100", "'NaN'"),
            ("C3=int4:nearest:lfu:10:0", "from 1 to 1024", "0"),
            ("C3=int4:nearest:lfu:10:32:7", "4 or 5 values", "found 6"),
            ("robes", "KIND being cached or robe", "\"robes\""),
            ("robe", "not provided", "weights"),
            ("robe:", "not provided", "weights"),
            ("robe:compression=10,weights=10", "'weights <N>'", "cannot be used"),
            ("robe:compression=0.5", "from 1 on", "'0.5'"),
            ("robe:compression=inf", "from 1 on", "'inf'"),
            ("robe:compression=ten", "from 1 on", "'ten'"),
            ("robe:weights=0", "from 1 to 4294967295", "0"),
            ("robe:weights=5000000000", "from 1 to 4294967295", "5000000000"),
            ("robe:weights=10,chunk=0", "from 1 to 4294967295", "0"),
            ("robe:compression=10,chunks=8", "unexpected", "'chunks'"),
            ("robe:compression=10,compression=20", "compression", "multiple times"),
            ("robe:compression", "compression", "none was supplied"),
            ("C3=robe:policy=lfu", "unexpected", "'policy'"),
            ("cached:compression=10", "unexpected", "'compression'"),
            ("cached:precision=int3", "fp32, fp16, int8, int4, int2", "'int3'"),
            ("cached:precision=int4,precision=int8", "each option once", "twice"),
            ("cached:cache-percent=101", "0 to 100", "'101'"),
            ("cached:ways=0", "from 1 to 1024", "0"),
            ("cached:rounding=nearest,cache-percent=5", "precision below fp32", "fp32"),
            ("cached:precision=int8,policy=lru", "cache-percent above 0", "no cache"),
            ("C3=cached:precision=int8,cache-percent=0,ways=4", "cache-percent above 0", "no cache"),
        ] {
            let error = text.parse::<TableSetting>().unwrap_err();
            for part in [wanted, found, "; "] {
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
