//! Steps wholly on a device: embeddings, dense part, gradients and updates. Nothing is copied to the host in a step; losses are read later.

use super::model::{Model, TESTED};
use crate::device::Shared;
use crate::hyper::Reduction;
use burn::tensor::Tensor;
use hotrow::Mode;
use std::time::Instant;

/// Steps whose losses are read together.
const UNREAD: usize = 64;

/// Steps that time the tables alone.
const TIMED: usize = 20;

impl Model<'_, '_> {
    /// As `step`; the loss is kept on the device.
    pub(super) fn step_on_device(&mut self, shared: &Shared) -> anyhow::Result<usize> {
        let (epoch, samples) = self.next_samples();
        let batch = self.task.train_batch(&samples, self.seed, epoch)?;
        let outputs = self.tables.tensors(&batch.bags, shared, Mode::Train)?;
        let (loss, embedded, gradients) = self.learn(&batch, outputs);
        let Reduction(weight) = self.options.hyper.loss;
        let factor = weight.unwrap_or(batch.samples as f32);
        let of = |outputs: &Tensor<2>| match outputs.grad(&gradients) {
            Some(mean) => mean * factor,
            None => outputs.clone().inner().zeros_like(),
        };
        let of_tables: Vec<_> = embedded.iter().map(of).collect();
        self.tables.backward_tensors(&of_tables, shared)?;
        let of_weights: Vec<_> = self.optimizer.weights.iter().map(|weight| weight.grad(&gradients)).collect();
        self.optimizer.step(&of_weights, 1.0);
        self.unread.push((loss.inner(), batch.samples));
        self.steps += 1;
        Ok(batch.samples)
    }

    /// Reads the losses of the last steps, with their numbers of samples: all if they are wanted now, else if there are many.
    pub(super) fn read_losses(&mut self, now: bool) -> Vec<(f64, usize)> {
        if self.unread.is_empty() || !now && self.unread.len() < UNREAD {
            return Vec::new();
        }
        let (losses, samples): (Vec<_>, Vec<_>) = self.unread.drain(..).unzip();
        let losses = crate::dense::values(Tensor::cat(losses, 0));
        losses.into_iter().map(f64::from).zip(samples).collect()
    }

    /// Median seconds of the tables' forward and backward alone. The batches are different parts of the test set, as far as it has as many samples,
    /// since the rows of a batch that comes twice are all in the cache. It changes the tables, so it comes last.
    pub(super) fn time_tables(&mut self, shared: &Shared) -> anyhow::Result<f64> {
        let test = self.task.about().test;
        let samples = self.options.hyper.batch.min(test).min(TESTED);
        let mut took = Vec::new();
        for at in (0..TIMED).map(|i| i * samples % (test - samples + 1)) {
            let batch = self.task.test_batch(at..at + samples)?;
            let start = Instant::now();
            let outputs = self.tables.tensors(&batch.bags, shared, Mode::Train)?;
            self.tables.backward_tensors(&outputs, shared)?;
            shared.device().sync()?;
            took.push(start.elapsed().as_secs_f64() * self.options.hyper.batch as f64 / samples as f64);
        }
        Ok(hotrow_report::units::median(took))
    }
}
