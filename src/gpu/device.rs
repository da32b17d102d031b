//! Groups on a device: calls that encode, calls that wait, the state of a step, and the reports of skipped steps. Cached groups and shared
//! arrays have all this in common. A [`Kind`] of table encodes its own stages.

use std::{
    fmt::Debug,
    sync::{Arc, atomic::AtomicBool},
};

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::{
        counters_async::LatestCopy,
        engine::{
            bind::{Batch, FloatBuffer, WeightGradient},
            changing::Changing,
            context::Context,
            numbers::Numbers,
            readback::{Reports, Tells},
        },
        fp16_outputs::{Halves, Sums},
        reader::{Readable, ReadableBuffers, Reader, RowReader},
        scaler::Scaler,
        upload::{Uploaded, UploadedGrads, await_outputs, floats},
    },
    host::alloc::zeroed,
    lookup::{Embedding, Lookup, SharedArray, outputs::OutputSlice},
    memory::MemoryReport,
    scaler::GradSlice,
    table::{
        abi::{Rate, ScalerState},
        batch::{self, Bags},
        counters::Counters,
        layout::Layout,
        params::Mode,
        step_state::StepState,
    },
};

/// What [`Group`](crate::Group) and [`SharedGroup`](crate::SharedGroup) have in common. Programs use these two names; this one is public because
/// both are aliases of it.
///
/// Example: [`Group`](crate::Group).
#[derive(Debug)]
pub struct DeviceGroup<K: Kind> {
    pub(crate) context: Context,
    pub(crate) state: StepState<K::Prefetched>,
    /// The uniform of the learning rate.
    pub(crate) rate: Changing,
    /// A small buffer that is bound where a batch has no weights or no indices.
    pub(crate) dummy: wgpu::Buffer,
    /// Of the calls whose commands are in the caller's encoders.
    pub(crate) reports: Reports,
    pub(crate) numbers: Numbers,
    pub(crate) latest: LatestCopy,
    /// FP32 outputs of forwards whose caller wants FP16.
    pub(crate) sums: Sums,
    /// The buffers that readers bind.
    pub(crate) readable: Readable,
    /// The tables, and what their kind keeps beside them.
    pub(crate) kind: K,
}

/// The tables of a group on a device, and the stages that they encode. No module outside this crate can name it.
pub trait Kind: Debug + Send + Sync + Sized {
    /// A prefetched batch.
    type Prefetched: Debug + Send + Sync;

    /// The group's configuration. A shared array returns the configuration of the rows it stands for.
    fn rows(&self) -> &GroupConfig;

    fn layout(&self) -> &Layout;

    /// The buffer with the step number and the counters.
    fn tables(&self) -> &wgpu::Buffer;

    /// Reads the counters of each table from the words of [`Self::tables`].
    fn counted(&self, words: &[u32]) -> Vec<Counters>;

    fn set_rate(&mut self, lr: f32) -> Result<(), Error>;

    /// Refuses a batch size that only this kind of table refuses.
    fn check_batch(&self, _indices: u32, _bags: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Whether reading rows and flushes move records on the host, so that they must not pass commands that are not submitted.
    fn moves_records(&self) -> bool {
        false
    }

    /// Takes back the calls whose encoder was dropped; a plain forward takes itself back ([`StepState::watch`]). With `ends` a step that only the device
    /// has decided comes to its end without outputs, because a call comes that is not its forward.
    fn take_back(_group: &mut DeviceGroup<Self>, _ends: bool) -> Result<(), Error> {
        Ok(())
    }

    /// Refuses a forward that cannot be encoded in one piece.
    fn check_encodable(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The buffer in which the last forward in `mode` leaves its outcome, a [`Step`](crate::table::abi::Step).
    fn outcome(group: &DeviceGroup<Self>, mode: Mode) -> Option<&wgpu::Buffer>;

    /// The buffers that readers bind.
    fn readable(&self, context: &Context) -> ReadableBuffers;

    /// Encodes the stages of a forward and returns its number of indices. A refused batch changes nothing.
    fn encode(
        group: &mut DeviceGroup<Self>,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> Result<u32, Error>;

    /// Encodes a forward for a call that waits. A staged table submits work of its own in between.
    fn encode_waiting(
        group: &mut DeviceGroup<Self>,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: wgpu::BufferSlice<'_>,
        mode: Mode,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Encodes the backward of the last forward. When the device executes it, `scaler` must hold a [`ScalerState`], which says whether
    /// gradients overflowed.
    fn encode_backward(
        group: &mut DeviceGroup<Self>,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: FloatBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error>;

    /// Encodes the gradients of the per-index weights of the last forward, which has indices and waits for its backward.
    fn encode_weight_gradient(
        group: &mut DeviceGroup<Self>,
        encoder: &mut wgpu::CommandEncoder,
        bound: &WeightGradient<'_>,
    ) -> Result<(), Error>;

    /// Encodes the copy of linear rows to `outputs`. The rows must exist. A staged table submits work of its own in between.
    fn encode_read_rows(
        group: &mut DeviceGroup<Self>,
        encoder: &mut wgpu::CommandEncoder,
        rows: &[u32],
        outputs: &wgpu::Buffer,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    fn memory(group: &DeviceGroup<Self>) -> MemoryReport;

    #[cfg(not(target_family = "wasm"))]
    fn as_embedding(_: &mut DeviceGroup<Self>) -> Option<&mut dyn Embedding> {
        None
    }

    #[cfg(not(target_family = "wasm"))]
    fn as_shared_array(_: &mut DeviceGroup<Self>) -> Option<&mut dyn SharedArray> {
        None
    }
}

impl<K: Kind> Drop for DeviceGroup<K> {
    fn drop(&mut self) {
        // Waits for a thread that still gathers for a prefetched batch, because the thread holds the store.
        drop(self.state.take_prefetched());
        self.readable.close();
        self.context.forget_bindings();
    }
}

impl<K: Kind> DeviceGroup<K> {
    /// A group that has had no step.
    pub(crate) fn with_kind(context: &Context, kind: K) -> Result<Self, Error> {
        Ok(Self {
            context: context.clone(),
            state: StepState::Idle,
            rate: Changing::new::<Rate>(context),
            dummy: context.buffer("dummy", 16, wgpu::BufferUsages::empty())?,
            reports: Reports::new(context),
            numbers: Numbers::default(),
            latest: LatestCopy::default(),
            sums: Sums::default(),
            readable: Readable::default(),
            kind,
        })
    }

    /// The context the group lives in.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Floats of the gradient that a backward takes now; `None` if no forward waits for one. For a bridge whose gradients have shapes of their own.
    #[doc(hidden)]
    #[must_use]
    pub fn gradient_len(&self) -> Option<usize> {
        let forward = self.state.pending()?;
        Some(batch::output_len(self.kind.rows(), forward.indices as usize, forward.bags as usize))
    }

    /// Returns the error of an earlier skipped step, once its report has arrived: the device skips a step with a bad index or
    /// offset, and a backward whose forward has not run before it, because its encoder was dropped or submitted later. Each error is returned
    /// once. Every `encode_forward` calls this before it encodes.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], [`Error::BadOffsets`] or [`Error::Order`] of the earliest such step not returned yet.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn check(&mut self) -> Result<(), Error> {
        K::take_back(self, false)?;
        self.reports.check(&self.context, self.kind.rows())
    }

    /// Encodes a forward: with [`Mode::Train`] one step, with [`Mode::Frozen`] (evaluation, inference) nothing changes, and a forward that waits
    /// for its backward goes on waiting. `outputs` gets `[bags, dim]` floats, or `[indices, dim]` with pooling none: FP32 in a slice, or FP16
    /// in [`FloatBuffer::F16`]. `outputs` must lie in a buffer that holds none of the call's inputs.
    ///
    /// Submit the encoded commands in the order of the calls, because a backward builds on the state that its forward leaves on
    /// the device. If the encoder is dropped, there was no forward.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Bags`], [`Error::Buffer`] and [`Error::TooLarge`] for illegal shapes, buffers and sizes; the
    /// error of an earlier skipped step ([`check`](Self::check)). After an error nothing is encoded.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_forward<'o>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: impl Into<FloatBuffer<'o>>,
        mode: Mode,
    ) -> Result<(), Error> {
        self.encode_and_report(encoder, batch, outputs.into(), mode)
    }

    /// Encodes the backward of the last encoded forward. `grad_outputs` has the shape of its outputs: FP32 in a slice, or FP16 in
    /// [`FloatBuffer::F16`], which are summed in FP32. Each row, or each shared weight, is updated once, with the sum of its gradients. If the
    /// encoder is dropped, that gradient is given up, as by [`Lookup::discard_pending`].
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it; the next call, or [`check`](Self::check), returns it if that forward's encoder is dropped
    /// or submitted later, and then nothing moves; [`Error::Buffer`] for gradients that cannot be bound, [`Error::TooLarge`],
    /// [`Error::OutOfMemory`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_backward<'g>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: impl Into<FloatBuffer<'g>>,
    ) -> Result<(), Error> {
        let unscaled = self.context.uniform(&ScalerState::unscaled());
        self.backward_and_report(encoder, grad_outputs.into(), &unscaled)
    }

    /// As [`encode_backward`](Self::encode_backward), with gradients, FP32 or FP16, of a loss that was multiplied by a scale (SPEC
    /// 8). Each gradient is multiplied in FP32 by the inverse scale that `scaler` decided on, before gradients are added. If
    /// gradients overflowed, which only the device knows, no weight, state, dirty flag or counter changes. The forward's work (step
    /// number, stamps, frequencies, admissions) remains.
    ///
    /// # Errors
    /// As [`encode_backward`](Self::encode_backward); [`Error::Order`] before [`Scaler::encode_decide`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_backward_scaled(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: FloatBuffer<'_>,
        scaler: &Scaler,
    ) -> Result<(), Error> {
        let verdict = scaler.decided("encode_backward_scaled")?;
        self.backward_and_report(encoder, grad_outputs, verdict)
    }

    fn backward_and_report(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: FloatBuffer<'_>,
        scaler: &wgpu::Buffer,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            K::take_back(self, false)?;
            let step = K::outcome(self, Mode::Train).cloned();
            K::encode_backward(self, encoder, grad_outputs, scaler)?;
            if let Some(step) = step {
                self.reports.encode(&context, encoder, &step, Tells::Continues("backward"));
            }
            Ok(())
        })
    }

    /// Encodes the gradients of the per-index weights of the last encoded forward: `grad_weights` gets a float for each index.
    /// `batch` is that forward's, `grad_outputs` has the shape of its outputs, FP32 or FP16. [`Lookup::weight_gradient`] says what
    /// they are. A prefetch may stand between the two calls. After a forward that the device skipped the gradients are 0.
    ///
    /// # Errors
    /// [`Error::Order`] unless a forward waits for its backward, [`Error::Length`] for a batch of another shape, [`Error::Buffer`]
    /// for buffers that cannot be bound, and for gradients in a buffer of the inputs; [`Error::TooLarge`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_weight_gradient<'g>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        grad_outputs: impl Into<FloatBuffer<'g>>,
        grad_weights: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            K::take_back(self, false)?;
            let forward = self.state.wants_forward("weight_gradient")?;
            let rows = self.kind.rows();
            let shape = batch.shape(rows)?;
            batch::check_same(forward, shape.0.into(), shape.1.into())?;
            if shape.0 == 0 {
                return Ok(());
            }
            let bound = context.bind_weight_gradient(rows, shape, batch.offsets, grad_outputs.into(), grad_weights)?;
            K::encode_weight_gradient(self, encoder, &bound)?;
            if let Some(step) = K::outcome(self, Mode::Train) {
                self.reports.encode(&context, encoder, step, Tells::Continues("weight_gradient"));
            }
            Ok(())
        })
    }

    /// As [`Lookup::weight_gradient`], as a future.
    ///
    /// # Errors
    /// As [`Lookup::weight_gradient`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn weight_gradient_async(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        let (Bags { indices, offsets, .. }, bags) = (bags, bags.with_weights(None));
        let context = self.context.clone();
        let found = async {
            self.quiet(Some("weight_gradient")).await?;
            let forward = self.state.wants_forward("weight_gradient")?;
            let batch = Uploaded::new(&context, self.kind.rows(), bags)?;
            batch::check_same(forward, indices.len() as u64, offsets.len() as u64 - 1)?;
            batch::check_grads(self.kind.rows(), forward, grad_outputs.len())?;
            if indices.is_empty() {
                return Ok(Vec::new());
            }
            let grads = UploadedGrads::new(&context, GradSlice::F32(grad_outputs))?;
            let bytes = indices.len() as u64 * 4;
            let found = context.buffer("grad_weights", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = context.new_encoder();
            self.encode_weight_gradient(&mut encoder, &batch.batch(), grads.buffer(), found.slice(..))?;
            Ok(floats(&context.download_async(encoder, &[(&found, bytes)]).await?[0]))
        };
        context.guard(found).await
    }

    /// As [`Lookup::forward`], as a future: in a browser a call cannot wait.
    ///
    /// # Errors
    /// As [`Lookup::forward`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn forward_async(&mut self, bags: Bags<'_>, mode: Mode) -> Result<Vec<f32>, Error> {
        let bag_count = bags.offsets.len().saturating_sub(1);
        let mut outputs = zeroed("outputs", batch::output_len(self.kind.rows(), bags.indices.len(), bag_count))?;
        self.forward_into_async(bags, mode, OutputSlice::F32(&mut outputs)).await.map(|()| outputs)
    }

    /// As [`Lookup::backward`], as a future.
    ///
    /// # Errors
    /// As [`Lookup::backward`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn backward_async(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.move_weights(GradSlice::F32(grad_outputs), &ScalerState::unscaled()).await
    }

    /// As [`Lookup::read_rows`], as a future.
    ///
    /// # Errors
    /// As [`Lookup::read_rows`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn read_rows_async(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.not_prefetched("read_rows")?;
        let context = self.context.clone();
        let read = async {
            self.quiet(self.refused_to_read("read_rows")).await?;
            batch::check_rows(self.kind.layout(), rows, "read_rows")?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let bytes = rows.len() as u64 * u64::from(self.kind.rows().dim) * 4;
            let outputs = context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = context.new_encoder();
            K::encode_read_rows(self, &mut encoder, rows, &outputs).await?;
            Ok(floats(&context.download_async(encoder, &[(&outputs, bytes)]).await?[0]))
        };
        context.guard(read).await
    }

    /// As [`Lookup::counters`], as a future.
    ///
    /// # Errors
    /// As [`Lookup::counters`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn counters_async(&mut self) -> Result<Vec<Counters>, Error> {
        self.not_prefetched("counters")?;
        let context = self.context.clone();
        let read = async {
            self.quiet(None).await?;
            let tables = self.kind.tables();
            let words = context.download_part_async(tables, 0..tables.size()).await?;
            Ok(self.kind.counted(&words))
        };
        context.guard(read).await
    }

    /// As [`Lookup::try_counters`], for programs for a browser, which have no [`Lookup`] of this group.
    ///
    /// # Errors
    /// As [`Lookup::try_counters`].
    #[cfg(target_family = "wasm")]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn try_counters(&mut self) -> Result<Option<Vec<Counters>>, Error> {
        self.counters_arrived()
    }

    /// As [`Lookup::discard_pending`], for programs for a browser, which have no [`Lookup`] of this group.
    #[cfg(target_family = "wasm")]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn discard_pending(&mut self) {
        self.state.end_forward();
    }

    /// As [`Lookup::memory`], for programs for a browser, which have no [`Lookup`] of this group.
    #[cfg(target_family = "wasm")]
    pub fn memory(&self) -> MemoryReport {
        K::memory(self)
    }

    fn counters_arrived(&self) -> Result<Option<Vec<Counters>>, Error> {
        let tables = self.kind.tables();
        let words = self.latest.ask(&self.context, tables, tables.size())?;
        Ok(words.map(|words| self.kind.counted(&words)))
    }

    /// As [`StepState::not_prefetched`]; a lost device is named instead.
    pub(crate) fn not_prefetched(&mut self, call: &'static str) -> Result<(), Error> {
        K::take_back(self, true)?;
        self.state.not_prefetched(call).map_err(|error| self.context.or_lost(error))
    }

    /// As [`StepState::may_look_up`]; a lost device is named instead.
    fn may_look_up(&mut self, mode: Mode) -> Result<(), Error> {
        K::take_back(self, true)?;
        self.state.may_look_up(mode).map_err(|error| self.context.or_lost(error))
    }

    pub(crate) fn new_reader(&self, wanted: &Reader<'_>) -> Result<RowReader, Error> {
        if !self.readable.in_use() {
            self.readable.renew(self.kind.readable(&self.context));
        }
        let rows = self.kind.rows();
        RowReader::new(&self.context, wanted, &self.readable, (&rows.tables, rows.dim))
    }

    /// Makes every reader bind anew, after rows moved to other buffers or other rows moved in.
    pub(crate) fn renew_readers(&self) {
        if self.readable.in_use() {
            self.readable.renew(self.kind.readable(&self.context));
        }
    }

    /// Provides for the FP16 outputs of a batch of `indices` indices in `bags` bags.
    pub(crate) fn halves<'b>(
        &mut self,
        batch: &Batch<'_>,
        (indices, bags): (u32, u32),
        outputs: wgpu::BufferSlice<'b>,
    ) -> Result<Halves<'b>, Error> {
        let elements = batch::output_len(self.kind.rows(), indices as usize, bags as usize) as u64;
        self.sums.provide(&self.context, &self.dummy, batch, elements, outputs)
    }

    /// Encodes a forward with outputs of either type.
    fn encode_to(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: FloatBuffer<'_>,
        mode: Mode,
    ) -> Result<u32, Error> {
        let outputs = match outputs {
            FloatBuffer::F32(outputs) => return K::encode(self, encoder, batch, outputs, mode),
            FloatBuffer::F16(outputs) => outputs,
        };
        let shape = batch.shape(self.kind.rows())?;
        let halves = self.halves(batch, shape, outputs)?;
        let indices = K::encode(self, encoder, batch, halves.sums(), mode)?;
        halves.encode(encoder);
        Ok(indices)
    }

    /// Encodes the report of the last forward's outcome in `mode`. It is read once the caller's submission is done. Returns a flag that is set if
    /// `encoder` is dropped.
    pub(crate) fn report(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        mode: Mode,
        indices: u32,
    ) -> Option<Arc<AtomicBool>> {
        let dropped = self.reports.encode(&self.context, encoder, K::outcome(self, mode)?, Tells::Forward(indices));
        if mode == Mode::Train {
            self.state.watch(dropped.clone());
        }
        Some(dropped)
    }

    fn encode_and_report(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        batch: &Batch<'_>,
        outputs: FloatBuffer<'_>,
        mode: Mode,
    ) -> Result<(), Error> {
        self.may_look_up(mode)?;
        let context = self.context.clone();
        let encoded = context.guarded(|| {
            self.check()?;
            let indices = self.kind.check_encodable().and_then(|()| self.encode_to(encoder, batch, outputs, mode));
            Ok(indices.map(|indices| drop(self.report(encoder, mode, indices))))
        });
        // An error of the device may have come after the forward was encoded.
        if encoded.is_err() && mode == Mode::Train {
            self.state.end_forward();
        }
        encoded.flatten()
    }

    /// Refuses `call`, which would pass commands that an earlier call has put into an encoder: they hold the buffers and places of now. All
    /// submissions must be done; in a browser a submission may be done and not known to be.
    pub(crate) fn all_submitted(&self, call: &'static str) -> Result<(), Error> {
        if !self.reports.recorded() {
            return Ok(());
        }
        let wanted = "the encoders of all calls before it submitted or dropped";
        Err(Error::Order { call, wanted, found: "commands in an encoder that is neither" })
    }

    /// The name of a call that only reads, if it must not pass commands that are not submitted.
    pub(crate) fn refused_to_read(&self, call: &'static str) -> Option<&'static str> {
        self.kind.moves_records().then_some(call)
    }

    /// Waits until the device has executed all submissions, then calls `work`. Instead of calling `work` it returns the error of an earlier skipped
    /// step, if there is one, and refuses the call `refused`, if it has a name, while commands are not submitted.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn waiting<T>(
        &mut self,
        refused: Option<&'static str>,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            context.moments().wait();
            context.wait(None)?;
            self.check()?;
            refused.map_or(Ok(()), |call| self.all_submitted(call))?;
            work(self)
        })
    }

    /// Runs `work` to its end.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn block_on<T>(&mut self, work: impl AsyncFnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let context = self.context.clone();
        context.block_on(work(self))
    }

    /// Waits until the device has executed all submissions. Fails as [`waiting`](Self::waiting) does.
    pub(crate) async fn quiet(&mut self, refused: Option<&'static str>) -> Result<(), Error> {
        let context = self.context.clone();
        context.idle().await?;
        self.check()?;
        refused.map_or(Ok(()), |call| self.all_submitted(call))
    }

    /// As [`Lookup::forward_into`], as a future: uploads a batch, encodes its forward, and awaits its outputs.
    ///
    /// # Errors
    /// As [`Lookup::forward_into`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn forward_into_async(
        &mut self,
        bags: Bags<'_>,
        mode: Mode,
        mut outputs: OutputSlice<'_>,
    ) -> Result<(), Error> {
        self.may_look_up(mode)?;
        let context = self.context.clone();
        let refused = if mode == Mode::Train { Some("forward") } else { self.refused_to_read("frozen forward") };
        let run = async {
            self.quiet(refused).await?;
            let batch = Uploaded::new(&context, self.kind.rows(), bags)?;
            let (n, bags) = (bags.indices.len() as u32, bags.offsets.len() as u32 - 1);
            self.kind.check_batch(n, bags)?;
            batch::check_outputs(self.kind.rows(), n, bags, outputs.len())?;
            let buffer = context.buffer("outputs", outputs.bytes(), wgpu::BufferUsages::empty())?;
            let (batch, all) = (batch.batch(), buffer.slice(..));
            let halves = outputs.is_half().then(|| self.halves(&batch, (n, bags), all)).transpose()?;
            let mut encoder = context.new_encoder();
            let sums = halves.as_ref().map_or(all, Halves::sums);
            K::encode_waiting(self, &mut encoder, &batch, sums, mode).await?;
            if let Some(halves) = &halves {
                halves.encode(&mut encoder);
            }
            self.await_outputs(encoder, &buffer, mode, n, &mut outputs).await
        };
        context.guard(run).await
    }

    /// Submits an encoded forward and awaits its outputs.
    pub(crate) async fn await_outputs(
        &mut self,
        encoder: wgpu::CommandEncoder,
        buffer: &wgpu::Buffer,
        mode: Mode,
        indices: u32,
        outputs: &mut OutputSlice<'_>,
    ) -> Result<(), Error> {
        let Some(outcome) = K::outcome(self, mode) else { return Ok(()) };
        let found = await_outputs(&self.context, encoder, self.kind.rows(), outcome, buffer, indices, outputs).await;
        if found.is_err() && mode == Mode::Train {
            self.state.end_forward();
        }
        found
    }

    /// Runs the backward of the last forward with the decision of a scaler, and waits for it.
    async fn move_weights(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        let context = self.context.clone();
        let moved = async {
            self.quiet(Some("backward")).await?;
            let forward = self.state.wants_forward("backward")?;
            batch::check_grads(self.kind.rows(), forward, grad_outputs.len())?;
            let (grads, verdict) = (UploadedGrads::new(&context, grad_outputs)?, context.uniform(scaler));
            let mut encoder = context.new_encoder();
            K::encode_backward(self, &mut encoder, grads.buffer(), &verdict)?;
            context.finish_async(encoder).await
        };
        context.guard(moved).await
    }
}

#[cfg(not(target_family = "wasm"))]
impl<K: Kind> Lookup for DeviceGroup<K> {
    fn pending(&self) -> bool {
        self.state.pending().is_some()
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn discard_pending(&mut self) {
        self.state.end_forward();
    }

    fn output_len(&self, indices: usize, bags: usize) -> usize {
        batch::output_len(self.kind.rows(), indices, bags)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn forward_into(&mut self, bags: Bags<'_>, mode: Mode, outputs: OutputSlice<'_>) -> Result<(), Error> {
        self.block_on(async |this| this.forward_into_async(bags, mode, outputs).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        self.block_on(async |this| this.backward_async(grad_outputs).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.block_on(async |this| this.move_weights(grad_outputs, &scaler.verdict()).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn weight_gradient(&mut self, bags: Bags<'_>, grad_outputs: &[f32]) -> Result<Vec<f32>, Error> {
        self.block_on(async |this| this.weight_gradient_async(bags, grad_outputs).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        self.block_on(async |this| this.read_rows_async(rows).await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        self.kind.set_rate(lr)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        self.block_on(async |this| this.counters_async().await)
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn try_counters(&mut self) -> Result<Option<Vec<Counters>>, Error> {
        self.counters_arrived()
    }

    fn memory(&self) -> MemoryReport {
        K::memory(self)
    }

    fn as_embedding(&mut self) -> Option<&mut dyn Embedding> {
        K::as_embedding(self)
    }

    fn as_shared_array(&mut self) -> Option<&mut dyn SharedArray> {
        K::as_shared_array(self)
    }
}
