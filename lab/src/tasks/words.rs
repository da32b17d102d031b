//! Finds the word between its neighbours: CBOW with negative sampling (Mikolov 2013). The mean of the neighbours' vectors is multiplied by
//! the output vectors of the word and of randomly drawn words.

use super::{TaskArgs, folder};
use crate::task::{About, Bags, Batch, Dense, Hyper, TableSpec, Target, Task};
use anyhow::ensure;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, Var, bail};
use hotrow::rng::pcg4d;
use hotrow::{Init, OptimizerKind, Pooling};
use hotrow_cli::trace::{self, Source};
use std::ops::Range;

const DIM: u32 = 32;
pub(super) const HYPER: Hyper =
    Hyper { optimizer: OptimizerKind::RowWiseAdaGrad, decay: true, ..Hyper::adagrad(256, 0.1) };
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
    pub(crate) fn open(args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<Self> {
        let folder = folder(source, "words")?;
        let ids = trace::load("wikitext2_words", &Source { data: Some(folder), seed: 0 })?.ids;
        ensure!(
            ids.len() >= TRAIN + TEST,
            "wikitext2_words: wanted {TRAIN} tokens to train and at the end {TEST} to test, found {} in all; get the file again",
            ids.len()
        );
        let test = ids[ids.len() - TEST..].to_vec();
        Ok(Self::of(ids[..TRAIN].to_vec(), test, args.dim().unwrap_or(DIM)))
    }

    fn of(train: Vec<u32>, test: Vec<u32>, dim: u32) -> Self {
        let rows = train.iter().chain(&test).max().map_or(1, |&id| id + 1);
        let table =
            |name: &str, pooling, init, stream| TableSpec { name: name.into(), rows, dim, pooling, init, stream };
        let small = 0.5 / dim as f32;
        let contexts = table("contexts", Pooling::Mean, Init::Uniform { low: -small, high: small }, 0);
        let outputs = table("outputs", Pooling::None, Init::Constant(0.0), 1);
        let about = About {
            name: "words",
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

    fn dense(&self, _: u64) -> Result<Box<dyn Dense>> {
        Ok(Box::new(Model))
    }
}

/// A model without weights: all weights are in the tables.
struct Model;

impl Dense for Model {
    fn logits(&self, embedded: &[Tensor], _: &Batch) -> Result<Tensor> {
        dots(&embedded[0], &embedded[1])
    }

    fn vars(&self) -> Vec<&Var> {
        Vec::new()
    }
}

/// Dot products of each row of `one` with several rows, `[n, d]` and `[n * k, d]` to `[n, k]`: row i with rows i k to i k + k - 1. As one
/// operation of candle's, since its own matrix products with strides took half the time of a step.
pub(crate) fn dots(one: &Tensor, several: &Tensor) -> Result<Tensor> {
    one.contiguous()?.apply_op2(&several.contiguous()?, Dots)
}

struct Dots;

impl CustomOp2 for Dots {
    fn name(&self) -> &'static str {
        "dots"
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        let ((n, d), (rows, _)) = (l1.shape().dims2()?, l2.shape().dims2()?);
        let k = rows.checked_div(n).unwrap_or(0);
        if l2.shape().dims() != [n * k, d] || d == 0 {
            bail!("dots: wanted [n, d] and [n * k, d], found {:?} and {:?}", l1.shape(), l2.shape());
        }
        let (one, several) = (values(s1, l1)?, values(s2, l2)?);
        let rows = several.chunks_exact(d).enumerate();
        let products = rows.map(|(at, row)| dot(row, &one[at / k * d..][..d])).collect();
        Ok((CpuStorage::F32(products), (n, k).into()))
    }

    fn bwd(
        &self,
        one: &Tensor,
        several: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let ((n, d), (_, k)) = (one.dims2()?, gradient.dims2()?);
        let flat = |tensor: &Tensor| tensor.flatten_all()?.to_vec1::<f32>();
        let (x, rows, gradient) = (flat(one)?, flat(several)?, flat(gradient)?);
        let (mut by_x, mut by_rows) = (vec![0.0; n * d], vec![0.0; n * k * d]);
        for (at, &g) in gradient.iter().enumerate() {
            let (of_x, of_row) = (at / k * d..at / k * d + d, at * d..at * d + d);
            add_scaled(&mut by_x[of_x.clone()], g, &rows[of_row.clone()]);
            add_scaled(&mut by_rows[of_row], g, &x[of_x]);
        }
        let tensor = |values, shape: &Tensor| Tensor::from_vec(values, shape.shape(), shape.device());
        Ok((Some(tensor(by_x, one)?), Some(tensor(by_rows, several)?)))
    }
}

/// The floats of a contiguous tensor.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice()?[start..end]),
        None => bail!("dots: wanted contiguous tensors, found strides {:?}", layout.stride()),
    }
}

/// Eight partial sums, which the processor can add at once.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
}

fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{D, Device};

    fn small() -> Words {
        // Word 0 sixteen times, every other word once.
        let train: Vec<u32> = (0..17).map(|at| u32::from(at == 5)).chain([2, 3]).collect();
        Words::of(train, vec![3, 2, 1, 0, 2], 4)
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
    fn the_same_as_out_of_candles_own_operations() {
        for (n, k, d) in [(3, 2, 11), (5, 6, 32)] {
            let value = |i: usize| (hotrow::hash::fmix32(i as u32 + 1) % 1000) as f32 / 500.0 - 1.0;
            let var = |rows: usize, from: usize| {
                let values: Vec<f32> = (0..rows * d).map(|i| value(i + from)).collect();
                Var::from_vec(values, (rows, d), &Device::Cpu).unwrap()
            };
            let (one, several) = (var(n, 0), var(n * k, 10_000));
            let own = dots(&one, &several).unwrap();
            let wide = several.reshape((n, k, d)).unwrap();
            let plain = wide.broadcast_mul(&one.unsqueeze(1).unwrap()).unwrap().sum(D::Minus1).unwrap();
            let gap = |a: &Tensor, b: &Tensor| {
                let apart = (a - b).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap();
                apart.to_scalar::<f32>().unwrap()
            };
            assert!(gap(&own, &plain) < 1e-5);
            // A sum in which every product has a weight of its own.
            let weights = var(n, 20_000).narrow(1, 0, 1).unwrap();
            let gradients = |logits: &Tensor| {
                let store =
                    logits.broadcast_mul(&weights).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap();
                [&one, &several].map(|var| store.get(var).unwrap().clone())
            };
            let (own, plain) = (gradients(&own), gradients(&plain));
            assert!(gap(&own[0], &plain[0]) < 1e-4 && gap(&own[1], &plain[1]) < 1e-4);
            assert!(gap(&own[1], &(&plain[1] * 1.01).unwrap()) > 1e-4, "one percent off is told");
        }
    }
}
