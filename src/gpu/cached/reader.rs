//! Readers of a cached group: the buffers that hold its rows.

use crate::{
    error::Error,
    gpu::{
        cached::group::{Group, Rows},
        engine::context::Context,
        reader::{ReadableBuffers, Reader, RowReader, Shape},
    },
    table::{abi::Params, params::Mode, rng::Purpose},
    wgsl::{Sizes, reader::ReaderKind},
};

impl Group {
    /// Functions with which shaders of your own read rows, and their bindings. A reader of a table on the device, or mapped, reads a cached
    /// row from its slot and any other row from its record. A reader of a staged table reads the cache alone.
    ///
    /// # Errors
    /// [`Error::Reader`] for a prefix that is no identifier, a bind group above the device's limit, a staged table without a cache or with
    /// [`Reader::flushed`], feedback of a group that admits no rows; [`Error::Unsupported`] if a stage cannot bind as many storage buffers: one for
    /// the tags, one for each window of
    /// the cache, one for each piece of the table.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn reader(&self, wanted: Reader<'_>) -> Result<RowReader, Error> {
        if self.kind.storage.is_staged() && (wanted.flushed || self.kind.tables.layout.sets == 0) {
            return Err(Error::Reader {
                what: "a staged table",
                wanted: "a cache, and Reader::flushed unset: the host has the records".into(),
                found: format!("{} cache rows, flushed {}", self.kind.config.cache_rows, wanted.flushed),
                remedy: "give the group cache rows, or another placement",
            });
        }
        self.check_feedback(wanted.feedback, wanted.flushed)?;
        self.new_reader(&wanted)
    }
}

impl Rows {
    pub(crate) fn readable_buffers(&self, context: &Context) -> ReadableBuffers {
        let tables = &self.tables;
        let layout = &tables.layout;
        let table = !self.storage.is_staged();
        let sizes = Sizes {
            width: layout.width(),
            windows: layout.windows(),
            pieces: if table { layout.pieces } else { 1 },
            item: if table { layout.row.item() } else { 1 },
            format: layout.row.precision.format().shader,
            ..Sizes::ONE
        };
        let params = Params::new(&self.config, layout, Mode::Frozen, Purpose::WriteBack);
        let kind = ReaderKind::Rows { cache: layout.sets > 0, shares: !layout.shares.is_empty(), table };
        let mut buffers = vec![
            ("params", vec![context.uniform(&params)]),
            ("shares", vec![tables.shares.clone()]),
            ("ways", vec![tables.ways.clone()]),
            ("cache", tables.cache.buffers().to_vec()),
        ];
        if table {
            let piece = layout.neighbours(0, layout.pieces, 0);
            buffers.extend([("piece", vec![context.uniform(&piece)]), ("records", tables.records.clone())]);
        }
        ReadableBuffers { shape: Shape { sizes, kind }, buffers }
    }
}
