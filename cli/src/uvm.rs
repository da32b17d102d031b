//! What unified memory would have moved: whole pages, least recently used out first, over the same accesses and in the same
//! device bytes (SPEC 4). A baseline for benchmarks, in no embedder's build.
//!
//! [`UvmTable`] decides which pages come and go, and counts them; [`UvmModel`] says how long that would take; [`UvmDevice`] does
//! it, on a device, and is timed. All three see the same pages.

mod bind;
mod device;
mod host;
mod lists;
mod model;
mod residency;

#[doc(hidden)]
pub use bind::shaders;
pub use device::{UvmDevice, UvmPass};
pub use model::{PAGE_BYTES, UvmModel, UvmTraffic};
pub use residency::{Transfer, UvmTable};
