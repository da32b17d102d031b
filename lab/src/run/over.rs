//! Steps over ranks. A batch has as many parts as there are virtual shards. The dense part runs each part by itself, and sums over parts are
//! a binary tree, so the number of ranks changes no bit.

use super::model::Model;
use super::step::{shaped, summed};
use crate::batch::{Bags, Batch};
use crate::dense::{tensor, values};
use crate::ranks::Ranks;
use hotrow::{Error, Pooling};
use std::ops::Range;

impl Model<'_, '_> {
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
}
