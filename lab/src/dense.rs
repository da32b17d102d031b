//! The part of a model above its tables, with burn's tensors in FP32: on the CPU, or on the tables' device.

use crate::batch::{Batch, Target};
use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use hotrow::Init;
use hotrow_report::fmix32;

/// The part of a model above its tables. It holds shapes; its weights are in [`AdaGrad`].
pub(crate) trait Dense {
    /// First weights.
    fn weights(&self, fresh: &mut Fresh) -> Vec<Tensor<2>>;

    /// The logits of a batch in the form of its [`Target`]. `embedded` has `[bags, dim]` for each table, or `[indices, dim]` without pooling.
    fn logits(&self, weights: &[Tensor<2>], embedded: &[Tensor<2>], batch: &Batch) -> Tensor<2>;
}

pub(crate) fn cpu() -> Device {
    Device::flex().autodiff()
}

/// A constant of these values.
pub(crate) fn tensor(values: Vec<f32>, shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// The values of a tensor, which are read back from a device.
pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// The mean loss of the samples, in nats.
pub(crate) fn loss(logits: Tensor<2>, batch: &Batch, target: Target) -> Tensor<1> {
    let (samples, device) = (batch.samples, logits.device());
    let sum = match target {
        Target::Classes(_) => {
            let labels: Vec<i32> = batch.labels.iter().map(|&label| label as i32).collect();
            let labels = Tensor::<2, Int>::from_data(TensorData::new(labels, [samples, 1]), &device);
            -activation::log_softmax(logits, 1).gather(1, labels).sum()
        }
        Target::Binary => {
            let labels = batch.labels.iter().map(|&label| label as f32).collect();
            let labels = tensor(labels, logits.dims(), &device);
            // ln(1 + e^z) - y z without overflow.
            let soft = -activation::log_sigmoid(-logits.clone());
            (soft - labels * logits).sum()
        }
    };
    sum / samples as f64
}

/// Draws first weights. Each call takes the next part of the seed's stream.
#[derive(Debug)]
pub(crate) struct Fresh<'d> {
    seed: u32,
    drawn: u32,
    device: &'d Device,
}

impl<'d> Fresh<'d> {
    pub(crate) fn new(seed: u64, device: &'d Device) -> Self {
        Self { seed: fmix32((seed ^ (seed >> 32)) as u32 ^ 0xdead_beef), drawn: 0, device }
    }

    /// Draws uniformly between `-limit` and `limit`.
    fn uniform(&mut self, shape: [usize; 2], limit: f32) -> Tensor<2> {
        let mut values = vec![0.0; shape.iter().product()];
        Init::Uniform { low: -limit, high: limit }.row(self.seed, self.drawn, &mut values);
        self.drawn += 1;
        tensor(values, shape, self.device)
    }
}

/// Linear layers `x W + b` with rectifiers between them: inputs, hidden layers, outputs.
#[derive(Debug)]
pub(crate) struct Mlp(pub(crate) Vec<usize>);

impl Mlp {
    /// The number of its weights and biases.
    pub(crate) fn count(&self) -> usize {
        2 * (self.0.len() - 1)
    }

    pub(crate) fn forward(&self, weights: &[Tensor<2>], mut x: Tensor<2>) -> Tensor<2> {
        for (at, layer) in weights.chunks(2).enumerate() {
            if at > 0 {
                x = activation::relu(x);
            }
            x = x.matmul(layer[0].clone()) + layer[1].clone();
        }
        x
    }
}

/// A network above the outputs of one table.
impl Dense for Mlp {
    /// The weight, `[inputs, outputs]`, and the bias, `[1, outputs]`, of each layer. First weights lie within `1/sqrt(inputs)`, biases are 0.
    fn weights(&self, fresh: &mut Fresh) -> Vec<Tensor<2>> {
        let layer = |pair: &[usize]| {
            let weight = fresh.uniform([pair[0], pair[1]], 1.0 / (pair[0] as f32).sqrt());
            [weight, Tensor::zeros([1, pair[1]], fresh.device)]
        };
        self.0.windows(2).flat_map(layer).collect()
    }

    fn logits(&self, weights: &[Tensor<2>], embedded: &[Tensor<2>], _: &Batch) -> Tensor<2> {
        self.forward(weights, embedded[0].clone())
    }
}

/// The dense part's weights, and AdaGrad by the rule of the tables (SPEC 3).
#[derive(Debug)]
pub(crate) struct AdaGrad {
    /// The learning rate of the next step.
    pub(crate) lr: f32,
    pub(crate) weights: Vec<Tensor<2>>,
    /// Sums of squares, a tensor for each weight.
    pub(crate) squares: Vec<Tensor<2>>,
}

impl AdaGrad {
    pub(crate) fn new(weights: Vec<Tensor<2>>, lr: f32) -> Self {
        let squares = weights.iter().map(|weight| weight.clone().inner().zeros_like()).collect();
        Self { lr, weights: weights.into_iter().map(Tensor::require_grad).collect(), squares }
    }

    /// Updates with gradients that are first multiplied by `inverse`. A weight without a gradient stays.
    pub(crate) fn step(&mut self, gradients: &[Option<Tensor<2>>], inverse: f32) {
        for ((weight, squares), gradient) in self.weights.iter_mut().zip(&mut self.squares).zip(gradients) {
            let Some(gradient) = gradient.clone() else { continue };
            let gradient = if inverse == 1.0 { gradient } else { gradient * inverse };
            *squares = squares.clone() + gradient.clone().square();
            let moved = gradient * self.lr / (squares.clone().sqrt() + 1e-8);
            *weight = Tensor::from_inner(weight.clone().inner() - moved).require_grad();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Scorer;

    #[test]
    fn the_loss_is_that_of_the_metrics() {
        for (target, logits, shape, labels) in [
            (Target::Classes(3), vec![0.5, -1.0, 80.0, 3.0, 3.0, -90.0], [2, 3], vec![2, 1]),
            (Target::Binary, vec![0.5, -100.0, 100.0, 0.0], [2, 2], vec![1, 0, 0, 1]),
        ] {
            let batch = Batch { labels, samples: 2, ..Batch::default() };
            let of = tensor(logits.clone(), shape, &cpu()).require_grad();
            let found = loss(of.clone(), &batch, target);
            let gradient = values(of.grad(&found.backward()).unwrap());
            let mut scorer = Scorer::new(target);
            scorer.add(&logits, &batch);
            let (found, wanted) = (f64::from(values(found)[0]), scorer.score().loss);
            assert!((found - wanted).abs() < 1e-5 * wanted.max(1.0), "{target:?}: {found} against {wanted}");
            // At 0, where tables begin, too.
            let share = |at: usize, z: f32| match target {
                Target::Classes(n) => {
                    let row = &logits[at / n * n..][..n];
                    let greatest = row.iter().copied().fold(f32::MIN, f32::max);
                    let sum: f32 = row.iter().map(|z| (z - greatest).exp()).sum();
                    (z - greatest).exp() / sum - f32::from(u8::from(batch.labels[at / n] as usize == at % n))
                }
                Target::Binary => 1.0 / (1.0 + (-z).exp()) - batch.labels[at] as f32,
            };
            for (at, (&z, found)) in logits.iter().zip(gradient).enumerate() {
                assert!((found - share(at, z) / 2.0).abs() < 1e-6, "{target:?} {at}: {found}");
            }
        }
    }

    #[test]
    fn adagrad_by_hand() {
        let mut optimizer = AdaGrad::new(vec![tensor(vec![1.0, -2.0], [1, 2], &cpu())], 0.5);
        // The gradient of x^2 / 2 is x: first 1 and -2, then the updated values.
        for wanted in [[0.5, -1.5], [0.5 - 0.25 / 1.25f32.sqrt(), -1.5 + 0.75 / 6.25f32.sqrt()]] {
            let weight = optimizer.weights[0].clone();
            let gradients = (weight.clone().square().sum() * 0.5).backward();
            optimizer.step(&[weight.grad(&gradients)], 1.0);
            let found = values(optimizer.weights[0].clone());
            assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{found:?}");
        }
    }
}
