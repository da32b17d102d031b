//! The tests of the command in one program: of the command from outside, its traces and its unified-memory baseline.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod cli;
mod common;
mod export;
mod fuzz;
mod golden;
mod gpu;
mod info;
mod output;
mod papers;
mod plan;
mod plan_dist;
mod plan_robe;
mod profile;
mod reshard;
mod simulate;
mod traces;

#[test]
fn every_file_of_tests_is_a_module() {
    hotrow_harness::modules::all_named(env!("CARGO_MANIFEST_DIR"));
}
