//! Whether a patient comes back to hospital: 39 categorical fields, each with a vector. Side by side these go into an MLP, to whose logit
//! the products of all pairs of them are added (`DeepFM`, Guo et al. 2017).

use super::bags::{BagTask, Labelled};
use super::{TaskArgs, folder, labels};
use crate::names::OptimizerName;
use crate::trace::{self, Source};
use crate::train::dense::{Dense, Fresh, Mlp};
use crate::train::task::{About, Batch, Defaults, TableSpec, Target};
use anyhow::{Context as _, ensure};
use candle_core::{DType, Device, Result, Tensor, Var};
use hotrow::hash::fmix32;
use hotrow::{Init, Pooling};
use std::collections::HashMap;

const NAME: &str = "diabetes130_fields";
const DIM: u32 = 16;
const HIDDEN: usize = 64;
/// Fields that are learned from. Before them stands the patient's number, which tells training from test.
const FIELDS: usize = 39;

const DEFAULTS: Defaults =
    Defaults { batch: 256, epochs: 3, optimizer: OptimizerName::AdaGrad, lr: 0.02, dense_lr: 0.01, decay: true };

pub(super) fn open(args: &TaskArgs, source: &Source<'_>) -> anyhow::Result<BagTask> {
    let folder = folder(source, "readmission")?;
    let found = trace::load(NAME, &Source { data: Some(folder), seed: 0 })?;
    let offsets = found.offsets.with_context(|| format!("{NAME}.offsets.u32: wanted it beside the ids, found none"))?;
    let bad = offsets.windows(2).position(|pair| pair[1] - pair[0] != 1 + FIELDS as u32);
    if let Some(at) = bad {
        let found = offsets[at + 1] - offsets[at];
        anyhow::bail!(
            "{NAME}: wanted {} fields in each bag, found {found} in bag {at}; get the file again",
            1 + FIELDS
        );
    }
    let labels = labels(folder, NAME, offsets.len() - 1, 2)?;
    of(&found.ids, labels, args.dim.unwrap_or(DIM))
}

/// `ids`: of each encounter the patient's number and its fields. The fields' ids become rows, numbered without the patients.
fn of(ids: &[u32], labels: Vec<u8>, dim: u32) -> anyhow::Result<BagTask> {
    let bags = || ids.chunks_exact(1 + FIELDS);
    // A fifth of the patients (the data's README, 7).
    let is_test = |&at: &u32| fmix32(ids[at as usize * (1 + FIELDS)]).is_multiple_of(5);
    let (test, train): (Vec<_>, Vec<_>) = (0..labels.len() as u32).partition(is_test);
    ensure!(
        !train.is_empty() && !test.is_empty(),
        "{NAME}: wanted patients to train and to test, found {} and {} encounters",
        train.len(),
        test.len()
    );
    let mut numbers = HashMap::new();
    let rows = bags().flat_map(|bag| &bag[1..]).map(|&id| {
        let next = numbers.len() as u32;
        *numbers.entry(id).or_insert(next)
    });
    let rows: Vec<u32> = rows.collect();
    let table = TableSpec {
        name: "fields".into(),
        rows: numbers.len() as u32,
        dim,
        pooling: Pooling::None,
        init: Init::Uniform { low: -0.1, high: 0.1 },
        stream: 0,
    };
    let (trained, tested) = (train.len(), test.len());
    let about = About {
        name: "readmission",
        source: format!("{NAME}: {trained} encounters to train, {tested} of other patients to test, {FIELDS} fields"),
        tables: vec![table],
        target: Target::Binary,
        defaults: DEFAULTS,
        train: trained,
        test: tested,
        bounds: None,
    };
    let dense = |dim, seed| -> Result<Box<dyn Dense>> {
        let mlp = Mlp::new(&[FIELDS * dim, HIDDEN, 1], &mut Fresh::new(seed))?;
        let one = Tensor::eye(dim, DType::F32, &Device::Cpu)?;
        Ok(Box::new(Model { mlp, over_fields: Tensor::cat(&[&one; FIELDS], 0)? }))
    };
    let offsets = (0..=labels.len() as u32).map(|bag| bag * FIELDS as u32).collect();
    Ok(BagTask { about, data: Labelled { ids: rows, offsets, labels, train, test }, dense })
}

struct Model {
    mlp: Mlp,
    /// A field's identity matrix below the other's: a product with it adds the fields up.
    over_fields: Tensor,
}

impl Dense for Model {
    fn logits(&self, embedded: &[Tensor], batch: &Batch) -> Result<Tensor> {
        let fields = embedded[0].reshape((batch.samples, ()))?;
        self.mlp.forward(&fields)? + pairs(&fields, &self.over_fields)?
    }

    fn vars(&self) -> Vec<&Var> {
        self.mlp.vars()
    }
}

/// The dot products of all pairs of a sample's fields, added up: half of the square of the sum less the sum of the squares.
fn pairs(fields: &Tensor, over_fields: &Tensor) -> Result<Tensor> {
    let of_sum = fields.matmul(over_fields)?.sqr()?.sum_keepdim(1)?;
    (of_sum - fields.sqr()?.sum_keepdim(1)?)? * 0.5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::task::Task as _;

    /// Three encounters of two patients: their ids are 0 and 1, of which the first is tested (fmix32(0) = 0).
    fn small() -> BagTask {
        let bag = |patient: u32, last: u32| {
            (0..40).map(move |at| {
                if at == 0 {
                    patient
                } else if at == 39 {
                    last
                } else {
                    at + 100
                }
            })
        };
        let ids: Vec<u32> = bag(0, 200).chain(bag(1, 201)).chain(bag(0, 201)).collect();
        of(&ids, vec![1, 0, 1], 4).unwrap()
    }

    #[test]
    fn patients_tell_the_parts_and_are_no_field() {
        let task = small();
        assert!(!fmix32(1).is_multiple_of(5));
        assert_eq!((task.about.train, task.about.test), (1, 2));
        // 38 fields that all share, and two values of the last.
        assert_eq!(task.about.tables[0].rows, 40);
        let batch = task.test_batch(0..2);
        assert_eq!((batch.samples, &batch.labels[..], &batch.bags[0].offsets[..]), (2, &[1, 1][..], &[0, 39, 78][..]));
        assert_eq!(batch.bags[0].indices[..39], (0..39).collect::<Vec<u32>>());
        assert_eq!(batch.bags[0].indices[39 + 38], 39);
        assert_eq!(task.train_batch(&[0], 0, 0).bags[0].indices[38], 39, "the same value, the same row");
    }

    #[test]
    fn pairs_by_hand() {
        // Three fields of two floats: (1, 2), (3, 4), (-1, 0).
        let fields = Tensor::new(&[[1f32, 2.0, 3.0, 4.0, -1.0, 0.0]], &Device::Cpu).unwrap();
        let one = Tensor::eye(2, DType::F32, &Device::Cpu).unwrap();
        let found = pairs(&fields, &Tensor::cat(&[&one; 3], 0).unwrap()).unwrap();
        // 11, -1 and -3.
        assert_eq!(found.to_vec2::<f32>().unwrap(), [[7.0]]);
    }

    #[test]
    fn a_part_without_patients_is_refused() {
        let ids: Vec<u32> = (0..40).collect();
        let message = of(&ids, vec![0], 4).err().unwrap().to_string();
        assert!(message.contains("found 0 and 1 encounters"), "{message}");
    }
}
