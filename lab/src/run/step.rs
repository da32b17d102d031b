//! A step: forward, the loss and its gradients, and the update. On the processor, over ranks, or wholly on a device.
//!
//! Over ranks a batch has as many parts as there are virtual shards. The dense part runs each part by itself, and sums over parts are a binary tree, so the
//! number of ranks changes no bit. On a device nothing is copied to the host in a step; losses are read later.

use super::model::{Model, TESTED};
use crate::batch::{Bags, Batch};
use crate::dense::{self, tensor, values};
use crate::device::Shared;
use crate::hyper::Reduction;
use crate::ranks::Ranks;
use crate::scaling;
use burn::tensor::{Gradients, Tensor};
use hotrow::{CpuScaler, Error, Mode, Pooling};
use hotrow_report::units::median;
use std::ops::Range;
use std::time::Instant;

/// Steps whose losses are read together.
const UNREAD: usize = 64;

/// Steps that time the tables alone.
const TIMED: usize = 20;

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

    /// As `step`, with this rank's parts of the next batch. The loss is that of the whole batch.
    pub(super) fn step_over(&mut self, ranks: Ranks<'_>) -> anyhow::Result<(f64, usize)> {
        let (epoch, samples) = self.next_samples();
        let (task, seed, about) = (self.task, self.seed, self.task.about());
        let part = |part: Range<usize>| task.train_batch(&samples[part], seed, epoch);
        let parts: Vec<Batch> = ranks.parts(samples.len()).map(part).collect::<anyhow::Result<_>>()?;
        let outputs = self.outputs(&parts)?;
        let weights = self.optimizer.weights.clone();
        let mut of_tables = vec![Vec::new(); about.tables.len()];
        let mut sums = Vec::with_capacity(parts.len());
        for (part, outputs) in parts.iter().zip(outputs) {
            // The gradients of the part's summed loss, weight after weight, then that loss.
            let mut sum = Vec::new();
            if part.samples == 0 {
                sum.resize(weights.iter().map(|weight| weight.shape().num_elements()).sum::<usize>() + 1, 0.0);
                sums.push(sum);
                continue;
            }
            let (loss, embedded, gradients) = self.learn(part, shaped(self.options.hyper.dim, outputs));
            let of_part = embedded.iter().map(|outputs| summed(outputs, &gradients, part.samples));
            of_tables.iter_mut().zip(of_part).for_each(|(all, own)| all.extend(own));
            for weight in &weights {
                sum.extend(summed(weight, &gradients, part.samples));
            }
            sum.push(values(loss)[0] * part.samples as f32);
            sums.push(sum);
        }
        let mut sum = ranks.sum(sums)?;
        let loss = f64::from(sum.pop().unwrap_or(f32::NAN)) / samples.len() as f64;
        let mut rest = &sum[..];
        let mut gradients = Vec::with_capacity(weights.len());
        for weight in &weights {
            let (values, after) = rest.split_at(weight.shape().num_elements());
            rest = after;
            let mean: Vec<f32> = values.iter().map(|value| value / samples.len() as f32).collect();
            gradients.push(Some(tensor(mean, weight.dims(), &weight.device().inner())));
        }
        self.reduce(&mut of_tables, samples.len());
        self.update(&of_tables, &gradients)?;
        self.steps += 1;
        Ok((loss, samples.len()))
    }

    /// Looks up the bags of several parts together, and returns the outputs of each part, table by table.
    fn outputs(&mut self, parts: &[Batch]) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        let specs = &self.task.about().tables;
        let joined = |table| Bags::joined(parts.iter().map(|part| &part.bags[table]));
        let bags: Vec<Bags> = (0..specs.len()).map(joined).collect();
        let outputs = self.tables.forward(&bags)?;
        let mut rests: Vec<&[f32]> = outputs.iter().map(Vec::as_slice).collect();
        let of = |part: &Batch| {
            let tables = specs.iter().zip(&part.bags).zip(&mut rests);
            tables
                .map(|((spec, bags), rest)| {
                    let rows = if spec.pooling == Pooling::None { bags.indices.len() } else { bags.offsets.len() - 1 };
                    let (own, after) = rest.split_at(rows * self.options.hyper.dim as usize);
                    *rest = after;
                    own.to_vec()
                })
                .collect()
        };
        Ok(parts.iter().map(of).collect())
    }

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
        let losses = values(Tensor::cat(losses, 0));
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
        Ok(median(took))
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
