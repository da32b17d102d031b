//! Roundings whose outcome is known. The example of Zhang 2018, section 2.1: values begin at 1.5, and every update adds 3/64 of the distance between binary16 neighbours.
//! Rounding to nearest loses every update. Stochastic rounding keeps the sum of the updates, except for the bias of so few random bits.

use hotrow::{
    Bags, CpuGroup, Embedding, Error, GroupConfig, Init, Mode, Optimizer, Precision, RandomBits, Rounding, Source,
};
use rand::{RngExt as _, SeedableRng as _};

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
        group.forward(Bags::new(&rows, &offsets), Mode::Train)?;
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

/// Checks that stored weights have the error of a rounding of the originals, which lie anywhere between two values of the table: 1 / sqrt(12) of a step to
/// the nearest, 1 / sqrt(6) at random (root mean square). A row of `dim` has its lowest and highest number stored exactly, if it has codes.
pub fn check_error(precision: Precision, dim: usize, originals: &[f64], stored: &[f32], rounding: Rounding) {
    let (mut sum, mut n) = (0.0, 0.0);
    for (row, stored) in originals.chunks(dim).zip(stored.chunks(dim)) {
        let [low, high] = row.iter().fold([f64::MAX, f64::MIN], |[low, high], &x| [low.min(x), high.max(x)]);
        for (&x, &found) in row.iter().zip(stored) {
            let step = match precision {
                Precision::Fp16 => 2f64.powf((x.abs().log2().floor() - 10.0).max(-24.0)),
                _ if x == low || x == high => continue,
                _ => (high - low) / f64::from((1u32 << precision.bits()) - 1),
            };
            sum += ((f64::from(found) - x) / step).powi(2);
            n += 1.0;
        }
    }
    let (found, wanted) = (f64::sqrt(sum / n), if rounding == Rounding::Nearest { 12f64 } else { 6.0 }.sqrt().recip());
    // Of 11,000 numbers the deviation is at most 0.0023. The other rounding is 0.12 away.
    assert!(
        n > 11_000.0 && (found - wanted).abs() < 0.02,
        "{precision}, {rounding}: {found} of a step, wanted {wanted}"
    );
}

/// Numbers from -1 to 1 of a caller's, and the same in FP32.
pub fn given(count: usize) -> (Vec<f64>, Vec<f32>) {
    let mut random = rand_pcg::Pcg64::seed_from_u64(crate::seed_for("given weights"));
    let originals: Vec<f64> = (0..count).map(|_| random.random_range(-1.0..1.0)).collect();
    let values = originals.iter().map(|&x| x as f32).collect();
    (originals, values)
}

/// A table on the CPU, filled from a source if there is one.
pub fn on_cpu(config: GroupConfig, source: Option<&dyn Source>) -> Box<dyn Embedding> {
    let made = match source {
        Some(source) => CpuGroup::filled(config, source),
        None => CpuGroup::new(config),
    };
    Box::new(made.unwrap_or_else(|error| panic!("{error}")))
}

/// Weights that a caller gives, by a source or row by row, are rounded by `write_rounding`, nearest unless set; rows that are written in the
/// cache are exact there, and are rounded as trained when they leave. Returns the records of every table.
pub fn check_given<'a>(
    precisions: &[Precision],
    mut make: impl FnMut(GroupConfig, Option<&dyn Source>) -> Box<dyn Embedding + 'a>,
) -> Vec<Vec<u32>> {
    let (originals, values) = given(300 * 40);
    let all: Vec<u32> = (0..300).collect();
    let mut records = Vec::new();
    for &precision in precisions {
        let usual = GroupConfig::new(&[300], 40).with_precision(precision).with_seed(crate::seed_for("given") as u32);
        let other = usual.clone().with_rounding(Rounding::Nearest).with_write_rounding(Rounding::Stochastic);
        for config in [usual, other] {
            let mut filled = make(config.clone(), Some(&values));
            let mut written = make(config.clone(), None);
            written.write_rows(&all, &values).unwrap();
            let mut cached = make(config.clone().with_cache_rows(300), None);
            cached.forward(Bags::new(&all, &[0, 300]), Mode::Train).unwrap();
            cached.discard_pending();
            cached.write_rows(&all, &values).unwrap();
            assert_eq!(cached.read_rows(&all).unwrap(), values, "{precision}: in their slots");
            cached.reset().unwrap();
            let tables = [(&mut filled, config.write_rounding), (&mut written, config.write_rounding)];
            for (table, rounding) in tables.into_iter().chain([(&mut cached, config.rounding)]) {
                check_error(precision, 40, &originals, &table.read_rows(&all).unwrap(), rounding);
                records.push(table.snapshot().unwrap().records);
            }
        }
    }
    records
}
