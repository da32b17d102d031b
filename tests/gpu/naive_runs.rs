//! The GPU against the naive FP64 model of `tests/harness/src/naive.rs`, which shares no code with either backend.

use hotrow::internals::Pieces as _;
use hotrow::{Context, Embedding, Group, GroupConfig, Placement};
use proptest::test_runner::{TestCaseError, TestRunner};

use hotrow_harness::{gpu_test, naive, sample, seed::proptest};

/// Makes a group. Every other group without a given piece size is staged.
fn group(context: &Context, mut config: GroupConfig) -> Box<dyn Embedding> {
    if config.piece_bytes().is_none() && config.seed % 2 == 1 {
        config.placement = Placement::Staged;
    }
    Box::new(Group::new(context, config).expect("every configuration of the strategies is legal"))
}

#[gpu_test]
fn edge_cases(context: &Context) {
    for (name, config, run) in sample(7, naive::edge_cases()) {
        let found = naive::check_run(&mut |config| group(context, config), &config, &run);
        found.unwrap_or_else(|difference| panic!("{name}: {difference}"));
    }
}

#[gpu_test]
fn random_runs(context: &Context) {
    let config = proptest("naive runs", sample(4, 0..48).count() as u32);
    let outcome = TestRunner::new(config).run(&naive::runs(), |(config, run)| {
        naive::check_run(&mut |config| group(context, config), &config, &run).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failed| panic!("{failed}"));
}
