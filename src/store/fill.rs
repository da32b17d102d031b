//! The first values of a store.

use crate::{
    config::GroupConfig,
    error::Error,
    record::init::Filler,
    source::Source,
    store::{Store, check_shape},
    table::layout::Layout,
};

/// Fills a fresh store, as a group does with one that is not [`Store::filled`]: with `source`'s values, or without one with
/// those of [`GroupConfig::init`]. Made packed, on all cores, chunk by chunk; of a table of zeros nothing is written: a sparse
/// file keeps its holes.
///
/// # Errors
/// [`Error::Store`] if the store is of another shape, or refuses; what `source` says; [`Error::Source`] for the first row with a value
/// that is not finite. The store is not [`Store::filled`] then.
pub fn fill(
    store: &mut dyn Store,
    config: &GroupConfig,
    layout: &Layout,
    source: Option<&dyn Source>,
) -> Result<(), Error> {
    check_shape(store, layout)?;
    let filler = Filler::new(config, layout, source)?;
    if !filler.zeros() {
        let rows = 0..layout.total_rows;
        filler.chunks(rows, |first_row, words| store.write_range(first_row, bytemuck::cast_slice(words)))?;
    }
    store.flushed(0)
}
