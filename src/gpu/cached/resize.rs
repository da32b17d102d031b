//! Gives a group on a device a cache of another size.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        cached::group::Group,
        stages::cached::tables::{Tables, new_cache, new_shares},
    },
    table::{layout::Layout, parts::Part, pins},
};

impl Group {
    /// `Embedding::resize_cache`, with no step under way.
    pub(crate) fn resize(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        let config = GroupConfig { cache_rows, ..self.kind.config.clone() };
        let context = self.context.clone();
        let layout = Layout::new(&config, context.caps().choose_piece_bytes())?;
        context.caps().check_cache(&layout)?;
        Tables::prepare(&context, &config, &layout)?;
        let ((ways, cache), shares) = (new_cache(&context, &layout)?, new_shares(&context, &layout)?);
        self.block_on(async |this| this.flushed().await)?;
        let now = self.part(Part::Ways)?;
        let pinned = pins::pinned(&self.kind.tables.layout, &now);
        (self.kind.tables.ways, self.kind.tables.cache, self.kind.tables.shares) = (ways, cache, shares);
        (self.kind.tables.layout, self.kind.config, self.kind.flush) = (layout, config, None);
        self.kind.storage.resized(&self.kind.tables.layout, self.kind.config.policy);
        context.forget_bindings();
        self.renew_readers();
        if cache_rows == 0 {
            return Ok(pinned);
        }
        self.pin_rows(&pinned, self.kind.tables.layout.ways)
    }
}
