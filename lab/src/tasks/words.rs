//! Finds the word between its neighbours: CBOW with negative sampling (Mikolov 2013). The mean of the neighbours' vectors is multiplied by
//! the output vectors of the word and of randomly drawn words.

use super::args::folder;
use crate::batch::{Bags, Batch, TableSpec, Target};
use crate::dense::{Dense, Fresh};
use crate::hyper::Hyper;
use crate::task::{About, Task};
use anyhow::ensure;
use burn::tensor::Tensor;
use hotrow::internals::rng::pcg4d;
use hotrow::{Init, OptimizerKind, Pooling};
use hotrow_report::trace::{self, Source};
use std::ops::Range;

pub(super) const HYPER: Hyper =
    Hyper { optimizer: OptimizerKind::RowWiseAdaGrad, decay: true, ..Hyper::adagrad(32, 256, 0.1) };
/// Number of neighbours on either side.
const WINDOW: usize = 4;
/// Number of drawn words for each word of the text.
const NEGATIVES: usize = 5;
/// Number of tokens of the trace's parts (the data's README, 3).
const TRAIN: usize = 2_088_628;
const TEST: usize = 245_569;
/// Log2 of the number of entries in the table from which words are drawn.
const DRAW_BITS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Words {
    train: Vec<u32>,
    test: Vec<u32>,
    /// The table of draws, with each word as often as it should be drawn.
    draw: Vec<u32>,
    about: About,
}

impl Words {
    pub(crate) fn open(source: &Source<'_>) -> anyhow::Result<Self> {
        let folder = folder(source, "words")?;
        let ids = trace::load("wikitext2_words", &Source { data: Some(folder), seed: 0 })?.ids;
        ensure!(
            ids.len() >= TRAIN + TEST,
            "wikitext2_words: wanted {TRAIN} tokens to train and at the end {TEST} to test, found {} in all; get the file again",
            ids.len()
        );
        let test = ids[ids.len() - TEST..].to_vec();
        Ok(Self::of(ids[..TRAIN].to_vec(), test))
    }

    fn of(train: Vec<u32>, test: Vec<u32>) -> Self {
        let rows = train.iter().chain(&test).max().map_or(1, |&id| id + 1);
        let table = |name: &str, pooling, init, stream| TableSpec {
            name: name.into(),
            rows,
            pooling,
            init,
            by_dim: true,
            stream,
        };
        let contexts = table("contexts", Pooling::Mean, Init::Uniform { low: -0.5, high: 0.5 }, 0);
        let outputs = table("outputs", Pooling::None, Init::Constant(0.0), 1);
        let about = About {
            name: "words",
            model: None,
            source: format!(
                "wikitext2_words: {} tokens to train, {} to test, {NEGATIVES} words drawn for each",
                train.len(),
                test.len()
            ),
            tables: vec![contexts, outputs],
            target: Target::Binary,
            train: train.len(),
            test: test.len(),
            bounds: None,
        };
        Self { draw: draw_table(&train, rows), train, test, about }
    }

    /// `key` seeds the draws of each place.
    fn batch(&self, text: &[u32], places: impl Iterator<Item = usize>, key: [u32; 2]) -> Batch {
        let mut batch = Batch { bags: vec![Bags::new(), Bags::new()], ..Batch::default() };
        for place in places {
            let neighbours = (place.saturating_sub(WINDOW)..place).chain(place + 1..text.len().min(place + 1 + WINDOW));
            batch.bags[0].push(neighbours.map(|at| text[at]));
            batch.bags[1].push([text[place]].into_iter().chain(self.negatives(place as u32, key)));
            batch.labels.push(1);
            batch.labels.extend([0; NEGATIVES]);
            batch.samples += 1;
        }
        batch
    }

    fn negatives(&self, place: u32, key: [u32; 2]) -> impl Iterator<Item = u32> {
        let random = (0..2).flat_map(move |k| pcg4d([key[0], key[1], place, k]));
        random.take(NEGATIVES).map(|bits| self.draw[(bits >> (32 - DRAW_BITS)) as usize])
    }
}

/// A table with every word in proportion to its count in the training text to the power of 3/4.
fn draw_table(text: &[u32], rows: u32) -> Vec<u32> {
    let mut weights = vec![0.0; rows as usize];
    text.iter().for_each(|&id| weights[id as usize] += 1.0);
    weights.iter_mut().for_each(|weight: &mut f64| *weight = weight.powf(0.75));
    let total: f64 = weights.iter().sum();
    let entries = 1_usize << DRAW_BITS;
    let (mut draw, mut so_far) = (Vec::with_capacity(entries), 0.0);
    for (id, weight) in (0..).zip(weights) {
        so_far += weight;
        let end = (so_far / total * entries as f64).round() as usize;
        draw.resize(end.min(entries), id);
    }
    // Rounding may leave the last entries free.
    let last = draw.last().copied().unwrap_or(0);
    draw.resize(entries, last);
    draw
}

impl Task for Words {
    fn about(&self) -> &About {
        &self.about
    }

    fn train_batch(&self, samples: &[u64], seed: u64, epoch: u32) -> anyhow::Result<Batch> {
        let key = [seed as u32, (seed >> 32) as u32 ^ (epoch + 1)];
        Ok(self.batch(&self.train, samples.iter().map(|&sample| sample as usize), key))
    }

    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch> {
        Ok(self.batch(&self.test, samples, [u32::MAX; 2]))
    }

    fn dense(&self, _: usize) -> Box<dyn Dense> {
        Box::new(Model)
    }
}

/// A model without weights: all weights are in the tables.
struct Model;

impl Dense for Model {
    fn weights(&self, _: &mut Fresh<'_>) -> Vec<Tensor<2>> {
        Vec::new()
    }

    fn logits(&self, _: &[Tensor<2>], embedded: &[Tensor<2>], _: &Batch) -> Tensor<2> {
        dots(embedded[0].clone(), embedded[1].clone())
    }
}

/// Dot products of each row of `one` with several rows, `[n, d]` and `[n * k, d]` to `[n, k]`: row i with rows i k to i k + k - 1.
fn dots(one: Tensor<2>, several: Tensor<2>) -> Tensor<2> {
    let [n, d] = one.dims();
    let several = several.reshape([n as i32, -1, d as i32]);
    (several * one.unsqueeze_dim::<3>(1)).sum_dim(2).squeeze_dim(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::{cpu, tensor, values};

    fn small() -> Words {
        // Word 0 sixteen times, every other word once.
        let train: Vec<u32> = (0..17).map(|at| u32::from(at == 5)).chain([2, 3]).collect();
        Words::of(train, vec![3, 2, 1, 0, 2])
    }

    #[test]
    fn neighbours_within_the_window_and_the_word_itself() {
        let batch = small().test_batch(1..3).unwrap();
        assert_eq!((batch.samples, batch.bags.len()), (2, 2));
        assert_eq!(batch.bags[0].indices, [3, 1, 0, 2, 3, 2, 0, 2]);
        assert_eq!(batch.bags[0].offsets, [0, 4, 8]);
        assert_eq!(batch.bags[1].offsets, [0, 6, 12]);
        assert_eq!((batch.bags[1].indices[0], batch.bags[1].indices[6]), (2, 1));
        assert_eq!(batch.labels, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn dot_products_and_their_gradients_by_hand() {
        let one = tensor(vec![1.0, 2.0, -1.0, 0.5], [2, 2], &cpu()).require_grad();
        let several = tensor((1..9).map(|i| i as f32).collect(), [4, 2], &cpu()).require_grad();
        let found = dots(one.clone(), several.clone());
        assert_eq!(values(found.clone()), [5.0, 11.0, -2.0, -3.0]);
        // Products with other weights each
        let weights = tensor(vec![1.0, 2.0, 3.0, 4.0], [2, 2], &cpu());
        let gradients = (found * weights).sum().backward();
        assert_eq!(values(one.grad(&gradients).unwrap()), [7.0, 10.0, 43.0, 50.0]);
        assert_eq!(values(several.grad(&gradients).unwrap()), [1.0, 2.0, 2.0, 4.0, -3.0, 1.5, -4.0, 2.0]);
    }
}
