//! DLRM above its tables: a bottom MLP makes a vector of the counts; the dot products of all pairs of vectors and that vector go into a top
//! MLP (Naumov et al. 2019, as Yang 2020, 4.3, trains it).

use crate::dense::{Dense, Fresh, Mlp, tensor};
use crate::task::Batch;
use burn::tensor::{Int, Tensor, TensorData, activation};

/// Widths of the hidden layers.
const BOTTOM: usize = 64;
const TOP: usize = 64;

pub(super) struct Model {
    counts: usize,
    bottom: Mlp,
    top: Mlp,
    /// Positions of the lower triangle in the matrix of vectors by vectors, row by row.
    pairs: Vec<i32>,
}

impl Model {
    /// A model for `counts` numbers and `tables` embedded vectors of `dim`.
    pub(super) fn new(counts: usize, tables: usize, dim: usize) -> Self {
        let vectors = tables + 1;
        let pairs: Vec<i32> = (0..vectors).flat_map(|i| (0..i).map(move |j| (i * vectors + j) as i32)).collect();
        let (bottom, top) = (Mlp(vec![counts, BOTTOM, dim]), Mlp(vec![dim + pairs.len(), TOP, 1]));
        Self { counts, bottom, top, pairs }
    }
}

impl Dense for Model {
    fn weights(&self, fresh: &mut Fresh<'_>) -> Vec<Tensor<2>> {
        [self.bottom.weights(fresh), self.top.weights(fresh)].concat()
    }

    fn logits(&self, weights: &[Tensor<2>], embedded: &[Tensor<2>], batch: &Batch) -> Tensor<2> {
        let (of_bottom, of_top) = weights.split_at(self.bottom.count());
        let device = embedded[0].device();
        let counts = tensor(batch.dense.clone(), [batch.samples, self.counts], &device);
        let bottom = activation::relu(self.bottom.forward(of_bottom, counts));
        let vectors = std::iter::once(&bottom).chain(embedded).cloned().collect();
        let vectors = Tensor::stack::<3>(vectors, 1);
        let products = vectors.clone().matmul(vectors.swap_dims(1, 2)).flatten::<2>(1, 2);
        let pairs = Tensor::<1, Int>::from_data(TensorData::new(self.pairs.clone(), [self.pairs.len()]), &device);
        self.top.forward(of_top, Tensor::cat(vec![bottom, products.select(1, pairs)], 1))
    }
}
