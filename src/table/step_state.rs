//! The state of a group between the calls of a step, and the calls that each state allows. Both backends use it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{
    config::GroupConfig,
    error::Error,
    table::{abi::Params, params::Mode},
};

/// A forward that waits for its backward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) indices: u32,
    pub(crate) bags: u32,
    /// The batch had a weight for each index.
    pub(crate) weighted: bool,
    /// The index of the step scratch in which the forward keeps its lists.
    pub(crate) space: usize,
    /// No backward will come ([`GroupConfig::forward_only`]).
    pub(crate) forward_only: bool,
    /// On a device: the number that the forward leaves in the words of its step.
    pub(crate) number: u32,
}

/// A forward, and a flag that says whether its encoder was dropped; `None` if its commands are not the caller's to submit.
type Last = (Pending, Option<Arc<AtomicBool>>);

impl Pending {
    pub(crate) fn new(params: &Params, space: usize, config: &GroupConfig) -> Self {
        let &Params { indices, bags, weighted, .. } = params;
        Self { indices, bags, weighted: weighted == 1, space, forward_only: config.forward_only, number: 0 }
    }
}

/// The state of a group between two calls. `P` is a backend's record of a prefetched batch.
#[derive(Debug)]
pub(crate) enum StepState<P> {
    /// No forward waits for its backward.
    Idle,
    /// A forward waits for its backward.
    Forward(Last),
    /// A prefetched batch waits for its forward. The forward before it may still wait for its backward.
    Prefetched { batch: P, before: Option<Last> },
}

impl<P> StepState<P> {
    /// The forward that waits for its backward.
    pub(crate) fn pending(&self) -> Option<Pending> {
        self.last().filter(|forward| !forward.forward_only)
    }

    /// The last forward, unless its backward has come or never will, or its encoder was dropped.
    pub(crate) fn last(&self) -> Option<Pending> {
        self.encoded().filter(|(_, dropped)| !is_set(dropped)).map(|(pending, _)| *pending)
    }

    fn encoded(&self) -> Option<&Last> {
        match self {
            Self::Idle => None,
            Self::Forward(last) => Some(last),
            Self::Prefetched { before, .. } => before.as_ref(),
        }
    }

    /// From now on the last forward is forgotten once `dropped` is set.
    pub(crate) fn watch(&mut self, dropped: Arc<AtomicBool>) {
        if let Self::Forward(last) | Self::Prefetched { before: Some(last), .. } = self {
            last.1 = Some(dropped);
        }
    }

    /// The prefetched batch that waits for its forward.
    pub(crate) fn prefetched(&self) -> Option<&P> {
        match self {
            Self::Prefetched { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// The prefetched batch that waits for its forward, to change it.
    pub(crate) fn prefetched_mut(&mut self) -> Option<&mut P> {
        match self {
            Self::Prefetched { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// The index of the step scratch that the next batch may use: not the scratch of a forward whose backward will read it.
    pub(crate) fn next_space(&self) -> usize {
        self.pending().map_or(0, |pending| usize::from(pending.space == 0))
    }

    /// Notes that a forward has been carried out.
    pub(crate) fn forward(&mut self, pending: Pending) {
        *self = Self::Forward((pending, None));
    }

    /// Ends the last forward: its backward has come, or never will. A prefetched batch goes on waiting.
    pub(crate) fn end_forward(&mut self) {
        match self {
            Self::Prefetched { before, .. } => *before = None,
            state => *state = Self::Idle,
        }
    }

    /// Notes that a batch has been prefetched.
    pub(crate) fn prefetch(&mut self, batch: P) {
        *self = Self::Prefetched { batch, before: self.encoded().cloned() };
    }

    /// Takes the prefetched batch out; the forward before it goes on waiting for its backward.
    pub(crate) fn take_prefetched(&mut self) -> Option<P> {
        let state = self.encoded().cloned().map_or(Self::Idle, Self::Forward);
        match std::mem::replace(self, state) {
            Self::Prefetched { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// The forward that `call` continues. `call` must come after a forward.
    pub(crate) fn wants_forward(&self, call: &'static str) -> Result<Pending, Error> {
        match self.last() {
            Some(forward) if !forward.forward_only => Ok(forward),
            Some(_) => Err(Error::Config {
                field: "forward_only",
                wanted: format!("false in a group that trains, for {call}"),
                found: "true".into(),
            }),
            None => {
                let found = ["none since the last backward", "one whose encoder was dropped"];
                let found = found[usize::from(self.encoded().is_some())];
                Err(Error::Order { call, wanted: "a forward before each backward", found })
            }
        }
    }

    /// Refuses `call` between a forward and its backward, because `call` would change rows that the backward reads.
    pub(crate) fn not_pending(&self, call: &'static str) -> Result<(), Error> {
        if self.pending().is_none() { Ok(()) } else { Err(backward_first(call)) }
    }

    /// Refuses a forward in `mode` that may not come now.
    pub(crate) fn may_look_up(&self, mode: Mode) -> Result<(), Error> {
        if mode != Mode::Train {
            return self.not_prefetched("frozen forward");
        }
        self.not_prefetched("forward")?;
        self.may_forward()
    }

    /// Refuses another training forward while one waits for its backward, because the gradient of the first one would be lost.
    pub(crate) fn may_forward(&self) -> Result<(), Error> {
        if self.pending().is_none() { Ok(()) } else { Err(SECOND_FORWARD) }
    }

    /// Refuses `call` between a prefetch and its forward, because the tags already belong to the next step and the rows to the last one.
    pub(crate) fn not_prefetched(&self, call: &'static str) -> Result<(), Error> {
        if self.prefetched().is_none() {
            return Ok(());
        }
        let wanted = "forward_prefetched of the batch that was prefetched, or pump after encode_feedback";
        Err(Error::Order { call, wanted, found: "a prefetched batch whose forward has not come" })
    }
}

/// Whether a flag is there and set.
pub(crate) fn is_set(flag: &Option<Arc<AtomicBool>>) -> bool {
    flag.as_ref().is_some_and(|flag| flag.load(Relaxed))
}

/// The error of a training forward before the backward of the last one.
pub const SECOND_FORWARD: Error = Error::Order {
    call: "forward",
    wanted: "backward first (a frozen forward for a look; discard_pending to drop the gradient; GroupConfig::forward_only for a group without backwards)",
    found: "a forward whose backward has not come",
};

/// The error of a `call` that must come after the backward.
pub(crate) fn backward_first(call: &'static str) -> Error {
    Error::Order {
        call,
        wanted: "the backward of the last forward, or discard_pending",
        found: "a forward whose backward has not come",
    }
}

/// The error of `forward_prefetched` without a prefetch.
pub(crate) fn no_prefetch() -> Error {
    Error::Order { call: "forward_prefetched", wanted: "a prefetch before it", found: "none since the last forward" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(space: usize) -> Pending {
        Pending { indices: 3, bags: 1, weighted: false, space, forward_only: false, number: 0 }
    }

    #[test]
    fn a_prefetch_leaves_the_forward_before_it_its_space() {
        let mut state = StepState::Idle;
        assert_eq!(state.next_space(), 0);
        state.forward(pending(0));
        assert_eq!(state.next_space(), 1);
        state.prefetch("batch");
        assert!(state.not_prefetched("flush").is_err() && state.not_pending("pin").is_err());
        assert_eq!(state.wants_forward("backward").map(|forward| forward.space), Ok(0));
        state.end_forward();
        assert!(state.not_prefetched("flush").is_err() && state.not_pending("pin").is_ok());
        assert!(state.wants_forward("backward").is_err());
        assert_eq!(state.take_prefetched(), Some("batch"));
        state.forward(pending(1));
        assert_eq!((state.next_space(), state.take_prefetched()), (0, None));
        assert!(state.pending().is_some(), "it goes on waiting for its backward");
        state.end_forward();
        assert!(matches!(state, StepState::Idle));
    }

    #[test]
    fn a_forward_whose_encoder_is_dropped_waits_for_nothing() {
        let (mut state, dropped) = (StepState::Idle, Arc::new(AtomicBool::new(false)));
        state.forward(pending(0));
        state.watch(dropped.clone());
        state.prefetch("batch");
        assert!(state.wants_forward("backward").is_ok() && state.next_space() == 1);
        dropped.store(true, Relaxed);
        assert!(state.pending().is_none() && state.next_space() == 0);
        let found = state.wants_forward("backward").map(|forward| forward.space);
        assert!(matches!(found, Err(Error::Order { found: "one whose encoder was dropped", .. })), "{found:?}");
        assert_eq!(state.take_prefetched(), Some("batch"));
        assert!(state.may_forward().is_ok());
    }
}
