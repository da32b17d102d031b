//! The atomic backward on the GPU, with every addition that the device has. It gives the model's steps within rounding, and the bits of the
//! sorted backward where sums are exact in any order. Other weights do not move.

use hotrow::internals::Pieces as _;
use hotrow::{
    AddBody, Context, ContextOptions, GradSlice, Optimizer, SharedGroup,
    prelude::*,
    robe::{Backward, Config},
};

use hotrow_harness::{
    arrays,
    device::{again, options, share, with_gpu},
    gpu_test,
    shared::{config, exact, fp32, seeds},
};

/// Runs `test` with every addition that the device can run, each on arrays of its context.
fn on_each_body(test: impl Fn(&Context, &dyn Fn(&Config) -> SharedGroup)) {
    with_gpu(|context| {
        let mut bodies = vec![options().add(AddBody::Exchange)];
        bodies.extend(context.caps().float_atomics.then(|| options().add(AddBody::Native)));
        // And with few workgroups, which loop over their work.
        bodies.push(options().add(AddBody::Exchange).max_groups(3));
        for body in bodies {
            let context = again(&body);
            test(&context, &|config| SharedGroup::new(&context, config.clone()).unwrap());
        }
    });
}

fn atomic(config: Config) -> Config {
    config.with_backward(Backward::Atomic)
}

#[test]
fn steps_are_the_model_s() {
    on_each_body(|_, new| {
        let steps = |seed| arrays::steps_are_the_models(new, seed, &atomic(config(seed)));
        let seen: usize = share(seeds("atomic steps", 24)).map(steps).sum();
        assert!(seen > 1_000, "{seen} weights moved");
    });
}

#[test]
fn exact_sums_are_the_sorted_ones() {
    on_each_body(|_, new| {
        let skipped: u64 = share(seeds("exact sums", 12))
            .chain([3])
            .map(|seed| arrays::exact_sums_are_the_sorted_ones(new, seed, &exact(seed)))
            .sum();
        assert!(skipped > 0);
    });
}

/// A window may begin inside a word of marks. Every covered weight still decays, and only once.
#[test]
fn windows_change_no_bit() {
    on_each_body(|context, new| {
        let run = |config: &Config, seed| arrays::two_steps(new, config, seed, |_| {});
        for (seed, weight_decay) in
            share(seeds("windows of atomic arrays", 8).flat_map(|seed| [0.0, 0.25].map(|decay| (seed, decay))))
        {
            let mut config = exact(seed);
            config.optimizer.weight_decay = weight_decay;
            let sorted = run(&config.clone().with_backward(Backward::Sparse), seed);
            for windows in 2..=context.caps().choose_windows().min(3) {
                let window_bytes = Some(4 * u64::from(config.weights.div_ceil(windows)));
                let cut = atomic(config.clone().with_window_bytes(window_bytes));
                let found = new(&cut).memory().allocations.iter().filter(|(what, _)| *what == "weights").count();
                assert_eq!(found as u32, config.weights.div_ceil(config.weights.div_ceil(windows)), "{cut:?}");
                assert!(run(&cut, seed) == sorted, "seed {seed}, {windows} windows, decay {weight_decay}");
            }
        }
    });
}

/// 100,000 additions to each of five weights.
#[test]
fn one_row_a_hundred_thousand_times() {
    on_each_body(|_, new| {
        for weight_decay in [0.0, 0.5] {
            arrays::one_row_a_hundred_thousand_times(new, Backward::Atomic, weight_decay);
        }
    });
}

#[test]
fn what_is_covered_decays() {
    on_each_body(|_, new| arrays::what_is_covered_decays(new));
}

#[test]
fn a_scaled_loss_and_an_overflow() {
    on_each_body(|_, new| {
        for weight_decay in [0.0, 0.25] {
            let optimizer = Optimizer::sgd(0.5).with_weight_decay(weight_decay);
            arrays::a_scaled_loss_and_an_overflow(new, &atomic(exact(2).with_optimizer(optimizer)));
        }
    });
}

#[test]
fn an_empty_batch_moves_nothing_and_sums_are_told_of() {
    on_each_body(|_, new| {
        let config = atomic(Config::new(&[10], 4, 64, 3).with_weights(5000));
        let mut group = new(&config);
        let before = group.snapshot().unwrap();
        let found = group.forward(&[], &[0, 0, 0], None).unwrap();
        group.backward(&found).unwrap();
        assert_eq!(group.snapshot().unwrap(), before);
        let bytes = |group: &SharedGroup, name| -> u64 {
            group.memory().allocations.iter().filter(|(what, _)| *what == name).map(|(_, bytes)| bytes).sum()
        };
        assert_eq!((bytes(&group, "sums"), bytes(&group, "covered")), (20_000, 16));
        let optimizer = Optimizer::sgd(0.1).with_weight_decay(0.1);
        let decays = new(&config.clone().with_optimizer(optimizer));
        assert_eq!(bytes(&decays, "covered"), (4 * 5000u64.div_ceil(32)).next_multiple_of(16));
        let sorted = new(&config.with_backward(Backward::Auto));
        assert_eq!(bytes(&sorted, "sums"), 0);
        // The gradient alone is computed by a sort.
        group.forward(&[1], &[0, 1], None).unwrap();
        assert_eq!(group.gradient(GradSlice::F32(&[1.0; 4])).unwrap().iter().filter(|&&sum| sum == 1.0).count(), 4);
        assert_eq!(fp32(&group.snapshot().unwrap()), fp32(&before));
    });
}

#[gpu_test]
fn what_a_device_lacks_is_refused(context: &Context) {
    let made =
        Context::with_options(context.device(), context.queue(), &ContextOptions::default().add(AddBody::Native));
    match made {
        Ok(_) => assert!(context.caps().float_atomics),
        Err(error) => {
            assert!(!context.caps().float_atomics);
            assert!(error.to_string().contains("SHADER_FLOAT32_ATOMIC"), "{error}");
        }
    }
}
