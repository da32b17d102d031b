//! The calls of a group that take host slices. Each uploads, submits and waits.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        cached::{forward::swaps, group::Group},
        engine::{
            bind_cache::passing,
            call::{Call, Groups, Named},
        },
        stages::{ASSIGN, cached::exchange},
        upload::new_outputs,
    },
    host::alloc::zeroed,
    lookup::{Embedding, Lookup, outputs::OutputSlice},
    table::{
        abi::Rate,
        batch::{self, Bags},
        layout::Layout,
        params::Mode,
        parts::Part,
        pins,
        step_state::no_prefetch,
    },
};

impl Embedding for Group {
    fn config(&self) -> &GroupConfig {
        &self.kind.config
    }

    fn layout(&self) -> &Layout {
        &self.kind.tables.layout
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn prefetch(&mut self, bags: Bags<'_>) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            self.not_prefetched("prefetch")?;
            if self.reports.recorded() {
                self.waiting(Some("prefetch"), |_| Ok(()))?;
            }
            let batch = self.uploaded(bags)?;
            let mut encoder = self.encoder();
            self.decide(&mut encoder, &batch.batch())?;
            let after = self.context.submit(encoder);
            self.fetch_meanwhile(after);
            Ok(())
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        self.waiting(Some("forward_prefetched"), |this| {
            let (indices, bags) = this.prefetched_shape().ok_or_else(no_prefetch)?;
            let buffer = new_outputs(&this.context, &this.kind.config, indices, bags)?;
            let mut outputs = zeroed("outputs", this.output_len(indices as usize, bags as usize))?;
            this.fetch(None)?;
            let mut encoder = this.encoder();
            this.carry(&mut encoder, buffer.slice(..))?;
            let slice = &mut OutputSlice::F32(&mut outputs);
            this.block_on(async |this| this.await_outputs(encoder, &buffer, Mode::Train, indices, slice).await)?;
            Ok(outputs)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn flush(&mut self) -> Result<(), Error> {
        self.block_on(async |this| this.flush_async().await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn reset(&mut self) -> Result<(), Error> {
        self.not_prefetched("reset")?;
        self.waiting(Some("reset"), |this| {
            this.state.not_pending("reset")?;
            this.block_on(async |this| this.flushed().await)?;
            let mut encoder = this.encoder();
            this.encode_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn reset_discarding(&mut self) -> Result<(), Error> {
        self.not_prefetched("reset")?;
        self.waiting(Some("reset_discarding"), |this| {
            let mut encoder = this.encoder();
            this.encode_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        self.not_prefetched("write_rows")?;
        self.waiting(Some("write_rows"), |this| {
            this.state.not_pending("write_rows")?;
            let (ascending, values) = batch::rows_to_write(&this.kind.tables.layout, rows, values)?;
            if rows.is_empty() {
                return Ok(());
            }
            let values = this.context.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = this.encoder();
            let (params, most) = this.block_on(async |this| this.encode_rows(&mut encoder, &ascending, None).await)?;
            let Some(space) = &this.kind.frozen else { return Ok(()) };
            let (context, tables, storage) = (&this.context, &this.kind.tables, &mut this.kind.storage);
            storage.unflushed()?;
            let records = storage.pack(context, &mut encoder, most)?;
            let (uniform, rate) = (context.uniform(&params), context.uniform(&Rate::new(&this.kind.config.optimizer)));
            let mut call = Call::begin(context, &mut encoder, "hotrow.write_rows");
            let from: &[&dyn Named] =
                &[&("params", &uniform), &("rate", &rate), &("values", passing(&values)), tables, space];
            call.run_rows(&ASSIGN, from, (tables, &params), &Groups::of(params.indices, tables.layout.at_once()));
            exchange::encode(&mut call, &params, tables, &swaps(space, most, records), exchange::Phases::Pack);
            drop(call);
            context.block_on(storage.write_back(context, encoder, most))
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        self.not_prefetched("pin")?;
        self.waiting(Some("pin"), |this| {
            this.state.not_pending("pin")?;
            batch::check_rows(&this.kind.tables.layout, rows, "pin")?;
            pins::check_padding(&this.kind.config, rows)?;
            this.pin_rows(rows, ways)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn pinned(&mut self) -> Result<Vec<u32>, Error> {
        self.not_prefetched("pinned")?;
        self.waiting(None, |this| {
            let ways = this.part(Part::Ways)?;
            Ok(pins::pinned(&this.kind.tables.layout, &ways))
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        self.not_prefetched("resize_cache")?;
        self.waiting(Some("resize_cache"), |this| {
            this.state.not_pending("resize_cache")?;
            this.resize(cache_rows)
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        self.block_on(async |this| this.read_part_async(part, first_word, out).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        self.not_prefetched("write_part")?;
        self.waiting(Some("write_part"), |this| this.write_words(part, first_word, words))
    }
}
