//! Statements that a grid's runs hold up or not: the test log-loss against FP32, paired by seed.

use super::interval::Interval;
use super::setting::{Setting, Setup, WAYS};
use super::summary::Cell;
use crate::names::{PolicyName, PrecisionName, RoundingName};
use serde::Serialize;

/// Percent of FP32's loss that Yang 2020 calls neutral.
pub(crate) const NEUTRAL: f64 = 0.02;

/// Most half width, in percent, of an interval that may hold 0 and be called neutral: wider says nothing, as scatter alone makes it hold 0.
/// It is a limit by agreement. A cost below it, such as FP16's by nearest (about 0.1 % on author), can still hide in such an interval.
const TOO_WIDE: f64 = 0.5;

/// With fewer seeds Student's t is 12.7 or nothing: no interval to judge by.
const LEAST_SEEDS: usize = 3;

/// Cases of a claim that its line in the table names.
const NAMED: usize = 3;

/// Whether the data hold up a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Verdict {
    /// Runs are missing or failed, or their intervals are too wide.
    #[serde(rename = "not shown")]
    NotShown,
    #[serde(rename = "not met")]
    NotMet,
    #[serde(rename = "met")]
    Met,
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

/// A statement, and the cells that it is about.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    /// The worst of its cases'; not shown without any.
    pub(crate) verdict: Verdict,
    pub(crate) cases: Vec<Case>,
}

/// A cell, and the number found there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) cell: String,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
}

impl Claim {
    fn new(claim: impl Into<String>, mut cases: Vec<Case>) -> Self {
        cases.sort_by_key(|case| case.verdict);
        let verdict = cases.first().map_or(Verdict::NotShown, |case| case.verdict);
        Self { claim: claim.into(), verdict, cases }
    }

    /// The first cases, worst first.
    pub(crate) fn found(&self) -> String {
        let mut found: Vec<String> =
            self.cases.iter().take(NAMED).map(|case| format!("{}: {}", case.cell, case.found)).collect();
        if self.cases.is_empty() {
            found.push("not run".to_owned());
        }
        if self.cases.len() > NAMED {
            found.push(format!("{} more", self.cases.len() - NAMED));
        }
        found.join("; ")
    }
}

/// Every claim.
pub(crate) fn judge(cells: &[Cell]) -> Vec<Claim> {
    use PrecisionName::{Fp16, Int2, Int4, Int8};
    let no_worse = |setting: Setting| {
        let claim = format!(
            "{}: no worse than FP32 (the interval holds 0 and is at most ±{TOO_WIDE} %, or ends at {NEUTRAL} %)",
            setting.label()
        );
        Claim::new(claim, vec![case(setting, change(cells, setting), " %", stand)])
    };
    let nearest = Setting::uncached(Fp16, RoundingName::Nearest);
    let better = [Int8, Int4, Int2].map(|precision| {
        let of = |rounding| Setting::uncached(precision, rounding);
        let stochastic = of(RoundingName::Stochastic);
        let found = against(cells, stochastic, of(RoundingName::Nearest));
        case(stochastic, found, " % of FP32's loss", |change| Verdict::of(change.mean < 0.0))
    });
    let lfu = cells.iter().filter_map(|cell| cell.setup.rows());
    let ways = lfu.filter(|setting| setting.policy == PolicyName::Lfu && setting.ways == WAYS && setting.has_cache());
    vec![
        no_worse(Setting::uncached(Fp16, RoundingName::Stochastic)),
        no_worse(Setting::lfu(Int8, 5.0, WAYS)),
        no_worse(Setting::lfu(Int4, 10.0, WAYS)),
        Claim::new(
            "fp16 nearest without a cache: worse than FP32 (the interval is above 0)",
            vec![case(nearest, change(cells, nearest), " %", |change| match stand(change) {
                Verdict::NotShown => Verdict::NotShown,
                // Here 0.02 % above FP32 is above it.
                _ => Verdict::of(change.low.is_some_and(|low| low > 0.0)),
            })],
        ),
        Claim::new(
            "stochastic better than nearest in every integer cell without a cache (by the mean)",
            better.to_vec(),
        ),
        Claim::new(
            "32-way LFU hits more often than 1-way LFU at every size",
            ways.map(|at| more_ways(cells, at)).collect(),
        ),
    ]
}

fn case(setting: Setting, found: Result<Interval, String>, unit: &str, judge: fn(&Interval) -> Verdict) -> Case {
    let cell = setting.label();
    match found {
        Ok(found) => {
            Case { cell, verdict: judge(&found), found: format!("{}, {} seeds", found.show(unit), found.seeds) }
        }
        Err(why) => Case { cell, verdict: Verdict::NotShown, found: why },
    }
}

pub(crate) fn find(cells: &[Cell], setting: Setting) -> Option<&Cell> {
    let setup = Setup::from(setting);
    cells.iter().find(|cell| cell.setup == setup)
}

/// Whether a change is none for the worse.
pub(crate) fn stand(change: &Interval) -> Verdict {
    let Some((half, high)) = change.half().zip(change.high).filter(|_| change.seeds >= LEAST_SEEDS) else {
        return Verdict::NotShown;
    };
    if change.lies_within(NEUTRAL) || high < 0.0 {
        Verdict::Met
    } else if !change.contains(0.0) {
        Verdict::NotMet
    } else if half <= TOO_WIDE {
        Verdict::Met
    } else {
        Verdict::NotShown
    }
}

/// The cell, if all its runs came to their end, and enough; else why not.
fn whole(cells: &[Cell], setting: Setting) -> Result<&Cell, String> {
    let label = setting.label();
    let cell = find(cells, setting).ok_or_else(|| format!("{label}: not run"))?;
    match (cell.failed, cell.runs.len()) {
        (0, runs) if runs < LEAST_SEEDS => Err(format!("{label}: {runs} seeds, {LEAST_SEEDS} are needed")),
        (0, _) => Ok(cell),
        (failed, runs) => Err(format!("{label}: {failed} of {} seeds failed", failed + runs)),
    }
}

/// The cell, if it and FP32 are whole with the same seeds, and some table was in low precision; else why not.
fn sound(cells: &[Cell], setting: Setting) -> Result<&Cell, String> {
    whole(cells, Setting::FP32)?;
    let cell = whole(cells, setting)?;
    let missing = cell.runs.len() - cell.changes().len();
    if missing > 0 {
        return Err(format!("{missing} seeds have no run in FP32"));
    }
    // The formula counts the weights alone.
    if cell.mean(|run| Some(run.memory_paper)) == Some(1.0) {
        return Err("no table was in low precision".to_owned());
    }
    Ok(cell)
}

/// The change of a sound cell.
fn change(cells: &[Cell], setting: Setting) -> Result<Interval, String> {
    sound(cells, setting)?.loss_change().ok_or_else(|| "no interval".to_owned())
}

/// By how many percent of FP32's loss a cell is above another, paired by seed.
fn against(cells: &[Cell], setting: Setting, other: Setting) -> Result<Interval, String> {
    let (mine, others) = (sound(cells, setting)?.changes(), sound(cells, other)?.changes());
    let pair = |(seed, change): &(u64, f64)| Some(change - others.iter().find(|(of, _)| of == seed)?.1);
    Interval::of(&mine.iter().filter_map(pair).collect::<Vec<f64>>())
        .filter(|change| change.seeds >= LEAST_SEEDS)
        .ok_or_else(|| format!("fewer than {LEAST_SEEDS} seeds with both"))
}

/// The hit rate of a cell against that of the same with one way.
fn more_ways(cells: &[Cell], setting: Setting) -> Case {
    let rate = |setting| {
        let rate = whole(cells, setting)?.mean(|run| run.hit_rate);
        rate.ok_or_else(|| "no table had a cache".to_owned())
    };
    let both = rate(setting).and_then(|many| Ok((many, rate(Setting { ways: 1, ..setting })?)));
    let (verdict, found) = match both {
        Ok((many, one)) => (Verdict::of(many > one), format!("{:.3} % against {:.3} %", 100.0 * many, 100.0 * one)),
        Err(why) => (Verdict::NotShown, why),
    };
    Case { cell: setting.label(), verdict, found }
}
