//! Parameter-shared tables on the GPU: against the model in FP64, against the CPU bit for bit where sums are all there is, in a caller's
//! own encoders, and bad input.

use hotrow::wgpu::util::DeviceExt as _;
use hotrow::{
    Batch, Context, Error, GradSlice, Init, LossScale, Optimizer, OutOfRange, Pooling, RankBody, cpu,
    lookup::Lookup as _,
    robe::{self, Backward, Config, Snapshot, hash::PRIME},
    wgpu,
};

use crate::{
    device::{again, options, with_gpu},
    shared::{Bags, WAYS, bags, close, config, forward, moved, outputs, random_grads},
};

#[test]
fn steps_are_the_model_s() {
    with_gpu(|context| {
        for seed in 0..30 {
            let backward = WAYS[seed as usize % 2];
            let config = Config { backward, ..config(seed) };
            let mut group = robe::Group::new(context, config.clone()).unwrap();
            for step in 0..3 {
                // The last has starts of more than 128 chunks.
                let (per_feature, most) = if step == 2 { (20, 60) } else { (5, 12) };
                let bags = bags(&config, seed * 10 + step, per_feature, most);
                let before = group.snapshot().unwrap();
                let found = forward(&mut group, &bags);
                close(&found, &outputs(&config, &before.weights, &bags)).unwrap_or_else(|e| panic!("{seed}: {e}"));
                let grads = random_grads(seed, found.len());
                group.backward(&grads).unwrap();
                let after = group.snapshot().unwrap();
                moved(&config, &bags, &grads, &before, &after)
                    .unwrap_or_else(|error| panic!("seed {seed}, {config:?}: {error}"));
            }
        }
    });
}

/// Sums without weights, SGD at a power of two: nothing that a compiler could fuse, so the CPU's bits.
fn exact(seed: u64) -> Config {
    let pooling = [Pooling::Sum, Pooling::None][seed as usize % 2];
    Config { pooling, optimizer: Optimizer::sgd(0.5), ..config(seed) }
}

/// Three steps, and what they leave.
fn run(group: &mut dyn hotrow::lookup::Lookup, config: &Config, seed: u64) -> Vec<Vec<u32>> {
    let mut seen = Vec::new();
    for step in 0..3 {
        let bags = Bags { weights: None, ..bags(config, seed + step, 12, 60) };
        let found = forward(group, &bags);
        group.backward(&random_grads(step, found.len())).unwrap();
        seen.push(found.iter().map(|x| x.to_bits()).collect());
    }
    seen
}

#[test]
fn sums_are_the_cpu_s_bits() {
    with_gpu(|context| {
        let narrow = again(context, &options().rank(RankBody::Portable).max_groups(3));
        for seed in 0..24 {
            let config = exact(seed);
            let mut mirror = robe::cpu::Group::new(config.clone()).unwrap();
            let wanted = (run(&mut mirror, &config, seed), mirror.snapshot());
            for (context, backward) in [(context, WAYS[0]), (context, WAYS[1]), (&narrow, Backward::Auto)] {
                let config = Config { backward, ..config.clone() };
                let mut group = robe::Group::new(context, config.clone()).unwrap();
                let found = (run(&mut group, &config, seed), group.snapshot().unwrap());
                assert!(found == wanted, "seed {seed}, {config:?}");
                let rows: Vec<u32> = (0..5307).step_by(7).collect();
                assert_eq!(group.read_rows(&rows).unwrap(), mirror.read_rows(&rows).unwrap());
            }
        }
        // The comparison can fail.
        let mut other = robe::Group::new(context, Config { seed: 99, ..exact(0) }).unwrap();
        let mut mirror = robe::cpu::Group::new(exact(0)).unwrap();
        assert!(run(&mut other, &exact(0), 0) != run(&mut mirror, &exact(0), 0));
    });
}

/// Whatever fuses, it fuses alike: dense, sparse, and twice the same.
#[test]
fn dense_and_sparse_are_the_same_bits() {
    with_gpu(|context| {
        for seed in 0..20 {
            let run = |backward| -> Snapshot {
                let config = Config { backward, ..config(seed) };
                let mut group = robe::Group::new(context, config.clone()).unwrap();
                for step in 0..2 {
                    let found = forward(&mut group, &bags(&config, seed + step, 8, 60));
                    group.backward(&random_grads(step, found.len())).unwrap();
                }
                group.snapshot().unwrap()
            };
            assert!(run(Backward::Dense) == run(Backward::Sparse), "seed {seed}");
        }
    });
}

fn storage<T: bytemuck::Pod>(context: &Context, values: &[T]) -> wgpu::Buffer {
    context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: None,
        contents: bytemuck::cast_slice(values),
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
    })
}

#[test]
fn a_caller_s_encoder_gets_the_same() {
    with_gpu(|context| {
        let config = Config { weights: 5000, chunk: 8, ..exact(4) };
        let bags = Bags { weights: None, ..bags(&config, 4, 12, 30) };
        let mut waits = robe::Group::new(context, config.clone()).unwrap();
        let mut records = robe::Group::new(context, config).unwrap();
        let wanted = forward(&mut waits, &bags);
        let grads = random_grads(4, wanted.len());
        waits.backward(&grads).unwrap();
        let [indices, offsets] = [&bags.indices, &bags.offsets].map(|words| storage(context, words));
        let outputs = storage(context, &vec![f32::NAN; wanted.len()]);
        let grads = storage(context, &grads);
        let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
        let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        records.record_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
        records.record_backward(&mut encoder, grads.slice(..)).unwrap();
        context.queue().submit([encoder.finish()]);
        assert_eq!(records.snapshot().unwrap(), waits.snapshot().unwrap());
        // A bad index is told of later, and nothing moves.
        let before = records.snapshot().unwrap();
        let wrong = storage(context, &vec![u32::MAX; bags.indices.len()]);
        let batch = Batch { indices: Some(wrong.slice(..)), ..batch };
        let mut strict =
            robe::Group::new(context, Config { out_of_range: OutOfRange::Error, ..records.config().clone() }).unwrap();
        strict.write_weights(&before.weights).unwrap();
        let mut encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        strict.record_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
        strict.record_backward(&mut encoder, grads.slice(..)).unwrap();
        context.queue().submit([encoder.finish()]);
        let told = (0..10_000).find_map(|_| strict.snapshot().err());
        assert!(matches!(told, Some(Error::IndexOutOfRange { position: 0, value: u32::MAX, .. })), "{told:?}");
        assert_eq!(strict.snapshot().unwrap().weights, before.weights);
    });
}

#[test]
fn bad_input_is_named_and_moves_nothing() {
    with_gpu(|context| {
        for (config, field) in [
            (Config::new(&[10], 4, 3, 4), "weights"),
            (Config::new(&[10], 4, 64, 0), "chunk"),
            (Config::new(&[10], 0, 64, 4), "dim"),
            (Config::new(&[10], 4, u32::MAX, 4), "weights"),
        ] {
            match robe::Group::new(context, config) {
                Err(Error::Config { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{other:?}"),
            }
        }
        let limit = context.caps().choose_shard_bytes();
        let weights = (limit / 4 + 1).min(u64::from(PRIME)) as u32;
        let large = robe::Group::new(context, Config::new(&[10], 4, weights, 4));
        if u64::from(weights) * 4 > limit {
            assert!(matches!(large, Err(Error::TooLarge { what: "weights", .. })), "{large:?}");
        }
        let mut group = robe::Group::new(context, Config::new(&[10, 5], 4, 64, 4)).unwrap();
        let before = group.snapshot().unwrap();
        assert!(matches!(
            group.forward(&[1, 5], &[0, 1, 2], None),
            Err(Error::IndexOutOfRange { table: 1, rows: 5, position: 1, value: 5 })
        ));
        assert!(matches!(group.forward(&[1, 2], &[0, 3, 2], None), Err(Error::BadOffsets { position: 1, .. })));
        assert!(matches!(group.backward(&[]), Err(Error::Order { .. })));
        assert!(matches!(group.read_rows(&[15]), Err(Error::RowOutOfRange { row: 15, .. })));
        assert_eq!(group.snapshot().unwrap().weights, before.weights);
        // NaN stays where it would come to be; the others move.
        group.forward(&[1, 2], &[0, 1, 2], None).unwrap();
        assert!(matches!(group.write_weights(&[0.0; 64]), Err(Error::Order { .. })));
        group.backward(&[f32::NAN, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, f32::INFINITY]).unwrap();
        let after = group.snapshot().unwrap();
        assert_eq!((after.t, after.counters.skipped_weights), (1, 2));
        assert_eq!(after.counters.accesses, [1, 1]);
        assert!(after.weights.iter().all(|w| w.is_finite()) && after.weights != before.weights);
    });
}

#[test]
fn a_cpu_s_snapshot_goes_on_and_every_buffer_is_told_of() {
    with_gpu(|context| {
        let config = Config { optimizer: Optimizer::adagrad(0.1), weights: 5000, ..config(6) };
        let mut mirror = robe::cpu::Group::new(config.clone()).unwrap();
        let bags = bags(&config, 6, 5, 10);
        let found = forward(&mut mirror, &bags);
        mirror.backward(&random_grads(6, found.len())).unwrap();
        let mut group = robe::Group::new(context, Config { seed: 1, ..config }).unwrap();
        assert_ne!(group.snapshot().unwrap(), mirror.snapshot());
        group.restore(&mirror.snapshot()).unwrap();
        assert_eq!(group.snapshot().unwrap(), mirror.snapshot());
        let bytes = |group: &robe::Group, name| -> u64 {
            group.allocations().iter().filter(|(what, _)| *what == name).map(|(_, bytes)| bytes).sum()
        };
        assert_eq!(bytes(&group, "weights") + bytes(&group, "states"), group.config().table_bytes());
        assert_eq!((group.config().table_bytes(), bytes(&group, "hashes")), (40_000, 0));
        forward(&mut group, &bags);
        assert_eq!(bytes(&group, "hashes"), (4 * bags.indices.len() as u64).next_multiple_of(16));
        assert_eq!(bytes(&group, "chunk_keys"), 0);
        group.backward(&random_grads(6, found.len())).unwrap();
        let chunks = bags.indices.len() as u64 * u64::from(group.config().dim.div_ceil(group.config().chunk));
        assert_eq!(bytes(&group, "chunk_keys"), (4 * chunks).next_multiple_of(16));
    });
}

#[test]
fn a_scaled_loss_and_an_overflow() {
    with_gpu(|context| {
        let config = Config { init: Init::Uniform { low: -1.0, high: 1.0 }, ..exact(2) };
        let bags = Bags { weights: None, ..bags(&config, 2, 6, 40) };
        let mut mirror = robe::cpu::Group::new(config.clone()).unwrap();
        let mut group = robe::Group::new(context, config).unwrap();
        let n = forward(&mut group, &bags).len();
        forward(&mut mirror, &bags);
        let scaled: Vec<u16> = random_grads(5, n).iter().map(|g| half::f16::from_f32(g * 64.0).to_bits()).collect();
        let decided = |grads| {
            let mut scaler = cpu::Scaler::new(LossScale::Static { scale: 64.0 }).unwrap();
            scaler.inspect(grads);
            scaler.decide().unwrap()
        };
        let state = decided(GradSlice::F16(&scaled));
        group.backward_scaled(GradSlice::F16(&scaled), &state).unwrap();
        mirror.backward_scaled(GradSlice::F16(&scaled), &state).unwrap();
        let after = group.snapshot().unwrap();
        assert_eq!(after, mirror.snapshot());
        forward(&mut group, &bags);
        let wrong = vec![f32::NAN; n];
        group.backward_scaled(GradSlice::F32(&wrong), &decided(GradSlice::F32(&wrong))).unwrap();
        assert_eq!(group.snapshot().unwrap().weights, after.weights);
    });
}
