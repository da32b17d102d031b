//! A generated click log whose clicks come from a known model, so that the lowest reachable loss is known.
//!
//! Rows are drawn by Zipf's law from each table, counts from a log-normal law. The model is a factorization machine over 27 features, as
//! many as DLRM has vectors: each row of each table has a weight and a latent vector, and so have the counts together. Some tables matter
//! more than others. The logit of a click has four parts: the weights of small tables and counts, the products of all pairs of their vectors,
//! the weights of large tables, and the products of all other pairs. Each part is scaled so that the large tables have a given share of the
//! logit's variance, and the logit is shifted so that one sample in four is a click.
//!
//! Weights and vectors of a row are a function of seed, table and row. Nothing is stored, however large the tables are.

use super::criteo::{Sample, dense_value};
use crate::batch::{Batch, Target};
use crate::metrics::{Score, Scorer};
use crate::task::Bounds;
use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal, Zipf};
use rand_pcg::Pcg64;

/// The exponent of Zipf's law. With 1.05 the hottest 5 % of 100,000 rows get 80 % of the accesses, of 6,000 rows 73 %. Table 6 of Yang 2020
/// has hit rates of 78 % with a cache of 5 %, over tables of 1,000 to 10,000,000 rows.
const EXPONENT: f64 = 1.05;

/// The share of clicks, as in Criteo-Kaggle.
const BASE_RATE: f64 = 0.25;

/// Deviations of the logit: of all weights, and of all products.
const DEVIATIONS: [f64; 2] = [1.2, 0.8];

/// Elements of a latent vector.
const LATENT: usize = 4;

const MISSING: f64 = 0.1;

/// The most rows of a small table: Yang 2020 (4.3) keeps such tables in FP32.
const SMALL: u32 = 1000;

/// The samples that [`Planted::floor`] looks at, and how often it draws their rows of large tables in either half.
const FLOOR: [usize; 2] = [20_000, 24];

/// The weights of small tables and counts, the products of their pairs, the weights of large tables, the other products.
type Parts = [f64; 4];

#[derive(Debug)]
pub(super) struct Planted {
    pub(super) train: Vec<Sample>,
    pub(super) test: Vec<Sample>,
    /// The planted logit of each test sample.
    logits: Vec<f64>,
    rows: Rows,
    plant: Plant,
    logit: Logit,
}

/// The law of the rows.
#[derive(Debug)]
struct Rows {
    rows: [u32; CRITEO_CATEGORIES],
    ids: Vec<Zipf<f64>>,
    drift: Option<u32>,
}

impl Rows {
    /// A row of a table in sample number `at`.
    fn draw(&self, table: usize, at: usize, random: &mut Pcg64) -> u32 {
        let rows = self.rows[table];
        // Ranks run from 1 to `rows`; the minimum guards against rounding.
        let row = (self.ids[table].sample(random) as u32 - 1).min(rows - 1);
        let moves = self.drift.map_or(0, |every| at as u64 / u64::from(every));
        let step = (f64::from(rows) * 0.618_033_988_749_895) as u64;
        ((u64::from(row) + moves * step) % u64::from(rows)) as u32
    }

    fn is_large(&self, table: usize) -> bool {
        self.rows[table] > SMALL
    }
}

/// What a generated log has besides the rows of its tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    /// Other rows are popular after every so many samples: as in the trace `drift:` of `hotrow`, all rows of a table move on by the golden part of them.
    pub(crate) drift: Option<u32>,
    /// The share of the logit's variance that is of tables of more than 1,000 rows.
    pub(crate) large_share: f64,
}

/// Generates a data set. Equal arguments give an equal set.
pub(crate) fn generate(
    rows: &[u32; CRITEO_CATEGORIES],
    [train, test]: [usize; 2],
    law: Law,
    seed: u64,
) -> anyhow::Result<Planted> {
    let mut random = Pcg64::seed_from_u64(seed);
    let ids = rows.iter().map(|&rows| Zipf::new(f64::from(rows), EXPONENT)).collect::<Result<Vec<_>, _>>()?;
    let rows = Rows { rows: *rows, ids, drift: law.drift };
    let plant = Plant::new(seed, std::array::from_fn(|table| rows.is_large(table)));
    let counts = LogNormal::new(1.0, 1.5)?;
    let samples = train + test;
    let mut drawn = Vec::with_capacity(samples);
    let mut parts = Vec::with_capacity(samples);
    for at in 0..samples {
        let found: [u32; CRITEO_CATEGORIES] = std::array::from_fn(|table| rows.draw(table, at, &mut random));
        let counts: [Option<i64>; CRITEO_COUNTS] =
            std::array::from_fn(|_| (!random.random_bool(MISSING)).then(|| counts.sample(&mut random) as i64));
        parts.push(plant.parts(&found, &counts.map(dense_value)));
        drawn.push((found, counts));
    }
    let logit = Logit::new(&parts, law.large_share);
    let mut logits: Vec<f64> = parts.iter().map(|parts| logit.of(parts)).collect();
    let clicked = drawn
        .into_iter()
        .zip(&logits)
        .map(|((rows, counts), &logit)| Sample::new(counts, rows, random.random_bool(probability(logit))));
    let mut train_set: Vec<Sample> = clicked.collect();
    let test_set = train_set.split_off(train);
    Ok(Planted { train: train_set, test: test_set, logits: logits.split_off(train), rows, plant, logit })
}

impl Planted {
    /// The losses that models of this log lie between, on its test set.
    pub(crate) fn bounds(&self) -> Bounds {
        let best = self.entropy();
        Bounds { blind: self.blind_loss(), floor: best + self.floor(), best }
    }

    /// The entropy: the mean log-loss, in nats, of the planted probabilities over all labels that could be drawn. No model does better but
    /// by chance.
    fn entropy(&self) -> f64 {
        mean(self.logits.iter().map(|&logit| entropy(probability(logit))))
    }

    /// How much more the best model loses that knows nothing of the rows of large tables: it says the mean probability over the rows that could be.
    fn floor(&self) -> f64 {
        let large: Vec<usize> = (0..CRITEO_CATEGORIES).filter(|&table| self.rows.is_large(table)).collect();
        let [most, each] = FLOOR;
        let samples = self.test.len().min(most);
        if large.is_empty() || samples == 0 {
            return 0.0;
        }
        let mut random = Pcg64::seed_from_u64(self.plant.seed ^ 1);
        let [mut halves, mut wholes] = [0.0; 2];
        for (k, (sample, &logit)) in self.test.iter().zip(&self.logits).take(samples).enumerate() {
            let mut rows = sample.rows;
            let mut half = || {
                let drawn = (0..each).map(|_| {
                    large
                        .iter()
                        .for_each(|&table| rows[table] = self.rows.draw(table, self.train.len() + k, &mut random));
                    probability(self.logit.of(&self.plant.parts(&rows, &sample.dense)))
                });
                mean(drawn)
            };
            let (p, one, other) = (probability(logit), half(), half());
            let more = |q: f64| -(p * q.ln() + (1.0 - p) * (-q).ln_1p()) - entropy(p);
            halves += (more(one) + more(other)) / 2.0;
            wholes += more((one + other) / 2.0);
        }
        // A mean of n draws loses too much by some part of 1 / n: the halves lose twice as much of it as the whole.
        (2.0 * wholes - halves) / samples as f64
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
    fn blind_loss(&self) -> f64 {
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
    /// Whether each table is large.
    large: [bool; CRITEO_CATEGORIES],
}

/// A weight, then a vector: independent, with mean 0 and deviation 1.
type Feature = [f64; 1 + LATENT];

impl Plant {
    fn new(seed: u64, large: [bool; CRITEO_CATEGORIES]) -> Self {
        let counts = std::array::from_fn(|count| feature(seed, CRITEO_CATEGORIES, count as u32));
        Self { seed, counts, large }
    }

    fn parts(&self, rows: &[u32; CRITEO_CATEGORIES], counts: &[f32; CRITEO_COUNTS]) -> Parts {
        // Of small and of large tables: the sums of their features, and of the squares of their vectors.
        let mut sums = [[0.0; 1 + LATENT]; 2];
        let mut squares = [0.0; 2];
        let mut add = |of: usize, feature: Feature| {
            squares[of] += feature[1..].iter().map(|v| v * v).sum::<f64>();
            sums[of].iter_mut().zip(feature).for_each(|(sum, v)| *sum += v);
        };
        for (table, &row) in rows.iter().enumerate() {
            add(self.large[table].into(), feature(self.seed, table, row).map(|v| v * strength(table)));
        }
        let mut dense = [0.0; 1 + LATENT];
        for (feature, &count) in self.counts.iter().zip(counts) {
            let value = f64::from(count) / (CRITEO_COUNTS as f64).sqrt();
            dense.iter_mut().zip(feature).for_each(|(sum, v)| *sum += value * v);
        }
        add(0, dense);
        let [small, large] = sums;
        let dot = |a: &Feature, b: &Feature| a[1..].iter().zip(&b[1..]).map(|(a, b)| a * b).sum::<f64>();
        let [pairs, others] =
            [(&small, squares[0]), (&large, squares[1])].map(|(sum, own)| (dot(sum, sum) - own) / 2.0);
        [small[0], pairs, large[0], others + dot(&small, &large)]
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

/// The logit of a click as a sum of its parts.
#[derive(Clone, Copy, Debug)]
struct Logit {
    factors: Parts,
    constant: f64,
}

impl Logit {
    /// The logit that has [`BASE_RATE`] clicks among these samples, and this share of its variance from large tables. Without large tables all of it is of
    /// the small ones.
    fn new(parts: &[Parts], large_share: f64) -> Self {
        let variance = |of: &dyn Fn(&Parts) -> f64| {
            let mean = mean(parts.iter().map(of));
            self::mean(parts.iter().map(|parts| (of(parts) - mean).powi(2)))
        };
        let found: Parts = std::array::from_fn(|part| variance(&|parts| parts[part]));
        let share = if found[2] > 0.0 { large_share } else { 0.0 };
        let mut factors: Parts = std::array::from_fn(|part| {
            let share = if part < 2 { 1.0 - share } else { share };
            if found[part] > 0.0 { DEVIATIONS[part % 2] * (share / found[part]).sqrt() } else { 0.0 }
        });
        let sum =
            |factors: &Parts, parts: &Parts| factors.iter().zip(parts).map(|(factor, part)| factor * part).sum::<f64>();
        // Parts that go together would make another deviation.
        let wanted = DEVIATIONS.iter().map(|deviation| deviation * deviation).sum::<f64>();
        let scale = (wanted / variance(&|parts| sum(&factors, parts))).sqrt();
        factors.iter_mut().for_each(|factor| *factor *= scale);
        let logits: Vec<f64> = parts.iter().map(|parts| sum(&factors, parts)).collect();
        // The mean probability increases with the constant, so bisection finds it.
        let (mut low, mut high) = (-60.0, 60.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            let rate = mean(logits.iter().map(|logit| probability(logit + middle)));
            if rate < BASE_RATE { low = middle } else { high = middle }
        }
        Self { factors, constant: low }
    }

    fn of(&self, parts: &Parts) -> f64 {
        self.constant + self.factors.iter().zip(parts).map(|(factor, part)| factor * part).sum::<f64>()
    }
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
        generate(&rows, [4000, 16_000], Law { drift: None, large_share: 0.5 }, 7).unwrap()
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

    /// The share of the variance is that asked for; the floor is the loss of a table of what is known, and lies nearer to the base rate the larger the share.
    #[test]
    fn large_tables_have_their_share() {
        // Two tables of two rows, one large: what a model without it can say is one probability for each row of the small one and class of counts.
        let rows = "2000".parse::<Cardinalities>().unwrap().rows;
        let way = |share| {
            let set = generate(&rows, [4000, 16_000], Law { drift: None, large_share: share }, 7).unwrap();
            let Bounds { blind, floor, best } = set.bounds();
            (blind - floor) / (blind - best)
        };
        let [none, half, most] = [0.0, 0.5, 0.95].map(way);
        assert!((none - 1.0).abs() < 0.01 && (0.35..0.65).contains(&half) && most < 0.15, "{none} {half} {most}");
        let set = set();
        let of = |part: usize| {
            let values = set.test.iter().map(|sample| set.plant.parts(&sample.rows, &sample.dense)[part]);
            let values: Vec<f64> = values.map(|value| value * set.logit.factors[part]).collect();
            let mean = mean(values.iter().copied());
            self::mean(values.iter().map(|value| (value - mean).powi(2)))
        };
        let [small, large] = [of(0) + of(1), of(2) + of(3)];
        assert!((large / (small + large) - 0.5).abs() < 0.03, "{small} {large}");
    }

    #[test]
    fn popular_rows_drift() {
        let rows = [1000; CRITEO_CATEGORIES];
        let of = |drift| generate(&rows, [3000, 8000], Law { drift, large_share: 0.5 }, 7).unwrap();
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
