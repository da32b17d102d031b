//! Tests of the kernels on every Vulkan driver at hand. `HOTROW_TEST_GPU=require|allow|off` says what a missing adapter
//! means: a failure, a skip that is printed with its reason, or not even looking.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod bad_input;
mod command;
mod dedup;
mod device;
mod exact;
mod lockstep;
mod memory;
#[path = "../common/naive.rs"]
mod naive;
mod naive_runs;
mod placement;
mod rounding;
mod sort;
mod stages;
mod subgroup32;
mod timeline;
mod trusted;
