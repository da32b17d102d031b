//! Which word stands between these: CBOW with negative sampling (Mikolov et al. 2013). The mean of the neighbours' vectors, times the
//! output vectors of the word itself and of words that were drawn.

use super::{TaskArgs, folder};
use crate::names::OptimizerName;
use crate::trace::{self, Source};
use crate::train::dense::Dense;
use crate::train::dots::dots;
use crate::train::task::{About, Bags, Batch, Defaults, TableSpec, Target, Task};
use anyhow::ensure;
use candle_core::{Result, Tensor, Var};
use hotrow::rng::pcg4d;
use hotrow::{Init, Pooling};
use std::ops::Range;

const DIM: u32 = 32;
const DEFAULTS: Defaults =
    Defaults { batch: 256, epochs: 1, optimizer: OptimizerName::RowWiseAdaGrad, lr: 0.1, dense_lr: 0.1, decay: true };
/// Neighbours on either side.
const WINDOW: usize = 4;
/// Words drawn for each word of the text.
const NEGATIVES: usize = 5;
/// Tokens of the trace's parts (the data's README, 3).
const TRAIN: usize = 2_088_628;
const TEST: usize = 245_569;
/// Entries of the table from which words are drawn, log 2.
const DRAW_BITS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Words {
    train: Vec<u32>,
    test: Vec<u32>,
    /// Each word as often as it shall be drawn.
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
        Ok(Self::of(ids[..TRAIN].to_vec(), test, args.dim.unwrap_or(DIM)))
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
            defaults: DEFAULTS,
            train: train.len(),
            test: test.len(),
            bounds: None,
        };
        Self { draw: draw_table(&train, rows), train, test, about }
    }

    /// `key` decides what is drawn beside the word at each place.
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

/// Every word in proportion to its count in the training text to the power of 3/4.
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
    // Rounding may leave the last entry open.
    let last = draw.last().copied().unwrap_or(0);
    draw.resize(entries, last);
    draw
}

impl Task for Words {
    fn about(&self) -> &About {
        &self.about
    }

    fn train_batch(&self, samples: &[u32], seed: u64, epoch: u32) -> Batch {
        let key = [seed as u32, (seed >> 32) as u32 ^ (epoch + 1)];
        self.batch(&self.train, samples.iter().map(|&sample| sample as usize), key)
    }

    fn test_batch(&self, samples: Range<usize>) -> Batch {
        self.batch(&self.test, samples, [u32::MAX; 2])
    }

    fn dense(&self, _: u64) -> Result<Box<dyn Dense>> {
        Ok(Box::new(Model))
    }
}

/// Nothing but a product: all weights are in the tables.
struct Model;

impl Dense for Model {
    fn logits(&self, embedded: &[Tensor], _: &Batch) -> Result<Tensor> {
        dots(&embedded[0], &embedded[1])
    }

    fn vars(&self) -> Vec<&Var> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Words {
        // Word 0 sixteen times, word 1 once, and so on, in turn.
        let train: Vec<u32> = (0..17).map(|at| u32::from(at == 5)).chain([2, 3]).collect();
        Words::of(train, vec![3, 2, 1, 0, 2], 4)
    }

    #[test]
    fn neighbours_within_the_window_and_the_word_itself() {
        let batch = small().test_batch(1..3);
        assert_eq!((batch.samples, batch.bags.len()), (2, 2));
        assert_eq!(batch.bags[0].indices, [3, 1, 0, 2, 3, 2, 0, 2]);
        assert_eq!(batch.bags[0].offsets, [0, 4, 8]);
        assert_eq!(batch.bags[1].offsets, [0, 6, 12]);
        assert_eq!((batch.bags[1].indices[0], batch.bags[1].indices[6]), (2, 1));
        assert_eq!(batch.labels, [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        let wide = Words::of((0..100).collect(), vec![0], 4).train_batch(&[50], 0, 0);
        assert_eq!(wide.bags[0].indices, [46, 47, 48, 49, 51, 52, 53, 54]);
    }

    #[test]
    fn words_are_drawn_by_seed_epoch_and_place() {
        let words = Words::of((0..1000).collect(), (0..10).collect(), 4);
        let drawn = |samples: &[u32], seed, epoch| words.train_batch(samples, seed, epoch).bags[1].indices.clone();
        assert_eq!(drawn(&[3, 9], 1, 0), drawn(&[3, 9], 1, 0));
        assert_eq!(drawn(&[9, 3], 1, 0)[..6], drawn(&[3, 9], 1, 0)[6..], "whatever stands before");
        assert_ne!(drawn(&[3], 1, 0), drawn(&[3], 2, 0));
        assert_ne!(drawn(&[3], 1, 0), drawn(&[3], 1, 1));
        assert_eq!(words.test_batch(2..4), words.test_batch(2..4));
    }

    #[test]
    fn words_are_drawn_by_their_counts_to_three_quarters() {
        let draw = small().draw;
        assert_eq!(draw.len(), 1 << DRAW_BITS);
        // 16 times as often in the text: 8 times as often drawn, of 8 + 3 in all.
        for (id, wanted) in [(0, 8.0 / 11.0), (1, 1.0 / 11.0), (2, 1.0 / 11.0), (3, 1.0 / 11.0)] {
            let share = draw.iter().filter(|&&other| other == id).count() as f64 / draw.len() as f64;
            assert!((share - wanted).abs() < 1e-5, "{id}: {share}");
        }
    }
}
