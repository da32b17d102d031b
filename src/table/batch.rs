//! Checks of a batch, which both backends make before any row changes.

use crate::{
    config::{GroupConfig, Pooling},
    error::Error,
    table::{
        layout::{Layout, Step},
        step_state::Pending,
    },
};

/// Most indices that a batch may have (SPEC 3).
pub(crate) const MAX_INDICES: u64 = 1 << 30;

/// Checks that the number of bags is a multiple of the features, that there is a weight for each index, and that the
/// batch is not too large.
pub(crate) fn check_shape(config: &GroupConfig, indices: u64, bags: u64, weights: Option<u64>) -> Result<(), Error> {
    let features = config.feature_count();
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

/// Checks a batch given as slices and returns its number of bags.
pub(crate) fn check_slices(
    config: &GroupConfig,
    indices: &[u32],
    offsets: &[u32],
    weights: Option<&[f32]>,
) -> Result<u32, Error> {
    let (indices, bags) = (indices.len() as u64, offsets.len().max(1) as u64 - 1);
    check_shape(config, indices, bags, weights.map(|weights| weights.len() as u64))?;
    check_offsets(indices, offsets)?;
    Ok(bags as u32)
}

/// Checks that `offsets` ascend from 0 to the number of indices.
pub fn check_offsets(indices: u64, offsets: &[u32]) -> Result<(), Error> {
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

/// Checks that the table has each of the linear `rows`. The error names `call`.
pub(crate) fn check_rows(layout: &Layout, rows: &[u32], call: &'static str) -> Result<(), Error> {
    check_length(rows.len() as u64)?;
    match rows.iter().position(|&row| row >= layout.total_rows) {
        None => Ok(()),
        Some(at) => Err(Error::RowOutOfRange { call, rows: layout.total_rows, position: at as u32, row: rows[at] }),
    }
}

/// Returns the error of a step that the device refused; `None` if the step took place.
pub(crate) fn fault(config: &GroupConfig, step: &Step, indices: u32) -> Option<Error> {
    let (position, value, table) = (step.error_position, step.error_value, step.error_table);
    match step.error {
        0 => None,
        2 => Some(Error::BadOffsets { indices, position, value }),
        _ => Some(Error::IndexOutOfRange { table, rows: config.tables[table as usize], position, value }),
    }
}

/// Checks that there is one gradient for each value that the forward returned.
pub(crate) fn check_grads(config: &GroupConfig, forward: Pending, found: usize) -> Result<(), Error> {
    let wanted = u64::from(output_rows(config, forward.indices, forward.bags)) * u64::from(config.dim);
    let found = found as u64;
    if found == wanted { Ok(()) } else { Err(Error::Length { what: "grad_outputs", wanted, found }) }
}

/// Checks that a batch has the shape of the last forward's.
pub(crate) fn check_same(forward: Pending, indices: u64, bags: u64) -> Result<(), Error> {
    let offsets = (u64::from(forward.bags) + 1, bags + 1);
    for (what, (wanted, found)) in [("indices", (u64::from(forward.indices), indices)), ("offsets", offsets)] {
        if wanted != found {
            return Err(Error::Length { what, wanted, found });
        }
    }
    Ok(())
}

/// Checks rows and values to write. Returns the rows, ascending and distinct, with the last value of each.
pub(crate) fn rows_to_write(layout: &Layout, rows: &[u32], values: &[f32]) -> Result<(Vec<u32>, Vec<f32>), Error> {
    check_rows(layout, rows, "write_rows")?;
    let dim = layout.row.dim as usize;
    let (wanted, found) = (rows.len() as u64 * dim as u64, values.len() as u64);
    if found != wanted {
        return Err(Error::Length { what: "values", wanted, found });
    }
    let last = last_of_each(rows);
    let ascending = last.iter().map(|&(row, _)| row).collect();
    let values = last.iter().flat_map(|&(_, at)| &values[at * dim..(at + 1) * dim]).copied().collect();
    Ok((ascending, values))
}

/// Number of floats of a batch's outputs.
pub(crate) fn output_len(config: &GroupConfig, indices: usize, bags: usize) -> usize {
    let rows = if config.pooling == Pooling::None { indices } else { bags };
    rows.saturating_mul(config.dim as usize)
}

/// Checks that the caller's slice is as long as the outputs of a batch of legal shape.
pub(crate) fn check_outputs(config: &GroupConfig, indices: u32, bags: u32, found: usize) -> Result<(), Error> {
    let (wanted, found) = (output_len(config, indices as usize, bags as usize) as u64, found as u64);
    if found == wanted { Ok(()) } else { Err(Error::Length { what: "outputs", wanted, found }) }
}

/// Number of output rows of a batch.
pub(crate) fn output_rows(config: &GroupConfig, indices: u32, bags: u32) -> u32 {
    if config.pooling == Pooling::None { indices } else { bags }
}

/// Returns the distinct rows, ascending, each with the position of its last value.
fn last_of_each(rows: &[u32]) -> Vec<(u32, usize)> {
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
