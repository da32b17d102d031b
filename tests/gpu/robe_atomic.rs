//! The atomic backward on the GPU, with every addition that the device has. It gives the model's steps within rounding, and the bits of the
//! sorted backward where sums are exact in any order. Other weights do not move.

use hotrow::internals::Pieces as _;
use hotrow::{
    Context, ContextOptions, Optimizer, SharedGroup,
    internals::AddBody,
    prelude::*,
    robe::{Backward, Config},
};

use hotrow_harness::{
    array_tests,
    arrays::{self, New},
    device::{again, options, share, with_gpu},
    gpu_test,
    shared::{exact, seeds},
};

/// Runs `test` with every addition that the device can run, each on arrays of its context.
fn on_each_body(test: &dyn Fn(&Context, New<'_, SharedGroup>)) {
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

fn on_each(test: &dyn Fn(New<'_, SharedGroup>)) {
    on_each_body(&|_, new| test(new));
}

array_tests!(atomic, on_each, 24);

#[test]
fn exact_sums_are_the_sorted_ones() {
    on_each_body(&|_, new| {
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
    on_each_body(&|context, new| {
        let run = |config: &Config, seed| arrays::two_steps(new, config, seed, |_| {});
        for (seed, weight_decay) in
            share(seeds("windows of atomic arrays", 8).flat_map(|seed| [0.0, 0.25].map(|decay| (seed, decay))))
        {
            let mut config = exact(seed);
            config.optimizer.weight_decay = weight_decay;
            let sorted = run(&config.clone().with_backward(Backward::Sparse), seed);
            for windows in 2..=context.caps().choose_windows().min(3) {
                let window_bytes = Some(4 * u64::from(config.weights.div_ceil(windows)));
                let cut = config.clone().with_backward(Backward::Atomic).with_window_bytes(window_bytes);
                let found = new(&cut).memory().allocations.iter().filter(|(what, _)| *what == "weights").count();
                assert_eq!(found as u32, config.weights.div_ceil(config.weights.div_ceil(windows)), "{cut:?}");
                assert!(run(&cut, seed) == sorted, "seed {seed}, {windows} windows, decay {weight_decay}");
            }
        }
    });
}

#[test]
fn sums_are_told_of() {
    on_each_body(&|_, new| {
        let config = Config::new(&[10], 4, 64, 3).with_weights(5000).with_backward(Backward::Atomic);
        let bytes = |config: &Config, name| -> u64 {
            new(config).memory().allocations.iter().filter(|(what, _)| *what == name).map(|(_, bytes)| bytes).sum()
        };
        assert_eq!((bytes(&config, "sums"), bytes(&config, "covered")), (20_000, 16));
        let decays = config.clone().with_optimizer(Optimizer::sgd(0.1).with_weight_decay(0.1));
        assert_eq!(bytes(&decays, "covered"), (4 * 5000u64.div_ceil(32)).next_multiple_of(16));
        assert_eq!(bytes(&config.with_backward(Backward::Auto), "sums"), 0);
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
