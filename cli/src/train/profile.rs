//! A setting for each table from a look at its first accesses and a few short runs (P1 section 6 leaves it to future work).
//!
//! Three steps. Each table's accesses are played through the simulator, which says what hit rate a cache of each size would
//! have. Then every precision with every wanted hit rate makes a candidate: each table takes the smallest cache that reaches the rate,
//! or stays in FP16 where none does. Then short runs try the candidates, from the one that takes the least memory, until one ends no
//! more than 0.02 % above FP32, and surely not 0.25 %.

mod checked;
pub(crate) mod command;

pub(crate) use checked::check;

use super::claims::NEUTRAL;
use super::interval::{Interval, loss_change};
use super::outcome::Outcome;
use super::record::Record;
use super::setting::{Choice, SMALL_TABLE, Setting, WAYS};
use super::skew::Uses;
use super::task::TableSpec;
use crate::names::{PolicyName, PrecisionName, RoundingName};
use hotrow::memory_factor;
use hotrow::simulate::{Geometry, Simulator};
use serde::Serialize;

/// Cache shares that are proposed, in percent: those of the grid, which can then be asked.
const SHARES: [f64; 6] = [0.1, 1.0, 5.0, 10.0, 30.0, 50.0];

/// Hit rates that candidates aim at.
const TARGETS: [f64; 5] = [0.6, 0.7, 0.8, 0.9, 0.95];

const PRECISIONS: [PrecisionName; 3] = [PrecisionName::Int2, PrecisionName::Int4, PrecisionName::Int8];

/// LFU keeps a counter of every row: it is taken if it hits so much more often.
const LFU_GAIN: f64 = 0.005;

/// Most accesses of a table that are looked at.
pub(crate) const ACCESSES: usize = 1 << 21;

/// Percent above FP32's loss that the interval of the short runs must not reach: their mean alone may be luck.
const SURE: f64 = 0.25;

const FP16: Setting = Setting::uncached(PrecisionName::Fp16, RoundingName::Stochastic);

/// The first accesses of a table, batch by batch.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) uses: Uses,
    batches: Vec<Vec<u32>>,
}

impl Observed {
    pub(crate) fn new(table: &TableSpec) -> Self {
        Self { uses: Uses::new(&table.name, table.rows), batches: Vec::new() }
    }

    /// Takes a batch, if the table has not had its share.
    pub(crate) fn add(&mut self, indices: &[u32]) {
        if self.batches.iter().map(Vec::len).sum::<usize>() + indices.len() <= ACCESSES {
            self.uses.count(indices);
            self.batches.push(indices.to_vec());
        }
    }

    /// The hit rate, 0 to 1, over the second half of the batches: the first fills the cache.
    fn hit_rate(&self, policy: PolicyName, percent: f64) -> anyhow::Result<f64> {
        let shape = Geometry::of_percent(u64::from(self.uses.rows), percent, WAYS)?;
        let mut cache = Simulator::new(shape.sets, shape.ways, policy.policy())?;
        let (first, second) = self.batches.split_at(self.batches.len() / 2);
        first.iter().for_each(|batch| cache.step(batch));
        let before = cache.counters();
        second.iter().for_each(|batch| cache.step(batch));
        let after = cache.counters();
        Ok((after.hits - before.hits) as f64 / (after.accesses - before.accesses).max(1) as f64)
    }
}

/// What a cache of some size would do for a table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Predicted {
    pub(crate) cache_percent: f64,
    pub(crate) lru: f64,
    pub(crate) lfu: f64,
}

impl Predicted {
    fn policy(&self) -> PolicyName {
        if self.lfu >= self.lru + LFU_GAIN { PolicyName::Lfu } else { PolicyName::Lru }
    }

    fn hit_rate(&self) -> f64 {
        self.hit_rate_of(self.policy())
    }

    fn hit_rate_of(&self, policy: PolicyName) -> f64 {
        match policy {
            PolicyName::Lru => self.lru,
            PolicyName::Lfu => self.lfu,
        }
    }
}

/// What is proposed for a table, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Proposal {
    pub(crate) table: String,
    pub(crate) rows: u32,
    pub(crate) setting: Setting,
    /// Share of the accesses that the most used 1 % of the rows take, 0 to 1.
    pub(crate) top_1_percent: f64,
    /// Empty for small tables.
    pub(crate) predicted: Vec<Predicted>,
    /// By P1's formula, against FP32.
    pub(crate) memory: f64,
    pub(crate) reason: String,
}

/// A short run of a candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    pub(crate) what: String,
    /// All tables, by P1's formula, against FP32.
    pub(crate) memory: f64,
    /// Of the test log-loss against FP32 after the same short run, in percent.
    pub(crate) loss_change: Option<Interval>,
    pub(crate) failure: Option<String>,
    pub(crate) taken: bool,
}

/// The schema of the profile's JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Profile {
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) trials: Vec<Trial>,
    /// All tables, by P1's formula, against FP32.
    pub(crate) memory: f64,
}

/// Does short runs of a choice, one a seed, in the seeds' order.
pub(crate) type TrialRunner<'a> = dyn Fn(&Choice<Setting>, &[u64]) -> anyhow::Result<Vec<Outcome>> + 'a;

/// A precision and a hit rate for the large tables.
#[derive(Clone, Debug)]
struct Candidate {
    what: String,
    choice: Choice<Setting>,
    memory: f64,
}

/// Proposes a setting for each of `tables`; `observed` in the same order.
pub(crate) fn propose(
    tables: &[TableSpec],
    observed: &[Observed],
    seeds: &[u64],
    trial: &TrialRunner<'_>,
) -> anyhow::Result<Profile> {
    let predicted = tables.iter().zip(observed).map(|(table, seen)| predict(table, seen));
    let predicted: Vec<Vec<Predicted>> = predicted.collect::<anyhow::Result<_>>()?;
    let candidates = candidates(tables, &predicted);
    let mut fp32: Vec<Outcome> = Vec::new();
    let mut trials = Vec::new();
    let mut taken = Candidate { what: "fp32".to_owned(), choice: Choice::uniform(Setting::FP32, tables), memory: 1.0 };
    if !candidates.is_empty() {
        // Without FP32 there is nothing to compare with: this one may not fail.
        fp32 = trial(&taken.choice, seeds)?;
    }
    for candidate in candidates {
        let (loss_change, failure) = match trial(&candidate.choice, seeds) {
            Ok(runs) => {
                let pairs = runs.iter().zip(&fp32);
                let changes: Vec<f64> = pairs.map(|(run, fp32)| loss_change(run.loss, fp32.loss)).collect();
                (Interval::of(&changes), None)
            }
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let passed = loss_change.as_ref().is_some_and(good);
        let (what, memory) = (candidate.what.clone(), candidate.memory);
        trials.push(Trial { what, memory, loss_change, failure, taken: passed });
        if passed {
            taken = candidate;
            break;
        }
    }
    let proposals = tables.iter().zip(observed).zip(&predicted).zip(&taken.choice.settings);
    let proposals = proposals.map(|(((table, seen), predicted), &setting)| {
        proposal(table, seen, predicted.clone(), setting, &taken.what, trials.last())
    });
    Ok(Profile { proposals: proposals.collect(), trials, memory: taken.memory })
}

/// Whether short runs speak for a candidate. A single seed has no interval.
fn good(change: &Interval) -> bool {
    change.mean <= NEUTRAL && change.high.is_none_or(|high| high <= SURE)
}

fn predict(table: &TableSpec, seen: &Observed) -> anyhow::Result<Vec<Predicted>> {
    if table.rows <= SMALL_TABLE {
        return Ok(Vec::new());
    }
    let at = |cache_percent| {
        let (lru, lfu) =
            (seen.hit_rate(PolicyName::Lru, cache_percent)?, seen.hit_rate(PolicyName::Lfu, cache_percent)?);
        Ok(Predicted { cache_percent, lru, lfu })
    };
    SHARES.into_iter().map(at).collect()
}

/// What can be tried, least memory first. FP16 without a cache comes last: what takes more than that is no proposal.
fn candidates(tables: &[TableSpec], predicted: &[Vec<Predicted>]) -> Vec<Candidate> {
    if predicted.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let choice = |of: &dyn Fn(&[Predicted]) -> Setting| Choice {
        settings: predicted.iter().map(|table| if table.is_empty() { Setting::FP32 } else { of(table) }).collect(),
    };
    let plain = choice(&|_| FP16);
    let most = memory(tables, &plain);
    let mut candidates: Vec<Candidate> = Vec::new();
    for precision in PRECISIONS {
        for target in TARGETS {
            let choice = choice(&|table| setting(table, precision, target));
            let memory = memory(tables, &choice);
            if memory < most && candidates.iter().all(|other| other.choice != choice) {
                let what =
                    format!("{}, caches for {:.0} % hits", crate::names::option_name(&precision), 100.0 * target);
                candidates.push(Candidate { what, choice, memory });
            }
        }
    }
    candidates.sort_by(|a, b| a.memory.total_cmp(&b.memory));
    candidates.push(Candidate { what: "fp16, no cache".to_owned(), choice: plain, memory: most });
    candidates
}

/// The smallest cache that reaches the hit rate; FP16 if none does.
fn setting(predicted: &[Predicted], precision: PrecisionName, target: f64) -> Setting {
    let smallest = predicted.iter().find(|at| at.hit_rate() >= target);
    smallest.map_or(FP16, |at| Setting {
        precision,
        rounding: RoundingName::Stochastic,
        policy: at.policy(),
        cache_percent: at.cache_percent,
        ways: WAYS,
    })
}

fn factor(table: &TableSpec, setting: &Setting) -> f64 {
    let share = setting.cache_percent / 100.0;
    memory_factor(table.dim, setting.precision.precision(), share, setting.policy.policy())
}

/// All tables against FP32.
fn memory(tables: &[TableSpec], choice: &Choice<Setting>) -> f64 {
    let weights = |table: &TableSpec| f64::from(table.rows) * f64::from(table.dim);
    let all: f64 = tables.iter().map(weights).sum();
    tables.iter().zip(&choice.settings).map(|(table, setting)| weights(table) * factor(table, setting)).sum::<f64>()
        / all
}

fn proposal(
    table: &TableSpec,
    seen: &Observed,
    predicted: Vec<Predicted>,
    setting: Setting,
    what: &str,
    last: Option<&Trial>,
) -> Proposal {
    let top_1_percent = seen.uses.share_of_top(1.0);
    let reason = if predicted.is_empty() {
        format!("at most {SMALL_TABLE} rows: nothing to save")
    } else {
        let skew = format!("1 % of the rows take {:.0} % of the accesses", 100.0 * top_1_percent);
        let cache = match predicted.iter().find(|at| at.cache_percent == setting.cache_percent) {
            Some(at) => {
                let (better, worse) = match setting.policy {
                    PolicyName::Lfu => (("LFU", at.lfu), ("LRU", at.lru)),
                    PolicyName::Lru => (("LRU", at.lru), ("LFU", at.lfu)),
                };
                format!(
                    "{} hits {:.1} % with {} % of the rows ({} {:.1} %)",
                    better.0,
                    100.0 * better.1,
                    at.cache_percent,
                    worse.0,
                    100.0 * worse.1
                )
            }
            None => {
                let most = predicted.iter().map(Predicted::hit_rate).fold(0.0, f64::max);
                format!("no cache: the best would hit {:.1} %", 100.0 * most)
            }
        };
        let trial = match last.filter(|trial| trial.taken).and_then(|trial| trial.loss_change) {
            Some(change) => format!("short runs with {what}: {}", change.show(" %")),
            None => "no short run came within 0.02 % of FP32".to_owned(),
        };
        format!("{skew}; {cache}; {trial}")
    };
    let memory = factor(table, &setting);
    Proposal { table: table.name.clone(), rows: table.rows, setting, top_1_percent, predicted, memory, reason }
}

#[cfg(test)]
mod tests;
