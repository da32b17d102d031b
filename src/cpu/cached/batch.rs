//! A batch, and the check of its indices.

use multiversion::multiversion;

use crate::{
    config::{GroupConfig, OutOfRange},
    cpu::{
        cached::freqs::pass,
        share,
        stages::counters::{count, counter},
    },
    error::Error,
    table::{
        abi::{Feature, NONE, POOL_NONE, Params},
        layout::Layout,
    },
};

const CLAMP: u32 = 1;

/// A batch whose indices are checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    pub(crate) params: &'a Params,
    pub(crate) offsets: &'a [u32],
    /// A weight for each access; empty if the batch has none.
    pub(crate) weights: &'a [f32],
    pub(crate) features: &'a [Feature],
    pub(crate) rows: &'a [u32],
    /// Whether `rows` are the caller's indices, all of them inside their tables; else they are linear rows, or NONE.
    pub(crate) plain: bool,
}

impl Batch<'_> {
    /// Number of output rows.
    pub(crate) fn outputs(&self) -> usize {
        (if self.params.pooling == POOL_NONE { self.params.indices } else { self.params.bags }) as usize
    }

    /// The first access of an output row, or the end of the last one's.
    pub(crate) fn first(&self, output: usize) -> usize {
        if self.params.pooling == POOL_NONE { output } else { self.offsets[output] as usize }
    }

    /// Number of parts into which the batch is cut.
    pub(crate) fn parts(&self) -> usize {
        share::parts(self.rows.len())
    }

    /// Whether the gradients of accesses have factors.
    pub(crate) fn factors(&self) -> bool {
        self.params.has_factors()
    }

    /// The first row of the table that a bag reads, to be added to its indices.
    pub(crate) fn base(&self, bag: usize) -> u32 {
        if self.plain { self.features[bag / self.params.bags_per_feature as usize].base } else { 0 }
    }

    /// Adds the accesses of a training step to the counters of their tables.
    pub(crate) fn count_accesses(&self, layout: &Layout, tables: &mut [u32]) {
        for (feature, accesses) in by_feature(self.params, self.features, self.offsets) {
            let rows = &self.rows[accesses.clone()];
            let valid = if self.plain { rows.len() } else { rows.iter().filter(|&&row| row != NONE).count() };
            count(tables, feature.table, counter::ACCESSES, valid as u32);
            // A table without a row has no access.
            if valid > 0 {
                pass(self.params, layout, feature.base, valid as u32, tables);
            }
        }
    }
}

/// Each feature, with the range of its accesses.
fn by_feature<'a>(
    params: &Params,
    features: &'a [Feature],
    offsets: &'a [u32],
) -> impl Iterator<Item = (&'a Feature, std::ops::Range<usize>)> {
    let each = if params.bags == 0 { 0 } else { params.bags_per_feature as usize };
    features
        .iter()
        .enumerate()
        .map(move |(f, feature)| (feature, offsets[f * each] as usize..offsets[(f + 1) * each] as usize))
}

/// Whether every index lies in its table, and none is padding. The offsets ascend.
pub(crate) fn all_inside(params: &Params, features: &[Feature], offsets: &[u32], indices: &[u32]) -> bool {
    by_feature(params, features, offsets).all(|(feature, accesses)| {
        let indices = &indices[accesses];
        greatest(indices) < feature.rows && !(feature.padded == 1 && indices.contains(&feature.padding))
    })
}

/// The greatest index; 0 if there is none.
#[multiversion(targets = "simd")]
fn greatest(indices: &[u32]) -> u32 {
    indices.iter().fold(0, |most, &index| most.max(index))
}

/// Writes the linear row of each index, NONE for one that is left out; a training step counts padding and the indices outside their tables.
/// Returns whether any index is valid.
///
/// # Errors
/// [`Error::IndexOutOfRange`] for the first index outside its table, if the group refuses such a batch.
pub(crate) fn linear_rows(
    config: &GroupConfig,
    params: &Params,
    (features, offsets, indices): (&[Feature], &[u32], &[u32]),
    tables: &mut [u32],
    rows: &mut [u32],
) -> Result<bool, Error> {
    let (mut refused, mut valid) = (None, false);
    for (feature, accesses) in by_feature(params, features, offsets) {
        let &Feature { table, base, rows: end, .. } = feature;
        let (mut outside, mut padding) = (0, 0);
        for ((row, &index), position) in rows[accesses.clone()].iter_mut().zip(&indices[accesses.clone()]).zip(accesses)
        {
            if feature.pads(index) {
                *row = NONE;
                padding += 1;
                continue;
            }
            *row = match params.out_of_range {
                _ if index < end => base + index,
                CLAMP if !feature.pads(end - 1) => base + end - 1,
                _ => NONE,
            };
            valid |= *row != NONE;
            if index >= end {
                outside += 1;
                refused.get_or_insert((table, position, index));
            }
        }
        if params.trains() {
            count(tables, table, counter::OUT_OF_RANGE, outside);
            count(tables, table, counter::PADDING, padding);
        }
    }
    match refused.filter(|_| config.out_of_range == OutOfRange::Error) {
        None => Ok(valid),
        Some((table, position, value)) => {
            let rows = config.tables[table as usize];
            Err(Error::IndexOutOfRange { table, rows, position: position as u32, value })
        }
    }
}
