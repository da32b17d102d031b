//! A step: forward, the loss and its gradients, and the update.

use super::model::Model;
use crate::batch::Batch;
use crate::dense::{self, tensor, values};
use crate::hyper::Reduction;
use crate::scaling;
use burn::tensor::{Gradients, Tensor};
use hotrow::CpuScaler;
use std::time::Instant;

impl Model<'_, '_> {
    /// Runs forward, backward and update with the next batch. Returns the loss before the update, which may not be finite, unless it stays on the
    /// device for now, and the number of samples.
    pub(super) fn step(&mut self) -> anyhow::Result<(Option<f64>, usize)> {
        if let Some(ranks) = self.ranks {
            return self.step_over(ranks).map(|(loss, samples)| (Some(loss), samples));
        }
        if let Some(shared) = &self.options.device.shared {
            return Ok((None, self.step_on_device(shared)?));
        }
        let (epoch, samples) = self.next_samples();
        let batch = self.task.train_batch(&samples, self.seed, epoch)?;
        let start = Instant::now();
        let outputs = self.tables.forward(&batch.bags)?;
        self.in_tables += start.elapsed();
        let (loss, embedded, gradients) = self.learn(&batch, shaped(self.options.hyper.dim, outputs));
        let mut of_tables: Vec<_> = embedded.iter().map(|outputs| summed(outputs, &gradients, batch.samples)).collect();
        let of_weights: Vec<_> = self.optimizer.weights.iter().map(|weight| weight.grad(&gradients)).collect();
        self.reduce(&mut of_tables, batch.samples);
        self.update(&of_tables, &of_weights)?;
        self.steps += 1;
        Ok((Some(f64::from(values(loss)[0])), batch.samples))
    }

    /// The mean loss of a batch or a part of one, the outputs that have gradients, and the gradients.
    pub(super) fn learn(&self, batch: &Batch, outputs: Vec<Tensor<2>>) -> (Tensor<1>, Vec<Tensor<2>>, Gradients) {
        let embedded: Vec<_> = outputs.into_iter().map(|outputs| Tensor::from_inner(outputs).require_grad()).collect();
        let logits = self.dense.logits(&self.optimizer.weights, &embedded, batch);
        let loss = dense::loss(logits, batch, self.task.about().target);
        let scale = self.scaler.as_ref().map_or(1.0, CpuScaler::scale);
        let gradients = (loss.clone() * scale).backward();
        (loss, embedded, gradients)
    }

    /// Turns the gradients of the summed loss into those of a weighted mean if the loss is one, and counts those that FP16 loses.
    pub(super) fn reduce(&mut self, of_tables: &mut [Vec<f32>], samples: usize) {
        if let Reduction(Some(weight)) = self.options.hyper.loss {
            let weight = weight / samples as f32;
            of_tables.iter_mut().flatten().for_each(|gradient| *gradient *= weight);
        }
        if self.scaler.is_some() {
            self.lost.iter_mut().zip(scaling::lost(of_tables)).for_each(|(sum, own)| *sum += own);
        }
    }

    /// Updates tables and dense part, unless a scaled loss overflowed. Each rank has the gradients of its parts of the tables' outputs, and those
    /// of the whole dense part.
    pub(super) fn update(&mut self, of_tables: &[Vec<f32>], of_weights: &[Option<Tensor<2>>]) -> anyhow::Result<()> {
        let Some(scaler) = &mut self.scaler else {
            let start = Instant::now();
            self.tables.backward(of_tables)?;
            self.in_tables += start.elapsed();
            self.optimizer.step(of_weights, 1.0);
            return Ok(());
        };
        let halves: Vec<_> = of_tables.iter().map(|gradients| scaling::halves(gradients)).collect();
        let state = scaling::decide(scaler, &halves, of_weights, self.ranks)?;
        let start = Instant::now();
        self.tables.backward_scaled(&halves, &state)?;
        self.in_tables += start.elapsed();
        if !state.overflowed() {
            self.optimizer.step(of_weights, state.inverse);
        }
        Ok(())
    }
}

/// The tables' outputs as tensors: `[bags, dim]`, or `[indices, dim]` without pooling.
pub(super) fn shaped(dim: u32, outputs: Vec<Vec<f32>>) -> Vec<Tensor<2>> {
    let of = |values: Vec<f32>| {
        let shape = [values.len() / dim as usize, dim as usize];
        tensor(values, shape, &dense::cpu().inner())
    };
    outputs.into_iter().map(of).collect()
}

/// The gradient of the batch's summed loss. AdaGrad is independent of the factor between sum and mean, but squares of mean gradients would be
/// lost in a state kept in FP16.
pub(super) fn summed(of: &Tensor<2>, gradients: &Gradients, samples: usize) -> Vec<f32> {
    match of.grad(gradients) {
        Some(mean) => values(mean * samples as f32),
        None => vec![0.0; of.shape().num_elements()],
    }
}
