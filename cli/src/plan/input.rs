//! What is planned for: the lookups of a trace, or a distribution.

use super::distribution::Distribution;
use crate::failure::Failure;
use crate::trace::Trace;
use hotrow::scars::sets::TableLookups;
use hotrow::scars::{Counting, Profile, Skew};

/// The lookups that are planned for.
pub(super) struct Input {
    pub(super) name: String,
    /// Rows of the table.
    pub(super) rows: u32,
    pub(super) skew: Skew,
    /// Samples of an epoch.
    pub(super) samples: u64,
    /// Lookups of a sample, in the mean.
    pub(super) per_sample: f64,
    pub(super) source: Source,
}

/// Where lookups come from.
pub(super) enum Source {
    Trace(Samples),
    Distribution(Distribution),
}

/// A trace cut into samples.
pub(super) struct Samples {
    pub(super) ids: Vec<u32>,
    /// Where each sample begins, and the end of the last.
    offsets: Vec<u32>,
    /// Rows that are used, hottest first.
    pub(super) ranked: Vec<u32>,
}

impl Samples {
    pub(super) fn samples(&self) -> Vec<&[u32]> {
        self.offsets.windows(2).map(|ends| &self.ids[ends[0] as usize..ends[1] as usize]).collect()
    }
}

/// Samples of an epoch of a distribution, if nobody says.
const SAMPLES: u64 = 1_000_000;

/// Most lookups of an epoch: whole numbers are exact up to there.
const MOST_LOOKUPS: f64 = 9_007_199_254_740_992.0;

impl Input {
    /// As the library's planner takes it.
    pub(super) fn table(&self) -> TableLookups<'_> {
        let ranked = match &self.source {
            Source::Trace(trace) => Some(&trace.ranked[..]),
            Source::Distribution(_) => None,
        };
        TableLookups::new(&self.skew, self.rows, self.per_sample).with_ranked(ranked)
    }

    /// Out of a trace; `lookups` a sample, if it has no bags.
    pub(super) fn of_trace(trace: Trace, lookups: Option<f64>) -> Result<Self, Failure> {
        let Trace { name, ids, offsets, .. } = trace;
        let usage = |text: String| Err(Failure::Usage(text));
        let offsets = match (offsets, lookups) {
            (Some(_), Some(found)) => {
                return usage(format!(
                    "--lookups: wanted none, since {name} has bags of its own, found {found}; leave it out"
                ));
            }
            (Some(offsets), None) => offsets,
            (None, lookups) => {
                let each = lookups.unwrap_or(1.0);
                if each.fract() != 0.0 || each > ids.len() as f64 {
                    let most = ids.len();
                    return usage(format!(
                        "--lookups: wanted a whole number of at most {most}, the trace's lookups, found {each}; samples are cut from it"
                    ));
                }
                let all = ids.len() as u32;
                (0..all).step_by(each as usize).chain([all]).collect()
            }
        };
        let rows = ids.iter().max().map_or(1, |&id| id + 1);
        let mut profile = Profile::new(&[rows], Counting::Exact);
        profile.count_rows(&ids)?;
        let ranked = profile.ranked();
        let samples = offsets.len() as u64 - 1;
        Ok(Self {
            name,
            rows,
            skew: ranked.skew()?,
            samples,
            per_sample: ids.len() as f64 / samples as f64,
            source: Source::Trace(Samples { ids, offsets, ranked: ranked.hottest(usize::MAX) }),
        })
    }

    /// Out of a distribution.
    pub(super) fn of_distribution(
        from: &Distribution,
        lookups: Option<f64>,
        samples: Option<u64>,
    ) -> Result<Self, Failure> {
        let rows = u32::try_from(from.rows).ok().filter(|&rows| rows < u32::MAX);
        let Some(rows) = rows else {
            return Err(Failure::Usage(format!(
                "--distribution: wanted at most 4294967294 rows, what a group of tables holds, found {}; split them over several",
                from.rows
            )));
        };
        let (samples, lookups) = (samples.unwrap_or(SAMPLES), lookups.unwrap_or(1.0));
        if samples as f64 * lookups > MOST_LOOKUPS {
            return Err(Failure::Usage(format!(
                "--samples, --lookups: wanted at most 2^53 lookups of an epoch, found {samples} samples of {lookups}; plan a part of the \
                 epoch"
            )));
        }
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
