//! Plans against the CPU backend and against formulas written out.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod fidelity;
mod hot;

#[test]
fn every_file_of_tests_is_a_module() {
    hotrow_harness::modules::all_named(env!("CARGO_MANIFEST_DIR"));
}
