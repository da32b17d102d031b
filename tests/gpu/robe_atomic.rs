//! The atomic backward on the GPU, with every addition that the device has. It gives the model's steps within rounding, and the bits of the
//! sorted backward where sums are exact in any order. Other weights do not move.

use hotrow::internals::Pieces as _;
use hotrow::{
    AddBody, Context, ContextOptions, CpuScaler, GradSlice, Init, LossScale, Optimizer, Pooling, RobeGroup,
    robe::{self, Backward, Config, Gradient, RobeSnapshot},
};

use hotrow_harness::{
    device::{again, options, share, with_gpu},
    shared::{Bags, any_order, bags, close, config, forward, fp32, moved_within, nudge, outputs, random_grads},
};

/// Runs `test` with every addition that the device can run.
fn on_each_body(test: impl Fn(&Context)) {
    with_gpu(|context| {
        let mut bodies = vec![AddBody::Exchange];
        bodies.extend(context.caps().float_atomics.then_some(AddBody::Native));
        for add in bodies {
            test(&again(&options().add(add)));
        }
        // And with few workgroups, which loop over their work.
        test(&again(&options().add(AddBody::Exchange).max_groups(3)));
    });
}

fn atomic(config: Config) -> Config {
    config.with_backward(Backward::Atomic)
}

#[test]
fn steps_are_the_model_s() {
    on_each_body(|context| {
        let mut seen = 0;
        for seed in share(1..25) {
            let config = atomic(config(seed));
            let mut group = RobeGroup::new(context, config.clone()).unwrap();
            for step in 0..3 {
                let (per_feature, most) = if step == 2 { (20, 60) } else { (5, 12) };
                let bags = bags(&config, seed * 10 + step, per_feature, most);
                let before = group.snapshot().unwrap();
                let found = forward(&mut group, &bags);
                close(&found, &outputs(&config, &fp32(&before), &bags)).unwrap_or_else(|e| panic!("{seed}: {e}"));
                let grads = random_grads(seed, found.len());
                group.backward(&grads).unwrap();
                let after = group.snapshot().unwrap();
                seen += moved_within(any_order(&config, &bags), &config, &bags, &grads, &before, &after)
                    .unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
                // The comparison must notice a weight that is slightly wrong.
                if seed == 1 {
                    let mut wrong = after.clone();
                    nudge(&mut wrong, 0, 0.1);
                    moved_within(any_order(&config, &bags), &config, &bags, &grads, &before, &wrong).unwrap_err();
                }
            }
        }
        assert!(seen > 1_000, "{seen} weights moved");
    });
}

/// Whole numbers, whose sums are exact in any order.
fn whole(seed: u64, n: usize) -> Vec<f32> {
    random_grads(seed, n).iter().map(|g| (g * 8.0).round()).collect()
}

/// A configuration with sums without weights, and SGD at a power of two without decay.
fn exact(seed: u64) -> Config {
    let pooling = [Pooling::Sum, Pooling::None][seed as usize % 2];
    config(seed).with_pooling(pooling).with_optimizer(Optimizer::sgd(0.5))
}

/// Runs two steps and returns the state.
fn run(context: &Context, config: &Config, seed: u64, spoil: impl Fn(&mut [f32])) -> RobeSnapshot {
    let mut group = RobeGroup::new(context, config.clone()).unwrap();
    for step in 0..2 {
        let bags = Bags { weights: None, ..bags(config, seed + step, 12, 60) };
        let n = forward(&mut group, &bags).len();
        let mut grads = whole(step, n);
        spoil(&mut grads);
        group.backward(&grads).unwrap();
    }
    group.snapshot().unwrap()
}

#[test]
fn exact_sums_are_the_sorted_ones() {
    on_each_body(|context| {
        for seed in share(0..12) {
            let sorted = run(context, &exact(seed).with_backward(Backward::Sparse), seed, |_| {});
            assert!(run(context, &atomic(exact(seed)), seed, |_| {}) == sorted, "seed {seed}");
            let other = run(context, &atomic(exact(seed)), seed, |grads| grads.iter_mut().for_each(|g| *g += 1.0));
            assert!(other != sorted, "the comparison can fail");
        }
    });
}

/// A window may begin inside a word of marks. Every covered weight still decays, and only once.
#[test]
fn windows_change_no_bit() {
    on_each_body(|context| {
        for (seed, weight_decay) in share((0..8).flat_map(|seed| [0.0, 0.25].map(|decay| (seed, decay)))) {
            let mut config = exact(seed);
            config.optimizer.weight_decay = weight_decay;
            let sorted = run(context, &config.clone().with_backward(Backward::Sparse), seed, |_| {});
            for windows in 2..=context.caps().choose_windows().min(3) {
                let window_bytes = Some(4 * u64::from(config.weights.div_ceil(windows)));
                let cut = atomic(config.clone().with_window_bytes(window_bytes));
                let group = RobeGroup::new(context, cut.clone()).unwrap();
                let found = group.memory().allocations.iter().filter(|(what, _)| *what == "weights").count();
                assert_eq!(found as u32, config.weights.div_ceil(config.weights.div_ceil(windows)), "{cut:?}");
                assert!(
                    run(context, &cut, seed, |_| {}) == sorted,
                    "seed {seed}, {windows} windows, decay {weight_decay}"
                );
            }
        }
    });
}

#[test]
fn what_is_not_finite_is_left_out_and_counted_as_when_sorted() {
    on_each_body(|context| {
        let mut skipped = 0;
        for seed in share(0..8) {
            let spoil = |grads: &mut [f32]| {
                grads.iter_mut().step_by(97).for_each(|g| *g = f32::NAN);
                grads.iter_mut().skip(5).step_by(101).for_each(|g| *g = f32::INFINITY);
                grads.iter_mut().skip(7).step_by(103).for_each(|g| *g = f32::NEG_INFINITY);
            };
            let sorted = run(context, &exact(seed).with_backward(Backward::Dense), seed, spoil);
            let found = run(context, &atomic(exact(seed)), seed, spoil);
            assert_eq!(found.counters, sorted.counters, "seed {seed}");
            assert!(found == sorted, "seed {seed}");
            skipped += found.counters.skipped_weights;
        }
        assert!(skipped > 0);
    });
}

/// 100,000 additions to each of five weights.
#[test]
fn one_row_a_hundred_thousand_times() {
    on_each_body(|context| {
        let n = 100_000;
        for weight_decay in [0.0, 0.5] {
            let mut config = atomic(Config::new(&[1 << 31], 5, 40_000, 3));
            (config.init, config.optimizer) =
                (Init::Constant(0.0), Optimizer::sgd(1.0).with_weight_decay(weight_decay));
            let mut group = RobeGroup::new(context, config).unwrap();
            group.forward(&vec![2_000_000_000; n], &[0, n as u32], None).unwrap();
            group.backward(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
            let sums = [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| -100_000.0 * x);
            assert_eq!(group.read_rows(&[2_000_000_000]).unwrap(), sums);
            assert_eq!(fp32(&group.snapshot().unwrap()).iter().filter(|&&w| w != 0.0).count(), 5);
        }
    });
}

/// Decay changes all covered weights and no others, even if their gradients add up to 0. The marks are cleared after each step.
#[test]
fn what_is_covered_decays() {
    on_each_body(|context| {
        let mut config = atomic(Config::new(&[1000], 6, 500, 4));
        (config.init, config.optimizer) = (Init::Constant(1.0), Optimizer::sgd(1.0).with_weight_decay(0.5));
        let mut group = RobeGroup::new(context, config).unwrap();
        let mut wanted = vec![1.0; 500];
        for row in [3, 77] {
            let found = group.forward(&[row, row], &[0, 1, 2], None).unwrap();
            assert_eq!(found.len(), 12);
            // The gradients of the two outputs cancel.
            group.backward(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0]).unwrap();
            let mut read: Vec<u32> = (0..6).map(|e| robe::hash::location(row, e, 500, 4)).collect();
            read.sort_unstable();
            read.dedup();
            read.iter().for_each(|&w| wanted[w as usize] *= 0.5);
            assert_eq!(fp32(&group.snapshot().unwrap()), wanted, "row {row}");
        }
    });
}

#[test]
fn a_scaled_loss_and_an_overflow() {
    on_each_body(|context| {
        for weight_decay in [0.0, 0.25] {
            let optimizer = Optimizer::sgd(0.5).with_weight_decay(weight_decay);
            let config = atomic(exact(2).with_optimizer(optimizer));
            let bags = Bags { weights: None, ..bags(&config, 2, 6, 40) };
            let mut group = RobeGroup::new(context, config.clone()).unwrap();
            let mut plain = RobeGroup::new(context, config).unwrap();
            let n = forward(&mut group, &bags).len();
            forward(&mut plain, &bags);
            let grads = whole(5, n);
            let scaled: Vec<u16> = grads.iter().map(|g| half::f16::from_f32(g * 64.0).to_bits()).collect();
            let decided = |grads| {
                let mut scaler = CpuScaler::new(LossScale::Static { scale: 64.0 }).unwrap();
                scaler.inspect(grads);
                scaler.decide().unwrap()
            };
            group.backward_scaled(GradSlice::F16(&scaled), &decided(GradSlice::F16(&scaled))).unwrap();
            plain.backward(&grads).unwrap();
            let after = group.snapshot().unwrap();
            assert_eq!(after, plain.snapshot().unwrap());
            forward(&mut group, &bags);
            let wrong = vec![f32::NAN; n];
            group.backward_scaled(GradSlice::F32(&wrong), &decided(GradSlice::F32(&wrong))).unwrap();
            assert_eq!(fp32(&group.snapshot().unwrap()), fp32(&after));
            // The next step starts from cleared sums and marks.
            forward(&mut group, &bags);
            group.backward(&vec![0.0; n]).unwrap();
            let next = group.snapshot().unwrap();
            assert_eq!(fp32(&next) == fp32(&after), weight_decay == 0.0);
            assert!(fp32(&next).iter().all(|w| w.is_finite()) && next.counters.skipped_weights == 0);
        }
    });
}

#[test]
fn an_empty_batch_moves_nothing_and_sums_are_told_of() {
    on_each_body(|context| {
        let config = atomic(Config::new(&[10], 4, 64, 3).with_weights(5000));
        let mut group = RobeGroup::new(context, config.clone()).unwrap();
        let before = group.snapshot().unwrap();
        let found = group.forward(&[], &[0, 0, 0], None).unwrap();
        group.backward(&found).unwrap();
        assert_eq!(group.snapshot().unwrap(), before);
        let bytes = |group: &RobeGroup, name| -> u64 {
            group.memory().allocations.iter().filter(|(what, _)| *what == name).map(|(_, bytes)| bytes).sum()
        };
        assert_eq!((bytes(&group, "sums"), bytes(&group, "covered")), (20_000, 16));
        let optimizer = Optimizer::sgd(0.1).with_weight_decay(0.1);
        let decays = RobeGroup::new(context, config.clone().with_optimizer(optimizer)).unwrap();
        assert_eq!(bytes(&decays, "covered"), (4 * 5000u64.div_ceil(32)).next_multiple_of(16));
        let sorted = RobeGroup::new(context, config.with_backward(Backward::Auto)).unwrap();
        assert_eq!(bytes(&sorted, "sums"), 0);
        // The gradient alone is computed by a sort, and is dense.
        group.forward(&[1], &[0, 1], None).unwrap();
        assert!(matches!(group.gradient(GradSlice::F32(&[1.0; 4])).unwrap(), Gradient::Dense(_)));
        assert_eq!(fp32(&group.snapshot().unwrap()), fp32(&before));
    });
}

#[test]
fn what_a_device_lacks_is_refused() {
    with_gpu(|context| {
        let made =
            Context::with_options(context.device(), context.queue(), &ContextOptions::default().add(AddBody::Native));
        match made {
            Ok(_) => assert!(context.caps().float_atomics),
            Err(error) => {
                assert!(!context.caps().float_atomics);
                assert!(error.to_string().contains("SHADER_FLOAT32_ATOMIC"), "{error}");
            }
        }
    });
}
