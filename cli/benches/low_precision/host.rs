//! The CPU backend: the stage `update` alone, on its own records, then a whole backward of a group.

use std::time::Instant;

use hotrow::{
    CpuGroup, GradSlice, Layout, OptimizerKind, Rounding, codec,
    internals::layout::{Params, Rate, Shard, Target},
    internals::stages,
};

use super::{Backward, Bench, Rows, Setting, Size, gradients};

pub(super) struct Host<'a> {
    group: CpuGroup,
    rows: &'a Rows,
    offsets: Vec<u32>,
    grads: Vec<f32>,
    alone: Alone,
}

/// The buffers that the stage reads and writes.
struct Alone {
    params: Params,
    rate: Rate,
    shard: Shard,
    targets: Vec<Target>,
    accesses: Vec<[u32; 2]>,
    records: Vec<u32>,
    /// The rows as forward leaves them. The stage reads them and does not change them.
    scratch: Vec<f32>,
    tables: Vec<u32>,
}

impl<'a> Host<'a> {
    pub(super) fn new(setting: &Setting, size: Size, rows: &'a Rows) -> Self {
        let config = setting.config(size);
        let n = size.updates as usize * size.dim as usize;
        Self {
            alone: Alone::new(&setting.layout(size), setting, size, rows),
            group: CpuGroup::new(config).unwrap(),
            rows,
            offsets: (0..=size.updates).collect(),
            grads: gradients(n),
        }
    }
}

impl Bench for Host<'_> {
    fn update(&mut self) -> Option<f64> {
        Some(self.alone.round(&self.grads))
    }

    fn backward(&mut self) -> Backward {
        self.group.forward(&self.rows.indices, &self.offsets, None).unwrap();
        let start = Instant::now();
        self.group.backward(&self.grads).unwrap();
        Backward { seconds: start.elapsed().as_secs_f64(), update: None }
    }
}

impl Alone {
    fn new(layout: &Layout, setting: &Setting, size: Size, rows: &Rows) -> Self {
        // As in a group without a cache: forward has unpacked each row, and it has one gradient, at the position of its index.
        let mut targets = vec![Target { row: size.updates, place: size.updates, start: 1, end: 0 }];
        targets.extend((0..).zip(&rows.sorted).map(|(u, &[row, _])| Target { row, place: u, start: u, end: u + 1 }));
        let accesses = rows.sorted.iter().map(|&[_, place]| [place, 1f32.to_bits()]).collect();
        let config = setting.config(size);
        assert_eq!(config.optimizer.kind, OptimizerKind::AdaGrad);
        let lr = config.optimizer.lr;
        let params = Params {
            tables: 1,
            dim: layout.row.dim,
            bits: layout.row.precision.bits(),
            stochastic: u32::from(setting.rounding == Rounding::Stochastic),
            random_bits: setting.random_bits.bits(),
            state: layout.row.state,
            state_bits: layout.row.state_bits,
            state_word: layout.row.state_word,
            payload_half: layout.row.payload_half,
            record_words: layout.row.record_words,
            row_quads: layout.row.row_quads,
            partials: size.updates * layout.row.row_quads,
            optimizer: 1,
            total_rows: size.rows,
            eps: config.optimizer.eps,
            lanes: layout.row.lanes,
            ..Params::default()
        };
        // 256 different rows, repeated. The place of a row decides its time, its values do not.
        let few = CpuGroup::new(config.with_tables(vec![256])).unwrap().snapshot().unwrap().records;
        let unpacked = |record: &[u32]| {
            let mut row = vec![0.0; layout.slot_words() as usize];
            codec::unpack(&layout.row, record, &mut row[..layout.row.row_words as usize]);
            row
        };
        let few_rows: Vec<f32> = few.chunks_exact(layout.row.record_words as usize).flat_map(unpacked).collect();
        Self {
            params,
            rate: Rate { lr, ..Rate::default() },
            shard: Shard { rows: size.rows, rows_each: size.rows, phases: Shard::PACK, ..Shard::default() },
            targets,
            accesses,
            records: few.iter().copied().cycle().take(size.rows as usize * layout.row.record_words as usize).collect(),
            scratch: few_rows
                .iter()
                .copied()
                .cycle()
                .take(size.updates as usize * layout.slot_words() as usize)
                .collect(),
            tables: vec![0; 32],
        }
    }

    fn round(&mut self, grads: &[f32]) -> f64 {
        let Self { params, rate, shard, targets, accesses, records, scratch, tables } = self;
        targets[0].start += 1;
        tables[4..6].copy_from_slice(&[0, params.total_rows]);
        let start = Instant::now();
        stages::update(
            params,
            shard,
            targets,
            accesses,
            GradSlice::F32(grads),
            records,
            &mut [],
            scratch,
            &mut [],
            tables,
            rate,
        );
        start.elapsed().as_secs_f64()
    }
}
