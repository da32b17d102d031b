//! Unified memory as a baseline of benchmarks: whole pages move, least recently used out first, for the same accesses and the same device
//! bytes as a cache (SPEC 4).
//!
//! [`UvmTable`] decides which pages move and counts them. [`UvmModel`] predicts the time of that. [`UvmDevice`] moves the pages on a device
//! and is timed. All three see the same pages.

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
