//! DLRM above its tables: a bottom MLP makes a vector of the counts; the dot products of all pairs of vectors and that vector go into a top
//! MLP (Naumov et al. 2019, as Yang 2020, 4.3, trains it).

use crate::dense::{Fresh, Mlp};
use crate::task::{Batch, Dense};
use candle_core::{D, Device, Result, Tensor, Var};

/// Widths of the hidden layers.
const BOTTOM: usize = 64;
const TOP: usize = 64;

pub(super) struct Model {
    counts: usize,
    bottom: Mlp,
    top: Mlp,
    /// Positions of the lower triangle in the matrix of vectors by vectors, row by row.
    pairs: Tensor,
}

impl Model {
    /// A model for `counts` numbers and `tables` embedded vectors of `dim`.
    pub(super) fn new(counts: usize, tables: usize, dim: usize, seed: u64) -> Result<Self> {
        let vectors = tables + 1;
        let pairs: Vec<u32> = (0..vectors).flat_map(|i| (0..i).map(move |j| (i * vectors + j) as u32)).collect();
        let mut fresh = Fresh::new(seed);
        Ok(Self {
            counts,
            bottom: Mlp::new(&[counts, BOTTOM, dim], &mut fresh)?,
            top: Mlp::new(&[dim + pairs.len(), TOP, 1], &mut fresh)?,
            pairs: Tensor::new(pairs, &Device::Cpu)?,
        })
    }
}

impl Dense for Model {
    fn logits(&self, embedded: &[Tensor], batch: &Batch) -> Result<Tensor> {
        let counts = Tensor::from_slice(&batch.dense, (batch.samples, self.counts), &Device::Cpu)?;
        let bottom = self.bottom.forward(&counts)?.relu()?;
        let products = products(&bottom, embedded, &self.pairs)?;
        self.top.forward(&Tensor::cat(&[&bottom, &products], D::Minus1)?)
    }

    fn vars(&self) -> Vec<&Var> {
        [self.bottom.vars(), self.top.vars()].concat()
    }
}

/// The dot products of pairs of vectors, `[samples, pairs]`, in the order of `pairs`. Each vector is `[samples, dim]`.
fn products(bottom: &Tensor, embedded: &[Tensor], pairs: &Tensor) -> Result<Tensor> {
    let vectors: Vec<&Tensor> = std::iter::once(bottom).chain(embedded).collect();
    let vectors = Tensor::stack(&vectors, 1)?;
    vectors.matmul(&vectors.t()?)?.flatten_from(1)?.index_select(pairs, 1)
}
