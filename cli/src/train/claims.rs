//! What a grid is to show, judged from its runs: the test log-loss against FP32, paired by seed.

use super::interval::Interval;
use super::setting::{Setting, WAYS};
use super::summary::Cell;
use crate::names::{PolicyName, PrecisionName, RoundingName, option_name};
use serde::Serialize;

/// Percent of FP32's loss that P1 calls neutral.
pub(crate) const NEUTRAL: f64 = 0.02;

/// Most half width, in percent, of an interval that may hold 0 and be called neutral: wider says nothing, as scatter alone makes it hold 0.
/// It is a limit by agreement. A cost below it, such as FP16's by nearest (about 0.1 % on author), can still hide in such an interval.
const TOO_WIDE: f64 = 0.5;

/// With fewer seeds Student's t is 12.7 or nothing: no interval to judge by.
const LEAST_SEEDS: usize = 3;

/// What the data say to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Verdict {
    #[serde(rename = "met")]
    Met,
    #[serde(rename = "not met")]
    NotMet,
    /// Runs are missing or failed, or say nothing.
    #[serde(rename = "not shown")]
    NotShown,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotShown => "not shown",
        }
    }

    const fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::NotMet }
    }
}

/// A statement and what the data say to it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    /// Cells that speak against it.
    pub(crate) exceptions: Vec<String>,
}

/// How an interval stands to FP32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// And why.
    NoWorse(&'static str),
    Worse,
    /// And why that cannot be said.
    Unclear(&'static str),
}

impl Standing {
    pub(crate) const fn is_no_worse(self) -> bool {
        matches!(self, Self::NoWorse(_))
    }
}

/// Every claim.
pub(crate) fn judge(cells: &[Cell]) -> Vec<Claim> {
    use PrecisionName::{Fp16, Int4, Int8};
    vec![
        same_as_fp32(cells, Setting::uncached(Fp16, RoundingName::Stochastic)),
        same_as_fp32(cells, cached(Int8, 5.0)),
        same_as_fp32(cells, cached(Int4, 10.0)),
        nearest_loses(cells),
        stochastic_is_better(cells),
        more_ways_hit_more(cells),
    ]
}

const fn cached(precision: PrecisionName, cache_percent: f64) -> Setting {
    let (rounding, policy) = (RoundingName::Stochastic, PolicyName::Lfu);
    Setting { precision, rounding, policy, cache_percent, ways: WAYS }
}

pub(crate) fn find(cells: &[Cell], setting: Setting) -> Option<&Cell> {
    cells.iter().find(|cell| cell.setting == setting)
}

pub(crate) fn stand(change: &Interval) -> Standing {
    let Some((half, high)) = change.half().zip(change.high).filter(|_| change.seeds >= LEAST_SEEDS) else {
        return Standing::Unclear("fewer than 3 seeds");
    };
    if change.lies_within(NEUTRAL) {
        Standing::NoWorse("within 0.02 %")
    } else if high < 0.0 {
        Standing::NoWorse("below FP32")
    } else if !change.contains(0.0) {
        Standing::Worse
    } else if half <= TOO_WIDE {
        Standing::NoWorse("holds 0")
    } else {
        Standing::Unclear("interval too wide")
    }
}

/// The cell, if all its runs and FP32's came to their end, enough of them, and some table was in low precision; else why not.
fn sound(cells: &[Cell], setting: Setting) -> Result<&Cell, String> {
    let whole = |setting| find(cells, setting).ok_or_else(|| format!("{}: not run", setting.label())).and_then(whole);
    whole(Setting::FP32)?;
    let cell = whole(setting)?;
    let missing = cell.runs - cell.changes.len();
    if missing > 0 {
        return Err(format!("{}: {missing} seeds have no run in FP32", setting.label()));
    }
    // P1's formula counts the weights alone.
    if cell.memory_paper == Some(1.0) {
        return Err(format!("{}: no table was in low precision", setting.label()));
    }
    Ok(cell)
}

/// The cell, if all its runs came to their end, and enough.
fn whole(cell: &Cell) -> Result<&Cell, String> {
    let (label, Cell { runs, failed, .. }) = (cell.setting.label(), cell);
    match (failed, runs) {
        (0, &runs) if runs < LEAST_SEEDS => Err(format!("{label}: {runs} seeds, {LEAST_SEEDS} are needed")),
        (0, _) => Ok(cell),
        (failed, runs) => Err(format!("{label}: {failed} of {} seeds failed", failed + runs)),
    }
}

fn seeds(change: &Interval, unit: &str) -> String {
    format!("{}, {} seeds", change.show(unit), change.seeds)
}

fn same_as_fp32(cells: &[Cell], setting: Setting) -> Claim {
    let claim = format!(
        "{}: no worse than FP32 (the interval holds 0 and is at most ±{TOO_WIDE} %, or ends at {NEUTRAL} %)",
        setting.label()
    );
    let of = |cell: &Cell| cell.loss_change.map(|change| (seeds(&change, " %"), stand(&change)));
    let (shown, standing) = match sound(cells, setting).map(of) {
        Ok(Some(found)) => found,
        Ok(None) => return not_shown(claim, "no interval".to_owned()),
        Err(why) => {
            // What there is may be of use all the same.
            let shown = find(cells, setting).and_then(of).map(|(shown, _)| format!("; {shown}"));
            return not_shown(claim, why + &shown.unwrap_or_default());
        }
    };
    match standing {
        Standing::NoWorse(how) => {
            Claim { claim, verdict: Verdict::Met, found: format!("{shown}: {how}"), exceptions: Vec::new() }
        }
        Standing::Unclear(why) => not_shown(claim, format!("{shown}: {why}")),
        Standing::Worse => {
            let found = format!("{shown}: above FP32{}", reached(cells, setting));
            Claim { claim, verdict: Verdict::NotMet, found, exceptions: vec![setting.label()] }
        }
    }
}

/// With which least share of those that were run a cache makes up for the precision.
fn reached(cells: &[Cell], setting: Setting) -> String {
    if !setting.has_cache() {
        return String::new();
    }
    let mut others: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.setting.plain() == cached(setting.precision, cell.setting.cache_percent))
        .filter(|cell| sound(cells, cell.setting).is_ok())
        .collect();
    others.sort_by(|a, b| a.setting.cache_percent.total_cmp(&b.setting.cache_percent));
    let neutral =
        |cell: &&Cell| cell.loss_change.filter(|change| stand(change).is_no_worse()).map(|c| (cell.setting, c));
    match others.iter().find_map(neutral) {
        Some((at, change)) => format!("; reached with {} %: {}", at.cache_percent, change.show(" %")),
        None => "; reached with no share that was run".to_owned(),
    }
}

fn nearest_loses(cells: &[Cell]) -> Claim {
    let claim = "fp16 nearest without a cache: worse than FP32 (the interval is above 0)".to_owned();
    let setting = Setting::uncached(PrecisionName::Fp16, RoundingName::Nearest);
    let change = match sound(cells, setting).map(|cell| cell.loss_change) {
        Ok(Some(change)) => change,
        Ok(None) => return not_shown(claim, "no interval".to_owned()),
        Err(why) => return not_shown(claim, why),
    };
    let shown = seeds(&change, " %");
    // Here 0.02 % above FP32 is above it.
    if stand(&change) == Standing::Unclear("interval too wide") {
        return not_shown(claim, format!("{shown}: interval too wide"));
    }
    let met = change.low.is_some_and(|low| low > 0.0);
    let exceptions = if met { Vec::new() } else { vec![setting.label()] };
    Claim { claim, verdict: Verdict::of(met), found: shown, exceptions }
}

fn stochastic_is_better(cells: &[Cell]) -> Claim {
    let claim = "stochastic better than nearest in every integer cell without a cache (by the mean)".to_owned();
    let (mut found, mut exceptions, mut all) = (Vec::new(), Vec::new(), true);
    for precision in [PrecisionName::Int8, PrecisionName::Int4, PrecisionName::Int2] {
        match stochastic_against_nearest(cells, precision) {
            Ok(change) => {
                let apart = if change.contains(0.0) { "holds 0" } else { "excludes 0" };
                let name = option_name(&precision);
                let shown = format!("{name}: stochastic {}, {apart}", seeds(&change, " % of FP32's loss"));
                if change.mean >= 0.0 {
                    exceptions.push(shown.clone());
                }
                found.push(shown);
            }
            Err(why) => {
                all = false;
                found.push(why);
            }
        }
    }
    let verdict = if all { Verdict::of(exceptions.is_empty()) } else { Verdict::NotShown };
    Claim { claim, verdict, found: found.join("; "), exceptions }
}

/// By how many percent of FP32's loss stochastic rounding is above nearest, paired by seed.
fn stochastic_against_nearest(cells: &[Cell], precision: PrecisionName) -> Result<Interval, String> {
    let of = |rounding| sound(cells, Setting::uncached(precision, rounding));
    let (nearest, stochastic) = (of(RoundingName::Nearest)?, of(RoundingName::Stochastic)?);
    let pair = |&(seed, stochastic): &(u64, f64)| {
        let (_, nearest) = nearest.changes.iter().find(|&&(other, _)| other == seed)?;
        Some(stochastic - nearest)
    };
    Interval::of(&stochastic.changes.iter().filter_map(pair).collect::<Vec<f64>>())
        .filter(|change| change.seeds >= LEAST_SEEDS)
        .ok_or_else(|| format!("{}: fewer than {LEAST_SEEDS} seeds with both", option_name(&precision)))
}

fn more_ways_hit_more(cells: &[Cell]) -> Claim {
    let claim = "32-way LFU hits more often than 1-way LFU at every size".to_owned();
    let (mut least, mut pairs) = (f64::INFINITY, 0);
    let (mut exceptions, mut missing) = (Vec::new(), Vec::new());
    for cell in cells.iter().filter(|cell| cell.setting.policy == PolicyName::Lfu && cell.setting.ways == WAYS) {
        match both_rates(cells, cell) {
            Ok((many, one)) => {
                pairs += 1;
                least = least.min(many - one);
                if many <= one {
                    let label = cell.setting.label();
                    exceptions.push(format!("{label}: {:.3} % against {:.3} %", 100.0 * many, 100.0 * one));
                }
            }
            Err(why) => missing.push(why),
        }
    }
    let mut found = match pairs {
        0 => "not run".to_owned(),
        _ => format!("{pairs} pairs of cells, at least {:+.3} points", 100.0 * least),
    };
    if let Some(first) = missing.first() {
        found = format!("{found}; {} pairs not shown, the first: {first}", missing.len());
    }
    let shown = pairs > 0 && missing.is_empty();
    let verdict = if shown { Verdict::of(exceptions.is_empty()) } else { Verdict::NotShown };
    Claim { claim, verdict, found, exceptions }
}

/// The hit rates of a cell and of the same with one way.
fn both_rates(cells: &[Cell], cell: &Cell) -> Result<(f64, f64), String> {
    let direct = Setting { ways: 1, ..cell.setting };
    let direct = find(cells, direct).ok_or_else(|| format!("{}: not run", direct.label()))?;
    let (many, one) = (whole(cell)?.hit_rate, whole(direct)?.hit_rate);
    many.zip(one).ok_or_else(|| format!("{}: no table had a cache", cell.setting.label()))
}

fn not_shown(claim: String, found: String) -> Claim {
    Claim { claim, verdict: Verdict::NotShown, found, exceptions: Vec::new() }
}
