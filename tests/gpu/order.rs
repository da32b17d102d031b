//! Calls while the commands of earlier ones are recorded, submitted or dropped: the tables of docs/calls.md, cell by cell. And calls that go on with
//! a forward that has not run: nothing moves, and an error says so.

use std::{fmt::Debug, path::Path};

use hotrow::{
    Bags, Batch, Context, Error, FloatBuffer, GradSlice, Group, GroupConfig, Init, LossScale, Mode, Optimizer,
    Placement, Precision, Scaler, SharedGroup, checkpoint, prelude::*, robe, state::Part, wgpu,
};
use hotrow_harness::{gpu_test, seeds};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::{
    caller::{download, encoder, storage, submit},
    calls::{PAGE, faults},
};

/// A batch on the device, and room for its outputs, which are their own gradients.
struct Io {
    words: [wgpu::Buffer; 4],
}

const INDICES: [u32; 8] = [3, 250, 3, 17, 99, 4, 120, 7];
const OFFSETS: [u32; 5] = [0, 2, 4, 6, 8];

impl Io {
    fn new(context: &Context) -> Self {
        let words: [&[u32]; 4] = [&INDICES, &OFFSETS, &[0x3800_3c00; 4 * DIM], &[0; 8]];
        Self { words: words.map(|words| storage(context, words)) }
    }

    fn batch(&self) -> Batch<'_> {
        let [indices, offsets, ..] = &self.words;
        Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None }
    }

    fn outputs(&self) -> wgpu::BufferSlice<'_> {
        self.words[2].slice(..)
    }
}

const DIM: usize = 8;

/// What the tests do with groups of either kind.
trait Subject: Lookup {
    fn staged(&self) -> bool;
    /// All that the group keeps between steps.
    fn shown(&mut self) -> String;
    /// Encodes a forward.
    fn forward_in(&mut self, encoder: &mut wgpu::CommandEncoder, io: &Io);
    fn backward_in(&mut self, encoder: &mut wgpu::CommandEncoder, grads: FloatBuffer<'_>) -> Result<(), Error>;
    /// The error of an earlier step, once the device has done all.
    fn error(&mut self) -> Result<(), Error>;

    fn step(&mut self) {
        let outputs = self.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
        self.backward(&outputs).unwrap();
    }

    /// A step whose backward never comes.
    fn look(&mut self) {
        self.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
        self.discard_pending();
    }
}

macro_rules! subject {
    ($group:ty, |$of:ident, $encoder:ident, $io:ident| $forward:expr, $staged:expr) => {
        impl Subject for $group {
            fn staged(&self) -> bool {
                $staged(self)
            }
            fn shown(&mut self) -> String {
                format!("{:?}", self.snapshot().unwrap())
            }
            fn forward_in(&mut self, $encoder: &mut wgpu::CommandEncoder, $io: &Io) {
                let $of = self;
                $forward
            }
            fn backward_in(&mut self, encoder: &mut wgpu::CommandEncoder, grads: FloatBuffer<'_>) -> Result<(), Error> {
                self.encode_backward(encoder, grads)
            }
            fn error(&mut self) -> Result<(), Error> {
                self.context().device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
                self.check()
            }
        }
    };
}

subject!(
    SharedGroup,
    |of, encoder, io| of.encode_forward(encoder, &io.batch(), io.outputs(), Mode::Train).unwrap(),
    |_| false
);
subject!(
    Group,
    |of, encoder, io| {
        if of.staged() {
            let context = of.context().clone();
            submit(&context, |encoder| of.encode_prefetch(encoder, &io.batch()).unwrap());
            of.fetch(None).unwrap();
            return of.encode_forward_prefetched(encoder, io.outputs()).unwrap();
        }
        of.encode_forward(encoder, &io.batch(), io.outputs(), Mode::Train).unwrap();
    },
    |of: &Group| of.placed().0 == Placement::Staged
);

fn config(placement: Placement) -> GroupConfig {
    let config = GroupConfig::new(&[300], DIM as u32).with_precision(Precision::Int8).with_cache_rows(64);
    let config = config.with_init(Init::Uniform { low: -1.0, high: 1.0 }).with_optimizer(Optimizer::adagrad(0.1));
    config.with_placement(placement)
}

fn array(backward: robe::Backward) -> robe::Config {
    let config = robe::Config::new(&[300], DIM as u32, 512, 4).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    config.with_backward(backward).with_optimizer(Optimizer::adagrad(0.1))
}

/// A call of the table: it returns what it has read. It leaves no forward waiting.
type Call<G> = (&'static str, fn(&mut G, &Path) -> Result<String, Error>);

fn shown<T: Debug>(found: Result<T, Error>) -> Result<String, Error> {
    found.map(|found| format!("{found:?}"))
}

const ROWS: &[Call<Group>] = &[
    ("resize_cache", |of, _| shown(of.resize_cache(64))),
    ("reset", |of, _| shown(of.reset())),
    ("reset_discarding", |of, _| shown(of.reset_discarding())),
    ("pin", |of, _| shown(of.pin(&[3, 200, 17], 4))),
    ("write_rows", |of, _| shown(of.write_rows(&[3, 201], &[0.5; 2 * DIM]))),
    ("write_part", |of, _| shown(of.write_part(Part::Records, 0, &[0; 4]))),
    ("checkpoint::load", |of, saved| shown(checkpoint::load(of, saved))),
    ("forward", |of, _| {
        let found = of.forward(Bags::new(&[9, 3], &[0, 2]), Mode::Train);
        of.discard_pending();
        shown(found)
    }),
    ("prefetch", |of, _| {
        of.prefetch(Bags::new(&[9, 3], &[0, 2]))?;
        let found = of.forward_prefetched();
        of.discard_pending();
        shown(found)
    }),
    ("flush", |of, _| shown(of.flush())),
    ("read_part", |of, _| shown(of.read_part(Part::Clock, 0, &mut [0]))),
    ("checkpoint::save", |of, saved| shown(checkpoint::save(of, saved.with_extension("other")))),
    ("read_rows", |of, _| shown(of.read_rows(&[3, 17, 200]))),
    ("frozen forward", |of, _| shown(of.forward(Bags::new(&[9, 3], &[0, 2]), Mode::Frozen))),
    ("counters", |of, _| shown(of.counters())),
    ("pinned", |of, _| shown(of.pinned())),
    ("try_counters", |of, _| shown(of.try_counters().map(drop))),
    ("set_learning_rate", |of, _| shown(of.set_learning_rate(0.1))),
];

const ARRAY: &[Call<SharedGroup>] = &[
    ("reconfigure", |of, _| shown(of.reconfigure(of.config().clone().with_chunk(2)))),
    ("write_weights", |of, _| shown(of.write_weights(&[0.25; 512]))),
    ("checkpoint::load_lookup", |of, saved| shown(checkpoint::load_lookup(of, saved))),
    ("forward", |of, _| {
        let found = of.forward(Bags::new(&[9, 3], &[0, 2]), Mode::Train);
        of.discard_pending();
        shown(found)
    }),
    ("checkpoint::save_lookup", |of, saved| shown(checkpoint::save_lookup(of, saved.with_extension("other")))),
    ("read_rows", |of, _| shown(of.read_rows(&[3, 17, 200]))),
    ("frozen forward", |of, _| shown(of.forward(Bags::new(&[9, 3], &[0, 2]), Mode::Frozen))),
    ("counters", |of, _| shown(of.counters())),
];

/// What a call does while a step is recorded, was submitted just before, or was dropped. The other group makes call and step in the order in which the
/// device gets them, or in which a refusal puts them; both hold the same afterwards.
fn cell<G: Subject>(
    context: &Context,
    [found, plain]: &mut [G; 2],
    call: &Call<G>,
    moment: usize,
    saved: &Path,
) -> &'static str {
    let (io, (name, call), mut to) = (Io::new(context), call, encoder(context));
    found.forward_in(&mut to, &io);
    found.backward_in(&mut to, FloatBuffer::F32(io.outputs())).unwrap();
    let mut waiting = Some(to);
    match moment {
        0 => {}
        1 => drop(waiting.take().map(|to| context.queue().submit([to.finish()]))),
        _ => waiting = None,
    }
    let mut got = call(found, saved);
    let refused = matches!(got, Err(Error::Order { .. }));
    if moment == 1 || refused {
        plain.step();
    } else if moment == 2 && found.staged() {
        // The device has decided the step: the forward has come, and the backward never will.
        plain.look();
    }
    let wanted = call(plain, saved);
    waiting.map(|to| context.queue().submit([to.finish()]));
    if refused {
        got = call(found, saved);
    } else if moment == 0 {
        plain.step();
    }
    // The device has decided the step of a staged table before the call, and some counters of it.
    assert!(got == wanted || (moment != 1 && found.staged()), "{name}, moment {moment}: {got:?}, {wanted:?}");
    found.step();
    plain.step();
    assert_eq!(found.error(), Ok(()), "{name}, moment {moment}");
    assert!(found.shown() == plain.shown(), "{name}, moment {moment}: the groups differ");
    if refused { "refused" } else { "correct" }
}

#[gpu_test]
fn each_call_is_refused_or_correct_as_the_page_says(context: &Context) {
    let folder = tempfile::tempdir().unwrap();
    let mut cells: Vec<(&str, Vec<&str>)> = ROWS.iter().map(|&(name, _)| (name, Vec::new())).collect();
    let mut placements = vec![Placement::Device, Placement::Staged];
    placements.extend(context.caps().mappable.then_some(Placement::Mapped));
    for placement in placements {
        let mut groups = [0, 1].map(|_| Group::new(context, config(placement)).unwrap());
        groups.iter_mut().for_each(Subject::step);
        let saved = folder.path().join(placement.to_string());
        checkpoint::save(&mut groups[0], &saved).unwrap();
        for (call, (_, cells)) in ROWS.iter().zip(&mut cells) {
            let row = [0, 1, 2].map(|moment| cell(context, &mut groups, call, moment, &saved));
            if placement == Placement::Mapped {
                assert_eq!(row, cells[..3], "{}: a mapped table is as one on the device", call.0);
            } else {
                cells.extend(row);
            }
        }
    }
    let wrong = faults(PAGE, "\n## While commands are recorded", &cells);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut groups = [0, 1].map(|_| SharedGroup::new(context, array(robe::Backward::Auto)).unwrap());
    let saved = folder.path().join("array");
    checkpoint::save_lookup(&mut groups[0], &saved).unwrap();
    let found = ARRAY.iter().map(|call| {
        if call.0 == "checkpoint::load_lookup" {
            checkpoint::save_lookup(&mut groups[0], &saved).unwrap(); // of the chunk that it has now
        }
        (call.0, [0, 1, 2].map(|moment| cell(context, &mut groups, call, moment, &saved)).to_vec())
    });
    let wrong = faults(PAGE, "\n## Shared arrays while commands are recorded", &found.collect::<Vec<_>>());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A backward whose forward has not run before it moves nothing, and the next call says so; the group goes on.
fn moves_nothing<G: Subject>(context: &Context, make: impl Fn() -> G) {
    let io = Io::new(context);
    let [mut group, mut plain] = [make(), make()];
    group.step();
    plain.step();
    let order = |found: Result<(), Error>| refuses!(found, Error::Order { call: "backward", .. });
    for late in [false, true] {
        // The words of the outputs are sensible halves, too.
        for grads in [FloatBuffer::F32(io.outputs()), FloatBuffer::F16(io.outputs())] {
            let before = group.shown();
            let [mut first, mut second] = [(); 2].map(|()| encoder(context));
            group.forward_in(&mut first, &io);
            group.backward_in(&mut second, grads).unwrap();
            let first = late.then_some(first);
            context.queue().submit([second.finish()]);
            context.queue().submit(first.map(wgpu::CommandEncoder::finish));
            order(group.error());
            assert_eq!(group.error(), Ok(()), "it is said once");
            if late {
                plain.look();
            } else {
                assert!(group.shown() == before, "something has moved");
            }
            assert!(group.shown() == plain.shown(), "late {late}");
        }
    }
    // A dropped forward is none; a recorded one is not to be passed.
    let mut to = encoder(context);
    group.forward_in(&mut to, &io);
    order(group.backward(&[1.0; 4 * DIM]));
    drop(to);
    order(group.backward(&[1.0; 4 * DIM]));
    order(group.backward_in(&mut encoder(context), FloatBuffer::F32(io.outputs())));
    assert!(!group.pending() && group.shown() == plain.shown());
    submit(context, |to| {
        group.forward_in(to, &io);
        group.backward_in(to, FloatBuffer::F32(io.outputs())).unwrap();
    });
    assert!(group.shown() != plain.shown(), "the comparison can fail");
    plain.step();
    assert!(group.error() == Ok(()) && group.shown() == plain.shown());
}

#[gpu_test]
fn a_backward_without_its_forward_moves_nothing(context: &Context) {
    moves_nothing(context, || Group::new(context, config(Placement::Device)).unwrap());
    moves_nothing(context, || Group::new(context, config(Placement::Device).with_cache_rows(0)).unwrap());
    for backward in [robe::Backward::Sparse, robe::Backward::Dense, robe::Backward::Atomic] {
        moves_nothing(context, || SharedGroup::new(context, array(backward)).unwrap());
    }
}

/// The same for weight gradients, gradients of shared weights, scaled losses and FP16 outputs.
#[gpu_test]
fn gradients_without_their_forward_are_none(context: &Context) {
    let io = Io::new(context);
    let [grads, found, sums, given] =
        [&[1.0f32; 4 * DIM][..], &[9.0; 8], &[9.0; 512], &[1.0; 512]].map(|words| storage(context, words));
    let mut scaler = Scaler::new(context, LossScale::Static { scale: 2.0 }).unwrap();
    let mut group = Group::new(context, config(Placement::Device)).unwrap();
    let mut shared = SharedGroup::new(context, array(robe::Backward::Auto)).unwrap();
    group.step();
    Subject::step(&mut shared);
    let before = [group.shown(), shared.shown()];
    let mut lost = encoder(context);
    group.encode_forward(&mut lost, &io.batch(), FloatBuffer::F16(io.outputs()), Mode::Train).unwrap();
    shared.forward_in(&mut lost, &io);
    submit(context, |to| {
        group.encode_weight_gradient(to, &io.batch(), grads.slice(..), found.slice(..)).unwrap();
        shared.encode_gradient(to, grads.slice(..), sums.slice(..)).unwrap();
        shared.encode_step(to, given.slice(..), None).unwrap();
        scaler.encode_inspect(to, FloatBuffer::F32(grads.slice(..)), 32).unwrap();
        scaler.encode_decide(to).unwrap();
        group.encode_backward_scaled(to, FloatBuffer::F32(grads.slice(..)), &scaler).unwrap();
    });
    drop(lost);
    refuses!(group.error(), Error::Order { call: "weight_gradient", .. });
    refuses!(group.error(), Error::Order { call: "backward", .. });
    refuses!(shared.error(), Error::Order { call: "encode_gradient", .. });
    refuses!(shared.error(), Error::Order { call: "step", .. });
    assert_eq!(download(context, encoder(context), &found), [0; 8]);
    assert_eq!(download(context, encoder(context), &sums), [0x8000_0000; 512], "no chunk covers a weight");
    assert!([group.shown(), shared.shown()] == before);
    scaler.encode_inspect(&mut encoder(context), FloatBuffer::F32(grads.slice(..)), 32).unwrap();
    scaler.encode_decide(&mut encoder(context)).unwrap();
    let mut to = encoder(context);
    shared.forward_in(&mut to, &io);
    group.forward_in(&mut to, &io);
    let late = group.encode_backward_scaled(&mut to, FloatBuffer::F32(grads.slice(..)), &scaler);
    refuses!(late, Error::Order { call: "encode_backward_scaled", .. }, "its decision was dropped");
    refuses!(group.weight_gradient(Bags::new(&INDICES, &OFFSETS), &[1.0; 4 * DIM]), Error::Order { .. });
    refuses!(shared.gradient(GradSlice::F32(&[1.0; 4 * DIM])), Error::Order { .. });
    refuses!(SharedArray::step(&mut shared, &[1.0; 512]), Error::Order { .. });
    group.encode_weight_gradient(&mut to, &io.batch(), grads.slice(..), found.slice(..)).unwrap();
    shared.encode_gradient(&mut to, grads.slice(..), sums.slice(..)).unwrap();
    shared.encode_step(&mut to, given.slice(..), None).unwrap();
    context.queue().submit([to.finish()]);
    for buffer in [&found, &sums] {
        let words = download(context, encoder(context), buffer);
        assert!(words.iter().any(|&word| word << 1 != 0), "the comparison can fail");
    }
    assert_eq!([group.error(), shared.error()], [Ok(()), Ok(())]);
    assert!(shared.shown() != before[1], "the comparison can fail");
}

/// The halves of a prefetched step, and its backward: each may be dropped, or submitted behind the one that goes on with it.
#[gpu_test]
fn parts_of_a_prefetched_step_may_be_dropped(context: &Context) {
    for (placement, cache) in [Placement::Device, Placement::Staged].into_iter().flat_map(|of| [(of, 64), (of, 0)]) {
        let io = Io::new(context);
        let config = config(placement).with_cache_rows(cache);
        let [mut group, mut plain] = [0, 1].map(|_| Group::new(context, config.clone()).unwrap());
        for _ in 0..2 {
            group.step();
            plain.step();
        }
        let go_on = |group: &mut Group, to: &mut wgpu::CommandEncoder| {
            group.fetch(None).unwrap();
            group.encode_forward_prefetched(to, io.outputs()).unwrap();
        };
        if placement == Placement::Device {
            let mut lost = encoder(context);
            group.encode_prefetch(&mut lost, &io.batch()).unwrap();
            submit(context, |to| {
                go_on(&mut group, to);
                group.encode_backward(to, io.outputs()).unwrap();
            });
            drop(lost);
            refuses!(group.error(), Error::Order { call: "forward_prefetched", .. });
            refuses!(group.error(), Error::Order { call: "backward", .. });
            assert!(group.shown() == plain.shown(), "something has moved");
            group.encode_prefetch(&mut encoder(context), &io.batch()).unwrap();
            refuses!(group.encode_forward_prefetched(&mut encoder(context), io.outputs()), Error::Order { .. });
        }
        for times in 0..6 {
            let outputs = group.forward(Bags::new(&INDICES, &OFFSETS), Mode::Train).unwrap();
            submit(context, |to| group.encode_prefetch(to, &io.batch()).unwrap());
            group.backward(&outputs).unwrap();
            plain.step();
            let [mut first, mut second] = [(); 2].map(|()| encoder(context));
            go_on(&mut group, &mut first);
            group.encode_backward(&mut second, io.outputs()).unwrap();
            let (late, first) = (times % 2 == 0, (times % 2 == 0).then_some(first));
            context.queue().submit([second.finish()]);
            context.queue().submit(first.map(wgpu::CommandEncoder::finish));
            refuses!(group.error(), Error::Order { call: "backward", .. });
            // If the forward was dropped, the batch is prefetched as before, again and again. Another call ends the step.
            for _ in 0..if late { 0 } else { times } {
                let mut lost = encoder(context);
                go_on(&mut group, &mut lost);
                group.encode_backward(&mut lost, io.outputs()).unwrap();
            }
            if times == 3 {
                let outputs = group.fetch(None).and_then(|()| group.forward_prefetched()).unwrap();
                group.backward(&outputs).unwrap();
                plain.step();
            } else {
                plain.look();
            }
            group.step();
            plain.step();
            assert!(group.error() == Ok(()) && group.shown() == plain.shown(), "{placement}, {cache}, {times}");
        }
    }
}

/// Rows of a batch of the random runs, and its buffers.
struct Drawn {
    indices: Vec<u32>,
    offsets: [u32; 5],
    words: [wgpu::Buffer; 3],
}

impl Drawn {
    fn new(context: &Context, indices: Vec<u32>) -> Self {
        let n = indices.len() as u32;
        let offsets = [0, n / 4, n / 2, n / 2 + n / 4, n];
        let words = [&indices[..], &offsets, &[0; 4 * DIM]].map(|words| storage(context, words));
        Self { indices, offsets, words }
    }

    fn random(context: &Context, rng: &mut impl rand::Rng) -> Self {
        let n = rng.random_range(8..68);
        Self::new(context, (0..n).map(|_| rng.random_range(0..300)).collect())
    }

    fn prefetch(&self, group: &mut Group, encoder: &mut wgpu::CommandEncoder) {
        let [indices, offsets, _] = &self.words;
        let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
        group.encode_prefetch(encoder, &batch).unwrap();
    }

    fn forward(&self, group: &mut Group, encoder: &mut wgpu::CommandEncoder) {
        group.fetch(None).unwrap();
        group.encode_forward_prefetched(encoder, self.words[2].slice(..)).unwrap();
    }

    fn backward(&self, group: &mut Group, encoder: &mut wgpu::CommandEncoder) {
        group.encode_backward(encoder, self.words[2].slice(..)).unwrap();
    }

    /// The step of a group that knows no encoders; without a backward if `looks`.
    fn step(&self, group: &mut Group, looks: bool) {
        let outputs = group.forward(Bags::new(&self.indices, &self.offsets), Mode::Train).unwrap();
        if looks { group.discard_pending() } else { group.backward(&outputs).unwrap() }
    }
}

/// Steps of batches of many sizes, which evict rows and need larger scratch, of which parts are dropped.
#[gpu_test]
fn parts_of_random_steps_may_be_dropped(context: &Context) {
    for (placement, cache) in [(Placement::Device, 64), (Placement::Staged, 64), (Placement::Staged, 32)] {
        for seed in seeds("dropped", 3) {
            let rng = &mut Pcg64::seed_from_u64(seed);
            let config = config(placement).with_cache_rows(cache);
            let [mut group, mut plain] = [0, 1].map(|_| Group::new(context, config.clone()).unwrap());
            let mut moments = Vec::new();
            for _ in 0..20 {
                let [now, next] = [0, 1].map(|_| Drawn::random(context, rng));
                let (of, moment) = (&mut group, rng.random_range(0..6));
                moments.push(moment);
                submit(context, |to| now.prefetch(of, to));
                let mut lost = encoder(context);
                match moment {
                    0 => submit(context, |to| {
                        now.forward(of, to);
                        now.backward(of, to);
                    }),
                    1 => {
                        // The forward twice, and once dropped.
                        now.forward(of, &mut lost);
                        now.backward(of, &mut lost);
                        drop(std::mem::replace(&mut lost, encoder(context)));
                        submit(context, |to| now.forward(of, to));
                        submit(context, |to| now.backward(of, to));
                    }
                    2 => {
                        submit(context, |to| now.forward(of, to));
                        next.prefetch(of, &mut lost);
                        drop(std::mem::replace(&mut lost, encoder(context)));
                        submit(context, |to| now.backward(of, to));
                    }
                    3 => {
                        submit(context, |to| now.forward(of, to));
                        submit(context, |to| next.prefetch(of, to));
                        now.backward(of, &mut lost);
                        drop(std::mem::replace(&mut lost, encoder(context)));
                        submit(context, |to| {
                            next.forward(of, to);
                            next.backward(of, to);
                        });
                    }
                    _ => {
                        now.forward(of, &mut lost);
                        if moment == 4 {
                            now.backward(of, &mut lost);
                        }
                        next.prefetch(of, &mut lost);
                    }
                }
                drop(lost);
                now.step(&mut plain, moment > 2);
                if moment == 3 {
                    next.step(&mut plain, false);
                }
                let same = group.error() == Ok(()) && (rng.random() || group.shown() == plain.shown());
                assert!(same, "{placement}, {cache} rows, seed {seed}, moments {moments:?}");
            }
        }
    }
}

/// A step that the device has decided on rows that never came, and a backward behind the next forward.
#[gpu_test]
fn a_step_out_of_order_is_refused(context: &Context) {
    let batches = [0..64, 64..128].map(|rows| Drawn::new(context, rows.collect()));
    let [now, next] = &batches;
    for placement in [Placement::Device, Placement::Staged] {
        let [mut group, mut plain] = [0, 1].map(|_| Group::new(context, config(placement)).unwrap());
        submit(context, |to| now.prefetch(&mut group, to));
        submit(context, |to| now.forward(&mut group, to));
        submit(context, |to| next.prefetch(&mut group, to));
        let mut late = encoder(context);
        now.backward(&mut group, &mut late);
        submit(context, |to| next.forward(&mut group, to));
        context.queue().submit([late.finish()]);
        submit(context, |to| next.backward(&mut group, to));
        refuses!(group.error(), Error::Order { call: "backward", .. });
        now.step(&mut plain, true);
        next.step(&mut plain, false);
        assert!(group.error() == Ok(()) && group.shown() == plain.shown(), "{placement}");

        submit(context, |to| now.prefetch(&mut group, to));
        let mut lost = encoder(context);
        now.forward(&mut group, &mut lost);
        submit(context, |to| next.prefetch(&mut group, to));
        drop(lost);
        for _ in 0..2 {
            refuses!(group.error(), Error::Order { call: "encode_forward_prefetched", .. });
            refuses!(group.read_rows(&[1]), Error::Order { .. });
        }
    }
}
