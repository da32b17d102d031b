//! What samples look up: tables, bags of rows, and batches of them with their labels.

use hotrow::{Init, Pooling};

#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) rows: u32,
    pub(crate) pooling: Pooling,
    /// First values. Those of `by_dim` are divided by the dim.
    pub(crate) init: Init,
    pub(crate) by_dim: bool,
    /// The stream. Tables of one stream have the same number of bags in every batch, so they may share a group.
    pub(crate) stream: usize,
}

impl TableSpec {
    /// The first values of rows of `dim` floats.
    pub(crate) fn init(&self, dim: u32) -> Init {
        match self.init {
            Init::Uniform { low, high } if self.by_dim => {
                Init::Uniform { low: low / dim as f32, high: high / dim as f32 }
            }
            init => init,
        }
    }
}

/// The lookups of a batch in one table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bags {
    pub(crate) indices: Vec<u32>,
    /// The start of each bag, and the end of the last one.
    pub(crate) offsets: Vec<u32>,
}

impl Bags {
    pub(crate) fn new() -> Self {
        Self { indices: Vec::new(), offsets: vec![0] }
    }

    pub(crate) fn push(&mut self, indices: impl IntoIterator<Item = u32>) {
        self.indices.extend(indices);
        self.offsets.push(self.indices.len() as u32);
    }

    /// The bags of several lists, one list after the other.
    pub(crate) fn joined<'a>(lists: impl Iterator<Item = &'a Self>) -> Self {
        let mut joined = Self::new();
        for one in lists {
            let base = joined.indices.len() as u32;
            joined.offsets.extend(one.offsets[1..].iter().map(|&offset| base + offset));
            joined.indices.extend(&one.indices);
        }
        joined
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Batch {
    pub(crate) bags: Vec<Bags>,
    /// Numbers beside the ids, `[samples, dense features]`.
    pub(crate) dense: Vec<f32>,
    /// The class of each sample; for a binary target 0 or 1 for each logit.
    pub(crate) labels: Vec<u32>,
    pub(crate) samples: usize,
}

/// The meaning of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Logits `[samples, classes]`, one of which is right.
    Classes(usize),
    /// Logits `[samples, n]`, each right or wrong by itself. The loss of a sample is the sum over its logits.
    Binary,
}
