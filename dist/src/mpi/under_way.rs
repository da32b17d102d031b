//! A collective call of MPI under way, with the buffers that it owns. The one file of this package with `unsafe`.
#![allow(
    unsafe_code,
    reason = "the crate lends buffers to MPI for the length of a scope; an exchange under way outlives every scope"
)]

use mpi::{
    Count,
    collective::SystemOperation,
    datatype::{Partition, PartitionMut},
    ffi::MPI_Request,
    request::{LocalScope, Request, StaticScope, scope},
    topology::SimpleCommunicator,
    traits::CommunicatorCollectives as _,
};

/// Where the words of each rank begin, and how many they are.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) counts: Vec<Count>,
    pub(crate) starts: Vec<Count>,
}

/// What MPI reads and writes until the call is done. The standard wants counts and starts to stay, too.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) send: Vec<u32>,
    pub(crate) send_places: Places,
    pub(crate) receive: Vec<u32>,
    pub(crate) receive_places: Places,
}

/// A call that was started. If it is dropped before it is done, its buffers are never freed, since MPI may still write to them.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// Made by `Box::into_raw`. MPI alone uses the buffers while `request` is there.
    buffers: *mut Buffers,
    /// None once the call is done.
    request: Option<MPI_Request>,
}

impl UnderWay {
    /// Starts an all-to-all exchange with a count for each rank.
    ///
    /// # Panics
    /// If a place exceeds its words.
    pub(crate) fn all_to_all(comm: &SimpleCommunicator, buffers: Buffers) -> Self {
        Self::start(buffers, |buffers| {
            let Buffers { send, send_places, receive, receive_places } = buffers;
            let send = Partition::new(&send[..], &send_places.counts[..], &send_places.starts[..]);
            let mut receive =
                PartitionMut::new(&mut receive[..], &receive_places.counts[..], &receive_places.starts[..]);
            scope(|scope| {
                raw(comm.immediate_all_to_all_varcount_into::<_, _, &LocalScope<'_>>(scope, &send, &mut receive))
            })
        })
    }

    /// Starts a gather of the same number of words of each rank.
    pub(crate) fn all_gather(comm: &SimpleCommunicator, buffers: Buffers) -> Self {
        Self::start(buffers, |Buffers { send, receive, .. }| {
            scope(|scope| raw(comm.immediate_all_gather_into(scope, &send[..], &mut receive[..])))
        })
    }

    /// Starts a search for the greatest word of all ranks, at each place.
    pub(crate) fn max(comm: &SimpleCommunicator, buffers: Buffers) -> Self {
        Self::start(buffers, |Buffers { send, receive, .. }| {
            scope(|scope| {
                raw(comm.immediate_all_reduce_into(scope, &send[..], &mut receive[..], SystemOperation::max()))
            })
        })
    }

    fn start(mut buffers: Buffers, begin: impl FnOnce(&mut Buffers) -> MPI_Request) -> Self {
        // Vectors without memory share one address. Open MPI 4.1 takes equal addresses for MPI_IN_PLACE, and then counts this call on this rank
        // alone: later calls would wait for each other for ever.
        for words in [&mut buffers.send, &mut buffers.receive] {
            if words.capacity() == 0 {
                words.reserve(1);
            }
        }
        let buffers = Box::into_raw(Box::new(buffers));
        // SAFETY: the pointer comes from a box, and nothing else knows it.
        let request = begin(unsafe { &mut *buffers });
        Self { buffers, request: Some(request) }
    }

    /// Whether the call is done. Moves it on.
    pub(crate) fn test(&mut self) -> bool {
        let Some(request) = self.request.take() else { return true };
        // SAFETY: the request comes from `raw`, was not completed, and is no longer in `self`. Its buffers live until it is.
        let request = unsafe { Request::from_raw(request, &(), StaticScope) };
        self.request = request.test().err().map(raw);
        self.request.is_none()
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
