//! The futures of groups: polled by an executor of the test, they give what the calls that wait give, and a lost device ends them.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context as Cx, Poll, Wake, Waker},
    time::{Duration, Instant},
};

use crate::caller::{storage, submit};
use hotrow::{
    Bags, Context, Error, Group, GroupConfig, Init, Mode, Optimizer, OutputSlice, Placement, Precision, Scaler,
    SharedGroup, adapter, prelude::*, robe, state::Part,
};
use hotrow_harness::gpu_test;

/// The numbers of an executor.
#[derive(Debug, Default)]
struct Counts {
    polls: usize,
    woken: usize,
}

struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Polls `future` only when it has been woken, as an executor does. A future that is pending and wakes nobody fails.
fn run<T>(future: impl Future<Output = T> + Send, counts: &mut Counts) -> T {
    let bell = Arc::new(Bell(AtomicUsize::new(0)));
    let waker = Waker::from(bell.clone());
    let (mut future, begun) = (pin!(future), Instant::now());
    loop {
        counts.polls += 1;
        let woken = bell.0.load(Relaxed);
        if let Poll::Ready(done) = future.as_mut().poll(&mut Cx::from_waker(&waker)) {
            return done;
        }
        while bell.0.load(Relaxed) == woken {
            assert!(begun.elapsed() < Duration::from_secs(60), "pending, and nobody is woken");
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "a future hangs");
        counts.woken += 1;
    }
}

fn config(placement: Placement) -> GroupConfig {
    GroupConfig::new(&[300, 40], 6)
        .with_precision(Precision::Int8)
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
        .with_cache_rows(64)
        .with_optimizer(Optimizer::adagrad(0.1))
        .with_placement(placement)
}

/// A batch of two features, of which the second step misses far more rows than the first.
fn batch(step: u32) -> (Vec<u32>, Vec<u32>) {
    let (bags, each) = (8, if step == 1 { 20 } else { 3 });
    let rows = |rows: u32, salt: u32| (0..bags * each).map(move |i| (i * 7 + step * 13 + salt) % rows);
    (rows(300, 1).chain(rows(40, 5)).collect(), (0..=2 * bags).map(|bag| bag * each).collect())
}

#[gpu_test]
fn futures_give_what_calls_give(context: &Context) {
    for placement in [Placement::Device, Placement::Staged, Placement::Auto] {
        let mut counts = Counts::default();
        let mut calls = Group::new(context, config(placement)).unwrap();
        let mut futures = run(Group::new_async(context, config(placement)), &mut counts).unwrap();
        assert_eq!(futures.placed(), calls.placed());
        for step in 0..4 {
            let (indices, offsets) = batch(step);
            let expected = calls.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
            let mut outputs = vec![0.0; expected.len()];
            run(
                futures.forward_into_async(Bags::new(&indices, &offsets), Mode::Train, OutputSlice::F32(&mut outputs)),
                &mut counts,
            )
            .unwrap();
            assert_eq!(outputs, expected, "{placement:?} step {step}");
            let grads: Vec<f32> = outputs.iter().map(|x| 0.5 - x).collect();
            calls.backward(&grads).unwrap();
            run(futures.backward_async(&grads), &mut counts).unwrap();
            let rows = [0, 3, 299, 339, step];
            assert_eq!(run(futures.read_rows_async(&rows), &mut counts), calls.read_rows(&rows));
            assert_eq!(run(futures.counters_async(), &mut counts), calls.counters());
            if step == 2 {
                calls.flush().unwrap();
                run(futures.flush_async(), &mut counts).unwrap();
            }
        }
        let mut ways = vec![0; Part::Ways.words(futures.config(), futures.layout()) as usize];
        run(futures.read_part_async(Part::Ways, 0, &mut ways), &mut counts).unwrap();
        assert_eq!(ways, calls.snapshot().unwrap().ways);
        assert_eq!(futures.snapshot().unwrap(), calls.snapshot().unwrap(), "{placement:?}");
        assert!(ways.iter().any(|&word| word != 0), "an empty cache shows nothing");
        calls.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train).unwrap();
        assert_ne!(futures.snapshot().unwrap(), calls.snapshot().unwrap(), "the comparison can fail");
        // The device takes a while: some polls found no answer, and the future has woken the executor.
        if context.caps().backend == wgpu::Backend::Vulkan {
            assert!(counts.polls > counts.woken && counts.woken > 0, "{counts:?}");
        }
    }
}

#[gpu_test]
fn errors_of_a_batch_come_out_of_futures_too(context: &Context) {
    let counts = &mut Counts::default();
    let mut group = run(Group::new_async(context, config(Placement::Device)), counts).unwrap();
    let mut outputs = [7.0; 2 * 6];
    let refused = run(
        group.forward_into_async(Bags::new(&[300, 0], &[0, 1, 2]), Mode::Train, OutputSlice::F32(&mut outputs)),
        counts,
    );
    refuses!(refused, Error::IndexOutOfRange { table: 0, value: 300, .. });
    assert_eq!(outputs, [7.0; 2 * 6]);
    refuses!(run(group.backward_async(&outputs), counts), Error::Order { .. });
    refuses!(run(group.read_rows_async(&[340]), counts), Error::RowOutOfRange { row: 340, .. });
}

#[gpu_test]
fn a_prefetched_batch_is_fetched_by_a_future(context: &Context) {
    let counts = &mut Counts::default();
    let upload = |words: &[u32]| storage(context, words);
    let mut calls = Group::new(context, config(Placement::Staged)).unwrap();
    let mut group = Group::new(context, config(Placement::Staged)).unwrap();
    for step in 0..4 {
        let (indices, offsets) = batch(step);
        let expected = calls.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        let (indices, offsets) = (upload(&indices), upload(&offsets));
        let outputs = upload(&vec![0; expected.len()]);
        let batch = hotrow::Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
        submit(context, |encoder| group.encode_prefetch(encoder, &batch).unwrap());
        // Step 1 has a list far longer than the one before, which takes a second download.
        run(group.fetch_async(), counts).unwrap();
        submit(context, |encoder| {
            group.encode_forward_prefetched(encoder, outputs.slice(..)).unwrap();
            group.encode_backward(encoder, outputs.slice(..)).unwrap();
        });
        calls.backward(&expected).unwrap();
        assert_eq!(run(group.read_rows_async(&[1, 2, 3]), counts), calls.read_rows(&[1, 2, 3]), "step {step}");
    }
    assert_eq!(group.snapshot().unwrap(), calls.snapshot().unwrap());
    refuses!(run(group.fetch_async(), counts), Error::Order { .. });
}

#[gpu_test]
fn shared_arrays_and_scalers_have_futures(context: &Context) {
    let counts = &mut Counts::default();
    let config = robe::Config::new(&[100], 6, 64, 4).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let mut calls = SharedGroup::new(context, config.clone()).unwrap();
    let mut futures = run(SharedGroup::new_async(context, config), counts).unwrap();
    let expected = calls.forward(Bags::new(&[1, 2, 99], &[0, 2, 3]), Mode::Train).unwrap();
    let mut outputs = vec![0.0; expected.len()];
    run(
        futures.forward_into_async(Bags::new(&[1, 2, 99], &[0, 2, 3]), Mode::Train, OutputSlice::F32(&mut outputs)),
        counts,
    )
    .unwrap();
    assert_eq!(outputs, expected);
    calls.backward(&outputs).unwrap();
    run(futures.backward_async(&outputs), counts).unwrap();
    assert_eq!(run(futures.read_rows_async(&[1, 50]), counts), calls.read_rows(&[1, 50]));
    assert_eq!(run(futures.counters_async(), counts), calls.counters());
    let scaler = Scaler::new(context, hotrow::LossScale::default()).unwrap();
    assert_eq!(run(scaler.state_async(), counts), scaler.state());
}

/// A device of its own, because it will be lost.
fn own_device() -> Context {
    let counts = &mut Counts::default();
    // Asked for as an embedder asks: no future of the library blocks here.
    run(adapter::open_best_async(), counts).unwrap()
}

#[gpu_test]
fn a_lost_device_is_an_error_and_no_future_hangs(_: &Context) {
    for placement in [Placement::Device, Placement::Staged] {
        let context = own_device();
        let counts = &mut Counts::default();
        let mut group = run(Group::new_async(&context, config(placement)), counts).unwrap();
        let (indices, offsets) = batch(0);
        let mut outputs = vec![0.0; group.output_len(indices.len(), offsets.len() - 1)];
        run(
            group.forward_into_async(Bags::new(&indices, &offsets), Mode::Train, OutputSlice::F32(&mut outputs)),
            counts,
        )
        .unwrap();
        {
            // Lost while an answer is under way: the mapping fails.
            let counters = pin!(group.counters_async());
            let mut counters = counters;
            let first = counters.as_mut().poll(&mut Cx::from_waker(Waker::noop()));
            context.device().destroy();
            if first.is_pending() {
                let found = run(counters, counts);
                assert!(matches!(found, Ok(_) | Err(Error::Device { .. })), "{found:?}");
            }
        }
        let lost = |found: Result<(), Error>| assert!(matches!(found, Err(Error::Device { .. })), "{found:?}");
        lost(run(group.counters_async(), counts).map(drop));
        lost(run(group.read_rows_async(&[1]), counts).map(drop));
        lost(run(group.flush_async(), counts));
        lost(run(group.backward_async(&outputs), counts));
        lost(run(
            group.forward_into_async(Bags::new(&indices, &offsets), Mode::Train, OutputSlice::F32(&mut outputs)),
            counts,
        ));
        lost(run(Group::new_async(&context, config(placement)), counts).map(drop));
    }
}
