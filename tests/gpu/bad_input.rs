//! SPEC 7 on the GPU: nothing panics, nothing is lost, nothing is silently wrong, and legal edge cases work.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hotrow::internals::Pieces as _;
use hotrow::{Bags, Batch, Context, Error, Group, GroupConfig, Init, Mode, Placement, prelude::*, wgpu};

use crate::caller::{self, storage, submit};
use hotrow_harness::{
    device::{both, own, with_gpu},
    gpu_test,
};

fn config() -> GroupConfig {
    let config = GroupConfig::new(&[10, 20], 4).with_cache_rows(30);
    config.with_init(Init::Uniform { low: 1.0, high: 2.0 })
}

#[gpu_test]
fn an_error_names_the_first_offender_and_nothing_moves(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    group.forward(Bags::new(&[1, 2, 3, 4], &[0, 2, 4]), Mode::Train).unwrap();
    group.backward(&[1.0; 8]).unwrap();
    let before = group.snapshot().unwrap();
    // Bag 1 belongs to table 1, which has 20 rows: 25 is the first index that is too large, 99 the second.
    let error = group.forward(Bags::new(&[9, 0, 25, 99], &[0, 2, 4]), Mode::Train).unwrap_err();
    assert_eq!(error, Error::IndexOutOfRange { table: 1, rows: 20, position: 2, value: 25 });
    let text = error.to_string();
    assert!(text.contains("table 1") && text.contains("25") && text.contains("position 2"), "{text}");
    group.forward(Bags::new(&[9, 0, 25, 99], &[0, 2, 4]), Mode::Frozen).unwrap_err(); // counts nothing
    let mut after = group.snapshot().unwrap();
    assert_eq!(after.counters[1].out_of_range, 2);
    after.counters[1].out_of_range = 0;
    assert_eq!(after, before);
    // The table is that of the bag's feature.
    let mut other = Group::new(context, config().with_features(vec![1, 0])).unwrap();
    let refused = other.forward(Bags::new(&[19, 10], &[0, 1, 2]), Mode::Train);
    refuses!(refused, Error::IndexOutOfRange { table: 0, rows: 10, position: 1, value: 10 });
    // The backward of the refused step does nothing either. The next step is an ordinary one.
    refuses!(group.backward(&[1.0; 8]), Error::Order { .. });
    group.forward(Bags::new(&[9, 0, 19], &[0, 2, 3]), Mode::Train).unwrap();
    group.backward(&[1.0; 8]).unwrap();
}

/// Whichever of many bad indices the device meets first, the error names the first of the batch.
#[test]
pub(crate) fn the_first_of_many_bad_indices_is_named() {
    with_gpu(|context| {
        let mut group = Group::new(context, config()).unwrap();
        for first in 0..60 {
            let index = |i| if i >= first && (i - first) % 7 == 0 { 99 } else { i % 10 };
            let found = group.forward(Bags::new(&(0..600).map(index).collect::<Vec<_>>(), &[0, 300, 600]), Mode::Train);
            assert_eq!(found, Err(Error::IndexOutOfRange { table: 0, rows: 10, position: first, value: 99 }));
        }
    });
}

#[gpu_test]
fn a_recorded_step_with_a_bad_index_is_told_at_the_next_call(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let indices = storage(context, &[1u32, 10, 3]);
    let offsets = storage(context, &[0u32, 2, 3]);
    let outputs = storage(context, &[7f32; 8]);
    let grads = storage(context, &[1f32; 8]);
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let before = group.snapshot().unwrap();
    let mut encoder = caller::encoder(context);
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    group.encode_backward(&mut encoder, grads.slice(..)).unwrap();
    let found = caller::download(context, encoder, &outputs);
    assert!(found.iter().all(|&word| word == 0), "outputs are zero");

    let mut encoder = caller::encoder(context);
    let next = group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train);
    assert_eq!(next, Err(Error::IndexOutOfRange { table: 0, rows: 10, position: 1, value: 10 }));
    assert_eq!(group.check(), Ok(()), "each fault is told once");
    let mut after = group.snapshot().unwrap();
    after.counters[0].out_of_range = 0;
    assert_eq!(after, before);
}

#[gpu_test]
fn bad_offsets(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let before = group.snapshot().unwrap();
    // The last two are of more than one bag a feature, and of more bags than a workgroup checks.
    let mut many = vec![0; 601];
    (many[555], many[600]) = (2, 3);
    let cases: [(&[u32], u32); 7] = [
        (&[1, 2, 3], 0),
        (&[0, 2, 4], 2),
        (&[0, 2, 2], 2),
        (&[0, 9, 3], 1),
        (&[0, 9, 9], 1),
        (&[0, 2, 1, 3, 3], 1),
        (&many, 555),
    ];
    for (offsets, position) in cases {
        let host = group.forward(Bags::new(&[1, 2, 3], offsets), Mode::Train).unwrap_err();
        assert_eq!(host, Error::BadOffsets { indices: 3, position, value: offsets[position as usize] });
        // The same batch from the caller's buffers, where only the device can see the error.
        let (indices, buffer) = (storage(context, &[1u32, 2, 3]), storage(context, offsets));
        let outputs = storage(context, &vec![0f32; 4 * (offsets.len() - 1)]);
        let batch = Batch { indices: Some(indices.slice(..)), offsets: buffer.slice(..), weights: None };
        submit(context, |encoder| group.encode_forward(encoder, &batch, outputs.slice(..), Mode::Train).unwrap());
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        assert_eq!(group.check(), Err(host));
        group.discard_pending();
    }
    assert_eq!(
        group.forward(Bags::new(&[], &[]), Mode::Train),
        Err(Error::Length { what: "offsets", wanted: 1, found: 0 })
    );
    assert_eq!(group.snapshot().unwrap(), before);
}

/// A batch refused for its shape does not affect the step before it.
#[gpu_test]
fn a_refused_forward_leaves_the_step_before_it(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let words = |words: &[u32]| storage(context, words);
    let (indices, offsets, outputs) = (words(&[1, 2]), words(&[0, 1, 2]), words(&[0; 8]));
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let bad = Batch { weights: Some(indices.slice(..4)), ..batch };
    let refused = |found| assert!(matches!(found, Err(Error::Length { what: "weights", .. })), "{found:?}");
    let mut encoder = caller::encoder(context);
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    refused(group.encode_forward(&mut encoder, &bad, outputs.slice(..), Mode::Frozen));
    refused(group.encode_prefetch(&mut encoder, &bad));
    // A second forward would drop the first one's gradient, in an encoder that is never submitted too.
    let mut dropped = caller::encoder(context);
    for encoder in [&mut encoder, &mut dropped] {
        refuses!(
            group.encode_forward(encoder, &batch, outputs.slice(..), Mode::Train),
            Error::Order { call: "forward", .. }
        );
    }
    group.encode_backward(&mut encoder, outputs.slice(..)).unwrap();
    refuses!(group.encode_backward(&mut encoder, outputs.slice(..)), Error::Order { .. }, "one forward, one backward");
    context.queue().submit([encoder.finish()]);
    // A forward whose encoder is dropped is none.
    group.encode_forward(&mut dropped, &batch, outputs.slice(..), Mode::Train).unwrap();
    refuses!(group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train), Error::Order { call: "forward", .. });
    drop(dropped);
    group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
}

#[gpu_test]
fn order_shapes_and_buffers(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    assert_eq!(group.forward(Bags::new(&[1], &[0, 1]), Mode::Train), Err(Error::Bags { features: 2, bags: 1 }));
    let weights = group.forward(Bags::new(&[1], &[0, 1, 1]).with_weights(Some(&[1.0, 2.0])), Mode::Train);
    assert_eq!(weights, Err(Error::Length { what: "weights", wanted: 1, found: 2 }));
    refuses!(group.read_rows(&[30]), Error::RowOutOfRange { call: "read_rows", row: 30, .. });
    refuses!(group.write_rows(&[1], &[0.0; 3]), Error::Length { .. });
    group.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train).unwrap();
    refuses!(group.reset(), Error::Order { .. });
    refuses!(group.write_rows(&[1], &[0.0; 4]), Error::Order { .. });
    refuses!(group.backward(&[1.0; 7]), Error::Length { wanted: 8, found: 7, .. });

    let (indices, offsets) = (storage(context, &[1u32]), storage(context, &[0u32, 1, 1]));
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    group.discard_pending();
    let mut encoder = caller::encoder(context);
    let small = storage(context, &[0f32; 4]);
    refuses!(
        group.encode_forward(&mut encoder, &batch, small.slice(..), Mode::Train),
        Error::Buffer { what: "outputs", .. }
    );
    let plain = caller::buffer(context, 64, wgpu::BufferUsages::COPY_DST);
    refuses!(
        group.encode_forward(&mut encoder, &batch, plain.slice(..), Mode::Train),
        Error::Buffer { what: "outputs", .. }
    );
}

#[gpu_test]
fn configurations_that_cannot_be(context: &Context) {
    type Spoil = fn(&mut GroupConfig);
    let cases: [(&str, Spoil); 15] = [
        ("dim", |c| c.dim = 0),
        ("tables", |c| c.tables = vec![]),
        ("tables", |c| c.tables = vec![5, 0]),
        ("tables", |c| c.tables = vec![u32::MAX, 5]),
        ("cache_rows", |c| c.cache_rows = (1 << 31) + 1),
        ("window_ways", |c| (c.policy, c.window_ways) = (hotrow::Policy::Window, 32)),
        ("cache_shares", |c| c.cache_shares = vec![0.5, 0.6]),
        ("cache_shares", |c| c.cache_shares = vec![-0.1]),
        ("cache_shares", |c| c.cache_shares = vec![f32::NAN]),
        ("cache_shares", |c| c.cache_shares = vec![0.1; 9]),
        // Keys of 32 bits, of which one is NONE.
        ("cache_shares", |c| (c.tables, c.cache_shares) = (vec![(1 << 31) + 1], vec![0.5])),
        ("ways", |c| c.ways = 0),
        ("features", |c| c.features = vec![2]),
        ("lr", |c| c.optimizer.lr = f32::NAN),
        ("piece_bytes", |c| c.set_piece_bytes(Some(8))),
    ];
    for (wanted, spoil) in cases {
        let mut config = config();
        spoil(&mut config);
        match Group::new(context, config) {
            Err(Error::Config { field, .. }) => assert_eq!(field, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    // The shaders have sets of 32.
    for ways in [1, 33] {
        for placement in [Placement::Device, Placement::Staged, Placement::Auto] {
            let error =
                Group::new(context, config().with_ways(ways).with_placement(placement)).expect_err("other than 32");
            assert!(matches!(&error, Error::Unsupported { what: "ways", .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("sets of {ways}")) && text.contains("CpuGroup"), "{text}");
        }
    }
}

#[gpu_test]
fn missing_features_and_limits(_: &Context) {
    let (device, queue) = own(wgpu::Features::empty(), Some(wgpu::Limits::default()));
    let bare = Context::new(&device, &queue).unwrap();
    let mut mapped = config();
    mapped.placement = Placement::Mapped;
    refuses!(Group::new(&bare, mapped), Error::Unsupported { what: "mapped placement", .. });
    // WebGPU's default limits are enough for all other calls.
    let mut group = Group::new(&bare, config()).unwrap();
    group.forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
    group.backward(&[1.0; 8]).unwrap();
    // A cache larger than a binding, and a batch with scratch larger than a binding.
    let wide = GroupConfig::new(&[1 << 20], 64).with_cache_rows(1 << 20);
    refuses!(Group::new(&bare, wide), Error::TooLarge { what: "cache", .. });
    let fewer = wgpu::Limits { max_storage_buffers_per_shader_stage: 7, ..wgpu::Limits::default() };
    let (device, queue) = own(wgpu::Features::empty(), Some(fewer));
    refuses!(Context::new(&device, &queue), Error::Unsupported { .. });
}

#[gpu_test]
fn a_table_that_does_not_fit_is_a_named_error(context: &Context) {
    // A table of 2 TB.
    let huge = GroupConfig::new(&[4_000_000_000], 128).with_precision(hotrow::Precision::Fp32);
    refuses!(Group::new(context, huge), Error::OutOfMemory { what: "records", .. });
    // The device still works.
    Group::new(context, config()).unwrap().forward(Bags::new(&[1, 2], &[0, 1, 2]), Mode::Train).unwrap();
}

#[gpu_test]
fn a_waiting_call_tells_of_a_recorded_step(context: &Context) {
    let (indices, offsets) = (storage(context, &[1u32, 99]), storage(context, &[0u32, 2, 2]));
    let outputs = storage(context, &[0f32; 8]);
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    type Call = fn(&mut Group) -> Result<(), Error>;
    let calls: [Call; 6] = [
        |group| group.flush(),
        |group| group.read_rows(&[1]).map(drop),
        |group| group.counters().map(drop),
        |group| group.snapshot().map(drop),
        |group| {
            group.discard_pending();
            group.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train).map(drop)
        },
        |group| group.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Frozen).map(drop),
    ];
    for (which, call) in calls.into_iter().enumerate() {
        let mut group = Group::new(context, config()).unwrap();
        submit(context, |encoder| group.encode_forward(encoder, &batch, outputs.slice(..), Mode::Train).unwrap());
        let wanted = Error::IndexOutOfRange { table: 0, rows: 10, position: 1, value: 99 };
        // The device has refused the step; its forward waits for a backward all the same.
        refuses!(group.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train), Error::Order { call: "forward", .. });
        assert_eq!(call(&mut group), Err(wanted), "call {which}");
        call(&mut group).unwrap();
    }
}

#[gpu_test]
fn outputs_need_a_buffer_of_their_own(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let arena = caller::buffer(context, 4096, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST);
    let (indices, offsets) = (storage(context, &[1u32]), storage(context, &[0u32, 1, 1]));
    let (shared, outputs) = (arena.slice(1024..1028), arena.slice(2048..2080));
    let batches = [
        Batch { indices: Some(shared), offsets: offsets.slice(..), weights: None },
        Batch { indices: Some(indices.slice(..)), offsets: arena.slice(1024..1036), weights: None },
        Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: Some(shared) },
    ];
    for batch in batches {
        let mut encoder = caller::encoder(context);
        refuses!(
            group.encode_forward(&mut encoder, &batch, outputs, Mode::Train),
            Error::Buffer { what: "outputs", .. }
        );
        refuses!(group.backward(&[0.0; 8]), Error::Order { .. }, "nothing waits for a backward");
    }
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    let mut encoder = caller::encoder(context);
    let refused = group.encode_forward(&mut encoder, &batch, arena.slice(2048..2079), Mode::Train);
    refuses!(refused, Error::Buffer { what: "outputs", .. });
    group.encode_forward(&mut encoder, &batch, outputs, Mode::Train).unwrap();
    context.queue().submit([encoder.finish()]);
}

#[gpu_test]
fn weight_gradients_want_the_last_forwards_batch(context: &Context) {
    let (indices, offsets, grads) = ([1, 2, 3], [0, 2, 3], [1.0; 8]);
    for mut group in both(context, &config()) {
        let refused = |group: &mut dyn Embedding, indices: &[u32], offsets: &[u32], grads: &[f32]| {
            group.weight_gradient(Bags::new(indices, offsets), grads).unwrap_err()
        };
        let order = refused(&mut *group, &indices, &offsets, &grads);
        assert!(matches!(order, Error::Order { call: "weight_gradient", .. }), "{order}");
        group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        let before = group.snapshot().unwrap();
        let wrong = refused(&mut *group, &[1, 2], &[0, 1, 2], &grads);
        assert_eq!(wrong, Error::Length { what: "indices", wanted: 3, found: 2 });
        let wrong = refused(&mut *group, &indices, &[0, 1, 2, 2, 3], &grads);
        assert_eq!(wrong, Error::Length { what: "offsets", wanted: 3, found: 5 });
        let wrong = refused(&mut *group, &indices, &offsets, &grads[1..]);
        assert_eq!(wrong, Error::Length { what: "grad_outputs", wanted: 8, found: 7 });
        assert!(matches!(refused(&mut *group, &indices, &[0, 3, 2], &grads), Error::BadOffsets { .. }));
        // Gradients that are not finite come back, and enter no row.
        let found = group.weight_gradient(Bags::new(&indices, &offsets), &[f32::NAN; 8]).unwrap();
        assert!(found.len() == 3 && found.iter().all(|x| x.is_nan()), "{found:?}");
        assert_eq!(group.snapshot().unwrap(), before);
        group.backward(&grads).unwrap();
        assert!(matches!(refused(&mut *group, &indices, &offsets, &grads), Error::Order { .. }));
    }
    let mut group = Group::new(context, config()).unwrap();
    group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    let [index_buffer, offset_buffer] = [storage(context, &indices), storage(context, &offsets)];
    let (grad_buffer, out) = (storage(context, &grads), storage(context, &[0f32; 3]));
    let batch = Batch { indices: Some(index_buffer.slice(..)), offsets: offset_buffer.slice(..), weights: None };
    let mut encoder = caller::encoder(context);
    for (grads, out) in [(&grad_buffer, &grad_buffer), (&grad_buffer, &offset_buffer)] {
        let refused = group.encode_weight_gradient(&mut encoder, &batch, grads.slice(..), out.slice(..));
        refuses!(refused, Error::Buffer { what: "grad_weights", .. });
    }
    let refused = group.encode_weight_gradient(&mut encoder, &batch, grad_buffer.slice(..), out.slice(..8));
    refuses!(refused, Error::Buffer { what: "grad_weights", .. });
    let refused = group.encode_weight_gradient(&mut encoder, &batch, grad_buffer.slice(..28), out.slice(..));
    refuses!(refused, Error::Buffer { what: "grad_outputs", .. });
    group.encode_weight_gradient(&mut encoder, &batch, grad_buffer.slice(..), out.slice(..)).unwrap();
    context.queue().submit([encoder.finish()]);
}

#[gpu_test]
fn foreign_snapshots_are_refused(context: &Context) {
    for mut group in both(context, &config()) {
        group.forward(Bags::new(&[1, 2], &[0, 2, 2]), Mode::Train).unwrap();
        group.backward(&[1.0; 8]).unwrap();
        let right = group.snapshot().unwrap();
        let occupied = right.ways.iter().position(|&word| word == 1).unwrap();
        type Spoil = fn(&mut hotrow::state::Snapshot, usize);
        let spoils: [Spoil; 8] = [
            |s, at| s.ways[at] = 4_000_000,
            |s, at| s.ways[at] = 2,            // row 2 is already in another way
            |s, at| s.ways[at + 32] = s.t + 1, // a stamp of a future step
            |s, at| s.ways[at + 96] = 4,
            |s, _| s.records.truncate(3),
            |s, _| s.ways[31 + 96] = 1, // an empty way that is dirty
            |s, _| s.ways[31 + 96] = 2, // an empty way that is pinned
            |s, at| s.ways[at + 96] = 7,
        ];
        for (which, spoil) in spoils.into_iter().enumerate() {
            let mut wrong = right.clone();
            spoil(&mut wrong, occupied);
            refuses!(group.restore(&wrong), Error::Snapshot { .. } | Error::Length { .. }, "{which}");
            assert_eq!(group.snapshot().unwrap(), right);
        }
        // A backward does nothing after a restore has changed the cache.
        group.forward(Bags::new(&[3], &[0, 1, 1]), Mode::Train).unwrap();
        group.restore(&right).unwrap();
        refuses!(group.backward(&[100.0; 8]), Error::Order { .. });
        assert_eq!(group.snapshot().unwrap(), right);
    }
}

#[gpu_test]
fn hyperparameters_that_train_nothing_are_refused(context: &Context) {
    for eps in [0.0, -1.0] {
        let mut wrong = config();
        wrong.optimizer = hotrow::Optimizer::adagrad(0.1).with_eps(eps);
        refuses!(Group::new(context, wrong), Error::Config { field: "eps", .. });
    }
    for mut group in both(context, &config()) {
        for lr in [f32::NAN, f32::INFINITY] {
            refuses!(group.set_learning_rate(lr), Error::Config { field: "lr", .. });
        }
        group.set_learning_rate(0.5).unwrap();
        let before = group.read_rows(&[1]).unwrap();
        group.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train).unwrap();
        group.backward(&[1.0; 8]).unwrap();
        let moved = before[0] - group.read_rows(&[1]).unwrap()[0];
        assert!((moved - 0.5).abs() < 1e-6, "{moved}");
    }
}

/// A callback of another thread's poll stands between the device and the report of a skipped step. A call that waits tells the step's error all the
/// same.
#[gpu_test]
fn an_error_is_told_before_its_callback(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let [indices, offsets] = [&[1u32, 2, 3, 25][..], &[0, 2, 4]].map(|words| storage(context, words));
    let outputs = storage(context, &[0.0f32; 8]);
    let first = caller::buffer(context, 4, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    let (stands, stood) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let mut encoder = caller::encoder(context);
    // A buffer that the submission uses is mapped with the report.
    encoder.copy_buffer_to_buffer(&outputs, 0, &first, 0, 4);
    encoder.map_buffer_on_submit(&first, wgpu::MapMode::Read, .., move |_| {
        stands.send(()).unwrap();
        let _ended = gone.recv_timeout(std::time::Duration::from_secs(60));
    });
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    context.queue().submit([encoder.finish()]);
    let done = AtomicBool::new(false);
    let (waits, found) = std::thread::scope(|scope| {
        // Another test's thread may meet the callback instead.
        scope.spawn(|| {
            while !done.load(Relaxed) {
                context.device().poll(wgpu::PollType::Poll).unwrap();
            }
        });
        let waits = stood.recv_timeout(std::time::Duration::from_secs(60));
        let found = group.flush();
        drop(go);
        done.store(true, Relaxed);
        (waits, found)
    });
    waits.unwrap();
    assert!(
        matches!(found, Err(Error::IndexOutOfRange { table: 1, position: 3, value: 25, .. })),
        "the callback waits: {found:?}"
    );
    group.flush().unwrap();
}
