//! `dlrm` predicts whether an advertisement is clicked, on Criteo's click logs, or on a generated log of the same shape whose clicks come
//! from a known model.

mod criteo;
mod model;
mod planted;

use super::TaskArgs;
use super::cardinalities::Cardinalities;
use crate::dense::Dense;
use crate::metrics::Score;
use crate::task::{About, Bags, Batch, Hyper, TableSpec, Target, Task};
use hotrow::{Init, Pooling};
use hotrow_cli::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use model::Model;
use std::ops::Range;

const DIM: u32 = 16;
pub(super) const HYPER: Hyper = Hyper::adagrad(128, 0.02);

/// The default number of samples of the generated set.
const TRAIN: usize = 150_000;
const TEST: usize = 30_000;

/// A line of a click log in memory, from a file or generated.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    dense: [f32; CRITEO_COUNTS],
    /// The row of each table.
    rows: [u32; CRITEO_CATEGORIES],
    label: bool,
}

impl Sample {
    fn new(counts: [Option<i64>; CRITEO_COUNTS], rows: [u32; CRITEO_CATEGORIES], label: bool) -> Self {
        Self { dense: counts.map(dense_value), rows, label }
    }
}

/// ln(1 + count) as in DLRM; missing and negative counts are 0.
fn dense_value(count: Option<i64>) -> f32 {
    (count.unwrap_or(0).max(0) as f64).ln_1p() as f32
}

#[derive(Debug)]
pub(crate) struct Dlrm {
    about: About,
    train: Vec<Sample>,
    test: Vec<Sample>,
}

/// The source of samples, those to train and to test, and the bounds of the loss if they are known.
type Data = (String, [Vec<Sample>; 2], Option<[f64; 2]>);

/// The generated set with these numbers of training and test samples.
fn generated(cardinalities: &Cardinalities, [train, test]: [usize; 2], seed: u64) -> anyhow::Result<Data> {
    let set = planted::generate(&cardinalities.rows, train, test, seed)?;
    let (entropy, blind, Score { loss, auc, .. }) = (set.entropy(), set.blind_loss(), set.score());
    let source = format!(
        "generated click log of Criteo's shape, seed {seed}; best reachable log-loss {entropy:.4} ({loss:.4} on the labels drawn), \
         AUC {:.4}; with no features at all: {blind:.4}",
        auc.unwrap_or(f64::NAN)
    );
    Ok((source, [set.train, set.test], Some([blind, entropy])))
}

impl Dlrm {
    pub(crate) fn open(args: &TaskArgs, seed: u64) -> anyhow::Result<Self> {
        let cardinalities = args.cardinalities.clone().unwrap_or_default();
        let data = match &args.criteo {
            Some(path) => {
                let samples = criteo::read(path, &cardinalities.rows, args.limit())?;
                (format!("{}: Criteo's click log", path.display()), samples, None)
            }
            None => generated(&cardinalities, [args.limit().map_or(TRAIN, |limit| limit.max(TRAIN)), TEST], seed)?,
        };
        Ok(Self::new(data, &cardinalities, args.dim().unwrap_or(DIM)))
    }

    fn new((source, [train, test], bounds): Data, cardinalities: &Cardinalities, dim: u32) -> Self {
        let table = |(table, &rows): (usize, &u32)| {
            // As in DLRM, first values are wider for tables of fewer rows.
            let limit = 1.0 / (rows as f32).sqrt();
            TableSpec {
                name: format!("C{}", table + 1),
                rows,
                dim,
                pooling: Pooling::Sum,
                init: Init::Uniform { low: -limit, high: limit },
                stream: 0,
            }
        };
        let about = About {
            name: "dlrm",
            source: format!("{source}; {} samples to train, {} to test; {cardinalities}", train.len(), test.len()),
            tables: cardinalities.rows.iter().enumerate().map(table).collect(),
            target: Target::Binary,
            train: train.len(),
            test: test.len(),
            bounds,
        };
        Self { about, train, test }
    }
}

fn batch<'a>(samples: impl ExactSizeIterator<Item = &'a Sample>) -> Batch {
    let mut batch = Batch { bags: vec![Bags::new(); CRITEO_CATEGORIES], samples: samples.len(), ..Batch::default() };
    for sample in samples {
        batch.dense.extend(sample.dense);
        batch.bags.iter_mut().zip(sample.rows).for_each(|(bags, row)| bags.push([row]));
        batch.labels.push(sample.label.into());
    }
    batch
}

impl Task for Dlrm {
    fn about(&self) -> &About {
        &self.about
    }

    fn train_batch(&self, samples: &[u32], _: u64, _: u32) -> Batch {
        batch(samples.iter().map(|&sample| &self.train[sample as usize]))
    }

    fn test_batch(&self, samples: Range<usize>) -> Batch {
        batch(self.test[samples].iter())
    }

    fn dense(&self) -> Box<dyn Dense> {
        Box::new(Model::new(CRITEO_COUNTS, CRITEO_CATEGORIES, self.about.tables[0].dim as usize))
    }
}

/// A small set of generated clicks.
#[cfg(test)]
pub(crate) fn small(samples: [usize; 2], seed: u64) -> Dlrm {
    let cardinalities = "300".parse().unwrap();
    Dlrm::new(generated(&cardinalities, samples, seed).unwrap(), &cardinalities, 8)
}
