//! The example of Zhang 2018, section 2.1: values begin at 1.5, and every update adds 3/64 of the distance between binary16 neighbours.
//! Rounding to nearest loses every update. Stochastic rounding keeps the sum of the updates, except for the bias of so few random bits.

use hotrow::{Embedding, Error, GroupConfig, Init, Optimizer, Precision, RandomBits, Rounding};

/// The initial value of every element.
pub const START: f32 = 1.5;
/// The update of Zhang 2018, Figure 1: 4.5776367e-5 = 3 * 2^-16.
pub const UPDATE: f32 = 4.577_636_7e-5;
/// Distance of binary16 neighbours between 1 and 2.
const STEP: f64 = 1.0 / 1024.0;
/// Tables and batches small enough for a software driver.
const ROWS: u32 = 64;
const DIM: u32 = 32;

pub fn config(precision: Precision, rounding: Rounding, random_bits: RandomBits, update: f32) -> GroupConfig {
    GroupConfig::new(&[ROWS], DIM)
        .with_precision(precision)
        .with_rounding(rounding)
        .with_random_bits(random_bits)
        .with_optimizer(Optimizer::sgd(update))
        .with_init(Init::Constant(START))
        // Fixed: few rare moves make a wide spread, so that a fifth of it (below) is three deviations.
        .with_seed(3)
}

/// Updates every row `steps` times and returns the table.
pub fn train(group: &mut dyn Embedding, steps: u32) -> Result<Vec<f32>, Error> {
    let rows: Vec<u32> = (0..ROWS).collect();
    let offsets: Vec<u32> = (0..=ROWS).collect();
    // SGD subtracts its gradient.
    let grads = vec![-1.0; (ROWS * DIM) as usize];
    for _ in 0..steps {
        group.forward(&rows, &offsets, None)?;
        group.backward(&grads)?;
    }
    group.read_rows(&rows)
}

/// Checks that the elements moved as under independent stochastic roundings. Each update moves an element up by one STEP, with the
/// probability that the random bits give, or not at all. The mean must be within six standard deviations.
pub fn moved_at_random(values: &[f32], steps: u32, update: f32, random_bits: RandomBits) -> Result<(), String> {
    let fraction = f64::from(update) / STEP;
    // The share of the 2^k equally likely values (r + 1/2) * 2^-k that lie below the fraction.
    let grain = f64::from(1u32 << random_bits.bits());
    let up = (fraction * grain - 0.5).ceil().max(0.0) / grain;
    if (up - fraction).abs() > random_bits.bias() {
        return Err(format!("up with probability {up}, not {fraction}"));
    }
    let (n, steps) = (values.len() as f64, f64::from(steps));
    let mean = values.iter().map(|&x| (f64::from(x) - f64::from(START)) / STEP).sum::<f64>() / n;
    let sigma = (steps * up * (1.0 - up) / n).sqrt();
    if (mean - steps * up).abs() > 6.0 * sigma {
        return Err(format!("moved by {mean} steps, not {} +- {sigma}", steps * up));
    }
    // Unbiased rounding moves an element by the sum of all updates.
    let wanted = steps * fraction;
    let off = (mean - wanted).abs();
    if off > 6.0 * sigma + steps * random_bits.bias() {
        return Err(format!("moved by {mean} steps, not {wanted}"));
    }
    // The elements are independent: their variance is that of as many coin tosses, within a fifth.
    let spread = values.iter().map(|&x| ((f64::from(x) - f64::from(START)) / STEP - mean).powi(2)).sum::<f64>() / n;
    if up > 0.0 && (spread / (sigma * sigma * n) - 1.0).abs() > 0.2 {
        return Err(format!("spread by {spread}, not {}", sigma * sigma * n));
    }
    Ok(())
}

/// Runs the example on groups made by `make`, `steps` updates each.
pub fn check(steps: u32, mut make: impl FnMut(GroupConfig) -> Box<dyn Embedding>) {
    let mut run = |precision, rounding, bits, update| {
        train(&mut *make(config(precision, rounding, bits, update)), steps).unwrap_or_else(|error| panic!("{error}"))
    };
    let [eight, sixteen, twenty_four] = RandomBits::ALL;
    assert_eq!(f64::from(UPDATE) / STEP, 3.0 / 64.0);
    // FP32 represents all sums of 2^-16 below 2 exactly.
    let exact = run(Precision::Fp32, Rounding::Nearest, twenty_four, UPDATE);
    let sum = START + UPDATE * steps as f32;
    assert!(exact.iter().all(|&x| x == sum), "{:?}, not {sum}", exact.iter().find(|&&x| x != sum));
    let nearest = run(Precision::Fp16, Rounding::Nearest, twenty_four, UPDATE);
    assert!(nearest.iter().all(|&x| x == START), "nearest moved");
    // 8 bits cannot represent the second fraction, and the last fraction is below their smallest value.
    for update in [UPDATE, UPDATE * 1.03, UPDATE / 32.0] {
        for bits in RandomBits::ALL {
            let values = run(Precision::Fp16, Rounding::Stochastic, bits, update);
            moved_at_random(&values, steps, update, bits)
                .unwrap_or_else(|wrong| panic!("{bits:?}, {update:e}: {wrong}"));
            let lost = values.iter().all(|&x| x == START);
            assert_eq!(lost, bits == eight && update < UPDATE / 16.0, "{bits:?}, {update:e}");
            // The check must notice half as many updates, twice as many, and the result of rounding to nearest.
            for wrong in [steps / 2, steps * 2] {
                if !lost {
                    assert!(moved_at_random(&values, wrong, update, bits).is_err(), "{bits:?}, {update:e}, {wrong}");
                }
            }
        }
    }
    assert!(moved_at_random(&nearest, steps, UPDATE, sixteen).is_err());
    // The right sum is not random if all elements are equal.
    assert!(moved_at_random(&exact, steps, UPDATE, twenty_four).is_err());
}
