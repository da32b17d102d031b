//! A model trained step by step at constant rates, by whoever looks on.

use crate::train::run::{Model, RunOptions, epoch, order};
use crate::train::setting::Choice;
use crate::train::task::Task;
use std::time::{Duration, Instant};

/// A run without an end, through epoch after epoch.
pub(crate) struct Course<'a> {
    model: Model<'a>,
    task: &'a dyn Task,
    options: &'a RunOptions,
    seed: u64,
    /// An epoch and its samples, shuffled.
    order: Option<(u32, Vec<u32>)>,
    /// Steps so far.
    pub(crate) steps: u64,
}

/// How long a step took: all of it, and forward and backward of the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) step: Duration,
    pub(crate) tables: Duration,
}

impl<'a> Course<'a> {
    /// `rate`: of the tables, in place of the options'.
    pub(crate) fn new(
        task: &'a dyn Task,
        choice: &Choice,
        seed: u64,
        options: &'a RunOptions,
        rate: f32,
    ) -> anyhow::Result<Self> {
        let mut model = Model::new(task, choice, seed, options)?;
        model.tables.set_learning_rate(rate)?;
        Ok(Self { model, task, options, seed, order: None, steps: 0 })
    }

    /// One step; the loss before it, which may not be finite.
    pub(crate) fn step(&mut self) -> anyhow::Result<(f64, Took)> {
        let (count, size) = (self.options.samples(self.task), self.options.batch);
        let (epoch, done) = epoch(self.steps, count.div_ceil(size));
        let samples = match self.order.take() {
            Some((of, samples)) if of == epoch => samples,
            _ => order(count, self.seed, epoch),
        };
        let (_, samples) = self.order.insert((epoch, samples));
        let start = Instant::now();
        let batch = self.task.train_batch(&samples[done * size..count.min((done + 1) * size)], self.seed, epoch);
        let before = self.model.in_tables;
        let loss = self.model.step(&batch)?;
        self.steps += 1;
        Ok((loss, Took { step: start.elapsed(), tables: self.model.in_tables - before }))
    }

    /// Mean log-loss of the first `samples` of the test set.
    pub(crate) fn test(&mut self, samples: usize) -> anyhow::Result<f64> {
        Ok(self.model.test_first(samples)?.loss)
    }

    /// Bytes of the tables that stay between steps, optimiser state included; and P1's and P4's formula, against FP32 weights.
    pub(crate) fn memory(&self) -> (u64, f64) {
        (self.model.tables.kept_bytes(), self.model.tables.factors().paper)
    }
}
