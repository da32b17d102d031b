//! GPU against CPU, step by step. The CPU group takes over the GPU's state before each step, and both run the same step. Then integers must
//! be equal and floats close.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Context, Counters, CpuGroup, Embedding, Error, Group, GroupConfig, Init, Mode, OutOfRange,
    internals::codec,
    internals::layout::{Field, STATE_MOMENT},
    state::{Part, Snapshot},
};
use hotrow::{
    CounterBits, Optimizer, OptimizerKind, Placement, Policy, Pooling, Precision, RandomBits, Rounding, StatePrecision,
    internals::Layout,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Two floats of one expression with different roundings differ by at most 16 ULP of the largest term. Sums of a few hundred terms stay
/// well below.
const RELATIVE: f32 = 16.0 * f32::EPSILON;

pub fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|x| x.to_bits()).collect()
}

fn close(a: f32, b: f32, size: f32) -> bool {
    a == b || (a - b).abs() <= RELATIVE * size.max(a.abs()).max(b.abs())
}

pub fn floats(what: &str, gpu: &[f32], cpu: &[f32], size: f32) -> Result<(), String> {
    if gpu.len() != cpu.len() {
        return Err(format!("{what}: {} floats on the GPU, {} on the CPU", gpu.len(), cpu.len()));
    }
    match gpu.iter().zip(cpu).position(|(&a, &b)| !close(a, b, size)) {
        None => Ok(()),
        Some(i) => Err(format!("{what}[{i}]: {} on the GPU, {} on the CPU", gpu[i], cpu[i])),
    }
}

/// Counts of stored elements. Codes may differ where the float before rounding differed.
#[derive(Default)]
pub struct Codes {
    /// The records before the step. Only elements of records that the step wrote are counted.
    before: Vec<u32>,
    pub written: u64,
    pub different: u64,
}

impl Codes {
    /// True if at most 1 in 10^4 of the written elements differ, and 20 more. A float that differs by an ULP before it is rounded falls to another code with
    /// 3 in 10^5 at most (FP16; 0 of 433,725 were found on llvmpipe), so that among 10^5 elements more than 30 differ with less than 10^-17. A wrong
    /// sum or a wrong noise changes a code in ten.
    pub fn few(&self) -> bool {
        self.different * 10_000 <= self.written + 200_000
    }
}

fn records(layout: &Layout, gpu: &[u32], cpu: &[u32], size: f32, codes: &mut Codes) -> Result<(), String> {
    let stride = layout.row.record_words as usize;
    for (row, (a, b)) in gpu.chunks_exact(stride).zip(cpu.chunks_exact(stride)).enumerate() {
        if codes.before.get(row * stride..(row + 1) * stride) != Some(a) {
            codes.written += u64::from(layout.row.dim);
        }
        if a == b {
            continue;
        }
        let step = match layout.row.precision {
            Precision::Fp32 => 0.0,
            Precision::Fp16 => 1.0,
            _ => f32::from_bits(a[0]),
        };
        for element in 0..layout.row.dim {
            let (x, y) = (codec::weight(&layout.row, a, element), codec::weight(&layout.row, b, element));
            if close(x, y, size) {
                continue;
            }
            codes.different += 1;
            // At most one code apart, or one binary16 neighbour.
            let most = if step == 1.0 { x.abs().max(y.abs()) / 1024.0 + 2f32.powi(-24) } else { step * 1.001 };
            if (x - y).abs() > most {
                return Err(format!("record {row}, element {element}: {x} on the GPU, {y} on the CPU, step {step}"));
            }
        }
        for element in 0..layout.row.state {
            let (x, y) = (codec::state(&layout.row, a, element), codec::state(&layout.row, b, element));
            // A neighbour in FP16, or of a moment with 7 bits of fraction.
            let half = match (layout.row.state_bits, layout.row.facts & STATE_MOMENT) {
                (32, _) => 0.0,
                // Codes are an eighth apart; first moments near 0 are the smallest code or 0.
                (8, _) => x.abs().max(y.abs()) / 8.0 + size * size / 8192.0,
                (_, 0) => x.abs().max(y.abs()) / 1024.0 + 2f32.powi(-24),
                (..) => x.abs().max(y.abs()) / 127.0,
            };
            if !close(x, y, size * size) && (x - y).abs() > half {
                return Err(format!("record {row}, state {element}: {x} on the GPU, {y} on the CPU"));
            }
        }
    }
    Ok(())
}

pub fn snapshots(layout: &Layout, gpu: &Snapshot, cpu: &Snapshot, size: f32, codes: &mut Codes) -> Result<(), String> {
    if gpu.t != cpu.t {
        return Err(format!("t: {} on the GPU, {} on the CPU", gpu.t, cpu.t));
    }
    if let Some(i) = gpu.ways.iter().zip(&cpu.ways).position(|(a, b)| a != b) {
        let field = [Field::Tag, Field::Stamp, Field::Freq, Field::Flags][i % 128 / 32];
        return Err(format!("set {}, way {}, {field:?}: {} and {}", i / 128, i % 32, gpu.ways[i], cpu.ways[i]));
    }
    if gpu.freqs != cpu.freqs {
        return Err("freqs differ".into());
    }
    if gpu.counters != cpu.counters {
        return Err(format!("counters: {:?} on the GPU, {:?} on the CPU", gpu.counters, cpu.counters));
    }
    floats("cache", &gpu.cache, &cpu.cache, size)?;
    records(layout, &gpu.records, &cpu.records, size, codes)
}

/// The counts of a table in the order of checkpoints and parts.
pub fn counts(c: &Counters) -> [u64; 12] {
    let cache = [c.accesses, c.hits, c.unique, c.unique_misses, c.admitted, c.evictions, c.write_backs];
    let rest = [c.bypass_reads, c.bypass_writes, c.skipped_rows, c.out_of_range, c.padding];
    std::array::from_fn(|i| if i < 7 { cache[i] } else { rest[i - 7] })
}

/// The indices, offsets and weights of a batch.
#[derive(Clone, Debug)]
pub struct Batch {
    pub indices: Vec<u32>,
    pub offsets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
}

impl Batch {
    pub fn bags(&self) -> Bags<'_> {
        Bags::new(&self.indices, &self.offsets).with_weights(self.weights.as_deref())
    }
}

/// The two groups of a run. Their calls return the first difference as an error.
pub struct Pair<'a> {
    pub gpu: &'a mut dyn Embedding,
    pub cpu: &'a mut dyn Embedding,
    pub size: f32,
    pub codes: Codes,
}

impl Pair<'_> {
    pub fn both<T>(
        &mut self,
        what: &str,
        call: impl Fn(&mut dyn Embedding) -> Result<T, Error>,
    ) -> Result<Option<[T; 2]>, String> {
        match (call(self.gpu), call(self.cpu)) {
            (Ok(a), Ok(b)) => Ok(Some([a, b])),
            (Err(a), Err(b)) if a == b => Ok(None),
            (a, b) => Err(format!("{what}: {:?} on the GPU, {:?} on the CPU", a.err(), b.err())),
        }
    }

    pub fn compare(&mut self, what: &str) -> Result<(), String> {
        let states = [self.gpu.snapshot(), self.cpu.snapshot()].map(|state| state.map_err(|error| error.to_string()));
        let [gpu, cpu] = states;
        let (gpu, cpu) = (gpu?, cpu?);
        let layout = self.gpu.layout().clone();
        snapshots(&layout, &gpu, &cpu, self.size, &mut self.codes)
            .map_err(|difference| format!("{what}: {difference}"))?;
        self.cpu.restore(&gpu).map_err(|error| error.to_string())?;
        self.codes.before = gpu.records;
        Ok(())
    }

    pub fn step(&mut self, batch: &Batch, grad: impl Fn(usize) -> f32) -> Result<(), String> {
        let weights = batch.weights.as_deref();
        let frozen = self.both("frozen", |group| {
            group.forward(Bags::new(&batch.indices, &batch.offsets).with_weights(weights), Mode::Frozen)
        })?;
        self.compare("after a frozen forward")?;
        if let Some([a, b]) = &frozen {
            floats("frozen outputs", a, b, self.size)?;
        }
        let outputs = self.both("forward", |group| {
            group.forward(Bags::new(&batch.indices, &batch.offsets).with_weights(weights), Mode::Train)
        })?;
        self.compare("after forward")?;
        let Some([a, b]) = outputs else { return Ok(()) };
        floats("outputs", &a, &b, self.size)?;
        let grads: Vec<f32> = (0..a.len()).map(grad).collect();
        self.both("backward", |group| group.backward(&grads))?;
        self.compare("after backward")
    }
}

pub fn random_config(source: &mut Pcg64) -> GroupConfig {
    let tables: Vec<u32> = (0..source.random_range(1..=5)).map(|_| source.random_range(1..300)).collect();
    let dims = [1, 2, 3, 5, 8, 17, 32, 63, 64, 65, 100, 128, 129, 300];
    let mut config = GroupConfig::new(&tables, dims[source.random_range(0..dims.len())]);
    config.precision = Precision::ALL[source.random_range(0..5)];
    config.rounding = [Rounding::Nearest, Rounding::Stochastic][source.random_range(0..2)];
    config.random_bits = RandomBits::ALL[source.random_range(0..3)];
    config.policy = Policy::ALL[source.random_range(0..Policy::ALL.len())];
    config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][source.random_range(0..3)];
    config.optimizer = [
        Optimizer::sgd(0.1),
        Optimizer::adagrad(0.1),
        Optimizer::row_wise_adagrad(0.1),
        Optimizer::momentum(0.1),
        Optimizer::adam(0.1),
        Optimizer::row_wise_adam(0.1),
        Optimizer::ftrl(0.1).with_l1(0.5).with_l2(0.1),
        Optimizer::lion(0.02),
    ][source.random_range(0..8)];
    if source.random_bool(0.3) {
        config.optimizer.weight_decay = 0.01;
        config.optimizer.decoupled = source.random_bool(0.5) && config.optimizer.kind != OptimizerKind::Ftrl;
    }
    config.optimizer.own_count = source.random_bool(0.3);
    config.optimizer.clip_value = source.random_bool(0.2).then_some(0.5);
    config.optimizer.clip_norm = source.random_bool(0.2).then_some(0.5);
    config.out_of_range = [OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip][source.random_range(0..3)];
    let rows = config.total_rows() as u32;
    config.cache_rows = [0, 1, 32, rows / 4, rows / 2, 2 * rows][source.random_range(0..6)];
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = source.random();
    config.window_ways = [0, 1, 4, 31][config.seed as usize / 3 % 4];
    config.write_rounding = Rounding::ALL[config.seed as usize / 12 % 2];
    config.cache_shares = random_shares(&config);
    config.state = random_state(config.precision, config.optimizer.kind, config.seed);
    if source.random_bool(0.3) {
        config.placement = Placement::Staged;
    }
    if source.random_bool(0.3) {
        config.features = (0..source.random_range(1..4)).map(|_| source.random_range(0..tables.len() as u32)).collect();
    }
    let stride = Layout::new(&config, u64::MAX).unwrap().stride();
    config.set_piece_bytes(
        [None, Some(stride * u64::from(rows.div_ceil(7))), Some(stride * u64::from(rows.div_ceil(20)))]
            [source.random_range(0..3)],
    );
    config.counter_bits = CounterBits::ALL[source.random_range(0..3)];
    config.padding = random_padding(&config.tables, source);
    config
}

/// The type of the states beside a precision, where the rule takes any: INT8 for a third of the seeds, FP32 for a quarter.
pub fn random_state(precision: Precision, kind: OptimizerKind, seed: u32) -> Option<StatePrecision> {
    match seed {
        _ if precision == Precision::Fp32 || kind == OptimizerKind::Ftrl => None,
        _ if seed.is_multiple_of(3) => Some(StatePrecision::Int8),
        _ => matches!(seed % 5, 1 | 3).then_some(StatePrecision::Fp32),
    }
}

/// Padding ids, in their tables or outside: mostly none, else one for all tables, or for each one or none.
pub fn random_padding(tables: &[u32], source: &mut impl Rng) -> Vec<Option<u32>> {
    let mut id = |rows: u32| [0, rows / 2, rows - 1, rows, rows + 2, u32::MAX][source.random_range(0..6)];
    let (one, each) = (id(tables[0]), tables.iter().map(|&rows| Some(id(rows)).filter(|id| id % 4 != 1)).collect());
    match source.random_range(0..4) {
        0 => vec![Some(one)],
        1 => each,
        _ => Vec::new(),
    }
}

/// Whether a linear row is the padding of its table.
pub fn is_padding(config: &GroupConfig, row: u32) -> bool {
    let mut base = 0;
    (0..).zip(&config.tables).any(|(table, &rows)| {
        let index = row.checked_sub(base).filter(|&index| index < rows);
        base += rows;
        index.is_some() && index == config.padding_of(table)
    })
}

/// Puts the padding id of a table in the place of some indices.
pub fn pad(index: u32, config: &GroupConfig, table: u32, source: &mut impl Rng) -> u32 {
    config.padding_of(table).filter(|_| source.random_bool(0.05)).unwrap_or(index)
}

/// Random counters for all rows, many of them just below the greatest one, so that a few steps reach it; none unless the policy counts.
pub fn random_frequencies(config: &GroupConfig, source: &mut Pcg64) -> Vec<u32> {
    let (rows, most) = if config.policy.facts().counts { (config.total_rows(), config.most_uses()) } else { (0, 0) };
    let near = |below: u32| most.saturating_sub(below);
    (0..rows).map(|_| [0, 5, near(20), near(3), near(1), most][source.random_range(0..6)]).collect()
}

/// Accesses since the counters were halved, mostly so many that they are halved next; none unless the policy is Window.
pub fn random_since(config: &GroupConfig, source: &mut Pcg64) -> Vec<u32> {
    let each = 32 * u64::from(config.cache_rows.max(1).next_multiple_of(config.ways));
    let parts = if config.cache_shares.is_empty() { 1 } else { config.tables.len() };
    let mut since = || [0, each - 1, each, 3 * each + 5, 1 << 36][source.random_range(0..5)];
    let words = (0..parts).map(|_| since()).flat_map(|since: u64| [since as u32, (since >> 32) as u32]);
    if config.policy.facts().ages { words.collect() } else { Vec::new() }
}

/// Shares of the cache, in one of three configurations of several tables that have a set for each: some tables have none.
pub fn random_shares(config: &GroupConfig) -> Vec<f32> {
    let sets = (config.cache_rows.min(config.total_rows() as u32)).div_ceil(config.ways) as usize;
    let tables = config.tables.len();
    if tables < 2 || sets < tables || !(config.seed / 7).is_multiple_of(3) {
        return Vec::new();
    }
    let each = |table: usize| if table % 3 == 1 { 0.0 } else { 0.9 / tables as f32 };
    (0..tables - config.seed as usize % 2).map(each).collect()
}

/// Random rows to pin (none, a few or all), and the most ways of a set that they may take.
pub fn random_pins(config: &GroupConfig, source: &mut Pcg64) -> (Vec<u32>, u32) {
    let total = config.total_rows() as u32;
    let count = [0, 3, 40, total][source.random_range(0..4)];
    let rows = (0..count).map(|_| source.random_range(0..total)).collect();
    (rows, [1, 5, 31, 32][source.random_range(0..4)])
}

pub fn random_batch(config: &GroupConfig, source: &mut Pcg64) -> Batch {
    let per_feature = source.random_range(0..9);
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    let longest = [1, 4, 40][source.random_range(0..3)];
    for table in config.feature_tables() {
        let rows = config.tables[table as usize];
        // Few distinct rows give repeats, many distinct rows give misses.
        let reach = [rows, rows.div_ceil(10)][source.random_range(0..2)];
        for _ in 0..per_feature {
            for _ in 0..source.random_range(0..=longest) {
                let bad = source.random_bool(0.002);
                let index = if bad { rows + source.random_range(0..5) } else { source.random_range(0..reach) };
                indices.push(pad(index, config, table, source));
            }
            offsets.push(indices.len() as u32);
        }
    }
    let weighted = source.random_bool(0.4);
    let weights = weighted.then(|| indices.iter().map(|_| source.random_range(-2.0..2.0)).collect());
    Batch { indices, offsets, weights }
}

/// Random calls and a step on both groups.
pub fn random_turn(
    context: &Context,
    pair: &mut Pair<'_>,
    config: &GroupConfig,
    source: &mut Pcg64,
) -> Result<(), String> {
    if source.random_bool(0.15) {
        let rows = config.total_rows() as u32;
        let rows = [0, 1, rows / 3, rows, rows + 1][source.random_range(0..5)];
        let layout = Layout::new(&config.clone().with_cache_rows(rows), u64::MAX);
        // Only the device refuses more windows than it can bind.
        let fits = layout.is_ok_and(|layout| layout.windows() <= context.caps().choose_windows());
        if fits
            && let Some([a, b]) = pair.both("resize_cache", |group| group.resize_cache(rows))?
            && a != b
        {
            return Err(format!("resize_cache {rows}: {a:?} on the GPU, {b:?} on the CPU"));
        }
        pair.compare("after resize_cache")?;
    }
    if source.random_bool(0.4) {
        let (rows, ways) = random_pins(config, source);
        for rows in [&rows[..], &rows[..rows.len() / 2]] {
            if let Some([a, b]) = pair.both("pin", |group| Ok((group.pin(rows, ways)?, group.pinned()?)))?
                && a != b
            {
                return Err(format!("pin {rows:?}, {ways} ways: {a:?} on the GPU, {b:?} on the CPU"));
            }
            pair.compare("after pin")?;
        }
    }
    let batch = random_batch(config, source);
    let salt: u32 = source.random_range(1..1000);
    pair.step(&batch, |i| ((i as u32).wrapping_mul(salt) % 17) as f32 / 8.0 - 1.0)?;
    match source.random_range(0..5) {
        0 => {
            pair.both("flush", |group| group.flush())?;
        }
        1 => {
            pair.both("reset", |group| group.reset())?;
        }
        2 => {
            let rows: Vec<u32> = (0..10).map(|_| source.random_range(0..config.total_rows() as u32)).collect();
            let values: Vec<f32> =
                (0..10 * config.dim).map(|i| if i == 3 { f32::NAN } else { i as f32 / 100.0 }).collect();
            pair.both("write_rows", |group| group.write_rows(&rows, &values))?;
            pair.compare("after write_rows")?;
            if let Some([a, b]) = pair.both("read_rows", |group| group.read_rows(&rows))? {
                floats("rows", &a, &b, pair.size)?;
            }
        }
        _ => {}
    }
    pair.compare("between steps")?;
    Ok(())
}

/// Runs a random configuration for a few random steps, with random calls between the steps.
pub fn random_run(context: &Context, seed: u64, codes: &mut Codes) -> Result<(), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let mut config = random_config(&mut source);
    // The cache has up to three windows, as far as the device and the number of slots allow.
    let layout = Layout::new(&config, u64::MAX).map_err(|error| error.to_string())?;
    let windows = 1 + seed as u32 % context.caps().choose_windows().min(3);
    config.set_window_bytes(Some(u64::from(layout.slots().div_ceil(windows)) * layout.slot_bytes()));
    let mut gpu = Group::new(context, config.clone()).map_err(|error| error.to_string())?;
    let mut cpu = CpuGroup::new(config.clone()).map_err(|error| error.to_string())?;
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    let run = |pair: &mut Pair<'_>, source: &mut Pcg64| -> Result<(), String> {
        pair.compare("new")?;
        if source.random_bool(0.5) {
            let freqs = random_frequencies(&config, source);
            pair.both("write_part", |group| group.write_part(Part::Frequencies, 0, &freqs))?;
            let since = random_since(&config, source);
            pair.both("write_part", |group| group.write_part(Part::Since, 0, &since))?;
            pair.compare("after write_part")?;
        }
        for _ in 0..4 {
            random_turn(context, pair, &config, source)?;
        }
        Ok(())
    };
    let done = run(&mut pair, &mut source);
    codes.written += pair.codes.written;
    codes.different += pair.codes.different;
    done.map_err(|difference| format!("seed {seed}, {config:?}: {difference}"))
}
