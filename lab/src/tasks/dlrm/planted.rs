//! A generated click log whose clicks come from a known model, so that the lowest reachable loss is known.
//!
//! Rows are drawn by Zipf's law from each table, counts from a log-normal law. The model is a factorization machine over 27 features, as
//! many as DLRM has vectors: each row of each table has a weight and a latent vector, and so have the counts together. Some tables matter
//! more than others. The logit of a click has two parts, the sum of the weights and the sum of the dot products of all pairs of vectors.
//! Each part is scaled to the deviation below, and the logit is shifted so that one sample in four is a click.
//!
//! Weights and vectors of a row are a function of seed, table and row. Nothing is stored, however large the tables are.

use super::criteo::{Sample, dense_value};
use crate::batch::{Batch, Target};
use crate::metrics::{Score, Scorer};
use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal, Zipf};
use rand_pcg::Pcg64;

/// The exponent of Zipf's law. With 1.05 the hottest 5 % of 100,000 rows get 80 % of the accesses, of 6,000 rows 73 %. Table 6 of Yang 2020
/// has hit rates of 78 % with a cache of 5 %, over tables of 1,000 to 10,000,000 rows.
const EXPONENT: f64 = 1.05;

/// The share of clicks, as in Criteo-Kaggle.
const BASE_RATE: f64 = 0.25;

/// Deviations of the logit's two parts: weights and products.
const DEVIATIONS: [f64; 2] = [1.2, 0.8];

/// Elements of a latent vector.
const LATENT: usize = 4;

const MISSING: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Planted {
    pub(super) train: Vec<Sample>,
    pub(super) test: Vec<Sample>,
    /// The planted logit of each test sample.
    logits: Vec<f64>,
}

/// Generates a data set. Equal arguments give an equal set. With `drift` other rows are popular after every so many samples: as in the trace
/// `drift:` of `hotrow`, all rows of a table move on by the golden part of them.
pub(crate) fn generate(
    rows: &[u32; CRITEO_CATEGORIES],
    train: usize,
    test: usize,
    drift: Option<u32>,
    seed: u64,
) -> anyhow::Result<Planted> {
    let mut random = Pcg64::seed_from_u64(seed);
    let plant = Plant::new(seed);
    let ids = rows.iter().map(|&rows| Zipf::new(f64::from(rows), EXPONENT)).collect::<Result<Vec<_>, _>>()?;
    let counts = LogNormal::new(1.0, 1.5)?;
    let samples = train + test;
    let mut drawn = Vec::with_capacity(samples);
    let mut parts = Vec::with_capacity(samples);
    for at in 0..samples {
        let moves = drift.map_or(0, |every| at as u64 / u64::from(every));
        let mut table = 0;
        let rows = rows.map(|rows| {
            // Ranks run from 1 to `rows`; the minimum guards against rounding.
            let row = (ids[table].sample(&mut random) as u32 - 1).min(rows - 1);
            table += 1;
            let step = (f64::from(rows) * 0.618_033_988_749_895) as u64;
            ((u64::from(row) + moves * step) % u64::from(rows)) as u32
        });
        let counts: [Option<i64>; CRITEO_COUNTS] =
            std::array::from_fn(|_| (!random.random_bool(MISSING)).then(|| counts.sample(&mut random) as i64));
        parts.push(plant.parts(&rows, &counts));
        drawn.push((rows, counts));
    }
    let mut logits = logits(&parts);
    let clicked = drawn
        .into_iter()
        .zip(&logits)
        .map(|((rows, counts), &logit)| Sample::new(counts, rows, random.random_bool(probability(logit))));
    let mut train_set: Vec<Sample> = clicked.collect();
    let test_set = train_set.split_off(train);
    Ok(Planted { train: train_set, test: test_set, logits: logits.split_off(train) })
}

impl Planted {
    /// The entropy: the mean log-loss, in nats, of the planted probabilities over all labels that could be drawn. No model does better but
    /// by chance.
    pub(crate) fn entropy(&self) -> f64 {
        mean(self.logits.iter().map(|&logit| entropy(probability(logit))))
    }

    /// The score of the planted probabilities on the labels that were drawn.
    pub(crate) fn score(&self) -> Score {
        let mut scorer = Scorer::new(Target::Binary);
        let logits: Vec<f32> = self.logits.iter().map(|&logit| logit as f32).collect();
        let labels = self.test.iter().map(|sample| sample.label.into()).collect();
        scorer.add(&logits, &Batch { labels, samples: self.test.len(), ..Batch::default() });
        scorer.score()
    }

    /// The loss of predicting the base rate for every sample.
    pub(crate) fn blind_loss(&self) -> f64 {
        entropy(mean(self.test.iter().map(|sample| f64::from(sample.label))))
    }
}

/// The entropy of a label, in nats.
fn entropy(p: f64) -> f64 {
    -(p * p.ln() + (1.0 - p) * (-p).ln_1p())
}

fn probability(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

#[derive(Debug)]
struct Plant {
    seed: u64,
    /// The factor of each count in the counts' weight and vector.
    counts: [Feature; CRITEO_COUNTS],
}

/// A weight, then a vector: independent, with mean 0 and deviation 1.
type Feature = [f64; 1 + LATENT];

impl Plant {
    fn new(seed: u64) -> Self {
        Self { seed, counts: std::array::from_fn(|count| feature(seed, CRITEO_CATEGORIES, count as u32)) }
    }

    /// The two parts of the logit: the sum of the weights, and of the products of all pairs of vectors.
    fn parts(&self, rows: &[u32; CRITEO_CATEGORIES], counts: &[Option<i64>; CRITEO_COUNTS]) -> [f64; 2] {
        let mut sum = [0.0; 1 + LATENT];
        let mut squares = 0.0;
        let mut add = |feature: Feature| {
            squares += feature[1..].iter().map(|v| v * v).sum::<f64>();
            sum.iter_mut().zip(feature).for_each(|(sum, v)| *sum += v);
        };
        for (table, &row) in rows.iter().enumerate() {
            add(feature(self.seed, table, row).map(|v| v * strength(table)));
        }
        let mut dense = [0.0; 1 + LATENT];
        for (feature, &count) in self.counts.iter().zip(counts) {
            let value = f64::from(dense_value(count)) / (CRITEO_COUNTS as f64).sqrt();
            dense.iter_mut().zip(feature).for_each(|(sum, v)| *sum += value * v);
        }
        add(dense);
        [sum[0], (sum[1..].iter().map(|v| v * v).sum::<f64>() - squares) / 2.0]
    }
}

/// The weight of a table in the logit: 1/k for the k-th, as a few features of a real log matter most. Steps of 7 go once round the tables,
/// so that small and large ones alternate.
fn strength(table: usize) -> f64 {
    1.0 / (1 + (7 * table + 3) % CRITEO_CATEGORIES) as f64
}

/// The weight and vector of a row, without the table's strength.
fn feature(seed: u64, table: usize, row: u32) -> Feature {
    // Seeds are multiplied, so that neighbouring seeds have different rows.
    let place = (table as u64 + 1) << 32 | u64::from(row);
    let mut random = Pcg64::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place);
    let bound = 3f64.sqrt(); // of deviation 1
    std::array::from_fn(|_| random.random_range(-bound..bound))
}

/// The logits of a click, from their two parts.
fn logits(parts: &[[f64; 2]]) -> Vec<f64> {
    let mut logits = vec![0.0; parts.len()];
    for (part, deviation) in DEVIATIONS.into_iter().enumerate() {
        let mean = mean(parts.iter().map(|parts| parts[part]));
        let variance = self::mean(parts.iter().map(|parts| (parts[part] - mean).powi(2)));
        let scale = deviation / variance.sqrt();
        logits.iter_mut().zip(parts).for_each(|(logit, parts)| *logit += scale * (parts[part] - mean));
    }
    // The mean probability increases with the shift, so bisection finds it.
    let (mut low, mut high) = (-30.0, 30.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        let rate = mean(logits.iter().map(|logit| probability(logit + middle)));
        if rate < BASE_RATE { low = middle } else { high = middle }
    }
    logits.iter_mut().for_each(|logit| *logit += low);
    logits
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::cardinalities::Cardinalities;
    use std::ops::Range;

    fn set() -> Planted {
        let rows = "2000".parse::<Cardinalities>().unwrap().rows;
        generate(&rows, 4000, 16_000, None, 7).unwrap()
    }

    /// The loss on the drawn labels is the entropy within 4 standard errors; wrong probabilities have a larger loss.
    #[test]
    fn entropy_is_the_best_loss() {
        let mut set = set();
        let entropy = set.entropy();
        let spread = mean(set.logits.iter().map(|&logit| {
            let p = probability(logit);
            p * (1.0 - p) * logit * logit
        }));
        let error = (spread / set.logits.len() as f64).sqrt();
        let score = set.score();
        assert!((score.loss - entropy).abs() < 4.0 * error, "{score:?} {entropy} {error}");
        let blind = set.blind_loss();
        assert!(blind - entropy > 0.05, "there is something to learn: {blind} {entropy}");
        assert!(score.auc.unwrap() > 0.75, "{score:?}");
        for wrong in [0.5, 2.0] {
            let right = std::mem::take(&mut set.logits);
            set.logits = right.iter().map(|logit| wrong * logit).collect();
            let found = set.score().loss;
            assert!(found - entropy > 4.0 * error, "logits times {wrong}: {found} {entropy} {error}");
            set.logits = right;
        }
    }
    #[test]
    fn popular_rows_drift() {
        let rows = [1000; CRITEO_CATEGORIES];
        let of = |drift| generate(&rows, 3000, 8000, drift, 7).unwrap();
        let (still, moved) = (of(None), of(Some(1000)));
        let alike = |samples: Range<usize>, by: u32| {
            let moved = still.train[samples.clone()].iter().map(|sample| sample.rows.map(|row| (row + by) % 1000));
            moved.eq(of(Some(1000)).train[samples].iter().map(|sample| sample.rows))
        };
        assert!(alike(0..1000, 0) && alike(1000..2000, 618) && alike(2000..3000, 1236) && !alike(1000..2000, 0));
        let gap = (still.score().loss - still.entropy()).abs() + (moved.score().loss - moved.entropy()).abs();
        assert!(gap < 0.02, "clicks come from the rows that were moved to: {gap}");
    }
}
