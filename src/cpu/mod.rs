//! The CPU side: a plain function for each shader, over the same arrays, with the same integers bit for bit and the same
//! float operations in the same order. [`Group`] tells the story in order; every stage is in the file of its name.
//!
//! It is the oracle of the tests, and what runs without a GPU, on all cores. Results do not depend on their number.
#![allow(clippy::too_many_arguments, reason = "a stage takes the bindings of its shader, in their order")]

mod admit;
mod arrange;
mod assign;
mod begin;
mod claim;
mod collect;
mod combine;
mod dedup;
mod disjoint;
mod exact;
mod exchange;
mod gather;
mod group;
mod heads;
mod histogram;
mod inspect;
mod linearize;
mod locate;
pub(crate) mod memory;
mod merge;
mod parts;
mod pins;
mod probe;
mod record;
mod rescale;
mod reset;
mod resize;
pub(crate) mod robe;
mod robe_gather;
mod robe_hash;
mod robe_keys;
mod robe_merge;
mod robe_update;
#[doc(hidden)] // for benches/cpu_rows.rs; panics where indices lie outside
pub mod rows;
mod scaler;
mod scan;
mod scatter;
mod segments;
mod sort;
mod sort_small;
mod space;
mod spread;
mod tables;
mod touch;
mod update;

pub use admit::admit;
pub use arrange::arrange;
pub use assign::assign;
pub use begin::begin;
pub use claim::claim;
pub use collect::collect;
pub use combine::combine;
pub use exchange::exchange;
pub use gather::gather;
pub use group::Group;
pub use heads::heads;
pub use histogram::histogram;
pub use inspect::inspect;
pub use linearize::linearize;
pub use locate::locate;
pub use merge::merge;
pub use probe::probe;
pub use rescale::rescale;
pub use reset::reset;
pub use robe_gather::robe_gather;
pub use robe_hash::robe_hash;
pub use robe_keys::robe_keys;
pub use robe_merge::robe_merge;
pub use robe_update::robe_update;
pub use scaler::Scaler;
pub use scan::scan;
pub use scatter::scatter;
pub use segments::segments;
pub use sort_small::sort_small;
pub use touch::touch;
pub use update::update;
