//! Exchanges of words between ranks: what `dist` needs of MPI or of any other network.

use hotrow::Error;

use crate::error::RankError;

/// Words for each rank, or from each rank: those of rank 0 first.
///
/// Example: [`Comm`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parcels {
    /// The words of all ranks.
    pub words: Vec<u32>,
    /// The number of words of each rank.
    pub counts: Vec<usize>,
}

impl Parcels {
    /// Makes parcels of one vector a rank, that of rank 0 first: of `[vec![1, 2], vec![], vec![3]]` words `[1, 2, 3]` with counts `[2, 0, 1]`.
    pub fn new(parts: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut parts = parts.into_iter();
        // The words of the first rank are not copied.
        let words = parts.next();
        let mut parcels = Self { counts: words.iter().map(Vec::len).collect(), words: words.unwrap_or_default() };
        for part in parts {
            parcels.counts.push(part.len());
            parcels.words.extend(part);
        }
        parcels
    }

    /// The words of a rank: none if there is no such rank.
    ///
    /// # Panics
    /// If the counts exceed the words.
    #[must_use]
    pub fn of(&self, rank: u32) -> &[u32] {
        self.iter().nth(rank as usize).unwrap_or(&[])
    }

    /// The words of each rank.
    ///
    /// # Panics
    /// If the counts exceed the words.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let mut rest = &self.words[..];
        self.counts.iter().map(move |&count| {
            let (part, after) = rest.split_at(count);
            rest = after;
            part
        })
    }

    /// Checks that `rank`, of `size` ranks, may send these parcels and receive `receive[i]` words of rank i. Each implementation of [`Comm`] checks
    /// so before it sends anything.
    ///
    /// # Errors
    /// [`RankError::Exchange`] if there is not one count for each rank, if the counts do not add up to the words, or if the rank receives another number
    /// of words of itself than it sends.
    pub fn check(&self, rank: u32, size: u32, receive: &[usize]) -> Result<(), Error> {
        let wrong = |what, wanted, found, remedy| Err(RankError::Exchange { what, wanted, found, remedy }.into());
        for (what, counts) in [("counts to send", &self.counts[..]), ("counts to receive", receive)] {
            if counts.len() != size as usize {
                let (wanted, found) = (format!("one for each of {size} ranks"), counts.len().to_string());
                return wrong(what, wanted, found, "give a count for each rank, 0 where nothing goes");
            }
        }
        let sum: u128 = self.counts.iter().map(|&count| count as u128).sum();
        if sum != self.words.len() as u128 {
            let wanted = format!("as many as the counts add up to, {sum}");
            return wrong("words to send", wanted, self.words.len().to_string(), "make parcels by Parcels::new");
        }
        let (sent, received) = (self.counts[rank as usize], receive[rank as usize]);
        if sent != received {
            let wanted = format!("{sent} words of rank {rank} itself, as it sends");
            return wrong("counts to receive", wanted, received.to_string(), "give the same count twice");
        }
        Ok(())
    }
}

/// An exchange that was started and not finished.
///
/// Example: [`Comm`].
#[derive(Debug)]
#[must_use = "an exchange is finished by `Comm::finish`"]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket of an exchange, for implementations of [`Comm`]. The words stay with the implementation, which finds them by this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number given to [`new`](Self::new).
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0
    }

    /// The error for a ticket that this rank did not hand out.
    #[must_use]
    pub fn unknown(&self) -> Error {
        let wanted = "one that this rank's start returned".into();
        RankError::Exchange {
            what: "ticket",
            wanted,
            found: self.0.to_string(),
            remedy: "keep the ticket until finish",
        }
        .into()
    }
}

/// One of the ranks that train together, with its connection to the others.
///
/// All ranks make the same calls of `start`, `all_gather` and `max`, in the same order. Several exchanges may be under way, and each rank finishes them
/// in any order. Each count to receive must be the count that the other rank sends. An implementation may see that calls of two ranks do not fit
/// ([`Threads`](super::Threads) does), or may not (MPI).
///
/// Ranks run one program, so none is asked to mend what another did: after any error but [`RankError::Exchange`] the job is over. A rank that cannot go on
/// calls [`abort`](Self::abort) before it ends.
///
/// ```
/// use hotrow_dist::{Comm, Parcels, Threads};
///
/// // Each rank sends its number to each rank, and finds the numbers of all.
/// let sums = Threads::run(4, |comm: &mut Threads| {
///     let send = Parcels::new((0..comm.size()).map(|_| vec![comm.rank()]));
///     let ticket = comm.start(send, &[1; 4])?;
///     // Other work, and now and then:
///     comm.poll(&ticket)?;
///     let received = comm.finish(ticket)?;
///     assert_eq!(received.of(2), [2]);
///     assert_eq!(received.words, comm.all_gather(&[comm.rank()])?);
///     Ok(received.words.iter().sum::<u32>())
/// })?;
/// assert_eq!(sums, [6; 4]);
/// # Ok::<(), hotrow::Error>(())
/// ```
pub trait Comm: std::fmt::Debug {
    /// The number of this rank, from 0 on.
    fn rank(&self) -> u32;

    /// The number of ranks.
    fn size(&self) -> u32;

    /// Starts an all-to-all exchange. `send` has the words for each rank; those for this rank itself are handed over, not sent. `receive` has the number
    /// of words that come from each.
    ///
    /// # Errors
    /// [`RankError::Exchange`] as in [`Parcels::check`]; nothing was started then. [`RankError::Other`] if the job is over; [`Error::OutOfMemory`].
    fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error>;

    /// Returns whether all words of an exchange have come, and moves it on. An exchange advances only inside calls of this trait.
    ///
    /// # Errors
    /// [`RankError::Exchange`] for a ticket of another rank, and [`RankError::Other`] if the job is over.
    fn poll(&mut self, ticket: &Ticket) -> Result<bool, Error>;

    /// Waits for the words of an exchange and returns them: those of each rank.
    ///
    /// # Errors
    /// [`RankError::Exchange`] for a ticket of another rank, or where calls of two ranks do not fit. [`RankError::Other`] if another rank ended the job, or ended
    /// before it sent its words.
    fn finish(&mut self, ticket: Ticket) -> Result<Parcels, Error>;

    /// Starts and finishes an exchange.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`finish`](Self::finish).
    fn all_to_all(&mut self, send: Parcels, receive: &[usize]) -> Result<Parcels, Error> {
        let ticket = self.start(send, receive)?;
        self.finish(ticket)
    }

    /// Returns the words of all ranks, those of rank 0 first. Each rank gives the same number of words.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn all_gather(&mut self, words: &[u32]) -> Result<Vec<u32>, Error>;

    /// Returns the greatest of the values that the ranks give.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    fn max(&mut self, value: u32) -> Result<u32, Error>;

    /// Ends the whole job: every other rank's calls fail with this reason, or the rank is killed. Over MPI this call does not return.
    fn abort(&mut self, reason: &str);
}

/// Implements methods of [`Comm`] by those of another connection: for one that counts, measures or shares it. It stands in the implementation, with the
/// connection and the methods that are handed on.
///
/// ```
/// use hotrow::Error;
/// use hotrow_dist::{Comm, Parcels, Threads, Ticket, hand_on};
///
/// /// Counts the exchanges.
/// #[derive(Debug)]
/// struct Counted(Threads, u32);
///
/// impl Comm for Counted {
///     hand_on!(self, self.0; rank size poll finish all_gather max abort);
///
///     fn start(&mut self, send: Parcels, receive: &[usize]) -> Result<Ticket, Error> {
///         self.1 += 1;
///         self.0.start(send, receive)
///     }
/// }
/// ```
#[macro_export]
macro_rules! hand_on {
    ($self:ident, $to:expr; $($method:ident)+) => { $($crate::hand_on!(@$method $self $to);)+ };
    (@rank $self:ident $to:expr) => {
        fn rank(&$self) -> u32 {
            ($to).rank()
        }
    };
    (@size $self:ident $to:expr) => {
        fn size(&$self) -> u32 {
            ($to).size()
        }
    };
    (@start $self:ident $to:expr) => {
        fn start(&mut $self, send: $crate::Parcels, receive: &[usize]) -> Result<$crate::Ticket, hotrow::Error> {
            ($to).start(send, receive)
        }
    };
    (@poll $self:ident $to:expr) => {
        fn poll(&mut $self, ticket: &$crate::Ticket) -> Result<bool, hotrow::Error> {
            ($to).poll(ticket)
        }
    };
    (@finish $self:ident $to:expr) => {
        fn finish(&mut $self, ticket: $crate::Ticket) -> Result<$crate::Parcels, hotrow::Error> {
            ($to).finish(ticket)
        }
    };
    (@all_gather $self:ident $to:expr) => {
        fn all_gather(&mut $self, words: &[u32]) -> Result<Vec<u32>, hotrow::Error> {
            ($to).all_gather(words)
        }
    };
    (@max $self:ident $to:expr) => {
        fn max(&mut $self, value: u32) -> Result<u32, hotrow::Error> {
            ($to).max(value)
        }
    };
    (@abort $self:ident $to:expr) => {
        fn abort(&mut $self, reason: &str) {
            ($to).abort(reason);
        }
    };
}

impl<C: Comm + ?Sized> Comm for &mut C {
    hand_on!(self, **self; rank size start poll finish all_gather max abort);
}

impl<C: Comm + ?Sized> Comm for Box<C> {
    hand_on!(self, **self; rank size start poll finish all_gather max abort);
}
