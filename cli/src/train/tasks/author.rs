//! Who wrote this paragraph, or sentence: mean-pooled word embeddings, and a softmax over eight authors.

use super::{Choices, labels};
use crate::names::OptimizerName;
use crate::trace::{self, Source};
use crate::train::dense::{Dense, Fresh, Mlp};
use crate::train::task::{Bags, Batch, Defaults, TableSpec, Target, Task};
use anyhow::Context as _;
use candle_core::{Result, Tensor, Var};
use hotrow::hash::fmix32;
use hotrow::{Init, Pooling};
use std::ops::Range;

const AUTHORS: usize = 8;
const DIM: u32 = 32;

#[derive(Debug)]
pub(crate) struct Author {
    name: String,
    ids: Vec<u32>,
    /// Where each bag starts, and the end of the last.
    offsets: Vec<u32>,
    labels: Vec<u8>,
    /// Bags of either part.
    train: Vec<u32>,
    test: Vec<u32>,
    tables: [TableSpec; 1],
}

impl Author {
    pub(crate) fn open(choices: &Choices) -> anyhow::Result<Self> {
        let folder = choices.folder("author")?;
        let words = trace::load("ebooks_words", &Source { data: Some(folder), seed: 0 })?;
        let name = if choices.sentences { "ebooks_sentences" } else { "ebooks_words" };
        let offsets = trace::companion(folder, &format!("{name}.offsets.u32"))?;
        let offsets = trace::read_offsets(&offsets, words.ids.len())?;
        let labels = labels(folder, name, offsets.len() - 1, AUTHORS as u8)?;
        // A fifth, by the number of the bag (the data's README, 7).
        let (test, train) = (0..labels.len() as u32).partition::<Vec<_>, _>(|&bag| fmix32(bag).is_multiple_of(5));
        let rows = words.ids.iter().max().context("no words")? + 1;
        let table = TableSpec {
            name: "words".into(),
            rows,
            dim: choices.dim.unwrap_or(DIM),
            pooling: Pooling::Mean,
            init: Init::Uniform { low: -0.1, high: 0.1 },
            stream: 0,
        };
        Ok(Self { name: name.into(), ids: words.ids, offsets, labels, train, test, tables: [table] })
    }

    fn batch(&self, bags: impl Iterator<Item = u32>) -> Batch {
        let mut batch = Batch { bags: vec![Bags::new()], ..Batch::default() };
        for bag in bags.map(|bag| bag as usize) {
            let words = self.offsets[bag] as usize..self.offsets[bag + 1] as usize;
            batch.bags[0].push(self.ids[words].iter().copied());
            batch.labels.push(self.labels[bag].into());
            batch.samples += 1;
        }
        batch
    }
}

impl Task for Author {
    fn name(&self) -> &'static str {
        "author"
    }

    fn source(&self) -> String {
        format!("{}: {} bags of words to train, {} to test", self.name, self.train.len(), self.test.len())
    }

    fn tables(&self) -> &[TableSpec] {
        &self.tables
    }

    fn target(&self) -> Target {
        Target::Classes(AUTHORS)
    }

    fn defaults(&self) -> Defaults {
        Defaults { batch: 32, epochs: 2, optimizer: OptimizerName::Adagrad, lr: 0.1, dense_lr: 0.1, decay: true }
    }

    fn train_len(&self) -> usize {
        self.train.len()
    }

    fn test_len(&self) -> usize {
        self.test.len()
    }

    fn train_batch(&self, samples: &[u32], _: u64, _: u32) -> Batch {
        self.batch(samples.iter().map(|&sample| self.train[sample as usize]))
    }

    fn test_batch(&self, samples: Range<usize>) -> Batch {
        self.batch(self.test[samples].iter().copied())
    }

    fn dense(&self, seed: u64) -> Result<Box<dyn Dense>> {
        let dim = self.tables[0].dim as usize;
        Ok(Box::new(Model { mlp: Mlp::new(&[dim, AUTHORS], &mut Fresh::new(seed))? }))
    }
}

struct Model {
    mlp: Mlp,
}

impl Dense for Model {
    fn logits(&self, embedded: &[Tensor], _: &Batch) -> Result<Tensor> {
        self.mlp.forward(&embedded[0])
    }

    fn vars(&self) -> Vec<&Var> {
        self.mlp.vars()
    }
}
