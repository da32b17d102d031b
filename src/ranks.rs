//! What the package `hotrow-dist`, groups over several ranks (SPEC 11), asks of this one. Programs use that package.
//!
//! [`Shard`] is the part of such a group on one rank, and [`shards`] divides a group into them. [`Wire`] and [`Vectors`] read and write messages of rows and
//! gradients. The rest are checks, files and allocations as groups on one machine make them.

#[cfg(feature = "checkpoint")]
pub use crate::checkpoint::{
    beside::{write_pieces, write_whole},
    errors::{fault, refused},
    kind::check_same,
    save::write as write_parts,
};
pub use crate::{
    host::alloc::{reserved, room, zeroed},
    lookup::shard::Shard,
    record::wire::{Vectors, Wire, WireForm},
    stripe::Stripe,
    table::{
        abi::{DIRTY, Feature, NONE, PINNED, features},
        batch::{check_batch, check_rows, output_len},
        layout::Layout,
        step_state::SECOND_FORWARD,
        stripes::shards,
    },
};
