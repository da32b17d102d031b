//! Who wrote this paragraph, or sentence: mean-pooled word embeddings, and a softmax over eight authors.

use super::bags::{BagTask, Labelled};
use super::{TaskArgs, folder, labels};
use crate::names::OptimizerName;
use crate::trace::{self, Source};
use crate::train::dense::{Dense, Fresh, Mlp};
use crate::train::task::{About, Defaults, TableSpec, Target};
use anyhow::Context as _;
use candle_core::Result;
use hotrow::hash::fmix32;
use hotrow::{Init, Pooling};

const AUTHORS: usize = 8;
const DIM: u32 = 32;
const DEFAULTS: Defaults =
    Defaults { batch: 32, epochs: 2, optimizer: OptimizerName::AdaGrad, lr: 0.1, dense_lr: 0.1, decay: true };

pub(super) fn open(args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<BagTask> {
    let folder = folder(source, "author")?;
    let words = trace::load("ebooks_words", &Source { data: Some(folder), seed: 0 })?;
    let name = if args.sentences { "ebooks_sentences" } else { "ebooks_words" };
    let offsets = trace::companion(folder, &format!("{name}.offsets.u32"))?;
    let offsets = trace::read_offsets(&offsets, words.ids.len())?;
    let labels = labels(folder, name, offsets.len() - 1, AUTHORS as u8)?;
    // A fifth, by the number of the bag (the data's README, 7).
    let (test, train) = (0..labels.len() as u32).partition::<Vec<_>, _>(|&bag| fmix32(bag).is_multiple_of(5));
    let table = TableSpec {
        name: "words".into(),
        rows: words.ids.iter().max().context("no words")? + 1,
        dim: args.dim.unwrap_or(DIM),
        pooling: Pooling::Mean,
        init: Init::Uniform { low: -0.1, high: 0.1 },
        stream: 0,
    };
    let about = About {
        name: "author",
        source: format!("{name}: {} bags of words to train, {} to test", train.len(), test.len()),
        tables: vec![table],
        target: Target::Classes(AUTHORS),
        defaults: DEFAULTS,
        train: train.len(),
        test: test.len(),
        bounds: None,
    };
    let dense =
        |dim, seed| -> Result<Box<dyn Dense>> { Ok(Box::new(Mlp::new(&[dim, AUTHORS], &mut Fresh::new(seed))?)) };
    Ok(BagTask { about, data: Labelled { ids: words.ids, offsets, labels, train, test }, dense })
}
