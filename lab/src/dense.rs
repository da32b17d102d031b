//! The part of a model above its tables, with candle's tensors on the CPU in FP32.

use crate::task::{Batch, Dense, Target};
use candle_core::{D, DType, Device, Result, Tensor, Var};
use hotrow::Init;
use hotrow::hash::fmix32;

/// The mean loss of the samples, in nats.
pub(crate) fn loss(logits: &Tensor, batch: &Batch, target: Target) -> Result<Tensor> {
    let samples = batch.samples as f64;
    match target {
        Target::Classes(_) => {
            let labels = Tensor::from_slice(&batch.labels, (batch.samples, 1), &Device::Cpu)?;
            let shifted = logits.broadcast_sub(&logits.max_keepdim(D::Minus1)?.detach())?;
            let normal = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
            (normal - shifted.gather(&labels, 1)?)?.sum_all()? / samples
        }
        Target::Binary => {
            let labels: Vec<f32> = batch.labels.iter().map(|&label| label as f32).collect();
            let labels = Tensor::from_vec(labels, logits.shape(), &Device::Cpu)?;
            // ln(1 + e^z) - y z without overflow.
            let soft = ((logits.abs()?.neg()?.exp()? + 1.0)?.log()? + logits.relu()?)?;
            (soft - (labels * logits)?)?.sum_all()? / samples
        }
    }
}

/// Draws first weights. Each call takes the next part of the seed's stream.
#[derive(Debug)]
pub(crate) struct Fresh {
    seed: u32,
    drawn: u32,
}

impl Fresh {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: fmix32((seed ^ (seed >> 32)) as u32 ^ 0xdead_beef), drawn: 0 }
    }

    /// Draws uniformly between `-limit` and `limit`.
    pub(crate) fn uniform(&mut self, shape: &[usize], limit: f32) -> Result<Var> {
        let mut values = vec![0.0; shape.iter().product()];
        Init::Uniform { low: -limit, high: limit }.row(self.seed, self.drawn, &mut values);
        self.drawn += 1;
        Var::from_vec(values, shape, &Device::Cpu)
    }
}

/// Linear layers `x W + b` with rectifiers between them.
#[derive(Debug)]
pub(crate) struct Mlp {
    /// The weight, `[inputs, outputs]`, and the bias of each layer.
    layers: Vec<[Var; 2]>,
}

impl Mlp {
    /// `widths` are inputs, hidden layers, outputs. First weights lie within `1/sqrt(inputs)`, biases are 0.
    pub(crate) fn new(widths: &[usize], fresh: &mut Fresh) -> Result<Self> {
        let layer = |pair: &[usize]| {
            let weight = fresh.uniform(&[pair[0], pair[1]], 1.0 / (pair[0] as f32).sqrt())?;
            Ok([weight, Var::zeros(pair[1], DType::F32, &Device::Cpu)?])
        };
        Ok(Self { layers: widths.windows(2).map(layer).collect::<Result<_>>()? })
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (at, [weight, bias]) in self.layers.iter().enumerate() {
            x = x.matmul(weight)?.broadcast_add(bias)?;
            if at + 1 < self.layers.len() {
                x = x.relu()?;
            }
        }
        Ok(x)
    }

    pub(crate) fn vars(&self) -> Vec<&Var> {
        self.layers.iter().flatten().collect()
    }
}

/// A network above the outputs of one table.
impl Dense for Mlp {
    fn logits(&self, embedded: &[Tensor], _: &Batch) -> Result<Tensor> {
        self.forward(&embedded[0])
    }

    fn vars(&self) -> Vec<&Var> {
        self.vars()
    }
}

/// AdaGrad for the dense part, by the rule of the tables (SPEC 3).
#[derive(Debug)]
pub(crate) struct AdaGrad {
    /// The learning rate of the next step.
    pub(crate) lr: f32,
    /// Sums of squares, a tensor for each variable.
    pub(crate) squares: Vec<Tensor>,
}

impl AdaGrad {
    pub(crate) fn new(vars: &[&Var], lr: f32) -> Result<Self> {
        let squares = vars.iter().map(|var| var.zeros_like()).collect::<Result<_>>()?;
        Ok(Self { lr, squares })
    }

    /// Updates with gradients that are first multiplied by `inverse`. A variable without a gradient stays.
    pub(crate) fn step(&mut self, vars: &[&Var], gradients: &[Option<Tensor>], inverse: f32) -> Result<()> {
        for ((var, squares), gradient) in vars.iter().zip(&mut self.squares).zip(gradients) {
            if let Some(gradient) = gradient {
                // Detached, since otherwise the state would keep the graph of every step.
                let mut gradient = gradient.detach();
                if inverse != 1.0 {
                    gradient = (gradient * f64::from(inverse))?;
                }
                *squares = (&*squares + gradient.sqr()?)?;
                let moved = ((gradient * f64::from(self.lr))? / (squares.sqrt()? + 1e-8)?)?;
                var.set(&(var.as_detached_tensor() - moved)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Scorer;

    #[test]
    fn the_loss_is_that_of_the_metrics() {
        for (target, logits, shape, labels) in [
            (Target::Classes(3), vec![0.5, -1.0, 80.0, 3.0, 3.0, -90.0], (2, 3), vec![2, 1]),
            (Target::Binary, vec![0.5, -100.0, 100.0, 0.0], (2, 2), vec![1, 0, 0, 1]),
        ] {
            let batch = Batch { labels, samples: 2, ..Batch::default() };
            let found = loss(&Tensor::from_slice(&logits, shape, &Device::Cpu).unwrap(), &batch, target).unwrap();
            let mut scorer = Scorer::new(target);
            scorer.add(&logits, &batch);
            let (found, wanted) = (f64::from(found.to_scalar::<f32>().unwrap()), scorer.score().loss);
            assert!((found - wanted).abs() < 1e-5 * wanted.max(1.0), "{target:?}: {found} against {wanted}");
        }
    }

    #[test]
    fn adagrad_by_hand() {
        let var = Var::from_vec(vec![1.0f32, -2.0], 2, &Device::Cpu).unwrap();
        let mut optimizer = AdaGrad::new(&[&var], 0.5).unwrap();
        // The gradient of x^2 / 2 is x: first 1 and -2, then the updated values.
        for wanted in [[0.5, -1.5], [0.5 - 0.25 / 1.25f32.sqrt(), -1.5 + 0.75 / 6.25f32.sqrt()]] {
            let gradients = (var.sqr().unwrap().sum_all().unwrap() * 0.5).unwrap().backward().unwrap();
            optimizer.step(&[&var], &[gradients.get(&var).cloned()], 1.0).unwrap();
            let found: Vec<f32> = var.to_vec1().unwrap();
            assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{found:?}");
        }
    }
}
