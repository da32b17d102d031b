//! Tasks of labelled bags of ids: one table, and a fifth of the bags held out.
//!
//! `author` finds the author of a paragraph or sentence, with mean-pooled word embeddings and a softmax over eight authors.
//!
//! `readmission` predicts whether a patient returns to hospital, from 39 categorical fields with a vector each. The vectors side by side go
//! into an MLP; the dot products of all pairs are added to its logit (`DeepFM`, Guo 2017).

use super::args::{TaskArgs, folder, labels};
use crate::batch::{Bags, Batch, TableSpec, Target};
use crate::dense::{Dense, Fresh, Mlp};
use crate::hyper::Hyper;
use crate::task::{About, Task};
use anyhow::{Context as _, ensure};
use burn::tensor::Tensor;
use hotrow::{Init, Pooling};
use hotrow_report::fmix32;
use hotrow_report::trace::{self, Source};
use std::{collections::HashMap, ops::Range};

const AUTHORS: usize = 8;
pub(crate) const AUTHOR: Hyper = Hyper { decay: true, ..Hyper::adagrad(32, 32, 0.1) };

const FIELDS_FILE: &str = "diabetes130_fields";
/// Fields to learn from. The patient's number before them only separates training from test.
const FIELDS: usize = 39;
const HIDDEN: usize = 64;
pub(super) const READMISSION: Hyper = Hyper { decay: true, dense_lr: 0.01, ..Hyper::adagrad(16, 256, 0.02) };

pub(super) struct BagTask {
    about: About,
    ids: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    offsets: Vec<u32>,
    labels: Vec<u8>,
    train: Vec<u32>,
    test: Vec<u32>,
    /// Makes the dense part from the table's dim.
    dense: fn(usize) -> Box<dyn Dense>,
}

impl BagTask {
    fn batch(&self, bags: impl Iterator<Item = u32>) -> Batch {
        let mut batch = Batch { bags: vec![Bags::new()], ..Batch::default() };
        for bag in bags.map(|bag| bag as usize) {
            let ids = self.offsets[bag] as usize..self.offsets[bag + 1] as usize;
            batch.bags[0].push(self.ids[ids].iter().copied());
            batch.labels.push(self.labels[bag].into());
            batch.samples += 1;
        }
        batch
    }
}

impl Task for BagTask {
    fn about(&self) -> &About {
        &self.about
    }

    fn train_batch(&self, samples: &[u64], _: u64, _: u32) -> anyhow::Result<Batch> {
        Ok(self.batch(samples.iter().map(|&sample| self.train[sample as usize])))
    }

    fn test_batch(&self, samples: Range<usize>) -> anyhow::Result<Batch> {
        Ok(self.batch(self.test[samples].iter().copied()))
    }

    fn dense(&self, dim: usize) -> Box<dyn Dense> {
        (self.dense)(dim)
    }
}

fn table(name: &str, rows: u32, pooling: Pooling) -> TableSpec {
    let init = Init::Uniform { low: -0.1, high: 0.1 };
    TableSpec { name: name.to_owned(), rows, pooling, init, by_dim: false, stream: 0 }
}

pub(super) fn author(args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<BagTask> {
    let folder = folder(source, "author")?;
    let ids = trace::load("ebooks_words", &Source { data: Some(folder), seed: 0 })?.ids;
    let name = if args.sentences { "ebooks_sentences" } else { "ebooks_words" };
    let offsets = trace::companion(folder, &format!("{name}.offsets.u32"))?;
    let offsets = trace::read_offsets(&offsets, ids.len())?;
    let labels = labels(folder, name, offsets.len() - 1, AUTHORS as u8)?;
    // A fifth of the bags, chosen by their number (the data's README, 7).
    let (test, train) = (0..labels.len() as u32).partition::<Vec<_>, _>(|&bag| fmix32(bag).is_multiple_of(5));
    let rows = ids.iter().max().context("no words")? + 1;
    let about = About {
        name: "author",
        model: None,
        source: format!("{name}: {} bags of words to train, {} to test", train.len(), test.len()),
        tables: vec![table("words", rows, Pooling::Mean)],
        target: Target::Classes(AUTHORS),
        train: train.len(),
        test: test.len(),
        bounds: None,
    };
    let dense = |dim| -> Box<dyn Dense> { Box::new(Mlp(vec![dim, AUTHORS])) };
    Ok(BagTask { about, ids, offsets, labels, train, test, dense })
}

pub(super) fn readmission(source: &Source<'_>) -> anyhow::Result<BagTask> {
    let folder = folder(source, "readmission")?;
    let found = trace::load(FIELDS_FILE, &Source { data: Some(folder), seed: 0 })?;
    let offsets =
        found.offsets.with_context(|| format!("{FIELDS_FILE}.offsets.u32: wanted it beside the ids, found none"))?;
    let each = 1 + FIELDS as u32;
    if let Some(at) = offsets.windows(2).position(|pair| pair[1] - pair[0] != each) {
        let found = offsets[at + 1] - offsets[at];
        anyhow::bail!("{FIELDS_FILE}: wanted {each} fields in each bag, found {found} in bag {at}; get the file again");
    }
    let labels = labels(folder, FIELDS_FILE, offsets.len() - 1, 2)?;
    of_patients(&found.ids, labels)
}

/// `ids` has the patient's number and the fields of each encounter. The ids of the fields become rows; patients have none.
fn of_patients(ids: &[u32], labels: Vec<u8>) -> anyhow::Result<BagTask> {
    let bags = || ids.chunks_exact(1 + FIELDS);
    // A fifth of the patients (the data's README, 7).
    let is_test = |&at: &u32| fmix32(ids[at as usize * (1 + FIELDS)]).is_multiple_of(5);
    let (test, train): (Vec<_>, Vec<_>) = (0..labels.len() as u32).partition(is_test);
    let (trained, tested) = (train.len(), test.len());
    ensure!(
        trained > 0 && tested > 0,
        "{FIELDS_FILE}: wanted patients of both sets, found {trained} and {tested} encounters"
    );
    let mut numbers = HashMap::new();
    let rows = bags().flat_map(|bag| &bag[1..]).map(|&id| {
        let next = numbers.len() as u32;
        *numbers.entry(id).or_insert(next)
    });
    let rows: Vec<u32> = rows.collect();
    let about = About {
        name: "readmission",
        model: None,
        source: format!(
            "{FIELDS_FILE}: {trained} encounters to train, {tested} of other patients to test, {FIELDS} fields"
        ),
        tables: vec![table("fields", numbers.len() as u32, Pooling::None)],
        target: Target::Binary,
        train: trained,
        test: tested,
        bounds: None,
    };
    let dense = |dim| -> Box<dyn Dense> { Box::new(PairModel(Mlp(vec![FIELDS * dim, HIDDEN, 1]))) };
    let (ids, offsets) = (rows, (0..=labels.len() as u32).map(|bag| bag * FIELDS as u32).collect());
    Ok(BagTask { about, ids, offsets, labels, train, test, dense })
}

/// The MLP and the pairs above the fields.
struct PairModel(Mlp);

impl Dense for PairModel {
    fn weights(&self, fresh: &mut Fresh<'_>) -> Vec<Tensor<2>> {
        self.0.weights(fresh)
    }

    fn logits(&self, weights: &[Tensor<2>], embedded: &[Tensor<2>], batch: &Batch) -> Tensor<2> {
        let fields = embedded[0].clone().reshape([batch.samples as i32, -1]);
        self.0.forward(weights, fields.clone()) + pairs(fields)
    }
}

/// The sum of the dot products of all pairs of a sample's fields: half of the square of the sum less the sum of the squares.
fn pairs(fields: Tensor<2>) -> Tensor<2> {
    let each = fields.clone().reshape([fields.dims()[0] as i32, FIELDS as i32, -1]);
    let of_sum = each.sum_dim(1).squeeze_dim::<2>(1).square().sum_dim(1);
    (of_sum - fields.square().sum_dim(1)) * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three encounters of two patients with numbers 0 and 1; patient 0 is in the test set (fmix32(0) = 0).
    fn small() -> BagTask {
        let bag = |patient: u32, last: u32| [patient].into_iter().chain(101..139).chain([last]);
        let ids: Vec<u32> = bag(0, 200).chain(bag(1, 201)).chain(bag(0, 201)).collect();
        of_patients(&ids, vec![1, 0, 1]).unwrap()
    }

    #[test]
    fn patients_tell_the_parts_and_are_no_field() {
        let task = small();
        assert!(!fmix32(1).is_multiple_of(5));
        assert_eq!((task.about.train, task.about.test), (1, 2));
        // 38 fields with one value for all, and two values of the last field.
        assert_eq!(task.about.tables[0].rows, 40);
        let batch = task.test_batch(0..2).unwrap();
        assert_eq!((batch.samples, &batch.labels[..], &batch.bags[0].offsets[..]), (2, &[1, 1][..], &[0, 39, 78][..]));
        assert_eq!(batch.bags[0].indices[..39], (0..39).collect::<Vec<u32>>());
        assert_eq!(batch.bags[0].indices[39 + 38], 39);
        assert_eq!(task.train_batch(&[0], 0, 0).unwrap().bags[0].indices[38], 39, "the same value, the same row");
    }
}
