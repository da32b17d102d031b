//! The quality of predictions, computed in FP64.

use crate::batch::{Batch, Target};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// The mean loss of the samples, in nats.
    pub(crate) loss: f64,
    /// The share of right predictions; `None` if a sample has several logits of its own.
    pub(crate) accuracy: Option<f64>,
    /// The area under the ROC curve, for a binary target with both labels.
    pub(crate) auc: Option<f64>,
    /// The loss of the best constant prediction: for all samples what share of the test labels each class has. It is 0 with one class.
    pub(crate) base_rate: f64,
}

/// Collects predictions batch by batch.
#[derive(Debug)]
pub(crate) struct Scorer {
    target: Target,
    samples: usize,
    loss: f64,
    right: usize,
    /// The number of labels of each class.
    labels: Vec<usize>,
    /// Every logit of a binary target, with its label.
    ranked: Vec<(f32, bool)>,
}

impl Scorer {
    pub(crate) const fn new(target: Target) -> Self {
        Self { target, samples: 0, loss: 0.0, right: 0, labels: Vec::new(), ranked: Vec::new() }
    }

    pub(crate) fn add(&mut self, logits: &[f32], batch: &Batch) {
        self.samples += batch.samples;
        for &label in &batch.labels {
            self.labels.resize(self.labels.len().max(label as usize + 1), 0);
            self.labels[label as usize] += 1;
        }
        match self.target {
            Target::Classes(classes) => {
                for (logits, &label) in logits.chunks_exact(classes).zip(&batch.labels) {
                    let (loss, right) = of_classes(logits, label as usize);
                    self.loss += loss;
                    self.right += usize::from(right);
                }
            }
            Target::Binary => {
                for (&logit, &label) in logits.iter().zip(&batch.labels) {
                    let positive = label == 1;
                    self.loss += of_binary(logit, positive);
                    self.right += usize::from((logit > 0.0) == positive);
                    self.ranked.push((logit, positive));
                }
            }
        }
    }

    pub(crate) fn score(mut self) -> Score {
        let samples = self.samples as f64;
        let single = self.target != Target::Binary || self.ranked.len() == self.samples;
        let all = self.labels.iter().sum::<usize>() as f64;
        let of_class = |count: f64| count * (all / count).ln();
        let base_rate =
            self.labels.iter().filter(|&&count| count > 0).map(|&count| of_class(count as f64)).sum::<f64>();
        Score {
            base_rate: base_rate / samples,
            loss: self.loss / samples,
            accuracy: single.then_some(self.right as f64 / samples),
            auc: if self.target == Target::Binary { auc(&mut self.ranked) } else { None },
        }
    }
}

/// The means before and after the middle of the last quarter of `steps` values, of which the last are given, if those after are greater: by the rank test
/// of Mann and Whitney, `z` standard deviations beyond chance.
pub(crate) fn rise(values: &[f64], steps: u64, z: f64) -> Option<[f64; 2]> {
    let each = steps as usize / 8;
    let (before, after) = values[values.len().checked_sub(2 * each)?..].split_at(each);
    let (mut sorted, n) = (before.to_vec(), each as f64);
    sorted.sort_by(f64::total_cmp);
    let below = |value: &f64| sorted.partition_point(|other| other < value) as f64;
    let pairs = after.iter().map(below).sum::<f64>();
    let risen = pairs - n * n / 2.0 > z * (n * n * (2.0 * n + 1.0) / 12.0).sqrt();
    risen.then(|| [before, after].map(|part| part.iter().sum::<f64>() / n))
}

/// The log-loss, and whether the label's logit is above all others.
fn of_classes(logits: &[f32], label: usize) -> (f64, bool) {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&z| (f64::from(z) - f64::from(top)).exp()).sum();
    let others = logits.iter().enumerate().filter(|&(class, _)| class != label);
    let right = others.map(|(_, &z)| z).all(|z| z < logits[label]);
    (sum.ln() + f64::from(top) - f64::from(logits[label]), right)
}

/// The log-loss: `ln(1 + e^-z)` of a positive, `ln(1 + e^z)` of a negative.
fn of_binary(logit: f32, positive: bool) -> f64 {
    let z = if positive { -f64::from(logit) } else { f64::from(logit) };
    z.max(0.0) + (-z.abs()).exp().ln_1p()
}

/// The probability that a positive ranks above a negative, where a tie counts half; `None` without both labels.
fn auc(ranked: &mut [(f32, bool)]) -> Option<f64> {
    ranked.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut below, mut above) = (0.0, 0.0); // negatives so far; pairs in order
    for tied in ranked.chunk_by(|a, b| a.0 == b.0) {
        let positives = tied.iter().filter(|&&(_, positive)| positive).count() as f64;
        let negatives = tied.len() as f64 - positives;
        above += positives * (below + negatives / 2.0);
        below += negatives;
    }
    let positives = ranked.len() as f64 - below;
    (positives > 0.0 && below > 0.0).then(|| above / (positives * below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(target: Target, logits: &[f32], labels: &[u32], samples: usize) -> Score {
        let mut scorer = Scorer::new(target);
        scorer.add(logits, &Batch { labels: labels.to_vec(), samples, ..Batch::default() });
        scorer.score()
    }

    #[test]
    fn scores_against_closed_cases() {
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-7, "{found}, not {wanted}");
        // Probabilities 1/6, 2/6, 3/6.
        let logits = [0.0, 2f32.ln(), 3f32.ln()];
        let classes = score(Target::Classes(3), &[logits; 3].concat(), &[0, 1, 2], 3);
        close(classes.loss, (6f64.ln() + 3f64.ln() + 2f64.ln()) / 3.0);
        assert_eq!((classes.accuracy, classes.auc), (Some(1.0 / 3.0), None));
        close(classes.base_rate, 3f64.ln());
        // Adding 1024 to every logit changes nothing, and nothing overflows.
        let (loss, right) = of_classes(&logits.map(|z| z + 1024.0), 2);
        assert!((loss - 2f64.ln()).abs() < 1e-4 && right && !of_classes(&[1.0, 1.0], 0).1, "a tie is no prediction");
        // Probability 3/4, first for a positive, then for a negative.
        let binary = score(Target::Binary, &[3f32.ln(); 2], &[1, 0], 2);
        close(binary.loss, ((4f64 / 3.0).ln() + 4f64.ln()) / 2.0);
        assert_eq!((binary.accuracy, binary.auc), (Some(0.5), Some(0.5)));
        assert!(of_binary(1000.0, false) == 1000.0 && of_binary(1000.0, true) == 0.0);
        // With two logits in a sample the losses add up, and there is no accuracy.
        let pair = score(Target::Binary, &[0.0; 2], &[1, 0], 1);
        close(pair.loss, 2.0 * 2f64.ln());
        assert_eq!((pair.accuracy, pair.base_rate), (None, pair.loss));
        let alike = score(Target::Binary, &[0.0; 2], &[1, 1], 2);
        assert_eq!((alike.auc, alike.base_rate), (None, 0.0), "one class");
    }

    #[test]
    fn a_loss_that_rises_at_the_end_is_noticed() {
        let noise = |i: u32| f64::from(hotrow_report::fmix32(i)) / f64::from(u32::MAX);
        let of = |steps: u32, at: &dyn Fn(u32) -> f64| rise(&(0..steps).map(at).collect::<Vec<_>>(), steps.into(), 3.3);
        // The chance that a noise is taken for a rise is 1 in 2,000; these are fixed.
        assert_eq!(
            [&(|i| noise(i)) as &dyn Fn(u32) -> f64, &|i| -f64::from(i), &|_| 1.0].map(|at| of(800, at)),
            [None; 3]
        );
        assert_eq!(of(64, &|i| 1.0 + f64::from(i)), Some([52.5, 60.5]), "from step 48 on");
        assert!(of(800, &|i| noise(i) + f64::from(i) / 200.0).is_some() && of(64, &|i| 2f64.powi(i as i32)).is_some());
        assert_eq!((of(800, &|i| if i < 600 { f64::from(i) } else { noise(i) }), of(40, &f64::from)), (None, None));
        assert_eq!(rise(&[1.0; 3], 64, 3.3), None, "a resumed run has too few");
    }

    #[test]
    fn auc_against_every_pair() {
        let random = |i: u32| hotrow_report::fmix32(i + 1);
        for values in [7, 1 << 20, 1] {
            let mut ranked: Vec<(f32, bool)> =
                (0..200).map(|i| ((random(i) % values) as f32, random(i + 1000) % 3 == 0)).collect();
            let of = |label| ranked.iter().filter(move |(_, positive)| *positive == label).map(|(value, _)| *value);
            let pairs = of(true)
                .flat_map(|p| of(false).map(move |n| f64::from(u8::from(p > n)) + f64::from(u8::from(p == n)) / 2.0));
            let pairs: Vec<f64> = pairs.collect();
            assert_eq!(auc(&mut ranked), Some(pairs.iter().sum::<f64>() / pairs.len() as f64));
        }
        assert_eq!(auc(&mut [(1.0, true), (2.0, true)]), None);
    }
}
