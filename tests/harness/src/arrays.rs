//! Properties of shared arrays on any backend. `new` makes an array of a configuration.

use hotrow::{
    CpuRobeGroup, CpuScaler, Error, GradSlice, Init, LossScale, Optimizer, Pooling, RobeGroup, SharedArray,
    robe::{self, Backward, Config, Gradient, RobeSnapshot},
};

use crate::{
    gradient::{dense, halved, is_model},
    shared::{
        Bags, WAYS, any_order, bags, close, forward, fp32, moved_within, nudge, outputs, random_grads,
        weight_gradients, weights,
    },
};

/// The calls of an array that no trait of the library has.
pub trait Array: SharedArray {
    fn gradient(&mut self, grads: GradSlice<'_>) -> Result<Gradient, Error>;
    fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error>;
}

macro_rules! arrays {
    ($($group:ty)*) => {$(
        impl Array for $group {
            fn gradient(&mut self, grads: GradSlice<'_>) -> Result<Gradient, Error> {
                Self::gradient(self, grads)
            }
            fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
                Self::write_weights(self, weights)
            }
        }
    )*};
}
arrays!(CpuRobeGroup RobeGroup);

fn snapshot(array: &mut impl Array) -> RobeSnapshot {
    SharedArray::snapshot(array).unwrap()
}

/// Three steps, each against the model: outputs, gradients of the weights, the moved array. Returns the number of weights that moved.
pub fn steps_are_the_models<T: Array>(new: &dyn Fn(&Config) -> T, seed: u64, config: &Config) -> usize {
    let mut array = new(config);
    let mut seen = 0;
    for step in 0..3 {
        // The last batch has starts of more than 128 chunks.
        let (per_feature, most) = if step == 2 { (20, 60) } else { (5, 12) };
        let bags = bags(config, seed * 10 + step, per_feature, most);
        let before = snapshot(&mut array);
        let found = forward(&mut array, &bags);
        let old = weights(config, &before);
        close(&found, &outputs(config, &old, &bags)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let grads = random_grads(seed, found.len());
        let found = array.weight_gradient(&bags.indices, &bags.offsets, &grads).unwrap();
        close(&found, &weight_gradients(config, &old, &bags, &grads))
            .unwrap_or_else(|error| panic!("{seed}: gradient of the weights: {error}"));
        array.backward(&grads).unwrap();
        let mut after = snapshot(&mut array);
        assert_eq!(after.t, before.t + 1);
        // A sorted sum has some thousand terms at most, each rounded a few times, and adds no more than 128 of them one after another.
        let atomic = config.backward == Backward::Atomic;
        let share = if atomic { any_order(config, &bags) } else { 2f64.powi(-20) };
        let moved = |after: &RobeSnapshot| moved_within(share, config, &bags, &grads, &before, after);
        let weights = moved(&after).unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
        // The comparison must notice a wrong weight. The bound is narrow for a weight that gets few of the terms.
        if atomic && weights > 100 {
            let w = fp32(&before).iter().zip(&fp32(&after)).position(|(a, b)| a != b).unwrap();
            nudge(&mut after, w, 0.5);
            moved(&after).unwrap_err();
        }
        seen += weights;
    }
    seen
}

/// Whole numbers, whose sums are exact in any order.
fn whole(seed: u64, n: usize) -> Vec<f32> {
    random_grads(seed, n).iter().map(|g| (g * 8.0).round()).collect()
}

/// The state after two steps of whole gradients, changed by `change`.
pub fn two_steps<T: Array>(
    new: &dyn Fn(&Config) -> T,
    config: &Config,
    seed: u64,
    change: fn(&mut [f32]),
) -> RobeSnapshot {
    let mut array = new(config);
    for step in 0..2 {
        let bags = Bags { weights: None, ..bags(config, seed + step, 12, 60) };
        let n = forward(&mut array, &bags).len();
        let mut grads = whole(step, n);
        change(&mut grads);
        array.backward(&grads).unwrap();
    }
    snapshot(&mut array)
}

/// Where sums are exact in any order, the atomic backward gives the bits of the sorted one, also beside gradients that are not finite: these are left
/// out and counted. Returns how many; 0 if they would not have moved, since their gradients are 0.
pub fn exact_sums_are_the_sorted_ones<T: Array>(new: &dyn Fn(&Config) -> T, seed: u64, config: &Config) -> u64 {
    let config = config.clone().with_pooling([Pooling::Sum, Pooling::None][seed as usize % 2]);
    let run = |backward, change| two_steps(new, &config.clone().with_backward(backward), seed, change);
    let way = WAYS[seed as usize / 2 % 2];
    let spoil = |grads: &mut [f32]| {
        grads.iter_mut().step_by(97).for_each(|g| *g = f32::NAN);
        grads.iter_mut().skip(5).step_by(101).for_each(|g| *g = f32::INFINITY);
        grads.iter_mut().skip(7).step_by(103).for_each(|g| *g = f32::NEG_INFINITY);
    };
    let (plain, found) = (run(way, |_| {}), run(Backward::Atomic, spoil));
    assert!(plain == run(Backward::Atomic, |_| {}) && found == run(way, spoil), "seed {seed}");
    if found.weight_words == plain.weight_words { 0 } else { found.counters.skipped_weights }
}

/// Decay changes exactly the weights that chunks cover, also where gradients sum to 0; marks do not survive a step.
pub fn what_is_covered_decays<T: Array>(new: &dyn Fn(&Config) -> T) {
    let optimizer = Optimizer::sgd(1.0).with_weight_decay(0.5);
    let config = Config::new(&[1000], 6, 500, 4).with_backward(Backward::Atomic).with_optimizer(optimizer);
    let mut array = new(&config.with_init(Init::Constant(1.0)));
    let mut wanted = vec![1.0; 500];
    // The first reads weights of the last word of marks.
    let last = (0..1000).find(|&row| robe::hash::location(row, 0, 500, 4) > 490).unwrap();
    for row in [last, 3, 77] {
        array.forward(&[row, row], &[0, 1, 2], None).unwrap();
        array.backward(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0]).unwrap();
        let mut read: Vec<u32> = (0..6).map(|e| robe::hash::location(row, e, 500, 4)).collect();
        read.sort_unstable();
        read.dedup();
        read.iter().for_each(|&w| wanted[w as usize] *= 0.5);
        assert_eq!(fp32(&snapshot(&mut array)), wanted, "row {row}");
    }
}

/// One row 100,000 times: sums of many chunks at one start, and a last chunk that is shorter. Small integers sum exactly in any order.
pub fn one_row_a_hundred_thousand_times<T: Array>(new: &dyn Fn(&Config) -> T, backward: Backward, weight_decay: f32) {
    let (n, row) = (100_000, 2_000_000_000);
    let optimizer = Optimizer::sgd(1.0).with_weight_decay(weight_decay);
    let config = Config::new(&[1 << 31], 5, 40_000, 3).with_backward(backward).with_optimizer(optimizer);
    let mut array = new(&config.with_init(Init::Constant(0.0)));
    array.forward(&vec![row; n], &[0, n as u32], None).unwrap();
    array.backward(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    assert_eq!(array.read_rows(&[row]).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| -100_000.0 * x));
    assert_eq!(fp32(&snapshot(&mut array)).iter().filter(|&&w| w != 0.0).count(), 5);
}

/// A scale of a power of two loses no bit. An overflow moves no weight, in its own step or later.
pub fn a_scaled_loss_and_an_overflow<T: Array>(new: &dyn Fn(&Config) -> T, config: &Config) {
    let bags = bags(config, 11, 5, 12);
    let mut arrays = [(); 2].map(|()| new(config));
    let n = forward(&mut arrays[0], &bags).len();
    forward(&mut arrays[1], &bags);
    let grads = whole(1, n);
    let decided = |grads| {
        let mut scaler = CpuScaler::new(LossScale::Static { scale: 64.0 }).unwrap();
        scaler.inspect(grads);
        scaler.decide().unwrap()
    };
    let before = snapshot(&mut arrays[0]);
    arrays[0].backward(&grads).unwrap();
    let scaled: Vec<u16> = grads.iter().map(|g| half::f16::from_f32(g * 64.0).to_bits()).collect();
    arrays[1].backward_scaled(GradSlice::F16(&scaled), &decided(GradSlice::F16(&scaled))).unwrap();
    let after = snapshot(&mut arrays[0]);
    assert_eq!(snapshot(&mut arrays[1]), after, "{config:?}");
    assert_ne!(after.weight_words, before.weight_words, "{config:?}");
    forward(&mut arrays[0], &bags);
    let wrong = vec![f32::INFINITY; n];
    arrays[0].backward_scaled(GradSlice::F32(&wrong), &decided(GradSlice::F32(&wrong))).unwrap();
    let words = |snapshot: RobeSnapshot| (snapshot.weight_words, snapshot.state_words);
    assert_eq!(words(snapshot(&mut arrays[0])), words(after), "{config:?}");
    for array in &mut arrays {
        forward(array, &bags);
        array.backward(&grads).unwrap();
    }
    let [one, other] = arrays.map(|mut array| words(snapshot(&mut array)));
    assert!(one == other, "{config:?}");
}

/// The gradient of a batch, the batch's gradients, and the state before and after its backward. No weight moves before that.
pub fn step<T: Array>(
    new: &dyn Fn(&Config) -> T,
    config: &Config,
    bags: &Bags,
    seed: u64,
) -> (Gradient, Vec<f32>, [RobeSnapshot; 2]) {
    let mut array = new(config);
    let grads = random_grads(seed, forward(&mut array, bags).len());
    let before = snapshot(&mut array);
    let found = array.gradient(GradSlice::F32(&grads)).unwrap();
    assert_eq!((snapshot(&mut array), array.pending()), (before.clone(), true));
    assert_eq!(array.gradient(GradSlice::F32(&grads)).unwrap(), found, "a second time");
    array.backward(&grads).unwrap();
    (found, grads, [before, snapshot(&mut array)])
}

pub fn dense_and_sparse_gradients_are_the_models<T: Array>(new: &dyn Fn(&Config) -> T, seed: u64, config: &Config) {
    let bags = bags(config, seed, 8, 60);
    let [all, covered] = WAYS.map(|backward| {
        let config = config.clone().with_backward(backward);
        let (gradient, grads, _) = step(new, &config, &bags, seed);
        is_model(&config, &bags, &grads, &gradient).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        dense(&config, &gradient).iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    });
    assert!(all == covered, "seed {seed}");
}

/// An FP16 gradient equals the FP32 gradient of the same values.
pub fn halves_give_what_their_floats_give<T: Array>(new: &dyn Fn(&Config) -> T, seed: u64, config: &Config) {
    let config = config.clone().with_backward(WAYS[seed as usize % 2]);
    let mut array = new(&config);
    let exact = random_grads(seed, forward(&mut array, &bags(&config, seed, 8, 60)).len());
    let (halves, floats) = halved(&exact);
    let found = array.gradient(GradSlice::F16(&halves)).unwrap();
    assert!(found == array.gradient(GradSlice::F32(&floats)).unwrap(), "seed {seed}");
    assert!(found != array.gradient(GradSlice::F32(&exact)).unwrap(), "the comparison can fail");
    let short = array.gradient(GradSlice::F16(&halves[1..]));
    assert!(matches!(short, Err(Error::Length { what: "grad_outputs", .. })));
}
