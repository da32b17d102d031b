//! The atomic backward of the CPU backend: the model's steps, the same bits twice, and those of the sorted backward where sums are exact.

use hotrow::{
    CpuSharedGroup, Optimizer,
    robe::{Backward, Config},
};
use hotrow_harness::{
    arrays,
    shared::{config, seeds},
};

fn new(config: &Config) -> CpuSharedGroup {
    CpuSharedGroup::new(config.clone()).unwrap()
}

fn atomic(config: Config) -> Config {
    config.with_backward(Backward::Atomic)
}

#[test]
fn steps_are_the_model_s_and_the_same_bits_twice() {
    let mut seen = 0;
    for seed in seeds("atomic steps", 60) {
        let config = atomic(config(seed));
        seen += arrays::steps_are_the_models(&new, seed, &config);
        // Fractions, whose sums depend on their order.
        let run = || arrays::two_steps(&new, &config, seed, |grads| grads.iter_mut().for_each(|g| *g /= 3.0));
        assert!(run() == run(), "seed {seed}");
    }
    assert!(seen > 10_000, "{seen} weights moved");
}

/// With any optimiser and any decay, since the sums are equal.
#[test]
fn exact_sums_are_the_sorted_ones() {
    let exact = |seed| arrays::exact_sums_are_the_sorted_ones(&new, seed, &config(seed));
    let skipped: u64 = seeds("exact sums", 40).map(exact).sum();
    assert!(skipped > 0);
}

#[test]
fn what_is_covered_decays() {
    arrays::what_is_covered_decays(&new);
}

#[test]
fn a_scaled_loss_and_an_overflow() {
    arrays::a_scaled_loss_and_an_overflow(&new, &atomic(config(11).with_optimizer(Optimizer::adagrad(0.1))));
}
