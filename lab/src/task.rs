//! A learning task: samples, the tables that they look up, and the model above.

use crate::batch::{Batch, TableSpec, Target};
use crate::dense::Dense;
use crate::order::Mixed;
use std::ops::Range;

/// The description of a loaded task.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    /// The name of the model, if the task has several.
    pub(crate) model: Option<&'static str>,
    /// A description of the data for the user.
    pub(crate) source: String,
    pub(crate) tables: Vec<TableSpec>,
    pub(crate) target: Target,
    pub(crate) train: usize,
    pub(crate) test: usize,
    /// For generated data: the losses that models lie between.
    pub(crate) bounds: Option<Bounds>,
}

/// Losses that are known of generated data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of predicting the base rate.
    pub(crate) blind: f64,
    /// The lowest reachable one without the rows of large tables.
    pub(crate) floor: f64,
    /// The lowest reachable one.
    pub(crate) best: f64,
}

impl Bounds {
    /// How far a loss is on the way from the base rate's to the best, in percent.
    pub(crate) fn way(&self, loss: f64) -> f64 {
        100.0 * (self.blind - loss) / (self.blind - self.best)
    }
}

/// Data, tables and a model.
pub(crate) trait Task: Send + Sync {
    fn about(&self) -> &About;

    /// How the samples of an epoch are mixed.
    fn mixed(&self) -> Mixed {
        Mixed::Whole
    }

    /// A CRC-32 of all samples, if it is known without reading them.
    fn crc(&self) -> Option<u32> {
        None
    }

    /// The batch of training samples at these positions. Random draws, such as negative samples, depend on seed, epoch and position only.
    fn train_batch(&self, samples: &[u64], seed: u64, epoch: u32) -> anyhow::Result<Batch>;

    /// The batch of these test samples, the same in every call.
    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch>;

    /// The part of the model above tables of `dim` floats a row.
    fn dense(&self, dim: usize) -> Box<dyn Dense>;
}

/// The most samples of each set that the fingerprint covers.
const SAMPLES: usize = 1024;

/// A CRC-32 of the data, as 8 hexadecimal digits: of all samples of a packed log, else of the first training and test samples. It is the same on
/// every machine and for every seed.
pub(crate) fn fingerprint(task: &dyn Task) -> anyhow::Result<String> {
    let of_first = || -> anyhow::Result<u32> {
        let places: Vec<u64> = (0..SAMPLES.min(task.about().train) as u64).collect();
        let batches = [task.test_batch(0..SAMPLES.min(task.about().test))?, task.train_batch(&places, 0, 0)?];
        // As text each list has its borders, and each float all its digits.
        Ok(crc32fast::hash(format!("{batches:?}").as_bytes()))
    };
    Ok(format!("{:08x}", task.crc().map_or_else(of_first, Ok)?))
}
