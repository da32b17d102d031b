//! The lookups of a plan: those of a trace, or a distribution.

use super::distribution::Distribution;
use super::tables::by_table;
use hotrow_plan::Error;
use hotrow_plan::scars::{Budget, Planner, Profile, Skew};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::trace::Trace;

pub(super) struct Input {
    pub(super) name: String,
    pub(super) rows: u32,
    pub(super) skew: Skew,
    pub(super) samples: u64,
    /// Mean number of lookups of a sample.
    pub(super) per_sample: f64,
    pub(super) source: Source,
}

pub(super) enum Source {
    Trace(Samples),
    Distribution(Distribution),
}

/// A trace cut into samples.
pub(super) struct Samples {
    pub(super) ids: Vec<u32>,
    /// The start of each sample, and the end of the last one.
    offsets: Vec<u32>,
    /// The rows in use, hottest first.
    pub(super) ranked: Vec<u32>,
    /// The tables, each with its lookups, if the trace has tables.
    pub(super) tables: Vec<(u8, Skew)>,
}

impl Samples {
    pub(super) fn samples(&self) -> Vec<&[u32]> {
        self.offsets.windows(2).map(|ends| &self.ids[ends[0] as usize..ends[1] as usize]).collect()
    }
}

/// The default number of samples of an epoch of a distribution.
const SAMPLES: u64 = 1_000_000;

/// The most lookups of an epoch; larger whole numbers are not exact in a double.
const MOST_LOOKUPS: f64 = 9_007_199_254_740_992.0;

impl Input {
    pub(super) fn planner(&self, budget: Budget) -> Result<Planner<'_>, Error> {
        let planner = Planner::new(budget, &self.skew, self.per_sample)?;
        Ok(match &self.source {
            Source::Trace(trace) => planner.with_ranked(&trace.ranked),
            Source::Distribution(_) => planner,
        })
    }

    /// Takes the lookups of a trace. `lookups` is the number for a sample if the trace has no bags.
    pub(super) fn of_trace(trace: Trace, lookups: Option<f64>) -> Result<Self, Failure> {
        let Trace { name, ids, offsets, tables, .. } = trace;
        let (all, each) = (ids.len() as u32, lookups.unwrap_or(1.0));
        ensure_usage!(
            offsets.is_none() || lookups.is_none(),
            "--lookups: wanted none, since {name} has bags of its own, found {each}; leave it out"
        );
        ensure_usage!(
            offsets.is_some() || each.fract() == 0.0 && each <= f64::from(all),
            "--lookups: wanted a whole number of at most {all}, the trace's lookups, found {each}; samples are cut from it"
        );
        let offsets = offsets.unwrap_or_else(|| (0..all).step_by(each as usize).chain([all]).collect());
        let rows = ids.iter().max().map_or(1, |&id| id + 1);
        let mut profile = Profile::exact(&[rows]);
        profile.count_rows(&ids)?;
        let samples = offsets.len() as u64 - 1;
        let (ranked, tables) = (profile.hottest(usize::MAX), by_table(&ids, &tables.unwrap_or_default())?);
        Ok(Self {
            name,
            rows,
            skew: profile.skew()?,
            samples,
            per_sample: ids.len() as f64 / samples as f64,
            source: Source::Trace(Samples { ids, offsets, ranked, tables }),
        })
    }

    pub(super) fn of_distribution(
        from: &Distribution,
        lookups: Option<f64>,
        samples: Option<u64>,
    ) -> Result<Self, Failure> {
        let rows = from.table_rows()?;
        let (samples, lookups) = (samples.unwrap_or(SAMPLES), lookups.unwrap_or(1.0));
        let fits = samples as f64 * lookups <= MOST_LOOKUPS;
        ensure_usage!(
            fits,
            "--samples, --lookups: wanted at most 2^53 lookups of an epoch, found {samples} samples of {lookups}; plan a part of the \
                 epoch"
        );
        Ok(Self {
            name: from.text.clone(),
            rows,
            skew: from.skew()?,
            samples,
            per_sample: lookups,
            source: Source::Distribution(from.clone()),
        })
    }
}
