//! The gradient by shared weights. Backward moves the weights by it bit for bit, and it equals the gradient of the FP64 model, which is the transpose of
//! the model's forward.

use hotrow::{
    CpuSharedGroup, Error, GradSlice, Optimizer, Pooling,
    prelude::*,
    robe::{self, Backward, Config, Gradient},
};
use hotrow_harness::{
    arrays::{self, step},
    gradient::{dense, descended, is_model},
    shared::{WAYS, bags, config, random_grads, seeds, weights},
};
use proptest::prelude::*;

fn new(config: &Config) -> CpuSharedGroup {
    CpuSharedGroup::new(config.clone()).unwrap()
}

#[test]
fn backward_is_a_step_of_sgd_by_it() {
    let mut moved = 0;
    for seed in seeds("steps by gradients", 40) {
        for backward in WAYS {
            let mut config = config(seed).with_backward(backward).with_optimizer(Optimizer::sgd(0.1));
            // A sparse gradient lists exactly the weights that decay.
            config.optimizer.weight_decay = if backward == Backward::Sparse { 0.01 } else { 0.0 };
            let bags = bags(&config, seed, 8, 60);
            let (gradient, _, [before, after]) = step(&new, &config, &bags, seed);
            assert_eq!(matches!(gradient, Gradient::Dense(_)), backward == Backward::Dense);
            let [before, after] = [before, after].map(|snapshot| weights(&config, &snapshot));
            let wanted = descended(&before, &gradient, config.optimizer);
            assert!(wanted == after, "seed {seed}, {backward:?}");
            moved += before.iter().zip(&after).filter(|(a, b)| a != b).count();
            // The comparison must reject a slightly wrong gradient.
            let Gradient::Sparse { locations, mut sums } = gradient else { continue };
            if let Some(sum) = sums.iter_mut().find(|sum| sum.abs() > 0.01) {
                *sum *= 1.01;
                let wrong = Gradient::Sparse { locations, sums };
                assert!(descended(&before, &wrong, config.optimizer) != after);
            }
        }
    }
    assert!(moved > 10_000, "{moved}");
}

#[test]
fn dense_and_sparse_are_the_model_s() {
    seeds("gradients", 60)
        .for_each(|seed| arrays::dense_and_sparse_gradients_are_the_models(&new, seed, &config(seed)));
}

#[test]
fn a_wrong_gradient_is_noticed() {
    let config = Config::new(&[300, 7], 8, 5000, 3).with_backward(Backward::Sparse);
    let bags = bags(&config, 3, 4, 12);
    let (gradient, grads, _) = step(&new, &config, &bags, 3);
    is_model(&config, &bags, &grads, &gradient).unwrap();
    let Gradient::Sparse { locations, sums } = gradient else { panic!("{gradient:?}") };
    let wrong = |change: fn(&mut Vec<u32>, &mut Vec<f32>)| {
        let (mut locations, mut sums) = (locations.clone(), sums.clone());
        change(&mut locations, &mut sums);
        is_model(&config, &bags, &grads, &Gradient::Sparse { locations, sums })
    };
    wrong(|_, _| {}).unwrap();
    wrong(|_, sums| sums[0] += 1e-3).unwrap_err();
    wrong(|locations, sums| {
        locations.pop();
        sums.pop();
    })
    .unwrap_err();
    wrong(|locations, sums| {
        locations.swap(0, 1);
        sums.swap(0, 1);
    })
    .unwrap_err();
    wrong(|locations, sums| {
        let last = locations.len() - 1;
        locations[last] += 1;
        sums[last] += 0.0;
    })
    .unwrap_err();
    let mut wide = dense(&config, &Gradient::Sparse { locations: locations.clone(), sums: sums.clone() });
    let free = (0..wide.len()).find(|w| !locations.contains(&(*w as u32))).unwrap();
    wide[free] = 1e-3;
    is_model(&config, &bags, &grads, &Gradient::Dense(wide)).unwrap_err();
}

#[test]
fn halves_give_what_their_floats_give() {
    seeds("halves", 20).for_each(|seed| arrays::halves_give_what_their_floats_give(&new, seed, &config(seed)));
}

#[test]
fn what_is_not_finite_shows() {
    for backward in WAYS {
        let mut group = CpuSharedGroup::new(Config::new(&[100], 4, 40, 4).with_backward(backward)).unwrap();
        group.forward(&[3], &[0, 1], None).unwrap();
        let found = group.gradient(GradSlice::F32(&[1.0, f32::NAN, 2.0, f32::NEG_INFINITY])).unwrap();
        let start = robe::hash::location(3, 0, 40, 4) as usize;
        let sums = dense(group.config(), &found);
        assert!(sums[start] == 1.0 && sums[start + 1].is_nan() && sums[start + 2] == 2.0);
        assert_eq!(sums[start + 3], f32::NEG_INFINITY);
    }
}

#[test]
fn nothing_has_no_gradient() {
    for pooling in [Pooling::Sum, Pooling::None] {
        for backward in WAYS {
            let config = Config::new(&[10], 4, 64, 3).with_pooling(pooling).with_backward(backward);
            let mut group = CpuSharedGroup::new(config.clone()).unwrap();
            assert!(matches!(group.gradient(GradSlice::F32(&[])), Err(Error::Order { call: "gradient", .. })));
            let n = group.forward(&[], &[0, 0, 0], None).unwrap().len();
            assert!(matches!(group.gradient(GradSlice::F32(&[1.0])), Err(Error::Length { what: "grad_outputs", .. })));
            let found = group.gradient(GradSlice::F32(&vec![1.0; n])).unwrap();
            let none = Gradient::Sparse { locations: Vec::new(), sums: Vec::new() };
            assert_eq!(found, if backward == Backward::Dense { Gradient::Dense(vec![0.0; 64]) } else { none });
            assert!(group.pending());
        }
    }
}

proptest! {
    #![proptest_config(hotrow_harness::seed::proptest("gradients of any shape", 48))]

    /// For any dim, chunk and array, locations and sums are the model's, and at most as many as the configuration allows.
    #[test]
    fn any_shape(dim in 1u32..70, chunk in 1u32..40, more in 0u32..3000, rows in 1u32..5000, seed: u64, weighted: bool) {
        let mut config = Config::new(&[rows, 9], dim, chunk + more, chunk);
        config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][seed as usize % 3];
        config.backward = Backward::Sparse;
        let mut bags = bags(&config, seed, 6, 20);
        bags.weights = weighted.then(|| random_grads(seed, bags.indices.len()));
        let (gradient, grads, _) = step(&new, &config, &bags, seed);
        is_model(&config, &bags, &grads, &gradient).map_err(TestCaseError::fail)?;
        let Gradient::Sparse { locations, .. } = gradient else { unreachable!() };
        prop_assert!(locations.len() <= config.most_covered(bags.indices.len() as u32) as usize);
    }
}
