//! A rank's part of a batch as requests: which rows it asks whom for, and whose gradients go where.

use std::borrow::Cow;

use hotrow::{
    Error, GradSlice, GroupConfig, OutOfRange, Pooling, ScalerState,
    ranks::{Feature, NONE, output_len},
};

/// How the rows of a group are dealt to ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deal {
    /// The base-2 logarithm of the number of virtual shards.
    pub(crate) shift: u32,
    pub(crate) ranks: u32,
}

impl Deal {
    pub(crate) const fn shards(&self) -> usize {
        1 << self.shift
    }

    /// Number of shards of a rank.
    pub(crate) const fn each(&self) -> usize {
        self.shards() / self.ranks as usize
    }

    /// The shards of a rank.
    pub(crate) const fn of(&self, rank: usize) -> std::ops::Range<usize> {
        rank * self.each()..(rank + 1) * self.each()
    }

    /// A row's shard in the upper bits and its local row in the lower ones.
    const fn key(&self, row: u32) -> u32 {
        row.rotate_right(self.shift)
    }

    pub(crate) const fn shard(&self, key: u32) -> usize {
        key.rotate_left(self.shift) as usize & (self.shards() - 1)
    }

    const fn local(&self, key: u32) -> u32 {
        if self.shift == 0 { key } else { key & (u32::MAX >> self.shift) }
    }
}

/// The requests of a batch.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// The distinct rows of each shard, as rows of the shard, ascending; shard by shard.
    pub(crate) rows: Vec<u32>,
    /// The number of accesses of each row.
    pub(crate) counts: Vec<u32>,
    /// The first row of each shard, and the end of the last one's.
    pub(crate) firsts: Vec<usize>,
    /// For each access the number of its row in `rows`, or NONE if it is left out.
    pub(crate) positions: Vec<u32>,
    /// The accesses that count, row by row, each row's in their order.
    pub(crate) order: Vec<u32>,
    /// For each access, its output row among those in `outputs` of its row's owner.
    pub(crate) slots: Vec<u32>,
    /// For each rank, the output rows that read a row of its.
    pub(crate) outputs: Vec<Vec<u32>>,
    /// For each rank, how many of those output rows each feature has.
    pub(crate) by_feature: Vec<Vec<u32>>,
    /// Indices outside each table, then padding of each, if there are any.
    pub(crate) left_out: Option<Vec<u32>>,
}

impl Requests {
    /// Number of accesses that count.
    pub(crate) fn valid(&self) -> usize {
        self.order.len()
    }

    /// The rows of a shard, as a range of `rows`.
    pub(crate) fn of(&self, shard: usize) -> std::ops::Range<usize> {
        self.firsts[shard]..self.firsts[shard + 1]
    }

    /// The rows of a rank's shards, as a range of `rows`.
    pub(crate) fn of_rank(&self, deal: Deal, rank: usize) -> std::ops::Range<usize> {
        let shards = deal.of(rank);
        self.firsts[shards.start]..self.firsts[shards.end]
    }

    /// Makes the requests of a batch of legal shape. The error is that of the first index outside its table, where the configuration calls it one.
    pub(crate) fn new(
        config: &GroupConfig,
        features: &[Feature],
        deal: Deal,
        (indices, offsets): (&[u32], &[u32]),
    ) -> (Self, Option<Error>) {
        let mut error = None;
        let mut this = Self {
            positions: vec![NONE; indices.len()],
            slots: vec![0; indices.len()],
            outputs: vec![Vec::new(); deal.ranks as usize],
            by_feature: vec![vec![0; features.len()]; deal.ranks as usize],
            ..Self::default()
        };
        let mut keyed = Vec::with_capacity(indices.len());
        let bags = offsets.len() - 1;
        let each = (bags / features.len()).max(1);
        let alone = config.pooling == Pooling::None;
        for bag in 0..bags {
            let feature = bag / each;
            let of = features[feature];
            let Feature { table, base, rows, .. } = of;
            let accesses = offsets[bag] as usize..offsets[bag + 1] as usize;
            for (access, mut index) in accesses.clone().zip(indices[accesses].iter().copied()) {
                let pads = of.pads(index);
                if pads || index >= rows {
                    let tables = config.tables.len();
                    let left_out = this.left_out.get_or_insert_with(|| vec![0; 2 * tables]);
                    left_out[table as usize + if pads { tables } else { 0 }] += 1;
                    if pads {
                        continue;
                    }
                    match config.out_of_range {
                        OutOfRange::Clamp if !of.pads(rows - 1) => index = rows - 1,
                        OutOfRange::Clamp | OutOfRange::Skip => continue,
                        OutOfRange::Error => {
                            let position = access as u32;
                            error.get_or_insert(Error::IndexOutOfRange { table, rows, position, value: index });
                            continue;
                        }
                    }
                }
                let key = deal.key(base + index);
                let owner = deal.shard(key) / deal.each();
                let output = if alone { access } else { bag } as u32;
                let outputs = &mut this.outputs[owner];
                if outputs.last() != Some(&output) {
                    outputs.push(output);
                    this.by_feature[owner][feature] += 1;
                }
                this.slots[access] = outputs.len() as u32 - 1;
                keyed.push(u64::from(key) << 32 | access as u64);
            }
        }
        keyed.sort_unstable();
        this.firsts.push(0);
        for run in keyed.chunk_by(|a, b| a >> 32 == b >> 32) {
            let key = (run[0] >> 32) as u32;
            let shard = deal.shard(key);
            while this.firsts.len() <= shard {
                this.firsts.push(this.rows.len());
            }
            for &access in run {
                this.positions[access as u32 as usize] = this.rows.len() as u32;
                this.order.push(access as u32);
            }
            this.rows.push(deal.local(key));
            this.counts.push(run.len() as u32);
        }
        this.firsts.resize(deal.shards() + 1, this.rows.len());
        (this, error)
    }

    /// The coefficients of a backward: 1/n of each output row with mean pooling, else nothing.
    pub(crate) fn scales(&self, config: &GroupConfig, offsets: &[u32]) -> Vec<f32> {
        if config.pooling != Pooling::Mean {
            return Vec::new();
        }
        let bag = |bag: &[u32]| {
            let accesses = &self.positions[bag[0] as usize..bag[1] as usize];
            let valid = accesses.iter().filter(|&&position| position != NONE).count();
            1.0 / valid.max(1) as f32
        };
        offsets.windows(2).map(bag).collect()
    }
}

/// Checks what a backward is given; `wanted` is the number of gradients that the forward before it waits for.
pub(crate) fn check_backward(wanted: Option<usize>, found: usize, scaler: &ScalerState) -> Result<(), Error> {
    let Some(wanted) = wanted else {
        let (wanted, found) = ("a forward before each backward", "none since the last backward");
        return Err(Error::Order { call: "backward", wanted, found });
    };
    same_length("grad_outputs", wanted, found)?;
    scaler.decided()
}

/// The error of a gradient of the weights without a forward.
pub(crate) const NO_FORWARD: Error =
    Error::Order { call: "weight_gradient", wanted: "a forward that waits for its backward", found: "none" };

/// Checks the lengths of the indices, offsets and gradients of a forward's `accesses` and `bags`.
pub(crate) fn check_weight_gradient(
    config: &GroupConfig,
    accesses: usize,
    bags: usize,
    [indices, offsets, grads]: [usize; 3],
) -> Result<(), Error> {
    same_length("indices", accesses, indices)?;
    same_length("offsets", bags + 1, offsets)?;
    same_length("grad_outputs", output_len(config, accesses, bags), grads)
}

fn same_length(what: &'static str, wanted: usize, found: usize) -> Result<(), Error> {
    let (wanted, found) = (wanted as u64, found as u64);
    if wanted == found { Ok(()) } else { Err(Error::Length { what, wanted, found }) }
}

/// Gradients as floats.
pub(crate) fn floats(gradients: GradSlice<'_>) -> Cow<'_, [f32]> {
    match gradients {
        GradSlice::F32(values) => values.into(),
        GradSlice::F16(values) => values.iter().map(|half| half.to_f32()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use hotrow::{GradSlice, f16};

    /// A record holds no infinity, so its halves are read as finite: gradients are read in another way.
    #[test]
    fn halves_that_overflowed_stay_infinite() {
        let found = super::floats(GradSlice::F16(&[f16::ONE, f16::NEG_INFINITY, f16::NAN, f16::MAX]));
        assert!(matches!(*found, [1.0, f32::NEG_INFINITY, nan, 65504.0] if nan.is_nan()), "{found:?}");
    }
}
