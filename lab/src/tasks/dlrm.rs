//! `dlrm` predicts whether an advertisement is clicked, on Criteo's click logs, or on a generated log of the same shape whose clicks come
//! from a known model.

mod criteo;
pub(super) mod model;
mod packed;
mod planted;

use super::args::TaskArgs;
use super::cardinalities::Cardinalities;
use crate::batch::{Bags, Batch, TableSpec, Target};
use crate::dense::Dense;
use crate::hyper::Hyper;
use crate::metrics::Score;
use crate::order::Mixed;
use crate::task::{About, Bounds, Task};
use criteo::Sample;
use hotrow::{Init, Pooling};
use hotrow_report::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use model::Above;
use packed::Packed;
use planted::Law;
use std::{num::NonZero, ops::Range};

pub(super) const HYPER: Hyper = Hyper::adagrad(16, 128, 0.02);

/// The default number of samples of the generated set.
const TRAIN: usize = 150_000;
const TEST: usize = 300_000;

#[derive(Debug)]
pub(crate) struct Dlrm {
    about: About,
    above: Above,
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
    (above, law): (Above, Law),
    seed: u64,
) -> anyhow::Result<Dlrm> {
    let set = planted::generate(&cardinalities.rows, [train, test], law, seed)?;
    let (bounds, Score { loss, auc, .. }) = (set.bounds(), set.score());
    let drifts =
        law.drift.map_or_else(String::new, |every| format!(", other rows popular after every {every} samples"));
    let Bounds { blind, floor, best } = bounds;
    let source = format!(
        "generated click log of Criteo's shape, seed {seed}{drifts}; best reachable log-loss {best:.4} ({loss:.4} on the labels drawn), \
         AUC {:.4}; without the tables of more than 1,000 rows, which have {:.0} % of the logit's variance: {floor:.4}; with no features at all: \
         {blind:.4}",
        auc.unwrap_or(f64::NAN),
        100.0 * law.large_share
    );
    let about = About { bounds: Some(bounds), ..about(&source, [train, test], cardinalities, above) };
    let drifts = law.drift.is_some();
    Ok(Dlrm { about, above, clicks: Clicks::Generated { train: set.train, test: set.test, drifts } })
}

fn about(source: &str, [train, test]: [usize; 2], cardinalities: &Cardinalities, above: Above) -> About {
    let table = |(table, &rows): (usize, &u32)| {
        // As in DLRM, first values are wider for tables of fewer rows.
        let limit = 1.0 / (rows as f32).sqrt();
        TableSpec {
            name: format!("C{}", table + 1),
            rows,
            pooling: Pooling::Sum,
            init: Init::Uniform { low: -limit, high: limit },
            by_dim: false,
            stream: 0,
        }
    };
    About {
        name: "dlrm",
        model: Some(above.name()),
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
        let Some(log) = &args.criteo else {
            let train = args.limit().map_or(TRAIN, |limit| limit.max(TRAIN));
            return generated(
                &args.cardinalities.clone().unwrap_or_default(),
                [train, TEST],
                (args.model, Law { drift: args.drift.map(NonZero::get), large_share: args.large_share()? }),
                seed,
            );
        };
        let rows = args.cardinalities.as_ref().map(|cardinalities| &cardinalities.rows);
        let packed = Packed::open(log, args.packed.as_deref(), rows)?;
        let header = packed.header;
        let cardinalities = args.cardinalities.clone().unwrap_or_else(|| Cardinalities::found(header.rows));
        let [train, test] = [header.test, header.lines - header.test].map(usize::try_from);
        let samples = [train?.min(args.limit().unwrap_or(usize::MAX)), test?];
        let about = about(&format!("{}: Criteo's click log", log.display()), samples, &cardinalities, args.model);
        Ok(Self { about, above: args.model, clicks: Clicks::Packed(packed) })
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

    fn dense(&self, dim: usize) -> Box<dyn Dense> {
        self.above.dense(CRITEO_COUNTS, CRITEO_CATEGORIES, dim)
    }
}

/// A small set of generated clicks.
#[cfg(test)]
pub(crate) fn small(samples: [usize; 2], seed: u64) -> Dlrm {
    let cardinalities = "300".parse().unwrap();
    generated(&cardinalities, samples, (Above::Dlrm, Law { drift: None, large_share: 0.5 }), seed).unwrap()
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
