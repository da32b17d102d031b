//! The settings that `--precision`, `--rounding`, `--policy`, `--cache-percent` and `--ways` ask for, and the cells of a grid.

use super::setting::{Setting, WAYS};
use crate::names::{ADMITTING, PolicyName, PrecisionName, RoundingName, one_of};
use clap::ValueEnum;

/// Values of settings, list by list, as they were given; an empty list was not given.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Lists {
    /// Precisions of the tables
    #[arg(long, value_delimiter = ',', value_parser = one_of(PrecisionName::ALL))]
    pub(crate) precision: Vec<PrecisionName>,
    /// How they round [default: stochastic; in a grid both]
    #[arg(long, value_delimiter = ',', value_parser = one_of(RoundingName::ALL))]
    pub(crate) rounding: Vec<RoundingName>,
    /// Replacement policies of the caches [default: lfu; in a grid both]
    #[arg(long, value_delimiter = ',', value_parser = one_of(ADMITTING))]
    pub(crate) policy: Vec<PolicyName>,
    /// Rows of the caches in percent of the tables' [default: 0; in a grid seven sizes]
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', allow_negative_numbers = true, value_parser = percent)]
    pub(crate) cache_percent: Vec<f64>,
    /// Ways of a set of the caches [default: 32; in a grid 1 and 32, and others for some cells]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) ways: Vec<u32>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("wanted a number from 0 to 100".to_owned()),
    }
}

/// Which cells a grid has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cells {
    /// Those that the claims need: no cache, INT8 with 1 and 5 %, INT4 with 5, 10 and 30 %
    Claims,
    /// Every precision, rounding, policy and cache size
    Full,
}

/// Precisions below FP32.
pub(crate) const LOW: [PrecisionName; 4] =
    [PrecisionName::Fp16, PrecisionName::Int8, PrecisionName::Int4, PrecisionName::Int2];

const ROUNDINGS: [RoundingName; 2] = [RoundingName::Nearest, RoundingName::Stochastic];

const POLICIES: [PolicyName; 2] = [PolicyName::Lru, PolicyName::Lfu];

/// Cache sizes of Yang 2020's tables, in percent of the rows.
const PERCENTS: [f64; 7] = [0.0, 0.1, 1.0, 5.0, 10.0, 30.0, 50.0];

/// Figure 6 of Yang 2020: these ways, at these sizes.
const MORE_WAYS: [u32; 4] = [2, 4, 8, 16];
const MORE_WAYS_PERCENTS: [f64; 4] = [5.0, 10.0, 30.0, 50.0];

impl Lists {
    /// Whether anything was asked for.
    pub(crate) fn any(&self) -> bool {
        let lists =
            [self.precision.len(), self.rounding.len(), self.policy.len(), self.cache_percent.len(), self.ways.len()];
        lists != [0; 5]
    }

    /// Every combination that was asked for, FP32 first; none if nothing was.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        use {PolicyName::Lfu, PrecisionName::Int8, RoundingName::Stochastic};
        if !self.any() {
            return Vec::new();
        }
        distinct(self.product(&[Int8], &[Stochastic], &[Lfu], &[0.0], &[WAYS]))
    }

    /// Every combination; where a list is empty, of what stands here.
    fn product(
        &self,
        precisions: &[PrecisionName],
        roundings: &[RoundingName],
        policies: &[PolicyName],
        percents: &[f64],
        ways: &[u32],
    ) -> Vec<Setting> {
        fn or<T: Copy>(given: &[T], default: &[T]) -> Vec<T> {
            if given.is_empty() { default.to_vec() } else { given.to_vec() }
        }
        let mut settings = Vec::new();
        for precision in or(&self.precision, precisions) {
            for rounding in or(&self.rounding, roundings) {
                for policy in or(&self.policy, policies) {
                    for cache_percent in or(&self.cache_percent, percents) {
                        for ways in or(&self.ways, ways) {
                            settings.push(Setting { precision, rounding, policy, cache_percent, ways });
                        }
                    }
                }
            }
        }
        settings
    }

    /// Whether a cell has nothing that was not asked for.
    fn take(&self, cell: &Setting) -> bool {
        fn has<T: PartialEq>(list: &[T], value: &T) -> bool {
            list.is_empty() || list.contains(value)
        }
        let cache = has(&self.policy, &cell.policy) && has(&self.ways, &cell.ways);
        has(&self.precision, &cell.precision)
            && has(&self.rounding, &cell.rounding)
            && has(&self.cache_percent, &cell.cache_percent)
            && (cache || !cell.has_cache())
    }
}

impl Cells {
    /// The cells, each once, FP32 first: it is what the others are compared with, whatever the lists say.
    pub(crate) fn settings(self, lists: &Lists) -> Vec<Setting> {
        distinct(match self {
            Self::Claims => claims().into_iter().filter(|cell| lists.take(cell)).collect(),
            Self::Full => full(lists),
        })
    }
}

/// FP32, then the others, each once.
fn distinct(settings: Vec<Setting>) -> Vec<Setting> {
    let mut distinct = vec![Setting::FP32];
    for setting in settings.into_iter().map(Setting::plain) {
        if !distinct.contains(&setting) {
            distinct.push(setting);
        }
    }
    distinct
}

fn claims() -> Vec<Setting> {
    let mut cells = Vec::new();
    for precision in LOW {
        cells.extend(ROUNDINGS.map(|rounding| Setting::uncached(precision, rounding)));
    }
    let cached = [
        (PrecisionName::Int8, 1.0),
        (PrecisionName::Int8, 5.0),
        (PrecisionName::Int4, 5.0),
        (PrecisionName::Int4, 10.0),
        (PrecisionName::Int4, 30.0),
    ];
    cells.extend(cached.map(|(precision, cache_percent)| Setting::lfu(precision, cache_percent, WAYS)));
    cells
}

fn full(lists: &Lists) -> Vec<Setting> {
    let mut cells = lists.product(&LOW, &ROUNDINGS, &POLICIES, &PERCENTS, &[WAYS, 1]);
    if lists.ways.is_empty() {
        for precision in [PrecisionName::Int4, PrecisionName::Int2] {
            for cache_percent in MORE_WAYS_PERCENTS {
                let more = MORE_WAYS.map(|ways| Setting::lfu(precision, cache_percent, ways));
                cells.extend(more.iter().filter(|cell| lists.take(cell)));
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_grid_has_every_cell_once() {
        let cells = Cells::Full.settings(&Lists::default());
        // 4 precisions x 2 roundings x (no cache + 2 policies x 2 numbers of ways x 6 sizes), FP32, and Figure 6's
        // 2 precisions x 4 sizes x 4 numbers of ways.
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
        let lists = Lists {
            precision: vec![PrecisionName::Int4],
            rounding: vec![RoundingName::Stochastic],
            ..Lists::default()
        };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 24 + 16);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1 + 3);
        let lists = Lists { policy: vec![PolicyName::Lru], ..lists };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 12);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1, "cells without a cache have no policy");
        let lists = Lists { cache_percent: vec![2.0], ways: vec![4], ..lists };
        let cells = Cells::Full.settings(&lists);
        let asked = Setting { policy: PolicyName::Lru, ..Setting::lfu(PrecisionName::Int4, 2.0, 4) };
        assert_eq!(cells, [Setting::FP32, asked], "sizes and ways of the user's own");
    }
}
