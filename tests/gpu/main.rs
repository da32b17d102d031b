//! Tests of the kernels on every Vulkan driver at hand. `HOTROW_TEST_GPU=require|allow|off` says what a missing adapter
//! means: a failure, a skip that is printed with its reason, or not even looking.

mod bad_input;
mod dedup;
mod device;
mod exact;
mod lockstep;
mod placement;
mod rounding;
mod stages;
