//! Readers of a shared array: the buffers that hold its weights.

use crate::{
    error::Error,
    gpu::{
        engine::context::Context,
        reader::{ReadableBuffers, Reader, RowReader, Shape},
        robe::{Shared, SharedGroup},
    },
    table::params::Mode,
    wgsl::{Sizes, reader::ReaderKind},
};

impl SharedGroup {
    /// Functions with which shaders of your own read rows, and their bindings: one storage buffer for each window of the array.
    ///
    /// # Errors
    /// As [`Group::reader`](crate::Group::reader); an array has no cache, so [`Reader::flushed`] changes nothing, and feedback is refused.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn reader(&self, wanted: Reader<'_>) -> Result<RowReader, Error> {
        if wanted.feedback.is_some() {
            return Err(Error::Reader {
                what: "feedback",
                wanted: "a group of rows".into(),
                found: "a shared array, which lies on the device whole".into(),
                remedy: "leave Reader::feedback unset",
            });
        }
        self.new_reader(&wanted)
    }
}

impl Shared {
    pub(crate) fn readable_buffers(&self, context: &Context) -> ReadableBuffers {
        let array = &self.array;
        let kind = ReaderKind::Shared { plain: array.storage.plain() };
        ReadableBuffers {
            shape: Shape { sizes: Sizes { windows: array.memory.len() as u32, ..Sizes::ONE }, kind },
            buffers: vec![
                ("params", vec![context.uniform(&self.params(Mode::Frozen))]),
                ("robe", vec![context.uniform(&array.robe)]),
                ("window", array.memory.clone()),
            ],
        }
    }
}
