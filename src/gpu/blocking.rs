//! The group driven by host slices: every call uploads, submits and waits.

use super::{
    Batch, Group, assign,
    call::Call,
    forward::{bypass_work, record_step},
    group::grown,
    space::Bound,
    tables::{self, Tables},
    write_back,
};
use crate::{
    Counters, Embedding, Error, Layout, Snapshot, batch,
    layout::{Params, Step},
    params::Mode,
    rng::Purpose,
};

impl Group {
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
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            batch::check_shape(
                &self.config,
                indices.len() as u64,
                offsets.len().max(1) as u64 - 1,
                weights.map(|w| w.len() as u64),
            )?;
            batch::check_offsets(indices.len() as u64, offsets)?;
            let bytes = u64::from(batch::output_rows(&self.config, indices.len() as u32, offsets.len() as u32 - 1))
                * u64::from(self.tables.layout.dim)
                * 4;
            let outputs = self.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let index_buffer = self.upload("indices", bytemuck::cast_slice(indices))?;
            let offset_buffer = self.upload("offsets", bytemuck::cast_slice(offsets))?;
            let weight_buffer =
                weights.map(|weights| self.upload("weights", bytemuck::cast_slice(weights))).transpose()?;
            let n = indices.len() as u64 * 4;
            let uploaded = Batch {
                indices: (n > 0).then(|| index_buffer.slice(..n)),
                offsets: offset_buffer.slice(..offsets.len() as u64 * 4),
                weights: weight_buffer.as_ref().map(|buffer| buffer.slice(..n)),
            };
            let mut encoder = self.encoder();
            self.record(&mut encoder, &uploaded, outputs.slice(..), mode)?;
            let Some(space) = (if mode == Mode::Train { &self.train } else { &self.frozen }) else {
                return Ok(Vec::new());
            };
            let words =
                self.context.download(encoder, &[(&outputs, bytes), (&space.step, size_of::<Step>() as u64)])?;
            let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[1]));
            if step.error != 0 {
                if mode == Mode::Train {
                    self.pending = None;
                }
                return Err(self.fault(&step, indices.len() as u32));
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
        let bound = Bound {
            indices: indices.as_entire_binding(),
            offsets: offsets.as_entire_binding(),
            weights: self.nothing.as_entire_binding(),
        };
        let space = grown(&mut self.frozen, &self.context, &self.tables.layout, n, false)?;
        let binding = outputs.map(wgpu::Buffer::as_entire_binding);
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
        let context = self.context.clone();
        context.guarded(|| {
            let pending = self.pending.ok_or_else(batch::no_forward)?;
            batch::check_grads(&self.config, pending, grad_outputs.len())?;
            let grads = self.upload("grad_outputs", bytemuck::cast_slice(grad_outputs))?;
            let mut encoder = self.encoder();
            self.record_backward(&mut encoder, grads.slice(..))?;
            self.context.finish(encoder)
        })
    }

    fn flush(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let mut encoder = self.encoder();
            self.record_flush(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn reset(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            batch::not_pending(self.pending, "reset")?;
            let mut encoder = self.encoder();
            self.record_flush(&mut encoder)?;
            self.record_reset_discarding(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn reset_discarding(&mut self) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let mut encoder = self.encoder();
            self.record_reset_discarding(&mut encoder)?;
            self.context.finish(encoder)
        })
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            batch::check_rows(&self.tables.layout, rows)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let bytes = rows.len() as u64 * u64::from(self.tables.layout.dim) * 4;
            let outputs = self.context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = self.encoder();
            self.record_rows(&mut encoder, rows, Some(&outputs))?;
            let words = self.context.download(encoder, &[(&outputs, bytes)])?;
            Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
        })
    }

    fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            batch::not_pending(self.pending, "write_rows")?;
            let (ascending, values) = batch::rows_to_write(&self.tables.layout, rows, values)?;
            if rows.is_empty() {
                return Ok(());
            }
            let values = self.upload("values", bytemuck::cast_slice(&values))?;
            let mut encoder = self.encoder();
            let params = self.record_rows(&mut encoder, &ascending, None)?;
            if let Some(space) = &self.frozen {
                let uniform = self.context.uniform(&params);
                let call = &mut Call::begin(&self.context, &mut encoder, "hotrow.write_rows");
                assign::record(call, &uniform, &self.tables, space, &values);
                write_back::record(call, &uniform, &self.tables, &bypass_work(space));
            }
            self.context.finish(encoder)
        })
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let words = self.context.download(self.encoder(), &[(&self.tables.tables, self.tables.tables.size())])?;
            let stride = self.tables.layout.stride();
            let mut counters = Counters::from_words(&words[0], stride);
            counters.truncate(self.config.tables.len());
            Ok(counters)
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let layout = &self.tables.layout;
            let slots = u64::from(layout.slots());
            let mut sources = vec![
                (&self.tables.tables, 4 * tables::table_words(&self.config).len() as u64),
                (&self.tables.ways, slots * 16),
                (&self.tables.cache, slots * u64::from(layout.row_words) * 4),
            ];
            let rows = |shard: usize| u64::from(layout.shard_rows(shard as u32));
            sources
                .extend(self.tables.records.iter().enumerate().map(|(i, buffer)| (buffer, rows(i) * layout.stride())));
            sources.extend(self.tables.freqs.iter().enumerate().map(|(i, buffer)| (buffer, rows(i) * 4)));
            let mut words = self.context.download(self.encoder(), &sources)?;
            let freqs = words.split_off(3 + self.tables.records.len()).concat();
            let records = words.split_off(3).concat();
            let counters = Counters::from_words(&words[0], layout.stride());
            Ok(Snapshot {
                t: words[0][0],
                ways: std::mem::take(&mut words[1]),
                cache: words[2].iter().map(|&word| f32::from_bits(word)).collect(),
                records,
                freqs,
                counters,
            })
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let Tables { layout, records, freqs, .. } = &self.tables;
            snapshot.check(layout, self.config.tables.len(), !freqs.is_empty())?;
            let queue = self.context.queue();
            let mut words = tables::table_words(&self.config);
            words[0] = snapshot.t;
            Counters::to_words(&snapshot.counters, &mut words);
            queue.write_buffer(&self.tables.tables, 0, bytemuck::cast_slice(&words));
            queue.write_buffer(&self.tables.ways, 0, bytemuck::cast_slice(&snapshot.ways));
            queue.write_buffer(&self.tables.cache, 0, bytemuck::cast_slice(&snapshot.cache));
            let shard_words = (layout.rows_per_shard * layout.record_words) as usize;
            for (buffer, words) in records.iter().zip(snapshot.records.chunks(shard_words)) {
                queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
            }
            for (buffer, words) in freqs.iter().zip(snapshot.freqs.chunks(layout.rows_per_shard as usize)) {
                queue.write_buffer(buffer, 0, bytemuck::cast_slice(words));
            }
            Ok(())
        })
    }

    fn set_learning_rate(&mut self, lr: f32) {
        self.config.optimizer.lr = lr;
    }
}
