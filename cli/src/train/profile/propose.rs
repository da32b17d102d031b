//! Candidates from the accesses that were seen, and the one that short runs take.

use crate::names::{PolicyName, PrecisionName, RoundingName, option_name};
use crate::train::claims::NEUTRAL;
use crate::train::interval::{Interval, loss_change};
use crate::train::outcome::Outcome;
use crate::train::setting::{SMALL_TABLE, Setting, WAYS};
use crate::train::task::TableSpec;
use hotrow::scars::{Counting, Profile as Uses};
use hotrow::simulate::{Geometry, Simulator};
use hotrow::{Error, memory_factor};
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    batches: Vec<Vec<u32>>,
}

impl Observed {
    /// Takes a batch, if the table has not had its share.
    pub(crate) fn add(&mut self, indices: &[u32]) {
        if self.accesses() + indices.len() <= ACCESSES {
            self.batches.push(indices.to_vec());
        }
    }

    pub(crate) fn accesses(&self) -> usize {
        self.batches.iter().map(Vec::len).sum()
    }

    /// The share of the accesses, 0 to 1, that goes to the 1 % of the rows that are used most.
    fn top_1_percent(&self, table: &TableSpec) -> Result<f64, Error> {
        let mut uses = Uses::new(&[table.rows], Counting::Exact);
        self.batches.iter().try_for_each(|batch| uses.count(0, batch))?;
        Ok(uses.ranked().share_of((f64::from(table.rows) / 100.0).ceil() as usize))
    }

    /// The hit rate, 0 to 1, over the second half of the batches: the first fills the cache.
    fn hit_rate(&self, table: &TableSpec, policy: PolicyName, percent: f64) -> anyhow::Result<f64> {
        let shape = Geometry::of_percent(u64::from(table.rows), percent, WAYS)?;
        let mut cache = Simulator::new(shape.sets, shape.ways, policy)?;
        let (first, second) = self.batches.split_at(self.batches.len() / 2);
        first.iter().for_each(|batch| cache.step(batch));
        let before = cache.counters();
        second.iter().for_each(|batch| cache.step(batch));
        let after = cache.counters();
        Ok((after.hits - before.hits) as f64 / (after.accesses - before.accesses).max(1) as f64)
    }
}

/// Predicted hit rates, 0 to 1, of a cache of this size.
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

    pub(crate) fn hit_rate_of(&self, policy: PolicyName) -> f64 {
        match policy {
            PolicyName::Lru => self.lru,
            _ => self.lfu,
        }
    }
}

/// The setting that is proposed for a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Proposal {
    pub(crate) table: String,
    pub(crate) rows: u32,
    pub(crate) setting: Setting,
    /// Share of the accesses that the most used 1 % of the rows take, 0 to 1.
    pub(crate) top_1_percent: f64,
    /// Empty for small tables.
    pub(crate) predicted: Vec<Predicted>,
    /// By the papers' formula, against FP32.
    pub(crate) memory: f64,
}

impl Proposal {
    /// The prediction for the cache that is proposed.
    pub(crate) fn predicted(&self) -> Option<&Predicted> {
        self.predicted.iter().find(|at| at.cache_percent == self.setting.cache_percent)
    }
}

/// A short run of a candidate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    pub(crate) what: String,
    /// All tables, by the papers' formula, against FP32.
    pub(crate) memory: f64,
    /// Of the test log-loss against FP32 after the same short run, in percent.
    pub(crate) loss_change: Option<Interval>,
    pub(crate) failure: Option<String>,
    pub(crate) taken: bool,
}

/// The schema of the profile's JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Profile {
    pub(crate) schema: u32,
    pub(crate) proposals: Vec<Proposal>,
    pub(crate) trials: Vec<Trial>,
    /// All tables, by the papers' formula, against FP32.
    pub(crate) memory: f64,
}

/// Does short runs, one a seed, with a setting for each table.
pub(crate) type TrialRunner<'a> = dyn Fn(&[Setting], &[u64]) -> anyhow::Result<Vec<Outcome>> + 'a;

/// A precision and a hit rate for the large tables.
#[derive(Clone, Debug)]
struct Candidate {
    what: String,
    /// Of each table.
    settings: Vec<Setting>,
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
    let mut taken = Candidate { what: "fp32".to_owned(), settings: vec![Setting::FP32; tables.len()], memory: 1.0 };
    if !candidates.is_empty() {
        // Without FP32 there is nothing to compare with: this one may not fail.
        fp32 = trial(&taken.settings, seeds)?;
    }
    for candidate in candidates {
        let (loss_change, failure) = match trial(&candidate.settings, seeds) {
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
    let proposals = tables.iter().zip(observed).zip(predicted).zip(&taken.settings);
    let proposals = proposals.map(|(((table, seen), predicted), &setting)| {
        Ok(Proposal {
            table: table.name.clone(),
            rows: table.rows,
            setting,
            top_1_percent: seen.top_1_percent(table)?,
            predicted,
            memory: factor(table, &setting),
        })
    });
    let proposals = proposals.collect::<Result<Vec<_>, Error>>()?;
    Ok(Profile { schema: 2, proposals, trials, memory: taken.memory })
}

/// Whether short runs speak for a candidate. A single seed has no interval.
pub(super) fn good(change: &Interval) -> bool {
    change.mean <= NEUTRAL && change.high.is_none_or(|high| high <= SURE)
}

fn predict(table: &TableSpec, seen: &Observed) -> anyhow::Result<Vec<Predicted>> {
    if table.rows <= SMALL_TABLE {
        return Ok(Vec::new());
    }
    let at = |cache_percent| {
        let (lru, lfu) = (
            seen.hit_rate(table, PolicyName::Lru, cache_percent)?,
            seen.hit_rate(table, PolicyName::Lfu, cache_percent)?,
        );
        Ok(Predicted { cache_percent, lru, lfu })
    };
    SHARES.into_iter().map(at).collect()
}

/// The candidates, least memory first. The last is FP16 without a cache: a candidate that takes more memory is no proposal.
fn candidates(tables: &[TableSpec], predicted: &[Vec<Predicted>]) -> Vec<Candidate> {
    if predicted.iter().all(Vec::is_empty) {
        return Vec::new();
    }
    let settings = |of: &dyn Fn(&[Predicted]) -> Setting| -> Vec<Setting> {
        predicted.iter().map(|table| if table.is_empty() { Setting::FP32 } else { of(table) }).collect()
    };
    let plain = settings(&|_| FP16);
    let most = memory(tables, &plain);
    let mut candidates: Vec<Candidate> = Vec::new();
    for precision in PRECISIONS {
        for target in TARGETS {
            let settings = settings(&|table| setting(table, precision, target));
            let memory = memory(tables, &settings);
            if memory < most && candidates.iter().all(|other| other.settings != settings) {
                let what = format!("{}, caches for {:.0} % hits", option_name(&precision), 100.0 * target);
                candidates.push(Candidate { what, settings, memory });
            }
        }
    }
    candidates.sort_by(|a, b| a.memory.total_cmp(&b.memory));
    candidates.push(Candidate { what: "fp16, no cache".to_owned(), settings: plain, memory: most });
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
    memory_factor(table.dim, setting.precision, share, setting.policy)
}

/// All tables against FP32.
fn memory(tables: &[TableSpec], settings: &[Setting]) -> f64 {
    let weights = |table: &TableSpec| f64::from(table.rows) * f64::from(table.dim);
    let all: f64 = tables.iter().map(weights).sum();
    tables.iter().zip(settings).map(|(table, setting)| weights(table) * factor(table, setting)).sum::<f64>() / all
}
