//! Runs of a group over several ranks (SPEC 11) on random batches.

use std::{ops::Range, path::Path};

use crate::lockstep::{bits, is_padding, pad, random_config};
use hotrow::internals::Pieces as _;
use hotrow::{
    Counters, CpuGroup, Embedding, Error, GroupConfig, Init, Lookup, Mode, Optimizer, OutOfRange, Placement, Policy,
    Pooling, Precision, ScalerState, StatePrecision, state::Snapshot,
};
use hotrow_dist::{self as dist, Comm, Shard, Threads, WireForm, WireOptions};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rand_pcg::Pcg64;

/// The number of parts into which a batch is cut. Each rank has some of them.
pub const PARTS: usize = 8;

/// The bags of one feature in one part: an index and a weight for each access.
type Bags = Vec<Vec<(u32, f32)>>;

/// A batch of all ranks: part by part, in each part feature by feature.
#[derive(Clone, Debug)]
pub struct Batch {
    parts: Vec<Vec<Bags>>,
    weighted: bool,
}

/// One rank's part of a batch, and the lengths of its outputs and accesses, feature by feature and part by part.
pub struct Part {
    pub indices: Vec<u32>,
    pub offsets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
    outputs: Vec<(usize, usize, usize)>,
    accesses: Vec<(usize, usize, usize)>,
}

impl Part {
    pub fn bags(&self) -> hotrow::Bags<'_> {
        hotrow::Bags::new(&self.indices, &self.offsets).with_weights(self.weights.as_deref())
    }
}

impl Batch {
    pub fn random(random: &mut StdRng, config: &GroupConfig) -> Self {
        let weighted = random.random_bool(0.5);
        Self::drawn(random, config, weighted, 0..PARTS)
    }

    /// A batch whose bags are all in these parts: other ranks have none.
    fn drawn(random: &mut StdRng, config: &GroupConfig, weighted: bool, parts: Range<usize>) -> Self {
        let features = config.feature_tables();
        let longest = random.random_range(0..6);
        let skewed = random.random_bool(0.5);
        let wild = if config.out_of_range == OutOfRange::Error { 0.0 } else { 0.02 };
        let parts = (0..PARTS)
            .map(|part| {
                // Every feature has the same number of bags in a part; some parts are empty.
                let empty = random.random_bool(0.2) || !parts.contains(&part);
                let bags = if empty { 0 } else { random.random_range(0..9) };
                let mut feature = |&table: &u32| {
                    let rows = config.tables[table as usize];
                    let mut index = || {
                        let index = if skewed && random.random_bool(0.7) { 0..rows.min(3) } else { 0..rows };
                        let index = random.random_range(index);
                        let index = index + if random.random_bool(wild) { rows } else { 0 };
                        (pad(index, config, table, random), random.random_range(-2.0..2.0))
                    };
                    let length = |bag| (bag * 7 + longest) % (longest + 1);
                    (0..bags).map(|bag| (0..length(bag)).map(|_| index()).collect()).collect()
                };
                features.iter().map(&mut feature).collect()
            })
            .collect();
        Self { parts, weighted }
    }

    /// Deals the bags of each feature evenly to the parts, as summed gradients want them.
    #[must_use]
    pub fn even(mut self) -> Self {
        for feature in 0..self.parts.first().map_or(0, Vec::len) {
            let bags: Bags = self.parts.iter_mut().flat_map(|part| std::mem::take(&mut part[feature])).collect();
            for (number, part) in self.parts.iter_mut().enumerate() {
                let [start, end] = [number, number + 1].map(|part| bags.len() * part / PARTS);
                part[feature] = bags[start..end].to_vec();
            }
        }
        self
    }

    /// Gives the last bag of a part an index that no table has.
    #[must_use]
    pub fn with_bad_index(mut self, part: usize) -> Self {
        self.parts[part].iter_mut().for_each(|bags| bags.push(Vec::new()));
        if let Some(bag) = self.parts[part].last_mut().and_then(|bags| bags.last_mut()) {
            bag.push((1 << 20, 1.0));
        }
        self
    }

    pub fn part(&self, config: &GroupConfig, parts: Range<usize>) -> Part {
        let (mut indices, mut weights, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
        let (mut outputs, mut accesses) = (Vec::new(), Vec::new());
        for feature in 0..config.feature_tables().len() {
            for part in parts.clone() {
                let bags = &self.parts[part][feature];
                for bag in bags {
                    indices.extend(bag.iter().map(|&(index, _)| index));
                    weights.extend(bag.iter().map(|&(_, weight)| weight));
                    offsets.push(indices.len() as u32);
                }
                let count = bags.iter().map(Vec::len).sum();
                let rows = if config.pooling == Pooling::None { count } else { bags.len() };
                outputs.push((feature, part, rows * config.dim as usize));
                accesses.push((feature, part, count));
            }
        }
        Part { indices, offsets, weights: self.weighted.then_some(weights), outputs, accesses }
    }
}

impl Part {
    /// The gradients of the outputs: those of a part do not depend on the rank that has it.
    #[must_use]
    pub fn gradients(&self, step: usize) -> Vec<f32> {
        let of = |&(feature, part, floats): &(usize, usize, usize)| {
            let mut random = StdRng::seed_from_u64((step * 1000 + feature * 100 + part) as u64);
            (0..floats).map(move |_| random.random_range(-1.0..1.0)).collect::<Vec<f32>>()
        };
        self.outputs.iter().flat_map(of).collect()
    }

    /// Cuts outputs into the parts.
    #[must_use]
    pub fn parts(&self, outputs: &[f32]) -> Vec<Output> {
        Self::cut(&self.outputs, outputs)
    }

    /// Cuts the gradients of the weights into the parts.
    #[must_use]
    pub fn of_weights(&self, gradients: &[f32]) -> Vec<Output> {
        Self::cut(&self.accesses, gradients)
    }

    fn cut(lengths: &[(usize, usize, usize)], values: &[f32]) -> Vec<Output> {
        let mut rest = values;
        let mut of = |&(feature, part, floats): &(usize, usize, usize)| {
            let (own, after) = rest.split_at(floats);
            rest = after;
            ((part, feature), bits(own))
        };
        lengths.iter().map(&mut of).collect()
    }
}

/// As in lockstep runs, with sets of other sizes, and without what no group over ranks has.
pub fn configuration(random: &mut StdRng) -> GroupConfig {
    let mut config = random_config(&mut Pcg64::seed_from_u64(random.random()));
    config.dim = [1, 2, 3, 4, 5, 8, 12, 17][random.random_range(0..8)];
    config.ways = if random.random_bool(0.5) { 32 } else { random.random_range(1..9) };
    config.window_ways = (config.seed / 3 % 5).min(config.ways - 1);
    config.set_piece_bytes(None);
    (config.placement, config.cache_shares) = (Placement::Device, Vec::new());
    config
}

/// The bits of the outputs of a part and a feature.
pub type Output = ((usize, usize), Vec<u32>);

/// The bits of the outputs of each step, by part and feature, and of the gradients of the weights. A step that was refused has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    pub outputs: Vec<Vec<Output>>,
    pub of_weights: Vec<Vec<Output>>,
}

impl Steps {
    /// Those of all ranks, in order of the parts.
    #[must_use]
    pub fn together(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            for (all, steps) in [(&mut all.outputs, part.outputs), (&mut all.of_weights, part.of_weights)] {
                all.resize(steps.len(), Vec::new());
                all.iter_mut().zip(steps).for_each(|(all, step)| all.extend(step));
            }
        }
        all.outputs.iter_mut().chain(&mut all.of_weights).for_each(|parts| parts.sort_unstable());
        all
    }
}

/// Everything that a run shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub steps: Steps,
    pub shards: Vec<Option<Snapshot>>,
    pub counters: Vec<Counters>,
    pub rows: Vec<u32>,
}

/// The scaler's decision in a step: in some steps the loss is scaled, in some the gradients overflow.
#[must_use]
pub fn scaler(step: usize) -> ScalerState {
    let mut scaler = hotrow::CpuScaler::new(hotrow::LossScale::Static { scale: 2f32.powi(step as i32 % 3) }).unwrap();
    let gradients = [if step % 4 == 3 { f32::INFINITY } else { 1.0 }];
    scaler.inspect(hotrow::GradSlice::F32(&gradients));
    scaler.decide().unwrap()
}

/// What one rank of a run shows.
#[derive(Clone, Debug)]
pub struct Share {
    pub steps: Steps,
    pub shards: Vec<(u32, Option<Snapshot>)>,
    /// Of all ranks.
    pub counters: Vec<Counters>,
    /// Every row, the last first.
    pub rows: Vec<u32>,
}

/// How batches run over ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    pub wire: WireOptions,
    /// Each batch is prefetched while the one before waits for its backward.
    pub ahead: bool,
    /// The gradients have the wrong sign.
    pub spoil: bool,
}

impl From<WireOptions> for How {
    fn from(wire: WireOptions) -> Self {
        Self { wire, ..Self::default() }
    }
}

/// The rows that a run under [`Policy::Static`] pins.
fn hottest(config: &GroupConfig) -> impl Iterator<Item = u32> {
    let pins = config.policy == Policy::Static && config.cache_rows > 0;
    let end = if pins { (config.total_rows() as u32).div_ceil(3) } else { 0 };
    (0..end).filter(|&row| !is_padding(config, row))
}

/// Trains with a rank's parts of batches, in the steps `steps` of them; with `spoil` the gradients have the wrong sign. `config` is that of the rows.
///
/// # Errors
/// Those of the table, except an index outside its table of some rank.
pub fn train(
    table: &mut (impl Lookup + ?Sized),
    config: &GroupConfig,
    batches: &[Batch],
    steps: Range<usize>,
    parts: &Range<usize>,
    spoil: bool,
) -> Result<Steps, Error> {
    let mut seen = Steps::default();
    for (step, batch) in batches.iter().enumerate().take(steps.end).skip(steps.start) {
        let part = batch.part(config, parts.clone());
        let frozen = table.forward(part.bags(), Mode::Frozen);
        let found = match table.forward(part.bags(), Mode::Train) {
            Err(Error::IndexOutOfRange { .. } | Error::Ranks(_)) => {
                assert!(frozen.is_err() && !table.pending());
                seen.outputs.push(Vec::new());
                seen.of_weights.push(Vec::new());
                continue;
            }
            found => found?,
        };
        // Under LFU a row of the batch may be written back, and rounded, before it is read.
        assert!(config.policy == Policy::Lfu || bits(&frozen?) == bits(&found), "frozen");
        seen.of_weights.push(back(table, &part, step, spoil)?);
        seen.outputs.push(part.parts(&found));
    }
    Ok(seen)
}

/// The backward of a step. Returns the gradients of the weights.
fn back(table: &mut (impl Lookup + ?Sized), part: &Part, step: usize, spoil: bool) -> Result<Vec<Output>, Error> {
    let mut gradients = part.gradients(step);
    let of_weights = table.weight_gradient(hotrow::Bags::new(&part.indices, &part.offsets), &gradients)?;
    assert_eq!(of_weights.len(), part.indices.len());
    if spoil {
        gradients.iter_mut().for_each(|gradient| *gradient = -*gradient);
    }
    table.backward_scaled(hotrow::GradSlice::F32(&gradients), &scaler(step))?;
    Ok(part.of_weights(&of_weights))
}

/// As [`train`], with each batch prefetched while the one before waits for its backward.
fn train_ahead<C: Comm, S: Shard>(
    group: &mut dist::Group<C, S>,
    config: &GroupConfig,
    batches: &[Batch],
    parts: &Range<usize>,
    spoil: bool,
) -> Result<Steps, Error> {
    let mut steps = Steps { outputs: Vec::new(), of_weights: vec![Vec::new(); batches.len()] };
    // The part whose forward waits, and its step.
    let mut last: Option<(Part, usize)> = None;
    for step in 0..=batches.len() {
        let part = batches.get(step).map(|batch| batch.part(config, parts.clone()));
        let asked = match &part {
            None => false,
            Some(part) => match group.prefetch(part.bags()) {
                Err(Error::IndexOutOfRange { .. } | Error::Ranks(_)) => false,
                asked => asked.map(|()| true)?,
            },
        };
        // In some steps the early rows go with the backward.
        if step % 3 != 1 {
            group.advance()?;
        }
        group.poll()?;
        if let Some((part, step)) = last.take() {
            steps.of_weights[step] = back(group, &part, step, spoil)?;
        }
        let Some(part) = part else { break };
        steps.outputs.push(if asked { part.parts(&group.forward_prefetched()?) } else { Vec::new() });
        last = asked.then_some((part, step));
    }
    Ok(steps)
}

/// Pins rows in a shard, of the `shards` shards the one with this number, and in a plain group.
fn pin(shard: &mut dyn Embedding, config: &GroupConfig, shards: u32, number: u32) -> Result<(), Error> {
    let rows: Vec<u32> = hottest(config).filter(|row| row % shards == number).map(|row| row / shards).collect();
    let ways = shard.layout().ways.div_ceil(2);
    if rows.is_empty() { Ok(()) } else { shard.pin(&rows, ways).map(drop) }
}

/// Runs batches as one rank of a job. `make` makes a shard; the checkpoint at the end goes to `save`.
///
/// # Errors
/// Those of the group, except an index outside its table of some rank.
pub fn on_rank<S: Shard>(
    comm: impl Comm,
    (config, shards, how): (&GroupConfig, u32, How),
    batches: &[Batch],
    make: impl FnMut(GroupConfig) -> Result<S, Error> + 'static,
    save: Option<&Path>,
) -> Result<Share, Error> {
    let each = PARTS / comm.size() as usize;
    let parts = comm.rank() as usize * each..(comm.rank() as usize + 1) * each;
    let mut group = dist::Group::new(comm, config.clone(), shards, make)?.with_wire(how.wire)?;
    for (number, shard) in group.shards() {
        shard.map_or(Ok(()), |shard| pin(shard, config, shards, number))?;
    }
    let steps = match how.ahead {
        true => train_ahead(&mut group, config, batches, &parts, how.spoil)?,
        false => train(&mut group, config, batches, 0..batches.len(), &parts, how.spoil)?,
    };
    let counters = group.counters()?;
    let rows: Vec<u32> = (0..config.total_rows() as u32).rev().collect();
    let rows = bits(&group.read_rows(&rows)?);
    save.map_or(Ok(()), |folder| group.save(folder))?;
    let snapshot = |(number, shard): (u32, Option<&mut S>)| Ok((number, shard.map(|s| s.snapshot()).transpose()?));
    let shards = group.shards().map(snapshot).collect::<Result<_, Error>>()?;
    Ok(Share { steps, shards, counters, rows })
}

/// Runs batches over ranks.
pub fn over<S: Shard>(
    how: impl Into<How>,
    config: &GroupConfig,
    (shards, ranks): (u32, u32),
    batches: &[Batch],
    make: impl Fn(GroupConfig) -> Result<S, Error> + Sync + Clone + 'static,
) -> Seen {
    let how = how.into();
    let parts =
        Threads::run(ranks, |comm: &mut Threads| on_rank(comm, (config, shards, how), batches, make.clone(), None));
    let parts = parts.unwrap_or_else(|error| panic!("{error}"));
    assert!(parts.iter().all(|part| part.rows == parts[0].rows && part.counters == parts[0].counters));
    let (counters, rows) = (parts[0].counters.clone(), parts[0].rows.clone());
    let shards = parts.iter().flat_map(|part| part.shards.iter().map(|(_, shard)| shard.clone())).collect();
    let steps = Steps::together(parts.into_iter().map(|part| part.steps).collect());
    Seen { steps, shards, counters, rows }
}

/// The same run on a plain group.
pub fn alone(mut group: impl Embedding, batches: &[Batch]) -> Seen {
    let config = &Embedding::config(&group).clone();
    pin(&mut group, config, 1, 0).unwrap();
    let steps = train(&mut group, config, batches, 0..batches.len(), &(0..PARTS), false).unwrap();
    let steps = Steps::together(vec![steps]);
    let rows: Vec<u32> = (0..config.total_rows() as u32).rev().collect();
    Seen {
        steps,
        shards: vec![Some(group.snapshot().unwrap())],
        counters: group.counters().unwrap(),
        rows: bits(&group.read_rows(&rows).unwrap()),
    }
}

/// A training that saves after every step and goes on from the last checkpoint in `folder`, to step `end`: for tests of faults. A checkpoint has 16 MiB.
/// Returns the step from which it went on, and the error of a save.
///
/// # Errors
/// Those of the group, but for its saves.
pub fn saving(comm: impl Comm, folder: &Path, end: u32) -> Result<(u32, Option<Error>), Error> {
    const ROWS: u32 = 60_000;
    let mut config = GroupConfig::new(&[ROWS], 64).with_precision(Precision::Fp16).with_cache_rows(2048);
    config.optimizer = Optimizer::adagrad(0.05);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    let bags = PARTS as u32 / comm.size();
    let mut group = dist::Group::new(comm, config, PARTS as u32, CpuGroup::new)?;
    if folder.join("shards.json").exists() {
        group.load(folder)?;
    }
    let mut begun = [0];
    if let Some((_, Some(shard))) = group.shards().next() {
        shard.read_part(hotrow::state::Part::Clock, 0, &mut begun)?;
    }
    for step in begun[0]..end {
        // The bags of all ranks are the same for every number of ranks.
        let first = group.rank() * bags;
        let rows = |bag| uniform(ROWS, 100, u64::from(step * PARTS as u32 + bag));
        let indices: Vec<u32> = (first..first + bags).flat_map(rows).collect();
        let offsets: Vec<u32> = (0..=bags).map(|bag| 100 * bag).collect();
        let outputs = group.forward(hotrow::Bags::new(&indices, &offsets), Mode::Train)?;
        group.backward(&outputs)?;
        if let Err(error) = group.save(folder) {
            return Ok((begun[0], Some(error)));
        }
    }
    Ok((begun[0], None))
}

/// A run whose bits are compared between numbers of ranks.
pub struct Listed {
    pub name: &'static str,
    pub config: GroupConfig,
    pub wire: WireOptions,
    pub batches: Vec<Batch>,
}

/// The runs that jobs of real ranks are compared by: every policy, precision, pooling and optimiser. Each has six steps, and the gradients of the fourth
/// overflow.
#[must_use]
pub fn listed() -> Vec<Listed> {
    use {Policy::*, Pooling::*, Precision::*};
    let adam = || Optimizer::adam(0.05);
    let rule = Optimizer::row_wise_adam(0.05).with_own_count(true);
    let runs = [
        ("fp32-lru-sum-sgd", Fp32, Lru, Sum, Optimizer::sgd(0.05), false),
        ("fp16-lfu-mean-weights-adagrad", Fp16, Lfu, Mean, Optimizer::adagrad(0.05), true),
        ("int8-lru-none-row-wise-adagrad", Int8, Lru, None, Optimizer::row_wise_adagrad(0.05), false),
        ("int4-lfu-sum-weights-momentum", Int4, Lfu, Sum, Optimizer::momentum(0.05), true),
        ("int2-lru-mean-adam-clip", Int2, Lru, Mean, adam().with_clip_norm(Some(0.8)), false),
        ("int4-static-none-weights-row-wise-adam", Int4, Static, None, rule, true),
        ("fp32-lfu-mean-adam", Fp32, Lfu, Mean, adam(), false),
        ("int8-state-int8-lru-sum-adam", Int8, Lru, Sum, adam(), false),
        ("int4-state-fp32-lfu-sum-adagrad", Int4, Lfu, Sum, Optimizer::adagrad(0.05), false),
        ("int8-no-cache-sum-weights-adagrad", Int8, Lru, Sum, Optimizer::adagrad(0.05), true),
        ("int8-lru-empty-parts", Int8, Lru, Sum, Optimizer::row_wise_adagrad(0.05), false),
        ("int8-lfu-bad-index-refused", Int8, Lfu, Mean, Optimizer::row_wise_adagrad(0.05), true),
        ("int8-lfu-mean-lossy", Int8, Lfu, Mean, Optimizer::row_wise_adagrad(0.05), false),
        ("int8-lru-bad-index-left-out", Int8, Lru, Sum, Optimizer::row_wise_adagrad(0.05), true),
        ("int4-lfu-sum-weights-summed", Int4, Lfu, Sum, Optimizer::row_wise_adagrad(0.05), true),
        ("int8-lru-sum-ftrl", Int8, Lru, Sum, Optimizer::ftrl(0.05).with_l1(0.5), false),
        ("int4-lfu-mean-lion", Int4, Lfu, Mean, Optimizer::lion(0.01).with_weight_decay(0.1), false),
        ("fp32-lru-mean-lossy-summed", Fp32, Lru, Mean, Optimizer::adagrad(0.05), false),
    ];
    let run = |(name, precision, policy, pooling, optimizer, weighted): (&'static str, _, _, _, _, bool)| {
        let mut random = StdRng::seed_from_u64(name.len() as u64);
        let mut config = GroupConfig::new(&[300, 40], 8);
        // Two features look up the first table.
        config.features = vec![0, 1, 0];
        (config.precision, config.policy, config.pooling, config.optimizer) = (precision, policy, pooling, optimizer);
        config.init = Init::Uniform { low: -1.0, high: 1.0 };
        // Small sets, so that rows are evicted.
        (config.cache_rows, config.ways) = (if name.contains("no-cache") { 0 } else { 64 }, 4);
        let states = [("state-int8", StatePrecision::Int8), ("state-fp32", StatePrecision::Fp32)];
        config.state = states.into_iter().find(|(part, _)| name.contains(part)).map(|(_, state)| state);
        if name.contains("left-out") {
            config.out_of_range = OutOfRange::Skip;
        }
        let mut batches: Vec<Batch> = (0..6)
            .map(|step| {
                let parts = if name.contains("empty") { step..step + 1 } else { 0..PARTS };
                Batch::drawn(&mut random, &config, weighted, parts)
            })
            .collect();
        if name.contains("refused") {
            let last = batches.pop().map(|batch| batch.with_bad_index(5));
            batches.insert(2, last.unwrap_or_else(|| unreachable!("six batches")));
        }
        let lossy = WireOptions { rows: WireForm::Fp16, gradients: WireForm::Int8, summed: false };
        let mut wire = if name.contains("lossy") { lossy } else { WireOptions::default() };
        if name.contains("summed") {
            wire.summed = true;
            batches = batches.into_iter().map(Batch::even).collect();
        }
        Listed { name, config, wire, batches }
    };
    runs.into_iter().map(run).collect()
}

/// So many rows, drawn evenly.
#[must_use]
pub fn uniform(rows: u32, accesses: u32, seed: u64) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..accesses).map(|_| random.random_range(0..rows)).collect()
}
