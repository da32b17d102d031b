//! The GPU side. `forward.rs` tells the order of the stages; every stage's host side is in the file of its name.

mod admit;
mod arrange;
mod assign;
mod backward;
mod begin;
mod bind;
mod blocking;
mod call;
mod claim;
mod collect;
mod combine;
mod context;
mod dedup;
mod exchange;
mod forward;
mod gather;
mod group;
mod harness;
mod heads;
mod histogram;
mod inspect;
mod kept;
mod linearize;
mod locate;
mod memory;
mod merge;
mod options;
mod parts;
mod pins;
mod prefetch;
mod probe;
mod readback;
mod rescale;
mod reset;
mod resize;
pub(crate) mod robe;
mod robe_blocks;
mod robe_covered;
mod robe_decode;
mod robe_gather;
mod robe_gradient;
mod robe_hash;
mod robe_keys;
mod robe_merge;
mod robe_runs;
mod robe_scatter;
mod robe_step;
mod robe_update;
mod scaler;
mod scan;
mod scatter;
mod segments;
mod settled;
mod slices;
mod sort;
mod sort_small;
mod sorter;
mod space;
mod staged;
mod tables;
mod timeline;
mod touch;
mod update;
mod windows;

pub use context::Context;
pub use group::{Batch, Group};
pub use harness::Deduped;
#[cfg(test)]
pub(crate) use merge::CHUNK as MERGE_CHUNK;
pub use options::{ContextOptions, Shaders};
pub(crate) use readback::REPORT_BYTES;
pub use scaler::{GradBuffer, Scaler};
pub use sorter::{Count, Distinct, SortedPairs, Sorter};
pub(crate) use space::{FlushSpace, Space};
pub(crate) use staged::Staged;
pub use staged::Traffic;
pub use timeline::{Record, Resolution, Span, Timeline};

use crate::shader::Kernel;

/// Every stage, in the order a step runs them.
pub(crate) const KERNELS: &[&Kernel] = &[
    &linearize::KERNEL,
    &begin::KERNEL,
    &probe::KERNEL,
    &touch::KERNEL,
    &histogram::KERNEL,
    &scan::KERNEL,
    &scatter::KERNEL,
    &heads::KERNEL,
    &segments::KERNEL,
    &sort_small::KERNEL,
    &claim::KERNEL,
    &admit::KERNEL,
    &exchange::KERNEL,
    &locate::KERNEL,
    &gather::KERNEL,
    &arrange::KERNEL,
    &merge::KERNEL,
    &combine::KERNEL,
    &update::KERNEL,
    &inspect::KERNEL,
    &rescale::KERNEL,
    &collect::KERNEL,
    &reset::KERNEL,
    &assign::KERNEL,
    &robe_hash::KERNEL,
    &robe_gather::KERNEL,
    &robe_decode::KERNEL,
    &robe_keys::KERNEL,
    &robe_merge::KERNEL,
    &robe_update::KERNEL,
    &robe_gradient::KERNEL,
    &robe_runs::KERNEL,
    &robe_covered::KERNEL,
    &robe_scatter::KERNEL,
    &robe_step::KERNEL,
    &robe_blocks::KERNEL,
];
