//! The CPU group on 1, 2 and 5 threads: the same bits, call by call. `naive.rs` compares one with the FP64 model, `gpu/lockstep.rs` with the GPU.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use hotrow::{
    Bags, Counters, CpuGroup, CpuScaler, Error, GradSlice, GroupConfig, Init, LossScale, Mode, Optimizer, OutOfRange,
    OutputSlice, Policy, Pooling, Precision, prelude::*, state::Part,
};
use hotrow_harness::lockstep::{
    Batch, bits, random_batch, random_config, random_frequencies, random_pins, random_shares, random_since,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A group, and a hash of all that its calls returned after each of them.
struct Run {
    group: CpuGroup,
    found: Vec<u64>,
}

/// Runs `work` on so many threads.
fn on<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

impl Run {
    fn new(config: &GroupConfig) -> Self {
        Self { group: CpuGroup::new(config.clone()).unwrap(), found: Vec::new() }
    }

    /// Makes a call, and keeps a hash of its result.
    fn call<T: std::fmt::Debug>(&mut self, call: impl FnOnce(&mut CpuGroup) -> Result<T, Error>) -> Option<T> {
        let result = call(&mut self.group);
        let mut hasher = DefaultHasher::new();
        format!("{result:?}").hash(&mut hasher);
        self.found.push(hasher.finish());
        result.ok()
    }

    fn state(&mut self) {
        self.call(|group| {
            let state = group.snapshot()?;
            Ok((bits(&state.cache), state.t, state.ways, state.records, state.freqs, state.counters))
        });
    }

    fn outputs(&mut self, batch: &Batch, frozen: bool) -> Option<usize> {
        let Batch { indices, offsets, weights } = batch;
        let outputs = self.call(|group| {
            let bags = Bags::new(indices, offsets).with_weights(weights.as_deref());
            Ok(bits(&group.forward(bags, if frozen { Mode::Frozen } else { Mode::Train })?))
        });
        outputs.map(|outputs| outputs.len())
    }

    fn step(&mut self, batch: &Batch, next: &Batch, source: &mut Pcg64) {
        self.outputs(batch, true);
        let Some(outputs) = self.outputs(batch, false) else { return };
        // Not always: a snapshot counts the distinct rows before the backward does.
        match source.random_range(0..7) {
            0 => self.state(),
            1 => {
                self.call(CpuGroup::counters);
            }
            2 => {
                self.call(Embedding::flush);
            }
            _ => {}
        }
        let Batch { indices, offsets, .. } = batch;
        let spoiled = source.random_bool(0.1).then(|| source.random_range(0..outputs.max(1)));
        let salt: u32 = source.random_range(1..1000);
        let mut grads: Vec<f32> = (0..outputs).map(|i| (i as u32).wrapping_mul(salt) as f32 / 2e9 - 1.0).collect();
        if let Some(spoiled) = spoiled.and_then(|at| grads.get_mut(at)) {
            *spoiled = [f32::NAN, f32::INFINITY][salt as usize % 2];
        }
        let prefetch = source.random_bool(0.3);
        if prefetch {
            self.call(|group| group.prefetch(next.bags()));
        }
        self.call(|group| Ok(bits(&group.weight_gradient(Bags::new(indices, offsets), &grads)?)));
        match source.random_range(0..9) {
            0..=1 => self.group.discard_pending(),
            2..=4 => {
                let halves: Vec<half::f16> = grads.iter().map(|&x| half::f16::from_f32(x)).collect();
                let grads = [GradSlice::F32(&grads), GradSlice::F16(&halves)][salt as usize % 2];
                self.call(|group| {
                    let mut scaler = CpuScaler::new(LossScale::BACKOFF)?;
                    scaler.inspect(grads);
                    let verdict = scaler.decide()?;
                    group.backward_scaled(grads, &verdict)
                });
            }
            _ => {
                self.call(|group| group.backward(&grads));
            }
        }
        if prefetch {
            let outputs = self.call(|group| Ok(bits(&group.forward_prefetched()?)));
            self.call(|group| group.backward(&vec![0.25; outputs.map_or(0, |outputs| outputs.len())]));
        }
        self.state();
    }
}

/// A batch of `n` skewed accesses: enough for several threads, with rows of more than one chunk of sums and of more than eight.
fn large_batch(config: &GroupConfig, n: usize, source: &mut Pcg64) -> Batch {
    let features = config.feature_tables();
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for &table in &features {
        let rows = config.tables[table as usize];
        for bag in 0..64 {
            let each = if bag % 7 == 3 { 0 } else { n / features.len() / 55 };
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

/// Makes calls. Returns a hash of each result and state, and the counters at the end.
fn random_run(seed: u64, large: bool) -> (Vec<u64>, Counters) {
    let mut source = Pcg64::seed_from_u64(seed);
    let mut config = random_config(&mut source);
    if large {
        config.tables = config.tables.iter().map(|rows| rows * 23).collect();
        config.cache_rows *= source.random_range(0..20);
        config.ways = [32, 32, 3][source.random_range(0..3)];
        config.window_ways = config.window_ways.min(config.ways - 1);
        config.cache_shares = random_shares(&config);
    }
    let rows = config.tables.iter().sum::<u32>();
    let mut run = Run::new(&config);
    if source.random_bool(0.5) {
        let freqs = random_frequencies(&config, &mut source);
        run.call(|group| group.write_part(Part::Frequencies, 0, &freqs));
        let since = random_since(&config, &mut source);
        run.call(|group| group.write_part(Part::Since, 0, &since));
    }
    for _ in 0..5 {
        if source.random_bool(0.3) {
            let (rows, ways) = random_pins(&config, &mut source);
            run.call(|group| group.pin(&rows, ways.min(config.ways)));
        }
        let [batch, next] = [0, 1].map(|_| match large {
            true => large_batch(&config, 9000, &mut source),
            false => random_batch(&config, &mut source),
        });
        run.step(&batch, &next, &mut source);
        run.group.discard_pending();
        match source.random_range(0..6) {
            0 => run.call(Embedding::flush),
            1 => run.call(Embedding::reset),
            2 => {
                let list: Vec<u32> = (0..source.random_range(1..4000)).map(|_| source.random_range(0..rows)).collect();
                let values: Vec<f32> =
                    (0..list.len() * config.dim as usize).map(|_| source.random_range(-1.0..1.0)).collect();
                run.call(|group| group.write_rows(&list, &values))
            }
            3 => {
                let rows = [0, 1, 40, 700][source.random_range(0..4)];
                run.call(|group| group.resize_cache(rows)).map(drop)
            }
            _ => None,
        };
        run.call(|group| Ok(bits(&group.read_rows(&(0..rows).collect::<Vec<_>>())?)));
        run.state();
    }
    let counters = run.group.counters().unwrap().into_iter().sum();
    (run.found, counters)
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let seeds: Vec<(u64, bool)> = [(12, true), (60, false)]
        .iter()
        .flat_map(|&(n, large)| hotrow_harness::seeds("threads", n).map(move |seed| (seed, large)))
        .collect();
    let run = |threads| on(threads, || seeds.iter().map(|&(seed, large)| random_run(seed, large)).collect::<Vec<_>>());
    let one = run(1);
    for threads in [2, 5] {
        for ((found, wanted), seed) in run(threads).iter().zip(&one).zip(&seeds) {
            assert!(found == wanted, "{seed:?}, {threads} threads");
        }
    }
    let c: Counters = one.iter().map(|(_, counters)| *counters).sum();
    let met = [c.hits, c.evictions, c.write_backs, c.bypass_writes, c.skipped_rows, c.out_of_range];
    assert!(met.iter().all(|&count| count > 0), "{c:?}");
    assert_ne!(one[0], one[1], "another run returns something else");
}

/// A group may change its pool, and the size of its cache, at any time.
#[test]
fn the_threads_may_change_between_a_forward_and_its_backward() {
    let config = GroupConfig::new(&[3000], 16)
        .with_precision(Precision::Int8)
        .with_policy(Policy::Lfu)
        .with_optimizer(Optimizer::row_wise_adagrad(0.1));
    let run = |changing: bool| {
        let threads = |step: usize| if changing && step.is_multiple_of(2) { 5 } else { 1 };
        let mut source = Pcg64::seed_from_u64(hotrow_harness::seed_for("a pool changes"));
        let mut run = Run::new(&config);
        for step in 0..24 {
            let batch = large_batch(&config, 6000, &mut source);
            let outputs = on(threads(step), || run.outputs(&batch, false)).unwrap();
            let grads: Vec<f32> = (0..outputs).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
            on(threads(step + 1), || run.call(|group| group.backward(&grads)));
            run.state();
            if step % 5 == 4 {
                run.call(|group| group.resize_cache([0, 500, 64][step / 5 % 3]));
            }
        }
        run.found
    };
    assert!(run(true) == run(false));
}

/// SPEC 5: records are moved as they are at the backward, not as the forward read them.
#[test]
fn records_restored_before_a_backward_are_moved() {
    let config = GroupConfig::new(&[4], 1).with_precision(Precision::Fp32).with_optimizer(Optimizer::sgd(0.5));
    let mut group = CpuGroup::new(config.with_cache_rows(0).with_init(Init::Constant(1.0))).unwrap();
    assert_eq!(group.forward(Bags::new(&[2], &[0, 1]), Mode::Train).unwrap(), [1.0]);
    group.write_part(Part::Records, 0, &[3.0f32.to_bits(); 4]).unwrap();
    group.backward(&[1.0]).unwrap();
    assert_eq!(group.read_rows(&[2, 1]).unwrap(), [2.5, 3.0]);
}

/// A step number set back lets resident rows look as if the batch used them: each output is still that of the rows before.
#[test]
fn a_step_number_set_back_harms_no_other_row() {
    let config =
        GroupConfig::new(&[4000], 8).with_policy(Policy::Lfu).with_cache_rows(64).with_precision(Precision::Fp32);
    let mut group = CpuGroup::new(config.clone()).unwrap();
    let mut source = Pcg64::seed_from_u64(hotrow_harness::seed_for("a step number set back"));
    let mut kept = 0;
    for round in 0..12 {
        for _ in 0..4 {
            let Batch { indices, offsets, weights } = random_batch(&config, &mut source);
            let weights = weights.as_deref();
            let Ok(wanted) = group.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Frozen) else {
                continue;
            };
            assert_eq!(
                bits(&group.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Train).unwrap()),
                bits(&wanted)
            );
            group.backward(&vec![0.5; wanted.len()]).unwrap();
            kept += 1;
        }
        group.write_part(Part::Clock, 0, &[round % 3]).unwrap();
    }
    assert!(kept > 20, "{kept} steps");
}

/// The allocations of a step after `steps` steps with other batches of one size: one row has a tenth of the accesses, and some indices lie
/// outside their tables.
fn allocations(config: &GroupConfig, steps: u64) -> u64 {
    on(1, || {
        let mut source = Pcg64::seed_from_u64(5);
        let mut group = CpuGroup::new(config.clone()).unwrap();
        let offsets: Vec<u32> = (0..=200).map(|bag| bag * 20).collect();
        let weights = vec![0.5; 4000];
        let mut outputs = vec![0.0; group.output_len(4000, 200)];
        let grads = vec![0.25; outputs.len()];
        let mut found = 0;
        for _ in 0..=steps {
            let indices: Vec<u32> =
                (0..4000).map(|i| if i % 10 == 0 { 77 } else { source.random_range(0..2010) }).collect();
            let counted = allocation_counter::measure(|| {
                for mode in [Mode::Frozen, Mode::Train] {
                    let bags = Bags::new(&indices, &offsets).with_weights(Some(&weights));
                    group.forward_into(bags, mode, OutputSlice::F32(&mut outputs)).unwrap();
                }
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
                assert_eq!(allocations(&config, 5), 0, "{config:?}");
                assert!(allocations(&config, 0) > 0, "the first step allocates its lists");
            }
        }
    }
}
