//! Ranks of an MPI job.
//!
//! ```no_run
//! use hotrow::{Bags, CpuGroup, GroupConfig, Lookup, Mode};
//! use hotrow_dist::{Group, mpi};
//!
//! // Started by `mpirun -n 4 PROGRAM`, on each rank:
//! fn main() -> std::process::ExitCode {
//!     mpi::run(|comm| {
//!         let mut group = Group::new(comm, GroupConfig::new(&[1000], 4), 4, CpuGroup::new)?;
//!         let outputs = group.forward(Bags::new(&[7, 3], &[0, 2]), Mode::Train)?;
//!         Ok(group.backward(&outputs)?)
//!     })
//! }
//! ```

mod job;
mod under_way;

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write as _},
    thread,
};

use hotrow::{Error, ranks::zeroed};
/// The crate that calls MPI.
pub use mpi as calls;
use mpi::{
    Rank,
    topology::SimpleCommunicator,
    traits::{Communicator as _, Destination as _, Source as _},
};

use crate::{
    comm::{Comm, Parcels, Ticket},
    error::RankError,
    mpi::under_way::{Buffers, UnderWay},
};
pub use job::{Outcome, run};

/// The most words of a message, 1 GiB, since MPI counts in 31 bits: more goes in pieces.
pub const PIECE: usize = 1 << 28;

/// The exit code of a rank that ends the job.
const ABORTED: i32 = 1;

/// A rank of an MPI job. One thread owns it, and every call of MPI is made in its methods.
///
/// Example: [module](self).
pub struct Mpi {
    world: SimpleCommunicator,
    /// For the ranks that end: a message says how many calls the rank has made.
    ends: SimpleCommunicator,
    /// The calls that all ranks make together, so far.
    calls: u64,
    /// The exchanges under way, and the words that come from each rank.
    open: BTreeMap<u64, (UnderWay, Vec<usize>)>,
    /// The number of calls of each rank that has ended.
    ended: Vec<Option<u64>>,
    /// The most words of a message.
    piece: usize,
}

impl fmt::Debug for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, open, ended, .. } = self;
        f.debug_struct("Mpi").field("calls", calls).field("open", open).field("ended", ended).finish_non_exhaustive()
    }
}

impl Mpi {
    fn new(world: SimpleCommunicator) -> Self {
        let ended = vec![None; world.size().cast_unsigned() as usize];
        Self { ends: world.duplicate(), world, calls: 0, open: BTreeMap::new(), ended, piece: PIECE }
    }

    /// Sends no message of more words, for tests: all ranks make this call. Initially [`PIECE`].
    #[doc(hidden)]
    pub fn set_piece(&mut self, words: usize) {
        self.piece = words;
    }

    /// Ends this rank's part of the job: waits until all ranks have ended theirs. A rank that still waits for this one gets an error.
    ///
    /// # Errors
    /// [`RankError::Exchange`] if an exchange was not finished.
    fn end(mut self) -> Result<(), Error> {
        if !self.open.is_empty() {
            let found = format!("{} on rank {}", self.open.len(), self.rank());
            let (wanted, remedy) = ("none under way".into(), "finish every exchange");
            return Err(RankError::Exchange { what: "end of the job", wanted, found, remedy }.into());
        }
        let own = self.rank();
        for rank in (0..self.size()).filter(|&rank| rank != own) {
            self.ends.process_at_rank(rank.cast_signed()).send(&self.calls);
        }
        self.ended[own as usize] = Some(self.calls);
        while self.ended.contains(&None) {
            self.hear();
            thread::yield_now();
        }
        Ok(())
    }

    /// Takes in the message of a rank that ended, if there is one.
    fn hear(&mut self) {
        if let Some((message, status)) = self.ends.any_process().immediate_matched_probe() {
            let (calls, _) = message.matched_receive::<u64>();
            self.ended[status.source_rank().cast_unsigned() as usize] = Some(calls);
        }
    }

    /// The error of a call, if a rank has ended without it.
    fn missing(&mut self, number: u64) -> Option<Error> {
        self.hear();
        let rank = self.ended.iter().position(|ended| ended.is_some_and(|calls| calls <= number))?;
        Some(RankError::Other { rank: rank as u32, reason: "it ended while others waited for it".into() }.into())
    }

    /// The number of the next call.
    fn next(&mut self) -> u64 {
        self.calls += 1;
        self.calls - 1
    }

    /// Waits for a call.
    fn wait(&mut self, number: u64, mut under_way: UnderWay) -> Result<Buffers, Error> {
        loop {
            under_way = match under_way.buffers() {
                Ok(buffers) => return Ok(buffers),
                Err(under_way) => under_way,
            };
            if let Some(error) = self.missing(number) {
                return Err(error);
            }
            // Ranks may share a core.
            thread::yield_now();
        }
    }
}

impl Comm for Mpi {
    fn rank(&self) -> u32 {
        self.world.rank().cast_unsigned()
    }

    fn size(&self) -> u32 {
        self.world.size().cast_unsigned()
    }

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        send.check(self.rank(), self.size(), receive)?;
        let own = self.rank() as usize;
        let mut words = zeroed::<u32>("received words", receive.iter().sum())?;
        let (from, to) = (send.counts[..own].iter().sum::<usize>(), receive[..own].iter().sum::<usize>());
        words[to..to + receive[own]].copy_from_slice(&send.words[from..from + receive[own]]);
        let number = self.next();
        let under_way = UnderWay::exchange(&self.world, self.piece, send, Parcels { words, counts: receive.to_vec() });
        self.open.insert(number, (under_way, receive.to_vec()));
        Ok(Ticket::new(number))
    }

    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error> {
        let (under_way, _) = self.open.get_mut(&ticket.number()).ok_or_else(|| ticket.unknown())?;
        if under_way.test() {
            return Ok(true);
        }
        self.missing(ticket.number()).map_or(Ok(false), Err)
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        let (under_way, counts) = self.open.remove(&ticket.number()).ok_or_else(|| ticket.unknown())?;
        let words = self.wait(ticket.number(), under_way)?.receive;
        Ok(Parcels { words, counts })
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        let (ranks, number) = (self.size() as usize, self.next());
        let most = (self.piece / ranks).max(1);
        let mut all = Vec::new();
        for (at, piece) in words.chunks(most).enumerate() {
            let receive = zeroed("received words", piece.len() * ranks)?;
            let under_way = UnderWay::all_gather(&self.world, Buffers { send: piece.to_vec(), receive });
            let received = self.wait(number, under_way)?.receive;
            if piece.len() == words.len() {
                return Ok(received);
            }
            if at == 0 {
                all = zeroed("received words", words.len() * ranks)?;
            }
            for (part, all) in received.chunks(piece.len()).zip(all.chunks_mut(words.len())) {
                all[at * most..][..piece.len()].copy_from_slice(part);
            }
        }
        Ok(all)
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        let buffers = Buffers { send: vec![value], receive: vec![value] };
        let number = self.next();
        let under_way = UnderWay::max(&self.world, buffers);
        Ok(self.wait(number, under_way)?.receive[0])
    }

    /// Writes the reason to standard error and ends every rank, this one included.
    fn abort(&mut self, reason: &str) {
        abort(&self.world, ABORTED, reason);
    }
}

/// Names this rank and the reason, and ends every rank of the job.
fn abort(world: &SimpleCommunicator, code: i32, reason: &str) -> ! {
    let (rank, size): (Rank, Rank) = (world.rank(), world.size());
    // In one piece, because the launcher mixes what its ranks and itself write. If standard error is closed, the exit code still tells.
    let line = format!("error: rank {rank} of {size}: {reason}\n");
    let _ = io::stderr().lock().write_all(line.as_bytes());
    world.abort(code)
}
