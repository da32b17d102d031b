//! A cache of another size on the CPU.

use super::{Group, group::SHARD_BYTES, tables::new_cache};
use crate::{Embedding as _, Error, GroupConfig, Layout};

impl Group {
    /// `Embedding::resize_cache`, with no step under way.
    pub(super) fn resize(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        let config = GroupConfig { cache_rows, ..self.config.clone() };
        let layout = Layout::new(&config, SHARD_BYTES)?;
        let (ways, cache) = new_cache(&layout)?;
        self.flush()?;
        let pinned = self.pinned()?;
        (self.tables.ways, self.tables.cache) = (ways, cache);
        (self.tables.layout, self.config, self.flush) = (layout, config, None);
        if cache_rows == 0 {
            return Ok(pinned);
        }
        self.pin_rows(&pinned, self.tables.layout.ways)
    }
}
