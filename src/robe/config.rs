use super::hash::PRIME;
use crate::{Error, GroupConfig, Init, Optimizer, OptimizerKind, OutOfRange, Pooling, Precision, batch, layout};

/// Which weights a backward goes through. The result is the same bits: of either it is the weights that a chunk of the batch covers
/// that move, by the same sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backward {
    /// All |M|: best where the array is small.
    Dense,
    /// Those that the batch's chunks cover: best where the array is large.
    Sparse,
    /// Dense where the array has no more weights than the batch's chunks.
    Auto,
}

/// Tables of one dim that share an array of weights. Rows are numbered on: `linear row = table base + index`, and it is the linear row
/// that is hashed, so no two tables read alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Rows of each table; they take no memory.
    pub tables: Vec<u32>,
    /// The table each feature reads; bags come feature by feature, the same number for each. Empty: feature i reads table i.
    pub features: Vec<u32>,
    /// Floats in a row, 1 to 2^24.
    pub dim: u32,
    /// FP32 weights of the shared array, |M|: at least a chunk, at most [`PRIME`], beyond which none would be reached.
    pub weights: u32,
    /// Neighbouring values of a row that lie together, Z: 1 or more. The last chunk of a row is shorter where Z does not divide dim.
    pub chunk: u32,
    /// What becomes of the rows of a bag.
    pub pooling: Pooling,
    /// The update rule, SGD or element-wise AdaGrad: a weight's gradient is the sum over all chunks that cover it, and it moves once.
    pub optimizer: Optimizer,
    /// What an index outside its table does.
    pub out_of_range: OutOfRange,
    /// Which weights a backward goes through.
    pub backward: Backward,
    /// What the array holds at first.
    pub init: Init,
    /// Seed of the initial values. The hash has constants of its own.
    pub seed: u32,
}

impl Config {
    /// Tables of `rows` x `dim` in `weights` weights by chunks of `chunk`: sum pooling, SGD at 0.01, and values uniform within
    /// `sqrt(1 / rows)` of the largest table, as the authors' DLRM has it.
    #[must_use]
    pub fn new(tables: &[u32], dim: u32, weights: u32, chunk: u32) -> Self {
        let most = tables.iter().copied().max().unwrap_or(1).max(1);
        let high = (1.0 / f64::from(most)).sqrt() as f32;
        Self {
            tables: tables.to_vec(),
            features: Vec::new(),
            dim,
            weights,
            chunk,
            pooling: Pooling::Sum,
            optimizer: Optimizer::sgd(0.01),
            out_of_range: OutOfRange::Error,
            backward: Backward::Auto,
            init: Init::Uniform { low: -high, high },
            seed: 0,
        }
    }

    /// As [`Config::new`], in `compression` times fewer weights than the rows have values, rounded down.
    ///
    /// # Errors
    /// [`Error::Config`] for a compression that is not finite or below 1, that leaves less than a chunk, or more than [`PRIME`] weights.
    pub fn compressed(tables: &[u32], dim: u32, compression: f64, chunk: u32) -> Result<Self, Error> {
        if !(compression.is_finite() && compression >= 1.0) {
            let wanted = "a finite number from 1 on".into();
            return Err(Error::Config { field: "compression", wanted, found: compression.to_string() });
        }
        let values = tables.iter().map(|&rows| f64::from(rows)).sum::<f64>() * f64::from(dim);
        let weights = (values / compression).floor();
        if weights > f64::from(PRIME) || weights < f64::from(chunk) {
            let wanted = format!("{chunk} to {PRIME} weights, a chunk to the prime");
            return Err(Error::Config {
                field: "compression",
                wanted,
                found: format!("{compression}: {weights} weights"),
            });
        }
        let config = Self::new(tables, dim, weights as u32, chunk);
        config.check().map(|()| config)
    }

    /// How many times fewer weights there are than the rows have values.
    #[must_use]
    pub fn compression(&self) -> f64 {
        self.rows().total_rows() as f64 * f64::from(self.dim) / f64::from(self.weights)
    }

    /// Bytes of weights and optimiser state.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        4 * u64::from(self.weights) * if self.has_state() { 2 } else { 1 }
    }

    /// Everything that can be wrong before a device is asked.
    ///
    /// # Errors
    /// [`Error::Config`] names the field, what was wanted and what was found.
    pub fn check(&self) -> Result<(), Error> {
        self.rows().check()?;
        let fail = |field, wanted: String, found: String| Err(Error::Config { field, wanted, found });
        if self.chunk == 0 || self.chunk > PRIME {
            return fail("chunk", format!("1 to {PRIME}"), self.chunk.to_string());
        }
        if self.weights > PRIME {
            return fail("weights", format!("at most the prime {PRIME}"), self.weights.to_string());
        }
        if self.weights < self.chunk {
            return fail("weights", format!("at least a chunk of {}", self.chunk), self.weights.to_string());
        }
        if self.optimizer.kind == OptimizerKind::RowWiseAdaGrad {
            let wanted = "SGD or element-wise AdaGrad: a shared weight belongs to no row".into();
            return fail("optimizer", wanted, "row-wise AdaGrad".into());
        }
        Ok(())
    }

    /// One state a weight, or none.
    pub(crate) fn has_state(&self) -> bool {
        self.optimizer.kind != OptimizerKind::Sgd
    }

    /// The rows as if they were there: what is checked, numbered and looked up is the same.
    pub(crate) fn rows(&self) -> GroupConfig {
        GroupConfig {
            features: self.features.clone(),
            precision: Precision::Fp32,
            pooling: self.pooling,
            optimizer: self.optimizer,
            out_of_range: self.out_of_range,
            init: self.init,
            seed: self.seed,
            ..GroupConfig::new(&self.tables, self.dim)
        }
    }

    /// Chunks of a row.
    pub(crate) const fn chunks(&self) -> u32 {
        self.dim.div_ceil(self.chunk)
    }

    /// The uniform.
    pub(crate) const fn robe(&self) -> layout::Robe {
        let chunks = self.chunks();
        layout::Robe {
            dim: self.dim,
            chunk: self.chunk,
            chunks,
            starts: self.weights - self.chunk + 1,
            weights: self.weights,
            reach: if self.chunk < self.dim { self.chunk } else { self.dim },
            tail: self.dim - (chunks - 1) * self.chunk,
            dense: 0,
        }
    }

    /// Whether the backward of a batch of `chunks` chunks goes through all weights.
    pub(crate) fn dense(&self, chunks: u32) -> bool {
        match self.backward {
            Backward::Dense => true,
            Backward::Sparse => false,
            Backward::Auto => u64::from(self.weights) <= u64::from(chunks) * u64::from(self.robe().reach),
        }
    }

    /// Chunks of a batch, if 32 bits count them, their weights and the outputs.
    pub(crate) fn batch_chunks(&self, indices: u32, bags: u32) -> Result<u32, Error> {
        let chunks = u64::from(indices) * u64::from(self.chunks());
        let outputs = u64::from(batch::output_rows(&self.rows(), indices, bags)) * u64::from(self.dim);
        let remedy = "split the batch";
        // Invocations that go round add to a place in it what is far below the other half of 32 bits.
        const MOST: u64 = i32::MAX as u64;
        for (what, words) in [("outputs", outputs), ("batch's chunks", chunks * u64::from(self.robe().reach))] {
            if words > MOST {
                return Err(Error::TooLarge { what, wanted: words * 4, limit: MOST * 4, remedy });
            }
        }
        Ok(chunks as u32)
    }

    /// Initial weights from weight `first` on, a multiple of [`BLOCK`]: the same on every machine, whatever dim and chunk are.
    pub(crate) fn initial(&self, first: u32, weights: &mut [f32]) {
        use rayon::prelude::*;
        let blocks = weights.par_chunks_mut(BLOCK as usize).enumerate();
        blocks.for_each(|(k, block)| self.init.row(self.seed, first / BLOCK + k as u32, block));
    }
}

/// Weights whose initial values are drawn as one row.
pub(crate) const BLOCK: u32 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &Config) -> (&'static str, String, String) {
        match config.check() {
            Err(Error::Config { field, wanted, found }) => (field, wanted, found),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let good = Config::new(&[100, 7], 10, 64, 8);
        good.check().unwrap();
        let wrong = [
            (Config { chunk: 0, ..good.clone() }, "chunk", "0"),
            (Config { chunk: 65, ..good.clone() }, "weights", "64"),
            (Config { weights: 0, ..good.clone() }, "weights", "0"),
            (Config { weights: PRIME + 1, ..good.clone() }, "weights", "2038074744"),
            (Config { dim: 0, ..good.clone() }, "dim", "0"),
            (Config { tables: vec![u32::MAX, 5], ..good.clone() }, "tables", "4294967300"),
            (Config { features: vec![2], ..good.clone() }, "features", "2"),
            (Config { optimizer: Optimizer::row_wise_adagrad(0.1), ..good.clone() }, "optimizer", "row-wise AdaGrad"),
            (Config { optimizer: Optimizer { eps: 0.0, ..Optimizer::adagrad(0.1) }, ..good.clone() }, "eps", "0"),
        ];
        for (config, field, found) in wrong {
            let error = refused(&config);
            assert_eq!((error.0, &error.2[..]), (field, found), "{}", error.1);
        }
        for right in [Config { chunk: 64, ..good.clone() }, Config { weights: PRIME, ..good.clone() }, good] {
            right.check().unwrap();
        }
    }

    #[test]
    fn compression_leaves_a_chunk() {
        let config = Config::compressed(&[1000], 64, 1000.0, 32).unwrap();
        assert_eq!((config.weights, config.compression()), (64, 1000.0));
        assert_eq!(Config::compressed(&[1000], 64, 1999.0, 32).unwrap().weights, 32);
        for (rows, compression) in [(1000, 2001.0), (1000, 0.5), (1000, f64::NAN), (1 << 31, 1.0)] {
            match Config::compressed(&[rows], 64, compression, 32) {
                Err(Error::Config { field, .. }) => assert_eq!(field, "compression"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn large_batches_are_refused() {
        let config = Config::new(&[100], 128, 1000, 1);
        assert_eq!(config.batch_chunks(1 << 23, 1).unwrap(), 1 << 30);
        assert!(matches!(config.batch_chunks(1 << 24, 1), Err(Error::TooLarge { what: "batch's chunks", .. })));
        assert!(matches!(config.batch_chunks(1, 1 << 24), Err(Error::TooLarge { what: "outputs", .. })));
        let config = Config { chunk: 128, ..config };
        assert!(config.batch_chunks(1 << 24, 1).is_err(), "2^31 weights");
        assert_eq!(config.batch_chunks((1 << 24) - 1, 1).unwrap(), (1 << 24) - 1);
    }
}
