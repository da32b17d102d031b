//! Tests of the kernels on every Vulkan driver at hand. `HOTROW_TEST_GPU=require|allow|off`: a missing adapter fails the tests, skips them
//! with a printed reason, or is not looked for. `HOTROW_TEST_GPU=lanes` runs them on the lane executor instead (`wgsl-lanes`), as
//! `HOTROW_TEST_LANES` describes it; a test fails at a submission in which the executor finds a fault.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[macro_use]
extern crate hotrow_harness;
mod bad_input;
mod caller;
mod calls;
mod checkpoint;
mod dedup;
mod encoded;
mod exact;
mod face;
mod feedback;
mod filled;
mod futures;
mod grid;
mod lanes;
mod lockstep;
mod lost;
mod low_precision;
mod memory;
mod naive_runs;
mod order;
mod own_rules;
mod parts;
mod pins;
mod pipelines;
mod placement;
mod prefetch;
mod ranks;
mod rate;
mod reader;
mod robe;
mod robe_atomic;
mod rounding;
mod scaler;
mod soak;
mod sort;
mod staged;
mod stages;
mod store_faults;
mod subgroup32;
mod timeline;
mod trusted;
mod windows;

/// Counts the bytes that Rust code holds, for the soak.
#[global_allocator]
static HEAP: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);
