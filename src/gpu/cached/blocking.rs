//! The group driven by host slices: every call uploads, submits and waits.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        cached::{
            forward::moves,
            group::{Group, grown},
        },
        engine::{bind::Batch, bind_cache::passing, call::Call},
        slices::{Uploaded, UploadedGrads, await_outputs, floats, new_outputs},
        stages::cached::{
            assign,
            exchange::{self, Records},
            space::Bound,
        },
    },
    host::alloc::zeroed,
    lookup::{
        Embedding, Lookup, LookupKind,
        methods::{own_embedding, own_lookup},
    },
    memory::MemoryReport,
    scaler::GradSlice,
    table::{
        batch,
        counters::Counters,
        layout::{Layout, Params, ScalerState},
        params::Mode,
        parts::Part,
        pins,
        rng::Purpose,
    },
};

impl Group {
    /// Waits until the device has done what was submitted, tells of a recorded step that was left out if there is one, and only
    /// then does `work`.
    fn waiting<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            context.wait(None)?;
            self.check()?;
            work(self)
        })
    }

    pub(crate) fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.new_encoder()
    }

    /// The counters of each table, out of the `tables` buffer.
    fn counted(&self, words: &[u32]) -> Vec<Counters> {
        let mut counters = Counters::from_words(words, self.tables.layout.stride());
        counters.truncate(self.config.tables.len());
        counters
    }

    /// Uploads a batch.
    fn uploaded(&self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Uploaded, Error> {
        Uploaded::new(&self.context, &self.config, indices, offsets, weights)
    }

    /// Uploads a batch, records it in `mode`, waits for its outputs.
    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        self.waiting(|this| {
            let batch = this.uploaded(indices, offsets, weights)?;
            let (n, bags) = (indices.len() as u32, offsets.len() as u32 - 1);
            let buffer = new_outputs(&this.context, &this.config, n, bags)?;
            batch::check_outputs(&this.config, n, bags, outputs.len())?;
            let mut encoder = this.encoder();
            match (mode, &this.staged) {
                (Mode::Train, Some(_)) => {
                    this.record_staged(&batch.batch())?;
                    this.carry(&mut encoder, buffer.slice(..))?;
                }
                (_, Some(_)) => this.record_frozen_staged(&mut encoder, &batch.batch(), buffer.slice(..))?,
                (_, None) => {
                    this.record(&mut encoder, &batch.batch(), buffer.slice(..), mode)?;
                }
            }
            this.await_outputs(encoder, &buffer, mode, n, outputs)
        })
    }

    /// Submits a forward that has been recorded, and waits for its outputs.
    fn await_outputs(
        &mut self,
        encoder: wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        mode: Mode,
        indices: u32,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        let Some(space) = self.space(mode) else { return Ok(()) };
        let found = await_outputs(&self.context, encoder, &self.config, &space.step, buffer, indices, outputs);
        if found.is_err() && mode == Mode::Train {
            self.pending = None;
        }
        found
    }

    /// Decides a staged step and fetches what it misses. If the host fails, the batch goes on waiting as one that was prefetched.
    fn record_staged(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "forward")?;
        self.pending = None; // the scratch that its backward would need is used anew
        // A store that takes nothing is told of before tags and rows are a step apart.
        if let Some(staged) = &mut self.staged {
            staged.settle(&self.context, &self.tables, false)?;
        }
        let mut encoder = self.encoder();
        self.decide(&mut encoder, batch)?;
        let after = self.context.queue().submit([encoder.finish()]);
        self.fetch(Some(after))
    }

    /// Records the look-up of linear rows, one output row each, into the frozen space. Returns the parameters, and how many Moves
    /// there are at most.
    fn record_rows(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: Option<&wgpu::Buffer>,
    ) -> Result<(Params, u32), Error> {
        let n = rows.len() as u32;
        let params = Params::new(&self.config, &self.tables.layout, Mode::Rows, Purpose::Write).rows(n);
        let (batch, dummy) = (Uploaded::rows(&self.context, rows)?, self.dummy.clone());
        let bound = Bound::of(&self.context, &dummy, &batch.batch(), &params)?;
        grown(&mut self.frozen, &self.context, &self.tables.layout, n, false)?;
        let binding = outputs.map(passing);
        let outputs = binding.as_ref().map(|binding| (binding, n));
        Ok((params, self.record_look_up(encoder, &params, &bound, outputs)?))
    }
}

impl Group {
    /// The backward of the last forward, by a scaler's verdict.
    fn move_rows(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        self.waiting(|this| {
            let pending = this.pending.ok_or_else(|| batch::no_forward("backward"))?;
            batch::check_grads(&this.config, pending, grad_outputs.len())?;
            let grads = UploadedGrads::new(&this.context, grad_outputs)?;
            let verdict = this.context.uniform(scaler);
            let mut encoder = this.encoder();
            this.record_backward_by(&mut encoder, grads.buffer(), &verdict)?;
            this.context.finish(encoder)
        })
    }

    pub(crate) fn flush_and_wait(&mut self) -> Result<(), Error> {
        if self.staged.is_some() {
            return self.flush_staged();
        }
        let mut encoder = self.encoder();
        self.record_flush(&mut encoder)?;
        self.context.finish(encoder)
    }
}

own_lookup!(Group);
own_embedding!(Group);

impl Lookup for Group {
    fn pending(&self) -> bool {
        self.pending.is_some()
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(&self.config, indices, bags)
    }

    fn forward_into(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        self.run(indices, offsets, weights, Mode::Train, outputs)
    }

    fn forward_frozen_into(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        self.run(indices, offsets, weights, Mode::Frozen, outputs)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_rows(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_rows(grad_outputs, &scaler.verdict())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        batch::not_prefetched(self.prefetched.is_some(), "read_rows")?;
        self.waiting(|this| {
            batch::check_rows(&this.tables.layout, rows, "read_rows")?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let bytes = rows.len() as u64 * u64::from(this.tables.layout.row.dim) * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = this.encoder();
            this.record_rows(&mut encoder, rows, Some(&outputs))?;
            let words = this.context.download(encoder, &[(&outputs, bytes)])?;
            Ok(floats(&words[0]))
        })
    }

    fn memory(&self) -> MemoryReport {
        self.memory()
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        batch::not_prefetched(self.prefetched.is_some(), "counters")?;
        self.waiting(|this| {
            let words = this.context.download(this.encoder(), &[(&this.tables.tables, this.tables.tables.size())])?;
            Ok(this.counted(&words[0]))
        })
    }

    fn counters_seen(&mut self) -> Result<Option<Vec<Counters>>, Error> {
        let words = self.seen.ask(&self.context, &self.tables.tables)?;
        Ok(words.map(|words| self.counted(&words)))
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }

    fn kind(&mut self) -> LookupKind<'_> {
        LookupKind::Rows(self)
    }
}

impl Embedding for Group {
    fn config(&self) -> &GroupConfig {
        &self.config
    }

    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn prefetch(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            batch::not_prefetched(self.prefetched.is_some(), "prefetch")?;
            let batch = self.uploaded(indices, offsets, weights)?;
            let mut encoder = self.encoder();
            self.decide(&mut encoder, &batch.batch())?;
            let after = self.context.queue().submit([encoder.finish()]);
            self.fetch_meanwhile(after);
            Ok(())
        })
    }

    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            let (indices, bags) = this.prefetched_shape().ok_or_else(batch::no_prefetch)?;
            let buffer = new_outputs(&this.context, &this.config, indices, bags)?;
            let mut outputs = zeroed("outputs", this.output_len(indices as usize, bags as usize))?;
            this.fetch(None)?;
            let mut encoder = this.encoder();
            this.carry(&mut encoder, buffer.slice(..))?;
            this.await_outputs(encoder, &buffer, Mode::Train, indices, &mut outputs)?;
            Ok(outputs)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "flush")?;
        self.waiting(Self::flush_and_wait)
    }

    fn reset(&mut self) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "reset")?;
        self.waiting(|this| {
            batch::not_pending(this.pending, "reset")?;
            this.flush_and_wait()?;
            let mut encoder = this.encoder();
            this.record_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "reset")?;
        self.waiting(|this| {
            let mut encoder = this.encoder();
            this.record_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "write_rows")?;
        self.waiting(|this| {
            batch::not_pending(this.pending, "write_rows")?;
            let (ascending, values) = batch::rows_to_write(&this.tables.layout, rows, values)?;
            if rows.is_empty() {
                return Ok(());
            }
            let values = this.context.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = this.encoder();
            let (params, most) = this.record_rows(&mut encoder, &ascending, None)?;
            let Some(space) = &this.frozen else { return Ok(()) };
            let side_flight = match &mut this.staged {
                None => None,
                Some(staged) => {
                    staged.unflushed()?;
                    Some(staged.pack_side_flight(&this.context, &mut encoder, &this.tables, (0, most), most)?)
                }
            };
            let records = side_flight.as_ref().map_or(Records::Table, |side_flight| side_flight.records());
            let uniform = this.context.uniform(&params);
            let mut call = Call::begin(&this.context, &mut encoder, "hotrow.write_rows");
            assign::record(&mut call, &uniform, &this.tables, space, &values, params.indices);
            exchange::record(&mut call, &uniform, &this.tables, &moves(space, most, records), exchange::Phases::Pack);
            drop(call);
            match &mut this.staged {
                None => this.context.finish(encoder),
                Some(staged) => staged.land_side_flight(&this.context, encoder, &this.tables, most),
            }
        })
    }

    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
        batch::not_prefetched(self.prefetched.is_some(), "pin")?;
        self.waiting(|this| {
            batch::not_pending(this.pending, "pin")?;
            batch::check_rows(&this.tables.layout, rows, "pin")?;
            this.pin_rows(rows, ways)
        })
    }

    fn pinned(&mut self) -> Result<Vec<u32>, Error> {
        batch::not_prefetched(self.prefetched.is_some(), "pinned")?;
        self.waiting(|this| {
            let ways = this.part(Part::Ways)?;
            Ok(pins::pinned(&this.tables.layout, &ways))
        })
    }

    fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
        batch::not_prefetched(self.prefetched.is_some(), "resize_cache")?;
        self.waiting(|this| {
            batch::not_pending(this.pending, "resize_cache")?;
            this.resize(cache_rows)
        })
    }

    fn read_part(&mut self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "read_part")?;
        self.waiting(|this| this.read_words(part, first_word, out))
    }

    fn write_part(&mut self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error> {
        batch::not_prefetched(self.prefetched.is_some(), "write_part")?;
        self.waiting(|this| this.write_words(part, first_word, words))
    }
}
