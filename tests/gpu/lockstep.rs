//! GPU against CPU, step by step: the CPU group takes over the GPU's state before each step, both do the same, and then
//! integers must be equal and floats close.

use hotrow::{Context, Embedding, Error, Group, GroupConfig, Init, OutOfRange, Snapshot, codec, cpu, layout::Field};
use hotrow::{Layout, Optimizer, Placement, Policy, Pooling, Precision, RandomBits, Rounding, trace};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::device::{share, skipped, with_gpu};

/// Floats of one expression, rounded differently: 16 ULP of the largest term, which sums of a few hundred terms stay well below.
const RELATIVE: f32 = 16.0 * f32::EPSILON;

fn close(a: f32, b: f32, size: f32) -> bool {
    a == b || (a - b).abs() <= RELATIVE * size.max(a.abs()).max(b.abs())
}

fn floats(what: &str, gpu: &[f32], cpu: &[f32], size: f32) -> Result<(), String> {
    if gpu.len() != cpu.len() {
        return Err(format!("{what}: {} floats on the GPU, {} on the CPU", gpu.len(), cpu.len()));
    }
    match gpu.iter().zip(cpu).position(|(&a, &b)| !close(a, b, size)) {
        None => Ok(()),
        Some(i) => Err(format!("{what}[{i}]: {} on the GPU, {} on the CPU", gpu[i], cpu[i])),
    }
}

/// What has been seen of stored elements: codes may differ where the float before rounding did.
#[derive(Default)]
pub(crate) struct Codes {
    /// Records before the step; only elements of records that it wrote are counted.
    before: Vec<u32>,
    written: u64,
    different: u64,
}

fn records(layout: &Layout, gpu: &[u32], cpu: &[u32], size: f32, codes: &mut Codes) -> Result<(), String> {
    let stride = layout.record_words as usize;
    for (row, (a, b)) in gpu.chunks_exact(stride).zip(cpu.chunks_exact(stride)).enumerate() {
        if codes.before.get(row * stride..(row + 1) * stride) != Some(a) {
            codes.written += u64::from(layout.dim);
        }
        if a == b {
            continue;
        }
        let step = match layout.precision {
            Precision::Fp32 => 0.0,
            Precision::Fp16 => 1.0,
            _ => f32::from_bits(a[0]),
        };
        for element in 0..layout.dim {
            let (x, y) = (codec::weight(layout, a, element), codec::weight(layout, b, element));
            if close(x, y, size) {
                continue;
            }
            codes.different += 1;
            // One code apart, or one binary16 neighbour.
            let most = if step == 1.0 { x.abs().max(y.abs()) / 1024.0 + 2f32.powi(-24) } else { step * 1.001 };
            if (x - y).abs() > most {
                return Err(format!("record {row}, element {element}: {x} on the GPU, {y} on the CPU, step {step}"));
            }
        }
        for element in 0..layout.state {
            let (x, y) = (codec::state(layout, a, element), codec::state(layout, b, element));
            let half = if layout.state_half { x.abs().max(y.abs()) / 1024.0 + 2f32.powi(-24) } else { 0.0 };
            if !close(x, y, size * size) && (x - y).abs() > half {
                return Err(format!("record {row}, state {element}: {x} on the GPU, {y} on the CPU"));
            }
        }
    }
    Ok(())
}

fn snapshots(layout: &Layout, gpu: &Snapshot, cpu: &Snapshot, size: f32, codes: &mut Codes) -> Result<(), String> {
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

#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) indices: Vec<u32>,
    pub(crate) offsets: Vec<u32>,
    pub(crate) weights: Option<Vec<f32>>,
}

/// One whole step and what may come between steps. The first difference is the error.
struct Pair<'a> {
    gpu: &'a mut dyn Embedding,
    cpu: &'a mut dyn Embedding,
    size: f32,
    codes: Codes,
}

impl Pair<'_> {
    fn both<T>(
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

    fn compare(&mut self, what: &str) -> Result<(), String> {
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

    fn step(&mut self, batch: &Batch, grad: impl Fn(usize) -> f32) -> Result<(), String> {
        let weights = batch.weights.as_deref();
        let frozen = self.both("frozen", |group| group.forward_frozen(&batch.indices, &batch.offsets, weights))?;
        self.compare("after a frozen forward")?;
        if let Some([a, b]) = &frozen {
            floats("frozen outputs", a, b, self.size)?;
        }
        let outputs = self.both("forward", |group| group.forward(&batch.indices, &batch.offsets, weights))?;
        self.compare("after forward")?;
        let Some([a, b]) = outputs else { return Ok(()) };
        floats("outputs", &a, &b, self.size)?;
        let grads: Vec<f32> = (0..a.len()).map(grad).collect();
        self.both("backward", |group| group.backward(&grads))?;
        self.compare("after backward")
    }
}

pub(crate) fn random_config(source: &mut Pcg64) -> GroupConfig {
    let tables: Vec<u32> = (0..source.random_range(1..=5)).map(|_| source.random_range(1..300)).collect();
    let dims = [1, 2, 3, 5, 8, 17, 32, 63, 64, 65, 100, 128, 129, 300];
    let mut config = GroupConfig::new(&tables, dims[source.random_range(0..dims.len())]);
    config.precision = Precision::ALL[source.random_range(0..5)];
    config.rounding = [Rounding::Nearest, Rounding::Stochastic][source.random_range(0..2)];
    config.random_bits = RandomBits::ALL[source.random_range(0..3)];
    config.policy = [Policy::Lru, Policy::Lfu, Policy::Static][source.random_range(0..3)];
    config.pooling = [Pooling::Sum, Pooling::Mean, Pooling::None][source.random_range(0..3)];
    config.optimizer =
        [Optimizer::sgd(0.1), Optimizer::adagrad(0.1), Optimizer::row_wise_adagrad(0.1)][source.random_range(0..3)];
    if source.random_bool(0.3) {
        config.optimizer.weight_decay = 0.01;
    }
    config.out_of_range = [OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip][source.random_range(0..3)];
    let rows = config.total_rows() as u32;
    config.cache_rows = [0, 1, 32, rows / 4, rows / 2, rows][source.random_range(0..6)].min(rows);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.seed = source.random();
    if source.random_bool(0.3) {
        config.placement = Placement::Staged;
    }
    if source.random_bool(0.3) {
        config.features = (0..source.random_range(1..4)).map(|_| source.random_range(0..tables.len() as u32)).collect();
    }
    let stride = Layout::new(&config, u64::MAX).unwrap().stride();
    config.shard_bytes =
        [None, Some(stride * u64::from(rows.div_ceil(7))), Some(stride * u64::from(rows.div_ceil(20)))]
            [source.random_range(0..3)];
    config
}

/// No rows, a few or all, and how many of a set.
pub(crate) fn random_pins(config: &GroupConfig, source: &mut Pcg64) -> (Vec<u32>, u32) {
    let total = config.total_rows() as u32;
    let count = [0, 3, 40, total][source.random_range(0..4)];
    let rows = (0..count).map(|_| source.random_range(0..total)).collect();
    (rows, [1, 5, 31, 32][source.random_range(0..4)])
}

pub(crate) fn random_batch(config: &GroupConfig, source: &mut Pcg64) -> Batch {
    let features = if config.features.is_empty() { config.tables.len() } else { config.features.len() };
    let per_feature = source.random_range(0..9);
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    let longest = [1, 4, 40][source.random_range(0..3)];
    for feature in 0..features {
        let table = config.features.get(feature).map_or(feature, |&table| table as usize);
        let rows = config.tables[table];
        // Few distinct rows make repeats, many make misses.
        let reach = [rows, rows.div_ceil(10)][source.random_range(0..2)];
        for _ in 0..per_feature {
            for _ in 0..source.random_range(0..=longest) {
                let bad = source.random_bool(0.002);
                indices.push(if bad { rows + source.random_range(0..5) } else { source.random_range(0..reach) });
            }
            offsets.push(indices.len() as u32);
        }
    }
    let weighted = source.random_bool(0.4);
    let weights = weighted.then(|| indices.iter().map(|_| source.random_range(-2.0..2.0)).collect());
    Batch { indices, offsets, weights }
}

/// A random configuration, a few random steps, and what may come between them.
pub(crate) fn random_run(context: &Context, seed: u64, codes: &mut Codes) -> Result<(), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let mut config = random_config(&mut source);
    // Its cache in up to three windows, as the device allows and the slots last.
    let layout = Layout::new(&config, u64::MAX).map_err(|error| error.to_string())?;
    let windows = 1 + seed as u32 % context.caps().choose_windows().min(3);
    config.window_bytes = Some(u64::from(layout.slots().div_ceil(windows)) * layout.slot_bytes());
    let mut gpu = Group::new(context, config.clone()).map_err(|error| error.to_string())?;
    let mut cpu = cpu::Group::new(config.clone()).map_err(|error| error.to_string())?;
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    let run = |pair: &mut Pair<'_>, source: &mut Pcg64| -> Result<(), String> {
        pair.compare("new")?;
        for _ in 0..4 {
            if source.random_bool(0.15) {
                let rows = config.total_rows() as u32;
                let rows = [0, 1, rows / 3, rows, rows + 1][source.random_range(0..5)];
                let layout = Layout::new(&GroupConfig { cache_rows: rows, ..config.clone() }, u64::MAX);
                // More windows than the device binds are refused there, and nowhere else.
                let fits = layout.is_ok_and(|layout| layout.windows() <= context.caps().choose_windows());
                if (fits || rows > config.total_rows() as u32)
                    && let Some([a, b]) = pair.both("resize_cache", |group| group.resize_cache(rows))?
                    && a != b
                {
                    return Err(format!("resize_cache {rows}: {a:?} on the GPU, {b:?} on the CPU"));
                }
                pair.compare("after resize_cache")?;
            }
            if source.random_bool(0.4) {
                let (rows, ways) = random_pins(&config, source);
                for rows in [&rows[..], &rows[..rows.len() / 2]] {
                    if let Some([a, b]) = pair.both("pin", |group| Ok((group.pin(rows, ways)?, group.pinned()?)))?
                        && a != b
                    {
                        return Err(format!("pin {rows:?}, {ways} ways: {a:?} on the GPU, {b:?} on the CPU"));
                    }
                    pair.compare("after pin")?;
                }
            }
            let batch = random_batch(&config, source);
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
        }
        Ok(())
    };
    let done = run(&mut pair, &mut source);
    codes.written += pair.codes.written;
    codes.different += pair.codes.different;
    done.map_err(|difference| format!("seed {seed}, {config:?}: {difference}"))
}

#[test]
pub(crate) fn random_configurations() {
    with_gpu(|context| {
        // HOTROW_TEST_RUNS and HOTROW_TEST_SEED ask for more, or for one that failed.
        let number =
            |name: &str, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
        let first: u64 = number("HOTROW_TEST_SEED", 1);
        let mut codes = Codes::default();
        for seed in share(first..first + number("HOTROW_TEST_RUNS", 60)) {
            if let Err(difference) = random_run(context, seed, &mut codes) {
                panic!("{difference}");
            }
        }
        eprintln!("{} of {} written elements differ by one code", codes.different, codes.written);
        assert!(codes.different * 10_000 <= codes.written, "more than 1 in 10^4 codes differ");
    });
}

/// The rows of a real trace, and its first batches. Without the data that is said.
pub(crate) fn trace_batches(name: &str, bags_a_step: usize, steps: usize) -> Option<(u32, Vec<Batch>)> {
    let Some(folder) = std::env::var_os("HOTROW_DATA").map(std::path::PathBuf::from).or_else(|| {
        let beside = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        beside.is_dir().then_some(beside)
    }) else {
        skipped(&format!("{name}: no data folder; set HOTROW_DATA"));
        return None;
    };
    let trace = trace::load(name, &trace::Source { data: Some(&folder), seed: 0 }).unwrap();
    let offsets = trace.offsets.clone().unwrap_or_else(|| (0..=trace.ids.len() as u32).step_by(20).collect());
    let batch = |step: usize| {
        let bags = &offsets[step * bags_a_step..=(step + 1) * bags_a_step];
        let indices = trace.ids[bags[0] as usize..bags[bags_a_step] as usize].to_vec();
        Batch { indices, offsets: bags.iter().map(|&at| at - bags[0]).collect(), weights: None }
    };
    Some((trace.distinct, (0..steps).map(batch).collect()))
}

fn trace_steps(context: &Context, name: &str, config: &GroupConfig, bags_a_step: usize, steps: usize) {
    let Some((rows, batches)) = trace_batches(name, bags_a_step, steps) else { return };
    let config = GroupConfig { tables: vec![rows], cache_rows: rows / 20, ..config.clone() };
    let mut gpu = Group::new(context, config.clone()).unwrap();
    let mut cpu = cpu::Group::new(config).unwrap();
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    for (step, batch) in batches.iter().enumerate() {
        if let Err(difference) = pair.step(batch, |i| (i % 13) as f32 / 6.0 - 1.0) {
            panic!("{name}, step {step}: {difference}");
        }
    }
    let Codes { written, different, .. } = pair.codes;
    assert!(different * 10_000 <= written, "{name}: {different} of {written} codes differ");
}

#[test]
fn real_traces() {
    with_gpu(|context| {
        let mut config = GroupConfig::new(&[1], 20);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config.precision = Precision::Int4;
        config.optimizer = Optimizer::adagrad(0.05);
        trace_steps(context, "online_retail_stock", &config, 64, 20);
        config.policy = Policy::Lfu;
        config.pooling = Pooling::Mean;
        config.precision = Precision::Fp16;
        config.shard_bytes = Some(1 << 20);
        trace_steps(context, "ebooks_words", &config, 32, 12);
        config.precision = Precision::Int8;
        config.optimizer = Optimizer::row_wise_adagrad(0.05);
        trace_steps(context, "wikitext2_words", &config, 100, 12);
    });
}

/// Wraps a group and spoils one thing, to see that the comparison notices.
#[test]
fn differences_are_noticed() {
    let mut config = GroupConfig::new(&[100], 4);
    config.cache_rows = 32;
    config.policy = Policy::Lfu;
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    let mut group = cpu::Group::new(config).unwrap();
    let batch: Vec<u32> = (0..60).map(|i| i % 40).collect();
    let outputs = group.forward(&batch, &[0, 30, 60], None).unwrap();
    group.backward(&vec![1.0; outputs.len()]).unwrap();
    let layout = group.layout().clone();
    let right = group.snapshot().unwrap();
    let same = |wrong: &Snapshot| snapshots(&layout, wrong, &right, 64.0, &mut Codes::default());
    assert_eq!(same(&right), Ok(()));
    type Spoil = fn(&mut Snapshot);
    let spoils: [(&str, Spoil); 10] = [
        ("t", |s| s.t += 1),
        ("tag", |s| s.ways[0] ^= 1),
        ("stamp", |s| s.ways[32] += 1),
        ("freq of a slot", |s| s.ways[64] += 1),
        ("dirty", |s| s.ways[96] ^= 1),
        ("pinned", |s| s.ways[96] ^= 2),
        ("freq", |s| s.freqs[7] += 1),
        ("counter", |s| s.counters[0].evictions += 1),
        ("cache", |s| s.cache[5] += 1e-2),
        ("code", |s| s.records[2] ^= 0b10),
    ];
    for (what, spoil) in spoils {
        let mut wrong = right.clone();
        spoil(&mut wrong);
        assert!(same(&wrong).is_err(), "{what}");
    }
    let mut wrong = outputs.clone();
    wrong[3] += 1e-2;
    assert!(floats("outputs", &wrong, &outputs, 64.0).is_err());
    assert!(floats("outputs", &outputs[1..], &outputs, 64.0).is_err());
    // A code that is off by one is no error, but it is counted.
    let mut codes = Codes::default();
    let mut wrong = right.clone();
    wrong.records[2] ^= 1;
    assert_eq!(snapshots(&layout, &wrong, &right, 64.0, &mut codes), Ok(()));
    assert_eq!(codes.different, 1);
}
