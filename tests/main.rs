//! The library's tests without a GPU, in one program. `tests/gpu` has the tests with one.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod caps;
mod checkpoint;
mod cpu;
mod face;
mod grid;
mod layers;
mod low_precision;
mod naive;
mod optimisers;
mod pins;
mod public_docs;
mod robe;
mod scaler;
mod shaders;
mod store;
mod threads;

#[test]
fn every_file_of_tests_is_a_module() {
    for program in ["tests", "tests/gpu", "tests/gpu/stages", "tests/store"] {
        hotrow_harness::modules::all_named(env!("CARGO_MANIFEST_DIR"), program);
    }
}
mod words;
