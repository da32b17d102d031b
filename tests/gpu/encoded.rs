//! A group whose training steps are encoded, as a program with its own encoders does it: prefetch, fetch, forward, backward. All other calls wait. It
//! has the interface of the other backends, so that whole runs can be compared.

use std::sync::mpsc;

use hotrow::{
    Bags, Batch, Context, Counters, Embedding, Error, FloatBuffer, GradSlice, Group, GroupConfig, Lookup, LossScale,
    MemoryReport, Mode, OutputSlice, Pooling, Scaler, ScalerState, internals::Layout, state::Part, wgpu,
};

use crate::caller;

pub(crate) struct Encoded {
    pub(crate) group: Group,
    context: Context,
    /// The submission of a prefetch, the shape of its batch, and the word that the prefetch's report has come.
    asked: Option<(wgpu::SubmissionIndex, u64, mpsc::Receiver<Mapped>)>,
}

type Mapped = Result<(), wgpu::BufferAsyncError>;

/// Has `told` told once `buffer`, whose mapping is requested last in `encoder`, is mapped.
fn tell(encoder: &wgpu::CommandEncoder, buffer: &wgpu::Buffer, told: mpsc::Sender<Mapped>) {
    let kept = buffer.clone(); // a buffer that is dropped earlier is not mapped
    encoder.map_buffer_on_submit(buffer, wgpu::MapMode::Read, .., move |mapped| {
        drop(kept);
        let _ = told.send(mapped);
    });
}

impl Encoded {
    pub(crate) fn new(context: &Context, config: &GroupConfig) -> Self {
        let group = Group::new(context, config.clone()).unwrap();
        Self { group, context: context.clone(), asked: None }
    }

    fn buffer(&self, bytes: &[u8]) -> wgpu::Buffer {
        caller::storage(&self.context, bytes)
    }

    /// A buffer that a stage writes, and one to map, which takes its bytes.
    fn pair(&self, bytes: u64) -> [wgpu::Buffer; 2] {
        let (storage, map) = (wgpu::BufferUsages::STORAGE, wgpu::BufferUsages::MAP_READ);
        [storage | wgpu::BufferUsages::COPY_SRC, map | wgpu::BufferUsages::COPY_DST]
            .map(|usage| caller::buffer(&self.context, bytes.max(4), usage))
    }

    /// Waits for a word of [`tell`].
    fn heard(&self, word: &mpsc::Receiver<Mapped>) {
        loop {
            match word.try_recv() {
                Ok(mapped) => return mapped.unwrap(),
                Err(mpsc::TryRecvError::Disconnected) => panic!("the callback was dropped"),
                Err(mpsc::TryRecvError::Empty) => {}
            }
            self.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
            std::thread::yield_now();
        }
    }

    fn record<T>(
        &mut self,
        work: impl FnOnce(&mut Group, &mut wgpu::CommandEncoder) -> Result<T, Error>,
    ) -> Result<(T, wgpu::SubmissionIndex), Error> {
        let mut encoder = caller::encoder(&self.context);
        let done = work(&mut self.group, &mut encoder)?;
        Ok((done, self.context.queue().submit([encoder.finish()])))
    }
}

impl Lookup for Encoded {
    goes_on! { group;
        fn pending(self: &Self) -> bool;
        fn discard_pending(self: &mut Self) -> ();
        fn output_len(self: &Self, indices: usize, bags: usize) -> usize;
        fn read_rows(self: &mut Self, rows: &[u32]) -> Result<Vec<f32>, Error>;
        fn counters(self: &mut Self) -> Result<Vec<Counters>, Error>;
        fn set_learning_rate(self: &mut Self, lr: f32) -> Result<(), Error>;
        fn memory(self: &Self) -> MemoryReport;
    }

    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        if mode == Mode::Frozen {
            return self.group.forward_into(bags, mode, outputs);
        }
        outputs.with_floats(|outputs| {
            self.prefetch(bags)?;
            outputs.copy_from_slice(&self.forward_prefetched()?);
            Ok(())
        })
    }
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        let grads = self.buffer(bytemuck::cast_slice(grad_outputs));
        self.record(|group, encoder| group.encode_backward(encoder, grads.slice(..))).map(drop)
    }
    /// The device decides about the overflow again, from the gradients and the scale of the given state.
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let config = LossScale::Static { scale: 1.0 / scaler.inverse };
        let mut ours = Scaler::new(&self.context, config)?;
        let bytes: &[u8] = match grad_outputs {
            GradSlice::F32(grads) => bytemuck::cast_slice(grads),
            GradSlice::F16(grads) => bytemuck::cast_slice(grads),
        };
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(16).max(16), 0xff); // NaN, in case a kernel reads it
        let buffer = self.buffer(&padded);
        let grads = match grad_outputs {
            GradSlice::F32(_) => FloatBuffer::F32(buffer.slice(..)),
            GradSlice::F16(_) => FloatBuffer::F16(buffer.slice(..)),
        };
        let done = self.record(|group, encoder| {
            ours.encode_inspect(encoder, grads, grad_outputs.len() as u64)?;
            ours.encode_decide(encoder)?;
            group.encode_backward_scaled(encoder, grads, &ours)
        });
        done.map(drop)
    }
    fn weight_gradient(
        &mut self,
        Bags { indices, offsets, .. }: Bags<'_>,
        grad_outputs: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let (index_buffer, offset_buffer) =
            (self.buffer(bytemuck::cast_slice(indices)), self.buffer(bytemuck::cast_slice(offsets)));
        let (grads, found) =
            (self.buffer(bytemuck::cast_slice(grad_outputs)), self.buffer(&vec![0; 4 * indices.len()]));
        let n = 4 * indices.len() as u64;
        let batch = Batch {
            indices: (n > 0).then(|| index_buffer.slice(..n)),
            offsets: offset_buffer.slice(..),
            weights: None,
        };
        let mut encoder = caller::encoder(&self.context);
        self.group.encode_weight_gradient(&mut encoder, &batch, grads.slice(..), found.slice(..))?;
        let found = caller::download(&self.context, encoder, &found);
        Ok(found.into_iter().take(indices.len()).map(f32::from_bits).collect())
    }
    fn as_embedding(&mut self) -> Option<&mut dyn Embedding> {
        Some(self)
    }
}

impl Embedding for Encoded {
    goes_on! { group;
        fn config(self: &Self) -> &GroupConfig;
        fn layout(self: &Self) -> &Layout;
        fn flush(self: &mut Self) -> Result<(), Error>;
        fn reset(self: &mut Self) -> Result<(), Error>;
        fn reset_discarding(self: &mut Self) -> Result<(), Error>;
        fn write_rows(self: &mut Self, rows: &[u32], values: &[f32]) -> Result<(), Error>;
        fn pin(self: &mut Self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error>;
        fn pinned(self: &mut Self) -> Result<Vec<u32>, Error>;
        fn resize_cache(self: &mut Self, cache_rows: u32) -> Result<Vec<u32>, Error>;
        fn read_part(self: &mut Self, part: Part, first_word: u64, out: &mut [u32]) -> Result<(), Error>;
        fn write_part(self: &mut Self, part: Part, first_word: u64, words: &[u32]) -> Result<(), Error>;
    }

    fn prefetch(&mut self, Bags { indices, offsets, weights }: Bags<'_>) -> Result<(), Error> {
        let index_buffer = self.buffer(bytemuck::cast_slice(indices));
        let offset_buffer = self.buffer(bytemuck::cast_slice(offsets));
        let weight_buffer = weights.map(|weights| self.buffer(bytemuck::cast_slice(weights)));
        let n = indices.len() as u64 * 4;
        let batch = Batch {
            indices: (n > 0).then(|| index_buffer.slice(..n)),
            offsets: offset_buffer.slice(..),
            weights: weight_buffer.as_ref().map(|buffer| buffer.slice(..n)),
        };
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let marker = caller::buffer(&self.context, 4, usage);
        let (told, heard) = mpsc::channel();
        let ((), after) = self.record(|group, encoder| {
            group.encode_prefetch(encoder, &batch)?;
            tell(encoder, &marker, told);
            Ok(())
        })?;
        let rows = if self.config().pooling == Pooling::None { indices.len() } else { offsets.len() - 1 };
        self.asked = Some((after, rows as u64, heard));
        Ok(())
    }
    fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        let (after, rows, reported) = self.asked.take().expect("a prefetch has been encoded");
        self.group.fetch(Some(after))?;
        let bytes = rows * u64::from(self.config().dim) * 4;
        let [outputs, back] = self.pair(bytes);
        let (told, heard) = mpsc::channel();
        self.record(|group, encoder| {
            group.encode_forward_prefetched(encoder, outputs.slice(..))?;
            encoder.copy_buffer_to_buffer(&outputs, 0, &back, 0, bytes);
            tell(encoder, &back, told);
            Ok(())
        })?;
        // A buffer is readable before the callbacks have run, which the poll of another test's thread may do. The callbacks of one encoder run in
        // the order of their requests, so the report of a step has come once the callback requested after it has run.
        self.heard(&reported);
        self.heard(&heard);
        let range = back.get_mapped_range(..bytes).unwrap();
        let found = bytemuck::pod_collect_to_vec(&range);
        drop(range);
        self.group.check().inspect_err(|_| self.group.discard_pending())?;
        Ok(found)
    }
}
