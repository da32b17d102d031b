//! Parameter-shared tables on the GPU: against the FP64 model; bit for bit against the CPU where steps only add, also at the edges of workgroups, sorts and
//! dispatches; in a caller's own encoders and buffers; and with bad input.

use std::collections::HashMap;

use hotrow::internals::Pieces as _;
use hotrow::{
    Batch, Calls, Context, CpuSharedGroup, Error, FloatBuffer, GradSlice, Init, LossScale, MemoryReport, Mode,
    Optimizer, OptimizerKind, Precision, Scaler, SharedGroup, StatePrecision,
    internals::RankBody,
    prelude::*,
    robe::{self, Addressing, Backward, Config, RobeSnapshot, hash::PRIME},
};
use wgpu::BufferUsages;

use crate::caller::{self, download, storage};
use hotrow_harness::{
    array_tests,
    arrays::{self, New, configs, odd, way},
    device::{again, options, share, spoiled, with_gpu},
    gpu_test,
    gradient::{covers, descended},
    lockstep::bits,
    shared::{
        Bags, WAYS, bags, close, config, exact, forward, fp32, outputs, packed, random_grads, seeds, states_each,
        weights,
    },
};

fn new(context: &Context) -> impl Fn(&Config) -> SharedGroup {
    |config| SharedGroup::new(context, config.clone()).unwrap()
}

/// A device with three workgroups in x, so that small inputs fill a second dimension.
fn narrow() -> Context {
    again(&options().rank(RankBody::Portable).max_groups(3))
}

fn on_gpu(test: &dyn Fn(New<'_, SharedGroup>)) {
    with_gpu(|context| test(&new(context)));
}

array_tests!(sorted, on_gpu, 32);

/// Every precision with every rounding runs dense and sparse.
#[test]
fn seeds_pair_everything_with_either_way() {
    for (seeds, each) in [(0..16, 1), (0..32, 2), (0..64, 4)] {
        let mut met = HashMap::<_, u32>::new();
        for seed in seeds {
            let config = packed(seed);
            *met.entry((config.precision, config.rounding, way(seed))).or_default() += 1;
        }
        assert!(met.len() == 4 * 2 * 2 && met.values().all(|&times| times == each), "{met:?}");
    }
}

/// And a backward is a step of SGD by the gradient.
#[gpu_test]
fn steps_that_add_have_the_cpu_s_bits(context: &Context) {
    let narrow = narrow();
    for seed in share(seeds("exact sums", 24)) {
        let other = [WAYS[0], WAYS[1], Backward::Auto][seed as usize % 3];
        for (context, backward) in [(context, WAYS[0]), (context, WAYS[1]), (&narrow, other)] {
            let config = exact(seed).with_backward(backward);
            // The batches have starts of more than 32 chunks.
            let batches = [0, 1, 2].map(|step| Bags { weights: None, ..bags(&config, seed + step, 12, 60) });
            let (gradient, [before, after]) = arrays::steps_are_the_cpus(&new(context), &config, &batches);
            assert!(descended(&fp32(&before), &gradient, config.optimizer) == fp32(&after), "seed {seed}");
        }
    }
}

/// The number of weights and states, and how many are neighbours of the wanted ones. An ULP of a scale or a bias makes no neighbour.
/// A difference in clocks or counters is an error.
fn codes_apart(config: &Config, found: &RobeSnapshot, wanted: &RobeSnapshot) -> Result<(usize, usize), String> {
    if (found.t, &found.counters) != (wanted.t, &wanted.counters) {
        return Err(format!("{:?} for {:?}", found.counters, wanted.counters));
    }
    let [found, wanted] = [found, wanted].map(|s| [weights(config, s), s.states(config).unwrap()].concat());
    let other = |(a, b): &(&f32, &f32)| (*a - *b).abs() > 1e-4 * a.abs().max(b.abs()) + 1e-6;
    Ok((found.len(), found.iter().zip(&wanted).filter(other).count()))
}

/// Each step of the CPU starts from the device's state. Counters and clocks are equal. Few codes are neighbours of the CPU's, because a sum may be
/// rounded differently (weights are multiplied, AdaGrad divides); the chance is that of `Codes::few`.
#[gpu_test]
fn packed_steps_are_the_cpu_s(context: &Context) {
    let (mut codes, mut others, mut moved, mut noticed) = (0, 0, 0, 0);
    for seed in share(seeds("codes of arrays", 64)) {
        let config = packed(seed).with_backward(way(seed));
        let mut group = SharedGroup::new(context, config.clone()).unwrap();
        let mut mirror = CpuSharedGroup::new(config.clone()).unwrap();
        let mut wrong = CpuSharedGroup::new(config.clone().with_seed(99)).unwrap();
        assert_eq!(group.snapshot().unwrap(), mirror.snapshot().unwrap(), "as it begins");
        for step in 0..3 {
            let before = group.snapshot().unwrap();
            let bags = bags(&config, seed + step, 8, 40);
            let found = forward(&mut group, &bags);
            let mut grads = random_grads(step, found.len());
            if step == 2 {
                let broken = [f32::NAN, f32::INFINITY, 3e38, -3e38];
                grads.iter_mut().step_by(37).zip(broken.iter().cycle()).for_each(|(g, &bad)| *g = bad);
            }
            group.backward(&grads).unwrap();
            for mirror in [&mut mirror, &mut wrong] {
                mirror.restore(&before).unwrap();
                close(&forward(mirror, &bags), &outputs(&config, &weights(&config, &before), &bags)).unwrap();
                mirror.backward(&grads).unwrap();
            }
            let found = group.snapshot().unwrap();
            let apart = codes_apart(&config, &found, &mirror.snapshot().unwrap());
            let (some, apart) = apart.unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
            (codes, others) = (codes + some, others + apart);
            moved += before.weight_words.iter().zip(&found.weight_words).filter(|(a, b)| a != b).count();
            // Another seed rounds differently.
            noticed += codes_apart(&config, &found, &wrong.snapshot().unwrap()).map_or(0, |(_, others)| others);
        }
        // Written weights are rounded with the same random bits, too.
        let values = random_grads(seed, config.weights as usize);
        mirror.restore(&group.snapshot().unwrap()).unwrap();
        group.write_weights(&values).unwrap();
        mirror.write_weights(&values).unwrap();
        assert_eq!(group.snapshot().unwrap(), mirror.snapshot().unwrap());
    }
    assert!(moved > 1000 && codes > 100_000 && 10_000 * others <= codes + 200_000, "{others} of {codes}, {moved}");
    assert!(noticed > 20 * (codes / 10_000), "{noticed} of {codes}: the comparison can fail");
}

/// An array of several windows gives the bits of an array of one window. A chunk may lie in two windows.
#[gpu_test]
fn windows_change_no_bit(context: &Context) {
    let most = context.caps().choose_windows();
    let mut several = 0;
    for (seed, config) in share(configs("windows of arrays", 16)) {
        let run = |window_bytes| {
            let config = config.clone().with_window_bytes(window_bytes);
            let mut group = SharedGroup::new(context, config.clone()).unwrap();
            let mut seen = Vec::new();
            for step in 0..2 {
                let bags = bags(&config, seed + step, 6, 40);
                let found = forward(&mut group, &bags);
                group.backward(&random_grads(step, found.len())).unwrap();
                seen.push(found);
            }
            let first = group.snapshot().unwrap();
            group.restore(&first).unwrap();
            assert_eq!(group.snapshot().unwrap(), first);
            let windows = group.memory().allocations.iter().filter(|(what, _)| *what == "weights").count() as u64;
            group.write_weights(&weights(&config, &first)).unwrap();
            (windows, (seen, first, group.snapshot().unwrap().weight_words))
        };
        let (one, whole) = run(None);
        assert_eq!(one, 1);
        for windows in [2, 3, 5].into_iter().filter(|&windows| windows <= most) {
            let each = states_each(&config) as u32;
            let (block_words, blocks) = match config.precision {
                Precision::Fp32 => (each.max(1), config.weights),
                precision => {
                    let words = config.block * precision.bits() / 32 + if precision.is_integer() { 2 } else { 0 };
                    let states = match config.state {
                        Some(StatePrecision::Int8) if each > 0 => 1 + each * config.block / 4,
                        Some(StatePrecision::Fp32) => each * config.block,
                        _ if config.optimizer.kind == OptimizerKind::Ftrl => each * config.block,
                        _ => each * config.block / 2,
                    };
                    (words.max(states), config.weights.div_ceil(config.block))
                }
            };
            let block_bytes = 4 * block_words;
            let (cut, found) = run(Some(u64::from(blocks.div_ceil(windows) * block_bytes)));
            assert!(cut <= u64::from(windows) && (cut > 1 || blocks == 1), "{cut} windows of {windows}");
            assert!(found == whole, "seed {seed}, {windows} windows, {config:?}");
            several += u64::from(cut > 1);
        }
    }
    assert!(several > 10 || most < 5, "{several}");
}

/// The comparison above must notice a stage that reads the wrong window.
#[gpu_test]
fn a_wrong_window_is_noticed(context: &Context) {
    let rows: Vec<u32> = (0..1000).collect();
    let of = |precision, bytes| {
        let config = Config::new(&[1000], 16, 1000, 8).with_precision(precision).with_window_bytes(Some(bytes));
        let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
        let right = SharedGroup::new(context, config.clone()).unwrap().read_rows(&rows).unwrap();
        assert_eq!(right, CpuSharedGroup::new(config.clone()).unwrap().read_rows(&rows).unwrap());
        (config, right)
    };
    // Either precision has its own stage. Both stages are spoiled at once, because each change builds every pipeline anew.
    let stages = ["robe_gather", "robe_decode"];
    let both = [of(Precision::Fp32, 2000), of(Precision::Int8, 18 * 4 * 8)];
    for change in [("return window1[at", "return window1[1u + at"), ("at >= 1u * robe", "at > 1u * robe")] {
        let spoiled = spoiled(context, &stages, |cut| cut.windows > 1, change);
        for ((config, right), stage) in both.iter().zip(stages) {
            let mut group = SharedGroup::new(&spoiled, config.clone()).unwrap();
            assert!(&group.read_rows(&rows).unwrap() != right, "{stage}: {}", change.1);
        }
    }
}

/// An array larger than a binding of llvmpipe. A device whose binding would hold it all gets windows of the same size.
#[gpu_test]
fn an_array_larger_than_a_binding(context: &Context) {
    let limit = context.caps().choose_piece_bytes().min(128 << 20);
    let weights = (limit / 4) as u32 + 100_000;
    let config = Config::new(&[1 << 31], 128, weights, 32).with_window_bytes(Some(limit));
    let config = config.with_optimizer(Optimizer::sgd(0.5)).with_backward(Backward::Sparse);
    let mut group = SharedGroup::new(context, config.clone()).unwrap();
    let mut mirror = CpuSharedGroup::new(config).unwrap();
    let indices: Vec<u32> = (0..4000).map(|i| i * 500_009).collect();
    let groups: [&mut dyn Lookup; 2] = [&mut group, &mut mirror];
    let [found, wanted] = groups.map(|group| {
        let found = group.forward(hotrow::Bags::new(&indices, &[0, 4000]), Mode::Train).unwrap();
        group.backward(&random_grads(1, found.len())).unwrap();
        (found, group.read_rows(&indices).unwrap())
    });
    assert!(found == wanted);
    let beyond = |row: u32| (0..4).any(|j| u64::from(robe::hash::location(row, 32 * j, weights, 32)) > limit / 4);
    assert!(indices.iter().filter(|&&row| beyond(row)).count() > 20);
}

#[gpu_test]
fn windows_that_cannot_be_are_named(context: &Context) {
    // More windows than a stage has storage buffers, and a window that holds no weight.
    let tiny = |window_bytes| Config::new(&[10], 4, 64, 4).with_window_bytes(Some(window_bytes));
    assert!(context.caps().choose_windows() < 64);
    refuses!(SharedGroup::new(context, tiny(4)), Error::TooLarge { what: "weights", .. });
    refuses!(SharedGroup::new(context, tiny(3)), Error::Config { field: "window_bytes", .. });
}

#[gpu_test]
fn a_memory_plan_is_right_to_the_byte(context: &Context) {
    for seed in share(seeds("plans of arrays", 26)) {
        let optimizer = [Optimizer::sgd(0.1), Optimizer::adagrad(0.1)][odd(seed)];
        // Sorted backward, packed arrays, atomic backward, and arrays in two windows.
        let config = match seed % 64 {
            0..9 => config(seed).with_optimizer(optimizer),
            9..17 => packed(seed).with_optimizer(optimizer),
            17..20 => config(seed).with_optimizer(optimizer).with_backward(Backward::Atomic),
            _ => {
                let config = (if seed % 64 < 22 { config(seed) } else { packed(seed) }).with_optimizer(optimizer);
                let half = config.table_bytes().div_ceil(2).max(1024);
                config.with_window_bytes(Some(half))
            }
        };
        let mut group = SharedGroup::new(context, config.clone()).unwrap();
        let mut calls = Calls::default();
        let check = |group: &SharedGroup, calls| {
            let (plan, found) = (MemoryReport::plan_robe(&config, calls).unwrap(), group.memory());
            assert_eq!(plan, found, "{calls:?}, {config:?}");
            let buffers: u64 = found.allocations.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(found.total(), buffers);
            if config.precision == Precision::Fp32 {
                assert_eq!(found.payload + found.record_state, config.table_bytes());
            }
        };
        check(&group, calls);
        // The second batch is larger, the third smaller.
        for (step, most) in [(0, 12), (1, 60), (2, 12)] {
            let bags = bags(&config, seed + step, 8, most);
            let n = bags.indices.len() as u32;
            let found = forward(&mut group, &bags);
            group.backward(&random_grads(step, found.len())).unwrap();
            calls.train = calls.train.max(Some(n));
            check(&group, calls);
            if step == 1 {
                group.forward(bags.bags(), Mode::Frozen).unwrap();
                calls.frozen = Some(n);
                check(&group, calls);
            }
        }
        // The companion: the plans of a larger batch and of another array differ.
        let other = |config: &Config, calls| MemoryReport::plan_robe(config, calls).unwrap() != group.memory();
        assert!(other(&config, calls.with_train(calls.train.map(|n| n + 4))));
        assert!(other(&config.clone().with_addressing(Addressing::Hashed).with_weights(config.weights + 512), calls));
    }
}

/// In a caller's encoder: after a refused forward, and of gradients that overflowed, nothing moves, by a backward or by a step.
#[gpu_test]
fn a_refused_forward_and_an_overflow_take_no_step(context: &Context) {
    let mut group = SharedGroup::new(context, Config::new(&[10], 4, 64, 4)).unwrap();
    let [offsets, ones] = [storage(context, &[0u32, 1]), storage(context, &[1.0f32; 64])];
    let outputs = storage(context, &[0.0f32; 4]);
    for (index, inspected, moves) in [(10, 1.0, false), (9, f32::INFINITY, false), (9, 1.0, true)] {
        for by_step in [false, true] {
            let before = fp32(&group.snapshot().unwrap());
            let [indices, inspected] = [storage(context, &[index]), storage(context, &[f32::to_bits(inspected)])];
            let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
            let mut scaler = Scaler::new(context, LossScale::Static { scale: 2.0 }).unwrap();
            let mut encoder = caller::encoder(context);
            group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
            scaler.encode_inspect(&mut encoder, FloatBuffer::F32(inspected.slice(..)), 1).unwrap();
            scaler.encode_decide(&mut encoder).unwrap();
            if by_step {
                group.encode_step(&mut encoder, ones.slice(..), Some(&scaler)).unwrap();
            } else {
                let grads = FloatBuffer::F32(ones.slice(..16));
                group.encode_backward_scaled(&mut encoder, grads, &scaler).unwrap();
            }
            refuses!(group.encode_step(&mut encoder, ones.slice(..), None), Error::Order { call: "step", .. });
            context.queue().submit([encoder.finish()]);
            if index == 10 {
                refuses!(group.snapshot(), Error::IndexOutOfRange { position: 0, value: 10, .. });
            }
            let moved = fp32(&group.snapshot().unwrap()).iter().zip(&before).filter(|(a, b)| a != b).count();
            assert_eq!(
                moved,
                if !moves {
                    0
                } else if by_step {
                    64
                } else {
                    4
                }
            );
        }
    }
}

/// Everything in a caller's encoders and buffers: the gradient, then a step by it, or a backward.
#[gpu_test]
fn a_caller_s_buffers_get_the_same(context: &Context) {
    for (seed, empty, by_step) in
        [(1, false, true), (4, false, false), (5, false, true), (4, true, true), (1, false, false)]
    {
        let config = exact(seed).with_backward(Backward::Sparse);
        let mut bags = Bags { weights: None, ..bags(&config, seed, 12, 30) };
        if empty {
            bags.indices.clear();
            bags.offsets.fill(0);
        }
        let mut waits = SharedGroup::new(context, config.clone()).unwrap();
        let mut records = SharedGroup::new(context, config.clone()).unwrap();
        let grads = random_grads(4, forward(&mut waits, &bags).len());
        let gradient = waits.gradient(GradSlice::F32(&grads)).unwrap();
        let done = if by_step { waits.step(&gradient) } else { waits.backward(&grads) };
        done.unwrap();
        let [indices, offsets] =
            [&bags.indices, &bags.offsets].map(|words| storage(context, &[&words[..], &[0]].concat()));
        let (outputs, grads) =
            (storage(context, &vec![f32::NAN; grads.len() + 1]), storage(context, &[&grads[..], &[0.0]].concat()));
        let n = bags.indices.len() as u64;
        let batch = Batch {
            indices: (n > 0).then(|| indices.slice(..4 * n)),
            offsets: offsets.slice(..offsets.size() - 4),
            weights: None,
        };
        let sums = storage(context, &vec![f32::NAN; config.weights as usize]);
        let mut encoder = caller::encoder(context);
        records.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
        let before = fp32(&records.snapshot().unwrap());
        records.encode_gradient(&mut encoder, grads.slice(..), sums.slice(..)).unwrap();
        context.queue().submit([encoder.finish()]);
        assert_eq!(download(context, caller::encoder(context), &sums), bits(&gradient), "seed {seed}");
        assert!(records.pending() && gradient.iter().any(|&sum| covers(sum)) != empty);
        assert_eq!(fp32(&records.snapshot().unwrap()), before);
        let mut encoder = caller::encoder(context);
        if by_step {
            records.encode_step(&mut encoder, sums.slice(..), None).unwrap();
        } else {
            records.encode_backward(&mut encoder, grads.slice(..)).unwrap();
        }
        context.queue().submit([encoder.finish()]);
        assert_eq!(records.snapshot().unwrap(), waits.snapshot().unwrap(), "seed {seed}");
    }
}

#[gpu_test]
fn wrong_buffers_of_a_gradient_are_named(context: &Context) {
    let mut group = SharedGroup::new(context, Config::new(&[10], 4, 64, 4)).unwrap();
    group.forward(hotrow::Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
    let before = group.snapshot().unwrap();
    let grads = storage(context, &[1.0f32; 8]);
    let short = caller::buffer(context, 252, BufferUsages::STORAGE);
    let unbound = caller::buffer(context, 256, BufferUsages::COPY_DST);
    for (into, reason) in [(&grads, "a buffer of its own"), (&short, "256 bytes"), (&unbound, "usage STORAGE")] {
        let found = group.encode_gradient(&mut caller::encoder(context), grads.slice(..), into.slice(..));
        assert!(matches!(&found, Err(Error::Buffer { what: "gradient", wanted, .. }) if wanted == reason), "{found:?}");
    }
    for (from, reason) in [(&short, "256 bytes"), (&unbound, "usage STORAGE")] {
        let found = group.encode_step(&mut caller::encoder(context), from.slice(..), None);
        assert!(matches!(&found, Err(Error::Buffer { what: "gradient", wanted, .. }) if wanted == reason), "{found:?}");
    }
    assert_eq!((group.snapshot().unwrap(), group.pending()), (before, true));
}

#[gpu_test]
fn batches_around_a_workgroup_and_a_sort(context: &Context) {
    let narrow = narrow();
    for n in [0, 1, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 3071, 3072, 3073] {
        let indices: Vec<u32> = (0..n).map(|i| i * i % 977).collect();
        let bags = [Bags { indices, offsets: vec![0, n / 3, n / 3, n], weights: None }];
        for (k, backward) in (0..).zip(WAYS) {
            // One chunk an index, several chunks, and a chunk longer than a row.
            for [dim, chunk, weights] in [[8, 8, 700], [5, 1, 4000], [3, 40, 900]] {
                let config = Config::new(&[1000], dim, weights, chunk)
                    .with_backward(backward)
                    .with_optimizer(Optimizer::sgd(0.5));
                let context = if n % 2 == k { context } else { &narrow };
                arrays::steps_are_the_cpus(&new(context), &config, &bags);
            }
        }
    }
}

/// An array with more blocks of weights than one dimension of a dispatch has workgroups.
#[gpu_test]
fn an_array_of_more_than_65535_blocks(context: &Context) {
    let weights = 65_536 * 256 + 1000;
    if u64::from(weights) * 4 > context.caps().choose_piece_bytes() {
        return hotrow_harness::device::skipped("an array of 64 MiB: the device binds less");
    }
    let indices = (0..500).map(|i| i * 7_919).collect();
    let bags = [Bags { indices, offsets: vec![0, 100, 500], weights: None }];
    for backward in [Backward::Dense, Backward::Sparse, Backward::Atomic] {
        let mut config = Config::new(&[u32::MAX - 1], 16, weights, 8);
        (config.backward, config.optimizer, config.init) = (backward, Optimizer::sgd(0.5), Init::Constant(0.25));
        let (gradient, _) = arrays::steps_are_the_cpus(&new(context), &config, &bags);
        let covered = gradient.into_iter().filter(|&sum| covers(sum)).count();
        // Few of the 1,000 chunks overlap, among 16 million weights.
        assert!((7900..=8000).contains(&covered), "{covered}");
    }
}

/// Rows next to multiples of the prime and to the ends of 32 bits, where the product comes closest to its bounds; a row whose hash is the prime; many chunks, whose product with a
/// chunk's number exceeds the prime many times.
#[gpu_test]
fn rows_of_any_number_are_looked_up(context: &Context) {
    let near =
        [0, PRIME, 2 * PRIME, u32::MAX - 4].into_iter().flat_map(|of| (0..4).map(move |more| of.wrapping_add(more)));
    let rows: Vec<u32> =
        near.chain([PRIME - 1, 2 * PRIME - 1, 509_943_417]).filter(|&row| row < u32::MAX - 1).collect();
    for (dim, weights, chunk, rows) in [(10, 64, 8, &rows[..]), (10, 70, 10, &rows), (1 << 16, 5000, 1, &rows[..4])] {
        let addressing = if chunk == dim { Addressing::Rows } else { Addressing::Hashed };
        let config = Config::new(&[u32::MAX - 2, 1], dim, weights, chunk).with_addressing(addressing);
        let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 });
        let mut mirror = CpuSharedGroup::new(config.clone()).unwrap();
        assert_eq!(new(context)(&config).read_rows(rows).unwrap(), mirror.read_rows(rows).unwrap(), "{config:?}");
    }
    refuses!(SharedGroup::new(context, Config::new(&[10], 0, 64, 8)), Error::Config { field: "dim", .. });
}
