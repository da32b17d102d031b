//! The group driven by host slices: every call uploads, submits and waits.

use super::{
    Batch, Group, assign,
    call::Call,
    exchange,
    forward::{moves, record_step},
    group::grown,
    kept::passing,
    space::Bound,
    tables::Tables,
};
use crate::{
    Counters, Embedding, Error, Layout, Policy, Snapshot, batch,
    layout::{Params, Step, table_words},
    params::Mode,
    rng::Purpose,
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

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("hotrow") })
    }

    fn upload(&self, what: &'static str, words: &[u8]) -> Result<wgpu::Buffer, Error> {
        let buffer = self.context.buffer(what, words.len() as u64, wgpu::BufferUsages::empty())?;
        self.context.queue().write_buffer(&buffer, 0, words);
        Ok(buffer)
    }

    /// Uploads a batch, records it in `mode`, waits for its outputs.
    fn run(
        &mut self,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
        mode: Mode,
    ) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            batch::check_shape(
                &this.config,
                indices.len() as u64,
                offsets.len().max(1) as u64 - 1,
                weights.map(|w| w.len() as u64),
            )?;
            batch::check_offsets(indices.len() as u64, offsets)?;
            let bytes = u64::from(batch::output_rows(&this.config, indices.len() as u32, offsets.len() as u32 - 1))
                * u64::from(this.tables.layout.dim)
                * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let index_buffer = this.upload("indices", bytemuck::cast_slice(indices))?;
            let offset_buffer = this.upload("offsets", bytemuck::cast_slice(offsets))?;
            let weight_buffer =
                weights.map(|weights| this.upload("weights", bytemuck::cast_slice(weights))).transpose()?;
            let n = indices.len() as u64 * 4;
            let uploaded = Batch {
                indices: (n > 0).then(|| index_buffer.slice(..n)),
                offsets: offset_buffer.slice(..offsets.len() as u64 * 4),
                weights: weight_buffer.as_ref().map(|buffer| buffer.slice(..n)),
            };
            let mut encoder = this.encoder();
            this.record(&mut encoder, &uploaded, outputs.slice(..), mode)?;
            let Some(space) = (if mode == Mode::Train { &this.train } else { &this.frozen }) else {
                return Ok(Vec::new());
            };
            let words =
                this.context.download(encoder, &[(&outputs, bytes), (&space.step, size_of::<Step>() as u64)])?;
            let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[1]));
            if step.error != 0 {
                if mode == Mode::Train {
                    this.pending = None;
                }
                return Err(this.fault(&step, indices.len() as u32));
            }
            Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
        })
    }

    /// Records the look-up of linear rows, one output row each, into the frozen space.
    fn record_rows(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: Option<&wgpu::Buffer>,
    ) -> Result<Params, Error> {
        let n = rows.len() as u32;
        let params = Params::new(&self.config, &self.tables.layout, Mode::Rows, Purpose::Write).rows(n);
        let indices = self.upload("rows", bytemuck::cast_slice(rows))?;
        let offsets: Vec<u32> = (0..=n).collect();
        let offsets = self.upload("offsets", bytemuck::cast_slice(&offsets))?;
        let bound =
            Bound { indices: passing(&indices), offsets: passing(&offsets), weights: self.nothing.as_entire_binding() };
        let space = grown(&mut self.frozen, &self.context, &self.tables.layout, n, false)?;
        let binding = outputs.map(passing);
        record_step(
            &self.context,
            encoder,
            &self.tables,
            space,
            &params,
            &bound,
            binding.as_ref().map(|binding| (binding, n)),
        );
        Ok(params)
    }
}

impl Embedding for Group {
    fn layout(&self) -> &Layout {
        &self.tables.layout
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Train)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        self.run(indices, offsets, weights, Mode::Frozen)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.waiting(|this| {
            let pending = this.pending.ok_or_else(batch::no_forward)?;
            batch::check_grads(&this.config, pending, grad_outputs.len())?;
            let grads = this.upload("grad_outputs", bytemuck::cast_slice(grad_outputs))?;
            let mut encoder = this.encoder();
            this.record_backward(&mut encoder, grads.slice(..))?;
            this.context.finish(encoder)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.waiting(|this| {
            let mut encoder = this.encoder();
            this.record_flush(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.waiting(|this| {
            batch::not_pending(this.pending, "reset")?;
            let mut encoder = this.encoder();
            this.record_flush(&mut encoder)?;
            this.record_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        self.waiting(|this| {
            let mut encoder = this.encoder();
            this.record_reset_discarding(&mut encoder)?;
            this.context.finish(encoder)
        })
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.waiting(|this| {
            batch::check_rows(&this.tables.layout, rows)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let bytes = rows.len() as u64 * u64::from(this.tables.layout.dim) * 4;
            let outputs = this.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = this.encoder();
            this.record_rows(&mut encoder, rows, Some(&outputs))?;
            let words = this.context.download(encoder, &[(&outputs, bytes)])?;
            Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
        })
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        self.waiting(|this| {
            batch::not_pending(this.pending, "write_rows")?;
            let (ascending, values) = batch::rows_to_write(&this.tables.layout, rows, values)?;
            if rows.is_empty() {
                return Ok(());
            }
            let values = this.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = this.encoder();
            let params = this.record_rows(&mut encoder, &ascending, None)?;
            if let Some(space) = &this.frozen {
                let uniform = this.context.uniform(&params);
                let call = &mut Call::begin(&this.context, &mut encoder, "hotrow.write_rows");
                assign::record(call, &uniform, &this.tables, space, &values, params.indices);
                let list = moves(space, params.indices);
                exchange::record(call, &uniform, &this.tables, &list, exchange::Phases::Pack);
            }
            this.context.finish(encoder)
        })
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        self.waiting(|this| {
            let words = this.context.download(this.encoder(), &[(&this.tables.tables, this.tables.tables.size())])?;
            let stride = this.tables.layout.stride();
            let mut counters = Counters::from_words(&words[0], stride);
            counters.truncate(this.config.tables.len());
            Ok(counters)
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.waiting(|this| {
            let layout = &this.tables.layout;
            let slots = u64::from(layout.slots());
            let mut sources = vec![
                (&this.tables.tables, 4 * table_words(&this.config).len() as u64),
                (&this.tables.ways, slots * 16),
                (&this.tables.cache, slots * u64::from(layout.slot_words()) * 4),
            ];
            let rows = |shard: usize| u64::from(layout.shard_rows(shard as u32));
            sources
                .extend(this.tables.records.iter().enumerate().map(|(i, buffer)| (buffer, rows(i) * layout.stride())));
            if this.config.policy == Policy::Lfu {
                let freqs = &this.tables.freqs;
                sources.extend(freqs.iter().map(|freqs| (&freqs.counters, u64::from(freqs.rows) * 4)));
            }
            let mut words = this.context.download(this.encoder(), &sources)?;
            let freqs = words.split_off(3 + this.tables.records.len()).concat();
            let records = words.split_off(3).concat();
            let counters = Counters::from_words(&words[0], layout.stride());
            Ok(Snapshot {
                t: words[0][0],
                ways: std::mem::take(&mut words[1]),
                cache: layout.without_padding(words[2].iter().map(|&word| f32::from_bits(word)).collect()),
                records,
                freqs,
                counters,
            })
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.waiting(|this| {
            let Tables { layout, records, freqs, .. } = &this.tables;
            snapshot.check(layout, this.config.tables.len(), this.config.policy == Policy::Lfu)?;
            let queue = this.context.queue();
            let mut words = table_words(&this.config);
            words[0] = snapshot.t;
            let now = this.context.download(
                this.encoder(),
                &[(&this.tables.tables, 4), (&this.tables.ways, u64::from(this.tables.layout.slots()) * 16)],
            )?;
            if now[0][0] != snapshot.t || now[1] != snapshot.ways {
                this.pending = None; // its rows are elsewhere now
            }
            Counters::to_words(&snapshot.counters, &mut words);
            queue.write_buffer(&this.tables.tables, 0, bytemuck::cast_slice(&words));
            queue.write_buffer(&this.tables.ways, 0, bytemuck::cast_slice(&snapshot.ways));
            queue.write_buffer(&this.tables.cache, 0, bytemuck::cast_slice(&layout.with_padding(&snapshot.cache)));
            let shard_words = layout.rows_per_shard as usize * layout.record_words as usize;
            for (buffer, words) in records.iter().zip(snapshot.records.chunks(shard_words)) {
                queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
            }
            for (freqs, words) in freqs.iter().zip(snapshot.freqs.chunks(layout.freqs_per_shard as usize)) {
                queue.write_buffer(&freqs.counters, 0, bytemuck::cast_slice(words));
            }
            Ok(())
        })
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.config.set_learning_rate(lr)
    }
}
