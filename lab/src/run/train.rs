//! The steps of a run, one after another, with its tests and checkpoints.

use super::model::{Model, TESTED};
use super::outcome::Outcome;
use super::step::shaped;
use crate::checkpoints::{self, Beside, Keep, Unproved};
use crate::dense::values;
use crate::end::{End, Measure};
use crate::metrics::{Score, Scorer, rise};
use anyhow::ensure;
use hotrow::Mode;
use hotrow_report::units::median;
use std::time::{Duration, Instant};

impl Model<'_, '_> {
    /// Trains to the end of the run. Returns loss, curve, speed, the last test, and the last checkpoint, which the final test must prove;
    /// earlier checkpoints are proved by the next loss.
    pub(super) fn train(
        &mut self,
        keep: &Keep,
        watch: &dyn Fn(u64),
    ) -> anyhow::Result<(Outcome, Option<Score>, Option<Unproved>)> {
        let start = Instant::now();
        let (count, size, end) = (self.options.samples(self.task), self.options.hyper.batch, self.options.end);
        let each = count.div_ceil(size).max(1) as u64;
        let (mut trained, mut last_test, mut unproved) = (Outcome::default(), None, None);
        // Samples and times of the steps of this process, without those before a checkpoint.
        let (mut seen, mut took, mut waited, mut losses) = (0, [Vec::new(), Vec::new()], Duration::ZERO, Vec::new());
        let mut last = self.options.steps(self.task);
        if keep.resume
            && let Some(newest) = checkpoints::newest(&keep.folder, self.ranks)?
        {
            trained.train_loss = self.resume(&newest)?;
            watch(self.steps);
        }
        loop {
            // The share of the run that is done, 0 to 1.
            let share = match end {
                End::Seconds(_) if self.steps == 0 => 0.0,
                End::Seconds(seconds) => start.elapsed().as_secs_f64() / seconds,
                _ => self.steps as f64 / last as f64,
            };
            if share >= 1.0 {
                break;
            }
            if self.steps.is_multiple_of(each) {
                trained.train_loss = 0.0;
            }
            if self.options.hyper.decay {
                let left = 1.0 - share as f32;
                let lr = left * self.options.hyper.lr;
                self.tables.set_learning_rate(lr)?;
                self.optimizer.lr = left * self.options.hyper.dense_lr;
            }
            let (begun, before) = (Instant::now(), self.in_tables);
            if self.options.hyper.hot_batches {
                self.order_by_heat()?;
            }
            let (loss, samples) = self.step()?;
            let tests =
                matches!(end, End::Goal { every, .. } if self.steps.is_multiple_of(every) || self.steps == last);
            let keeps = keep.every.is_some_and(|every| self.steps.is_multiple_of(every));
            let read = match loss {
                Some(loss) => vec![(loss, samples)],
                None => {
                    let due = tests || keeps || self.steps == last || self.steps.is_multiple_of(each);
                    self.read_losses(due || matches!(end, End::Seconds(_)))
                }
            };
            // On a device the steps whose losses are read are timed together.
            if !read.is_empty() {
                took[0].push((waited + begun.elapsed()).as_secs_f64() / read.len() as f64);
                waited = Duration::ZERO;
            } else {
                waited += begun.elapsed();
            }
            took[1].push((self.in_tables - before).as_secs_f64());
            seen += samples;
            watch(1);
            let first = self.steps + 1 - read.len() as u64;
            for (step, (loss, samples)) in (first..).zip(read) {
                ensure!(loss.is_finite(), "step {step}: wanted a finite loss, found {loss}; {}", remedy(keep)?);
                unproved.take().map_or(Ok(()), Unproved::prove)?;
                losses.push(loss);
                trained.train_loss += loss * samples as f64 / count as f64;
            }
            if let End::Goal { measure, best, tested, least, .. } = end
                && tests
            {
                let score = self.test(tested)?;
                ensure!(
                    measure == Measure::Loss || score.auc.is_some(),
                    "goal: wanted an AUC, which takes test labels of two classes, found other labels; take goal=loss"
                );
                let found = measure.of(&score);
                trained.curve.push((self.steps, found));
                last_test = Some(score);
                if measure.is_reached(found, best) {
                    last = last.min(least.max(self.steps));
                }
            }
            if keeps {
                let dense = self.beside(&self.all_lost()?);
                let beside = Beside { steps: self.steps, dense, loss: trained.train_loss };
                let (identity, tables) = (&self.identity, &mut self.tables);
                unproved = Unproved::write(&keep.folder, identity, tables, &beside, self.ranks)?;
            }
        }
        let tests: Vec<f64> = trained.curve.iter().map(|&(_, found)| found).collect();
        // An AUC is no loss. Tests scatter less than the batches of steps.
        let of_tests = matches!(end, End::Goal { measure: Measure::Loss, .. })
            .then(|| rise(&tests, tests.len() as u64, 2.0))
            .flatten()
            .map(|means| ("test loss".to_owned(), means));
        let of_steps = || rise(&losses, self.steps, 3.3).map(|means| ("training loss".to_owned(), means));
        trained.rise = of_tests.or_else(of_steps);
        let begun = (self.steps % each) as usize;
        if begun > 0 {
            // Corrects the mean of an epoch that was cut short.
            trained.train_loss *= count as f64 / (begun * size) as f64;
        }
        if seen > 0 {
            trained.samples_per_second = seen as f64 / start.elapsed().as_secs_f64();
            [trained.step_seconds, trained.tables_seconds] = took.map(median);
        }
        Ok((trained, last_test, unproved))
    }

    /// Tests with the first `samples` of the test set and frozen tables. Over ranks each tests all of them.
    pub(super) fn test(&mut self, samples: usize) -> anyhow::Result<Score> {
        let about = self.task.about();
        let mut scorer = Scorer::new(about.target);
        // Without autodiff, which would keep each batch.
        let weights: Vec<_> = self.optimizer.weights.iter().map(|weight| weight.clone().inner()).collect();
        let all = about.test.min(samples);
        self.inferred = (all, Duration::ZERO);
        for first in (0..all).step_by(TESTED) {
            let range = first..all.min(first + TESTED);
            let batch = self.task.test_batch(range)?;
            let start = Instant::now();
            let embedded = match &self.options.device.shared {
                Some(shared) => self.tables.tensors(&batch.bags, shared, Mode::Frozen)?,
                None => shaped(self.options.hyper.dim, self.tables.forward_frozen(&batch.bags)?),
            };
            let logits = self.dense.logits(&weights, &embedded, &batch);
            let logits = values(logits);
            self.inferred.1 += start.elapsed();
            scorer.add(&logits, &batch);
        }
        Ok(scorer.score())
    }
}

/// The remedy for a loss that is not finite.
pub(super) fn remedy(keep: &Keep) -> anyhow::Result<String> {
    let newest = checkpoints::newest(&keep.folder, None)?;
    let good = newest.map_or_else(|| "there is none".to_owned(), |(_, place)| place.display().to_string());
    Ok(format!("the last good checkpoint: {good}; train anew with a lower lr or dense-lr"))
}
