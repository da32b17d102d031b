//! A model in training: its tables, its dense part, and what they have come to.

use crate::dense::{AdaGrad, Dense, Fresh};
use crate::device::Device;
use crate::end::End;
use crate::hyper::Hyper;
use crate::order::Order;
use crate::ranks::Ranks;
use crate::setting::Setting;
use crate::tables::Tables;
use crate::task::{Task, fingerprint};
use anyhow::ensure;
use burn::tensor::Tensor;
use hotrow::CpuScaler;
use serde_json::{Value, json};
use std::{path::Path, time::Duration};

/// Samples of a batch when testing.
pub(super) const TESTED: usize = 1024;

/// The options of a run, apart from the settings of its tables.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub(crate) hyper: Hyper,
    pub(crate) end: End,
    /// The number of training samples, if it is limited.
    pub(crate) limit: Option<usize>,
    pub(crate) device: Device,
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

pub(super) struct Model<'t, 'r> {
    pub(super) task: &'t dyn Task,
    /// What a checkpoint belongs to.
    pub(super) identity: Value,
    pub(super) seed: u64,
    pub(super) options: &'t RunOptions,
    pub(super) tables: Tables<'r>,
    pub(super) ranks: Option<Ranks<'r>>,
    pub(super) dense: Box<dyn Dense>,
    pub(super) optimizer: AdaGrad,
    pub(super) scaler: Option<CpuScaler>,
    /// For each table with pins, whether a row is pinned.
    pub(super) pins: Vec<Option<Vec<bool>>>,
    /// The samples of the epochs so far, and those of them whose rows are all pinned.
    pub(super) hot: [u64; 2],
    /// The current epoch, and the order of its samples.
    pub(super) order: Option<(u32, Order)>,
    pub(super) steps: u64,
    /// Gradients of the tables' outputs that were not zero, and those of them that FP16 lost.
    pub(super) lost: [u64; 2],
    /// Samples of the last test, and the time of their look-ups and their dense part.
    pub(super) inferred: (usize, Duration),
    /// Time of the tables' forward and backward.
    pub(super) in_tables: Duration,
    /// On a device: the losses of steps that have not been read, with their numbers of samples.
    pub(super) unread: Vec<(Tensor<1>, usize)>,
}

impl<'t, 'r> Model<'t, 'r> {
    pub(super) fn new(
        task: &'t dyn Task,
        choice: &[Setting],
        seed: u64,
        options: &'t RunOptions,
        ranks: Option<Ranks<'r>>,
    ) -> anyhow::Result<Self> {
        let about = task.about();
        let counts = || lookups(task, seed, options);
        let mut tables = Tables::new(&about.tables, choice, &options.hyper, seed, &options.device, ranks, &counts)?;
        let dense = task.dense(options.hyper.dim as usize);
        let optimizer =
            AdaGrad::new(dense.weights(&mut Fresh::new(seed, &options.device.dense())), options.hyper.dense_lr);
        ensure!(
            options.device.shared.is_none() || (options.hyper.loss_scale.0, ranks.is_some()) == (None, false),
            "loss-scale: wanted none and no ranks with the dense part on the device, found others; take --backend cpu"
        );
        let pins = if choice.iter().any(Setting::has_pins) { tables.pin(&counts()?)? } else { Vec::new() };
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
