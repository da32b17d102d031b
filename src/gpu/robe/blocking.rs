//! The group driven by host slices: every call uploads, submits and waits.

use crate::{
    error::Error,
    gpu::{
        engine::bind_cache::passing,
        robe::RobeGroup,
        seen::Seen,
        slices::{Uploaded, UploadedGrads, await_outputs, floats, new_outputs},
        stages::cached::space::Bound,
    },
    host::alloc::zeroed,
    lookup::{Lookup, LookupKind, SharedArray, methods::own_lookup},
    robe::{RobeCounters, RobeSnapshot, check_weights, config::Config},
    scaler::GradSlice,
    table::{
        batch,
        counters::Counters,
        layout::{Layout, ScalerState, table_words},
        params::Mode,
        rng::Purpose,
    },
};

impl RobeGroup {
    /// Waits until the device has done what was submitted, tells of a recorded step that was left out if there is one, and only
    /// then does `work`.
    pub(crate) fn waiting<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            context.wait(None)?;
            self.check()?;
            work(self)
        })
    }

    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
        outputs: &mut [f32],
    ) -> Result<(), Error> {
        self.waiting(|this| {
            let batch = Uploaded::new(&this.context, &this.rows, indices, offsets, weights)?;
            let (n, bags) = (indices.len() as u32, offsets.len() as u32 - 1);
            this.config.batch_chunks(n, bags)?;
            let buffer = new_outputs(&this.context, &this.rows, n, bags)?;
            batch::check_outputs(&this.rows, n, bags, outputs.len())?;
            let mut encoder = this.context.new_encoder();
            this.record(&mut encoder, &batch.batch(), buffer.slice(..), mode)?;
            let Some(space) = this.space(mode) else { return Ok(()) };
            let found = await_outputs(&this.context, encoder, &this.rows, &space.step, &buffer, n, outputs);
            if found.is_err() && mode == Mode::Train {
                this.pending = None;
            }
            found
        })
    }

    fn move_weights(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        self.waiting(|this| {
            let pending = this.pending.ok_or_else(|| batch::no_forward("backward"))?;
            batch::check_grads(&this.rows, pending, grad_outputs.len())?;
            let grads = UploadedGrads::new(&this.context, grad_outputs)?;
            let verdict = this.context.uniform(scaler);
            let mut encoder = this.context.new_encoder();
            this.record_backward_by(&mut encoder, grads.buffer(), &verdict)?;
            this.context.finish(encoder)
        })
    }

    /// What steps did.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    pub fn counters(&mut self) -> Result<RobeCounters, Error> {
        self.waiting(|this| {
            let tables = &this.array.tables;
            Ok(RobeCounters::from_words(&this.context.download_part(tables, 0..tables.size())?))
        })
    }

    /// Everything kept between steps.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    pub fn snapshot(&mut self) -> Result<RobeSnapshot, Error> {
        self.waiting(|this| {
            let array = &this.array;
            let all = array.storage.all(this.config.has_state());
            let mut parts = vec![(&array.tables, array.tables.size())];
            let sizes = [all.memory, all.states].into_iter().zip(array.window);
            for (windows, (words, each)) in [&array.memory, &array.states].into_iter().zip(sizes) {
                let of = |k| 4 * words.saturating_sub(k * each).min(each) as u64;
                parts.extend(windows.iter().enumerate().map(|(k, window)| (window, of(k))));
            }
            let mut words = this.context.download(this.context.new_encoder(), &parts)?;
            let states = words.split_off(1 + array.memory.len());
            Ok(RobeSnapshot {
                t: words[0][0],
                weight_words: words[1..].concat(),
                state_words: states.concat(),
                counters: RobeCounters::from_words(&words[0]),
            })
        })
    }

    /// Takes over a snapshot of a group of the same configuration, on whatever backend it was taken. A forward no longer waits for its
    /// backward.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Source`] the first value that is not finite; nothing has changed
    /// then. [`Error::Device`] if the device is lost.
    pub fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error> {
        self.waiting(|this| {
            snapshot.check(&this.config)?;
            this.pending = None;
            let (queue, array) = (this.context.queue(), &this.array);
            let words = snapshot.counters.words(&this.config, snapshot.t);
            queue.write_buffer(&array.tables, 0, bytemuck::cast_slice(&words));
            array.write_memory(&this.context, 0, &snapshot.weight_words);
            array.write_states(&this.context, &snapshot.state_words);
            Ok(())
        })
    }

    /// Goes on with the same array under another configuration: other tables, features, chunk, pooling, learning rate or backward. Weights,
    /// states and step number stay; counters do if the tables are the same, and begin anew otherwise.
    ///
    /// # Errors
    /// [`Error::Config`] for a configuration that cannot be, or that wants another array; [`Error::Order`] between forward and backward:
    /// nothing has changed then. [`Error::Device`] if the device is lost.
    pub fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.waiting(|this| {
            batch::not_pending(this.pending, "reconfigure")?;
            config.check()?;
            let most = this.context.caps().choose_shard_bytes();
            this.config.bound(most).same_array(&config.bound(most))?;
            let rows = config.rows();
            let layout = Layout::new(&rows, u64::MAX)?;
            let scattered = crate::gpu::stages::robe::space::Scattered::new(&this.context, &config)?;
            let features = this.context.upload("features", bytemuck::cast_slice(&rows.feature_tables()))?;
            if config.tables != this.config.tables {
                let mut words = table_words(&rows);
                words[0] = this.context.download_part(&this.array.tables, 0..4)?[0];
                this.seen = Seen::default();
                this.array.tables = this.context.upload("tables", bytemuck::cast_slice(&words))?;
            }
            this.array.features = features;
            this.array.robe = config.bound(most).robe();
            (this.config, this.rows, this.layout) = (config, rows, layout);
            // Scratch is sized by the chunk, too.
            (this.train, this.frozen, this.chunks, this.runs) = (None, None, None, None);
            this.scattered = scattered;
            this.context.forget_bindings();
            Ok(())
        })
    }

    /// Replaces the shared weights, brought down to what the array keeps; the optimiser's state stays.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are |M| of them, [`Error::Source`] for the first that is not finite and for the first block whose
    /// range no scale can be, [`Error::Order`] between forward and backward: nothing has changed then.
    pub fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        self.waiting(|this| {
            batch::not_pending(this.pending, "write_weights")?;
            check_weights(&this.config, weights)?;
            let step = this.context.download_part(&this.array.tables, 0..4)?[0];
            let storage = &this.array.storage;
            let mut words = zeroed("weights", storage.all(false).memory)?;
            storage.pack(&this.config.noise(step, Purpose::Write), 0, weights, &mut words)?;
            this.array.write_memory(&this.context, 0, &words);
            Ok(())
        })
    }
}

own_lookup!(RobeGroup);

impl Lookup for RobeGroup {
    fn pending(&self) -> bool {
        self.pending.is_some()
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(&self.rows, indices, bags)
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
        self.move_weights(GradSlice::F32(grad_outputs), &ScalerState::unscaled())
    }

    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.move_weights(grad_outputs, &scaler.verdict())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            batch::check_rows(&this.layout, rows, "read_rows")?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let n = rows.len() as u32;
            let params = this.params(Mode::Rows).rows(n);
            let (batch, dummy) = (Uploaded::rows(&this.context, rows)?, this.dummy.clone());
            let bound = Bound::of(&this.context, &dummy, &batch.batch(), &params)?;
            let bytes = u64::from(n) * u64::from(this.rows.dim) * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let space = crate::gpu::stages::robe::space::Space::grown(&mut this.frozen, &this.context, n)?;
            let mut encoder = this.context.new_encoder();
            let (context, robe) = (&this.context, this.array.robe);
            crate::gpu::robe::forward(
                context,
                &mut encoder,
                &this.array,
                space,
                &params,
                &robe,
                &bound,
                (&passing(&outputs), n),
            );
            Ok(floats(&context.download(encoder, &[(&outputs, bytes)])?[0]))
        })
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        Ok(self.counters()?.of_tables(&self.config))
    }

    fn counters_seen(&mut self) -> Result<Option<Vec<Counters>>, Error> {
        let words = self.seen.ask(&self.context, &self.array.tables)?;
        Ok(words.map(|words| RobeCounters::from_words(&words).of_tables(&self.config)))
    }

    fn memory(&self) -> crate::memory::MemoryReport {
        self.memory()
    }

    fn kind(&mut self) -> LookupKind<'_> {
        LookupKind::Shared(self)
    }
}

impl SharedArray for RobeGroup {
    fn config(&self) -> &Config {
        self.config()
    }

    fn snapshot(&mut self) -> Result<RobeSnapshot, Error> {
        self.snapshot()
    }

    fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error> {
        self.restore(snapshot)
    }
}
