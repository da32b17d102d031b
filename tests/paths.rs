//! The direct path of the CPU group against its mirrors: the same bits, call by call.

use hotrow::{
    CpuGroup, CpuPath, CpuScaler, Error, GradSlice, GroupConfig, Init, LossScale, Optimizer, OutOfRange, Part, Policy,
    Pooling, Precision, Snapshot, prelude::*,
};
use hotrow_harness::lockstep::{Batch, random_batch, random_config, random_frequencies, random_pins};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Two groups that must agree bit for bit.
struct Paths {
    direct: CpuGroup,
    mirrors: CpuGroup,
    seen: Seen,
}

/// What runs met, counted, so that a test can show that they met everything.
const CASES: [&str; 11] = [
    "steps",
    "refused batches",
    "rows of more than 128 accesses",
    "rows of more than 1,024",
    "resized caches",
    "hits",
    "evictions",
    "write-backs",
    "bypassed rows",
    "skipped rows",
    "indices out of range",
];

type Seen = [u64; CASES.len()];

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

impl Paths {
    fn new(config: &GroupConfig) -> Self {
        let new = |path| CpuGroup::new(config.clone()).unwrap().with_path(path);
        Self { direct: new(CpuPath::Direct), mirrors: new(CpuPath::Mirrors), seen: Seen::default() }
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
        let Some(outputs) = self.outputs("forward", batch, false)? else {
            self.seen[1] += 1;
            return self.compare("refused forward");
        };
        self.seen[0] += 1;
        let mut sorted = batch.indices.clone();
        sorted.sort_unstable();
        let most = sorted.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0);
        self.seen[2] += u64::from(most > 128);
        self.seen[3] += u64::from(most > 1024);
        // Not always: a snapshot makes the direct path count the distinct rows before the backward does.
        match source.random_range(0..7) {
            0 => self.compare("forward")?,
            1 => {
                self.outputs("frozen forward before the backward", batch, true)?;
            }
            2 => {
                self.both("counters before the backward", CpuGroup::counters)?;
            }
            3 => {
                self.both("flush before the backward", Embedding::flush)?;
            }
            _ => {}
        }
        let Batch { indices, offsets, .. } = batch;
        let spoiled = source.random_bool(0.1).then(|| source.random_range(0..outputs.max(1)));
        let salt: u32 = source.random_range(1..1000);
        let grads: Vec<f32> = (0..outputs)
            .map(|i| {
                if spoiled == Some(i) {
                    [f32::NAN, f32::INFINITY][salt as usize % 2]
                } else {
                    (i as u32).wrapping_mul(salt) as f32 / 2e9 - 1.0
                }
            })
            .collect();
        self.both("weight gradient", |group| Ok(bits(&group.weight_gradient(indices, offsets, &grads)?)))?;
        match source.random_range(0..9) {
            8 => {
                let halves: Vec<u16> = grads.iter().map(|&x| half::f16::from_f32(x).to_bits()).collect();
                self.both("backward of plain halves", |group| group.backward_half(&halves))?;
            }
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

/// Makes calls on both paths. Returns what they met, and the state of the direct path at the end.
fn random_run(seed: u64, large: bool) -> Result<(Seen, Snapshot), String> {
    let mut source = Pcg64::seed_from_u64(seed);
    let mut config = random_config(&mut source);
    if large {
        config.tables = config.tables.iter().map(|rows| rows * 23).collect();
        config.cache_rows *= source.random_range(0..20);
        config.ways = [32, 32, 3][source.random_range(0..3)];
    }
    let mut paths = Paths::new(&config);
    let mut run = || {
        let paths = &mut paths;
        paths.compare("new")?;
        if source.random_bool(0.5) {
            let freqs = random_frequencies(&config, &mut source);
            paths.both("write_part", |group| group.write_part(Part::Frequencies, 0, &freqs))?;
            paths.compare("written frequencies")?;
        }
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
                    prefetched(paths, &batches)?;
                }
                3 => {
                    let rows = [0, 1, 40, 700][source.random_range(0..4)];
                    paths.both("resize", |group| group.resize_cache(rows))?;
                    paths.seen[4] += 1;
                }
                _ => {}
            }
            paths.compare("between steps")?;
        }
        Ok(())
    };
    run().map_err(|difference: String| format!("seed {seed}, {config:?}: {difference}"))?;
    let state = paths.direct.snapshot().unwrap();
    let mut seen = paths.seen;
    for c in &state.counters {
        let met = [c.hits, c.evictions, c.write_backs, c.bypass_writes, c.skipped_rows, c.out_of_range];
        seen[5..].iter_mut().zip(met).for_each(|(sum, number)| *sum += number);
    }
    Ok((seen, state))
}

/// Makes runs. Fails if the paths differ in one, or if nothing met one of [`CASES`] but those of `but`: the seeds that are held meet each for certain.
fn random_runs(seeds: impl Iterator<Item = u64>, large: bool, but: &[&str]) {
    let runs: Vec<_> = seeds.map(|seed| random_run(seed, large)).collect();
    let faults: Vec<&String> = runs.iter().filter_map(|run| run.as_ref().err()).collect();
    assert!(faults.is_empty(), "{} of {} differ:\n{faults:#?}", faults.len(), runs.len());
    for (k, case) in CASES.iter().enumerate().filter(|(_, case)| !but.contains(case)) {
        assert!(runs.iter().flatten().any(|(seen, _)| seen[k] > 0), "no run met {case}");
    }
}

/// A forward, whose backward comes behind the decision of the next batch.
fn prefetched(paths: &mut Paths, [first, second]: &[Batch; 2]) -> Result<(), String> {
    let Some(outputs) = paths.outputs("forward", first, false)? else { return Ok(()) };
    let grads = vec![0.25; outputs];
    let slopes = |group: &mut CpuGroup| Ok(bits(&group.weight_gradient(&first.indices, &first.offsets, &grads)?));
    let before = paths.both("weight gradient before a prefetch", slopes)?;
    paths.both("prefetch", |group| group.prefetch(&second.indices, &second.offsets, second.weights.as_deref()))?;
    // The tags are those of the next step already.
    if paths.both("weight gradient after a prefetch", slopes)? != before {
        return Err("the prefetch changed the weight gradient".into());
    }
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
    // Small batches have no row of more than 1,024 accesses.
    random_runs(hotrow_harness::seeds("paths", 400), false, &["rows of more than 1,024"]);
}

#[test]
fn random_runs_with_large_batches_are_the_same_on_both_paths() {
    // None of these batches is refused.
    random_runs(hotrow_harness::seeds("paths of large batches", 40), true, &["refused batches"]);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            hotrow_harness::seeds("threads", 8).map(|seed| random_run(seed, true).unwrap()).collect::<Vec<_>>()
        })
    };
    let one = run(1);
    for threads in [2, 5] {
        for ((seen, state), (seen_by_one, wanted)) in run(threads).iter().zip(&one) {
            assert_eq!(seen, seen_by_one, "{threads} threads");
            assert!(state.ways == wanted.ways && state.freqs == wanted.freqs, "{threads} threads");
            assert!(state.records == wanted.records && bits(&state.cache) == bits(&wanted.cache), "{threads} threads");
        }
    }
    assert_ne!(one[0].1.records, one[1].1.records, "other runs have other rows");
}

/// A group may change its path, its pool, and the size of its cache at any time.
#[test]
fn a_path_may_change_between_a_forward_and_its_backward() {
    let config = GroupConfig::new(&[3000], 16)
        .with_precision(Precision::Int8)
        .with_policy(Policy::Lfu)
        .with_optimizer(Optimizer::row_wise_adagrad(0.1));
    let pools = [1, 5].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    let mut source = Pcg64::seed_from_u64(hotrow_harness::seed_for("a path changes"));
    let mut changing = CpuGroup::new(config.clone()).unwrap();
    let mut mirrors = CpuGroup::new(config.clone()).unwrap().with_path(CpuPath::Mirrors);
    for step in 0..24 {
        let batch = large_batch(&config, 6000, &mut source);
        let forward = |group: &mut CpuGroup| group.forward(&batch.indices, &batch.offsets, None).unwrap();
        let outputs = pools[step % 2].install(|| forward(&mut changing));
        assert_eq!(bits(&outputs), bits(&forward(&mut mirrors)), "step {step}");
        if step % 3 == 0 {
            let path = if step % 2 == 0 { CpuPath::Mirrors } else { CpuPath::Direct };
            changing = changing.with_path(path);
        }
        let grads: Vec<f32> = (0..outputs.len()).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
        pools[1 - step % 2].install(|| changing.backward(&grads)).unwrap();
        mirrors.backward(&grads).unwrap();
        let rows: Vec<u32> = (0..3000).step_by(7).collect();
        assert_eq!(bits(&changing.read_rows(&rows).unwrap()), bits(&mirrors.read_rows(&rows).unwrap()), "step {step}");
        assert_eq!(changing.counters().unwrap(), mirrors.counters().unwrap(), "step {step}");
        if step % 5 == 4 {
            let cache = [0, 500, 64][step / 5 % 3];
            assert_eq!(changing.resize_cache(cache).unwrap(), mirrors.resize_cache(cache).unwrap());
        }
    }
}

/// SPEC 5: the direct path moves records as they are at the backward, the mirrors as the forward read them.
#[test]
fn records_restored_before_a_backward_are_moved() {
    let config = GroupConfig::new(&[4], 1)
        .with_precision(Precision::Fp32)
        .with_cache_rows(0)
        .with_optimizer(Optimizer::sgd(0.5));
    for (path, wanted) in [(CpuPath::Direct, 3.0 - 0.5), (CpuPath::Mirrors, 1.0 - 0.5)] {
        let mut group = CpuGroup::new(config.clone().with_init(Init::Constant(1.0))).unwrap().with_path(path);
        assert_eq!(group.forward(&[2], &[0, 1], None).unwrap(), [1.0]);
        group.write_part(Part::Records, 0, &[3.0f32.to_bits(); 4]).unwrap();
        group.backward(&[1.0]).unwrap();
        assert_eq!(group.read_rows(&[2, 1]).unwrap(), [wanted, 3.0], "{path:?}");
    }
}

/// A step number set back lets resident rows look as if the batch used them.
#[test]
fn a_step_number_set_back_harms_no_other_row() {
    let config =
        GroupConfig::new(&[4000], 8).with_policy(Policy::Lfu).with_cache_rows(64).with_precision(Precision::Fp16);
    let mut paths = Paths::new(&config);
    let mut source = Pcg64::seed_from_u64(hotrow_harness::seed_for("a step number set back"));
    for round in 0..12 {
        for _ in 0..4 {
            let batch = random_batch(&config, &mut source);
            paths.both("forward", |group| Ok(bits(&group.forward(&batch.indices, &batch.offsets, None)?))).unwrap();
            let outputs = paths.direct.output_len(batch.indices.len(), batch.offsets.len() - 1);
            paths.both("backward", |group| group.backward(&vec![0.5; outputs])).unwrap();
        }
        for group in [&mut paths.direct, &mut paths.mirrors] {
            group.write_part(Part::Clock, 0, &[round % 3]).unwrap();
        }
    }
    paths.compare("end").unwrap();
}

/// The allocations of a step after `steps` steps with other batches of one size: one row has a tenth of the accesses, and some indices lie
/// outside their tables.
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
            let indices: Vec<u32> =
                (0..4000).map(|i| if i % 10 == 0 { 77 } else { source.random_range(0..2010) }).collect();
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
    let slopes = |group: &mut CpuGroup| Ok(bits(&group.weight_gradient(&batch.indices, &batch.offsets, &[0.5; 32])?));
    assert!(paths.both("weight gradient", slopes).unwrap_err().starts_with("weight gradient"));

    let mut paths = Paths::new(&config);
    paths.direct.forward(&batch.indices, &batch.offsets, None).unwrap();
    paths.mirrors.forward(&batch.indices[..2], &batch.offsets[..2], None).unwrap();
    assert_eq!(paths.compare("other batch").unwrap_err(), "other batch: frequencies differ");
}
