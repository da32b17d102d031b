//! Pipelines, dispatches, buffers and readback. The engine knows no stage: it is given the list of kernels.

pub(crate) mod bind;
pub(crate) mod bind_cache;
pub(crate) mod call;
pub(crate) mod caps;
#[cfg(feature = "internals")]
pub(crate) mod capture;
pub(crate) mod changing;
pub(crate) mod context;
pub(crate) mod faults;
pub(crate) mod lost;
pub(crate) mod numbers;
pub(crate) mod options;
pub(crate) mod readback;
pub(crate) mod scratch;
pub(crate) mod timeline;
pub(crate) mod wait;
