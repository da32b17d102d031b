//! Several machines: *ranks* that train one group together (SPEC 11).
//!
//! [`Group`] is a group whose rows and batches are divided among ranks, [`Replicated`] a shared array that each rank has whole. [`Comm`] is what a rank
//! needs of a network. [`Solo`] is a job of one rank, [`Threads`] has its ranks in the threads of one process, and the package `hotrow-mpi` implements it
//! over MPI.

mod agree;
#[cfg(feature = "checkpoint")]
mod checkpoint;
mod comm;
mod group;
mod options;
mod prefetch;
mod replicated;
mod requests;
#[cfg(feature = "checkpoint")]
mod reshard;
mod step;
mod stripes;
mod sums;
mod threads;
mod traffic;

pub use comm::{Comm, Parcels, Solo, Ticket};
pub use group::Group;
pub use options::WireOptions;
pub use replicated::Replicated;
#[cfg(feature = "checkpoint")]
pub use reshard::{Resharded, reshard};
pub use stripes::shards;
pub use threads::Threads;
pub use traffic::{Phase, RankTraffic};

pub use crate::{lookup::shard::Shard, record::wire::WireForm};
