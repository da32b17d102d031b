//! The tests of shared arrays that every backend passes. `new` makes an array of a configuration; of random ones a test takes `runs`.

use hotrow::{
    CpuScaler, CpuSharedGroup, Error, GradSlice, Init, Lookup as _, LossScale, Mode, Optimizer, OutOfRange, Pooling,
    Precision, SharedArray, SharedGroup, StatePrecision,
    robe::{self, Addressing, Backward, Config, RobeSnapshot},
};

use crate::{
    gradient::{covers, halved, is_model},
    lockstep::bits,
    seed::share,
    shared::{
        Bags, WAYS, bags, close, config, exact, forward, fp32, gradients, moved, nudge, outputs, packed, random_grads,
        seeds, weight_gradients, weights,
    },
};

/// The calls of an array that no trait of the library has.
pub trait Array: SharedArray {
    fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error>;
    fn reconfigure(&mut self, config: Config) -> Result<(), Error>;
}

macro_rules! arrays {
    ($($group:ty)*) => {$(
        impl Array for $group {
            fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
                Self::write_weights(self, weights)
            }
            fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
                Self::reconfigure(self, config)
            }
        }
    )*};
}
arrays!(CpuSharedGroup SharedGroup);

/// Declares this module's tests of sorted backwards, or of the atomic one. `$with` gives a test a backend's `new`.
#[macro_export]
macro_rules! array_tests {
    (sorted, $with:expr, $runs:expr) => {
        $crate::array_tests!($with, $runs; steps_are_the_model_s, gradients_are_the_model_s,
            halves_give_what_their_floats_give, a_step_by_the_gradient_is_a_backward, steps_by_given_gradients,
            a_scaled_loss_and_an_overflow, what_is_not_finite_is_left_out_and_counted, empty_batches_move_nothing,
            bad_calls_leave_everything_as_it_was, one_row_a_hundred_thousand_times, an_array_that_does_not_change_stays,
            an_array_goes_on_under_another_configuration);
    };
    (atomic, $with:expr, $runs:expr) => {
        $crate::array_tests!($with, $runs; atomic_steps_are_the_model_s, an_atomic_scaled_loss_and_an_overflow,
            one_row_a_hundred_thousand_times_atomically, what_is_covered_decays);
    };
    ($with:expr, $runs:expr; $($test:ident),*) => {$(
        #[test]
        fn $test() {
            $with(&|new| $crate::arrays::$test(new, $runs));
        }
    )*};
}

/// Makes an array of a configuration.
pub type New<'a, T> = &'a dyn Fn(&Config) -> T;

/// The parity of the bits of a seed. [`packed`] picks by bits 0 and 1, by bit 2 and by bits 3 and 4; each choice meets both parities.
pub fn odd(seed: u64) -> usize {
    seed.count_ones() as usize % 2
}

pub fn way(seed: u64) -> Backward {
    WAYS[odd(seed)]
}

/// For each seed of a test an FP32 array and a packed one; backwards of both ways take turns.
pub fn configs(name: &str, runs: u64) -> impl Iterator<Item = (u64, Config)> {
    let both = |seed| [config(seed), packed(seed)].map(|config| (seed, config.with_backward(way(seed))));
    seeds(name, runs).flat_map(both)
}

fn atomic(config: Config) -> Config {
    config.with_backward(Backward::Atomic)
}

fn snapshot(array: &mut impl Array) -> RobeSnapshot {
    SharedArray::snapshot(array).unwrap()
}

pub fn steps_are_the_model_s<T: Array>(new: New<'_, T>, runs: u64) {
    let moved: usize =
        share(configs("steps of arrays", runs)).map(|(seed, config)| steps_of_the_model(new, seed, &config)).sum();
    assert!(moved > 1_000, "{moved} weights moved");
}

pub fn atomic_steps_are_the_model_s<T: Array>(new: New<'_, T>, runs: u64) {
    let steps = |seed| steps_of_the_model(new, seed, &atomic(config(seed)));
    let moved: usize = share(seeds("atomic steps", runs)).map(steps).sum();
    assert!(moved > 100, "{moved} weights moved");
}

/// Three steps, each against the model: outputs, gradients of the weights, the moved array. Returns the number of weights that moved.
fn steps_of_the_model<T: Array>(new: New<'_, T>, seed: u64, config: &Config) -> usize {
    let mut array = new(config);
    let mut seen = 0;
    for step in 0..3 {
        // The last batch has starts of more than 32 chunks.
        let (per_feature, most) = if step == 2 { (20, 60) } else { (5, 12) };
        let bags = bags(config, seed * 10 + step, per_feature, most);
        let before = snapshot(&mut array);
        let found = forward(&mut array, &bags);
        let old = weights(config, &before);
        close(&found, &outputs(config, &old, &bags)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let grads = random_grads(seed, found.len());
        let found = array.weight_gradient(hotrow::Bags::new(&bags.indices, &bags.offsets), &grads).unwrap();
        close(&found, &weight_gradients(config, &old, &bags, &grads))
            .unwrap_or_else(|error| panic!("{seed}: gradient of the weights: {error}"));
        array.backward(&grads).unwrap();
        let mut after = snapshot(&mut array);
        assert_eq!(after.t, before.t + 1);
        let moved = |after: &RobeSnapshot| moved(config, &bags, &grads, [&before, after]);
        let weights = moved(&after).unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
        // The comparison must notice a wrong weight. The bound is narrow for a weight that gets few of the terms.
        if config.backward == Backward::Atomic && weights > 100 {
            let w = fp32(&before).iter().zip(&fp32(&after)).position(|(a, b)| a != b).unwrap();
            nudge(&mut after, w, 0.5);
            moved(&after).unwrap_err();
        }
        seen += weights;
    }
    seen
}

/// Steps beside the same steps on the CPU: outputs, gradients, states and rows are equal bit for bit. Returns the gradient of the last step, and the
/// states before and after it.
pub fn steps_are_the_cpus<T: Array>(
    new: New<'_, T>,
    config: &Config,
    batches: &[Bags],
) -> (Vec<f32>, [RobeSnapshot; 2]) {
    let (mut array, mut mirror) = (new(config), CpuSharedGroup::new(config.clone()).unwrap());
    let mut last = None;
    for (step, bags) in (0..).zip(batches) {
        let frozen = array.forward(bags.bags(), Mode::Frozen).unwrap(); // counts nothing
        let found = forward(&mut array, bags);
        assert!(found == forward(&mut mirror, bags) && frozen == found, "outputs of step {step}, {config:?}");
        let grads = random_grads(step, found.len());
        let before = snapshot(&mut array);
        let found = array.gradient(GradSlice::F32(&grads)).unwrap();
        let wanted = mirror.gradient(GradSlice::F32(&grads)).unwrap();
        assert!(bits(&found) == bits(&wanted), "gradient of step {step}, {config:?}");
        array.backward(&grads).unwrap();
        mirror.backward(&grads).unwrap();
        let after = snapshot(&mut array);
        assert!(after == snapshot(&mut mirror), "after step {step}, {config:?}");
        let mut wrong = after.clone();
        nudge(&mut wrong, 0, 1.0);
        assert!(wrong != after, "the comparison can fail");
        last = Some((found, [before, after]));
    }
    let mut other = new(&config.clone().with_seed(1));
    other.restore(&snapshot(&mut mirror)).unwrap();
    assert!(snapshot(&mut other) == snapshot(&mut mirror), "a CPU's snapshot, {config:?}");
    let total: u64 = config.tables.iter().map(|&rows| u64::from(rows)).sum();
    let rows: Vec<u32> = (0..800).map(|i| (i * total / 800) as u32).collect();
    assert_eq!(array.read_rows(&rows).unwrap(), mirror.read_rows(&rows).unwrap(), "{config:?}");
    last.unwrap()
}

/// Whole numbers, whose sums are exact in any order.
fn whole(seed: u64, n: usize) -> Vec<f32> {
    random_grads(seed, n).iter().map(|g| (g * 8.0).round()).collect()
}

/// The state after two steps of whole gradients, changed by `change`.
pub fn two_steps<T: Array>(new: New<'_, T>, config: &Config, seed: u64, change: fn(&mut [f32])) -> RobeSnapshot {
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
pub fn exact_sums_are_the_sorted_ones<T: Array>(new: New<'_, T>, seed: u64, config: &Config) -> u64 {
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
    if found.weight_words == plain.weight_words { 0 } else { found.counters[0].skipped_rows }
}

/// Decay changes exactly the weights that chunks cover, also where gradients sum to 0; marks do not survive a step.
pub fn what_is_covered_decays<T: Array>(new: New<'_, T>, _: u64) {
    let optimizer = Optimizer::sgd(1.0).with_weight_decay(0.5);
    let config = Config::new(&[1000], 6, 500, 4).with_backward(Backward::Atomic).with_optimizer(optimizer);
    let mut array = new(&config.with_init(Init::Constant(1.0)));
    let mut wanted = vec![1.0; 500];
    // The first reads weights of the last word of marks.
    let last = (0..1000).find(|&row| robe::hash::location(row, 0, 500, 4) > 490).unwrap();
    for row in [last, 3, 77] {
        array.forward(hotrow::Bags::new(&[row, row], &[0, 1, 2]), Mode::Train).unwrap();
        array.backward(&[2.0, 2.0, 2.0, 2.0, 2.0, 2.0, -2.0, -2.0, -2.0, -2.0, -2.0, -2.0]).unwrap();
        let mut read: Vec<u32> = (0..6).map(|e| robe::hash::location(row, e, 500, 4)).collect();
        read.sort_unstable();
        read.dedup();
        read.iter().for_each(|&w| wanted[w as usize] *= 0.5);
        assert_eq!(fp32(&snapshot(&mut array)), wanted, "row {row}");
    }
}

/// Blocks that a step does not change keep their words; others are packed anew.
pub fn an_array_that_does_not_change_stays<T: Array>(new: New<'_, T>, _: u64) {
    let rules = [
        (Optimizer::sgd(0.0), 1.0, true),
        (Optimizer::adagrad(0.1), 0.0, true),
        (Optimizer::adam(0.1), 0.0, true),
        (Optimizer::sgd(0.1), 1.0, false),
        (Optimizer::adagrad(0.0), 1.0, false),
    ];
    for (k, precision) in [Precision::Int8, Precision::Int4, Precision::Int2, Precision::Fp16].into_iter().enumerate() {
        for (j, (optimizer, gradient, stays)) in rules.into_iter().enumerate() {
            let config = Config::new(&[50], 8, 3000, 4)
                .with_precision(precision)
                .with_state([None, Some(StatePrecision::Int8), Some(StatePrecision::Fp32)][(k + j) % 3])
                .with_backward([Backward::Dense, Backward::Sparse][(k / 2 + j) % 2])
                .with_init(Init::Uniform { low: -1.0, high: 2.0 })
                .with_optimizer(optimizer);
            let mut array = new(&config);
            let before = snapshot(&mut array);
            for _ in 0..12 {
                let outputs = array.forward(hotrow::Bags::new(&[7, 3, 11, 3], &[0, 2, 4]), Mode::Train).unwrap();
                array.backward(&vec![gradient; outputs.len()]).unwrap();
            }
            let after = snapshot(&mut array);
            let same = after.weight_words == before.weight_words && after.state_words == before.state_words;
            assert_eq!(same, stays, "{precision}, {optimizer:?}");
        }
    }
}

pub fn one_row_a_hundred_thousand_times<T: Array>(new: New<'_, T>, _: u64) {
    WAYS.into_iter().for_each(|backward| one_row_often(new, backward, 0.0));
}

pub fn one_row_a_hundred_thousand_times_atomically<T: Array>(new: New<'_, T>, _: u64) {
    [0.0, 0.5].into_iter().for_each(|weight_decay| one_row_often(new, Backward::Atomic, weight_decay));
}

/// One row 100,000 times: sums of many chunks at one start, and a last chunk that is shorter. Small integers sum exactly in any order.
fn one_row_often<T: Array>(new: New<'_, T>, backward: Backward, weight_decay: f32) {
    let (n, row) = (100_000, 2_000_000_000);
    let optimizer = Optimizer::sgd(1.0).with_weight_decay(weight_decay);
    let config = Config::new(&[1 << 31], 5, 40_000, 3).with_backward(backward).with_optimizer(optimizer);
    let mut array = new(&config.with_init(Init::Constant(0.0)));
    array.forward(hotrow::Bags::new(&vec![row; n], &[0, n as u32]), Mode::Train).unwrap();
    array.backward(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    assert_eq!(array.read_rows(&[row]).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| -100_000.0 * x));
    assert_eq!(fp32(&snapshot(&mut array)).iter().filter(|&&w| w != 0.0).count(), 5);
}

pub fn a_scaled_loss_and_an_overflow<T: Array>(new: New<'_, T>, _: u64) {
    for optimizer in [Optimizer::sgd(0.5), Optimizer::adagrad(0.1)] {
        scaled_and_overflown(new, &config(11).with_optimizer(optimizer));
    }
}

pub fn an_atomic_scaled_loss_and_an_overflow<T: Array>(new: New<'_, T>, _: u64) {
    for weight_decay in [0.0, 0.25] {
        scaled_and_overflown(
            new,
            &atomic(exact(2).with_optimizer(Optimizer::sgd(0.5).with_weight_decay(weight_decay))),
        );
    }
}

/// A scale of a power of two loses no bit. An overflow moves no weight, in its own step or later.
fn scaled_and_overflown<T: Array>(new: New<'_, T>, config: &Config) {
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
    let scaled: Vec<half::f16> = grads.iter().map(|g| half::f16::from_f32(g * 64.0)).collect();
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
    new: New<'_, T>,
    config: &Config,
    bags: &Bags,
    seed: u64,
) -> (Vec<f32>, Vec<f32>, [RobeSnapshot; 2]) {
    let mut array = new(config);
    let grads = random_grads(seed, forward(&mut array, bags).len());
    let before = snapshot(&mut array);
    let found = array.gradient(GradSlice::F32(&grads)).unwrap();
    assert_eq!((snapshot(&mut array), array.pending()), (before.clone(), true));
    assert_eq!(bits(&array.gradient(GradSlice::F32(&grads)).unwrap()), bits(&found), "a second time");
    array.backward(&grads).unwrap();
    (found, grads, [before, snapshot(&mut array)])
}

/// The dense gradient is the sparse one, bit for bit, and covers at most as many weights as the configuration says.
pub fn gradients_are_the_model_s<T: Array>(new: New<'_, T>, runs: u64) {
    for seed in share(seeds("gradients", runs)) {
        let bags = bags(&config(seed), seed, 8, 60);
        let [dense, sparse] = WAYS.map(|backward| {
            let config = config(seed).with_backward(backward);
            let (gradient, grads, _) = step(new, &config, &bags, seed);
            is_model(&config, &bags, &grads, &gradient).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let covered = gradient.iter().filter(|&&sum| covers(sum)).count();
            assert!(covered <= config.most_covered(bags.indices.len() as u32) as usize, "seed {seed}");
            bits(&gradient)
        });
        assert!(dense == sparse, "seed {seed}");
    }
}

/// An FP16 gradient equals the FP32 gradient of the same values.
pub fn halves_give_what_their_floats_give<T: Array>(new: New<'_, T>, runs: u64) {
    for seed in seeds("halves", runs / 3) {
        let config = exact(seed).with_backward(way(seed));
        let mut array = new(&config);
        let grads = random_grads(seed, forward(&mut array, &bags(&config, seed, 8, 60)).len());
        let (halves, floats) = halved(&grads);
        let found = array.gradient(GradSlice::F16(&halves)).unwrap();
        assert!(found == array.gradient(GradSlice::F32(&floats)).unwrap(), "seed {seed}");
        assert!(found != array.gradient(GradSlice::F32(&grads)).unwrap(), "the comparison can fail");
        refuses!(array.gradient(GradSlice::F16(&halves[1..])), Error::Length { what: "grad_outputs", .. });
    }
}

pub fn a_step_by_the_gradient_is_a_backward<T: Array>(new: New<'_, T>, runs: u64) {
    let (mut all, mut noticed) = (0, [0; 2]);
    for (seed, config) in share(configs("steps by given gradients", runs)) {
        let found = step_by_the_gradient(new, seed, &config);
        noticed.iter_mut().zip(found).for_each(|(noticed, found)| *noticed += u32::from(found));
        all += 1;
    }
    assert!(2 * noticed[0] > all && (noticed[1] > 0 || all < 60), "the comparison can fail: {noticed:?} of {all}");
}

/// A step by the gradient of a batch leaves what its backward leaves, bit for bit, also where gradients are not finite or sum to 0. Returns whether
/// a wrong gradient leaves something else, and whether +0.0 in place of -0.0 does: whether weights move without a gradient.
fn step_by_the_gradient<T: Array>(new: New<'_, T>, seed: u64, config: &Config) -> [bool; 2] {
    let run = |config: &Config, end: &dyn Fn(&mut T, &[f32])| {
        let mut array = new(config);
        for step in 0..2 {
            let found = forward(&mut array, &bags(config, seed + step, 5, 30));
            let mut grads = random_grads(seed + step, found.len());
            grads.iter_mut().take(found.len() / 2).for_each(|g| *g = 0.0);
            grads.iter_mut().skip(5).step_by(101).for_each(|g| *g = f32::NAN);
            end(&mut array, &grads);
            assert!(!array.pending());
        }
        snapshot(&mut array)
    };
    let by = |config: &Config, change: fn(&mut f32)| {
        run(config, &|array, grads| {
            let mut gradient = array.gradient(GradSlice::F32(grads)).unwrap();
            gradient.iter_mut().for_each(change);
            array.step(&gradient).unwrap();
        })
    };
    let wanted = run(config, &|array, grads| array.backward(grads).unwrap());
    assert!(by(config, |_| {}) == wanted, "seed {seed}, {config:?}");
    if config.precision == Precision::Fp32 {
        let atomic = by(&atomic(config.clone()), |_| {});
        assert!(atomic == wanted, "atomic, seed {seed}, {config:?}");
    }
    let not_zero = |g: &mut f32| *g *= if *g == 0.0 { 1.0 } else { -1.5 };
    [by(config, not_zero), by(config, |g| *g += 0.0)].map(|wrong| wrong != wanted)
}

/// Steps by given gradients: after a forward without an access, of a scaled loss, and wrong calls.
pub fn steps_by_given_gradients<T: Array>(new: New<'_, T>, _: u64) {
    let config = Config::new(&[100], 4, 64, 4).with_precision(Precision::Int8).with_optimizer(Optimizer::adam(0.1));
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 }).with_out_of_range(OutOfRange::Skip);
    let gradient: Vec<f32> = (0..64u8).map(|w| if w % 3 == 0 { -0.0 } else { f32::from(w) - 30.0 }).collect();
    let scaler = |grads: &[f32]| {
        let mut scaler = CpuScaler::new(LossScale::Static { scale: 64.0 }).unwrap();
        scaler.inspect(GradSlice::F32(grads));
        scaler.decide().unwrap()
    };
    let scaled: Vec<f32> = gradient.iter().map(|g| 64.0 * g).collect();
    // One rank has an access, one an empty batch, one an index that is left out: they stay alike.
    let after = [&[7][..], &[], &[100]].map(|indices: &[u32]| {
        let mut array = new(&config);
        let begin = |array: &mut T| {
            drop(array.forward(hotrow::Bags::new(indices, &[0, indices.len() as u32]), Mode::Train).unwrap());
        };
        let mut seen = Vec::new();
        begin(&mut array);
        array.step(&gradient).unwrap();
        seen.push(snapshot(&mut array));
        begin(&mut array);
        array.step_scaled(&scaled, &scaler(&[f32::INFINITY])).unwrap();
        seen.push(snapshot(&mut array));
        begin(&mut array);
        refuses!(array.step(&gradient[1..]), Error::Length { what: "gradient", wanted: 64, found: 63 });
        let undecided = CpuScaler::new(LossScale::BACKOFF).unwrap();
        refuses!(array.step_scaled(&gradient, undecided.state()), Error::Order { .. });
        assert!(array.pending());
        array.step_scaled(&scaled, &scaler(&scaled)).unwrap();
        seen.push(snapshot(&mut array));
        refuses!(array.step(&gradient), Error::Order { call: "step", .. });
        seen.into_iter().map(|seen| (seen.t, seen.weight_words, seen.state_words)).collect::<Vec<_>>()
    });
    assert!(after[1] == after[0] && after[2] == after[0]);
    let [one, overflow, scaled] = &after[0][..] else { unreachable!() };
    assert_eq!([one.0, overflow.0, scaled.0], [1, 2, 3]);
    assert!((&overflow.1, &overflow.2) == (&one.1, &one.2) && scaled.1 != one.1, "an overflow moves nothing");
    // The scaled step is a step by the gradient.
    let mut array = new(&config);
    for step in 0..3 {
        array.forward(hotrow::Bags::new(&[7], &[0, 1]), Mode::Train).unwrap();
        if step == 1 { array.discard_pending() } else { array.step(&gradient).unwrap() }
    }
    assert!(snapshot(&mut array).weight_words == scaled.1);
}

/// What is not finite shows in the gradient, moves no weight, and is counted.
pub fn what_is_not_finite_is_left_out_and_counted<T: Array>(new: New<'_, T>, _: u64) {
    for backward in WAYS {
        let config = Config::new(&[100], 4, 40, 4).with_backward(backward).with_init(Init::Constant(1.0));
        let mut array = new(&config);
        let before = snapshot(&mut array);
        let bags = Bags { indices: vec![3, 50], offsets: vec![0, 1, 2], weights: None };
        forward(&mut array, &bags);
        let mut grads = vec![1.0; 8];
        (grads[1], grads[6]) = (f32::NAN, f32::NEG_INFINITY);
        let gradient = array.gradient(GradSlice::F32(&grads)).unwrap();
        array.backward(&grads).unwrap();
        let after = snapshot(&mut array);
        let bad = [(3, 1), (50, 2)].map(|(row, e)| robe::hash::location(row, e, 40, 4) as usize);
        assert!(gradient[bad[0]].is_nan() && gradient[bad[1]] == f32::NEG_INFINITY, "{backward:?}");
        assert_eq!(gradient.iter().filter(|sum| !sum.is_finite()).count(), 2);
        let read = gradients(&config, &bags, &grads);
        for w in 0..40 {
            let moves = read.contains_key(&w) && !bad.contains(&w);
            assert_eq!(before.weight_words[w] != after.weight_words[w], moves, "{backward:?}, weight {w}");
        }
        assert_eq!(after.counters[0].skipped_rows, 2);
    }
}

/// An empty batch and bags without a row are legal: they have no gradient, and move no weight.
pub fn empty_batches_move_nothing<T: Array>(new: New<'_, T>, _: u64) {
    for backward in [Backward::Dense, Backward::Sparse, Backward::Atomic] {
        for (pooling, outputs) in [(Pooling::Sum, 8), (Pooling::Mean, 8), (Pooling::None, 0)] {
            let mut array = new(&Config::new(&[10], 4, 64, 3).with_pooling(pooling).with_backward(backward));
            let before = snapshot(&mut array);
            let found = array.forward(hotrow::Bags::new(&[], &[0, 0, 0]), Mode::Train).unwrap();
            assert_eq!(found, vec![0.0; outputs]);
            let gradient = array.gradient(GradSlice::F32(&vec![1.0; outputs])).unwrap();
            assert!(gradient.len() == 64 && !gradient.into_iter().any(covers) && array.pending());
            array.backward(&found).unwrap();
            assert_eq!(snapshot(&mut array), before);
        }
    }
}

/// Every wrong call has a named error and moves nothing.
pub fn bad_calls_leave_everything_as_it_was<T: Array>(new: New<'_, T>, _: u64) {
    let config = Config::new(&[10, 5], 4, 64, 4);
    let mut array = new(&config);
    let before = snapshot(&mut array);
    let mut refused = |indices: &[u32], offsets: &[u32], weights: Option<&[f32]>| {
        array.forward(hotrow::Bags::new(indices, offsets).with_weights(weights), Mode::Train).unwrap_err()
    };
    let beyond = Error::IndexOutOfRange { table: 1, rows: 5, position: 1, value: 5 };
    assert_eq!(refused(&[1, 5], &[0, 1, 2], None), beyond);
    assert!(matches!(refused(&[1, 2], &[0, 3, 2], None), Error::BadOffsets { position: 1, .. }));
    assert!(matches!(refused(&[1, 2], &[], None), Error::Length { what: "offsets", .. }));
    assert!(matches!(refused(&[1, 2], &[0, 2], None), Error::Bags { features: 2, bags: 1 }));
    assert!(matches!(refused(&[1, 2], &[0, 1, 2], Some(&[1.0])), Error::Length { what: "weights", .. }));
    refuses!(array.backward(&[]), Error::Order { .. });
    refuses!(array.gradient(GradSlice::F32(&[])), Error::Order { call: "gradient", .. });
    let mut after = snapshot(&mut array);
    assert_eq!(std::mem::take(&mut after.counters[1].out_of_range), 1, "counted, and no more");
    assert_eq!(after, before);
    array.forward(hotrow::Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
    refuses!(array.backward(&[1.0; 7]), Error::Length { what: "grad_outputs", wanted: 8, found: 7 });
    refuses!(array.gradient(GradSlice::F32(&[1.0; 7])), Error::Length { what: "grad_outputs", wanted: 8, found: 7 });
    refuses!(array.write_weights(&[0.0; 64]), Error::Order { .. });
    array.backward(&[1.0; 8]).unwrap();
    refuses!(array.write_weights(&[0.0; 63]), Error::Length { wanted: 64, found: 63, .. });
    let before = snapshot(&mut array);
    let mut weights = [0.0; 64];
    weights[5] = f32::NAN;
    refuses!(array.write_weights(&weights), Error::Source { row: 5, .. });
    let restored = |change: fn(&mut RobeSnapshot)| {
        let mut snapshot = before.clone();
        change(&mut snapshot);
        new(&config).restore(&snapshot)
    };
    refuses!(restored(|s| s.weight_words[7] = f32::INFINITY.to_bits()), Error::Source { row: 7, .. });
    refuses!(restored(|s| s.weight_words.truncate(63)), Error::Length { wanted: 64, found: 63, .. });
    refuses!(restored(|s| s.state_words.push(0)), Error::Length { wanted: 0, found: 1, .. });
    refuses!(restored(|s| s.counters.push(hotrow::Counters::default())), Error::Length { wanted: 2, found: 3, .. });
    assert_eq!((restored(|_| {}), snapshot(&mut array)), (Ok(()), before));
    refuses!(array.read_rows(&[14, 15]), Error::RowOutOfRange { position: 1, row: 15, .. });
    refuses!(array.set_learning_rate(f32::NAN), Error::Config { field: "lr", .. });
}

/// An array runs under several configurations in turn, with other tables, chunks and ways: each time as one that was made with the configuration and
/// has the same weights. What does not fit is refused.
pub fn an_array_goes_on_under_another_configuration<T: Array>(new: New<'_, T>, _: u64) {
    for config in [config(1), config(3), packed(4), packed(5), packed(7)] {
        goes_on_under_another_configuration(new, &config);
    }
}

fn goes_on_under_another_configuration<T: Array>(new: New<'_, T>, base: &Config) {
    let base = base.clone().with_tables(vec![5000, 307]).with_features(Vec::new()).with_weights(3000).with_chunk(16);
    let base = base.with_addressing(Addressing::Hashed);
    let mut array = new(&base);
    let step = |array: &mut T, config: &Config| {
        let found = forward(array, &bags(config, 4, 12, 60));
        array.backward(&random_grads(4, found.len())).unwrap();
        found
    };
    step(&mut array, &base);
    let others = [
        base.clone().with_chunk(1).with_backward(Backward::Sparse),
        base.clone().with_chunk(5).with_backward(Backward::Dense).with_tables(vec![400, 7, 60]),
    ];
    for (other, kept) in others.iter().zip([true, false]) {
        let before = snapshot(&mut array);
        array.reconfigure(other.clone()).unwrap();
        let begins = snapshot(&mut array);
        assert_eq!((begins.t, &begins.weight_words), (before.t, &before.weight_words));
        assert_eq!(begins.counters.iter().any(|table| table.accesses > 0), kept, "other tables count anew");
        let mut fresh = new(other);
        fresh.restore(&begins).unwrap();
        assert_eq!(step(&mut array, other), step(&mut fresh, other));
        let after = snapshot(&mut array);
        assert!(after == snapshot(&mut fresh), "{other:?}");
        assert!(after.weight_words != before.weight_words, "the comparison can fail");
    }
    let n = forward(&mut array, &bags(&others[1], 4, 5, 12)).len();
    refuses!(array.reconfigure(base.clone()), Error::Order { call: "reconfigure", .. });
    array.backward(&vec![0.0; n]).unwrap();
    refuses!(array.reconfigure(base.with_weights(3001)), Error::Config { field: "weights", .. });
}
