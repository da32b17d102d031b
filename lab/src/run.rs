//! A run: a task, a setup and a seed, trained and tested.
//!
//! All runs with one seed share sample order, random draws and initial weights, so that settings can be compared pairwise.

mod over;

use crate::checkpoints::{self, Beside, Identity, Keep, Unproved};
use crate::dense::{self, AdaGrad};
use crate::metrics::{Score, Scorer};
use crate::ranks::Ranks;
use crate::scaling;
use crate::setting::Setting;
use crate::tables::{Device, Tables};
use crate::task::{About, Batch, Dense, Hyper, TableSpec, Task};
use anyhow::ensure;
use candle_core::{Tensor, Var, backprop::GradStore};
use hotrow::{CpuScaler, ScalerState};
use hotrow_cli::report::units::median;
use rand::{SeedableRng as _, seq::SliceRandom as _};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Samples of a batch when testing.
const TESTED: usize = 1024;

/// The options of a run, apart from the settings of its tables.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub(crate) hyper: Hyper,
    pub(crate) end: End,
    /// The number of training samples, if it is limited.
    pub(crate) limit: Option<usize>,
    pub(crate) device: Device,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Epochs(u32),
    Steps(u64),
    Seconds(f64),
    /// When a test is as good as `best`, after at least `least` and at most `most` steps. There is a test every `every` steps, with the first
    /// `tested` samples of the test set.
    Goal {
        measure: Measure,
        best: f64,
        every: u64,
        tested: usize,
        least: u64,
        most: u64,
    },
}

/// What a goal measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Measure {
    Loss,
    Auc,
}

impl Measure {
    fn of(self, score: &Score) -> f64 {
        match self {
            Self::Loss => score.loss,
            Self::Auc => score.auc.unwrap_or(f64::NAN),
        }
    }

    pub(crate) fn is_reached(self, found: f64, best: f64) -> bool {
        match self {
            Self::Loss => found <= best,
            Self::Auc => found >= best,
        }
    }

    /// The best of the tests of a run.
    pub(crate) fn best(self, curve: &[(u64, f64)]) -> Option<f64> {
        let found = curve.iter().map(|&(_, found)| found);
        found.reduce(|best, found| if self.is_reached(found, best) { found } else { best })
    }
}

impl RunOptions {
    /// The number of samples of an epoch.
    pub(crate) fn samples(&self, task: &dyn Task) -> usize {
        self.limit.unwrap_or(usize::MAX).min(task.about().train)
    }

    /// The number of steps of a whole run, or the most; by the clock those of an epoch.
    pub(crate) fn steps(&self, task: &dyn Task) -> u64 {
        let each = self.samples(task).div_ceil(self.hyper.batch) as u64;
        match self.end {
            End::Epochs(epochs) => each * u64::from(epochs),
            End::Steps(steps) => steps,
            End::Seconds(_) => each,
            End::Goal { most, .. } => most,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Mean log-loss of the test set, in nats a sample.
    pub(crate) loss: f64,
    pub(crate) accuracy: Option<f64>,
    pub(crate) auc: Option<f64>,
    /// Hit rate in training over the tables with a cache.
    pub(crate) hit_rate: Option<f64>,
    /// Memory against FP32 weights, by the formula of Yang 2020's appendix A.
    pub(crate) memory_paper: f64,
    /// Every byte that stays between steps, optimiser state included, against FP32 weights.
    pub(crate) memory_true: f64,
    /// Bytes to and from the tables' memory in training.
    pub(crate) bus_bytes: u64,
    /// Updates that the tables skipped because a value was not finite.
    pub(crate) skipped_rows: u64,
    /// Steps that overflowed under a scaled loss and were skipped.
    pub(crate) overflows: Option<u64>,
    /// Samples a second in training.
    pub(crate) samples_per_second: f64,
    pub(crate) steps: u64,
    /// Seconds of training and evaluation.
    pub(crate) seconds: f64,
    /// Mean loss of the last epoch's batches.
    pub(crate) train_loss: f64,
    /// Bytes of the tables that stay between steps.
    pub(crate) kept_bytes: u64,
    /// Median seconds of a training step, and of the tables' forward and backward in it.
    pub(crate) step_seconds: f64,
    pub(crate) tables_seconds: f64,
    /// Steps and scores of the tests during training.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<(u64, f64)>,
}

/// Trains and tests, over ranks if there are any. `watch` is called after every step. The bits of the outcome do not depend on other load.
pub(crate) fn run(
    task: &dyn Task,
    choice: &[Setting],
    seed: u64,
    options: &RunOptions,
    keep: &Keep,
    watch: &dyn Fn(u64),
    ranks: Option<Ranks<'_>>,
) -> anyhow::Result<Outcome> {
    let About { name, train, test, .. } = *task.about();
    ensure!(
        train > 0 && test > 0,
        "task {name}: wanted samples to train and to test, found {train} and {test}; get the data again"
    );
    let start = Instant::now();
    let mut model = Model::new(task, choice, seed, options, ranks)?;
    let (trained, tested, unproved) = model.train(keep, watch)?;
    let score = tested.map_or_else(|| model.test(usize::MAX), Ok)?;
    ensure!(score.loss.is_finite(), "test: wanted a finite loss, found {}; {}", score.loss, remedy(keep)?);
    unproved.map_or(Ok(()), Unproved::prove)?;
    let overflows = model.scaler.as_ref().map(|scaler| u64::from(scaler.state().overflows));
    ensure!(
        overflows.is_none_or(|overflows| overflows < model.steps),
        "loss-scale {}: wanted a step that does not overflow, found none in {}; take a smaller scale",
        String::from(options.hyper.loss_scale),
        model.steps
    );
    let (counters, memory) = (model.tables.counters()?, model.tables.memory()?);
    Ok(Outcome {
        loss: score.loss,
        accuracy: score.accuracy,
        auc: score.auc,
        hit_rate: model.tables.hit_rate()?,
        memory_paper: memory.paper,
        memory_true: memory.kept,
        bus_bytes: counters.bus_bytes(),
        skipped_rows: counters.skipped_rows,
        overflows,
        steps: model.steps,
        seconds: start.elapsed().as_secs_f64(),
        kept_bytes: memory.bytes,
        ..trained
    })
}

struct Model<'t, 'r> {
    task: &'t dyn Task,
    identity: Identity,
    options: &'t RunOptions,
    tables: Tables<'r>,
    ranks: Option<Ranks<'r>>,
    dense: Box<dyn Dense>,
    optimizer: AdaGrad,
    scaler: Option<CpuScaler>,
    /// The current epoch, and the order of its samples.
    order: Option<(u32, Vec<u32>)>,
    steps: u64,
    /// Time of the tables' forward and backward.
    in_tables: Duration,
}

impl<'t, 'r> Model<'t, 'r> {
    fn new(
        task: &'t dyn Task,
        choice: &[Setting],
        seed: u64,
        options: &'t RunOptions,
        ranks: Option<Ranks<'r>>,
    ) -> anyhow::Result<Self> {
        let about = task.about();
        let tables = Tables::new(&about.tables, choice, &options.hyper, seed, &options.device, ranks)?;
        let dense = task.dense(seed)?;
        let optimizer = AdaGrad::new(&dense.vars(), options.hyper.dense_lr)?;
        let identity = Identity {
            task: about.name.to_owned(),
            data: about.source.clone(),
            samples: options.samples(task),
            batch: options.hyper.batch,
            seed,
            settings: choice.to_vec(),
            loss_scale: options.hyper.loss_scale,
            over: ranks.map(|ranks| ranks.label()),
        };
        let scaler = options.hyper.loss_scale.0.map(CpuScaler::new).transpose()?;
        let (order, steps, in_tables) = (None, 0, Duration::ZERO);
        Ok(Self { task, identity, options, tables, ranks, dense, optimizer, scaler, order, steps, in_tables })
    }

    /// Trains to the end of the run. Returns loss, curve, speed, the last test, and the last checkpoint, which the final test must prove;
    /// earlier checkpoints are proved by the next loss.
    fn train(
        &mut self,
        keep: &Keep,
        watch: &dyn Fn(u64),
    ) -> anyhow::Result<(Outcome, Option<Score>, Option<Unproved>)> {
        let start = Instant::now();
        let (count, size, end) = (self.identity.samples, self.options.hyper.batch, self.options.end);
        let each = count.div_ceil(size).max(1) as u64;
        let (mut trained, mut last_test, mut unproved) = (Outcome::default(), None, None);
        // Samples and times of the steps of this process, without those before a checkpoint.
        let (mut seen, mut took) = (0, [Vec::new(), Vec::new()]);
        let mut last = self.options.steps(self.task);
        if keep.resume
            && let Some(newest) = checkpoints::newest(&keep.folder, self.ranks)?
        {
            trained.train_loss = self.resume(&newest, last)?;
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
            let (loss, samples) = self.step()?;
            took[0].push(begun.elapsed().as_secs_f64());
            took[1].push((self.in_tables - before).as_secs_f64());
            ensure!(loss.is_finite(), "step {}: wanted a finite loss, found {loss}; {}", self.steps, remedy(keep)?);
            unproved.take().map_or(Ok(()), Unproved::prove)?;
            trained.train_loss += loss * samples as f64 / count as f64;
            seen += samples;
            watch(1);
            if let End::Goal { measure, best, every, tested, least, .. } = end
                && (self.steps.is_multiple_of(every) || self.steps == last)
            {
                let score = self.test(tested)?;
                let found = measure.of(&score);
                trained.curve.push((self.steps, found));
                last_test = Some(score);
                if measure.is_reached(found, best) {
                    last = last.min(least.max(self.steps));
                }
            }
            if keep.every.is_some_and(|every| self.steps.is_multiple_of(every)) {
                let beside = Beside { steps: self.steps, dense: self.beside()?, loss: trained.train_loss };
                let (identity, tables) = (&self.identity, &mut self.tables);
                unproved = Unproved::write(&keep.folder, identity, tables, &beside, self.ranks)?;
            }
        }
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

    /// Loads a checkpoint and returns the loss of its epoch so far.
    fn resume(&mut self, (steps, place): &(u64, PathBuf), most: u64) -> anyhow::Result<f64> {
        let like = self.beside()?;
        let Beside { steps, dense, loss } = checkpoints::load(place, *steps, &self.identity, &mut self.tables, &like)?;
        ensure!(
            steps <= most,
            "{}: wanted a checkpoint of at most {most} steps, found one of {steps}; give epochs or steps of at least what it was trained with",
            place.display()
        );
        self.restore(&dense)?;
        self.steps = steps;
        Ok(loss)
    }

    /// Weights of the dense part, their state, then the scaler's state.
    fn beside(&self) -> candle_core::Result<Vec<Tensor>> {
        let scaler =
            self.scaler.as_ref().map(|scaler| Tensor::new(&scaler.state().to_words(), &candle_core::Device::Cpu));
        let weights = self.dense.vars().into_iter().map(|var| Ok(var.as_detached_tensor()));
        weights.chain(self.optimizer.squares.iter().cloned().map(Ok)).chain(scaler).collect()
    }

    fn restore(&mut self, beside: &[Tensor]) -> anyhow::Result<()> {
        let vars = self.dense.vars();
        let (weights, rest) = beside.split_at(vars.len());
        let (squares, scaler) = rest.split_at(vars.len());
        vars.into_iter().zip(weights).try_for_each(|(var, weights)| var.set(weights))?;
        self.optimizer.squares = squares.to_vec();
        if let (Some(now), [words]) = (&mut self.scaler, scaler) {
            let config = *now.config();
            *now = CpuScaler::with_state(config, ScalerState::from_words(&words.to_vec1()?, &config)?)?;
        }
        Ok(())
    }

    /// Runs forward, backward and update with the next batch. Returns the loss before the update, which may not be finite, and the number
    /// of samples.
    fn step(&mut self) -> anyhow::Result<(f64, usize)> {
        if let Some(ranks) = self.ranks {
            return self.step_over(ranks);
        }
        let batch = self.next_batch();
        let about = self.task.about();
        let start = Instant::now();
        let outputs = self.tables.forward(&batch.bags)?;
        self.in_tables += start.elapsed();
        let embedded: Vec<Var> = shaped(&about.tables, outputs, Var::from_vec)?;
        let tensors: Vec<Tensor> = embedded.iter().map(|var| var.as_tensor().clone()).collect();
        let logits = self.dense.logits(&tensors, &batch)?;
        let loss = dense::loss(&logits, &batch, about.target)?;
        let gradients = self.gradients(&loss)?;
        let value = f64::from(loss.to_scalar::<f32>()?);
        let of_tables = embedded.iter().map(|var| summed(var, &gradients, batch.samples));
        let of_vars = dense::of_vars(&self.dense.vars(), &gradients);
        self.update(&of_tables.collect::<candle_core::Result<Vec<_>>>()?, &of_vars)?;
        self.steps += 1;
        Ok((value, batch.samples))
    }

    /// The next batch, through epoch after epoch.
    fn next_batch(&mut self) -> Batch {
        let (epoch, samples) = self.next_samples();
        self.task.train_batch(&samples, self.identity.seed, epoch)
    }

    /// The epoch of the next batch, and the places of its samples.
    fn next_samples(&mut self) -> (u32, Vec<u32>) {
        let (seed, count, size) = (self.identity.seed, self.identity.samples, self.options.hyper.batch);
        let each = count.div_ceil(size).max(1) as u64;
        let (epoch, done) = ((self.steps / each) as u32, (self.steps % each) as usize);
        let samples = match self.order.take() {
            Some((of, samples)) if of == epoch => samples,
            _ => order(count, seed, epoch),
        };
        let (_, samples) = self.order.insert((epoch, samples));
        (epoch, samples[done * size..count.min((done + 1) * size)].to_vec())
    }

    /// The gradients of a loss, scaled if losses are.
    fn gradients(&self, loss: &Tensor) -> candle_core::Result<GradStore> {
        match &self.scaler {
            None => loss.backward(),
            Some(scaler) => (loss * f64::from(scaler.scale()))?.backward(),
        }
    }

    /// Updates tables and dense part, unless a scaled loss overflowed. Each rank has the gradients of its parts of the tables' outputs, and those
    /// of the whole dense part.
    fn update(&mut self, of_tables: &[Vec<f32>], of_vars: &[Option<Tensor>]) -> anyhow::Result<()> {
        let vars = self.dense.vars();
        let Some(scaler) = &mut self.scaler else {
            let start = Instant::now();
            self.tables.backward(of_tables)?;
            self.in_tables += start.elapsed();
            return Ok(self.optimizer.step(&vars, of_vars, 1.0)?);
        };
        let halves: Vec<_> = of_tables.iter().map(|gradients| scaling::halves(gradients)).collect();
        let state = scaling::decide(scaler, &halves, of_vars, self.ranks)?;
        let start = Instant::now();
        self.tables.backward_scaled(&halves, &state)?;
        self.in_tables += start.elapsed();
        if !state.overflowed() {
            self.optimizer.step(&vars, of_vars, state.inverse)?;
        }
        Ok(())
    }

    /// Tests with the first `samples` of the test set and frozen tables.
    fn test(&mut self, samples: usize) -> anyhow::Result<Score> {
        let about = self.task.about();
        let mut scorer = Scorer::new(about.target);
        let all = about.test.min(samples);
        for first in (0..all).step_by(TESTED) {
            let range = first..all.min(first + TESTED);
            let batch = self.task.test_batch(range.clone());
            if let Some(ranks) = self.ranks {
                scorer.add(&self.logits_over(ranks, range, &batch)?, &batch);
                continue;
            }
            let outputs = self.tables.forward_frozen(&batch.bags)?;
            let embedded = shaped(&about.tables, outputs, Tensor::from_vec)?;
            let logits = self.dense.logits(&embedded, &batch)?;
            scorer.add(&logits.flatten_all()?.to_vec1::<f32>()?, &batch);
        }
        Ok(scorer.score())
    }
}

/// The remedy for a loss that is not finite.
fn remedy(keep: &Keep) -> anyhow::Result<String> {
    let lower = "a lower lr or dense-lr";
    Ok(match checkpoints::newest(&keep.folder, None)? {
        Some((steps, place)) => {
            format!(
                "the last good checkpoint is {}, after step {steps}: go on from it with --resume and {lower}",
                place.display()
            )
        }
        None => format!("there is no checkpoint (--out and --checkpoint-every keep them): train again with {lower}"),
    })
}

/// The shuffled samples of an epoch.
pub(crate) fn order(samples: usize, seed: u64, epoch: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..samples as u32).collect();
    order.shuffle(&mut drawing(seed, epoch, 0));
    order
}

/// The places of the training samples that a rank needs, ascending: those of its parts of all batches, in all epochs and for all seeds, and the first
/// ones, of which there may be more than `samples`.
pub(crate) fn needed(
    ranks: Ranks<'_>,
    samples: usize,
    (batch, epochs): (usize, u32),
    seeds: &[u64],
    first: usize,
) -> Vec<u32> {
    let mut needed: Vec<bool> = (0..samples.max(first)).map(|place| place < first).collect();
    for (&seed, epoch) in seeds.iter().flat_map(|seed| (0..epochs).map(move |epoch| (seed, epoch))) {
        if needed.iter().all(|&needed| needed) {
            break;
        }
        for batch in order(samples, seed, epoch).chunks(batch) {
            ranks.parts(batch.len()).for_each(|part| batch[part].iter().for_each(|&at| needed[at as usize] = true));
        }
    }
    (0..needed.len() as u32).filter(|&place| needed[place as usize]).collect()
}

/// A random generator for one purpose of an epoch.
pub(crate) fn drawing(seed: u64, epoch: u32, purpose: u64) -> Pcg64 {
    // The odd factor scatters seeds, so that neighbouring seeds or epochs begin differently.
    Pcg64::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (u64::from(epoch) << 32 | purpose))
}

/// The tables' outputs as candle's tensors: `[bags, dim]`, or `[indices, dim]` without pooling.
fn shaped<T>(
    specs: &[TableSpec],
    outputs: Vec<Vec<f32>>,
    make: impl Fn(Vec<f32>, (usize, usize), &candle_core::Device) -> candle_core::Result<T>,
) -> candle_core::Result<Vec<T>> {
    let of = |(spec, values): (&TableSpec, Vec<f32>)| {
        let dim = spec.dim as usize;
        let rows = values.len() / dim;
        make(values, (rows, dim), &candle_core::Device::Cpu)
    };
    specs.iter().zip(outputs).map(of).collect()
}

/// The gradient of the batch's summed loss with respect to a table's outputs. AdaGrad is independent of the factor between sum and mean,
/// but squares of mean gradients would be lost in a state kept in FP16.
fn summed(outputs: &Var, gradients: &GradStore, samples: usize) -> candle_core::Result<Vec<f32>> {
    match gradients.get(outputs) {
        Some(mean) => (mean.flatten_all()? * samples as f64)?.to_vec1(),
        None => Ok(vec![0.0; outputs.elem_count()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{Fresh, Mlp};
    use crate::scaling::Scaling;
    use crate::task::{Bags, Target};
    use hotrow::dist::{Comm, Threads, WireForm, WireOptions};
    use hotrow::hash::fmix32;
    use hotrow::{Init, LossScale, Policy, Pooling, Precision, Rounding};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::path::Path;
    use std::sync::Mutex;

    /// Bags of five words. Every third word tells the class; there are two classes.
    struct Tiny {
        about: About,
    }

    const CLASSES: usize = 2;
    const HYPER: Hyper = Hyper { decay: true, ..Hyper::adagrad(32, 0.1) };

    fn tiny() -> Tiny {
        let init = Init::Uniform { low: -0.1, high: 0.1 };
        let table = TableSpec { name: "words".into(), rows: 2000, dim: 8, pooling: Pooling::Mean, init, stream: 0 };
        Tiny {
            about: About {
                name: "tiny",
                source: "made up".into(),
                tables: vec![table],
                target: Target::Classes(CLASSES),
                train: 610,
                test: 200,
                bounds: None,
            },
        }
    }

    impl Tiny {
        fn batch(samples: impl Iterator<Item = u32>) -> Batch {
            let mut batch = Batch { bags: vec![Bags::new()], ..Batch::default() };
            for sample in samples {
                let label = fmix32(sample + 1) % CLASSES as u32;
                let word = |k: u32| {
                    let word = (fmix32(sample * 5 + k) % 50) * 2;
                    word + if k.is_multiple_of(3) { label } else { fmix32(word) % 2 }
                };
                batch.bags[0].push((0..5).map(word));
                batch.labels.push(label);
                batch.samples += 1;
            }
            batch
        }
    }

    impl Task for Tiny {
        fn about(&self) -> &About {
            &self.about
        }
        fn train_batch(&self, samples: &[u32], _: u64, _: u32) -> Batch {
            Self::batch(samples.iter().copied())
        }
        fn test_batch(&self, samples: Range<usize>) -> Batch {
            Self::batch(samples.map(|at| at as u32 + 10_000))
        }
        fn dense(&self, seed: u64) -> candle_core::Result<Box<dyn Dense>> {
            Ok(Box::new(Mlp::new(&[8, CLASSES], &mut Fresh::new(seed))?))
        }
    }

    /// INT4 codes, a cache, and random bits.
    const MIXED: Setting = Setting {
        precision: Precision::Int4,
        rounding: Rounding::Stochastic,
        policy: Policy::Lfu,
        cache_percent: 5.0,
        ..Setting::FP32
    };

    fn options() -> RunOptions {
        RunOptions { hyper: Hyper { lr: 0.2, ..HYPER }, end: End::Epochs(2), limit: None, device: Device::Cpu }
    }

    fn with(change: impl Fn(&mut RunOptions)) -> RunOptions {
        let mut options = options();
        change(&mut options);
        options
    }

    /// An array of INT8 codes, eight times smaller than the table.
    const ARRAY: Setting = Setting {
        precision: Precision::Int8,
        rounding: Rounding::Stochastic,
        compression: Some(8.0),
        chunk: 4,
        ..Setting::FP32
    };

    fn trained(
        task: &Tiny,
        setting: Setting,
        seed: u64,
        options: &RunOptions,
        watch: &(dyn Fn(u64) + Sync),
    ) -> anyhow::Result<Outcome> {
        run(task, &[setting], seed, options, &Keep::default(), watch, None)
    }

    /// An outcome without the figures of the clock.
    fn timeless(outcome: anyhow::Result<Outcome>) -> Outcome {
        Outcome { seconds: 0.0, samples_per_second: 0.0, step_seconds: 0.0, tables_seconds: 0.0, ..outcome.unwrap() }
    }

    #[test]
    fn a_run_by_the_clock_stops_in_time() {
        let by = |seconds| {
            let by_clock = RunOptions { end: End::Seconds(seconds), ..options() };
            trained(&tiny(), Setting::FP32, 1, &by_clock, &|_| {}).unwrap()
        };
        let short = by(1e-9);
        assert_eq!(short.steps, 1, "the first step is always taken");
        // A machine that stands still for the whole time gets more of it. How much is learned depends on its speed.
        let long = [0.1, 1.0, 10.0].into_iter().map(|seconds| (seconds, by(seconds))).find(|(_, run)| run.steps > 1);
        let (seconds, long) = long.expect("a second step within ten seconds");
        assert!(long.seconds >= seconds && long.train_loss != short.train_loss, "{long:?}");
        // The mean of the samples that were seen; over a whole epoch it would be 1/20 of it.
        assert!(short.train_loss > 0.5 && short.train_loss < 1.0, "{short:?}");
    }

    #[test]
    fn it_learns_and_a_seed_is_a_run() {
        let one = |setting, seed| timeless(trained(&tiny(), setting, seed, &options(), &|_| {}));
        let (plain, mixed) = (one(Setting::FP32, 1), one(MIXED, 1));
        assert_eq!((plain.steps, mixed.steps), (40, 40));
        assert!(plain.loss < 0.9 * 2f64.ln() && plain.accuracy.unwrap() > 0.65, "{plain:?}");
        assert_eq!(mixed, one(MIXED, 1), "the same bits");
        assert_ne!(mixed.loss, one(MIXED, 2).loss);
        assert_ne!(mixed.loss, plain.loss);
        assert!(mixed.hit_rate.unwrap() > 0.0 && plain.hit_rate.is_none());
        let untrained = trained(
            &tiny(),
            Setting::FP32,
            1,
            &RunOptions { limit: Some(1), ..with(|options| options.end = End::Epochs(1)) },
            &|_| {},
        );
        assert!(untrained.unwrap().loss > 0.9 * 2f64.ln());
    }

    /// Trains over ranks, and returns what each of them has found, without times.
    fn over(ranks: u32, wire: (u32, WireOptions), setting: Setting, seed: u64) -> Vec<Outcome> {
        let options = with(|options| options.hyper.batch = 33);
        try_over(ranks, wire, &[setting], seed, &options, &Keep::default()).into_iter().map(Result::unwrap).collect()
    }

    fn try_over(
        ranks: u32,
        (shards, wire): (u32, WireOptions),
        choice: &[Setting],
        seed: u64,
        options: &RunOptions,
        keep: &Keep,
    ) -> Vec<Result<Outcome, String>> {
        let seen = Mutex::new(BTreeMap::new());
        // If a rank ends with an error while others wait, the job has that error, too.
        let _seen = Threads::run(ranks, |comm: &mut Threads| {
            let (task, rank) = (tiny(), comm.rank());
            let comm = RefCell::new(comm as &mut dyn Comm);
            let ranks = Ranks::new(&comm, shards, wire);
            let found = run(&task, choice, seed, options, keep, &|_| {}, Some(ranks));
            let found = found.map(|found| timeless(Ok(found))).map_err(|error| format!("{error:#}"));
            seen.lock().unwrap().insert(rank, found);
            Ok(())
        });
        seen.into_inner().unwrap().into_values().collect()
    }

    #[test]
    fn ranks_change_no_bit() {
        let cached = Setting { policy: Policy::Lfu, ..MIXED };
        let exact = WireOptions::default();
        let lossy = WireOptions { rows: WireForm::Fp16, gradients: WireForm::Int8, summed: true };
        let mut of_wires = Vec::new();
        let [plain, mixed] = [Setting::FP32, MIXED];
        for (setting, shards, wire) in
            [(plain, 4, exact), (cached, 4, exact), (mixed, 8, exact), (mixed, 8, lossy), (ARRAY, 4, exact)]
        {
            let alone = over(1, (shards, wire), setting, 3).remove(0);
            of_wires.push(alone.train_loss);
            assert!(alone.loss.is_finite() && alone.train_loss.is_finite());
            for ranks in [2, 4] {
                for found in over(ranks, (shards, wire), setting, 3) {
                    assert!(found == alone, "{ranks} ranks: {found:?}, not {alone:?}");
                }
            }
            // It learns as without ranks, but for roundings; another number of shards rounds otherwise.
            let (task, options) = (tiny(), with(|options| options.hyper.batch = 33));
            let plain = trained(&task, setting, 3, &options, &|_| {}).unwrap();
            assert!((plain.loss - alone.loss).abs() < 0.02, "{} without ranks, {} with them", plain.loss, alone.loss);
            assert_eq!(plain.steps, alone.steps);
            assert!(over(1, (2, wire), setting, 3).remove(0).train_loss != alone.train_loss);
        }
        assert!(of_wires[2] != of_wires[3], "a lossy wire has other bits");
    }

    #[test]
    fn each_rank_needs_its_part_of_the_samples() {
        let of = |ranks, epochs, first| {
            Threads::run(ranks, |comm: &mut Threads| {
                let comm = RefCell::new(comm as &mut dyn Comm);
                let ranks = Ranks::new(&comm, 4, WireOptions::default());
                Ok(needed(ranks, 1000, (32, epochs), &[3], first))
            })
            .unwrap()
        };
        let everything: Vec<u32> = (0..1000).collect();
        assert!(of(1, 1, 0)[0] == everything);
        let [parts, longer, first] = [of(4, 1, 0), of(4, 2, 0), of(4, 1, 100)];
        let mut together = parts.concat();
        together.sort_unstable();
        assert_eq!(together, everything, "one epoch: each sample on one rank");
        for ((part, longer), first) in parts.iter().zip(&longer).zip(&first) {
            assert!(part.is_sorted() && part.len() == 250, "{}", part.len());
            assert!((400..475).contains(&longer.len()) && part.iter().all(|place| longer.contains(place)));
            assert!((0..100).all(|place| first.contains(&place)) && first.len() < part.len() + 100);
        }
        // More first ones than samples to train on.
        for more in of(4, 1, 1200) {
            assert!(more == Vec::from_iter(0..1200));
        }
    }

    #[test]
    fn a_scaled_loss_takes_one_decision_on_all_ranks() {
        // Scales that rise until a step overflows.
        let backoff = LossScale::Backoff { min: 1.0, max: 2f32.powi(24), factor: 2.0, window: 3 };
        let mut seen = Vec::new();
        // The gradients are FP16 already.
        for wire in [WireOptions::default(), WireOptions { gradients: WireForm::Int8, ..WireOptions::default() }] {
            for scale in [LossScale::LOG_NORMAL, backoff] {
                let options = with(|options| {
                    (options.hyper.batch, options.end) = (33, End::Epochs(3));
                    options.hyper.loss_scale = Scaling(Some(scale));
                });
                let over = |ranks| -> Vec<Outcome> {
                    let found = try_over(ranks, (4, wire), &[MIXED], 3, &options, &Keep::default());
                    found.into_iter().map(Result::unwrap).collect()
                };
                let alone = over(1).remove(0);
                for ranks in [2, 4] {
                    assert!(over(ranks).iter().all(|found| *found == alone), "{ranks} ranks, {scale:?}");
                }
                let plain = trained(&tiny(), MIXED, 3, &options, &|_| {}).unwrap();
                let (lost, overflows) = (alone.overflows.unwrap(), plain.overflows.unwrap());
                assert!(lost.abs_diff(overflows) <= 1, "{lost} without ranks, {overflows} with them");
                assert!((plain.loss - alone.loss).abs() < 0.02, "{} and {}", plain.loss, alone.loss);
                seen.push((lost, alone.train_loss));
            }
        }
        assert!(seen[0].0 == 0 && seen[1].0 > 5, "{seen:?}");
        assert!(seen.iter().enumerate().all(|(at, one)| !seen[..at].contains(one)), "{seen:?}");
    }

    /// The files of a run's newest checkpoint, by name.
    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let (_, newest) = checkpoints::newest(folder, None).unwrap().unwrap();
        let mut files = BTreeMap::new();
        let mut folders = vec![newest.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.insert(path.strip_prefix(&newest).unwrap().to_owned(), std::fs::read(&path).unwrap());
                }
            }
        }
        files
    }

    #[test]
    fn a_run_resumed_on_other_ranks_comes_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let (wire, steady) = ((4, WireOptions::default()), |epochs| {
            with(|options| {
                (options.hyper.decay, options.hyper.batch, options.end) = (false, 33, End::Epochs(epochs));
                options.hyper.loss_scale = Scaling(Some(LossScale::BACKOFF));
            })
        });
        for (setting, count) in [(MIXED.into(), 2 + 1 + 4), (ARRAY, 2 + 1)] {
            let keep = |name: &str, resume| Keep {
                folder: folder.path().join(format!("{name}-{count}")),
                every: Some(7),
                resume,
            };
            let train = |ranks, epochs, keep: &Keep| {
                let mut found = try_over(ranks, wire, &[setting], 3, &steady(epochs), keep).into_iter();
                let first = found.next().unwrap().unwrap();
                assert!(found.all(|other| other.as_ref() == Ok(&first)));
                first
            };
            let whole = train(2, 2, &Keep::default());
            assert_eq!(train(1, 2, &keep("whole", false)), whole, "writing checkpoints changes nothing");
            let wanted = files(&keep("whole", false).folder);
            assert_eq!(wanted.len(), count, "{:?}", wanted.keys());
            for (name, before, after) in [("wider", 1, 4), ("narrower", 4, 2)] {
                let kept = keep(name, false);
                // One epoch: the newest checkpoint is in its middle.
                train(before, 1, &kept);
                assert_ne!(files(&kept.folder), wanted, "after another step");
                assert_eq!(train(after, 2, &keep(name, true)), whole, "{before} ranks, then {after}");
                assert!(files(&kept.folder) == wanted, "{before} ranks, then {after}");
                assert_eq!(std::fs::read_dir(&kept.folder).unwrap().count(), 1, "older and partial ones are removed");
            }
            // A checkpoint of other virtual shards, or of no ranks, is refused on all ranks.
            let refused = |wire| try_over(2, wire, &[setting], 3, &steady(2), &keep("whole", true));
            let lossy = WireOptions { rows: WireForm::Fp16, ..WireOptions::default() };
            for wire in [(2, WireOptions::default()), (4, lossy)] {
                for found in refused(wire) {
                    let message = found.unwrap_err();
                    assert!(message.contains("4 virtual shards, rows exact"), "{message}");
                }
            }
            let message = run(&tiny(), &[setting], 3, &steady(2), &keep("whole", true), &|_| {}, None).unwrap_err();
            assert!(format!("{message:#}").contains("over: None"), "{message:#}");
        }
    }

    #[test]
    fn a_rank_that_cannot_save_ends_the_run_and_leaves_the_checkpoint_before() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |every| Keep { folder: folder.path().into(), every: Some(every), resume: true };
        let options = |epochs| with(|options| (options.hyper.decay, options.end) = (false, End::Epochs(epochs)));
        let train =
            |epochs, every| try_over(2, (4, WireOptions::default()), &[MIXED], 3, &options(epochs), &keep(every));
        assert!(train(1, 20).iter().all(Result::is_ok));
        let before = files(folder.path());
        // A file where the next checkpoint's folder would be.
        std::fs::write(folder.path().join("step-40.partial"), b"").unwrap();
        let found: Vec<String> = train(2, 40).into_iter().map(Result::unwrap_err).collect();
        assert!(found[0].contains("step-40: wanted to write a checkpoint there"), "{found:?}");
        assert!(found[1].contains("rank 0: "), "{found:?}");
        assert!(files(folder.path()) == before);
    }

    #[test]
    fn shards_that_ranks_do_not_divide_are_refused() {
        let one = (1, WireOptions::default());
        for found in try_over(2, one, &[Setting::FP32], 0, &options(), &Keep::default()) {
            let refused = found.unwrap_err();
            assert!(refused.contains("a multiple of the 2 ranks"), "{refused}");
        }
    }

    #[test]
    fn steps_are_told_one_by_one() {
        let told = std::sync::atomic::AtomicU64::new(0);
        let count = |steps| {
            told.fetch_add(steps, std::sync::atomic::Ordering::Relaxed);
        };
        trained(&tiny(), Setting::FP32, 0, &options(), &count).unwrap();
        assert_eq!(told.into_inner(), options().steps(&tiny()));
    }

    #[test]
    fn a_resumed_run_comes_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |resume| Keep { folder: folder.path().join("run"), every: Some(7), resume };
        let kept = |options: &RunOptions, resume| run(&tiny(), &[MIXED], 3, options, &keep(resume), &|_| {}, None);
        let whole = timeless(trained(&tiny(), MIXED, 3, &options(), &|_| {}));
        assert_eq!(timeless(kept(&options(), false)), whole, "writing checkpoints changes nothing");
        let newest = || checkpoints::newest(&folder.path().join("run"), None).unwrap().unwrap().0;
        assert_eq!((newest(), std::fs::read_dir(folder.path().join("run")).unwrap().count()), (35, 1));
        // The last five steps are repeated with falling rates; no other checkpoint is due.
        assert_eq!(timeless(kept(&options(), true)), whole);
        // Continues from the middle of an epoch, where a smaller number of epochs had stopped the run.
        let steady = with(|options| options.hyper.decay = false);
        let whole = timeless(trained(&tiny(), MIXED, 3, &steady, &|_| {}));
        // A run that begins anew in the folder removes the later checkpoint of the one before.
        kept(&with(|options| (options.hyper.decay, options.end) = (false, End::Epochs(1))), false).unwrap();
        assert_eq!(newest(), 14, "of 20 steps");
        assert_eq!(timeless(kept(&steady, true)), whole);
        // Another run's checkpoint is refused.
        let other = run(&tiny(), &[MIXED], 4, &steady, &keep(true), &|_| {}, None);
        let message = format!("{:#}", other.unwrap_err());
        assert!(message.contains("seed: 4") && message.contains("seed: 3"), "{message}");
        let other = run(&tiny(), &[Setting::FP32], 3, &steady, &keep(true), &|_| {}, None);
        assert!(other.is_err());
    }

    #[test]
    fn damaged_checkpoints_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep { folder: folder.path().into(), every: Some(40), resume: true };
        let again = || run(&tiny(), &[MIXED], 0, &options(), &keep, &|_| {}, None);
        for file in ["run.json", "dense.safetensors", "group-0.safetensors"] {
            again().unwrap(); // writes what is not there
            std::fs::write(folder.path().join("step-40").join(file), b"{}").unwrap();
            let message = format!("{:#}", again().unwrap_err());
            assert!(message.contains("step-40"), "{file}: {message}");
            std::fs::remove_dir_all(folder.path().join("step-40")).unwrap();
        }
    }

    #[test]
    fn a_loss_that_is_not_finite_stops_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let wild = with(|options| (options.hyper.dense_lr, options.hyper.lr) = (3e38, 1e3));
        let message = |keep: &Keep, options: &RunOptions| {
            format!("{:#}", run(&tiny(), &[Setting::FP32], 0, options, keep, &|_| {}, None).unwrap_err())
        };
        let none = message(&Keep::default(), &wild);
        assert!(none.starts_with("step 2: wanted a finite loss, found "), "{none}");
        assert!(none.contains("there is no checkpoint") && none.contains("lower --lr"), "{none}");
        // Good steps first, then steps with a wild learning rate.
        let keep = Keep { folder: folder.path().into(), every: Some(1), resume: true };
        run(&tiny(), &[Setting::FP32], 0, &with(|options| options.end = End::Epochs(1)), &keep, &|_| {}, None).unwrap();
        let some = message(&keep, &wild);
        assert!(some.contains("the last good checkpoint is") && some.contains("step-20"), "{some}");
        assert_eq!(checkpoints::newest(folder.path(), None).unwrap().unwrap().0, 20, "no bad one is written");
        run(&tiny(), &[Setting::FP32], 0, &options(), &keep, &|_| {}, None).unwrap();
    }

    #[test]
    fn a_task_without_a_test_set_is_refused() {
        let mut task = tiny();
        task.about.test = 0;
        let message = trained(&task, Setting::FP32, 0, &options(), &|_| {}).unwrap_err();
        assert!(message.to_string().contains("found 610 and 0"), "{message}");
    }
}
