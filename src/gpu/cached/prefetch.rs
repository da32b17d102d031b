//! The two halves of a step, so that the next batch is decided while this one computes (SPEC 3, Prefetch).
//!
//! A prefetch of batch i + 1 before the backward of batch i touches neither rows nor dirty flags, and that backward takes its random bits
//! from its own step number. So the order of the two does not matter. The forward of batch i + 1 carries the decisions out.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Waker,
};

use crate::{
    error::Error,
    gpu::{
        cached::{
            forward::Forward,
            group::{Group, grown, void},
            prefetched::{Coming, HeldBatch, Prefetched},
        },
        engine::{
            bind::{Batch, FloatBuffer},
            numbers::{CARRIED, DECIDED},
            readback::Tells,
        },
        fp16_outputs::Halves,
        stages::cached::space::Bound,
    },
    table::{
        abi::Params,
        params::Mode,
        step_state::{Pending, is_set, no_prefetch},
    },
};

impl Group {
    /// Encodes the first half of a step, which decides the rows to admit and to evict. The backward of the last forward may follow, then
    /// [`encode_forward_prefetched`](Self::encode_forward_prefetched); every other call is refused until then. That forward reads the
    /// batch's buffers again, so keep them unchanged.
    ///
    /// # Errors
    /// As [`Group::encode_forward`], and [`Error::Order`] if another prefetched batch waits for its forward.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_prefetch(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Batch<'_>) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            self.decide(encoder, batch)?;
            if let Some(prefetched) = self.state.prefetched_mut()
                && let Some(space) = &self.kind.train[prefetched.space]
            {
                prefetched.dropped = Some(self.reports.encode(&context, encoder, &space.step, Tells::Done));
            }
            Ok(())
        })
    }

    pub(crate) fn decide(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Batch<'_>) -> Result<(), Error> {
        self.not_prefetched("prefetch")?;
        let params = self.batch_params(batch, Mode::Train)?;
        let dummy = self.dummy.clone();
        let bound = Bound::of(&self.context, &dummy, batch, &params)?;
        self.decide_bound(encoder, params, &bound, Some(HeldBatch::new(batch)))
    }

    /// As `decide`, for a batch that is bound, or for wanted rows.
    pub(crate) fn decide_bound(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        params: Params,
        bound: &Bound<'_>,
        batch: Option<HeldBatch>,
    ) -> Result<(), Error> {
        let next = self.next_space();
        let (context, layout) = (&self.context, &self.kind.tables.layout);
        let most = layout.most_distinct(params.indices);
        let space = grown(&mut self.kind.train[next], context, layout, params.indices, true)?;
        // Every allocation that can fail comes before the first command.
        let more = self.state.pending().is_some();
        let storage = &mut self.kind.storage;
        let mut room = storage.reserve(most, more, batch.is_none())?;
        storage.move_in(encoder, room.as_mut());
        Forward { tables: &self.kind.tables, space, params: &params, batch: bound }.encode_decisions(context, encoder);
        let number = if batch.is_some() { self.numbers.next() } else { 0 };
        self.numbers.encode(context, encoder, (&space.step, DECIDED), number);
        let coming = storage.ask(encoder, space, room);
        let (dropped, again, lost) = (None, false, false);
        self.state.prefetch(Prefetched { params, batch, space: next, coming, number, dropped, again, lost });
        Ok(())
    }

    /// Does the host's part of a staged step: waits until the device has listed the missing rows, and gathers their records. Call it
    /// between [`encode_prefetch`](Self::encode_prefetch), whose encoder must have been submitted, and
    /// [`encode_forward_prefetched`](Self::encode_forward_prefetched). `after` is the index that the submission returned; with `None` it
    /// waits for all submissions. Meanwhile the device executes later submissions. With another placement there is nothing to do.
    /// # Errors
    /// [`Error::Order`] without a prefetch, or if its encoder was not submitted; if the encoder was dropped, the prefetch is undone.
    /// [`Error::Store`] from the store, [`Error::Device`], [`Error::OutOfMemory`]. After an error nothing is lost, and `fetch` may be
    /// called again.
    #[cfg(not(target_family = "wasm"))]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn fetch(&mut self, after: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        self.not_dropped("fetch")?;
        let prefetched = self.state.prefetched_mut().ok_or_else(no_prefetch)?;
        if let Coming::Asked(fetch) = &mut prefetched.coming {
            fetch.after = after;
        }
        let arrived = prefetched.coming.arrive();
        if arrived.is_err() {
            self.undo_dropped();
        }
        arrived
    }

    /// Undoes a prefetch whose encoder was dropped, and the forward of one: then the batch is prefetched as before. Returns whether a prefetch was
    /// undone.
    pub(crate) fn undo_dropped(&mut self) -> bool {
        let undone = self.state.prefetched().is_some_and(Prefetched::dropped);
        if undone && let Some(Prefetched { coming: Coming::Asked(fetch), .. }) = self.state.take_prefetched() {
            self.kind.storage.take_back(fetch);
        }
        let Some((mut batch, _)) = self.kind.carried.take_if(|(_, dropped)| dropped.load(Relaxed)) else {
            return undone;
        };
        if is_set(&batch.dropped) {
            return undone; // the prefetch was in the same encoder, or in another one that was dropped
        }
        // The device has decided a later step without this one, whose rows were never moved.
        self.kind.lost = batch.lost || self.state.prefetched().is_some() || self.state.last().is_some();
        if self.kind.lost {
            return undone;
        }
        batch.coming = self.kind.storage.undo_arrive(batch.coming);
        batch.again = true;
        self.state.prefetch(batch);
        undone
    }

    /// The step scratch of the next step: not the scratch of a step whose forward or backward may still come to the device.
    pub(crate) fn next_space(&mut self) -> usize {
        let (next, pending, reports) = (self.state.next_space(), self.state.pending(), &self.reports);
        self.kind.carried.take_if(|(_, dropped)| !reports.waits_for(dropped));
        match &mut self.kind.carried {
            Some((carried, _)) if pending.is_none() => 1 - carried.space,
            Some((carried, _)) => {
                carried.lost |= carried.space == next;
                next
            }
            None => next,
        }
    }

    /// Refuses `call`, which goes on with a prefetch, if its encoder was dropped. Then the prefetch is undone.
    fn not_dropped(&mut self, call: &'static str) -> Result<(), Error> {
        let wanted = "the encoder of the earlier call submitted first";
        let dropped = Error::Order { call, wanted, found: "an encoder that was dropped" };
        if self.undo_dropped() { Err(dropped) } else { Ok(()) }
    }

    /// As [`fetch`](Self::fetch), on a thread of its own: returns at once. The next `fetch` waits for the thread and returns its error. In a
    /// browser, which has no thread, the next `try_fetch` or `fetch_async` gathers the records.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub(crate) fn fetch_meanwhile(&mut self, after: wgpu::SubmissionIndex) {
        let Some(prefetched) = self.state.prefetched_mut() else { return };
        if let Coming::Asked(fetch) = &mut prefetched.coming {
            fetch.after = Some(after);
        }
        prefetched.coming.gather_meanwhile();
    }

    /// As [`fetch`](Self::fetch), without waiting for the device: does nothing and returns false as long as the list of missing rows has not
    /// come. A list that is far longer than the last one takes a second download; then a later call returns true.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn try_fetch(&mut self) -> Result<bool, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            if !self.all_here()? {
                return Ok(false);
            }
            let prefetched = self.state.prefetched_mut().ok_or_else(no_prefetch)?;
            prefetched.coming.arrive_at_once().map(|()| true)
        })
    }

    /// Whether all that the host needs for the prefetched batch has come. It does not wait. If the batch's encoder was dropped, it is an
    /// error, and the prefetch is undone.
    pub(crate) fn all_here(&mut self) -> Result<bool, Error> {
        self.context.poll()?;
        self.not_dropped("fetch")?;
        let here = self.state.prefetched_mut().ok_or_else(no_prefetch)?.coming.all_here();
        if here.is_err() {
            self.undo_dropped();
        }
        here
    }

    pub(crate) fn wake_when_fetched(&self, waker: &Waker) {
        if let Some(prefetched) = self.state.prefetched() {
            prefetched.coming.wake(waker);
        }
    }

    /// Encodes the forward of the prefetched batch. It writes the outputs that [`encode_forward`](Self::encode_forward) would.
    ///
    /// # Errors
    /// [`Error::Order`] without a prefetch, or before [`fetch`](Self::fetch) of a staged table; [`Error::Buffer`] for illegal outputs.
    /// After an error the batch goes on waiting.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_forward_prefetched<'o>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: impl Into<FloatBuffer<'o>>,
    ) -> Result<(), Error> {
        let (context, outputs) = (self.context.clone(), outputs.into());
        context.guarded(|| {
            self.not_dropped("encode_forward_prefetched")?;
            let indices = self.carry_to(encoder, outputs)?;
            let dropped = self.report(encoder, Mode::Train, indices);
            if let (Some((_, flag)), Some(dropped)) = (&mut self.kind.carried, dropped) {
                *flag = dropped;
            }
            Ok(())
        })
    }

    /// The numbers of indices and bags of the prefetched batch.
    pub(crate) fn prefetched_shape(&self) -> Option<(u32, u32)> {
        self.state.prefetched().map(|prefetched| (prefetched.params.indices, prefetched.params.bags))
    }

    /// As [`carry`](Self::carry), with outputs of either type.
    fn carry_to(&mut self, encoder: &mut wgpu::CommandEncoder, outputs: FloatBuffer<'_>) -> Result<u32, Error> {
        let outputs = match outputs {
            FloatBuffer::F32(outputs) => return self.carry(encoder, outputs),
            FloatBuffer::F16(outputs) => outputs,
        };
        let prefetched = self.state.take_prefetched().ok_or_else(no_prefetch)?;
        let shape = (prefetched.params.indices, prefetched.params.bags);
        let halves = prefetched.batch.as_ref().map(|batch| self.halves(&batch.batch(), shape, outputs)).transpose();
        self.state.prefetch(prefetched);
        let halves = halves?;
        let indices = self.carry(encoder, halves.as_ref().map_or(outputs, Halves::sums))?;
        if let Some(halves) = &halves {
            halves.encode(encoder);
        }
        Ok(indices)
    }

    /// Encodes the second half of a step and returns its number of indices.
    pub(crate) fn carry(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<u32, Error> {
        self.state.may_forward()?;
        let prefetched = self.state.take_prefetched().ok_or_else(no_prefetch)?;
        let carried = match &prefetched.batch {
            Some(batch) => self.carry_out(encoder, Some((&batch.batch(), outputs)), &prefetched),
            None => {
                let (call, wanted) = ("encode_forward_prefetched", "pump, which moves in the rows that shaders want");
                Err(Error::Order { call, wanted, found: "a batch of encode_feedback" })
            }
        };
        if let Err(error) = carried {
            self.state.prefetch(prefetched);
            return Err(error);
        }
        let forward = Pending::new(&prefetched.params, prefetched.space, &self.kind.config);
        self.state.forward(Pending { number: prefetched.number, ..forward });
        self.kind.carried = Some((prefetched, Arc::default()));
        Ok(forward.indices)
    }

    /// Encodes what a prefetched step moves, and its outputs if there are any.
    pub(crate) fn carry_out(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: Option<(&Batch<'_>, wgpu::BufferSlice<'_>)>,
        prefetched: &Prefetched,
    ) -> Result<(), Error> {
        let params = &prefetched.params;
        let dummy = self.dummy.clone();
        if let Some((batch, outputs)) = outputs {
            self.bound_outputs(batch, params, outputs)?;
        }
        let records = self.kind.storage.arrive(encoder, &prefetched.coming, outputs.is_some())?;
        if let Some(space) = &self.kind.train[prefetched.space] {
            self.numbers.encode(&self.context, encoder, (&space.step, CARRIED), prefetched.number);
            if outputs.is_some() {
                void(encoder, &self.kind.train[1 - prefetched.space]);
            }
            let binding = outputs.map(|(batch, outputs)| self.bound_outputs(batch, params, outputs)).transpose()?;
            let bound = match outputs {
                Some((batch, _)) => Bound::of(&self.context, &dummy, batch, params)?,
                None => Bound::of_wanted(&dummy, &dummy),
            };
            let outputs = binding.as_ref().map(|(binding, rows)| (binding, *rows));
            let step = Forward { tables: &self.kind.tables, space, params, batch: &bound };
            step.encode_carry(&self.context, encoder, outputs, records);
        }
        Ok(())
    }
}
