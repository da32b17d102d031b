//! Ranks as threads of one process: for several devices of one machine, and for tests.

use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use hotrow::{Error, ranks::reserved};

use crate::{
    comm::{Comm, Parcels, Ticket},
    error::{RankError, is_of_another},
};

/// A call that all ranks make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Exchange,
    AllGather,
    Max,
}

impl Call {
    /// The method of [`Comm`] that makes it.
    const fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::AllGather => "all_gather",
            Self::Max => "max",
        }
    }
}

/// What a rank gave to a call. The ranks that it is for copy their part.
#[derive(Clone, Debug)]
struct Letter {
    call: Call,
    parcels: Arc<Parcels>,
}

impl Letter {
    /// The words for a rank. All ranks get the same of an `AllGather` or a `Max`.
    fn part(&self, rank: u32) -> &[u32] {
        if self.call == Call::Exchange { self.parcels.of(rank) } else { &self.parcels.words }
    }
}

/// What the ranks share.
#[derive(Debug)]
struct Job {
    state: Mutex<State>,
    /// A letter has come, or a rank has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The letters of each call, by the number of the call: one a rank. They go when all ranks have read them.
    calls: BTreeMap<u64, Letters>,
    /// Whether each rank has ended.
    ended: Vec<bool>,
    /// The error that ended the job.
    failure: Option<Error>,
}

#[derive(Debug)]
struct Letters {
    from: Vec<Option<Letter>>,
    /// The number of ranks that have still to read them.
    readers: u32,
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the job, unless it is over.
    fn fail(&self, failure: Error) {
        self.lock().failure.get_or_insert(failure);
        self.changed.notify_all();
    }
}

impl State {
    /// Whether the letters of a call have all come. If one never will, the job is over; calls whose letters were all there before still end well.
    fn complete(&mut self, number: u64) -> Result<bool, Error> {
        let from = &self.calls[&number].from;
        if from.iter().all(Option::is_some) {
            return Ok(true);
        }
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let Some(missing) = from.iter().zip(&self.ended).position(|(letter, &ended)| letter.is_none() && ended) else {
            return Ok(false);
        };
        let reason = "it ended while others waited for it".into();
        let failure = Error::from(RankError::Other { rank: missing as u32, reason });
        self.failure = Some(failure.clone());
        Err(failure)
    }
}

/// A rank whose job runs in the threads of one process. Each rank is given to a thread of its own.
///
/// A rank that is dropped, because its thread ends or panics, fails the calls of all that wait for it.
///
/// Example: [`Comm`].
#[derive(Debug)]
pub struct Threads {
    rank: u32,
    size: u32,
    job: Arc<Job>,
    /// The number of calls made together.
    calls: u64,
    /// The counts to receive of each exchange under way.
    open: BTreeMap<u64, Vec<usize>>,
}

impl Threads {
    /// The ranks of a job, rank 0 first.
    #[must_use]
    pub fn new(ranks: u32) -> Vec<Self> {
        let state = State { ended: vec![false; ranks as usize], ..State::default() };
        let job = Arc::new(Job { state: Mutex::new(state), changed: Condvar::new() });
        let rank = |rank| Self { rank, size: ranks, job: job.clone(), calls: 0, open: BTreeMap::new() };
        (0..ranks).map(rank).collect()
    }

    /// A job of one rank: what it sends to itself comes at once, and is not copied.
    #[must_use]
    pub fn alone() -> Self {
        Self::new(1).remove(0)
    }

    /// Runs `work` as each rank of a job, in a thread each, and returns the results, that of rank 0 first. An error or a panic of one rank ends the job.
    ///
    /// # Errors
    /// [`RankError::Other`] with the first rank that failed, and its error or the message of its panic.
    pub fn run<T: Send>(ranks: u32, work: impl Fn(&mut Self) -> Result<T, Error> + Sync) -> Result<Vec<T>, Error> {
        let one = |mut comm: Self| {
            match catch_unwind(AssertUnwindSafe(|| work(&mut comm))) {
                Ok(Ok(result)) => return Some(result),
                // Another rank is the cause.
                Ok(Err(error)) if is_of_another(&error) => comm.job.fail(error),
                Ok(Err(error)) => comm.abort(&error.to_string()),
                Err(panic) => comm.abort(&format!("it panicked: {}", message(&*panic))),
            }
            None
        };
        let comms = Self::new(ranks);
        let Some(job) = comms.first().map(|comm| comm.job.clone()) else { return Ok(Vec::new()) };
        let results: Vec<Option<T>> = thread::scope(|scope| {
            let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(|| one(comm))).collect();
            // A thread that panics all the same, in the drop of a result, has ended its rank.
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
        });
        let panicked = results.iter().position(Option::is_none);
        match (job.lock().failure.take(), panicked) {
            (Some(failure), _) => Err(failure),
            (None, Some(rank)) => Err(RankError::Other { rank: rank as u32, reason: "it panicked".into() }.into()),
            (None, None) => Ok(results.into_iter().flatten().collect()),
        }
    }

    /// Gives this rank's letter to the next call and returns the number of the call.
    fn give(&mut self, call: Call, parcels: Parcels) -> Result<u64, Error> {
        let number = self.calls;
        let mut state = self.job.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let size = self.size;
        let fresh = || Letters { from: vec![None; size as usize], readers: size };
        let letters = state.calls.entry(number).or_insert_with(fresh);
        letters.from[self.rank as usize] = Some(Letter { call, parcels: Arc::new(parcels) });
        drop(state);
        self.job.changed.notify_all();
        self.calls += 1;
        Ok(number)
    }

    /// Waits for the letters of a call.
    fn take(&self, number: u64, call: Call) -> Result<Vec<Letter>, Error> {
        let mut state = self.job.lock();
        while !state.complete(number)? {
            state = self.job.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let letters = state.calls.get_mut(&number).map(|letters| {
            letters.readers -= 1;
            (letters.readers, letters.from.iter().flatten().cloned().collect::<Vec<_>>())
        });
        let (readers, letters) = letters.unwrap_or_default();
        if readers == 0 {
            state.calls.remove(&number);
        }
        drop(state);
        for (rank, letter) in letters.iter().enumerate() {
            if letter.call != call {
                return Err(RankError::Exchange {
                    what: "call",
                    wanted: format!("{} of every rank as call {number}", call.name()),
                    found: format!("{} of rank {rank}", letter.call.name()),
                    remedy: "make the same calls in the same order on every rank",
                }
                .into());
            }
        }
        Ok(letters)
    }

    /// The parts for this rank in the letters of a call, each as long as `wanted` says.
    fn gather(&self, mut letters: Vec<Letter>, wanted: impl Fn(usize) -> usize) -> Result<Vec<u32>, Error> {
        for (rank, letter) in letters.iter().enumerate() {
            let (wanted, found) = (wanted(rank), letter.part(self.rank).len());
            if wanted != found {
                return Err(RankError::Exchange {
                    what: "words",
                    wanted: format!("{wanted} from rank {rank} to rank {}", self.rank),
                    found: found.to_string(),
                    remedy: "give the count of the other rank",
                }
                .into());
            }
        }
        if self.size == 1
            && let Some(own) = letters.pop()
        {
            return Ok(Arc::unwrap_or_clone(own.parcels).words);
        }
        let mut words = reserved("received words", letters.iter().map(|letter| letter.part(self.rank).len()).sum())?;
        letters.iter().for_each(|letter| words.extend_from_slice(letter.part(self.rank)));
        Ok(words)
    }

    /// Gives the same words to every rank and returns those of all.
    fn share(&mut self, call: Call, words: &[u32]) -> Result<Vec<u32>, Error> {
        let number = self.give(call, Parcels { words: words.to_vec(), counts: Vec::new() })?;
        let letters = self.take(number, call)?;
        self.gather(letters, |_| words.len())
    }
}

impl Comm for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
        send.check(self.rank, self.size, receive)?;
        let number = self.give(Call::Exchange, send)?;
        self.open.insert(number, receive.to_vec());
        Ok(Ticket::new(number))
    }

    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error> {
        if !self.open.contains_key(&ticket.number()) {
            return Err(ticket.unknown());
        }
        self.job.lock().complete(ticket.number())
    }

    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error> {
        let number = ticket.number();
        let counts = self.open.remove(&number).ok_or_else(|| ticket.unknown())?;
        let letters = self.take(number, Call::Exchange)?;
        let words = self.gather(letters, |rank| counts[rank])?;
        Ok(Parcels { words, counts })
    }

    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error> {
        self.share(Call::AllGather, words)
    }

    fn max(&mut self, value: u32) -> Result<u32, Error> {
        let values = self.share(Call::Max, &[value])?;
        Ok(values.into_iter().fold(value, u32::max))
    }

    fn abort(&mut self, reason: &str) {
        self.job.fail(RankError::Other { rank: self.rank, reason: reason.into() }.into());
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort("it panicked");
        }
        self.job.lock().ended[self.rank as usize] = true;
        self.job.changed.notify_all();
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &dyn Any) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
