//! A small perceptron: two hidden layers of 64 rectified neurons, one output, trained by Adam. It runs on all cores; the number of cores changes no
//! bit.

use multiversion::multiversion;
use rand::RngExt as _;
use rayon::prelude::*;

use super::INPUTS;

/// Neurons of a hidden layer.
const WIDE: usize = 64;
/// Samples that one task takes.
const CHUNK: usize = 256;

type Layer = [f32; WIDE];

/// The weights layer by layer, each layer input by input: `[inputs][outputs]`; no biases, as in tiny-cuda-nn.
pub(crate) struct Mlp {
    weights: Vec<f32>,
    moments: [Vec<f32>; 2],
    step: i32,
}

/// The decays of both moments, and eps, of Adam.
const BETAS: [f32; 2] = [0.9, 0.99];
const EPS: f32 = 1e-15;

impl Mlp {
    /// Uniform weights, as Glorot and Bengio 2010.
    pub(crate) fn new(rng: &mut impl rand::Rng) -> Self {
        let mut weights = Vec::new();
        for (from, to) in [(INPUTS, WIDE), (WIDE, WIDE), (WIDE, 1)] {
            let most = (6.0 / (from + to) as f32).sqrt();
            weights.extend((0..from * to).map(|_| rng.random_range(-most..most)));
        }
        Self::of(weights)
    }

    /// With these weights, which have not moved yet.
    pub(crate) fn of(weights: Vec<f32>) -> Self {
        let moments = [vec![0.0; weights.len()], vec![0.0; weights.len()]];
        Self { weights, moments, step: 0 }
    }

    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The output of each sample, from its features.
    pub(crate) fn forward(&self, features: &[f32]) -> Vec<f32> {
        let mut outputs = vec![0.0; features.len() / INPUTS];
        let chunks = outputs.par_chunks_mut(CHUNK).zip(features.par_chunks(CHUNK * INPUTS));
        chunks.for_each(|(outputs, features)| predict(&self.weights, features, outputs));
        outputs
    }

    /// A step towards `targets` by the mean squared error: moves the weights and puts the gradient of the features into `grads`. Returns the
    /// loss before the step.
    pub(crate) fn train(&mut self, features: &[f32], targets: &[f32], grads: &mut [f32], lr: f32) -> f64 {
        let scale = 2.0 / targets.len() as f32;
        let chunks = features.par_chunks(CHUNK * INPUTS).zip(targets.par_chunks(CHUNK));
        let parts: Vec<_> = chunks
            .zip(grads.par_chunks_mut(CHUNK * INPUTS))
            .map(|((features, targets), grads)| {
                let mut due = vec![0.0; self.weights.len()];
                (learn(&self.weights, features, targets, scale, grads, &mut due), due)
            })
            .collect();
        self.step += 1;
        let [first, second] = BETAS.map(|beta| 1.0 - beta.powi(self.step));
        let [m, v] = &mut self.moments;
        for (at, ((weight, m), v)) in self.weights.iter_mut().zip(m).zip(v).enumerate() {
            let grad: f32 = parts.iter().map(|(_, due)| due[at]).sum();
            *m += (1.0 - BETAS[0]) * (grad - *m);
            *v += (1.0 - BETAS[1]) * (grad * grad - *v);
            *weight -= lr * (*m / first) / ((*v / second).sqrt() + EPS);
        }
        parts.iter().map(|(loss, _)| loss).sum::<f64>() / targets.len() as f64
    }
}

#[multiversion(targets = "simd")]
fn predict(weights: &[f32], features: &[f32], outputs: &mut [f32]) {
    for (features, output) in features.chunks_exact(INPUTS).zip(outputs) {
        *output = forward(weights, features).2;
    }
}

/// Adds the gradient of the weights to `due`, and writes that of the features. Returns the sum of the squared errors.
#[multiversion(targets = "simd")]
fn learn(weights: &[f32], features: &[f32], targets: &[f32], scale: f32, grads: &mut [f32], due: &mut [f32]) -> f64 {
    let (first, rest) = weights.split_at(INPUTS * WIDE);
    let (second, third) = rest.split_at(WIDE * WIDE);
    let (due_first, rest) = due.split_at_mut(INPUTS * WIDE);
    let (due_second, due_third) = rest.split_at_mut(WIDE * WIDE);
    let samples = features.chunks_exact(INPUTS).zip(grads.chunks_exact_mut(INPUTS)).zip(targets);
    let errors = samples.map(|((features, grads), target)| {
        let (mut one, mut two, output) = forward(weights, features);
        let off = output - target;
        for ((value, due), weight) in two.iter_mut().zip(&mut *due_third).zip(third) {
            *due += scale * off * *value;
            *value = if *value > 0.0 { scale * off * weight } else { 0.0 };
        }
        backward(second, &mut one, &two, due_second, true);
        grads.copy_from_slice(features);
        backward(first, grads, &one, due_first, false);
        f64::from(off * off)
    });
    errors.sum()
}

/// Both hidden layers of a sample, and its output.
#[inline(always)]
fn forward(weights: &[f32], features: &[f32]) -> (Layer, Layer, f32) {
    let (first, rest) = weights.split_at(INPUTS * WIDE);
    let (second, third) = rest.split_at(WIDE * WIDE);
    let one = rectified(first, features);
    let two = rectified(second, &one);
    (one, two, two.iter().zip(third).map(|(value, weight)| value * weight).sum())
}

/// `inputs` x weights, at least 0.
#[inline(always)]
fn rectified(weights: &[f32], inputs: &[f32]) -> Layer {
    let mut sums = [0.0f32; WIDE];
    for (input, row) in inputs.iter().zip(weights.as_chunks::<WIDE>().0) {
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum += input * weight;
        }
    }
    sums.map(|sum| sum.max(0.0))
}

/// Adds to the gradient of a layer's weights, and replaces its `inputs` by their gradient; of a rectified one only where it is above zero.
#[inline(always)]
fn backward(weights: &[f32], inputs: &mut [f32], outputs: &Layer, due: &mut [f32], relu: bool) {
    let rows = weights.as_chunks::<WIDE>().0.iter().zip(due.as_chunks_mut::<WIDE>().0);
    for (input, (row, due)) in inputs.iter_mut().zip(rows) {
        let value = *input;
        for (due, output) in due.iter_mut().zip(outputs) {
            *due += value * output;
        }
        let mut sums = [0.0f32; 16];
        for (row, outputs) in row.as_chunks::<16>().0.iter().zip(outputs.as_chunks::<16>().0) {
            for ((sum, weight), output) in sums.iter_mut().zip(row).zip(outputs) {
                *sum += weight * output;
            }
        }
        *input = if relu && value <= 0.0 { 0.0 } else { sums.iter().sum() };
    }
}
