//! Checks of a batch, which both backends make before any row changes.

use crate::{
    config::{GroupConfig, Pooling},
    error::Error,
    table::{abi::Step, layout::Layout, step_state::Pending},
};

/// Most indices that a batch may have (SPEC 3).
pub(crate) const MAX_INDICES: u64 = 1 << 30;

/// A batch in the host's memory: rows, and how they fall into bags. An index counts within its table. The bags come feature by feature, the
/// same number for each.
///
/// ```
/// use hotrow::{Bags, CpuGroup, GroupConfig, Init, Mode, prelude::*};
///
/// let mut group = CpuGroup::new(GroupConfig::new(&[10], 1).with_init(Init::Constant(1.0)))?;
/// let two = Bags::new(&[3, 7, 3], &[0, 2, 3]); // rows 3 and 7, and row 3 alone
/// assert_eq!(group.forward(two, Mode::Train)?, [2.0, 1.0]);
/// let weighted = two.with_weights(Some(&[0.5, 0.25, 2.0]));
/// assert_eq!(group.forward(weighted, Mode::Frozen)?, [0.75, 2.0]);
/// # Ok::<(), hotrow::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bags<'a> {
    /// The rows.
    pub indices: &'a [u32],
    /// Where each bag begins among the indices; one more entry is their number.
    pub offsets: &'a [u32],
    /// A factor for each index; `None` stands for 1.
    pub weights: Option<&'a [f32]>,
}

impl<'a> Bags<'a> {
    /// Bags without weights.
    #[must_use]
    pub const fn new(indices: &'a [u32], offsets: &'a [u32]) -> Self {
        Self { indices, offsets, weights: None }
    }

    /// The same bags with these weights.
    #[must_use]
    pub const fn with_weights(self, weights: Option<&'a [f32]>) -> Self {
        Self { weights, ..self }
    }
}

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

/// Checks the shape of a batch, and the number of its outputs, as a forward does before it looks at an index.
///
/// # Errors
/// [`Error::Bags`], [`Error::Length`], [`Error::BadOffsets`], [`Error::TooLarge`].
#[cfg(feature = "ranks")]
pub fn check_batch(config: &GroupConfig, bags: Bags<'_>, outputs: usize) -> Result<(), Error> {
    let count = check_slices(config, bags)?;
    check_outputs(config, bags.indices.len() as u32, count, outputs)
}

/// Checks a batch given as slices and returns its number of bags.
pub(crate) fn check_slices(config: &GroupConfig, bags: Bags<'_>) -> Result<u32, Error> {
    let Bags { indices, offsets, weights } = bags;
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
pub fn check_rows(layout: &Layout, rows: &[u32], call: &'static str) -> Result<(), Error> {
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
    // A value that the format cannot hold becomes one that both backends refuse. A slot could hold it, but the row could not be packed when it leaves.
    let most = layout.row.precision.format().most;
    let storable = |x: &f32| if x.abs() <= most { *x } else { f32::NAN };
    let values = last.iter().flat_map(|&(_, at)| &values[at * dim..(at + 1) * dim]).map(storable).collect();
    Ok((ascending, values))
}

/// Number of floats of a batch's outputs.
pub fn output_len(config: &GroupConfig, indices: usize, bags: usize) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two features, rows of two weights.
    fn config() -> GroupConfig {
        GroupConfig::new(&[5, 15], 2)
    }

    fn length(what: &'static str, wanted: u64, found: u64) -> Result<(), Error> {
        Err(Error::Length { what, wanted, found })
    }

    #[test]
    fn a_shape_is_checked_to_its_last_bag_and_index() {
        let check = |indices, bags, weights| check_shape(&config(), indices, bags, weights);
        let most_bags = (1 << 32) - 2;
        for (indices, bags, weights) in
            [(0, 0, None), (10, 4, None), (10, 4, Some(10)), (0, 0, Some(0)), (MAX_INDICES, most_bags, None)]
        {
            assert_eq!(check(indices, bags, weights), Ok(()), "{indices} {bags} {weights:?}");
        }
        assert_eq!(check(10, 3, None), Err(Error::Bags { features: 2, bags: 3 }));
        for bags in [1 << 32, (1 << 32) + 2, 1 << 40] {
            assert_eq!(check(10, bags, None), Err(Error::Bags { features: 2, bags: u32::MAX }));
        }
        assert_eq!(check(10, 4, Some(9)), length("weights", 10, 9));
        assert_eq!(check(10, 4, Some(11)), length("weights", 10, 11));
        let (wanted, limit) = (4 * MAX_INDICES + 4, 4 << 30);
        let large = Error::TooLarge { what: "batch", wanted, limit, remedy: "split the batch" };
        assert_eq!(check(MAX_INDICES + 1, 4, None), Err(large));
    }

    #[test]
    fn slices_have_a_bag_fewer_than_offsets() {
        let check =
            |indices: &[u32], offsets: &[u32], weights| check_slices(&config(), Bags { indices, offsets, weights });
        assert_eq!(check(&[1, 2, 3], &[0, 1, 3], None), Ok(2));
        assert_eq!(check(&[1, 2, 3], &[0, 1, 2, 3, 3], Some(&[1.0; 3])), Ok(4));
        assert_eq!(check(&[], &[0], None), Ok(0));
        assert_eq!(check(&[], &[], None).map(drop), length("offsets", 1, 0));
        assert_eq!(check(&[1], &[0, 1], None), Err(Error::Bags { features: 2, bags: 1 }));
        assert_eq!(check(&[1, 2], &[0, 1, 2], Some(&[1.0])).map(drop), length("weights", 2, 1));
        let bad = Error::BadOffsets { indices: 2, position: 2, value: 1 };
        assert_eq!(check(&[1, 2], &[0, 1, 1], None), Err(bad));
    }

    #[test]
    fn the_first_bad_offset_is_named() {
        for good in [&[0, 3][..], &[0, 0, 3], &[0, 1, 1, 3], &[0, 3, 3]] {
            assert_eq!(check_offsets(3, good), Ok(()), "{good:?}");
        }
        assert_eq!(check_offsets(0, &[0]), Ok(()));
        assert_eq!(check_offsets(3, &[]), length("offsets", 1, 0));
        let bad: [(&[u32], u32); 7] = [
            (&[1, 3], 0),
            (&[0, 2, 1, 3], 1),
            // Too large, though a larger one follows.
            (&[0, 5, 7], 1),
            (&[0, 4], 1),
            (&[0, 1, 2], 2),
            (&[0], 0),
            (&[4], 0),
        ];
        for (offsets, position) in bad {
            let wanted = Error::BadOffsets { indices: 3, position, value: offsets[position as usize] };
            assert_eq!(check_offsets(3, offsets), Err(wanted), "{offsets:?}");
        }
    }

    #[test]
    fn rows_beyond_the_tables_are_named() {
        let layout = Layout::new(&config(), u64::MAX).unwrap();
        assert_eq!(check_rows(&layout, &[0, 19, 19], "read_rows"), Ok(()));
        let wanted = Error::RowOutOfRange { call: "read_rows", rows: 20, position: 1, row: 20 };
        assert_eq!(check_rows(&layout, &[0, 20, 21], "read_rows"), Err(wanted));
    }

    #[test]
    fn what_the_device_refused_becomes_its_error() {
        let step = |error| Step { error, error_position: 3, error_value: 17, error_table: 1, ..Step::default() };
        assert_eq!(fault(&config(), &step(0), 9), None);
        let index = Error::IndexOutOfRange { table: 1, rows: 15, position: 3, value: 17 };
        assert_eq!(fault(&config(), &step(1), 9), Some(index));
        let offsets = Error::BadOffsets { indices: 9, position: 3, value: 17 };
        assert_eq!(fault(&config(), &step(2), 9), Some(offsets));
    }

    #[test]
    fn outputs_and_gradients_are_as_long_as_the_pooling_says() {
        let forward = Pending { indices: 7, bags: 4, weighted: false, space: 0, forward_only: false, number: 0 };
        for (pooling, rows) in [(Pooling::Sum, 4), (Pooling::Mean, 4), (Pooling::None, 7)] {
            let config = config().with_pooling(pooling);
            assert_eq!((output_rows(&config, 7, 4), output_len(&config, 7, 4)), (rows, 2 * rows as usize));
            assert_eq!(check_grads(&config, forward, 2 * rows as usize), Ok(()));
            assert_eq!(check_outputs(&config, 7, 4, 2 * rows as usize), Ok(()));
            for found in [2 * rows as usize - 1, 2 * rows as usize + 1, 0] {
                let (wanted, of) = (2 * u64::from(rows), found as u64);
                assert_eq!(check_grads(&config, forward, found), length("grad_outputs", wanted, of));
                assert_eq!(check_outputs(&config, 7, 4, found), length("outputs", wanted, of));
            }
        }
        let none = config().with_pooling(Pooling::None);
        assert_eq!(output_len(&none, usize::MAX, 0), usize::MAX, "saturates");
    }

    #[test]
    fn a_batch_of_another_shape_is_named() {
        let forward = Pending { indices: 7, bags: 4, weighted: false, space: 0, forward_only: false, number: 0 };
        assert_eq!(check_same(forward, 7, 4), Ok(()));
        assert_eq!(check_same(forward, 8, 4), length("indices", 7, 8));
        assert_eq!(check_same(forward, 7, 5), length("offsets", 5, 6));
        assert_eq!(check_same(forward, 6, 3), length("indices", 7, 6));
    }

    #[test]
    fn the_last_value_of_a_row_is_written() {
        let layout = Layout::new(&config(), u64::MAX).unwrap();
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let found = rows_to_write(&layout, &[9, 2, 9, 0], &values);
        assert_eq!(found, Ok((vec![0, 2, 9], vec![7.0, 8.0, 3.0, 4.0, 5.0, 6.0])));
        assert_eq!(rows_to_write(&layout, &[], &[]), Ok((vec![], vec![])));
        assert_eq!(rows_to_write(&layout, &[9, 2], &values[..3]).map(drop), length("values", 4, 3));
        let row = Error::RowOutOfRange { call: "write_rows", rows: 20, position: 0, row: 20 };
        assert_eq!(rows_to_write(&layout, &[20], &values[..2]), Err(row));
        assert_eq!(last_of_each(&[3, 1, 3, 3]), [(1, 1), (3, 3)]);
    }
}
