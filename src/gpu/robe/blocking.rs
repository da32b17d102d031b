//! The group driven by host slices: every call uploads, submits and waits.

use super::{Batch, GradBuffer, Group};
use crate::{
    Error, GradSlice, ScalerState, batch,
    gpu::{blocking::Uploaded, kept::passing, space::Bound},
    layout::Step,
    lookup::Lookup,
    params::Mode,
    robe::{Counters, Snapshot, check_weights},
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

    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            let batch = Uploaded::new(&this.context, &this.rows, indices, offsets, weights)?;
            let (n, bags) = (indices.len() as u32, offsets.len() as u32 - 1);
            this.config.batch_chunks(n, bags)?;
            let rows = batch::output_rows(&this.rows, n, bags);
            let bytes = u64::from(rows) * u64::from(this.config.dim) * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = this.context.new_encoder();
            let batch: Batch<'_> = batch.batch();
            this.record(&mut encoder, &batch, outputs.slice(..), mode)?;
            let Some(space) = this.space(mode) else { return Ok(Vec::new()) };
            let words =
                this.context.download(encoder, &[(&outputs, bytes), (&space.step, size_of::<Step>() as u64)])?;
            let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[1]));
            if let Some(fault) = batch::fault(&this.rows, &step, n) {
                if mode == Mode::Train {
                    this.pending = None;
                }
                return Err(fault);
            }
            Ok(floats(&words[0]))
        })
    }

    fn move_weights(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        self.waiting(|this| {
            let pending = this.pending.ok_or_else(batch::no_forward)?;
            batch::check_grads(&this.rows, pending, grad_outputs.len())?;
            let bytes: &[u8] = match grad_outputs {
                GradSlice::F32(grads) => bytemuck::cast_slice(grads),
                GradSlice::F16(grads) => bytemuck::cast_slice(grads),
            };
            let buffer = this.context.upload("grad_outputs", bytes)?;
            let grads = match grad_outputs {
                GradSlice::F32(_) => GradBuffer::F32(buffer.slice(..)),
                GradSlice::F16(_) => GradBuffer::F16(buffer.slice(..)),
            };
            let verdict = this.context.uniform(scaler);
            let mut encoder = this.context.new_encoder();
            this.record_backward_by(&mut encoder, grads, &verdict)?;
            this.context.finish(encoder)
        })
    }

    /// What steps did.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.waiting(|this| {
            let tables = &this.array.tables;
            Ok(Counters::from_words(&this.context.download_part(tables, 0..tables.size())?))
        })
    }

    /// Everything kept between steps.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.waiting(|this| {
            let bytes = 4 * u64::from(this.config.weights);
            let array = &this.array;
            let states = if this.config.has_state() { bytes } else { 0 };
            let parts = [(&array.tables, array.tables.size()), (&array.memory, bytes), (&array.states, states)];
            let words = this.context.download(this.context.new_encoder(), &parts)?;
            Ok(Snapshot {
                t: words[0][0],
                weights: floats(&words[1]),
                states: floats(&words[2]),
                counters: Counters::from_words(&words[0]),
            })
        })
    }

    /// Takes over a snapshot of a group of the same configuration, on whatever backend it was taken. A forward no longer waits for its
    /// backward.
    ///
    /// # Errors
    /// [`Error::Length`] names the first part of another size, [`Error::Source`] the first value that is not finite; nothing has changed
    /// then. [`Error::Device`] if the device is lost.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.waiting(|this| {
            snapshot.check(&this.config)?;
            this.pending = None;
            let (queue, array) = (this.context.queue(), &this.array);
            let words = snapshot.counters.words(&this.config, snapshot.t);
            queue.write_buffer(&array.tables, 0, bytemuck::cast_slice(&words));
            queue.write_buffer(&array.memory, 0, bytemuck::cast_slice(&snapshot.weights));
            queue.write_buffer(&array.states, 0, bytemuck::cast_slice(&snapshot.states));
            Ok(())
        })
    }

    /// Replaces the shared weights; the optimiser's state stays.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are |M| of them, [`Error::Source`] for the first that is not finite, [`Error::Order`] between
    /// forward and backward: nothing has changed then.
    pub fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        self.waiting(|this| {
            batch::not_pending(this.pending, "write_weights")?;
            check_weights(&this.config, weights)?;
            this.context.queue().write_buffer(&this.array.memory, 0, bytemuck::cast_slice(weights));
            Ok(())
        })
    }
}

fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}

impl Lookup for Group {
    fn pending(&self) -> bool {
        self.pending.is_some()
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Train)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Frozen)
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
            let indices = this.context.upload("rows", bytemuck::cast_slice(rows))?;
            let offsets: Vec<u32> = (0..=n).collect();
            let offsets = this.context.upload("offsets", bytemuck::cast_slice(&offsets))?;
            let weights = this.nothing.as_entire_binding();
            let bound = Bound { indices: passing(&indices), offsets: passing(&offsets), weights };
            let bytes = u64::from(n) * u64::from(this.config.dim) * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let space = super::Space::grown(&mut this.frozen, &this.context, n)?;
            let mut encoder = this.context.new_encoder();
            let (context, robe) = (&this.context, this.config.robe());
            super::forward(context, &mut encoder, &this.array, space, &params, &robe, &bound, (&passing(&outputs), n));
            Ok(floats(&context.download(encoder, &[(&outputs, bytes)])?[0]))
        })
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.rows.set_learning_rate(lr)?;
        self.config.optimizer.lr = lr;
        Ok(())
    }
}
