//! The two halves of a step, so that the next batch is decided while this one computes (SPEC 3, Prefetch).
//!
//! A prefetch of batch i + 1 before the backward of batch i touches neither rows nor dirty flags, and that backward takes its random bits
//! from its own step number. So the order of the two does not matter. The forward of batch i + 1 carries the decisions out.

use crate::{
    error::Error,
    gpu::{
        cached::{
            forward::{StepTargets, record_carry, record_decisions},
            group::{Group, grown},
            prefetched::{Coming, Gathering, Held, Prefetched},
        },
        engine::bind::Batch,
        front::Kind,
        stages::cached::{exchange::Records, space::Bound},
    },
    table::{
        params::Mode,
        step_state::{Pending, no_prefetch},
    },
};

impl Group {
    /// Records the first half of a step, which decides the rows to admit and to evict. The backward of the last forward may follow, then
    /// [`record_forward_prefetched`](Self::record_forward_prefetched); every other call is refused until then. That forward reads the
    /// batch's buffers again, so keep them unchanged.
    ///
    /// # Errors
    /// As [`Group::record_forward`], and [`Error::Order`] if another prefetched batch waits for its forward.
    pub fn record_prefetch(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Batch<'_>) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.guarded(|| {
            self.check()?;
            self.decide(encoder, batch)
        })
    }

    pub(crate) fn decide(&mut self, encoder: &mut wgpu::CommandEncoder, batch: &Batch<'_>) -> Result<(), Error> {
        self.front.state.not_prefetched("prefetch")?;
        let params = self.batch_params(batch, Mode::Train)?;
        let bound = Bound::of(&self.front.context, &self.front.dummy, batch, &params)?;
        let next = self.front.state.next_space();
        let (context, layout) = (&self.front.context, &self.tables.layout);
        let most = layout.most_distinct(params.indices);
        let space = grown(&mut self.train[next], context, layout, params.indices, true)?;
        // Every allocation that can fail comes before the first command.
        let more = self.front.state.pending().is_some();
        let staged = self.staged.as_mut();
        let room = staged.map(|staged| staged.reserve(context, layout, most, more)).transpose()?;
        let coming = match (&mut self.staged, room) {
            (Some(staged), Some(mut room)) => {
                staged.move_in(context, encoder, &self.tables, &mut room);
                record_decisions(context, encoder, &self.tables, space, &params, &bound);
                Coming::Asked(staged.ask(context, encoder, space, room))
            }
            _ => {
                record_decisions(context, encoder, &self.tables, space, &params, &bound);
                Coming::Nothing
            }
        };
        let (indices, weights) = (batch.indices.map(Held::new), batch.weights.map(Held::new));
        let offsets = Held::new(batch.offsets);
        self.front.state.prefetch(Prefetched { params, indices, offsets, weights, space: next, coming });
        Ok(())
    }

    /// Does the host's part of a staged step: waits until the device has listed the missing rows, and gathers their records. Call it
    /// between [`record_prefetch`](Self::record_prefetch), whose encoder must have been submitted, and
    /// [`record_forward_prefetched`](Self::record_forward_prefetched). `after` is the index that the submission returned; with `None` it
    /// waits for all submissions. Meanwhile the device executes later submissions. With another placement there is nothing to do.
    /// # Errors
    /// [`Error::Order`] without a prefetch, or if its encoder was not submitted; if the encoder was dropped, the prefetch is undone.
    /// [`Error::Store`] from the store, [`Error::Device`], [`Error::OutOfMemory`]. After an error nothing is lost, and `fetch` may be
    /// called again.
    pub fn fetch(&mut self, after: Option<wgpu::SubmissionIndex>) -> Result<(), Error> {
        let prefetched = self.front.state.prefetched_mut().ok_or_else(no_prefetch)?;
        if let Coming::Asked(fetch) = &mut prefetched.coming {
            fetch.after = after;
        }
        let arrived = prefetched.coming.arrive();
        if let (Err(_), Coming::Asked(fetch)) = (&arrived, &prefetched.coming)
            && fetch.dropped()
        {
            // The prefetch has had no effect: it is undone.
            if let (Some(Prefetched { coming: Coming::Asked(fetch), .. }), Some(staged)) =
                (self.front.state.take_prefetched(), &mut self.staged)
            {
                staged.take_back(fetch);
            }
        }
        arrived
    }

    /// As [`fetch`](Self::fetch), on a thread of its own: returns at once. The next `fetch` waits for the thread and returns its error.
    pub fn fetch_meanwhile(&mut self, after: wgpu::SubmissionIndex) {
        let Some(prefetched) = self.front.state.prefetched_mut() else { return };
        prefetched.coming = match std::mem::replace(&mut prefetched.coming, Coming::Nothing) {
            Coming::Asked(mut fetch) => {
                fetch.after = Some(after);
                Coming::Gathering(Gathering::start(fetch))
            }
            other => other,
        };
    }

    /// Records the forward of the prefetched batch. Its outputs are those of [`record_forward`](Self::record_forward).
    ///
    /// # Errors
    /// [`Error::Order`] without a prefetch, or before [`fetch`](Self::fetch) of a staged table; [`Error::Buffer`] for illegal outputs.
    /// After an error the batch goes on waiting.
    pub fn record_forward_prefetched(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<(), Error> {
        let context = self.front.context.clone();
        context.guarded(|| {
            let indices = self.carry(encoder, outputs)?;
            self.report(encoder, Mode::Train, indices);
            Ok(())
        })
    }

    /// The numbers of indices and bags of the prefetched batch.
    pub(crate) fn prefetched_shape(&self) -> Option<(u32, u32)> {
        self.front.state.prefetched().map(|prefetched| (prefetched.params.indices, prefetched.params.bags))
    }

    /// Records the second half of a step and returns its number of indices.
    pub(crate) fn carry(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: wgpu::BufferSlice<'_>,
    ) -> Result<u32, Error> {
        let prefetched = self.front.state.take_prefetched().ok_or_else(no_prefetch)?;
        if let Err(error) = self.carry_out(encoder, outputs, &prefetched) {
            self.front.state.prefetch(prefetched);
            return Err(error);
        }
        self.front.state.forward(Pending::new(&prefetched.params, prefetched.space));
        Ok(prefetched.params.indices)
    }

    fn carry_out(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        outputs: wgpu::BufferSlice<'_>,
        prefetched: &Prefetched,
    ) -> Result<(), Error> {
        let (params, batch) = (&prefetched.params, prefetched.batch());
        self.bound_outputs(&batch, params, outputs)?;
        let shard = match (&mut self.staged, &prefetched.coming) {
            (Some(staged), Coming::Here(arrivals)) => {
                staged.arrive(&self.front.context, encoder, &self.tables, arrivals)?
            }
            (Some(_), _) => {
                let (call, wanted) = ("record_forward_prefetched", "a fetch after the prefetch has been submitted");
                return Err(Error::Order { call, wanted, found: "a prefetch whose records have not been fetched" });
            }
            (None, _) => None,
        };
        let records = match (&self.staged, &shard) {
            (None, _) => Records::Table,
            (Some(_), None) => Records::Nothing,
            (Some(staged), Some(shard)) => staged.records(shard),
        };
        if let Some(space) = &self.train[prefetched.space] {
            let (binding, rows) = self.bound_outputs(&batch, params, outputs)?;
            let bound = Bound::of(&self.front.context, &self.front.dummy, &batch, params)?;
            let targets = StepTargets { outputs: Some((&binding, rows)), records };
            record_carry(&self.front.context, encoder, &self.tables, space, params, &bound, targets);
        }
        Ok(())
    }
}
