//! Calls of MPI under way, with the buffers that they own. The one file of this package with `unsafe`.
#![allow(
    unsafe_code,
    reason = "the crate lends buffers to MPI for the length of a scope; an exchange under way outlives every scope"
)]

use std::mem;

use mpi::{
    Rank,
    collective::SystemOperation,
    ffi::MPI_Request,
    request::{Request, StaticScope, scope},
    topology::SimpleCommunicator,
    traits::{Communicator as _, CommunicatorCollectives as _, Destination as _, Source as _},
};

use crate::comm::Parcels;

/// What MPI reads and writes until the call is done.
#[derive(Debug)]
pub(crate) struct Buffers {
    pub(crate) send: Vec<u32>,
    pub(crate) receive: Vec<u32>,
}

/// A call that was started. If it is dropped before it is done, its buffers are never freed, since MPI may still write to them.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// Made by `Box::into_raw`. MPI alone uses the buffers while there are requests.
    buffers: *mut Buffers,
    /// Those that are not done.
    requests: Vec<MPI_Request>,
}

impl UnderWay {
    /// Starts an all-to-all exchange in messages of at most `piece` words. Between two ranks they arrive in the order in which they are sent, those of an
    /// earlier exchange first. `received` has room for the words of each rank, and those of this rank itself, which are not sent.
    pub(crate) fn exchange(comm: &SimpleCommunicator, piece: usize, sent: Parcels, received: Parcels) -> Self {
        let other = |rank: Rank| (rank != comm.rank()).then(|| comm.process_at_rank(rank));
        Self::start(Buffers { send: sent.words, receive: received.words }, |Buffers { send, receive }| {
            let (mut send, mut receive, mut requests) = (&send[..], &mut receive[..], Vec::new());
            for (rank, count) in (0..).zip(received.counts) {
                let (own, after) = receive.split_at_mut(count);
                receive = after;
                let Some(other) = other(rank) else { continue };
                let start = |words| scope(|scope| raw(other.immediate_receive_into(scope, words)));
                requests.extend(own.chunks_mut(piece).map(start));
            }
            for (rank, count) in (0..).zip(sent.counts) {
                let (own, after) = send.split_at(count);
                send = after;
                let Some(other) = other(rank) else { continue };
                let start = |words| scope(|scope| raw(other.immediate_send(scope, words)));
                requests.extend(own.chunks(piece).map(start));
            }
            requests
        })
    }

    /// Starts a gather of the same number of words of each rank.
    pub(crate) fn all_gather(comm: &SimpleCommunicator, buffers: Buffers) -> Self {
        Self::start(buffers, |Buffers { send, receive, .. }| {
            vec![scope(|scope| raw(comm.immediate_all_gather_into(scope, &send[..], &mut receive[..])))]
        })
    }

    /// Starts a search for the greatest word of all ranks, at each place.
    pub(crate) fn max(comm: &SimpleCommunicator, buffers: Buffers) -> Self {
        Self::start(buffers, |Buffers { send, receive, .. }| {
            vec![scope(|scope| {
                raw(comm.immediate_all_reduce_into(scope, &send[..], &mut receive[..], SystemOperation::max()))
            })]
        })
    }

    /// No buffer of a collective call may be empty: vectors without memory share one address, which Open MPI 4.1 takes for `MPI_IN_PLACE`.
    fn start(buffers: Buffers, begin: impl FnOnce(&mut Buffers) -> Vec<MPI_Request>) -> Self {
        let buffers = Box::into_raw(Box::new(buffers));
        // SAFETY: the pointer comes from a box, and nothing else knows it.
        let requests = begin(unsafe { &mut *buffers });
        Self { buffers, requests }
    }

    /// Whether the call is done. Moves it on.
    pub(crate) fn test(&mut self) -> bool {
        let left = mem::take(&mut self.requests).into_iter().filter_map(|request| {
            // SAFETY: the request comes from `raw`, was not completed, and is no longer in `self`. Its buffers live until it is.
            unsafe { Request::from_raw(request, &(), StaticScope) }.test().err().map(raw)
        });
        self.requests = left.collect();
        self.requests.is_empty()
    }

    /// The buffers of a call that is done, else the call.
    pub(crate) fn buffers(mut self) -> Result<Buffers, Self> {
        if !self.test() {
            return Err(self);
        }
        // SAFETY: the pointer comes from `Box::into_raw`, MPI is done with it, and `self` ends here, without a destructor.
        Ok(*unsafe { Box::from_raw(self.buffers) })
    }
}

/// Takes a request out of its scope. Its buffers must live until it is done: each caller here keeps them in a [`UnderWay`].
fn raw<'a, D: ?Sized, S: mpi::request::Scope<'a>>(request: Request<'a, D, S>) -> MPI_Request {
    // SAFETY: `UnderWay` completes the request before it frees the buffers, and otherwise never frees them.
    unsafe { request.into_raw() }.0
}
