//! Feedback: rows that a caller's shaders want come into the cache.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use hotrow::{
    Bags, Context, Counters, Error, Feedback, FeedbackCounts, FileStore, Group, GroupConfig, Mode, OutOfRange,
    Placement, Policy, Precision, Reader, RowReader, SharedGroup, SharedStore,
    internals::{RamStore, held_bindings, layout::NONE, objects_made},
    prelude::*,
    robe, wgpu,
};
use hotrow_harness::{
    data::place,
    device::{options, own, placements, with_gpu},
    failing::{Failing, insist},
    gpu_test,
};

use crate::caller::{self, submit};
use crate::reader::{Program, Seen, all_rows, config, draws, emb, resident, train, wanted};

const PLACEMENTS: [Placement; 2] = [Placement::Device, Placement::Staged];

fn wanting() -> Reader<'static> {
    Reader { feedback: Some(Feedback::default()), ..emb() }
}

/// A group, its reader with feedback, and a program that reads and wants rows.
struct Scene {
    context: Context,
    group: Group,
    reader: RowReader,
    program: Program,
}

impl Scene {
    fn new(context: &Context, config: GroupConfig, wanted: Reader<'_>) -> Self {
        Self::of(context, Group::new(context, config).unwrap(), wanted)
    }

    fn of(context: &Context, group: Group, wanted: Reader<'_>) -> Self {
        let reader = group.reader(wanted).unwrap();
        let program = Program::new(context, &reader, "emb", group.config().dim);
        Self { context: context.clone(), group, reader, program }
    }

    fn draw(&mut self, rows: &[u32]) -> Vec<Seen> {
        self.program.read(self.reader.bind_group().unwrap(), rows)
    }

    fn encode_feedback(&mut self) -> bool {
        submit(&self.context, |encoder| self.group.encode_feedback(encoder, &self.reader).unwrap())
    }

    /// A frame: moves in what is ready, draws, asks, and waits as for a display: for the device, and for a thread that gathers.
    fn frame(&mut self, rows: &[u32]) -> Vec<Seen> {
        self.group.pump().unwrap();
        let seen = self.draw(rows);
        let begins = self.encode_feedback();
        self.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        // The rows of an earlier frame come in time for the next one.
        while !begins && self.group.try_fetch() == Ok(false) {
            std::thread::yield_now();
        }
        seen
    }

    /// Waits for the rows that are on their way.
    fn settle(&mut self) {
        if self.group.store().is_some() {
            self.group.fetch(None).unwrap();
            assert!(self.group.pump().unwrap());
        }
        assert!(!self.group.pump().unwrap(), "nothing is left");
    }

    fn counters(&mut self) -> Counters {
        self.group.counters().unwrap().into_iter().sum()
    }

    /// The counts of `frames` frames, once they have arrived.
    fn counts(&mut self, frames: u32) -> FeedbackCounts {
        let start = Instant::now();
        loop {
            match self.reader.try_feedback().unwrap() {
                Some(counts) if counts.frames == frames => return counts,
                found => assert!(start.elapsed() < Duration::from_secs(60), "{found:?}"),
            }
            self.context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        }
    }
}

/// At most 32 rows in a set, and many more accesses, some beyond the tables.
fn some_rows() -> Vec<u32> {
    let rows = (0..70).map(|i| i * 9 % 700);
    rows.flat_map(|row| std::iter::repeat_n(row, 1 + row as usize % 5)).collect()
}

fn distinct(rows: &[u32]) -> Vec<u32> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// The step of a feedback is that of a training forward of each wanted row, once, bit for bit. Padding is none, and padding beyond its table is no row of the next.
#[test]
pub(crate) fn a_frame_is_a_step_of_each_wanted_row() {
    with_gpu(|context| {
        for (placement, policy) in PLACEMENTS.into_iter().flat_map(|of| [(of, Policy::Lru), (of, Policy::Lfu)]) {
            let config = config(Precision::Int8, 8).with_placement(placement).with_policy(policy);
            let config = config.with_tables(vec![40, 660]).with_padding(vec![Some(49), Some(59)]);
            let config = config.with_out_of_range(OutOfRange::Skip);
            let mut scene = Scene::new(context, config.clone(), wanting());
            let mut other = Group::new(context, config).unwrap();
            for frame in 0..4 {
                train(&mut scene.group, frame..frame + 1);
                train(&mut other, frame..frame + 1);
                let rows: Vec<u32> = some_rows().iter().map(|row| (row + 40 * frame) % 700).collect();
                scene.draw(&rows);
                assert!(scene.encode_feedback());
                scene.settle();
                let mut listed = distinct(&rows);
                assert!(frame > 1 || listed.contains(&[99, 49][frame as usize]));
                listed.retain(|&row| row != 40 + 59);
                let first = listed.partition_point(|&row| row < 40);
                listed[first..].iter_mut().for_each(|row| *row -= 40);
                let offsets = [0, first as u32, listed.len() as u32];
                other.forward(Bags::new(&listed, &offsets), Mode::Train).unwrap();
                other.discard_pending();
                assert_eq!(scene.group.counters().unwrap(), other.counters().unwrap());
                assert!(scene.group.snapshot().unwrap() == other.snapshot().unwrap(), "{placement:?} {policy:?}");
            }
            other.forward(Bags::new(&[1], &[0, 1, 1]), Mode::Train).unwrap();
            assert!(scene.group.snapshot().unwrap() != other.snapshot().unwrap(), "the comparison can fail");
        }
    });
}

/// A frame that draws the same is all resident after at most three frames, whatever was in the cache.
#[gpu_test]
fn a_still_picture_is_all_there_after_three_frames(context: &Context) {
    for precision in [Precision::Fp32, Precision::Int4] {
        let config = config(precision, 8).with_placement(Placement::Staged);
        let mut scene = Scene::new(context, config.clone(), wanting());
        train(&mut scene.group, 0..3);
        let mut rows = some_rows();
        let first = scene.frame(&rows);
        assert!(first.iter().filter(|seen| !seen.contains).count() > 20, "most rows are missing at first");
        for _ in 0..2 {
            scene.frame(&rows);
        }
        rows.push(700);
        let last = scene.frame(&rows);
        let missing = last.iter().filter(|seen| !seen.contains).count();
        assert_eq!(missing, 1, "{precision:?}: all but the row beyond the table");
        scene.settle();
        let inside = &rows[..rows.len() - 1];
        assert!(last[..inside.len()] == wanted(&mut scene.group, inside, |_| true));
        // Another picture, without feedback: nothing comes.
        let other: Vec<u32> = (0..300).collect();
        let found = scene.draw(&other);
        assert!(scene.draw(&other) == found && found.iter().any(|seen| !seen.contains));
        // More than 32 wanted rows in a set do not all fit.
        for _ in 0..4 {
            scene.frame(&(0..300).collect::<Vec<u32>>());
        }
        assert!(scene.frame(&other).iter().any(|seen| !seen.contains));
    }
}

/// A list that is too short for a frame takes the rows that are not in the cache first, so the picture is whole in the end.
#[gpu_test]
fn a_short_list_takes_missing_rows_first(context: &Context) {
    let feedback = Some(Feedback { rows: 10, ..Feedback::default() });
    for placement in placements(context) {
        let config = config(Precision::Int8, 8).with_placement(placement);
        let mut scene = Scene::new(context, config, Reader { feedback, ..emb() });
        train(&mut scene.group, 0..3);
        let rows = distinct(&some_rows());
        let mut there = |frames: u32| {
            for _ in 0..frames {
                scene.draw(&rows);
                assert!(scene.encode_feedback());
                scene.settle();
            }
            let here = resident(&mut scene.group);
            rows.iter().filter(|row| here.contains(row)).count()
        };
        let (at_first, then) = (there(2), there(5));
        assert!(at_first < 60 && then > 60, "{placement:?}: {at_first}, {then}");
        // Until then a row of before the first frame may have left.
        assert_eq!(there(2), rows.len(), "{placement:?}");
        assert!(scene.counts(9).lost > 100, "the list had no room");
    }
}

/// Between the decision and the moving in, a row on its way reads zeros; all others read as before or not at all.
#[gpu_test]
fn a_wanted_row_is_not_shown_before_it_is_moved_in(context: &Context) {
    for precision in [Precision::Fp32, Precision::Int8] {
        let config = config(precision, 8).with_placement(Placement::Staged);
        let mut scene = Scene::new(context, config, wanting());
        train(&mut scene.group, 0..3);
        let before = resident(&mut scene.group);
        let shown = wanted(&mut scene.group, &all_rows(), |row| before.contains(&row));
        let rows = distinct(&some_rows());
        scene.draw(&rows);
        assert!(scene.encode_feedback());
        assert!(!scene.encode_feedback(), "a batch is under way");
        let seen = scene.draw(&all_rows());
        let other = seen.iter().zip(&shown).position(|(seen, shown)| seen != shown);
        assert_eq!(other, None, "a row that has come, or has left");
        let missing = rows.iter().filter(|row| !seen[**row as usize].contains).count();
        assert!(missing > 20, "{missing}");
        scene.settle();
        assert!(scene.draw(&rows).iter().all(|seen| seen.contains));
    }
}

/// The order of the calls: feedback only where no other step is under way.
#[gpu_test]
fn the_order_of_feedback_and_steps(context: &Context) {
    let order = |found: Result<bool, Error>| assert!(matches!(found, Err(Error::Order { .. })), "{found:?}");
    for placement in PLACEMENTS {
        let mut scene = Scene::new(context, config(Precision::Int8, 8).with_placement(placement), wanting());
        let record = |scene: &mut Scene| {
            let mut encoder = caller::encoder(&scene.context);
            scene.group.encode_feedback(&mut encoder, &scene.reader)
        };
        let outputs = scene.group.forward(Bags::new(&[1, 2], &[0, 2]), Mode::Train).unwrap();
        order(record(&mut scene));
        scene.group.prefetch(Bags::new(&[3], &[0, 1])).unwrap();
        order(record(&mut scene));
        assert!(!scene.group.pump().unwrap(), "a caller's own prefetch is not pumped");
        scene.group.backward(&outputs).unwrap();
        order(record(&mut scene));
        scene.group.forward_prefetched().unwrap();
        order(record(&mut scene));
        scene.group.backward(&outputs).unwrap();
        scene.draw(&[5, 6, 7]);
        assert!(scene.encode_feedback());
        if placement == Placement::Staged {
            // As after a prefetch.
            order(scene.group.flush().map(|()| true));
            order(scene.group.forward(Bags::new(&[1], &[0, 1]), Mode::Train).map(|_| true));
            order(scene.group.prefetch(Bags::new(&[1], &[0, 1])).map(|()| true));
            order(scene.group.forward_prefetched().map(|_| true));
            order(scene.group.resize_cache(64).map(|_| true));
            assert!(!record(&mut scene).unwrap());
        }
        scene.settle();
        assert!([5, 6, 7].iter().all(|row| resident(&mut scene.group).contains(row)));
        scene.group.forward(Bags::new(&[1], &[0, 1]), Mode::Train).unwrap();
        scene.group.backward(&[0.5; 8]).unwrap();
        scene.group.flush().unwrap();
    }
}

/// An encoder that is not submitted yet, and one that is dropped: no call waits for it.
#[gpu_test]
fn nobody_waits_for_an_encoder(context: &Context) {
    let mut scene = Scene::new(context, config(Precision::Int8, 8).with_placement(Placement::Staged), wanting());
    scene.draw(&[5, 6, 7]);
    let start = Instant::now();
    let mut encoder = caller::encoder(&scene.context);
    assert!(scene.group.encode_feedback(&mut encoder, &scene.reader).unwrap());
    assert!(!scene.group.pump().unwrap());
    drop(encoder);
    assert!(!scene.group.pump().unwrap());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    // The list is as it was.
    assert!(scene.encode_feedback());
    scene.settle();
    assert_eq!(resident(&mut scene.group).len(), 3);
}

/// Rows that left are on their way to the store in an encoder that is dropped: they get there with a later frame. A future that flushes is
/// dropped halfway: a later call goes on.
#[gpu_test]
fn rows_that_leave_survive_what_is_dropped(context: &Context) {
    let config = config(Precision::Fp32, 8).with_placement(Placement::Staged);
    let mut scene = Scene::new(context, config.clone(), wanting());
    let mut twin = Group::new(context, config).unwrap();
    let rows: Vec<u32> = (0..700).collect();
    for round in 0..10 {
        train(&mut scene.group, round..round + 1);
        train(&mut twin, round..round + 1);
        let some = |by: u32| -> Vec<u32> { some_rows().iter().map(|row| (row + 90 * round + by) % 700).collect() };
        scene.draw(&some(0));
        assert!(scene.encode_feedback());
        scene.settle(); // newer rows leave
        scene.draw(&some(45));
        let mut encoder = caller::encoder(&scene.context);
        assert!(scene.group.encode_feedback(&mut encoder, &scene.reader).unwrap());
        drop(encoder);
        assert!(!scene.group.pump().unwrap());
        assert!(scene.encode_feedback());
        let start = Instant::now();
        while !scene.group.pump().unwrap() {
            assert!(start.elapsed() < Duration::from_secs(60));
            context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        }
        let mut flush = Box::pin(scene.group.flush_async());
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        let _done = (0..round).any(|_| {
            let done = flush.as_mut().poll(cx).is_ready();
            context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
            done
        });
        drop(flush);
        let wanted = twin.read_rows(&rows).unwrap();
        assert!(scene.group.read_rows(&rows).unwrap() == wanted, "round {round}");
    }
    train(&mut twin, 10..11);
    assert!(scene.group.read_rows(&rows).unwrap() != twin.read_rows(&rows).unwrap(), "the comparison can fail");
}

/// A frame that draws what an earlier one drew creates no buffer, bind group, uniform or pipeline.
#[gpu_test]
fn a_steady_frame_creates_nothing(_: &Context) {
    let (device, queue) = own(wgpu::Features::all(), None);
    let context = Context::with_options(&device, &queue, &options()).unwrap();
    for placement in PLACEMENTS {
        let config = config(Precision::Int8, 8).with_placement(placement);
        let mut group = Group::new(&context, config).unwrap();
        let mut reader = group.reader(wanting()).unwrap();
        let program = Program::new(&context, &reader, "emb", 8);
        let encoder = || caller::encoder(&context);
        let held = |group: &Group| {
            device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
            let report = device.generate_allocator_report();
            (held_bindings(&context), group.memory(), report.map(|report| report.allocations.len()))
        };
        let mut here = false;
        let mut frame = |group: &mut Group, here: &mut bool| {
            let made = objects_made(&context);
            group.pump().unwrap();
            reader.bind_group().unwrap();
            reader.try_feedback().unwrap();
            let made = objects_made(&context) - made;
            *here = program.read(reader.bind_group().unwrap(), &some_rows()).iter().all(|seen| seen.contains);
            let before = objects_made(&context);
            let mut encoder = encoder();
            group.encode_feedback(&mut encoder, &reader).unwrap();
            queue.submit([encoder.finish()]);
            let made = made + objects_made(&context) - before;
            (held(group), made)
        };
        let before = held(&group);
        let mut made = 0;
        // Until all rows are there, however slow the thread is that gathers; then a few frames more.
        for frames in 0.. {
            if here {
                break;
            }
            assert!(frames < 10_000, "wanted all rows in the cache, found some missing");
            made += frame(&mut group, &mut here).1;
        }
        made += (0..6).map(|_| frame(&mut group, &mut here).1).sum::<u64>();
        assert!(made > 10, "the first frames make buffers, bind groups and pipelines: {made}");
        let steady = frame(&mut group, &mut here);
        assert_eq!(steady.1, 0, "{placement:?}");
        assert!(steady.0.0.made > before.0.made && steady.0.1 != before.1, "the comparison can fail");
        for _ in 0..6 {
            assert_eq!(frame(&mut group, &mut here), steady, "{placement:?}");
        }
    }
}

/// Rows without room in the list are counted, and so are calls with rows beyond the tables.
#[gpu_test]
fn a_short_list_and_strange_rows_are_counted(context: &Context) {
    let feedback = Some(Feedback { rows: 10, ..Feedback::default() });
    for placement in PLACEMENTS {
        let config = config(Precision::Int8, 8).with_placement(placement);
        let mut scene = Scene::new(context, config, Reader { feedback, ..emb() });
        let rows: Vec<u32> = (0..25).flat_map(|row| [row, row, row]).chain([700, NONE, 1 << 31]).collect();
        for frame in 1..=3 {
            scene.draw(&rows);
            assert!(scene.encode_feedback());
            scene.settle();
            let counts = scene.counts(frame);
            assert_eq!(
                (counts.frames, counts.wanted, counts.lost, counts.beyond),
                (frame, 10 * frame, 15 * frame, 3 * frame)
            );
        }
        let counters = scene.counters();
        assert_eq!((counters.accesses, counters.out_of_range), (30, 0));
        // A frame that wants nothing is no step.
        let t = scene.group.snapshot().unwrap().t;
        assert!(scene.encode_feedback());
        scene.settle();
        assert_eq!((t, scene.group.snapshot().unwrap().t, scene.counts(4).lost), (3, 3, 45));
    }
}

/// A filter of fewer bits than rows: rows share bits, by another hash in each frame, so that in the end each is listed.
#[gpu_test]
fn a_hashed_filter_lists_every_row_in_the_end(context: &Context) {
    let feedback = Some(Feedback { filter_bits: 127, ..Feedback::default() }); // 64 bits
    let config = config(Precision::Int8, 8).with_placement(Placement::Staged).with_cache_rows(320);
    let mut scene = Scene::new(context, config, Reader { feedback, ..emb() });
    let rows: Vec<u32> = (0..100).flat_map(|i| [i * 7, i * 7]).collect();
    let mut frames = 0;
    loop {
        let seen = scene.draw(&rows);
        if seen.iter().all(|seen| seen.contains) {
            break;
        }
        frames += 1;
        assert!(frames < 60, "{} rows are missing", seen.iter().filter(|seen| !seen.contains).count() / 2);
        scene.encode_feedback();
        scene.settle();
        let listed = scene.counts(frames).wanted / frames;
        assert!((30..=64).contains(&listed), "{listed} rows a frame");
    }
    assert!(frames > 1);
}

/// A fragment shader asks, and the rows come; all in the caller's own encoder.
#[gpu_test]
fn a_fragment_shader_asks(context: &Context) {
    if !draws(context) {
        return;
    }
    let stages = wgpu::ShaderStages::FRAGMENT;
    let mut group = Group::new(context, config(Precision::Int8, 8).with_placement(Placement::Staged)).unwrap();
    let mut reader = group.reader(Reader { stages, ..wanting() }).unwrap();
    let text = "
        @vertex fn vertex(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> {
            return vec4<f32>(vec2<f32>(f32(i & 1u), f32(i >> 1u)) * 4.0 - 1.0, 0.0, 1.0);
        }
        @fragment fn fragment(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
            let row = u32(at.x) / 2u + 8u * (u32(at.y) / 2u);
            emb_want(row);
            return emb_row4(row, 0u);
        }
    ";
    let mut encoder = caller::encoder(context);
    let (triangle, format) = ((wgpu::PrimitiveTopology::TriangleList, 3), wgpu::TextureFormat::Rgba8Unorm);
    let _: [_; 1] = caller::draw(context, &mut encoder, (&mut reader, text), triangle, (format, 16, 16));
    assert!(group.encode_feedback(&mut encoder, &reader).unwrap());
    context.queue().submit([encoder.finish()]);
    group.fetch(None).unwrap();
    assert!(group.pump().unwrap());
    let mut here = resident(&mut group);
    here.sort_unstable();
    assert_eq!(here, (0..64).collect::<Vec<u32>>());
}

#[gpu_test]
fn feedback_that_cannot_be_is_refused(context: &Context) {
    let base = config(Precision::Int8, 8);
    let group = |config: GroupConfig| Group::new(context, config).unwrap();
    let refused = |group: &Group, wanted: Reader<'_>| {
        refuses!(group.reader(wanted), Error::Reader { what: "feedback", .. });
    };
    refused(&group(base.clone().with_cache_rows(0)), wanting());
    refused(&group(base.clone().with_policy(Policy::Static)), wanting());
    let mut one = group(base.clone());
    refused(&one, Reader { flushed: true, ..wanting() });
    refused(&one, Reader { stages: wgpu::ShaderStages::VERTEX, ..wanting() });
    for (rows, filter_bits) in [(0, 1), (1, 0)] {
        refused(&one, Reader { feedback: Some(Feedback { rows, filter_bits }), ..emb() });
    }
    let shared = SharedGroup::new(context, robe::Config::new(&[100], 8, 64, 4)).unwrap();
    refuses!(shared.reader(wanting()), Error::Reader { what: "feedback", .. });

    let encoder = || caller::encoder(context);
    let refused = |group: &mut Group, reader: &RowReader| {
        refuses!(group.encode_feedback(&mut encoder(), reader), Error::Reader { what: "encode_feedback", .. });
    };
    let mut reader = one.reader(wanting()).unwrap();
    let bare = one.reader(emb()).unwrap();
    assert_eq!(reader.storage_buffers(), bare.storage_buffers() + 1);
    assert_eq!(bare.try_feedback(), Ok(None));
    refused(&mut one, &bare);
    refused(&mut group(base), &reader);
    assert!(one.encode_feedback(&mut encoder(), &reader).unwrap());
    one.resize_cache(64).unwrap();
    refused(&mut one, &reader);
    reader.bind_group().unwrap();
    assert!(one.encode_feedback(&mut encoder(), &reader).unwrap());
}

/// Two readers of a staged group, encoded in each frame in the same order: the rows of both come.
#[gpu_test]
fn two_readers_of_a_staged_group_take_turns(context: &Context) {
    let mut scene = Scene::new(context, config(Precision::Int8, 8).with_placement(Placement::Staged), wanting());
    let mut other = scene.group.reader(wanting()).unwrap();
    let mut taken = Vec::new();
    for _ in 0..4 {
        scene.draw(&[1, 2, 3]);
        scene.program.read(other.bind_group().unwrap(), &[4, 5]);
        let first = scene.encode_feedback();
        let second = submit(context, |encoder| scene.group.encode_feedback(encoder, &other).unwrap());
        taken.push((first, second));
        scene.settle();
    }
    assert_eq!(taken, [(true, false), (false, true), (true, false), (false, true)]);
    assert_eq!(distinct(&resident(&mut scene.group)), [1, 2, 3, 4, 5]);
}

/// A store that fails: the error is named, and the same call brings the rows later.
#[gpu_test]
fn a_store_that_fails_loses_no_row(context: &Context) {
    let config = config(Precision::Int8, 8).with_placement(Placement::Staged).with_cache_rows(320);
    let store = Failing::new(RamStore::new(&config).unwrap());
    let left = store.patience.clone();
    let group = Group::with_store(context, config, SharedStore::new(store)).unwrap();
    let mut scene = Scene::of(context, group, wanting());
    let mut failures = 0;
    for frame in 0..3 {
        let rows: Vec<u32> = some_rows().iter().map(|row| (row + 100 * frame) % 700).collect();
        scene.draw(&rows);
        scene.encode_feedback();
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        left.store(0, Relaxed);
        while !insist(&mut failures, || scene.group.pump()) {
            std::thread::yield_now(); // the poll of another test's thread may not have delivered the list yet
        }
        left.store(i64::MAX, Relaxed);
        assert_eq!(failures, frame + 1);
        assert!(scene.draw(&rows) == wanted(&mut scene.group, &rows, |_| true));
    }
}

/// Feedback makes no row newer, so a file that was flushed stays so. A training step does.
#[gpu_test]
fn a_viewer_leaves_a_file_flushed(context: &Context) {
    let (_folder, path) = place();
    let config = config(Precision::Int8, 8).with_placement(Placement::Staged);
    let store = SharedStore::new(FileStore::create(&path, &config).unwrap());
    let mut group = Group::with_store(context, config.clone(), store).unwrap();
    train(&mut group, 0..2);
    group.flush().unwrap();
    drop(group);
    for trains in [false, true] {
        let store = FileStore::open(&path, &config).unwrap();
        assert!(store.was_flushed(), "before training {trains}");
        let group = Group::with_store(context, config.clone(), SharedStore::new(store)).unwrap();
        let mut scene = Scene::of(context, group, wanting());
        for frame in 0..4 {
            scene.frame(&some_rows().iter().map(|row| (row + 100 * frame) % 700).collect::<Vec<_>>());
        }
        scene.settle();
        if trains {
            train(&mut scene.group, 2..3);
        }
    }
    assert!(!FileStore::open(&path, &config).unwrap().was_flushed());
}
