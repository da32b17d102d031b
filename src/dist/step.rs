//! What a rank keeps of a step: the rows that others want of it, and the calls whose messages are under way.

use crate::dist::{
    comm::Ticket,
    requests::Requests,
    sums::{Share, Sums},
};

/// A call whose counts are known, and whose requests are under way.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) ticket: Ticket,
    /// For each rank, for each of this rank's shards, the number of rows.
    pub(super) rows: Vec<Vec<usize>>,
    /// Whether a message begins with the number of its sums.
    pub(super) counts_sums: bool,
    pub(super) outputs: Vec<usize>,
    pub(super) weighted: Vec<bool>,
    pub(super) sums: Option<Sums>,
    pub(super) share: Share,
    pub(super) valid: bool,
}

/// What a rank's own shards are asked for in a step, and what the backward needs of it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// For each rank, for each of this rank's shards, the rows and their counts.
    pub(super) rows: Vec<Vec<(Vec<u32>, Vec<u32>)>>,
    /// For each rank, the number of its output rows with a row of this rank.
    pub(super) outputs: Vec<usize>,
    /// For each rank, whether its batch has weights.
    pub(super) weighted: Vec<bool>,
    /// For each rank, the number of sums that it sends to this one, if gradients are summed.
    pub(super) sent_sums: Vec<usize>,
    /// Those of this rank.
    pub(super) sums: Option<Sums>,
    /// This rank's part of the batch.
    pub(super) share: Share,
    /// Whether some rank has a valid index, so that the step takes place.
    pub(super) valid: bool,
}

/// A forward that waits for its backward.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) requests: Requests,
    pub(super) asked: Asked,
    pub(super) indices: usize,
    pub(super) bags: usize,
    pub(super) weights: Option<Vec<f32>>,
    pub(super) scales: Vec<f32>,
    /// For each output row what makes the random bits of its gradient, if that is rounded.
    pub(super) numbers: Vec<[u32; 2]>,
    /// The number of steps before this one, if anything is rounded.
    pub(super) step: u32,
}

/// A prefetched batch that waits for its forward.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) indices: usize,
    pub(super) offsets: Vec<u32>,
    pub(super) weights: Option<Vec<f32>>,
    /// Room for its outputs.
    pub(super) outputs: Vec<f32>,
    pub(super) requests: Requests,
    /// The number of steps before it, if anything is rounded.
    pub(super) step: u32,
    pub(super) stage: Stage,
}

/// How far a prefetched batch is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its requests are under way.
    Asking(Asking),
    /// Rows that the last batch does not touch are under way.
    Sending { asked: Asked, early: Early, ticket: Ticket },
}

/// The rows of a prefetched batch that go before the backward.
#[derive(Debug, Default)]
pub(super) struct Early {
    /// For each rank, for each of this rank's shards, for each row asked for, whether it goes early.
    pub(super) sent: Vec<Vec<Vec<bool>>>,
    /// For each row that this rank asks for, whether it comes early.
    pub(super) mine: Vec<bool>,
    /// The number of those of each shard.
    pub(super) lists: Vec<usize>,
    /// The bits of their weights, once they are here.
    pub(super) rows: Vec<u32>,
}

impl Ahead {
    /// The exchange that is under way.
    pub(super) fn ticket(&self) -> &Ticket {
        match &self.stage {
            Stage::Asking(Asking { ticket, .. }) | Stage::Sending { ticket, .. } => ticket,
        }
    }

    /// The exchange that is under way, to end it.
    pub(super) fn into_ticket(self) -> Ticket {
        match self.stage {
            Stage::Asking(Asking { ticket, .. }) | Stage::Sending { ticket, .. } => ticket,
        }
    }
}
