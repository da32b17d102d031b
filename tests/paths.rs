//! The direct path of the CPU group against its mirrors: the same bits, call by call.

use hotrow::{
    CpuGroup, CpuPath, CpuScaler, Embedding, Error, GradSlice, GroupConfig, Init, LossScale, Optimizer, OutOfRange,
    Policy, Pooling, Precision,
};
use hotrow_harness::lockstep::{Batch, random_batch, random_config, random_pins};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Two groups that must agree bit for bit.
struct Paths {
    direct: CpuGroup,
    mirrors: CpuGroup,
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

impl Paths {
    fn new(config: &GroupConfig) -> Self {
        let new = |path| CpuGroup::new(config.clone()).unwrap().with_path(path);
        Self { direct: new(CpuPath::Direct), mirrors: new(CpuPath::Mirrors) }
    }

    /// Makes a call on both groups. Returns the result, or the difference.
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        call: impl Fn(&mut CpuGroup) -> Result<T, Error>,
    ) -> Result<Option<T>, String> {
        let (a, b) = (call(&mut self.direct), call(&mut self.mirrors));
        if a == b { Ok(a.ok()) } else { Err(format!("{what} differs")) }
    }

    fn outputs(&mut self, what: &str, batch: &Batch, frozen: bool) -> Result<Option<usize>, String> {
        let Batch { indices, offsets, weights } = batch;
        let outputs = self.both(what, |group| {
            let outputs = if frozen {
                group.forward_frozen(indices, offsets, weights.as_deref())?
            } else {
                group.forward(indices, offsets, weights.as_deref())?
            };
            Ok(bits(&outputs))
        })?;
        Ok(outputs.map(|outputs| outputs.len()))
    }

    fn compare(&mut self, what: &str) -> Result<(), String> {
        let [a, b] = [&mut self.direct, &mut self.mirrors].map(|group| group.snapshot().unwrap());
        let same = |part: &str, same: bool| if same { Ok(()) } else { Err(format!("{what}: {part} differ")) };
        same("steps", a.t == b.t)?;
        same("ways", a.ways == b.ways)?;
        same("frequencies", a.freqs == b.freqs)?;
        same("slots", bits(&a.cache) == bits(&b.cache))?;
        same("records", a.records == b.records)?;
        same(&format!("counters {:?} {:?}", a.counters, b.counters), a.counters == b.counters)
    }

    fn step(&mut self, batch: &Batch, source: &mut Pcg64) -> Result<(), String> {
        self.outputs("frozen forward", batch, true)?;
        let Some(outputs) = self.outputs("forward", batch, false)? else { return self.compare("refused forward") };
        // Not always: a snapshot makes the direct path count the distinct rows before the backward does.
        match source.random_range(0..4) {
            0 => self.compare("forward")?,
            1 => {
                self.outputs("frozen forward before the backward", batch, true)?;
            }
            _ => {}
        }
        let spoiled = source.random_bool(0.1).then(|| source.random_range(0..outputs.max(1)));
        let salt: u32 = source.random_range(1..1000);
        let grads: Vec<f32> = (0..outputs)
            .map(|i| if spoiled == Some(i) { f32::NAN } else { (i as u32).wrapping_mul(salt) as f32 / 2e9 - 1.0 })
            .collect();
        match source.random_range(0..8) {
            0 => {
                self.both("abandon", |group| {
                    group.abandon_backward();
                    Ok(())
                })?;
            }
            1 => {} // the next forward takes its place
            2 => {
                self.both("scaled backward", |group| {
                    let mut scaler = CpuScaler::new(LossScale::BACKOFF)?;
                    scaler.inspect(GradSlice::F32(&grads));
                    let verdict = scaler.decide()?;
                    group.backward_scaled(GradSlice::F32(&grads), &verdict)
                })?;
            }
            3 => {
                let halves: Vec<u16> = grads.iter().map(|&x| half::f16::from_f32(x).to_bits()).collect();
                self.both("backward of halves", |group| {
                    let mut scaler = CpuScaler::new(LossScale::BACKOFF)?;
                    scaler.inspect(GradSlice::F16(&halves));
                    let verdict = scaler.decide()?;
                    group.backward_scaled(GradSlice::F16(&halves), &verdict)
                })?;
            }
            _ => {
                self.both("backward", |group| group.backward(&grads))?;
            }
        }
        self.compare("step")
    }
}

/// A batch of `n` skewed accesses: enough for several threads, with rows of more than 128 and of more than 1,024 accesses.
fn large_batch(config: &GroupConfig, n: usize, source: &mut Pcg64) -> Batch {
    let features = config.feature_count() as usize;
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for feature in 0..features {
        let table = config.features.get(feature).map_or(feature, |&table| table as usize);
        let rows = config.tables[table];
        for bag in 0..64 {
            let each = if bag % 7 == 3 { 0 } else { n / features / 55 };
            for _ in 0..each {
                let x: f64 = source.random();
                let outside = config.out_of_range != OutOfRange::Error && source.random_bool(0.01);
                indices.push(if outside { u32::MAX } else { (x.powi(4) * f64::from(rows)) as u32 });
            }
            offsets.push(indices.len() as u32);
        }
    }
    let weights = source.random_bool(0.4).then(|| indices.iter().map(|_| source.random_range(-2.0..2.0)).collect());
    Batch { indices, offsets, weights }
}

fn random_run(seed: u64, large: bool) -> Result<(), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let mut config = random_config(&mut source);
    if large {
        config.tables = config.tables.iter().map(|rows| rows * 23).collect();
        config.cache_rows *= source.random_range(0..20);
        config.ways = [32, 32, 3][source.random_range(0..3)];
    }
    let mut paths = Paths::new(&config);
    let mut run = || {
        paths.compare("new")?;
        for _ in 0..5 {
            if source.random_bool(0.3) {
                let (rows, ways) = random_pins(&config, &mut source);
                paths.both("pin", |group| group.pin(&rows, ways.min(config.ways)))?;
                paths.compare("pin")?;
            }
            let batch =
                if large { large_batch(&config, 9000, &mut source) } else { random_batch(&config, &mut source) };
            paths.step(&batch, &mut source)?;
            match source.random_range(0..6) {
                0 => {
                    paths.both("flush", Embedding::flush)?;
                }
                1 => {
                    paths.both("reset", Embedding::reset)?;
                }
                2 => {
                    let batches = [0, 1].map(|_| random_batch(&config, &mut source));
                    prefetched(&mut paths, &batches)?;
                }
                _ => {}
            }
            paths.compare("between steps")?;
        }
        Ok(())
    };
    run().map_err(|difference: String| format!("seed {seed}, {config:?}: {difference}"))
}

/// A forward, whose backward comes behind the decision of the next batch.
fn prefetched(paths: &mut Paths, [first, second]: &[Batch; 2]) -> Result<(), String> {
    let Some(outputs) = paths.outputs("forward", first, false)? else { return Ok(()) };
    let grads = vec![0.25; outputs];
    paths.both("prefetch", |group| group.prefetch(&second.indices, &second.offsets, second.weights.as_deref()))?;
    paths.both("backward before a prefetched forward", |group| group.backward(&grads))?;
    let outputs = paths.both("prefetched forward", |group| Ok(bits(&group.forward_prefetched()?)))?;
    if let Some(outputs) = outputs {
        let grads = vec![0.25; outputs.len()];
        paths.both("backward after a prefetched forward", |group| group.backward(&grads))?;
    }
    Ok(())
}

#[test]
fn random_runs_are_the_same_on_both_paths() {
    let faults: Vec<String> = (0..400).filter_map(|seed| random_run(seed, false).err()).collect();
    assert!(faults.is_empty(), "{} of 400 differ:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn random_runs_with_large_batches_are_the_same_on_both_paths() {
    let faults: Vec<String> = (0..40).filter_map(|seed| random_run(seed, true).err()).collect();
    assert!(faults.is_empty(), "{} of 40 differ:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let faults: Vec<String> = pool.install(|| (100..108).filter_map(|seed| random_run(seed, true).err()).collect());
        assert!(faults.is_empty(), "{threads} threads:\n{}", faults.join("\n"));
    }
}

/// The allocations of a step after `steps` steps with other batches of one size, some indices outside their tables.
fn allocations(config: &GroupConfig, path: CpuPath, steps: u64) -> u64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let mut source = Pcg64::seed_from_u64(5);
        let mut group = CpuGroup::new(config.clone()).unwrap().with_path(path);
        let offsets: Vec<u32> = (0..=200).map(|bag| bag * 20).collect();
        let weights = vec![0.5; 4000];
        let mut outputs = vec![0.0; group.output_len(4000, 200)];
        let grads = vec![0.25; outputs.len()];
        let mut found = 0;
        for _ in 0..=steps {
            let indices: Vec<u32> = (0..4000).map(|_| source.random_range(0..2010)).collect();
            let counted = allocation_counter::measure(|| {
                group.forward_frozen_into(&indices, &offsets, Some(&weights), &mut outputs).unwrap();
                group.forward_into(&indices, &offsets, Some(&weights), &mut outputs).unwrap();
                group.backward(&grads).unwrap();
            });
            found = counted.count_total;
        }
        found
    })
}

#[test]
fn a_steady_step_allocates_nothing() {
    for precision in [Precision::Fp32, Precision::Fp16, Precision::Int8] {
        for cache in [0, 256] {
            for optimizer in [Optimizer::sgd(0.1), Optimizer::row_wise_adagrad(0.1), Optimizer::adagrad(0.1)] {
                let config = GroupConfig::new(&[2000], 24)
                    .with_precision(precision)
                    .with_cache_rows(cache)
                    .with_policy(Policy::Lfu)
                    .with_pooling(Pooling::Mean)
                    .with_out_of_range(OutOfRange::Skip)
                    .with_optimizer(optimizer);
                assert_eq!(allocations(&config, CpuPath::Direct, 5), 0, "{config:?}");
                // The first step allocates its lists, and the mirrors allocate in every step.
                assert!(allocations(&config, CpuPath::Direct, 0) > 0);
                assert!(cache == 0 || allocations(&config, CpuPath::Mirrors, 5) > 0);
            }
        }
    }
}

#[test]
fn a_difference_is_noticed() {
    let config = GroupConfig::new(&[500], 16)
        .with_precision(Precision::Fp16)
        .with_policy(Policy::Lfu)
        .with_pooling(Pooling::Sum)
        .with_optimizer(Optimizer::adagrad(0.1))
        .with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let batch = Batch { indices: vec![1, 2, 2, 3], offsets: vec![0, 2, 4], weights: None };
    let mut paths = Paths::new(&config);
    paths.step(&batch, &mut Pcg64::seed_from_u64(1)).unwrap();
    paths.direct.write_rows(&[2], &[0.5; 16]).unwrap();
    assert_eq!(paths.compare("other rows").unwrap_err(), "other rows: records differ");
    assert_eq!(paths.outputs("forward", &batch, false).unwrap_err(), "forward differs");

    let mut paths = Paths::new(&config);
    paths.direct.forward(&batch.indices, &batch.offsets, None).unwrap();
    paths.mirrors.forward(&batch.indices[..2], &batch.offsets[..2], None).unwrap();
    assert_eq!(paths.compare("other batch").unwrap_err(), "other batch: frequencies differ");
}
