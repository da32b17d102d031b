//! A small perceptron: two hidden layers of 64 rectified neurons, one output, trained by Adam. It runs on all cores; the number of cores changes no
//! bit. `mlp.wgsl` is the same on a device.

use multiversion::multiversion;
use rand::RngExt as _;
use rayon::prelude::*;

/// Neurons of a hidden layer.
pub(crate) const WIDE: usize = 64;
/// Samples that one task takes.
const CHUNK: usize = 256;

/// The weights of a layer, input by input: `[inputs][outputs]`; no biases, as in tiny-cuda-nn.
#[derive(Clone)]
pub(crate) struct Mlp {
    inputs: usize,
    weights: Vec<f32>,
    moments: [Vec<f32>; 2],
    step: i32,
}

/// The learning rate, the decays of both moments, and eps.
#[derive(Clone, Copy)]
pub(crate) struct Adam {
    pub(crate) lr: f32,
    pub(crate) betas: [f32; 2],
    pub(crate) eps: f32,
}

impl Mlp {
    /// Uniform weights, as Glorot and Bengio 2010.
    pub(crate) fn new(inputs: usize, rng: &mut impl rand::Rng) -> Self {
        let mut weights = Vec::with_capacity(inputs * WIDE + WIDE * WIDE + WIDE);
        for (from, to) in [(inputs, WIDE), (WIDE, WIDE), (WIDE, 1)] {
            let most = (6.0 / (from + to) as f32).sqrt();
            weights.extend((0..from * to).map(|_| rng.random_range(-most..most)));
        }
        Self::of(inputs, weights)
    }

    /// With these weights, which have not moved yet.
    pub(crate) fn of(inputs: usize, weights: Vec<f32>) -> Self {
        let moments = [vec![0.0; weights.len()], vec![0.0; weights.len()]];
        Self { inputs, weights, moments, step: 0 }
    }

    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The output of each sample, from its `inputs` features.
    pub(crate) fn forward(&self, features: &[f32]) -> Vec<f32> {
        let mut outputs = vec![0.0; features.len() / self.inputs];
        let chunks = outputs.par_chunks_mut(CHUNK).zip(features.par_chunks(CHUNK * self.inputs));
        chunks.for_each(|(outputs, features)| {
            let mut hidden = [vec![0.0; CHUNK * WIDE], vec![0.0; CHUNK * WIDE]];
            forward(&self.weights, self.inputs, features, &mut hidden, outputs);
        });
        outputs
    }

    /// A step towards `targets` by the mean squared error: moves the weights and puts the gradient of the features into `grads`. Returns the
    /// loss before the step.
    pub(crate) fn train(&mut self, features: &[f32], targets: &[f32], grads: &mut [f32], adam: Adam) -> f64 {
        let scale = 2.0 / targets.len() as f32;
        let chunks = features.par_chunks(CHUNK * self.inputs).zip(targets.par_chunks(CHUNK));
        let parts: Vec<_> = chunks
            .zip(grads.par_chunks_mut(CHUNK * self.inputs))
            .map(|((features, targets), grads)| {
                let mut hidden = [vec![0.0; CHUNK * WIDE], vec![0.0; CHUNK * WIDE]];
                let mut outputs = vec![0.0; targets.len()];
                forward(&self.weights, self.inputs, features, &mut hidden, &mut outputs);
                let off: Vec<f32> = outputs.iter().zip(targets).map(|(output, target)| output - target).collect();
                let mut due = vec![0.0; self.weights.len()];
                backward(&self.weights, self.inputs, features, &mut hidden, &off, scale, grads, &mut due);
                (off.iter().map(|off| f64::from(off * off)).sum::<f64>(), due)
            })
            .collect();
        self.step += 1;
        let [first, second] = adam.betas.map(|beta| 1.0 - beta.powi(self.step));
        let [m, v] = &mut self.moments;
        for (at, ((weight, m), v)) in self.weights.iter_mut().zip(m).zip(v).enumerate() {
            let grad: f32 = parts.iter().map(|(_, due)| due[at]).sum();
            *m += (1.0 - adam.betas[0]) * (grad - *m);
            *v += (1.0 - adam.betas[1]) * (grad * grad - *v);
            *weight -= adam.lr * (*m / first) / ((*v / second).sqrt() + adam.eps);
        }
        parts.iter().map(|(loss, _)| loss).sum::<f64>() / targets.len() as f64
    }
}

/// `outputs[sample] += inputs[sample] x weights`.
#[inline(always)]
fn multiply(weights: &[f32], inputs: &[f32], outputs: &mut [f32]) {
    let from = weights.len() / WIDE;
    for (inputs, outputs) in inputs.chunks_exact(from).zip(outputs.as_chunks_mut::<WIDE>().0) {
        let mut sums = [0.0f32; WIDE];
        for (input, row) in inputs.iter().zip(weights.as_chunks::<WIDE>().0) {
            for (sum, weight) in sums.iter_mut().zip(row) {
                *sum += input * weight;
            }
        }
        *outputs = sums;
    }
}

fn layers(weights: &[f32], inputs: usize) -> (&[f32], &[f32], &[f32]) {
    let (first, rest) = weights.split_at(inputs * WIDE);
    let (second, third) = rest.split_at(WIDE * WIDE);
    (first, second, third)
}

#[multiversion(targets = "simd")]
fn forward(weights: &[f32], inputs: usize, features: &[f32], hidden: &mut [Vec<f32>; 2], outputs: &mut [f32]) {
    let (first, second, third) = layers(weights, inputs);
    let [one, two] = hidden;
    let samples = outputs.len();
    multiply(first, features, &mut one[..samples * WIDE]);
    one.iter_mut().for_each(|value| *value = value.max(0.0));
    multiply(second, &one[..samples * WIDE], &mut two[..samples * WIDE]);
    two.iter_mut().for_each(|value| *value = value.max(0.0));
    for (output, row) in outputs.iter_mut().zip(two.as_chunks::<WIDE>().0) {
        *output = row.iter().zip(third).map(|(value, weight)| value * weight).sum();
    }
}

/// The gradients of features and weights. `hidden` has the values of both hidden layers, and has their gradients afterwards.
#[multiversion(targets = "simd")]
#[allow(clippy::too_many_arguments, reason = "the macro takes a plain function")]
fn backward(
    weights: &[f32],
    inputs: usize,
    features: &[f32],
    hidden: &mut [Vec<f32>; 2],
    off: &[f32],
    scale: f32,
    grads: &mut [f32],
    due: &mut [f32],
) {
    let (first, second, third) = layers(weights, inputs);
    let (due_first, rest) = due.split_at_mut(inputs * WIDE);
    let (due_second, due_third) = rest.split_at_mut(WIDE * WIDE);
    let [one, two] = hidden;
    for (off, row) in off.iter().zip(two.as_chunks_mut::<WIDE>().0) {
        for ((value, due), weight) in row.iter_mut().zip(&mut *due_third).zip(third) {
            *due += scale * off * *value;
            *value = if *value > 0.0 { scale * off * weight } else { 0.0 };
        }
    }
    for (one, two) in one.as_chunks_mut::<WIDE>().0.iter_mut().zip(two.as_chunks::<WIDE>().0).take(off.len()) {
        back(second, one, two, due_second, true);
    }
    let samples = features.chunks_exact(inputs).zip(grads.chunks_exact_mut(inputs));
    for ((features, grads), one) in samples.zip(one.as_chunks::<WIDE>().0) {
        grads.copy_from_slice(features);
        back(first, grads, one, due_first, false);
    }
}

/// Adds to the gradient of a layer's weights, and replaces its `inputs` by their gradient; of a rectified one only where it is above zero.
#[inline(always)]
fn back(weights: &[f32], inputs: &mut [f32], outputs: &[f32; WIDE], due: &mut [f32], relu: bool) {
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
