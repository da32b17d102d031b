//! Errors between ranks.

use hotrow::Error;

/// Why a call of several ranks did not do its job: what an [`Error::Ranks`] holds.
///
/// ```
/// use hotrow::Error;
/// use hotrow_dist::{Comm as _, RankError, Threads};
///
/// let ended = Threads::run(2, |comm| if comm.rank() == 1 { Err(Error::Bags { features: 3, bags: 4 }) } else { comm.max(1) });
/// let Err(Error::Ranks(cause)) = ended else { panic!("{ended:?}") };
/// let Some(RankError::Other { rank, reason }) = cause.downcast_ref() else { panic!("{cause}") };
/// assert!(*rank == 1 && reason.contains("found 4"), "{cause}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// Another rank of the job refused the call, failed, or ended while this one waited for it.
    #[error("rank {rank}: wanted it to take part in the call, found: {reason}; correct the cause on that rank")]
    Other {
        /// The rank that is the cause.
        rank: u32,
        /// Its reason: the message of its error or panic.
        reason: String,
    },
    /// Calls of a [`Comm`](crate::Comm) that do not fit together: counts and words, or the calls of two ranks.
    #[error("exchange, {what}: wanted {wanted}, found {found}; {remedy}")]
    Exchange {
        /// The part that is wrong.
        what: &'static str,
        /// The accepted values.
        wanted: String,
        /// The value found.
        found: String,
        /// The remedy.
        remedy: &'static str,
    },
}

impl RankError {
    /// The error of this type that an error holds, if it holds one.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        if let Error::Ranks(cause) = error { cause.downcast_ref() } else { None }
    }
}

impl From<RankError> for Error {
    fn from(error: RankError) -> Self {
        Self::Ranks(std::sync::Arc::new(Box::new(error)))
    }
}

/// Whether another rank is the cause.
pub(crate) fn is_of_another(error: &Error) -> bool {
    matches!(RankError::of(error), Some(RankError::Other { .. }))
}

/// Cuts `words` words off the front of a message.
pub(crate) fn cut<'w>(message: &mut &'w [u32], words: usize) -> Result<&'w [u32], Error> {
    let found = message.len();
    message.split_off(..words).ok_or_else(|| short(format!("{words} more words"), found.to_string()))
}

/// The list that was read off the front of a message, or the error of a message that ends before it.
pub(crate) fn whole(list: Option<()>) -> Result<(), Error> {
    list.ok_or_else(|| short("the words of its list".into(), "fewer".into()))
}

fn short(wanted: String, found: String) -> Error {
    let remedy = "run the same version of hotrow on all ranks";
    RankError::Exchange { what: "message", wanted, found, remedy }.into()
}
