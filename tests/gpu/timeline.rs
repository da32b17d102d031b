//! Names, counts and times of dispatches on three devices: one with timestamps inside passes, one with timestamps of passes, one without
//! timestamps.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Batch, Context, FloatBuffer, Group, GroupConfig, Mode, Optimizer, Policy, Precision, Timeline, Timings,
    prelude::*, wgpu,
};

use crate::caller::{self, storage, submit};
use hotrow_harness::{
    device::{own, skipped, with_storage_buffers},
    gpu_test,
};

/// Runs a step of `indices` accesses on a group of `context`. Returns the record of `timeline`.
fn step(context: &Context, timeline: &Timeline, indices: u32) -> Timings {
    let storage = |words: &[u32]| storage(context, words);
    let config = GroupConfig::new(&[5000], 8).with_cache_rows(64);
    let mut group = Group::new(context, config).unwrap();
    let rows: Vec<u32> = (0..indices).map(|i| i * 7 % 5000).collect();
    let (rows, offsets) = (storage(&rows), storage(&(0..=indices).collect::<Vec<_>>()));
    let outputs = storage(&vec![0; indices as usize * 8]);
    let grads = storage(&vec![0; indices as usize * 8]);
    let mut encoder = caller::encoder(context);
    let batch = Batch { indices: Some(rows.slice(..)), offsets: offsets.slice(..), weights: None };
    group.encode_forward(&mut encoder, &batch, outputs.slice(..), Mode::Train).unwrap();
    group.encode_backward(&mut encoder, grads.slice(..)).unwrap();
    timeline.resolve(&mut encoder);
    context.queue().submit([encoder.finish()]);
    timeline.read().unwrap()
}

/// Checks that every dispatch has a stage of the crate and, if `timed`, a time, and that the times add up to no more than the whole.
fn plausible(record: &Timings, timed: bool) -> Result<(), String> {
    let known: Vec<&str> = hotrow::internals::kernels().iter().map(|kernel| kernel.name).collect();
    if record.spans.is_empty() || record.spans.len() as u64 != record.dispatches {
        return Err(format!("{} spans, {} dispatches", record.spans.len(), record.dispatches));
    }
    if let Some(span) = record.spans.iter().find(|span| !span.dispatch || !known.contains(&span.stage)) {
        return Err(format!("{span:?}"));
    }
    if let Some(span) = record.spans.iter().find(|span| span.nanoseconds.is_some() != timed) {
        return Err(format!("{span:?}"));
    }
    let sum: f64 = record.spans.iter().filter_map(|span| span.nanoseconds).sum();
    match record.nanoseconds {
        None if !timed => Ok(()),
        // At most a minute for a batch of thousands, even on a software driver beside other tests.
        Some(whole) if timed && sum > 0.0 && sum <= whole * 1.001 && whole < 60e9 => Ok(()),
        whole => Err(format!("{sum} ns of {whole:?} ns")),
    }
}

#[gpu_test]
fn dispatches_are_named_counted_and_timed(_: &Context) {
    let [between, ends] = [wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES, wgpu::Features::TIMESTAMP_QUERY];
    let mut counts = Vec::new();
    for wanted in [ends | between, ends, wgpu::Features::empty()] {
        let (device, queue) = own((wgpu::Features::all() - ends - between) | wanted, None);
        let context = Context::new(&device, &queue).unwrap();
        let timeline = Timeline::new(&context);
        let stamped = !wanted.is_empty();
        if !device.features().contains(wanted) {
            skipped(&format!("a timeline with {wanted:?}: the device has {:?}", device.features() & (ends | between)));
            continue;
        }
        assert_eq!(timeline.has_stamps(), stamped);
        let record = step(&context.timed(&timeline), &timeline, 3000);
        plausible(&record, stamped).unwrap();
        counts.push(record.dispatches);
        for stage in ["linearize", "probe", "gather", "update"] {
            assert!(record.spans.iter().any(|span| span.stage == stage), "{stage}");
        }
        // The companion: the wrong record of a broken timeline is noticed.
        let mut wrong = record.clone();
        wrong.spans.pop();
        plausible(&wrong, stamped).unwrap_err();
        plausible(&record, !stamped).unwrap_err();
        // A second read returns an empty record. A context without the timeline encodes nothing.
        assert_eq!(timeline.read().unwrap(), Timings::default());
        assert_eq!(step(&context, &timeline, 100), Timings::default());
        timeline.listen(false);
        assert_eq!(step(&context.timed(&timeline), &timeline, 100), Timings::default());
    }
    assert!(counts.windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}: timing changes nothing");
}

#[gpu_test]
fn a_stretch_and_more_dispatches_than_stamps(context: &Context) {
    let timeline = Timeline::new(context);
    let timed = context.timed(&timeline);
    let mut dispatches = 0;
    // A timeline that is not read fills up: 4096 timestamps, about 20 to 60 for each step.
    for _ in 0..2 {
        let mut group = Group::new(&timed, GroupConfig::new(&[100], 4)).unwrap();
        for _ in 0..300 {
            group.forward(Bags::new(&[1, 2, 3], &[0, 3]), Mode::Train).unwrap();
            group.discard_pending();
        }
        submit(context, |encoder| timeline.resolve(encoder));
        let record = timeline.read().unwrap();
        assert!(record.dispatches >= 300 && record.spans.len() <= 4096, "{}", record.dispatches);
        assert!(dispatches == 0 || dispatches == record.dispatches, "the second round begins anew");
        dispatches = record.dispatches;
    }
    let buffer = caller::buffer(context, 1 << 20, wgpu::BufferUsages::COPY_DST);
    submit(context, |encoder| {
        timeline.around(encoder, "clear", |encoder| encoder.clear_buffer(&buffer, 0, None));
        timeline.resolve(encoder);
    });
    let record = timeline.read().unwrap();
    assert_eq!((record.spans.len(), record.dispatches), (1, 0));
    assert_eq!((record.spans[0].stage, record.spans[0].dispatch), ("clear", false));
    assert_eq!(record.spans[0].nanoseconds.is_some(), timeline.has_stamps());
}

/// Dispatches of a forward and of a backward of `indices` accesses, with FP16 outputs if `half`.
fn dispatches(context: &Context, config: &GroupConfig, indices: u32, half: bool) -> [u64; 2] {
    let timeline = Timeline::new(context);
    let timed = context.timed(&timeline);
    let storage = |words: &[u32]| storage(context, words);
    let mut group = Group::new(&timed, config.clone()).unwrap();
    let (list, offsets) = (storage(&vec![3; indices as usize]), storage(&[0, indices]));
    let (outputs, grads) = (storage(&[0; 4]), storage(&[0; 4]));
    let batch = Batch { indices: Some(list.slice(..)), offsets: offsets.slice(..), weights: None };
    [false, true].map(|backward| {
        let mut encoder = caller::encoder(context);
        if backward {
            group.encode_backward(&mut encoder, grads.slice(..4)).unwrap();
        } else {
            let outputs = outputs.slice(..4);
            let outputs = if half { FloatBuffer::F16(outputs) } else { FloatBuffer::F32(outputs) };
            group.encode_forward(&mut encoder, &batch, outputs, Mode::Train).unwrap();
        }
        timeline.resolve(&mut encoder);
        context.queue().submit([encoder.finish()]);
        timeline.read().unwrap().dispatches
    })
}

/// The dispatch counts that docs/calls.md states.
#[gpu_test]
fn a_step_has_as_many_dispatches_as_the_documentation_says(context: &Context) {
    for (rows, cache_rows, indices, wanted) in [
        (5000, 64, 32, [7, 3]),
        (5000, 64, 33, [7, 5]),
        (5000, 64, 1024, [7, 5]),
        (5000, 64, 1025, [12, 10]),
        (70_000, 70_000, 1025, [14, 12]),
        // A forward sorts by keys, which number the rows; a backward by slots and scratch rows, which need fewer bits here. A histogram counts their
        // first digits.
        (70_000, 64, 1025, [14, 11]),
        // At most 16 in a forward and 30 in a step.
        (70_000, 70_000, 1 << 20, [14, 12]),
        // Beyond 2^21 indices a histogram counts the digits of every pass.
        (5000, 64, (1 << 21) + 1, [14, 12]),
        (5000, 0, 1025, [11, 10]),
        (5000, 0, 1024, [6, 5]),
    ] {
        let config = GroupConfig::new(&[rows], 1).with_cache_rows(cache_rows);
        assert_eq!(dispatches(context, &config, indices, false), wanted, "{rows} rows, {indices} indices");
    }
    let config = GroupConfig::new(&[5000], 1).with_cache_rows(64);
    let halves = dispatches(context, &config, 32, true);
    assert_eq!(halves, [8, 3], "FP16 outputs take one more");
    // Pieces: 3 of records, and under LFU also 3 of frequencies, in buffers of the same size. A device that binds 8 storage buffers takes
    // one piece at a time, one that binds 9 two, one that binds 10 all.
    for (policy, cache_rows, wanted) in [
        (Policy::Lru, 64, [[12, 5], [10, 4], [7, 3]]),
        (Policy::Lfu, 64, [[15, 5], [13, 4], [10, 3]]),
        (Policy::Lru, 0, [[8, 5], [7, 4], [6, 3]]),
        (Policy::Lfu, 0, [[10, 5], [9, 4], [8, 3]]),
        // Without admission, and without packing in forward.
        (Policy::Static, 64, [[8, 5], [7, 4], [6, 3]]),
    ] {
        let config = GroupConfig::new(&[5000], 1).with_policy(policy).with_cache_rows(cache_rows);
        let config = config.with_optimizer(Optimizer::sgd(0.1)).with_precision(Precision::Fp32);
        let config = config.with_piece_bytes(Some(4 * 1667));
        for (buffers, wanted) in [8, 9, 10].into_iter().zip(wanted) {
            let context = with_storage_buffers(buffers);
            assert_eq!(
                dispatches(&context, &config, 32, false),
                wanted,
                "{policy:?}, {cache_rows} cache rows, {buffers} storage buffers"
            );
        }
    }
}

/// The goals of a step of 2^20 indices: 14 dispatches forward and 26 in all with rows of 24 bits, one more under Window.
#[gpu_test]
fn a_step_of_a_million_indices_has_at_most_26_dispatches(context: &Context) {
    let within = |rows, policy, more: u64| {
        let config = GroupConfig::new(&[rows], 1).with_policy(policy).with_cache_rows(1 << 20);
        let config = config.with_optimizer(Optimizer::sgd(0.1)).with_precision(Precision::Fp32);
        let [forward, backward] = dispatches(context, &config, 1 << 20, false);
        println!("{rows} rows, {policy:?}: {forward} dispatches forward, {} in a step", forward + backward);
        forward <= 14 + more && forward + backward <= 26 + more
    };
    let most = (1 << 24) - 1;
    assert!(within(most, Policy::Lru, 0) && within(most, Policy::Window, 1));
    // Companions that need more: LFU corrects places, Window halves counters, and rows of 25 bits take another pass.
    assert!(
        !within(most, Policy::Lfu, 0) && !within(most, Policy::Window, 0) && !within((1 << 24) + 1, Policy::Lru, 0)
    );
}
