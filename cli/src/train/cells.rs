//! The cells of a grid.

use super::setting::{Setting, WAYS};
use crate::names::{PolicyName, PrecisionName, RoundingName};
use clap::ValueEnum;

/// Which cells a grid has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cells {
    /// Those that the claims need: no cache, INT8 with 1 and 5 %, INT4 with 5, 10 and 30 %
    Claims,
    /// Every precision, rounding, policy and cache size
    Full,
}

/// Cache sizes of P1's tables, in percent of the rows.
const PERCENTS: [f64; 7] = [0.0, 0.1, 1.0, 5.0, 10.0, 30.0, 50.0];

/// P1's Figure 6: these ways, at these sizes.
const MORE_WAYS: [u32; 4] = [2, 4, 8, 16];
const MORE_WAYS_PERCENTS: [f64; 4] = [5.0, 10.0, 30.0, 50.0];

/// What the user asked for, list by list; `None` where nothing was said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lists {
    pub(crate) precisions: Option<Vec<PrecisionName>>,
    pub(crate) roundings: Option<Vec<RoundingName>>,
    pub(crate) policies: Option<Vec<PolicyName>>,
    pub(crate) percents: Option<Vec<f64>>,
    pub(crate) ways: Option<Vec<u32>>,
}

impl Cells {
    /// The cells, each once, FP32 first: it is what the others are compared with, whatever the lists say.
    pub(crate) fn settings(self, lists: &Lists) -> Vec<Setting> {
        let mut cells = vec![Setting::FP32];
        let wanted = match self {
            Self::Claims => claims().into_iter().filter(|cell| lists.take(cell)).collect(),
            Self::Full => full(lists),
        };
        for cell in wanted.into_iter().map(Setting::plain) {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }
}

impl Lists {
    /// Whether a cell has nothing that was not asked for.
    fn take(&self, cell: &Setting) -> bool {
        fn has<T: PartialEq>(list: Option<&Vec<T>>, value: &T) -> bool {
            list.is_none_or(|list| list.contains(value))
        }
        let cache = has(self.policies.as_ref(), &cell.policy) && has(self.ways.as_ref(), &cell.ways);
        has(self.precisions.as_ref(), &cell.precision)
            && has(self.roundings.as_ref(), &cell.rounding)
            && has(self.percents.as_ref(), &cell.cache_percent)
            && (cache || !cell.has_cache())
    }
}

/// Precisions of the tables' columns.
pub(crate) const LOW: [PrecisionName; 4] =
    [PrecisionName::Fp16, PrecisionName::Int8, PrecisionName::Int4, PrecisionName::Int2];

const ROUNDINGS: [RoundingName; 2] = [RoundingName::Nearest, RoundingName::Stochastic];

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
    cells.extend(cached.map(|(precision, cache_percent)| lfu(precision, cache_percent, WAYS)));
    cells
}

/// Under LFU, rounded stochastically.
const fn lfu(precision: PrecisionName, cache_percent: f64, ways: u32) -> Setting {
    Setting { precision, rounding: RoundingName::Stochastic, policy: PolicyName::Lfu, cache_percent, ways }
}

fn full(lists: &Lists) -> Vec<Setting> {
    let percents = lists.percents.clone().unwrap_or_else(|| PERCENTS.to_vec());
    let policies = lists.policies.clone().unwrap_or_else(|| vec![PolicyName::Lru, PolicyName::Lfu]);
    let ways = lists.ways.clone().unwrap_or_else(|| vec![WAYS, 1]);
    let mut cells = Vec::new();
    for precision in lists.precisions.clone().unwrap_or_else(|| LOW.to_vec()) {
        for rounding in lists.roundings.clone().unwrap_or_else(|| ROUNDINGS.to_vec()) {
            for &policy in &policies {
                for &ways in &ways {
                    for &cache_percent in &percents {
                        cells.push(Setting { precision, rounding, policy, cache_percent, ways });
                    }
                }
            }
        }
    }
    if lists.ways.is_none() {
        for precision in [PrecisionName::Int4, PrecisionName::Int2] {
            for cache_percent in MORE_WAYS_PERCENTS {
                cells
                    .extend(MORE_WAYS.map(|ways| lfu(precision, cache_percent, ways)).iter().filter(|c| lists.take(c)));
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
            precisions: Some(vec![PrecisionName::Int4]),
            roundings: Some(vec![RoundingName::Stochastic]),
            ..Lists::default()
        };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 24 + 16);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1 + 3);
        let lists = Lists { policies: Some(vec![PolicyName::Lru]), ..lists };
        assert_eq!(Cells::Full.settings(&lists).len(), 1 + 1 + 12);
        assert_eq!(Cells::Claims.settings(&lists).len(), 1 + 1, "cells without a cache have no policy");
        let lists = Lists { percents: Some(vec![2.0]), ways: Some(vec![4]), ..lists };
        let cells = Cells::Full.settings(&lists);
        let asked = Setting { policy: PolicyName::Lru, ..lfu(PrecisionName::Int4, 2.0, 4) };
        assert_eq!(cells, [Setting::FP32, asked], "sizes and ways of the user's own");
    }
}
