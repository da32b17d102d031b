//! What a rank keeps of a step: the rows that others want of it, and the calls whose messages are under way.

use crate::{
    comm::Ticket,
    requests::Requests,
    sums::{Share, Sums},
};

/// A call whose requests, or whose early rows, are under way.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) requests: Requests,
    /// The number of steps before this call, if anything is rounded.
    pub(crate) step: u32,
    pub(crate) ticket: Ticket,
    pub(crate) stage: Stage,
}

/// What is known of a call before the requests of the other ranks have come.
#[derive(Debug)]
pub(crate) struct Asking {
    /// For each rank, for each of this rank's shards, the number of rows.
    pub(crate) rows: Vec<Vec<usize>>,
    /// Whether a message begins with the number of its sums.
    pub(crate) counts_sums: bool,
    /// What is known; the rows come with the requests.
    pub(crate) asked: Asked,
}

/// What a rank's own shards are asked for in a step, and what the backward needs of it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// For each rank, for each of this rank's shards, the rows and their counts.
    pub(crate) rows: Vec<Vec<(Vec<u32>, Vec<u32>)>>,
    /// For each rank, the number of its output rows with a row of this rank.
    pub(crate) outputs: Vec<usize>,
    /// For each rank, whether its batch has weights.
    pub(crate) weighted: Vec<bool>,
    /// For each rank, the number of sums that it sends to this one, if gradients are summed.
    pub(crate) sent_sums: Vec<usize>,
    /// Those of this rank.
    pub(crate) sums: Option<Sums>,
    /// This rank's part of the batch.
    pub(crate) share: Share,
    /// Whether some rank has a valid index, so that the step takes place.
    pub(crate) valid: bool,
}

/// A forward that waits for its backward.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) requests: Requests,
    pub(crate) asked: Asked,
    pub(crate) indices: usize,
    pub(crate) offsets: Vec<u32>,
    pub(crate) weights: Option<Vec<f32>>,
    /// The number of steps before this one, if anything is rounded.
    pub(crate) step: u32,
}

/// A prefetched batch that waits for its forward.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) indices: usize,
    pub(crate) offsets: Vec<u32>,
    pub(crate) weights: Option<Vec<f32>>,
    /// Room for its outputs.
    pub(crate) outputs: Vec<f32>,
    pub(crate) begun: Begun,
}

/// How far a call is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Its requests are under way.
    Asking(Asking),
    /// Rows that the last batch does not touch are under way.
    Sending { asked: Asked, early: Early },
}

/// The rows of a prefetched batch that go before the backward.
#[derive(Debug, Default)]
pub(crate) struct Early {
    /// For each rank, for each of this rank's shards, for each row asked for, whether it goes early.
    pub(crate) sent: Vec<Vec<Vec<bool>>>,
    /// For each row that this rank asks for, whether it comes early.
    pub(crate) mine: Vec<bool>,
    /// The number of those of each shard.
    pub(crate) lists: Vec<usize>,
    /// The bits of their weights, once they are here.
    pub(crate) rows: Vec<u32>,
}
