//! Checks of a batch that both backends make before anything moves.

use crate::{Error, GroupConfig, Layout, Pooling};

/// Most indices a batch may have (SPEC 3).
pub(crate) const MAX_INDICES: u64 = 1 << 30;

/// Checks the shape of a batch: bags against features, weights against indices, size.
pub(crate) fn check_shape(config: &GroupConfig, indices: u64, bags: u64, weights: Option<u64>) -> Result<(), Error> {
    let features = if config.features.is_empty() { config.tables.len() } else { config.features.len() } as u32;
    check_length(indices)?;
    if bags >= 1 << 32 || !bags.is_multiple_of(u64::from(features)) {
        return Err(Error::Bags { features, bags: bags.min(u64::from(u32::MAX)) as u32 });
    }
    if let Some(found) = weights
        && found != indices
    {
        return Err(Error::Length { what: "weights", wanted: indices, found });
    }
    Ok(())
}

fn check_length(indices: u64) -> Result<(), Error> {
    if indices > MAX_INDICES {
        let (wanted, limit) = (indices * 4, MAX_INDICES * 4);
        return Err(Error::TooLarge { what: "batch", wanted, limit, remedy: "split the batch" });
    }
    Ok(())
}

/// Offsets ascend from 0 to the number of indices.
pub(crate) fn check_offsets(indices: u64, offsets: &[u32]) -> Result<(), Error> {
    if offsets.is_empty() {
        return Err(Error::Length { what: "offsets", wanted: 1, found: 0 });
    }
    let last = offsets.len() - 1;
    let bad = (0..=last).find(|&i| {
        u64::from(offsets[i]) > indices
            || (i == 0 && offsets[0] != 0)
            || (i == last && u64::from(offsets[i]) != indices)
            || (i < last && offsets[i] > offsets[i + 1])
    });
    match bad {
        None => Ok(()),
        Some(i) => Err(Error::BadOffsets { indices: indices as u32, position: i as u32, value: offsets[i] }),
    }
}

/// Linear rows given by the caller exist.
pub(crate) fn check_rows(layout: &Layout, rows: &[u32]) -> Result<(), Error> {
    check_length(rows.len() as u64)?;
    match rows.iter().position(|&row| row >= layout.total_rows) {
        None => Ok(()),
        Some(position) => Err(Error::IndexOutOfRange {
            table: 0,
            rows: layout.total_rows,
            position: position as u32,
            value: rows[position],
        }),
    }
}

/// Output rows of a batch.
pub(crate) fn output_rows(config: &GroupConfig, indices: u32, bags: u32) -> u32 {
    if config.pooling == Pooling::None { indices } else { bags }
}

/// Ascending distinct rows with, for each, the place of its last value.
pub(crate) fn last_of_each(rows: &[u32]) -> Vec<(u32, usize)> {
    let mut places: Vec<(u32, usize)> = rows.iter().copied().zip(0..).collect();
    places.sort_unstable();
    let mut last: Vec<(u32, usize)> = Vec::with_capacity(places.len());
    for (row, place) in places {
        match last.last_mut() {
            Some(end) if end.0 == row => end.1 = place,
            _ => last.push((row, place)),
        }
    }
    last
}
