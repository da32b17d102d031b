//! `dlrm` predicts whether an advertisement is clicked, on Criteo's click logs, or on a generated log of the same shape whose clicks come
//! from a known model.

mod criteo;
mod model;
mod packed;
mod planted;

use super::TaskArgs;
use super::cardinalities::Cardinalities;
use crate::dense::Dense;
use crate::metrics::Score;
use crate::order::Mixed;
use crate::task::{About, Bags, Batch, Hyper, TableSpec, Target, Task};
use hotrow::{Init, Pooling};
use hotrow_cli::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use model::Model;
use packed::Packed;
use std::num::NonZero;
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
    clicks: Clicks,
}

/// Samples to train and to test.
#[derive(Debug)]
enum Clicks {
    Generated { train: Vec<Sample>, test: Vec<Sample>, drifts: bool },
    Packed(Packed),
}

/// The set that [`planted`] generates with these numbers of training and test samples.
fn generated(
    cardinalities: &Cardinalities,
    [train, test]: [usize; 2],
    (dim, drift): (u32, Option<u32>),
    seed: u64,
) -> anyhow::Result<Dlrm> {
    let set = planted::generate(&cardinalities.rows, train, test, drift, seed)?;
    let (entropy, blind, Score { loss, auc, .. }) = (set.entropy(), set.blind_loss(), set.score());
    let drifts = drift.map_or_else(String::new, |every| format!(", other rows popular after every {every} samples"));
    let source = format!(
        "generated click log of Criteo's shape, seed {seed}{drifts}; best reachable log-loss {entropy:.4} ({loss:.4} on the labels drawn), \
         AUC {:.4}; with no features at all: {blind:.4}",
        auc.unwrap_or(f64::NAN)
    );
    let about = About { bounds: Some([blind, entropy]), ..about(&source, [train, test], cardinalities, dim) };
    Ok(Dlrm { about, clicks: Clicks::Generated { train: set.train, test: set.test, drifts: drift.is_some() } })
}

fn about(source: &str, [train, test]: [usize; 2], cardinalities: &Cardinalities, dim: u32) -> About {
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
    About {
        name: "dlrm",
        source: format!("{source}; {train} samples to train, {test} to test; {cardinalities}"),
        tables: cardinalities.rows.iter().enumerate().map(table).collect(),
        target: Target::Binary,
        train,
        test,
        bounds: None,
    }
}

impl Dlrm {
    pub(crate) fn open(args: &TaskArgs, seed: u64) -> anyhow::Result<Self> {
        let dim = args.dim().unwrap_or(DIM);
        let Some(log) = &args.criteo else {
            let train = args.limit().map_or(TRAIN, |limit| limit.max(TRAIN));
            return generated(
                &args.cardinalities.clone().unwrap_or_default(),
                [train, TEST],
                (dim, args.drift.map(NonZero::get)),
                seed,
            );
        };
        let rows = args.cardinalities.as_ref().map(|cardinalities| &cardinalities.rows);
        let packed = Packed::open(log, args.packed.as_deref(), rows)?;
        let header = packed.header;
        let cardinalities = args.cardinalities.clone().unwrap_or_else(|| Cardinalities::found(header.rows));
        let [train, test] = [header.test, header.lines - header.test].map(usize::try_from);
        let samples = [train?.min(args.limit().unwrap_or(usize::MAX)), test?];
        let about = about(&format!("{}: Criteo's click log", log.display()), samples, &cardinalities, dim);
        Ok(Self { about, clicks: Clicks::Packed(packed) })
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

    fn mixed(&self) -> Mixed {
        match self.clicks {
            Clicks::Generated { drifts: true, .. } => Mixed::Not,
            Clicks::Generated { .. } => Mixed::Whole,
            Clicks::Packed(_) => Mixed::Blocks,
        }
    }

    fn crc(&self) -> Option<u32> {
        match &self.clicks {
            Clicks::Generated { .. } => None,
            Clicks::Packed(packed) => Some(packed.header.crc),
        }
    }

    fn train_batch(&self, samples: &[u64], _: u64, _: u32) -> anyhow::Result<Batch> {
        Ok(match &self.clicks {
            Clicks::Generated { train, .. } => batch(samples.iter().map(|&sample| &train[sample as usize])),
            Clicks::Packed(packed) => batch(packed.samples(samples.iter().copied())?.iter()),
        })
    }

    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch> {
        Ok(match &self.clicks {
            Clicks::Generated { test, .. } => batch(test[samples].iter()),
            Clicks::Packed(packed) => {
                batch(packed.samples(samples.map(|sample| packed.header.test + sample as u64))?.iter())
            }
        })
    }

    fn dense(&self) -> Box<dyn Dense> {
        Box::new(Model::new(CRITEO_COUNTS, CRITEO_CATEGORIES, self.about.tables[0].dim as usize))
    }
}

/// A small set of generated clicks.
#[cfg(test)]
pub(crate) fn small(samples: [usize; 2], seed: u64) -> Dlrm {
    let cardinalities = "300".parse().unwrap();
    generated(&cardinalities, samples, (8, None), seed).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The task of keys such as `criteo=FILE`.
    pub(super) fn open(words: &str) -> anyhow::Result<Dlrm> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        Dlrm::open(&crate::experiment::Experiment::of_words(&words)?.task, 0)
    }
}
