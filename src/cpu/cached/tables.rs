//! The state that a group keeps between steps.

use crate::{
    config::GroupConfig,
    cpu::cached::freqs::Freqs,
    error::Error,
    host::{
        alloc::{check, zeroed},
        pages::Pages,
    },
    record::init::Filler,
    source::Source,
    table::{
        abi::{Feature, NONE, features, table_words},
        layout::Layout,
    },
};

/// What a group keeps from step to step.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    pub(crate) tables: Vec<u32>,
    pub(crate) features: Vec<Feature>,
    pub(crate) ways: Vec<u32>,
    pub(crate) cache: Pages<f32>,
    /// The records of all rows.
    pub(crate) records: Pages<u32>,
    pub(crate) freqs: Freqs,
}

impl Tables {
    pub(crate) fn new(config: &GroupConfig, layout: Layout, source: Option<&dyn Source>) -> Result<Self, Error> {
        check("records", layout.table_bytes() + Freqs::bytes(config))?;
        let (ways, cache) = new_cache(&layout)?;
        let filler = Filler::new(config, &layout, source)?;
        let mut records = Pages::zeroed("records", layout.total_rows as usize * layout.row.record_words as usize)?;
        filler.pack(0, &mut records)?;
        let freqs = Freqs::new(config)?;
        let (tables, features) = (table_words(config), features(config));
        Ok(Self { layout, tables, features, ways, cache, records, freqs })
    }
}

/// The metadata of empty ways, and their slots.
pub(crate) fn new_cache(layout: &Layout) -> Result<(Vec<u32>, Pages<f32>), Error> {
    let slots = layout.slots() as usize;
    let mut ways = zeroed("ways", slots * 4)?;
    empty(layout, &mut ways);
    Ok((ways, Pages::zeroed("cache", slots * layout.slot_words() as usize)?))
}

/// Empties every way.
pub(crate) fn empty(layout: &Layout, ways: &mut [u32]) {
    let width = layout.ways as usize;
    for (number, set) in (0..).zip(ways.chunks_exact_mut(4 * width)) {
        let (tags, rest) = set.split_at_mut(width);
        tags.fill(NONE);
        rest.fill(0);
        (0..).zip(&mut rest[2 * width..]).for_each(|(way, flags)| *flags = layout.empty_flags(number, way));
    }
}
