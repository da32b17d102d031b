//! The example of Zhang 2018, section 2.1: 1.5, and again and again an update of 3/64 of the distance between its
//! binary16 neighbours. Rounding to nearest loses every update; stochastic rounding keeps their sum, up to the bias of
//! so few random bits.

use hotrow::{Embedding, Error, GroupConfig, Init, Optimizer, Precision, RandomBits, Rounding};

/// Where every element begins.
pub const START: f32 = 1.5;
/// The update of Zhang 2018, Figure 1: 4.5776367e-5 = 3 * 2^-16.
pub const UPDATE: f32 = 4.577_636_7e-5;
/// Distance of the binary16 neighbours between 1 and 2.
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

/// Whether the elements moved as independent stochastic roundings: each update moves an element by one STEP or not at
/// all, up with the probability that the random bits give. The mean must be within six standard deviations.
pub fn moved_at_random(values: &[f32], steps: u32, update: f32, random_bits: RandomBits) -> Result<(), String> {
    let fraction = f64::from(update) / STEP;
    // Of 2^k equally likely (r + 1/2) * 2^-k those below the fraction.
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
    // Unbiased rounding: the sum of all updates.
    let wanted = steps * fraction;
    let off = (mean - wanted).abs();
    if off > 6.0 * sigma + steps * random_bits.bias() {
        return Err(format!("moved by {mean} steps, not {wanted}"));
    }
    // The elements are independent: their spread is that of so many coin tosses, within a fifth.
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
    // Sums of 2^-16 below 2: FP32 has them all.
    let exact = run(Precision::Fp32, Rounding::Nearest, twenty_four, UPDATE);
    let sum = START + UPDATE * steps as f32;
    assert!(exact.iter().all(|&x| x == sum), "{:?}, not {sum}", exact.iter().find(|&&x| x != sum));
    let nearest = run(Precision::Fp16, Rounding::Nearest, twenty_four, UPDATE);
    assert!(nearest.iter().all(|&x| x == START), "nearest moved");
    // The second fraction is none that 8 bits can tell, the last one below all they can.
    for update in [UPDATE, UPDATE * 1.03, UPDATE / 32.0] {
        for bits in RandomBits::ALL {
            let values = run(Precision::Fp16, Rounding::Stochastic, bits, update);
            moved_at_random(&values, steps, update, bits)
                .unwrap_or_else(|wrong| panic!("{bits:?}, {update:e}: {wrong}"));
            let lost = values.iter().all(|&x| x == START);
            assert_eq!(lost, bits == eight && update < UPDATE / 16.0, "{bits:?}, {update:e}");
            // Half as many updates, or twice as many, are told from these; and so is what nearest makes of them.
            for wrong in [steps / 2, steps * 2] {
                if !lost {
                    assert!(moved_at_random(&values, wrong, update, bits).is_err(), "{bits:?}, {update:e}, {wrong}");
                }
            }
        }
    }
    assert!(moved_at_random(&nearest, steps, UPDATE, sixteen).is_err());
    // The right sum with all elements equal is not random.
    assert!(moved_at_random(&exact, steps, UPDATE, twenty_four).is_err());
}
