//! The calls of a group that take host slices. Each uploads, submits and waits.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        cached::{forward::moves, group::Group},
        engine::{
            bind_cache::passing,
            call::{Call, Groups, Named},
        },
        front::Kind,
        slices::{OutputSlice, new_outputs},
        stages::{
            ASSIGN,
            cached::exchange::{self, Records},
        },
    },
    host::alloc::zeroed,
    lookup::{Embedding, Lookup},
    table::{batch, layout::Layout, params::Mode, parts::Part, pins, step_state::no_prefetch},
};

impl Embedding for Group {
    fn config(&self) -> &GroupConfig {
        &self.config
    }

    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn prefetch(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.guarded(|| {
            self.check()?;
            self.front.not_prefetched("prefetch")?;
            let batch = self.uploaded(indices, offsets, weights)?;
            let mut encoder = self.encoder();
            self.decide(&mut encoder, &batch.batch())?;
            let after = self.front.context.submit(encoder);
            self.fetch_meanwhile(after);
            Ok(())
        })
    }

    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            let (indices, bags) = this.prefetched_shape().ok_or_else(no_prefetch)?;
            let buffer = new_outputs(&this.front.context, &this.config, indices, bags)?;
            let mut outputs = zeroed("outputs", this.output_len(indices as usize, bags as usize))?;
            this.fetch(None)?;
            let mut encoder = this.encoder();
            this.carry(&mut encoder, buffer.slice(..))?;
            let context = this.front.context.clone();
            context.block_on(this.await_outputs(
                encoder,
                &buffer,
                Mode::Train,
                indices,
                &mut OutputSlice::F32(&mut outputs),
            ))?;
            Ok(outputs)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.block_on(self.flush_async())
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.front.not_prefetched("reset")?;
        self.waiting(|this| {
            this.front.state.not_pending("reset")?;
            let context = this.front.context.clone();
            context.block_on(this.flushed())?;
            let mut encoder = this.encoder();
            this.record_reset_discarding(&mut encoder)?;
            this.front.context.finish(encoder)
        })
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        self.front.not_prefetched("reset")?;
        self.waiting(|this| {
            let mut encoder = this.encoder();
            this.record_reset_discarding(&mut encoder)?;
            this.front.context.finish(encoder)
        })
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        self.front.not_prefetched("write_rows")?;
        self.waiting(|this| {
            this.front.state.not_pending("write_rows")?;
            let (ascending, values) = batch::rows_to_write(&this.tables.layout, rows, values)?;
            if rows.is_empty() {
                return Ok(());
            }
            let values = this.front.context.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = this.encoder();
            let context = this.front.context.clone();
            let (params, most) = context.block_on(this.record_rows(&mut encoder, &ascending, None))?;
            let Some(space) = &this.frozen else { return Ok(()) };
            let side_flight = match &mut this.staged {
                None => None,
                Some(staged) => {
                    staged.unflushed()?;
                    Some(staged.pack_side_flight(&this.front.context, &mut encoder, &this.tables, (0, most), most)?)
                }
            };
            let records = side_flight.as_ref().map_or(Records::Table, |side_flight| side_flight.records());
            let uniform = this.front.context.uniform(&params);
            let mut call = Call::begin(&this.front.context, &mut encoder, "hotrow.write_rows");
            let tables = &this.tables;
            let from: &[&dyn Named] = &[&("params", &uniform), &("values", passing(&values)), tables, space];
            call.run_rows(&ASSIGN, from, tables, &Groups::of(params.indices, tables.layout.at_once()));
            exchange::record(&mut call, &uniform, tables, &moves(space, most, records), exchange::Phases::Pack);
            drop(call);
            match &mut this.staged {
                None => this.front.context.finish(encoder),
                Some(staged) => context.block_on(staged.land_side_flight(&context, encoder, &this.tables, most)),
            }
        })
    }

    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        self.front.not_prefetched("pin")?;
        self.waiting(|this| {
            this.front.state.not_pending("pin")?;
            batch::check_rows(&this.tables.layout, rows, "pin")?;
            this.pin_rows(rows, ways)
        })
    }

    fn pinned(&mut self) -> Result<Vec<u32>, Error> {
        self.front.not_prefetched("pinned")?;
        self.waiting(|this| {
            let ways = this.part(Part::Ways)?;
            Ok(pins::pinned(&this.tables.layout, &ways))
        })
    }

    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        self.front.not_prefetched("resize_cache")?;
        self.waiting(|this| {
            this.front.state.not_pending("resize_cache")?;
            this.resize(cache_rows)
        })
    }

    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.block_on(self.read_part_async(part, first_word, out))
    }

    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        self.front.not_prefetched("write_part")?;
        self.waiting(|this| this.write_words(part, first_word, words))
    }
}
