//! Calls to a CPU group in any order, good ones and bad ones, against the FP64 model of the harness; then the same steps with prefetched
//! batches against plain steps, bit for bit.

use hotrow::{
    CounterBits, CpuGroup, GroupConfig, Init, Optimizer, OptimizerKind, OutOfRange, Policy, Pooling, Precision,
    RandomBits, Rounding, StatePrecision,
};
use hotrow_harness::{
    lockstep::Batch,
    naive::{BatchData, Call, WRONG_CALLS, check_run},
    prefetch::{Plan, REFUSED, When, play},
};

/// The bytes of an input, from which the run follows. Behind the end there are zeros.
struct Bytes<'d>(&'d [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        u32::from(self.byte()) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }

    fn yes(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// A number that the formats round.
    fn float(&mut self) -> f32 {
        match self.byte() {
            255 => f32::NAN,
            254 => f32::INFINITY,
            byte => (f32::from(byte) - 120.0) / 37.0,
        }
    }
}

fn config(bytes: &mut Bytes<'_>) -> GroupConfig {
    let tables: Vec<u32> = (0..1 + bytes.below(3)).map(|_| 1 + bytes.below(40)).collect();
    let mut config = GroupConfig::new(&tables, bytes.one_of(&[1, 2, 3, 4, 7, 8, 16, 17]));
    let rows = config.total_rows() as u32;
    config.precision = bytes.one_of(&Precision::ALL);
    config.rounding = bytes.one_of(&[Rounding::Nearest, Rounding::Stochastic]);
    config.random_bits = bytes.one_of(&RandomBits::ALL);
    config.policy = bytes.one_of(&[Policy::Lru, Policy::Lfu, Policy::Static, Policy::Window]);
    config.counter_bits = bytes.one_of(&CounterBits::ALL);
    config.pooling = bytes.one_of(&[Pooling::Sum, Pooling::Mean, Pooling::None]);
    config.out_of_range = bytes.one_of(&[OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip]);
    config.optimizer = match bytes.one_of(&OptimizerKind::ALL) {
        OptimizerKind::Adam => Optimizer::adam(0.1),
        OptimizerKind::RowWiseAdam => Optimizer::row_wise_adam(0.1),
        kind => Optimizer::usual(kind, 0.1),
    };
    if bytes.yes() {
        config.optimizer = config.optimizer.with_weight_decay(0.01).with_own_count(bytes.yes());
        config.optimizer.clip_value = bytes.yes().then_some(0.75);
        config.optimizer.clip_norm = bytes.yes().then_some(0.5);
    }
    config.state = (config.precision != Precision::Fp32 && bytes.yes())
        .then(|| [StatePrecision::Int8, StatePrecision::Fp32][usize::from(bytes.yes())]);
    config.ways = bytes.one_of(&[32, 1, 2, 5]);
    config.window_ways = config.ways / 3;
    config.cache_rows = bytes.below(rows + 1);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = bytes.byte().into();
    config.write_rounding = Rounding::ALL[config.seed as usize / 3 % 2];
    if bytes.yes() {
        config.features = (0..1 + bytes.below(3)).map(|_| bytes.below(tables.len() as u32)).collect();
    }
    config
}

fn call(bytes: &mut Bytes<'_>, config: &GroupConfig) -> Call {
    let total = config.total_rows() as u32;
    let mut rows = |most: u32| -> Vec<u32> { (0..bytes.below(most)).map(|_| bytes.below(total)).collect() };
    let listed = rows(6);
    match bytes.below(18) {
        0 => Call::Flush,
        1 => Call::Reset,
        2 => Call::ResetDiscarding,
        3 => Call::Frozen,
        4 => Call::ReadRows(listed),
        5 => {
            let values = (0..listed.len() * config.dim as usize).map(|_| bytes.float()).collect();
            Call::WriteRows(listed, values)
        }
        6 => Call::BackwardAgain,
        7 | 8 => Call::Pin(listed, bytes.below(config.ways + 2)),
        9 => Call::ResizeCache(bytes.below(total + 2)),
        10 => Call::LearningRate(bytes.one_of(&[0.05, 0.1, 0.0])),
        11 => Call::Save,
        12 => Call::Load,
        13 => Call::Snapshot,
        14 => Call::Restore,
        _ => Call::Wrong(bytes.below(WRONG_CALLS.into()) as u8),
    }
}

fn batch(bytes: &mut Bytes<'_>, config: &GroupConfig) -> BatchData {
    let all: Vec<u32> = (0..config.tables.len() as u32).collect();
    let features = if config.features.is_empty() { &all } else { &config.features };
    let mut batch = BatchData { offsets: vec![0], ..BatchData::default() };
    let bags = bytes.below(4);
    for &table in features {
        let rows = config.tables[table as usize];
        for _ in 0..bags {
            for _ in 0..bytes.below(6) {
                // Rarely an index that is no row.
                batch.indices.push(match bytes.byte() {
                    255 => u32::MAX,
                    254 => rows,
                    byte => u32::from(byte) % rows,
                });
            }
            batch.offsets.push(batch.indices.len() as u32);
        }
    }
    let count = batch.indices.len();
    if bytes.yes() {
        batch.weights = Some((0..count).map(|_| bytes.below(200) as f32 / 64.0 - 1.5).collect());
    }
    let outputs = if config.pooling == Pooling::None { count } else { batch.offsets.len() - 1 };
    if bytes.below(8) > 0 {
        let few: Vec<f32> = (0..4).map(|_| bytes.float()).collect();
        batch.gradient =
            Some((0..outputs * config.dim as usize).map(|k| few[k * 7 % 4] + (k % 5) as f32 / 9.0).collect());
    }
    batch.between = (0..bytes.below(3)).map(|_| call(bytes, config)).collect();
    batch.after = (0..bytes.below(4)).map(|_| call(bytes, config)).collect();
    batch
}

fn plan(bytes: &mut Bytes<'_>, data: &BatchData) -> Plan {
    let BatchData { indices, offsets, weights, gradient, .. } = data.clone();
    Plan {
        batch: Batch { indices, offsets, weights },
        backward: gradient.is_some(),
        when: bytes.one_of(&[When::BeforeBackward, When::AfterBackward, When::Never]),
        flush: bytes.below(4) == 3,
        pin: None,
        between: bytes.below(6),
        ahead: (0..bytes.below(3)).map(|_| bytes.below(REFUSED)).collect(),
    }
}

pub(crate) fn run(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let config = config(&mut bytes);
    if config.check().is_err() {
        return false;
    }
    let run: Vec<BatchData> = (0..1 + bytes.below(5)).map(|_| batch(&mut bytes, &config)).collect();
    let plans: Vec<Plan> = run.iter().map(|batch| plan(&mut bytes, batch)).collect();
    let made = |config| CpuGroup::new(config).unwrap();
    if let Err(difference) = check_run(&mut |config| Box::new(made(config)), &config, &run) {
        panic!("{difference}\n{config:?}\n{run:?}");
    }
    // As texts: floats that are not numbers differ from themselves.
    let played = |overlap| format!("{:?}", play(&mut made(config.clone()), &plans, overlap));
    let (plain, ahead) = (played(false), played(true));
    assert!(plain == ahead, "prefetched steps differ from plain ones\n{config:?}\n{run:?}");
    true
}

/// Runs of several lengths.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    use rand::{Rng as _, SeedableRng as _};
    let mut source = rand_pcg::Pcg64::seed_from_u64(1);
    [40, 100, 200, 400, 400, 800, 800, 1200]
        .iter()
        .map(|&length| {
            let mut bytes = vec![0; length];
            source.fill_bytes(&mut bytes);
            bytes
        })
        .collect()
}
