//! Runs of a group over several ranks (SPEC 11) on random batches.

use hotrow::{
    Counters, Embedding, Error, GroupConfig, Init, Lookup, Optimizer, OutOfRange, Policy, Pooling, Precision, Rounding,
    ScalerState, Snapshot, StatePrecision,
    dist::{self, Shard, Threads},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// The number of pieces into which a batch is cut. Each rank has some of them.
const PIECES: usize = 8;

/// The bags of one feature in one piece: an index and a weight for each access.
type Bags = Vec<Vec<(u32, f32)>>;

/// A batch of all ranks: piece by piece, in each piece feature by feature.
pub struct Batch {
    pieces: Vec<Vec<Bags>>,
    weighted: bool,
}

/// One rank's part of a batch, and the lengths of its outputs, feature by feature and piece by piece.
pub struct Part {
    pub indices: Vec<u32>,
    pub offsets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
    outputs: Vec<(usize, usize, usize)>,
}

impl Batch {
    pub fn random(random: &mut StdRng, config: &GroupConfig) -> Self {
        let features = config.feature_tables();
        let weighted = random.random_bool(0.5);
        let longest = random.random_range(0..6);
        let skewed = random.random_bool(0.5);
        let wild = if config.out_of_range == OutOfRange::Error { 0.0 } else { 0.02 };
        let pieces = (0..PIECES)
            .map(|_| {
                // Every feature has the same number of bags in a piece; some pieces are empty.
                let bags = if random.random_bool(0.2) { 0 } else { random.random_range(0..9) };
                let mut feature = |&table: &u32| {
                    let rows = config.tables[table as usize];
                    let mut index = || {
                        let index = if skewed && random.random_bool(0.7) { 0..rows.min(3) } else { 0..rows };
                        let index = random.random_range(index);
                        (index + if random.random_bool(wild) { rows } else { 0 }, random.random_range(-2.0..2.0))
                    };
                    let mut lengths: Vec<usize> = Vec::new();
                    for bag in 0..bags {
                        lengths.push((bag * 7 + longest) % (longest + 1));
                    }
                    lengths.into_iter().map(|length| (0..length).map(|_| index()).collect()).collect()
                };
                features.iter().map(&mut feature).collect()
            })
            .collect();
        Self { pieces, weighted }
    }

    pub fn part(&self, config: &GroupConfig, pieces: std::ops::Range<usize>) -> Part {
        let (mut indices, mut weights, mut offsets, mut outputs) = (Vec::new(), Vec::new(), vec![0], Vec::new());
        for feature in 0..config.feature_tables().len() {
            for piece in pieces.clone() {
                let bags = &self.pieces[piece][feature];
                for bag in bags {
                    indices.extend(bag.iter().map(|&(index, _)| index));
                    weights.extend(bag.iter().map(|&(_, weight)| weight));
                    offsets.push(indices.len() as u32);
                }
                let rows = match config.pooling {
                    Pooling::None => bags.iter().map(Vec::len).sum(),
                    _ => bags.len(),
                };
                outputs.push((feature, piece, rows * config.dim as usize));
            }
        }
        Part { indices, offsets, weights: self.weighted.then_some(weights), outputs }
    }
}

impl Part {
    /// The gradients of the outputs: those of a piece do not depend on the rank that has it.
    fn gradients(&self, step: usize) -> Vec<f32> {
        let of = |&(feature, piece, floats): &(usize, usize, usize)| {
            let mut random = StdRng::seed_from_u64((step * 1000 + feature * 100 + piece) as u64);
            (0..floats).map(move |_| random.random_range(-1.0..1.0)).collect::<Vec<f32>>()
        };
        self.outputs.iter().flat_map(of).collect()
    }

    /// Cuts outputs into the pieces.
    fn pieces(&self, outputs: &[f32]) -> Vec<Output> {
        let mut rest = outputs;
        let mut of = |&(feature, piece, floats): &(usize, usize, usize)| {
            let (own, after) = rest.split_at(floats);
            rest = after;
            ((piece, feature), own.iter().map(|x| x.to_bits()).collect())
        };
        self.outputs.iter().map(&mut of).collect()
    }
}

pub fn configuration(random: &mut StdRng) -> GroupConfig {
    let tables: Vec<u32> = (0..random.random_range(1..4)).map(|_| random.random_range(1..400)).collect();
    let dim = [1, 2, 3, 4, 8, 12, 17][random.random_range(0..7)];
    let mut config = GroupConfig::new(&tables, dim);
    if random.random_bool(0.5) {
        config.features = (0..random.random_range(1..5)).map(|_| random.random_range(0..tables.len() as u32)).collect();
    }
    config.precision = Precision::ALL[random.random_range(0..5)];
    config.rounding = Rounding::ALL[random.random_range(0..2)];
    config.policy = [Policy::Lru, Policy::Lfu][random.random_range(0..2)];
    config.pooling = Pooling::ALL[random.random_range(0..3)];
    config.out_of_range = OutOfRange::ALL[random.random_range(0..3)];
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = random.random();
    let rows = config.total_rows() as u32;
    config.cache_rows = if random.random_bool(0.2) { 0 } else { random.random_range(0..=rows) };
    config.ways = if random.random_bool(0.5) { 32 } else { random.random_range(1..9) };
    config.optimizer = match random.random_range(0..6) {
        0 => Optimizer::sgd(0.05),
        1 => Optimizer::adagrad(0.05),
        2 => Optimizer::row_wise_adagrad(0.05).with_weight_decay(0.01),
        3 => Optimizer::momentum(0.05),
        4 => Optimizer::adam(0.05).with_clip_norm(Some(0.8)),
        _ => Optimizer::row_wise_adam(0.05).with_own_count(true),
    };
    if config.precision != Precision::Fp32 && random.random_bool(0.3) {
        config.state = Some(StatePrecision::Int8);
    }
    config
}

/// The bits of the outputs of a piece and a feature.
pub type Output = ((usize, usize), Vec<u32>);

/// Everything that a run shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The bits of the outputs of each step, by piece and feature.
    pub outputs: Vec<Vec<Output>>,
    pub shards: Vec<Option<Snapshot>>,
    pub counters: Vec<Counters>,
    pub rows: Vec<u32>,
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

/// The scaler's decision in a step: in some steps the loss is scaled, in some the gradients overflow.
fn scaler(step: usize) -> ScalerState {
    let mut scaler = hotrow::CpuScaler::new(hotrow::LossScale::Static { scale: 1.0 }).unwrap();
    let gradients = [if step % 4 == 3 { f32::INFINITY } else { 1.0 }];
    scaler.inspect(hotrow::GradSlice::F32(&gradients));
    scaler.decide().unwrap()
}

/// Runs batches over ranks. `make` makes a shard; with `spoil` one gradient is wrong.
pub fn over_ranks<S: Shard>(
    config: &GroupConfig,
    shards: u32,
    ranks: u32,
    batches: &[Batch],
    spoil: bool,
    make: impl Fn(GroupConfig) -> Result<S, Error> + Sync + Clone + 'static,
) -> Seen {
    let parts = Threads::run(ranks, |comm: &mut Threads| {
        let mut group = dist::Group::new(comm, config.clone(), shards, make.clone())?;
        let each = PIECES / ranks as usize;
        let pieces = group.rank() as usize * each..(group.rank() as usize + 1) * each;
        let mut outputs = Vec::new();
        for (step, batch) in batches.iter().enumerate() {
            let part = batch.part(config, pieces.clone());
            let frozen = group.forward_frozen(&part.indices, &part.offsets, part.weights.as_deref())?;
            let found = group.forward(&part.indices, &part.offsets, part.weights.as_deref())?;
            // Under LFU a row of the batch may be written back, and rounded, before it is read.
            assert!(config.policy == Policy::Lfu || bits(&frozen) == bits(&found), "frozen");
            let mut gradients = part.gradients(step);
            let of_weights = group.weight_gradient(&part.indices, &part.offsets, &gradients)?;
            assert_eq!(of_weights.len(), part.indices.len());
            if spoil
                && step == 0
                && let Some(first) = gradients.first_mut()
            {
                *first += 0.5;
            }
            group.backward_scaled(hotrow::GradSlice::F32(&gradients), &scaler(step))?;
            outputs.push(part.pieces(&found));
        }
        let counters = group.counters()?;
        let rows: Vec<u32> = (0..config.total_rows() as u32).rev().collect();
        let rows = bits(&group.read_rows(&rows)?);
        let shards: Result<Vec<_>, Error> =
            group.shards().map(|(_, shard)| shard.map(|s| s.snapshot()).transpose()).collect();
        Ok(Seen { outputs, shards: shards?, counters, rows })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert!(parts.iter().all(|part| part.rows == parts[0].rows && part.counters == parts[0].counters));
    let steps = (0..batches.len()).map(|step| {
        let mut pieces: Vec<_> = parts.iter().flat_map(|part| part.outputs[step].clone()).collect();
        pieces.sort_unstable();
        pieces
    });
    let outputs = steps.collect();
    let shards = parts.iter().flat_map(|part| part.shards.clone()).collect();
    Seen { outputs, shards, counters: parts[0].counters.clone(), rows: parts[0].rows.clone() }
}

/// The same run on a plain group.
pub fn alone(mut group: impl Embedding, batches: &[Batch]) -> Seen {
    let config = &Embedding::config(&group).clone();
    let mut outputs = Vec::new();
    for (step, batch) in batches.iter().enumerate() {
        let part = batch.part(config, 0..PIECES);
        let found = group.forward(&part.indices, &part.offsets, part.weights.as_deref()).unwrap();
        group.backward_scaled(hotrow::GradSlice::F32(&part.gradients(step)), &scaler(step)).unwrap();
        let mut pieces = part.pieces(&found);
        pieces.sort_unstable();
        outputs.push(pieces);
    }
    let rows: Vec<u32> = (0..config.total_rows() as u32).rev().collect();
    Seen {
        outputs,
        shards: vec![Some(group.snapshot().unwrap())],
        counters: group.counters().unwrap(),
        rows: bits(&group.read_rows(&rows).unwrap()),
    }
}
