//! A run: a task, a setup and a seed, trained and tested.
//!
//! All runs with one seed share sample order, random draws and initial weights, so that settings can be compared pairwise.

mod on_device;
mod over;

use crate::checkpoints::{self, Beside, Keep, Unproved};
use crate::dense::{self, AdaGrad, Dense, Fresh, tensor, values};
use crate::device::Device;
use crate::metrics::{Score, Scorer, rise};
use crate::order::Order;
use crate::ranks::Ranks;
use crate::runs::fingerprint;
use crate::scaling;
use crate::setting::Setting;
use crate::tables::Tables;
use crate::task::{Batch, Hyper, Reduction, Task};
use anyhow::ensure;
use burn::tensor::{Gradients, Tensor};
use hotrow::{Counters, CpuScaler, Mode, ScalerState};
use hotrow_cli::report::units::median;
use hotrow_dist::Comm as _;
use hotrow_plan::scars::HotBatches;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
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
        if self == Self::Loss { score.loss } else { score.auc.unwrap_or(f64::NAN) }
    }

    pub(crate) fn is_reached(self, found: f64, best: f64) -> bool {
        if self == Self::Loss { found <= best } else { found >= best }
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
    /// The test loss of predicting the base rate; a file of an older run may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_rate: Option<f64>,
    /// What rose over the last quarter of the run, and its means before and after the middle of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rise: Option<(String, [f64; 2])>,
    /// Hit rate in training over the tables with a cache.
    pub(crate) hit_rate: Option<f64>,
    /// That of each of them, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hit_rates: Vec<(String, f64)>,
    /// With batches by heat, the share of the samples whose rows are all pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hot_samples: Option<f64>,
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
    /// Under a scaled loss, the share of the gradients of the tables' outputs that became zero in FP16; of a resumed run those after it went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<f64>,
    /// Samples a second in the last test, frozen look-ups and the dense part.
    #[serde(default)]
    pub(crate) inferred_per_second: f64,
    /// Samples a second in training, with the tests on the way to a goal.
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
    let (counters, cached) = model.tables.counters()?;
    let hit_rate = (!cached.is_empty()).then(|| cached.values().copied().sum::<Counters>().hit_rate());
    let name = |(&table, counters): (&usize, &Counters)| (task.about().tables[table].name.clone(), counters.hit_rate());
    let lost = model.all_lost()?;
    let (memory_paper, memory_true, kept_bytes) = model.tables.memory()?;
    // Where pages move these alone are counted, and not the rows of tables that stay on the device.
    let bus_bytes = Some(model.tables.paged()).filter(|&pages| pages > 0).unwrap_or_else(|| counters.bus_bytes());
    let tables_seconds = match &options.device.shared {
        Some(shared) => model.time_tables(shared)?,
        None => trained.tables_seconds,
    };
    Ok(Outcome {
        loss: score.loss,
        accuracy: score.accuracy,
        auc: score.auc,
        base_rate: Some(score.base_rate),
        hit_rate,
        hit_rates: if cached.len() > 1 { cached.iter().map(name).collect() } else { Vec::new() },
        hot_samples: (model.hot[0] > 0).then(|| model.hot[1] as f64 / model.hot[0] as f64),
        memory_paper,
        memory_true,
        bus_bytes,
        skipped_rows: counters.skipped_rows,
        overflows,
        lost: (lost[0] > 0).then(|| lost[1] as f64 / lost[0] as f64),
        inferred_per_second: model.inferred.0 as f64 / model.inferred.1.as_secs_f64(),
        steps: model.steps,
        seconds: start.elapsed().as_secs_f64(),
        kept_bytes,
        tables_seconds,
        ..trained
    })
}

/// What a checkpoint belongs to: all that its bits depend on. The number of ranks is no part of it.
pub(crate) fn identity(
    task: &dyn Task,
    choice: &[Setting],
    seed: u64,
    options: &RunOptions,
    ranks: Option<Ranks<'_>>,
) -> anyhow::Result<Value> {
    let (about, hyper) = (task.about(), &options.hyper);
    let rows: u64 = about.tables.iter().map(|table| u64::from(table.rows)).sum();
    // The name of a file without its folder, or what was generated.
    let data = about.source.split("; ").next().and_then(|head| Path::new(head.split(": ").next()?).file_name());
    Ok(json!({
        "task": about.name, "model": about.model, "data": data.map(|name| name.to_string_lossy()), "data_crc32": fingerprint(task)?,
        "samples (limit)": options.samples(task), "rows (cardinalities)": rows, "train": hyper, "seed": seed, "settings": choice,
        "shards": ranks.map(Ranks::label), "steps": hyper.decay.then(|| options.steps(task)),
    }))
}

struct Model<'t, 'r> {
    task: &'t dyn Task,
    /// What a checkpoint belongs to.
    identity: Value,
    seed: u64,
    options: &'t RunOptions,
    tables: Tables<'r>,
    ranks: Option<Ranks<'r>>,
    dense: Box<dyn Dense>,
    optimizer: AdaGrad,
    scaler: Option<CpuScaler>,
    /// For each table with pins, whether a row is pinned.
    pins: Vec<Option<Vec<bool>>>,
    /// The samples of the epochs so far, and those of them whose rows are all pinned.
    hot: [u64; 2],
    /// The current epoch, and the order of its samples.
    order: Option<(u32, Order)>,
    steps: u64,
    /// Gradients of the tables' outputs that were not zero, and those of them that FP16 lost.
    lost: [u64; 2],
    /// Samples of the last test, and the time of their look-ups and their dense part.
    inferred: (usize, Duration),
    /// Time of the tables' forward and backward.
    in_tables: Duration,
    /// On a device: the losses of steps that have not been read, with their numbers of samples.
    unread: Vec<(Tensor<1>, usize)>,
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
        let mut tables = Tables::new(&about.tables, choice, &options.hyper, seed, &options.device, ranks)?;
        let dense = task.dense(options.hyper.dim as usize);
        let optimizer =
            AdaGrad::new(dense.weights(&mut Fresh::new(seed, &options.device.dense())), options.hyper.dense_lr);
        ensure!(
            options.device.shared.is_none() || (options.hyper.loss_scale.0, ranks.is_some()) == (None, false),
            "loss-scale: wanted none and no ranks with the dense part on the device, found others; take --backend cpu"
        );
        let pins =
            if choice.iter().any(Setting::has_pins) { tables.pin(&lookups(task, seed, options)?)? } else { Vec::new() };
        let identity = identity(task, choice, seed, options, ranks)?;
        let scaler = options.hyper.loss_scale.0.map(CpuScaler::new).transpose()?;
        let (order, steps, lost, in_tables) = (None, 0, [0; 2], Duration::ZERO);
        Ok(Self {
            task,
            identity,
            seed,
            options,
            tables,
            ranks,
            dense,
            optimizer,
            scaler,
            pins,
            hot: [0; 2],
            order,
            steps,
            lost,
            in_tables,
            inferred: (0, Duration::ZERO),
            unread: Vec::new(),
        })
    }

    /// Trains to the end of the run. Returns loss, curve, speed, the last test, and the last checkpoint, which the final test must prove;
    /// earlier checkpoints are proved by the next loss.
    fn train(
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

    /// Loads a checkpoint and returns the loss of its epoch so far.
    fn resume(&mut self, newest: &(u64, PathBuf)) -> anyhow::Result<f64> {
        let like = self.beside(&self.lost);
        let Beside { steps, dense, loss } = checkpoints::load(newest, &mut self.tables, &like)?;
        self.restore(&dense)?;
        self.steps = steps;
        Ok(loss)
    }

    /// [`Self::lost`] of all ranks together.
    fn all_lost(&self) -> Result<Vec<u64>, hotrow::Error> {
        self.ranks.map_or_else(|| Ok(self.lost.to_vec()), |ranks| ranks.total(&self.lost))
    }

    /// Weights of the dense part, their state, then the scaler's state and what FP16 lost.
    fn beside(&self, lost: &[u64]) -> Vec<Tensor<2>> {
        let AdaGrad { weights, squares, .. } = &self.optimizer;
        let scaler = self.scaler.as_ref().map(|scaler| {
            // The bits of its words, each as 16 bits above and 16 below, which FP32 holds exactly.
            let lost = lost.iter().flat_map(|&number| [number as u32, (number >> 32) as u32]);
            let halves = scaler.state().to_words().into_iter().chain(lost).flat_map(|word| [word >> 16, word & 0xffff]);
            let halves: Vec<f32> = halves.map(|half| half as f32).collect();
            let shape = [1, halves.len()];
            tensor(halves, shape, &dense::cpu().inner())
        });
        weights.iter().map(|weight| weight.clone().inner()).chain(squares.iter().cloned()).chain(scaler).collect()
    }

    fn restore(&mut self, beside: &[Tensor<2>]) -> anyhow::Result<()> {
        let count = self.optimizer.weights.len();
        let (weights, rest) = beside.split_at(count);
        let (squares, scaler) = rest.split_at(count);
        let weights = weights.iter().cloned().map(|weight| Tensor::from_inner(weight).require_grad());
        self.optimizer.weights = weights.collect();
        self.optimizer.squares = squares.to_vec();
        if let (Some(now), [halves]) = (&mut self.scaler, scaler) {
            let config = *now.config();
            let words = values(halves.clone());
            let words: Vec<u32> = words.chunks(2).map(|half| (half[0] as u32) << 16 | half[1] as u32).collect();
            let (state, lost) = words.split_at(ScalerState::WORDS);
            *now = CpuScaler::with_state(config, ScalerState::from_words(state, &config)?)?;
            // The first rank goes on with what all ranks had lost.
            let lost = [0, 1].map(|at| u64::from(lost[2 * at]) | u64::from(lost[2 * at + 1]) << 32);
            self.lost = if self.ranks.is_none_or(|ranks| ranks.rank() == 0) { lost } else { [0; 2] };
        }
        Ok(())
    }

    /// Runs forward, backward and update with the next batch. Returns the loss before the update, which may not be finite, unless it stays on the
    /// device for now, and the number of samples.
    fn step(&mut self) -> anyhow::Result<(Option<f64>, usize)> {
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
    fn learn(&self, batch: &Batch, outputs: Vec<Tensor<2>>) -> (Tensor<1>, Vec<Tensor<2>>, Gradients) {
        let embedded: Vec<_> = outputs.into_iter().map(|outputs| Tensor::from_inner(outputs).require_grad()).collect();
        let logits = self.dense.logits(&self.optimizer.weights, &embedded, batch);
        let loss = dense::loss(logits, batch, self.task.about().target);
        let scale = self.scaler.as_ref().map_or(1.0, CpuScaler::scale);
        let gradients = (loss.clone() * scale).backward();
        (loss, embedded, gradients)
    }

    /// The epoch of the next batch, and the places of its samples.
    fn next_samples(&mut self) -> (u32, Vec<u64>) {
        let (seed, count, size) = (self.seed, self.options.samples(self.task) as u64, self.options.hyper.batch as u64);
        let each = count.div_ceil(size).max(1);
        let (epoch, done) = ((self.steps / each) as u32, self.steps % each);
        let order = match self.order.take() {
            Some((of, order)) if of == epoch => order,
            _ => Order::of(self.task.mixed(), count, seed, epoch),
        };
        let (_, order) = self.order.insert((epoch, order));
        (epoch, order.samples(done * size..count.min((done + 1) * size)))
    }

    /// Puts hot samples of an epoch, whose rows are all pinned, into batches of their own (SCARS, section III). The last samples of both kinds,
    /// which fill no batch, follow the others, so an epoch has as many steps as ever.
    fn order_by_heat(&mut self) -> anyhow::Result<()> {
        let (count, size) = (self.options.samples(self.task), self.options.hyper.batch);
        let epoch = (self.steps / count.div_ceil(size).max(1) as u64) as u32;
        if self.order.as_ref().is_some_and(|&(of, _)| of == epoch) {
            return Ok(());
        }
        let samples = Order::of(self.task.mixed(), count as u64, self.seed, epoch).samples(0..count as u64);
        let mut kinds = Vec::with_capacity(count);
        for samples in samples.chunks(TESTED) {
            let batch = self.task.train_batch(samples, self.seed, epoch)?;
            let is_hot = |sample: usize| {
                self.pins.iter().zip(&batch.bags).all(|(pins, bags)| {
                    let rows = bags.offsets[sample] as usize..bags.offsets[sample + 1] as usize;
                    pins.as_ref().is_none_or(|pins| bags.indices[rows].iter().all(|&row| pins[row as usize]))
                })
            };
            kinds.extend(samples.iter().enumerate().map(|(at, &sample)| (sample as u32, is_hot(at))));
        }
        self.hot[0] += count as u64;
        self.hot[1] += kinds.iter().filter(|&&(_, hot)| hot).count() as u64;
        let batches = HotBatches::new(kinds, size, |&(_, hot)| hot);
        let order = batches.flat_map(|(_, batch)| batch.into_iter().map(|(sample, _)| sample)).collect();
        self.order = Some((epoch, Order::Whole(order)));
        Ok(())
    }

    /// Turns the gradients of the summed loss into those of a weighted mean if the loss is one, and counts those that FP16 loses.
    fn reduce(&mut self, of_tables: &mut [Vec<f32>], samples: usize) {
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
    fn update(&mut self, of_tables: &[Vec<f32>], of_weights: &[Option<Tensor<2>>]) -> anyhow::Result<()> {
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

    /// Tests with the first `samples` of the test set and frozen tables. Over ranks each tests all of them.
    fn test(&mut self, samples: usize) -> anyhow::Result<Score> {
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

/// The number of lookups of each row of each table in the first epoch.
fn lookups(task: &dyn Task, seed: u64, options: &RunOptions) -> anyhow::Result<Vec<Vec<u32>>> {
    let mut counts: Vec<Vec<u32>> = task.about().tables.iter().map(|table| vec![0; table.rows as usize]).collect();
    let samples: Vec<u64> = (0..options.samples(task) as u64).collect();
    for samples in samples.chunks(TESTED) {
        let batch = task.train_batch(samples, seed, 0)?;
        for (counts, bags) in counts.iter_mut().zip(&batch.bags) {
            bags.indices.iter().for_each(|&row| counts[row as usize] += 1);
        }
    }
    Ok(counts)
}

/// The remedy for a loss that is not finite.
fn remedy(keep: &Keep) -> anyhow::Result<String> {
    let newest = checkpoints::newest(&keep.folder, None)?;
    let good = newest.map_or_else(|| "there is none".to_owned(), |(_, place)| place.display().to_string());
    Ok(format!("the last good checkpoint: {good}; train anew with a lower lr or dense-lr"))
}

/// The tables' outputs as tensors: `[bags, dim]`, or `[indices, dim]` without pooling.
fn shaped(dim: u32, outputs: Vec<Vec<f32>>) -> Vec<Tensor<2>> {
    let of = |values: Vec<f32>| {
        let shape = [values.len() / dim as usize, dim as usize];
        tensor(values, shape, &dense::cpu().inner())
    };
    outputs.into_iter().map(of).collect()
}

/// The gradient of the batch's summed loss. AdaGrad is independent of the factor between sum and mean, but squares of mean gradients would be
/// lost in a state kept in FP16.
fn summed(of: &Tensor<2>, gradients: &Gradients, samples: usize) -> Vec<f32> {
    match of.grad(gradients) {
        Some(mean) => values(mean * samples as f32),
        None => vec![0.0; of.shape().num_elements()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::Scaling;
    use crate::tasks::small;
    use hotrow::{LossScale, Policy, Precision, Rounding};
    use hotrow_dist::{Comm, Threads, WireForm, WireOptions};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    /// INT4 codes, a cache, and random bits.
    const MIXED: Setting = Setting {
        precision: Precision::Int4,
        rounding: Rounding::Stochastic,
        policy: Policy::Lfu,
        cache_percent: 5.0,
        ..Setting::FP32
    };

    /// An array of INT8 codes, eight times smaller than the table.
    const ARRAY: Setting = Setting {
        precision: Precision::Int8,
        rounding: Rounding::Stochastic,
        compression: Some(8.0),
        chunk: 4,
        ..Setting::FP32
    };

    fn with(change: impl Fn(&mut RunOptions)) -> RunOptions {
        let hyper = Hyper { decay: true, ..Hyper::adagrad(8, 32, 0.02) };
        let mut options = RunOptions { hyper, end: End::Epochs(2), limit: None, device: Device::default() };
        change(&mut options);
        options
    }

    fn options() -> RunOptions {
        with(|_| {})
    }

    fn kept(setting: Setting, seed: u64, options: &RunOptions, keep: &Keep) -> anyhow::Result<Outcome> {
        run(&small([610, 200], 1), &[setting; 26], seed, options, keep, &|_| {}, None).map(timeless)
    }

    /// An outcome without the figures of the clock.
    fn timeless(found: Outcome) -> Outcome {
        Outcome {
            seconds: 0.0,
            inferred_per_second: 0.0,
            samples_per_second: 0.0,
            step_seconds: 0.0,
            tables_seconds: 0.0,
            ..found
        }
    }

    fn trained(setting: Setting, seed: u64, options: &RunOptions) -> Outcome {
        kept(setting, seed, options, &Keep::default()).unwrap()
    }

    /// Trains over ranks, and returns what each of them has found.
    fn over(
        ranks: u32,
        (shards, wire): (u32, WireOptions),
        setting: Setting,
        options: &RunOptions,
        keep: &Keep,
    ) -> Vec<Result<Outcome, String>> {
        let seen = Mutex::new(BTreeMap::new());
        // If a rank ends with an error while others wait, the job has that error, too.
        let _seen = Threads::run(ranks, |comm: &mut Threads| {
            let (task, rank) = (small([610, 200], 1), comm.rank());
            let comm = RefCell::new(comm as &mut dyn Comm);
            let ranks = Ranks::new(&comm, shards, wire);
            let found = run(&task, &[setting; 26], 3, options, keep, &|_| {}, Some(ranks));
            seen.lock().unwrap().insert(rank, found.map(timeless).map_err(|error| format!("{error:#}")));
            Ok(())
        });
        seen.into_inner().unwrap().into_values().collect()
    }

    #[test]
    fn it_learns_but_not_more_than_there_is() {
        let task = small([8000, 4000], 1);
        let [blind, best] = task.about().bounds.unwrap();
        let trained = |end| {
            let options = with(|options| (options.hyper.batch, options.hyper.decay, options.end) = (64, false, end));
            run(&task, &[Setting::FP32; 26], 1, &options, &Keep::default(), &|_| {}, None).unwrap()
        };
        let found = trained(End::Epochs(1));
        assert!(found.loss < blind - 0.2 * (blind - best) && found.loss > best, "{found:?}, {blind}, {best}");
        assert!(found.auc.unwrap() > 0.6 && found.steps == 125, "{found:?}");
        // Without training the loss does not fall so far. By the clock the first step is always taken.
        let [short, by_clock] = [End::Steps(1), End::Seconds(1e-9)].map(trained);
        assert!(short.loss > blind - 0.2 * (blind - best) && timeless(by_clock) == timeless(short));
        let of = |seed| fingerprint(&small([1500, 500], seed)).unwrap();
        assert!(of(1) == of(1) && of(1) != of(2), "other data of the same size");
    }

    #[cfg(feature = "gpu")]
    #[test]
    fn a_run_on_the_device_learns_what_the_processor_does() {
        hotrow_harness::device::with_gpu(|_| {
            let device = Device::open(hotrow_cli::options::Backend::Gpu).unwrap();
            let on = |device: &Device, setting, lr| {
                trained(setting, 1, &with(|options| (options.device, options.hyper.lr) = (device.clone(), lr)))
            };
            for setting in [Setting::FP32, MIXED, ARRAY, Setting { mapped: true, ..MIXED }] {
                if setting.mapped && !device.context.as_ref().unwrap().caps().mappable {
                    hotrow_harness::device::skipped("mapped rows: the device maps no host memory");
                    continue;
                }
                let (found, wanted) = (on(&device, setting, 0.02), on(&Device::default(), setting, 0.02));
                let apart = |other: &Outcome| (found.loss - other.loss).abs();
                // Sums are added in another order; a code of INT4 may round to its neighbour.
                let bound = if setting == Setting::FP32 { 1e-5 } else { 1e-3 };
                assert!(apart(&wanted) < bound, "{setting:?}: {found:?}, {wanted:?}");
                assert_eq!((found.steps, found.hit_rate.is_some()), (wanted.steps, wanted.hit_rate.is_some()));
                let other = on(&Device::default(), setting, 0.2);
                assert!(apart(&other) > bound, "another rate: {setting:?}: {found:?}, {other:?}");
            }
            // Whole pages move, and nothing else differs from rows on the device.
            let paged = on(&device, Setting { pages_percent: 50.0, ..Setting::FP32 }, 0.02);
            let plain = on(&device, Setting::FP32, 0.02);
            assert_eq!(paged.loss, plain.loss);
            let whole = |run: &Outcome| run.bus_bytes > 0 && run.bus_bytes.is_multiple_of(64 << 10);
            assert!(whole(&paged) && !whole(&plain), "{paged:?}, {plain:?}");
        });
    }

    #[test]
    fn a_seed_is_a_run() {
        let (plain, mixed) = (trained(Setting::FP32, 1, &options()), trained(MIXED, 1, &options()));
        assert_eq!((plain.steps, mixed.steps), (40, 40));
        assert_eq!(mixed, trained(MIXED, 1, &options()), "the same bits");
        assert_ne!(mixed.loss, trained(MIXED, 2, &options()).loss);
        assert_ne!(mixed.loss, plain.loss);
        assert!(mixed.hit_rate.unwrap() > 0.0 && plain.hit_rate.is_none());
    }

    #[test]
    fn ranks_change_no_bit() {
        let exact = WireOptions::default();
        let lossy = WireOptions { rows: WireForm::Fp16, gradients: WireForm::Int8, summed: true };
        // Scales that rise until a step overflows.
        let rising = LossScale::Backoff { min: 1.0, max: 2f32.powi(24), factor: 2.0, window: 3 };
        let mut seen = Vec::new();
        for (setting, shards, wire, scale) in [
            (Setting::FP32, 4, exact, None),
            (MIXED, 8, exact, None),
            (MIXED, 8, lossy, None),
            (ARRAY, 4, exact, None),
            (MIXED, 4, exact, Some(LossScale::LOG_NORMAL)),
            (MIXED, 4, exact, Some(rising)),
        ] {
            let options = with(|options| {
                (options.hyper.batch, options.end) = (33, End::Epochs(2));
                options.hyper.loss_scale = Scaling(scale);
            });
            let over = |ranks, shards| over(ranks, (shards, wire), setting, &options, &Keep::default());
            let alone = over(1, shards).remove(0).unwrap();
            for ranks in [2, 4] {
                assert!(
                    over(ranks, shards).iter().all(|found| found.as_ref() == Ok(&alone)),
                    "{ranks} ranks, {setting:?}"
                );
            }
            // It learns as without ranks, but for roundings; another number of shards rounds otherwise.
            let plain = trained(setting, 3, &options);
            assert!((plain.loss - alone.loss).abs() < 0.02, "{} without ranks, {} with them", plain.loss, alone.loss);
            assert_eq!(plain.steps, alone.steps);
            assert!(over(1, 2).remove(0).unwrap().train_loss != alone.train_loss);
            seen.push((alone.overflows, alone.train_loss));
        }
        assert!(seen[1].1 != seen[2].1, "a lossy wire has other bits");
        assert!(seen[4].0 == Some(0) && seen[5].0 > Some(3), "{seen:?}");
    }

    #[test]
    fn a_resumed_run_comes_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let keep = |resume| Keep { folder: folder.path().join("run"), every: Some(7), resume };
        let newest = || checkpoints::newest(&folder.path().join("run"), None).unwrap().unwrap().0;
        let whole = trained(MIXED, 3, &options());
        assert_eq!(kept(MIXED, 3, &options(), &keep(false)).unwrap(), whole, "writing checkpoints changes nothing");
        assert_eq!((newest(), std::fs::read_dir(folder.path().join("run")).unwrap().count()), (35, 1));
        // The last five steps are repeated with falling rates; no other checkpoint is due.
        assert_eq!(kept(MIXED, 3, &options(), &keep(true)).unwrap(), whole);
        // Continues from the middle of an epoch, where a smaller number of epochs had stopped the run.
        let steady = |epochs| with(|options| (options.hyper.decay, options.end) = (false, End::Epochs(epochs)));
        kept(MIXED, 3, &steady(1), &keep(false)).unwrap();
        assert_eq!(newest(), 14, "of 20 steps, and the later one of the run before is removed");
        assert_eq!(kept(MIXED, 3, &steady(2), &keep(true)).unwrap(), trained(MIXED, 3, &steady(2)));
        // With a scaled loss the gradients that FP16 lost before the checkpoint count too.
        let scaled = |epochs| {
            let mut options = steady(epochs);
            options.hyper.loss_scale = Scaling(Some(LossScale::Static { scale: 1.0 }));
            options
        };
        kept(MIXED, 3, &scaled(1), &keep(false)).unwrap();
        let whole = trained(MIXED, 3, &scaled(2));
        assert!(whole.lost > Some(0.0), "{whole:?}");
        assert_eq!(kept(MIXED, 3, &scaled(2), &keep(true)).unwrap(), whole);
        // Damaged checkpoints are refused.
        for file in ["dense.safetensors", "group-0.safetensors"] {
            kept(MIXED, 3, &steady(2), &keep(false)).unwrap();
            std::fs::write(folder.path().join("run/step-35").join(file), b"{}").unwrap();
            let error = format!("{:#}", kept(MIXED, 3, &steady(2), &keep(true)).unwrap_err());
            assert!(error.contains("step-35"), "{file}: {error}");
        }
    }

    #[test]
    fn a_loss_that_is_not_finite_stops_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let wild = with(|options| (options.hyper.dense_lr, options.hyper.lr) = (3e38, 1e3));
        let keep = Keep { folder: folder.path().into(), every: Some(1), resume: true };
        let message = || format!("{:#}", kept(Setting::FP32, 0, &wild, &keep).unwrap_err());
        let none = message();
        assert!(none.starts_with("step ") && none.contains(": wanted a finite loss, found "), "{none}");
        assert!(none.ends_with("checkpoint: there is none; train anew with a lower lr or dense-lr"), "{none}");
        // Good steps first, and no bad checkpoint after them.
        kept(Setting::FP32, 0, &with(|options| options.end = End::Epochs(1)), &keep).unwrap();
        assert!(message().contains("step-20; "), "{}", message());
    }

    #[test]
    fn batches_by_heat_have_each_sample_once() {
        let pins = Setting { pinned_percent: 50.0, ..Setting::FP32 };
        let of = |setting, hot| trained(setting, 1, &with(|options| options.hyper.hot_batches = hot));
        let [plain, shuffled, by_heat] = [of(Setting::FP32, false), of(pins, false), of(pins, true)];
        assert_eq!(shuffled.loss, plain.loss, "pins change no value of an FP32 table");
        assert!(shuffled.bus_bytes < plain.bus_bytes && shuffled.hit_rate.unwrap() > 0.5);
        assert!(by_heat.hot_samples.is_some_and(|share| share > 0.0 && share < 1.0), "{by_heat:?}");
        assert!(by_heat.loss != plain.loss && by_heat.steps == plain.steps);
        // A resumed run has the same pins and batches.
        let (folder, options) = (tempfile::tempdir().unwrap(), with(|options| options.hyper.hot_batches = true));
        let keep = |resume| Keep { folder: folder.path().into(), every: Some(13), resume };
        assert_eq!(
            [false, true].map(|resume| kept(pins, 1, &options, &keep(resume)).unwrap()),
            [by_heat.clone(), by_heat]
        );
        // The second epoch of 610 samples: hot ones first in batches of 32, at most one batch of both kinds.
        let (task, options) = (small([610, 200], 1), with(|options| options.hyper.hot_batches = true));
        let mut model = Model::new(&task, &[pins; 26], 1, &options, None).unwrap();
        model.steps = 20;
        model.order_by_heat().unwrap();
        let (_, order) = model.order.as_mut().unwrap();
        let mut found = order.samples(0..610);
        let kinds: Vec<usize> = found
            .chunks(32)
            .map(|samples| {
                let batch = task.train_batch(samples, 1, 1).unwrap();
                let hot = |&at: &usize| {
                    batch
                        .bags
                        .iter()
                        .zip(&model.pins)
                        .all(|(bags, pins)| pins.as_ref().unwrap()[bags.indices[at] as usize])
                };
                (0..samples.len()).filter(hot).count()
            })
            .collect();
        let mixed = |&(&hot, size): &(&usize, usize)| hot > 0 && hot < size;
        let sizes = (0..20).map(|at| if at < 19 { 32 } else { 2 });
        assert!(
            kinds.iter().zip(sizes).filter(mixed).count() <= 1 && kinds.iter().sum::<usize>() as u64 == model.hot[1],
            "{kinds:?}"
        );
        found.sort_unstable();
        assert_eq!(found, (0..610).collect::<Vec<u64>>());
    }

    #[test]
    fn a_goal_ends_a_run() {
        let (measure, every, tested, least) = (Measure::Loss, 5, 200, 10);
        let to = |best, most| {
            let end = End::Goal { measure, best, every, tested, least, most };
            trained(Setting::FP32, 1, &with(|options| (options.hyper.decay, options.end) = (false, end)))
        };
        let whole = to(f64::NEG_INFINITY, 40);
        assert_eq!((whole.curve.len(), whole.curve[7]), (8, (40, whole.loss)));
        // The step that reached the goal is the last, but for the least.
        assert_eq!(to(whole.curve[2].1, 40).curve, whole.curve[..3]);
        assert_eq!((to(f64::INFINITY, 40).steps, to(f64::NEG_INFINITY, 15).steps), (10, 15));
    }
}
