//! The GPU side. `forward.rs` tells the order of the stages; every stage's host side is in the file of its name.

mod admit;
mod assign;
mod begin;
mod bind;
mod blocking;
mod bounds;
mod call;
mod collect;
mod combine;
mod context;
mod dedup;
mod fetch;
mod forward;
mod gather;
mod group;
mod harness;
mod heads;
mod histogram;
mod linearize;
mod locate;
mod memory;
mod merge;
mod probe;
mod readback;
mod reset;
mod resolve;
mod scan;
mod scatter;
mod segments;
mod sort;
mod sort_small;
mod sorter;
mod space;
mod tables;
mod touch;
mod update;
mod write_back;

pub use context::Context;
pub use group::{Batch, Group};
pub use harness::Deduped;
pub use sorter::{Count, Distinct, SortedPairs, Sorter};

use crate::shader::Kernel;

/// Every stage, in the order a step runs them.
pub(crate) const KERNELS: &[&Kernel] = &[
    &linearize::KERNEL,
    &begin::KERNEL,
    &histogram::KERNEL,
    &scan::KERNEL,
    &scatter::KERNEL,
    &heads::KERNEL,
    &segments::KERNEL,
    &sort_small::KERNEL,
    &probe::KERNEL,
    &touch::KERNEL,
    &admit::KERNEL,
    &bounds::KERNEL,
    &write_back::KERNEL,
    &resolve::KERNEL,
    &fetch::KERNEL,
    &locate::KERNEL,
    &gather::KERNEL,
    &merge::KERNEL,
    &combine::KERNEL,
    &update::KERNEL,
    &collect::KERNEL,
    &reset::KERNEL,
    &assign::KERNEL,
];
