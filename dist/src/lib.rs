//! Several machines: *ranks* that train one group of [`hotrow`] together (SPEC 11).
//!
//! [`Group`] is a group whose rows and batches are divided among ranks. [`Comm`] is what a rank needs of a network. [`Threads`] has its ranks in the threads of one process, or one rank alone, and with the feature `mpi` there is a rank of an MPI job.
//!
//! Features: `checkpoint` (by default): saving, loading, `reshard`. `mpi`: the module `mpi`, which needs an installation of MPI.

#[cfg(feature = "checkpoint")]
mod checkpoint;
mod comm;
mod error;
mod gradients;
mod group;
mod link;
#[cfg(feature = "mpi")]
pub mod mpi;
mod options;
mod prefetch;
mod requests;
#[cfg(feature = "checkpoint")]
mod reshard;
mod step;
mod sums;
mod threads;
mod traffic;

pub use comm::{Comm, Parcels, Ticket};
pub use error::RankError;
pub use group::Group;
pub use hotrow::ranks::{Shard, WireForm, shards};
pub use options::WireOptions;
#[cfg(feature = "checkpoint")]
pub use reshard::{Resharded, reshard};
pub use threads::Threads;
pub use traffic::{Phase, RankTraffic};

/// The snippets of the guide are compiled with the other examples.
#[cfg(all(doctest, feature = "checkpoint"))]
#[doc = include_str!("../../docs/scale-out.md")]
struct ScaleOut;
