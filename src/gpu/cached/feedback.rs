//! Feedback: the rows that a caller's shaders want become the accesses of a step without outputs and without a backward.

use crate::{
    error::Error,
    gpu::{
        cached::{
            forward::Forward,
            group::{Group, grown},
        },
        engine::readback::Tells,
        reader::{Feedback, RowReader},
        stages::cached::space::Bound,
    },
    table::{abi::Params, params::Mode, rng::Purpose},
};

impl Group {
    /// Refuses feedback for a group that admits no rows.
    pub(crate) fn check_feedback(&self, feedback: Option<Feedback>, flushed: bool) -> Result<(), Error> {
        if feedback.is_none()
            || (self.kind.tables.layout.sets > 0 && self.kind.config.policy.facts().admits && !flushed)
        {
            return Ok(());
        }
        Err(Error::Reader {
            what: "feedback",
            wanted: "a cache that admits rows, and Reader::flushed unset".into(),
            found: format!(
                "{} cache rows, policy {}, flushed {flushed}",
                self.kind.config.cache_rows,
                self.kind.config.policy.name()
            ),
            remedy: "give the group cache rows and a policy other than static, or leave Reader::feedback unset",
        })
    }

    /// Takes the rows that shaders have wanted, by `P_want`, since the last call as the next batch, and begins a new frame of the list. The
    /// batch is a training step without outputs and without a backward: wanted rows that are in the cache are stamped, others are admitted by
    /// the group's policy, and all are counted. Call it behind the passes that read rows, in the same encoder or a later one; once a frame
    /// suffices. It never waits, and in a frame like an earlier one it creates nothing.
    ///
    /// Rows of a table on the device, or mapped, are moved in at once, in `encoder`. Rows of a staged table are only decided; [`pump`] moves
    /// them in. Until it has, another call encodes nothing, returns `false`, and the list goes on growing; every other call but `pump` is
    /// refused, as after [`encode_prefetch`](Self::encode_prefetch). Several readers with feedback of a staged table take turns: a call
    /// returns `false` too if another reader has waited longer.
    ///
    /// Under LRU without pins, with at most 32 wanted rows in a set and a list that has room, every wanted row is in the cache once they
    /// have been moved in. A list without room for all takes rows that are not in the cache first, so each call brings others.
    ///
    /// [`pump`]: Self::pump
    ///
    /// # Errors
    /// [`Error::Reader`] for a reader without feedback, of another group, or [`stale`](RowReader::stale); [`Error::Order`] if a forward waits
    /// for its backward, or a prefetched batch for its forward; [`Error::OutOfMemory`]; [`Error::Store`]; the error of an earlier skipped
    /// step. After an error nothing is encoded, and the list is as it was.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_feedback(&mut self, encoder: &mut wgpu::CommandEncoder, reader: &RowReader) -> Result<bool, Error> {
        let wanted = reader.wanted_of(&self.readable)?;
        let context = self.context.clone();
        context.guarded(|| {
            self.check()?;
            let free = self.state.prefetched().is_none_or(|prefetched| prefetched.batch.is_some());
            if self.kind.storage.is_staged() && !reader.has_turn(free) {
                return Ok(false);
            }
            self.not_prefetched("encode_feedback")?;
            self.state.not_pending("encode_feedback")?;
            let layout = &self.kind.tables.layout;
            let rows = wanted.list.rows;
            let params = Params::new(&self.kind.config, layout, Mode::Train, Purpose::WriteBack).batch(rows, 0, false);
            let dummy = self.dummy.clone();
            let bound = Bound::of_wanted(&dummy, &wanted.buffer);
            if self.kind.storage.is_staged() {
                self.decide_bound(encoder, params, &bound, None)?;
            } else {
                let next = self.next_space();
                let layout = &self.kind.tables.layout;
                let space = grown(&mut self.kind.train[next], &context, layout, rows, true)?;
                Forward { tables: &self.kind.tables, space, params: &params, batch: &bound }
                    .encode(&context, encoder, None);
                self.reports.encode(&context, encoder, &space.step, Tells::Done);
            }
            wanted.clear(encoder);
            Ok(true)
        })
    }

    /// Goes on with a staged table's feedback. Once the device has listed the rows, a call has a thread gather their records from the
    /// store (in a browser, the call gathers them); once they are gathered, a call submits their way to the cache and returns `true`. It
    /// never waits for the device, for the store or for the thread. Call it once a frame, before the passes that read rows.
    /// [`fetch`](Self::fetch) before it waits for both.
    ///
    /// # Errors
    /// [`Error::Store`] from the store, [`Error::Device`], [`Error::OutOfMemory`]. After an error nothing is lost, and `pump` may be called
    /// again.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn pump(&mut self) -> Result<bool, Error> {
        let context = self.context.clone();
        context.guarded(|| {
            if self.state.prefetched().is_none_or(|prefetched| prefetched.batch.is_some()) {
                return Ok(false);
            }
            match self.all_here() {
                Ok(true) => {}
                // The encoder was dropped, so the list is as it was.
                Err(Error::Order { .. }) if self.state.prefetched().is_none() => return Ok(false),
                other => return other,
            }
            let Some(prefetched) = self.state.prefetched_mut() else { return Ok(false) };
            if prefetched.coming.gather_on_thread() {
                return Ok(false);
            }
            prefetched.coming.arrive_at_once()?;
            self.end_decided().map(|()| true)
        })
    }

    /// Moves the rows of a decided step, which has no outputs and no backward. Gathers their records, if they are not here.
    pub(crate) fn end_decided(&mut self) -> Result<(), Error> {
        let Some(mut prefetched) = self.state.take_prefetched() else { return Ok(()) };
        let mut encoder = self.context.new_encoder();
        let ended = prefetched.coming.arrive().and_then(|()| self.carry_out(&mut encoder, None, &prefetched));
        if ended.is_err() {
            self.state.prefetch(prefetched);
            return ended;
        }
        self.context.submit(encoder);
        Ok(())
    }
}
