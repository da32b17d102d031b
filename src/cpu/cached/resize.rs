//! Gives a group on the CPU a cache of another size.

use crate::{
    config::GroupConfig,
    cpu::cached::{
        group::{CpuGroup, PIECE_BYTES},
        tables::new_cache,
    },
    error::Error,
    lookup::Embedding,
    table::layout::Layout,
};

impl CpuGroup {
    /// `Embedding::resize_cache`, with no step under way.
    pub(crate) fn resize(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        let config = GroupConfig { cache_rows, ..self.config.clone() };
        let layout = Layout::new(&config, PIECE_BYTES)?;
        let (ways, cache) = new_cache(&layout)?;
        self.flush()?;
        let pinned = self.pinned()?;
        (self.tables.ways, self.tables.cache) = (ways, cache);
        (self.tables.layout, self.config) = (layout, config);
        if cache_rows == 0 {
            return Ok(pinned);
        }
        self.pin_rows(&pinned, self.tables.layout.ways)
    }
}
