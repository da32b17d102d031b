//! DLRM above its tables: a bottom MLP makes a vector of the counts; the dot products of all pairs of vectors and that vector go into a top
//! MLP (Naumov et al. 2019, as Yang 2020, 4.3, trains it). Or the vectors and the counts side by side go into an MLP (Zhang 2018, appendix C).

use crate::batch::Batch;
use crate::dense::{Dense, Fresh, Mlp, tensor};
use burn::tensor::{Int, Tensor, TensorData, activation};
use serde::Deserialize;
use std::iter;

/// Widths of the hidden layers.
const BOTTOM: usize = 64;
const TOP: usize = 64;
const CONCAT: usize = 512;

/// What is above the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Above {
    /// Dot products of pairs.
    #[default]
    Dlrm,
    /// All side by side.
    Concat,
}

impl Above {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dlrm => "dlrm",
            Self::Concat => "concat",
        }
    }

    /// The model for `counts` numbers and `tables` embedded vectors of `dim`.
    pub(super) fn dense(self, counts: usize, tables: usize, dim: usize) -> Box<dyn Dense> {
        match self {
            Self::Dlrm => Box::new(Model::new(counts, tables, dim)),
            Self::Concat => Box::new(Concat(counts, Mlp(vec![counts + tables * dim, CONCAT, CONCAT, 1]))),
        }
    }
}

/// A number of counts, and the MLP above counts and vectors.
struct Concat(usize, Mlp);

impl Dense for Concat {
    fn weights(&self, fresh: &mut Fresh<'_>) -> Vec<Tensor<2>> {
        self.1.weights(fresh)
    }

    fn logits(&self, weights: &[Tensor<2>], embedded: &[Tensor<2>], batch: &Batch) -> Tensor<2> {
        let counts = tensor(batch.dense.clone(), [batch.samples, self.0], &embedded[0].device());
        self.1.forward(weights, Tensor::cat(iter::once(counts).chain(embedded.iter().cloned()).collect(), 1))
    }
}

struct Model {
    counts: usize,
    bottom: Mlp,
    top: Mlp,
    /// Positions of the lower triangle in the matrix of vectors by vectors, row by row.
    pairs: Vec<i32>,
}

impl Model {
    fn new(counts: usize, tables: usize, dim: usize) -> Self {
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
        let vectors = iter::once(&bottom).chain(embedded).cloned().collect();
        let vectors = Tensor::stack::<3>(vectors, 1);
        let products = vectors.clone().matmul(vectors.swap_dims(1, 2)).flatten::<2>(1, 2);
        let pairs = Tensor::<1, Int>::from_data(TensorData::new(self.pairs.clone(), [self.pairs.len()]), &device);
        self.top.forward(of_top, Tensor::cat(vec![bottom, products.select(1, pairs)], 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{cpu, values};

    #[test]
    fn a_model_of_all_side_by_side_by_hand() {
        let of = |values: &[f32], shape| tensor(values.to_vec(), shape, &cpu());
        // One count and two tables of dim 1, and one neuron a layer.
        let weights = [of(&[1.0, 10.0, 100.0], [3, 1]), of(&[0.5], [1, 1]), of(&[2.0], [1, 1]), of(&[-1.0], [1, 1])];
        let model = Concat(1, Mlp(vec![3, 1, 1]));
        let embedded = [of(&[2.0, -3.0], [2, 1]), of(&[3.0, 0.0], [2, 1])];
        let batch = Batch { dense: vec![1.0, 4.0], samples: 2, ..Batch::default() };
        // 1 + 20 + 300 + 0.5, and 4 - 30 + 0.5, which the rectifier holds at 0.
        assert_eq!(values(model.logits(&weights, &embedded, &batch)), [642.0, -1.0]);
        let shapes = Above::Concat.dense(13, 26, 4).weights(&mut Fresh::new(1, &cpu()));
        let shapes: Vec<_> = shapes.iter().map(Tensor::dims).collect();
        assert_eq!(shapes, [[117, 512], [1, 512], [512, 512], [1, 512], [512, 1], [1, 1]]);
    }
}
