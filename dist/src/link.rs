//! A rank's connection: exchanges, which are counted, and agreements of all ranks about a call: whether it worked everywhere, and whose error it is if not.
//! An error of the connection itself ends the job.

use hotrow::{Error, ScalerState};

use crate::{
    comm::{Comm, Parcels, Ticket},
    error::{RankError, is_of_another},
    traffic::{Phase, RankTraffic},
};

#[derive(Debug)]
pub(crate) struct Link<C> {
    pub(crate) comm: C,
    pub(crate) traffic: RankTraffic,
}

impl<C: Comm> Link<C> {
    pub(crate) fn new(comm: C) -> Self {
        Self { traffic: RankTraffic::new(comm.size()), comm }
    }

    /// The number of this rank.
    pub(crate) fn own(&self) -> usize {
        self.comm.rank() as usize
    }

    /// The number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        self.comm.size() as usize
    }

    pub(crate) fn start(&mut self, phase: Phase, parts: Vec<Vec<u32>>, receive: &[usize]) -> Result<Ticket, Error> {
        self.traffic.count(phase, self.comm.rank(), &parts);
        let started = self.comm.start(Parcels::new(parts), receive);
        self.or_abort(started)
    }

    pub(crate) fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        let finished = self.comm.finish(ticket);
        self.or_abort(finished)
    }

    pub(crate) fn exchange(&mut self, phase: Phase, parts: Vec<Vec<u32>>, receive: &[usize]) -> Result<Parcels, Error> {
        let ticket = self.start(phase, parts, receive)?;
        self.finish(ticket)
    }

    pub(crate) fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        let all = self.comm.all_gather(words);
        self.or_abort(all)
    }

    pub(crate) fn max(&mut self, value: u32) -> Result<u32, Error> {
        let most = self.comm.max(value);
        self.or_abort(most)
    }

    /// Ends the job after an error that the other ranks do not know of. A rank that is alone goes on.
    pub(crate) fn or_abort<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && self.comm.size() > 1
            && !is_of_another(error)
        {
            self.comm.abort(&error.to_string());
        }
        result
    }

    /// Whether a part of a call that all ranks make worked on all of them. Returns this rank's error, or that of the first rank that has one.
    pub(crate) fn agree(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        if self.max(u32::from(result.is_err()))? == 0 { Ok(()) } else { self.all_fail(result) }
    }

    /// The error of a part of a call that did not work on all ranks. All ranks call this.
    pub(crate) fn all_fail(&mut self, result: Result<(), Error>) -> Result<(), Error> {
        // The first rank that refused has the greatest distance to the last.
        let last = self.comm.size() - 1;
        let rank = last - self.max(if result.is_err() { last - self.comm.rank() } else { 0 })?;
        Err(self.refusal(rank, result.err())?)
    }

    /// As [`agree`](Self::agree), and whether all ranks have one decision about a scaled loss.
    pub(crate) fn agree_scaled(&mut self, result: Result<(), Error>, scaler: &ScalerState) -> Result<(), Error> {
        let own = [u32::from(result.is_err()), scaler.inverse.to_bits(), scaler.overflow];
        let all = self.all_gather(&own)?;
        if all.iter().step_by(own.len()).any(|&failed| failed != 0) {
            return self.all_fail(result);
        }
        let Some(rank) = all.chunks_exact(own.len()).position(|other| other != own) else { return Ok(()) };
        let shown = |words: &[u32]| format!("1/{}, overflow {}", f32::from_bits(words[1]).recip(), words[2]);
        Err(RankError::Exchange {
            what: "scaler",
            wanted: format!("one decision on all ranks, here a factor of {}", shown(&own)),
            found: format!("{} on rank {rank}", shown(&all[own.len() * rank..])),
            remedy: "let each rank's scaler inspect the greatest magnitude of all ranks: Comm::max of its bits",
        }
        .into())
    }

    /// The error of a batch that `rank`, the first of perhaps several, refused. All ranks call this.
    pub(crate) fn refusal(&mut self, rank: u32, own: Option<Error>) -> Result<Error, Error> {
        let text = own.as_ref().map_or_else(String::new, Error::to_string);
        let lengths = self.all_gather(&[text.len() as u32])?;
        let most = lengths.iter().max().map_or(0, |&most| most as usize).div_ceil(4);
        let mut bytes = text.into_bytes();
        bytes.resize(4 * most, 0);
        let all = self.all_gather(&bytemuck::pod_collect_to_vec::<u8, u32>(&bytes))?;
        if let Some(error) = own {
            return Ok(error);
        }
        let text: &[u8] = bytemuck::cast_slice(&all[rank as usize * most..][..most]);
        let reason = String::from_utf8_lossy(&text[..lengths[rank as usize] as usize]).into_owned();
        Ok(RankError::Other { rank, reason }.into())
    }
}
