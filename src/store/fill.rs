//! The first values of a store.

use crate::{
    config::GroupConfig,
    error::Error,
    record::init::Filler,
    source::Source,
    store::{Store, check_shape},
    table::layout::Layout,
};

/// Fills a fresh store, as a group fills one that is not [`Store::filled`]: with the values of `source`, or without a source with initial values by
/// [`GroupConfig::init`]. Rows are packed on all cores, chunk by chunk. For a table of zeros nothing is written, so that a sparse file
/// keeps its holes.
///
/// # Errors
/// [`Error::Config`] for an illegal configuration; [`Error::Store`] if the store has another shape, or refuses; the errors of `source`; [`Error::Source`] for the first row with a value
/// that is not finite. After an error the store is not [`Store::filled`].
#[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
pub fn fill(store: &mut dyn Store, config: &GroupConfig, source: Option<&dyn Source>) -> Result<(), Error> {
    let layout = &Layout::new(config, u64::MAX)?;
    check_shape(store, layout)?;
    let filler = Filler::new(config, layout, source)?;
    if !filler.zeros() {
        let rows = 0..layout.total_rows;
        filler.chunks(rows, |first_row, words| store.write_range(first_row, bytemuck::cast_slice(words)))?;
    }
    store.flushed(0)
}
