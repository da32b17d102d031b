//! Staged tables: copied bytes, a caller's own encoders, files. (Every other test of a group also covers staged tables.)

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use hotrow::{
    Bags, Batch, Context, Error, FileStore, Group, GroupConfig, Init, Mode, Optimizer, Placement, Policy, Precision,
    SharedStore, Store as _, Traffic, internals::RamStore, prelude::*, state::Snapshot,
};

use crate::caller::{self, storage, submit};
use hotrow_harness::{
    child::{self, Waiting},
    data::place,
    device::{options, with_gpu},
    failing::Failing,
    gpu_test,
};

fn config() -> GroupConfig {
    let config = GroupConfig::new(&[3000], 20).with_precision(Precision::Int4).with_cache_rows(300);
    let config = config.with_optimizer(Optimizer::adagrad(0.05));
    config.with_init(Init::Uniform { low: -1.0, high: 1.0 }).with_placement(Placement::Staged)
}

fn batch(step: u32) -> (Vec<u32>, Vec<u32>) {
    let indices = (0..500u32).map(|i| (i * i * 31 + step * 977) % 3000 / (1 + i % 7)).collect();
    (indices, (0..=100).map(|bag| bag * 5).collect())
}

fn step(group: &mut Group, step: u32) {
    let (indices, offsets) = batch(step);
    let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    group.backward(&outputs).unwrap();
}

/// Runs steps with or without prefetching the next batch, and returns the flushed state.
fn run(group: &mut Group, steps: std::ops::Range<u32>, overlap: bool) -> (Vec<f32>, Snapshot) {
    let mut outputs = Vec::new();
    for step in steps.clone() {
        let (indices, offsets) = batch(step);
        outputs = if overlap && step > steps.start {
            group.forward_prefetched().unwrap()
        } else {
            group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap()
        };
        if overlap && step + 1 < steps.end {
            let (indices, offsets) = batch(step + 1);
            group.prefetch(Bags::new(&indices, &offsets)).unwrap();
        }
        group.backward(&outputs).unwrap();
    }
    group.flush().unwrap();
    (outputs, group.snapshot().unwrap())
}

fn on_the_device(context: &Context, steps: std::ops::Range<u32>) -> (Vec<f32>, Snapshot) {
    run(&mut Group::new(context, config().with_placement(Placement::Device)).unwrap(), steps, false)
}

/// The counters of the steps equal the copied records.
#[gpu_test]
fn bytes_that_cross_are_those_of_the_counters(context: &Context) {
    for (policy, overlap) in [(Policy::Lru, false), (Policy::Lru, true), (Policy::Lfu, false), (Policy::Lfu, true)] {
        let mut group = Group::new(context, config().with_policy(policy)).unwrap();
        run(&mut group, 0..6, overlap);
        let counters: hotrow::Counters = group.counters().unwrap().into_iter().sum();
        let traffic = group.traffic().unwrap();
        let stride = group.layout().stride();
        assert_eq!(traffic.records_in * stride, counters.bytes_read, "{policy:?} {overlap} {traffic:?}");
        // A kept victim that is updated (LFU) leaves once, but is counted twice: as evicted and as bypassed.
        let written = counters.bytes_written - traffic.records_out * stride;
        assert!(if policy == Policy::Lru { written == 0 } else { written < counters.bytes_written / 20 });
        // A copy holds the records, the row of each record that leaves, and a few words more. Lists are as long as the missing rows, or
        // slightly longer.
        assert!(traffic.bytes_in >= traffic.records_in * stride);
        assert!(traffic.bytes_in < traffic.records_in * (stride + 8) + 1);
        assert!(traffic.bytes_out >= traffic.records_out * (stride + 4));
        assert!(traffic.list_bytes >= 16 * counters.unique_misses);
        assert_eq!(traffic.forwarded > 0, overlap);
        assert_eq!(traffic.bytes(), traffic.list_bytes + traffic.bytes_in + traffic.bytes_out);
    }
    let resident = config().with_cache_rows(3000);
    let mut group = Group::new(context, resident).unwrap();
    let (indices, offsets) = batch(1);
    group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    group.discard_pending();
    let before = group.traffic().unwrap();
    group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    let after = group.traffic().unwrap();
    let records = |traffic: Traffic| (traffic.records_in, traffic.bytes_in, traffic.records_out, traffic.bytes_out);
    assert_eq!(records(after), records(before), "everything was resident");
}

/// The caller records, submits, and continues while the device works. Only `fetch` waits; `try_fetch` does not, and has nothing before the submission.
#[gpu_test]
fn a_callers_own_encoders(context: &Context) {
    let wanted = on_the_device(context, 0..6);
    for (placement, waits) in [(Placement::Staged, true), (Placement::Staged, false), (Placement::Device, true)] {
        let mut group = Group::new(context, config().with_placement(placement)).unwrap();
        let upload = |words: &[u32]| storage(context, words);
        let batches: Vec<_> = (0..6).map(batch).map(|(i, o)| (upload(&i), upload(&o))).collect();
        let outputs = upload(&[0; 100 * 20]);
        assert!(waits || matches!(group.try_fetch(), Err(Error::Order { .. })));
        let ask = |group: &mut Group, step: usize| {
            let (indices, offsets) = &batches[step];
            let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
            let mut encoder = caller::encoder(context);
            group.encode_prefetch(&mut encoder, &batch).unwrap();
            assert!(waits || group.try_fetch() == Ok(false), "its encoder has not been submitted");
            context.queue().submit([encoder.finish()])
        };
        let mut asked = ask(&mut group, 0);
        for step in 0..6 {
            if waits {
                group.fetch(Some(asked.clone())).unwrap();
            }
            // The first list is longer than expected, so that a thread gathers it.
            let start = Instant::now();
            while !waits && !group.try_fetch().unwrap() {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            assert!(waits || group.try_fetch() == Ok(true), "it is here");
            submit(context, |encoder| group.encode_forward_prefetched(encoder, outputs.slice(..)).unwrap());
            // The next batch is decided before the backward, and gathered while the backward runs.
            if step < 5 {
                asked = ask(&mut group, step + 1);
            }
            submit(context, |encoder| group.encode_backward(encoder, outputs.slice(..)).unwrap());
        }
        group.flush().unwrap();
        assert_eq!(group.snapshot().unwrap(), wanted.1, "{placement:?}, waits {waits}");
        assert_eq!(group.traffic().is_some_and(|traffic| traffic.forwarded > 0), placement == Placement::Staged);
    }
}

#[gpu_test]
fn what_needs_the_host_cannot_be_recorded_in_one_piece(context: &Context) {
    let mut group = Group::new(context, config()).unwrap();
    let (offsets, outputs) = (storage(context, &[0u32]), storage(context, &[0u32; 20]));
    let batch = Batch { indices: None, offsets: offsets.slice(..), weights: None };
    let mut encoder = caller::encoder(context);
    let refused = |found: Result<(), Error>| assert!(matches!(found, Err(Error::Unsupported { .. })), "{found:?}");
    refused(group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train));
    refused(group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Frozen));
    refused(group.encode_flush(&mut encoder));
    // Fetch comes after the submission of a prefetch, and before its forward.
    let order = |found: Result<(), Error>| assert!(matches!(found, Err(Error::Order { .. })), "{found:?}");
    order(group.fetch(None));
    group.encode_prefetch(&mut encoder, &batch).unwrap();
    order(group.encode_forward_prefetched(&mut encoder, outputs.slice(..)));
    order(group.fetch(None)); // the prefetch is not submitted yet
    context.queue().submit([encoder.finish()]);
    group.fetch(None).unwrap();
    submit(context, |encoder| group.encode_forward_prefetched(encoder, outputs.slice(..)).unwrap());
    group.flush().unwrap();
    let device = config().with_placement(Placement::Device);
    let store = SharedStore::in_ram(group.config()).unwrap();
    refuses!(Group::with_store(context, device, store), Error::Config { field: "placement", .. });
}

/// A flush in several pieces, after a look-up that has grown the buffers beyond one piece.
#[gpu_test]
fn a_flush_in_pieces(context: &Context) {
    let mut config = GroupConfig::new(&[9000], 1024).with_cache_rows(4096);
    (config.precision, config.optimizer) = (Precision::Fp32, Optimizer::adagrad(0.1));
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    let records = |placement, look_up: bool| {
        let mut group = Group::new(context, config.clone().with_placement(placement)).unwrap();
        // 33 MB of records are dirty. One piece has 16 MiB.
        let outputs = group
            .forward(Bags::new(&(0..4000).collect::<Vec<_>>(), &(0..=4000).collect::<Vec<_>>()), Mode::Train)
            .unwrap();
        group.backward(&outputs).unwrap();
        if look_up {
            group.read_rows(&(5000..8500).collect::<Vec<_>>()).unwrap();
        }
        group.flush().unwrap();
        let mut words = vec![0; 4000 * group.layout().row.record_words as usize];
        group.read_part(hotrow::state::Part::Records, 0, &mut words).unwrap();
        (words, group.traffic().map(|traffic| traffic.records_out))
    };
    let (wanted, _) = records(Placement::Device, false);
    for look_up in [false, true] {
        let (found, out) = records(Placement::Staged, look_up);
        assert!(found == wanted, "look-up {look_up}: a record differs");
        assert_eq!(out, Some(4000));
    }
}

/// A batch refused for its size leaves intact the records that are on their way, and the group continues.
#[gpu_test]
fn a_refused_batch_loses_nothing(context: &Context) {
    let config = GroupConfig::new(&[4_000_000], 128).with_cache_rows(320).with_precision(Precision::Fp32);
    let config = config.with_optimizer(Optimizer::sgd(0.1)).with_placement(Placement::Staged);
    let (first, second): (Vec<u32>, Vec<u32>) = ((0..300).collect(), (1000..1300).collect());
    let rows: Vec<u32> = first.iter().chain(&second).copied().collect();
    // Scratch or transfer of this batch is larger than a binding.
    let distinct = (context.caps().binding_bytes / 512 + 1).min(4_000_000) as u32;
    let large: Vec<u32> = (0..distinct).collect();
    for pending in [false, true] {
        let mut group = Group::new(context, config.clone()).unwrap();
        group.forward(Bags::new(&first, &[0, 300]), Mode::Train).unwrap();
        group.backward(&[1.0; 128]).unwrap();
        group.forward(Bags::new(&second, &[0, 300]), Mode::Train).unwrap(); // evicts the updated rows
        let wanted = group.read_rows(&rows).unwrap();
        if !pending {
            group.discard_pending();
        }
        if u64::from(distinct) * 512 <= context.caps().binding_bytes {
            return; // no batch of this table is too large for this device
        }
        refuses!(group.prefetch(Bags::new(&large, &[0, distinct])), Error::TooLarge { .. } | Error::OutOfMemory { .. });
        assert_eq!(group.read_rows(&rows).unwrap(), wanted);
        if pending {
            group.backward(&[0.0; 128]).unwrap();
        }
        group.flush().unwrap();
        let store = group.store().unwrap().clone();
        assert_eq!(store.read_rows(group.config(), &rows).unwrap(), wanted);
    }
}

/// The file's flag is cleared before any call makes the cache newer than the file.
#[gpu_test]
fn a_file_is_not_flushed_by_halves(context: &Context) {
    let folder = tempfile::tempdir().unwrap();
    for after in 0..4 {
        let path = folder.path().join(format!("{after}"));
        let store = SharedStore::new(FileStore::create(&path, &config()).unwrap());
        let mut group = Group::with_store(context, config(), store).unwrap();
        let outputs = group.forward(Bags::new(&[1, 2, 3], &[0, 3]), Mode::Train).unwrap();
        let mut ways = vec![0; hotrow::state::Part::Ways.words(group.config(), group.layout()) as usize];
        group.read_part(hotrow::state::Part::Ways, 0, &mut ways).unwrap();
        group.flush().unwrap();
        match after {
            0 => {}
            1 => group.backward(&outputs).unwrap(),
            2 => group.write_part(hotrow::state::Part::Ways, 0, &ways).unwrap(),
            _ => {
                group.discard_pending();
                group.write_rows(&[1], &[0.5; 20]).unwrap();
            }
        }
        drop(group);
        assert_eq!(FileStore::open(&path, &config()).unwrap().was_flushed(), after == 0, "{after}");
    }
}

/// Commands in an encoder that is dropped have no effect, and the group continues.
#[gpu_test]
fn encoders_that_are_dropped(context: &Context) {
    let encoder = || caller::encoder(context);
    let buffer = |words: &[u32]| storage(context, words);
    let (indices, offsets) = batch(7);
    let (index_buffer, offset_buffer) = (buffer(&indices), buffer(&offsets));
    let grads = buffer(&[0; 100 * 20]);
    let batch = Batch { indices: Some(index_buffer.slice(..)), offsets: offset_buffer.slice(..), weights: None };
    let mut plain = Group::new(context, config()).unwrap();
    let mut group = Group::new(context, config()).unwrap();
    for group in [&mut plain, &mut group] {
        run(group, 0..2, true);
        // This batch is larger than all batches before it, so the transfer grows with the next prefetch.
        let (indices, offsets) = (self::batch(3).0[..50].to_vec(), vec![0, 50]);
        let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
        let (indices, offsets) = self::batch(4);
        group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    }
    // A dropped prefetch while a backward may still come, then a backward, then the prefetch again.
    group.encode_prefetch(&mut encoder(), &batch).unwrap();
    refuses!(group.fetch(None), Error::Order { found: "an encoder that was dropped", .. });
    group.encode_backward(&mut encoder(), grads.slice(..)).unwrap();
    plain.discard_pending();
    group.encode_prefetch(&mut encoder(), &batch).unwrap();
    refuses!(group.try_fetch(), Error::Order { .. });
    refuses!(group.fetch(None), Error::Order { call: "forward_prefetched", .. }, "it is forgotten");
    assert_eq!(group.snapshot().unwrap(), plain.snapshot().unwrap());
    assert_eq!(run(&mut group, 5..8, true), run(&mut plain, 5..8, false));
    // A step follows a backward that was dropped at once.
    let (indices, offsets) = self::batch(9);
    for group in [&mut plain, &mut group] {
        group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    }
    group.encode_backward(&mut encoder(), grads.slice(..)).unwrap();
    plain.discard_pending();
    assert_eq!(run(&mut group, 10..12, true), run(&mut plain, 10..12, false));
}

/// The forward of a prefetch was dropped, and the store fails as the next call ends its step: that is named, and the same call goes on.
#[gpu_test]
fn a_dropped_forward_ends_although_the_store_failed(context: &Context) {
    let failing = Failing::new(RamStore::new(&config()).unwrap());
    let left = failing.patience.clone();
    let mut group = Group::with_store(context, config(), SharedStore::new(failing)).unwrap();
    let mut plain = Group::new(context, config()).unwrap();
    let (indices, offsets) = batch(2);
    for group in [&mut plain, &mut group] {
        run(group, 0..2, true);
    }
    let [index_buffer, offset_buffer, outputs] = [&indices[..], &offsets, &[0; 100 * 20]].map(|w| storage(context, w));
    let batch = Batch { indices: Some(index_buffer.slice(..)), offsets: offset_buffer.slice(..), weights: None };
    submit(context, |encoder| group.encode_prefetch(encoder, &batch).unwrap());
    group.fetch(None).unwrap();
    group.encode_forward_prefetched(&mut caller::encoder(context), outputs.slice(..)).unwrap();
    left.store(0, Relaxed);
    refuses!(group.forward(Bags::new(&indices, &offsets), Mode::Train), Error::Store { what: "disk", .. });
    // The step has no outputs and no backward, but its rows have moved.
    plain.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    plain.discard_pending();
    assert_eq!(run(&mut group, 3..5, true), run(&mut plain, 3..5, true));
}

/// A disk that stays full: rows that left the cache can still be read, and the group can be saved elsewhere.
#[gpu_test]
fn a_full_store_can_be_saved_elsewhere(context: &Context) {
    let failing = Failing::new(RamStore::new(&config()).unwrap());
    let full = failing.full.clone();
    let mut group = Group::with_store(context, config(), SharedStore::new(failing)).unwrap();
    let mut other = Group::new(context, config()).unwrap();
    for group in [&mut group, &mut other] {
        run(group, 0..2, true);
        step(group, 2);
    }
    full.store(true, Relaxed);
    let (indices, offsets) = batch(3);
    for _ in 0..2 {
        refuses!(group.forward(Bags::new(&indices, &offsets), Mode::Train), Error::Store { what: "disk", .. });
    }
    let (_folder, path) = place();
    hotrow::checkpoint::save(&mut group, &path).unwrap();
    assert_eq!(group.snapshot().unwrap(), other.snapshot().unwrap());
    let mut saved = Group::new(context, config().with_placement(Placement::Device)).unwrap();
    hotrow::checkpoint::load(&mut saved, &path).unwrap();
    assert_eq!(run(&mut saved, 3..5, false), run(&mut other, 3..5, true));
    // The disk has room again.
    full.store(false, Relaxed);
    assert_eq!(run(&mut group, 3..5, true).1, saved.snapshot().unwrap());
}

/// A store belongs to one group and must fit its configuration.
#[gpu_test]
fn stores_of_others_are_refused(context: &Context) {
    let (_folder, path) = place();
    let half = config().with_precision(Precision::Fp16).with_optimizer(Optimizer::sgd(0.1));
    let store = SharedStore::new(FileStore::create(&path, &half).unwrap());
    // The same number of rows and the same stride: 20 halves or 10 floats.
    let other = half.clone().with_precision(Precision::Fp32).with_dim(10);
    refuses!(Group::with_store(context, other, store.clone()), Error::Store { what: "dim", .. });
    let group = Group::with_store(context, half.clone(), store.clone()).unwrap();
    refuses!(Group::with_store(context, half.clone(), store.clone()), Error::Store { what: "owner", .. });
    drop(group);
    Group::with_store(context, half, store).unwrap();
}

/// The device is lost between steps: the error is named, and the flushed table can be read through the store.
#[gpu_test]
fn a_lost_device_leaves_the_table(_: &Context) {
    // A device of its own: losing the shared one would end the other tests.
    let context = hotrow::adapter::open_best().unwrap();
    let context = Context::with_options(context.device(), context.queue(), &options()).unwrap();
    let mut group = Group::new(&context, config()).unwrap();
    let store = group.store().unwrap().clone();
    run(&mut group, 0..2, true);
    let rows: Vec<u32> = (0..3000).collect();
    let wanted = group.read_rows(&rows).unwrap();
    let resident = {
        let ways = group.snapshot().unwrap().ways;
        (0..3000u32).filter(|row| ways.contains(row)).collect::<Vec<_>>()
    };
    let (indices, offsets) = batch(9);
    group.prefetch(Bags::new(&indices, &offsets)).unwrap();
    context.device().destroy();
    let lost = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Device { .. })), "{result:?}");
    lost(group.forward_prefetched().map(drop));
    lost(group.forward_prefetched().map(drop));
    drop(group);
    let found = store.read_rows(&config(), &rows).unwrap();
    let (dim, mut apart) = (config().dim as usize, 0);
    for (row, (a, b)) in (0u32..).zip(found.chunks(dim).zip(wanted.chunks(dim))) {
        // The cache holds a resident row in more detail than its record: INT4 over [-2, 2] has steps of at most 0.27.
        let near = a.iter().zip(b).all(|(a, b)| (a - b).abs() < if resident.contains(&row) { 0.3 } else { 1e-6 });
        assert!(near, "row {row}: {a:?} {b:?}");
        apart += u32::from(a != b);
    }
    assert!(apart > 0, "nothing was resident");
}

/// A group that is too large is refused before its store is touched.
#[gpu_test]
fn a_group_that_cannot_be_leaves_its_store(context: &Context) {
    let huge = GroupConfig::new(&[400_000_000], 128).with_cache_rows(100_000_000);
    let huge = huge.with_placement(Placement::Staged).with_init(config().init);
    let (_folder, path) = place();
    let store = SharedStore::new(FileStore::create(&path, &huge).unwrap());
    refuses!(Group::with_store(context, huge, store.clone()), Error::TooLarge { .. } | Error::OutOfMemory { .. });
    assert!(!store.with(|store| store.filled()));
    // The same store is also refused for another shape.
    refuses!(Group::with_store(context, config(), store), Error::Store { .. });
}

/// A table in a file gives the same bits as a table in memory, and continues from its flush, step number included.
#[gpu_test]
fn a_file_goes_on(context: &Context) {
    let (_folder, path) = place();
    let ram = |steps| run(&mut Group::new(context, config()).unwrap(), steps, true);
    let store = SharedStore::new(FileStore::create(&path, &config()).unwrap());
    let mut group = Group::with_store(context, config(), store).unwrap();
    let first = run(&mut group, 0..3, true);
    assert_eq!(first, ram(0..3));
    drop(group);
    let store = FileStore::open(&path, &config()).unwrap();
    assert!(store.was_flushed());
    let mut group = Group::with_store(context, config(), SharedStore::new(store)).unwrap();
    let opened = group.snapshot().unwrap();
    assert_eq!((opened.t, &opened.records), (3, &first.1.records));
    // A group that takes over these records with an empty cache gives the same bits.
    let mut other = Group::new(context, config()).unwrap();
    other.restore(&opened).unwrap();
    assert_eq!(run(&mut group, 3..6, true), run(&mut other, 3..6, false));
}

/// A killed trainer leaves a file that opens, says whether its cache had been flushed, and continues.
#[gpu_test]
fn a_killed_trainer_leaves_a_file_that_opens(context: &Context) {
    let folder = tempfile::tempdir().unwrap();
    for (name, flushed) in [("staged::child_flushed", true), ("staged::child_between_steps", false)] {
        let path = folder.path().join(name.replace(':', "_"));
        Waiting::at(child::command(name, &path), "now").kill();
        let store = FileStore::open(&path, &config()).unwrap();
        assert_eq!((store.was_flushed(), store.step()), (flushed, 3), "{name}");
        let mut group = Group::with_store(context, config(), SharedStore::new(store)).unwrap();
        if flushed {
            assert_eq!(group.snapshot().unwrap().records, on_the_device(context, 0..3).1.records);
        }
        run(&mut group, 3..5, true);
        assert!(group.read_rows(&[0, 1, 2, 2999]).unwrap().iter().all(|x| x.abs() < 10.0));
    }
}

/// Runs three steps and a flush, then steps without a flush until the process is killed.
fn train_until_killed(more: u32) {
    with_gpu(|context| {
        let store = SharedStore::new(FileStore::create(child::path(), &config()).unwrap());
        let mut group = Group::with_store(context, config(), store).unwrap();
        run(&mut group, 0..3, true);
        (3..3 + more).for_each(|at| step(&mut group, at));
        child::wait("now");
    });
}

#[test]
#[ignore = "run, and killed, by a_killed_trainer_leaves_a_file_that_opens"]
fn child_flushed() {
    train_until_killed(0);
}

#[test]
#[ignore = "run, and killed, by a_killed_trainer_leaves_a_file_that_opens"]
fn child_between_steps() {
    train_until_killed(3);
}

/// The last rows of the largest possible group: 2^32 - 2 rows, 86 GB of records in a sparse file.
#[gpu_test]
fn the_last_of_four_billion_rows(context: &Context) {
    let last = u32::MAX - 2;
    let config = GroupConfig::new(&[u32::MAX - 1], 40).with_precision(Precision::Int2);
    let config = config.with_placement(Placement::Staged).with_cache_rows(64);
    let config = config.with_optimizer(Optimizer::sgd(1.0));
    let (_folder, path) = place();
    let store = SharedStore::new(FileStore::create(&path, &config).unwrap());
    let mut group = Group::with_store(context, config.clone(), store).unwrap();
    assert!(group.layout().table_bytes() > 1 << 36);
    let rows: Vec<u32> = (0..100).flat_map(|i| [i, 1 << 31 | i, last - i]).collect();
    let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
    let outputs = group.forward(Bags::new(&rows, &offsets), Mode::Train).unwrap();
    assert!(outputs.iter().all(|&x| x == 0.0));
    // Each row gets its own two values, so that a record written to a wrong row is noticed.
    let grads: Vec<f32> = (0..rows.len() * 40).map(|i| -((i / 40) as f32) * (i % 2) as f32).collect();
    group.backward(&grads).unwrap();
    group.flush().unwrap();
    drop(group);
    let store = SharedStore::new(FileStore::open(&path, &config).unwrap());
    let group = Group::with_store(context, config, store).unwrap();
    let found = group.store().unwrap().read_rows(group.config(), &rows).unwrap();
    let wanted: Vec<f32> = grads.iter().map(|g| -g).collect();
    for (i, (a, b)) in found.chunks(40).zip(wanted.chunks(40)).enumerate() {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= b.abs() * 1e-6), "row {}: {a:?} for {b:?}", rows[i]);
    }
}
