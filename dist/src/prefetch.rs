//! The next batch, asked for ahead: its rows travel while this batch computes (SPEC 11, Prefetch).

use std::borrow::Cow;

use hotrow::{
    Bags, Error, Lookup as _, Precision,
    ranks::{Shard, Wire, check_batch, room},
};

use crate::{
    comm::{Comm, Ticket},
    error::cut,
    group::{Call, Group, merged, size_word},
    requests::Requests,
    step::{Ahead, Asking, Begun, Early, Stage},
    traffic::Phase,
};

/// The error of `forward_prefetched` without a prefetch.
const NO_PREFETCH: Error =
    Error::Order { call: "forward_prefetched", wanted: "a prefetch before it", found: "none since the last forward" };

impl<C: Comm, S: Shard> Group<C, S> {
    /// Asks for the rows of the next batch, while the last forward may still wait for its backward. The rows that the last batch does not touch go before
    /// that backward, so they travel while the program computes; the others go after it. The `backward` may follow, then
    /// [`forward_prefetched`](Self::forward_prefetched) or [`abandon_prefetched`](Self::abandon_prefetched); other forwards, `read_rows`, `flush`, `save` and
    /// `load` are refused until then. Outputs, rows and counters are those of `forward`, bit for bit.
    ///
    /// It waits for a message of a few words from each rank. The ids are under way when it returns: [`advance`](Self::advance) waits for them. The guide,
    /// `docs/scale-out.md`, has an example.
    ///
    /// # Errors
    /// As [`Lookup::forward`](hotrow::Lookup::forward), a bad index included, on every rank; [`Error::Order`] if another prefetched batch waits. Nothing but
    /// the counters of indices outside their tables has changed then, and the last forward still waits for its backward.
    pub fn prefetch(&mut self, bags: Bags<'_>) -> Result<(), Error> {
        let Bags { indices, offsets, weights } = bags;
        let wanted = self.output_len(indices.len(), offsets.len().saturating_sub(1));
        let (outputs, found) = room("outputs", wanted);
        let shape = check_batch(&self.config, bags, wanted).and(found);
        let shape = shape.and_then(|()| self.not_prefetched("prefetch"));
        let begun = self.begin(Call::Prefetch, bags, shape)?;
        let (offsets, weights) = (offsets.to_vec(), weights.map(<[f32]>::to_vec));
        self.ahead = Some(Ahead { indices: indices.len(), offsets, weights, outputs, begun });
        Ok(())
    }

    /// Waits for the ids of the prefetched batch, if there is one, and sends the rows that the last batch does not touch. All ranks call it together, best in
    /// the middle of their computing; else the backward does it.
    ///
    /// # Errors
    /// Those of an exchange, and of a shard that cannot read its rows: as in the middle of a step.
    pub fn advance(&mut self) -> Result<(), Error> {
        let Some(mut ahead) = self.ahead.take() else { return Ok(()) };
        if let Begun { requests, step, ticket, stage: Stage::Asking(asking) } = ahead.begun {
            let sending = self.send_early(requests, step, (ticket, asking));
            ahead.begun = self.or_break(sending)?;
        }
        self.ahead = Some(ahead);
        Ok(())
    }

    /// Whether everything has come that is under way for the prefetched batch. It moves the messages on: many networks do so only while a program calls them.
    /// Each rank calls it as often as it likes.
    ///
    /// # Errors
    /// Those of [`Comm::poll`].
    pub fn poll(&mut self) -> Result<bool, Error> {
        self.ahead.as_ref().map_or(Ok(true), |ahead| self.link.comm.poll(&ahead.begun.ticket))
    }

    /// Runs the forward of the prefetched batch.
    ///
    /// # Errors
    /// [`Error::Order`] without a prefetch; else as in the middle of a step.
    pub fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
        self.whole()?;
        self.may(Call::Forward)?;
        let ahead = self.ahead.take().ok_or(NO_PREFETCH)?;
        let Ahead { indices, offsets, weights, mut outputs, begun } = ahead;
        self.complete(Call::Forward, begun, (indices, &offsets, weights.map(Cow::from)), &mut outputs)?;
        Ok(outputs)
    }

    /// Gives up the prefetched batch, if there is one: its step does not take place. All ranks call it together.
    ///
    /// # Errors
    /// Those of [`Comm::finish`].
    pub fn abandon_prefetched(&mut self) -> Result<(), Error> {
        let Some(ahead) = self.ahead.take() else { return Ok(()) };
        self.link.finish(ahead.begun.ticket).map(drop)
    }

    /// Waits for the early rows.
    pub(crate) fn came(&mut self, mut early: Early, ticket: Ticket) -> Result<Early, Error> {
        let received = self.link.finish(ticket)?;
        early.rows = self.taken(&self.wire_of_rows(), &received, &early.lists)?;
        Ok(early)
    }

    fn wire_of_rows(&self) -> Wire {
        Wire::received(self.config.dim, self.config.precision, self.wire.rows)
    }

    /// Chooses and sends the early rows. In place of the sizes goes, for each shard, one bit for each row of the request, in whole words; behind them the
    /// size where rows may be packed.
    fn send_early(&mut self, requests: Requests, step: u32, asking: (Ticket, Asking)) -> Result<Begun, Error> {
        let asked = self.asked(asking)?;
        let (deal, ranks, wire) = (self.deal, self.link.ranks(), self.wire_of_rows());
        // The rows of the last batch, which its backward will change.
        let last = self.waiting.as_ref().filter(|waiting| waiting.asked.valid);
        let touched: Vec<Vec<u32>> = (0..self.shards.len())
            .map(|k| last.map_or_else(Vec::new, |last| merged(last.asked.rows.iter().map(|shards| &shards[k])).0))
            .collect();
        // A dirty row of this batch that leaves is written back before the batch reads it.
        let rounds = self.config.policy.facts().own_leave && self.config.precision != Precision::Fp32;
        let (mut messages, mut answers) = (vec![Vec::new(); ranks], vec![Vec::new(); ranks]);
        let mut sent = Vec::with_capacity(ranks);
        for (rank, shards) in asked.rows.iter().enumerate() {
            let answer = &mut answers[rank];
            let mut of_rank = Vec::with_capacity(shards.len());
            for ((shard, (rows, _)), touched) in self.shards.iter_mut().zip(shards).zip(&touched) {
                let mut goes: Vec<bool> = rows.iter().map(|row| touched.binary_search(row).is_err()).collect();
                if let Some(shard) = shard.as_mut().filter(|_| goes.contains(&true)) {
                    let before = answer.len();
                    let stored = shard.send_rows(&chosen(rows, &goes), self.wire.rows, step, answer)?;
                    if rounds && stored.contains(&false) {
                        let mut stored = stored.into_iter();
                        goes.iter_mut().filter(|goes| **goes).for_each(|goes| *goes = stored.next() == Some(true));
                        answer.truncate(before);
                        shard.send_rows(&chosen(rows, &goes), self.wire.rows, step, answer)?;
                    }
                }
                messages[rank].extend(goes.chunks(32).map(bits));
                of_rank.push(goes);
            }
            if wire.packs() {
                messages[rank].push(size_word(answer)?);
            }
            sent.push(of_rank);
        }
        let words = |shard: usize| requests.of(shard).len().div_ceil(32);
        let receive: Vec<usize> =
            (0..ranks).map(|rank| deal.of(rank).map(words).sum::<usize>() + usize::from(wire.packs())).collect();
        let received = self.link.exchange(Phase::Sizes, messages, &receive)?;
        let (mut mine, mut lists, mut sizes) = (Vec::with_capacity(requests.rows.len()), Vec::new(), Vec::new());
        for (rank, mut message) in received.iter().enumerate() {
            let mut all = 0;
            for shard in deal.of(rank) {
                let goes = cut(&mut message, words(shard))?;
                let before = mine.len();
                mine.extend((0..requests.of(shard).len()).map(|row| goes[row / 32] >> (row % 32) & 1 == 1));
                let list = mine[before..].iter().filter(|&&comes| comes).count();
                lists.push(list);
                all += list;
            }
            let packed = cut(&mut message, usize::from(wire.packs()))?.first();
            sizes.push(packed.map_or(all * wire.plain_words(), |&size| size as usize));
        }
        let ticket = self.link.start(Phase::Rows, answers, &sizes)?;
        let early = Early { sent, mine, lists, rows: Vec::new() };
        Ok(Begun { requests, step, ticket, stage: Stage::Sending { asked, early } })
    }
}

fn chosen(rows: &[u32], goes: &[bool]) -> Vec<u32> {
    rows.iter().zip(goes).filter(|(_, goes)| **goes).map(|(&row, _)| row).collect()
}

/// Up to 32 bits as a word.
fn bits(bits: &[bool]) -> u32 {
    bits.iter().rev().fold(0, |word, &bit| word << 1 | u32::from(bit))
}
