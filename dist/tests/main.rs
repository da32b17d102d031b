//! Several ranks. No GPU: `tests/gpu/ranks.rs` has the tests with one.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[macro_use]
extern crate hotrow_harness;
mod ahead;
mod allocations;
mod comm;
mod data_parallel;
mod faults;
mod ranks;
mod reshard;

use hotrow::{CpuGroup, Error, GroupConfig};
use hotrow_dist::{Group, RankError, Threads};

/// What `work` returns on each of some ranks, with a group of `config` in `shards` virtual shards.
fn on<T: Send>(
    (ranks, shards): (u32, u32),
    config: &GroupConfig,
    work: impl Fn(Group<&mut Threads, CpuGroup>) -> Result<T, Error> + Sync,
) -> Vec<T> {
    let found = Threads::run(ranks, |comm| work(Group::new(comm, config.clone(), shards, CpuGroup::new)?));
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// The error of ranks that an error holds, or that error.
fn opened<T>(found: Result<T, Error>) -> Result<T, Result<RankError, Error>> {
    found.map_err(|error| RankError::of(&error).cloned().ok_or(error))
}

#[test]
fn every_file_of_tests_is_a_module() {
    hotrow_harness::modules::all_named(env!("CARGO_MANIFEST_DIR"));
}
