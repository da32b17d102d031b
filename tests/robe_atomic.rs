//! The CPU mirror of the atomic backward: against the model, against the bits of the sorted backward where sums are
//! exact in any order, and values that must not move.

use hotrow::{
    CpuRobeGroup, CpuScaler, GradSlice, Init, LossScale, Optimizer, Pooling,
    robe::{self, Backward, Config, RobeSnapshot},
};
use hotrow_harness::shared;
use shared::{Bags, any_order, bags, config, forward, fp32, moved_within, nudge, random_grads};

fn atomic(config: Config) -> Config {
    config.with_backward(Backward::Atomic)
}

#[test]
fn steps_are_the_model_s_and_the_same_bits_twice() {
    let mut seen = 0;
    for seed in 0..60 {
        let config = atomic(config(seed));
        let mut groups = [(); 2].map(|()| CpuRobeGroup::new(config.clone()).unwrap());
        for step in 0..3 {
            let (per_feature, most) = if step == 2 { (20, 60) } else { (5, 12) };
            let bags = bags(&config, seed * 10 + step, per_feature, most);
            let before = groups[0].snapshot();
            let n = forward(&mut groups[0], &bags).len();
            forward(&mut groups[1], &bags);
            let grads = random_grads(seed, n);
            groups.iter_mut().for_each(|group| group.backward(&grads).unwrap());
            let after = groups[0].snapshot();
            assert_eq!(after, groups[1].snapshot());
            let weights = moved_within(any_order(&config, &bags), &config, &bags, &grads, &before, &after)
                .unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
            seen += weights;
            // The bound is narrow for a weight that gets few of the terms.
            if weights > 100 {
                let w = fp32(&before).iter().zip(&fp32(&after)).position(|(a, b)| a != b).unwrap();
                let mut wrong = after;
                nudge(&mut wrong, w, 0.5);
                moved_within(any_order(&config, &bags), &config, &bags, &grads, &before, &wrong).unwrap_err();
            }
        }
    }
    assert!(seen > 10_000, "{seen} weights moved");
}

/// Runs two steps of integer gradients, whose sums are exact in any order, and returns the state.
fn run(config: &Config, seed: u64, spoil: impl Fn(&mut [f32])) -> RobeSnapshot {
    let mut group = CpuRobeGroup::new(config.clone()).unwrap();
    for step in 0..2 {
        let bags = Bags { weights: None, ..bags(config, seed + step, 12, 60) };
        let n = forward(&mut group, &bags).len();
        let mut grads: Vec<f32> = random_grads(step, n).iter().map(|g| (g * 8.0).round()).collect();
        spoil(&mut grads);
        group.backward(&grads).unwrap();
    }
    group.snapshot()
}

#[test]
fn exact_sums_are_the_sorted_ones() {
    let spoil = |grads: &mut [f32]| {
        grads.iter_mut().step_by(97).for_each(|g| *g = f32::NAN);
        grads.iter_mut().skip(5).step_by(101).for_each(|g| *g = f32::INFINITY);
    };
    let mut skipped = 0;
    for seed in 0..40 {
        let pooling = [Pooling::Sum, Pooling::None][seed as usize % 2];
        // Any optimiser and any decay, since the sums are equal.
        let sorted = config(seed).with_pooling(pooling).with_backward(Backward::Dense);
        let atomic = atomic(sorted.clone());
        assert!(run(&sorted, seed, |_| {}) == run(&atomic, seed, |_| {}), "seed {seed}");
        let [wanted, found] = [&sorted, &atomic].map(|config| run(config, seed, spoil));
        assert!(wanted == found, "seed {seed}");
        skipped += found.counters.skipped_weights;
        assert!(found != run(&sorted, seed, |_| {}), "the comparison can fail");
    }
    assert!(skipped > 0);
}

/// Decay changes exactly the weights that chunks cover, also where gradients sum to 0; marks do not survive a step.
#[test]
fn what_is_covered_decays() {
    let mut config = atomic(Config::new(&[1000], 6, 500, 4));
    (config.init, config.optimizer) = (Init::Constant(1.0), Optimizer::sgd(1.0).with_weight_decay(0.5));
    let mut group = CpuRobeGroup::new(config).unwrap();
    let mut wanted = vec![1.0; 500];
    for row in [3, 77] {
        group.forward(&[row, row], &[0, 1, 2], None).unwrap();
        group.backward(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0]).unwrap();
        let mut read: Vec<u32> = (0..6).map(|e| robe::hash::location(row, e, 500, 4)).collect();
        read.sort_unstable();
        read.dedup();
        read.iter().for_each(|&w| wanted[w as usize] *= 0.5);
        assert_eq!(fp32(&group.snapshot()), wanted, "row {row}");
    }
}

#[test]
fn a_scaled_loss_and_an_overflow() {
    let config = atomic(config(11).with_optimizer(Optimizer::adagrad(0.1)));
    let bags = bags(&config, 11, 5, 12);
    let mut groups = [(); 2].map(|()| CpuRobeGroup::new(config.clone()).unwrap());
    let n = forward(&mut groups[0], &bags).len();
    forward(&mut groups[1], &bags);
    let grads: Vec<f32> = random_grads(1, n).iter().map(|g| half::f16::from_f32(*g).to_f32()).collect();
    let decided = |grads| {
        let mut scaler = CpuScaler::new(LossScale::Static { scale: 64.0 }).unwrap();
        scaler.inspect(grads);
        scaler.decide().unwrap()
    };
    groups[0].backward(&grads).unwrap();
    // A scale of a power of two loses no bit.
    let scaled: Vec<u16> = grads.iter().map(|g| half::f16::from_f32(g * 64.0).to_bits()).collect();
    groups[1].backward_scaled(GradSlice::F16(&scaled), &decided(GradSlice::F16(&scaled))).unwrap();
    let after = groups[0].snapshot();
    assert_eq!(groups[1].snapshot(), after);
    // An overflow moves no weight, in its own step or later.
    forward(&mut groups[0], &bags);
    let wrong = vec![f32::INFINITY; n];
    groups[0].backward_scaled(GradSlice::F32(&wrong), &decided(GradSlice::F32(&wrong))).unwrap();
    assert_eq!(fp32(&groups[0].snapshot()), fp32(&after));
    groups.iter_mut().for_each(|group| {
        forward(group, &bags);
        group.backward(&grads).unwrap();
    });
    let [one, other] = groups.map(|group| group.snapshot());
    assert_eq!((one.weight_words, one.state_words), (other.weight_words, other.state_words));
}
