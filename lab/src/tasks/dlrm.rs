//! `dlrm` predicts whether an advertisement is clicked, on Criteo's click logs, or on a generated log of the same shape whose clicks come
//! from a known model.

mod criteo;
mod model;
mod planted;
mod sample;

use super::args::TaskArgs;
use super::cardinalities::Cardinalities;
use crate::metrics::Score;
use crate::task::{About, Bags, Batch, Dense, Hyper, TableSpec, Target, Task};
use candle_core::Result;
use hotrow::{Init, Pooling};
use hotrow_cli::trace::{CRITEO_CATEGORIES, CRITEO_COUNTS};
use model::Model;
use sample::Sample;
use std::ops::Range;

const DIM: u32 = 16;
pub(super) const HYPER: Hyper = Hyper::adagrad(128, 0.02);

/// The default number of samples of the generated set.
const TRAIN: usize = 150_000;
const TEST: usize = 30_000;

#[derive(Debug)]
pub(crate) struct Dlrm {
    about: About,
    train: Vec<Sample>,
    test: Vec<Sample>,
}

impl Dlrm {
    pub(crate) fn open(args: &TaskArgs, seed: u64) -> anyhow::Result<Self> {
        let cardinalities = args.cardinalities.clone().unwrap_or_default();
        let dim = args.dim().unwrap_or(DIM);
        if let Some(path) = &args.criteo {
            let samples = criteo::read(path, &cardinalities.rows, args.limit())?;
            let source = format!("{}: Criteo's click log", path.display());
            return Ok(Self::new(&source, samples, &cardinalities, dim, None));
        }
        let train = args.limit().map_or(TRAIN, |limit| limit.max(TRAIN));
        Self::generated(&cardinalities, dim, [train, TEST], seed)
    }

    /// The generated set with these numbers of training and test samples.
    fn generated(
        cardinalities: &Cardinalities,
        dim: u32,
        [train, test]: [usize; 2],
        seed: u64,
    ) -> anyhow::Result<Self> {
        let set = planted::generate(&cardinalities.rows, train, test, seed)?;
        let (entropy, blind, Score { loss, auc, .. }) = (set.entropy(), set.blind_loss(), set.score());
        let source = format!(
            "generated click log of Criteo's shape, seed {seed}; best reachable log-loss {entropy:.4} ({loss:.4} on the labels \
             drawn), AUC {:.4}; with no features at all: {blind:.4}",
            auc.unwrap_or(f64::NAN)
        );
        Ok(Self::new(&source, [set.train, set.test], cardinalities, dim, Some([blind, entropy])))
    }

    fn new(
        source: &str,
        [train, test]: [Vec<Sample>; 2],
        cardinalities: &Cardinalities,
        dim: u32,
        bounds: Option<[f64; 2]>,
    ) -> Self {
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

    fn dense(&self, seed: u64) -> Result<Box<dyn Dense>> {
        Ok(Box::new(Model::new(CRITEO_COUNTS, CRITEO_CATEGORIES, self.about.tables[0].dim as usize, seed)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::Keep;
    use crate::run::{self, End, RunOptions};
    use crate::runs::fingerprint;
    use crate::setting::Setting;
    use crate::tables::Device;

    fn set([train, test]: [usize; 2], seed: u64) -> Dlrm {
        Dlrm::generated(&"300".parse().unwrap(), 8, [train, test], seed).unwrap()
    }

    #[test]
    fn other_data_of_the_same_size_have_another_fingerprint() {
        let of = |seed| fingerprint(&set([1500, 500], seed));
        assert_eq!((of(1).len(), of(1)), (8, of(1)));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_short_run_learns_but_not_more_than_there_is() {
        let task = set([8000, 4000], 1);
        let choice = vec![Setting::FP32; task.about.tables.len()];
        let [blind, best] = task.about.bounds.unwrap();
        let trained = |end| {
            let options = RunOptions { hyper: Hyper { batch: 64, ..HYPER }, end, limit: None, device: Device::Cpu };
            run::run(&task, &choice, 1, &options, &Keep::default(), &|_| {}, None).unwrap()
        };
        let found = trained(End::Epochs(1));
        assert!(found.loss < blind - 0.2 * (blind - best) && found.loss > best, "{found:?}, {blind}, {best}");
        assert!(found.auc.unwrap() > 0.6, "{found:?}");
        // Without training the loss does not fall so far.
        assert!(trained(End::Steps(1)).loss > blind - 0.2 * (blind - best));
    }
}
