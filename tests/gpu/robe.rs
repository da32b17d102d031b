//! Parameter-shared tables on the GPU: against the FP64 model; bit for bit against the CPU where steps only add, also at the edges of workgroups, sorts and
//! dispatches; in a caller's own encoders and buffers; and with bad input.

use std::collections::HashMap;

use hotrow::internals::Pieces as _;
use hotrow::{
    Batch, Calls, Context, CpuSharedGroup, Error, GradBuffer, GradSlice, Init, LossScale, MemoryReport, Optimizer,
    OutOfRange, Precision, RankBody, Scaler, SharedGroup, StatePrecision,
    prelude::*,
    robe::{self, Backward, Config, RobeSnapshot, hash::PRIME},
};
use wgpu::BufferUsages;

use crate::caller::{self, download, storage};
use hotrow_harness::{
    arrays,
    device::{again, options, share, spoiled},
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

/// The parity of the bits of a seed. `packed` picks by bits 0 and 1, by bit 2 and by bits 3 and 4; each choice meets both parities.
fn odd(seed: u64) -> usize {
    seed.count_ones() as usize % 2
}

fn way(seed: u64) -> Backward {
    WAYS[odd(seed)]
}

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

#[gpu_test]
fn steps_are_the_model_s(context: &Context) {
    let plain = seeds("steps of arrays", 30).map(|seed| (seed, config(seed)));
    let configs = plain.chain(seeds("steps of packed arrays", 32).map(|seed| (seed, packed(seed))));
    for (seed, config) in share(configs) {
        arrays::steps_are_the_models(&new(context), seed, &config.with_backward(way(seed)));
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
            // The batches have starts of more than 128 chunks.
            let batches = [0, 1, 2].map(|step| Bags { weights: None, ..bags(&config, seed + step, 12, 60) });
            let (gradient, [before, after]) = arrays::steps_are_the_cpus(&new(context), &config, &batches);
            assert!(descended(&fp32(&before), &gradient, config.optimizer) == fp32(&after), "seed {seed}");
        }
    }
}

#[gpu_test]
fn an_array_goes_on_under_another_configuration(context: &Context) {
    let new = new(context);
    for seed in 0..3 {
        arrays::an_array_goes_on_under_another_configuration(&new, &config(seed));
    }
    arrays::an_array_that_does_not_change_stays(&new);
    for (backward, chunk, from) in [(Backward::Dense, 5, 0), (Backward::Sparse, 5, 600), (Backward::Auto, 100, 60)] {
        let config = Config::new(&[100], 50, 3000, chunk).with_backward(backward);
        assert_eq!(new(&config).dense_from(), from, "as many places as would cover the array");
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
        assert_eq!(group.snapshot().unwrap(), mirror.snapshot(), "as it begins");
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
            let apart = codes_apart(&config, &found, &mirror.snapshot());
            let (some, apart) = apart.unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
            (codes, others) = (codes + some, others + apart);
            moved += before.weight_words.iter().zip(&found.weight_words).filter(|(a, b)| a != b).count();
            // Another seed rounds differently.
            noticed += codes_apart(&config, &found, &wrong.snapshot()).map_or(0, |(_, others)| others);
        }
        // Written weights are rounded with the same random bits, too.
        let values = random_grads(seed, config.weights as usize);
        mirror.restore(&group.snapshot().unwrap()).unwrap();
        group.write_weights(&values).unwrap();
        mirror.write_weights(&values).unwrap();
        assert_eq!(group.snapshot().unwrap(), mirror.snapshot());
    }
    assert!(moved > 1000 && codes > 100_000 && 10_000 * others <= codes + 200_000, "{others} of {codes}, {moved}");
    assert!(noticed > 20 * (codes / 10_000), "{noticed} of {codes}: the comparison can fail");
}

/// An array of several windows gives the bits of an array of one window. A chunk may lie in two windows.
#[gpu_test]
fn windows_change_no_bit(context: &Context) {
    let most = context.caps().choose_windows();
    let mut several = 0;
    let plain = seeds("windows of arrays", 10).map(|seed| (seed, config(seed)));
    let packed = seeds("windows of packed arrays", 16).map(|seed| (seed, packed(seed)));
    for (seed, config) in share(plain.chain(packed)) {
        let config = config.with_backward(way(seed));
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
        let found = group.forward(&indices, &[0, 4000], None).unwrap();
        group.backward(&random_grads(1, found.len())).unwrap();
        (found, group.read_rows(&indices).unwrap())
    });
    assert!(found == wanted);
    let beyond = |row: u32| (0..4).any(|j| u64::from(robe::hash::location(row, 32 * j, weights, 32)) > limit / 4);
    assert!(indices.iter().filter(|&&row| beyond(row)).count() > 20);
}

#[gpu_test]
fn a_caller_s_encoder_gets_the_same(context: &Context) {
    let config = exact(4).with_weights(5000).with_chunk(8);
    let bags = Bags { weights: None, ..bags(&config, 4, 12, 30) };
    let mut waits = SharedGroup::new(context, config.clone()).unwrap();
    let mut records = SharedGroup::new(context, config).unwrap();
    let wanted = forward(&mut waits, &bags);
    let grads = random_grads(4, wanted.len());
    waits.backward(&grads).unwrap();
    let [indices, offsets] = [&bags.indices, &bags.offsets].map(|words| storage(context, words));
    let outputs = storage(context, &vec![f32::NAN; wanted.len()]);
    let grads = storage(context, &grads);
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let mut encoder = caller::encoder(context);
    records.encode_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
    records.encode_backward(&mut encoder, grads.slice(..)).unwrap();
    context.queue().submit([encoder.finish()]);
    assert_eq!(records.snapshot().unwrap(), waits.snapshot().unwrap());
    // A bad index is reported later, and no weight moves.
    let before = records.snapshot().unwrap();
    let wrong = storage(context, &vec![u32::MAX; bags.indices.len()]);
    let batch = Batch { indices: Some(wrong.slice(..)), ..batch };
    let mut strict = SharedGroup::new(context, records.config().clone().with_out_of_range(OutOfRange::Error)).unwrap();
    strict.write_weights(&weights(records.config(), &before)).unwrap();
    let mut encoder = caller::encoder(context);
    strict.encode_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
    strict.encode_backward(&mut encoder, grads.slice(..)).unwrap();
    context.queue().submit([encoder.finish()]);
    let told = (0..10_000).find_map(|_| strict.snapshot().err());
    assert!(matches!(told, Some(Error::IndexOutOfRange { position: 0, value: u32::MAX, .. })), "{told:?}");
    assert_eq!(strict.snapshot().unwrap().weight_words, before.weight_words);
}

#[gpu_test]
fn bad_input_is_named_and_moves_nothing(context: &Context) {
    // More windows than a stage has storage buffers, and a window that holds no weight.
    let tiny = |window_bytes| Config::new(&[10], 4, 64, 4).with_window_bytes(Some(window_bytes));
    assert!(context.caps().choose_windows() < 64);
    refuses!(SharedGroup::new(context, tiny(4)), Error::TooLarge { what: "weights", .. });
    refuses!(SharedGroup::new(context, tiny(3)), Error::Config { field: "window_bytes", .. });
    let new = new(context);
    arrays::bad_calls_leave_everything_as_it_was(&new);
    arrays::what_is_not_finite_is_left_out_and_counted(&new);
}

#[gpu_test]
fn a_cpu_s_snapshot_goes_on(context: &Context) {
    let config = config(8).with_optimizer(Optimizer::adagrad(0.1)).with_weights(5000);
    let mut mirror = CpuSharedGroup::new(config.clone()).unwrap();
    let bags = bags(&config, 8, 5, 10);
    let found = forward(&mut mirror, &bags);
    mirror.backward(&random_grads(8, found.len())).unwrap();
    let mut group = SharedGroup::new(context, config.with_seed(1)).unwrap();
    assert_ne!(group.snapshot().unwrap(), mirror.snapshot());
    group.restore(&mirror.snapshot()).unwrap();
    assert_eq!(group.snapshot().unwrap(), mirror.snapshot());
    let table = |what: &str| ["weights", "states"].contains(&what);
    let bytes: u64 = group.memory().allocations.iter().filter(|(what, _)| table(what)).map(|(_, bytes)| bytes).sum();
    assert_eq!((bytes, group.config().table_bytes()), (40_000, 40_000));
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
                group.forward_frozen(&bags.indices, &bags.offsets, bags.weights.as_deref()).unwrap();
                calls.frozen = Some(n);
                check(&group, calls);
            }
        }
        // The companion: the plans of a larger batch and of another array differ.
        let other = |config: &Config, calls| MemoryReport::plan_robe(config, calls).unwrap() != group.memory();
        assert!(other(&config, calls.with_train(calls.train.map(|n| n + 4))));
        assert!(other(
            &config.clone().with_addressing(robe::Addressing::Hashed).with_weights(config.weights + 512),
            calls
        ));
    }
}

#[gpu_test]
fn a_scaled_loss_and_an_overflow(context: &Context) {
    arrays::a_scaled_loss_and_an_overflow(&new(context), &exact(2).with_init(Init::Uniform { low: -1.0, high: 1.0 }));
}

#[gpu_test]
fn gradients_are_the_model_s(context: &Context) {
    share(seeds("dense and sparse gradients", 24))
        .for_each(|seed| arrays::gradients_are_the_models(&new(context), seed, &config(seed)));
}

#[gpu_test]
fn halves_give_what_their_floats_give(context: &Context) {
    seeds("halves", 12).for_each(|seed| arrays::halves_give_what_their_floats_give(&new(context), seed, &exact(seed)));
}

#[gpu_test]
fn a_step_by_the_gradient_is_a_backward(context: &Context) {
    let plain = share(seeds("steps by given gradients", 16)).map(|seed| (seed, config(seed)));
    let all =
        plain.chain(share(seeds("steps of packed arrays by given gradients", 32)).map(|seed| (seed, packed(seed))));
    let noticed = all.filter(|(seed, config)| {
        let config = config.clone().with_backward(way(*seed));
        arrays::a_step_by_the_gradient_is_a_backward(&new(context), *seed, &config)[0]
    });
    assert!(noticed.count() > 0, "the comparison can fail");
    arrays::steps_by_given_gradients(&new(context));
}

/// In a caller's encoder: after a refused forward, and of gradients that overflowed, nothing moves.
#[gpu_test]
fn a_refused_forward_and_an_overflow_take_no_step(context: &Context) {
    let mut group = SharedGroup::new(context, Config::new(&[10], 4, 64, 4)).unwrap();
    let [offsets, ones] = [storage(context, &[0u32, 1]), storage(context, &[1.0f32; 64])];
    let outputs = storage(context, &[0.0f32; 4]);
    for (index, inspected, moves) in [(10, 1.0, false), (9, f32::INFINITY, false), (9, 1.0, true)] {
        let before = fp32(&group.snapshot().unwrap());
        let [indices, inspected] = [storage(context, &[index]), storage(context, &[f32::to_bits(inspected)])];
        let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
        let mut scaler = Scaler::new(context, LossScale::Static { scale: 2.0 }).unwrap();
        let mut encoder = caller::encoder(context);
        group.encode_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
        scaler.encode_inspect(&mut encoder, GradBuffer::F32(inspected.slice(..)), 1).unwrap();
        scaler.encode_decide(&mut encoder).unwrap();
        group.encode_step(&mut encoder, ones.slice(..), Some(&scaler)).unwrap();
        refuses!(group.encode_step(&mut encoder, ones.slice(..), None), Error::Order { call: "step", .. });
        context.queue().submit([encoder.finish()]);
        if index == 10 {
            refuses!(group.snapshot(), Error::IndexOutOfRange { value: 10, .. });
        }
        let moved = fp32(&group.snapshot().unwrap()).iter().zip(&before).filter(|(a, b)| a != b).count();
        assert_eq!(moved, if moves { 64 } else { 0 });
    }
}

#[gpu_test]
fn a_caller_s_buffers_get_the_same_gradient(context: &Context) {
    for (seed, empty) in [(1, false), (4, false), (5, false), (4, true)] {
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
        records.encode_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
        let before = fp32(&records.snapshot().unwrap());
        records.encode_gradient(&mut encoder, grads.slice(..), sums.slice(..)).unwrap();
        context.queue().submit([encoder.finish()]);
        assert_eq!(download(context, caller::encoder(context), &sums), bits(&gradient), "seed {seed}");
        assert!(records.pending() && gradient.iter().any(|&sum| covers(sum)) != empty);
        assert_eq!(fp32(&records.snapshot().unwrap()), before);
        let mut encoder = caller::encoder(context);
        records.encode_step(&mut encoder, sums.slice(..), None).unwrap();
        context.queue().submit([encoder.finish()]);
        waits.step(&gradient).unwrap();
        assert_eq!(records.snapshot().unwrap(), waits.snapshot().unwrap(), "seed {seed}");
    }
}

#[gpu_test]
fn wrong_buffers_of_a_gradient_are_named(context: &Context) {
    let mut group = SharedGroup::new(context, Config::new(&[10], 4, 64, 4)).unwrap();
    refuses!(group.gradient(GradSlice::F32(&[])), Error::Order { call: "gradient", .. });
    group.forward(&[1, 2], &[0, 1, 2], None).unwrap();
    refuses!(group.gradient(GradSlice::F32(&[1.0])), Error::Length { what: "grad_outputs", wanted: 8, found: 1 });
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
    for n in [0, 1, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 3071, 3072, 3073] {
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

/// Sums of many chunks at each start.
#[gpu_test]
fn one_row_a_hundred_thousand_times(context: &Context) {
    let one_row = |backward| arrays::one_row_a_hundred_thousand_times(&new(context), backward, 0.0);
    WAYS.into_iter().for_each(one_row);
}

#[gpu_test]
fn configurations_that_cannot_be_are_named(context: &Context) {
    let good = Config::new(&[100, 7], 10, 64, 8);
    SharedGroup::new(context, good.clone()).unwrap();
    for (config, field, found) in [
        (good.clone().with_chunk(65), "weights", "64"),
        (good.clone().with_weights(PRIME + 1), "weights", "2038074744"),
        (good.clone().with_dim(0), "dim", "0"),
        (good.clone().with_chunk(0), "chunk", "0"),
        (good.clone().with_tables(vec![u32::MAX, u32::MAX]), "tables", "8589934590"),
        (good.clone().with_tables(vec![u32::MAX]), "tables", "4294967295"),
    ] {
        let of = |error| match error {
            Error::Config { field, found, .. } => (field, found),
            other => panic!("{other:?}"),
        };
        let wanted = (field, found.to_owned());
        assert_eq!(of(CpuSharedGroup::new(config.clone()).unwrap_err()), wanted);
        assert_eq!(of(SharedGroup::new(context, config).unwrap_err()), wanted);
    }
    // The most rows that 32 bits can number, and a look-up of the last row.
    let most = good.with_tables(vec![u32::MAX - 2, 1]);
    let mut group = SharedGroup::new(context, most.clone()).unwrap();
    let mut mirror = CpuSharedGroup::new(most).unwrap();
    let rows = [u32::MAX - 2, u32::MAX - 3, 0];
    assert_eq!(group.read_rows(&rows).unwrap(), mirror.read_rows(&rows).unwrap());
    for compression in [1e9, 0.5, f64::INFINITY, f64::NAN] {
        let made = Config::compressed(&[1000], 64, compression, 32);
        refuses!(made, Error::Config { field: "compression", .. }, "{compression}");
    }
}
