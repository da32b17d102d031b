//! docs/calls.md: what each call submits, waits for and makes, counted. `order.rs` has the page's other tables.

use std::collections::BTreeMap;

use hotrow::{
    Bags, Batch, Context, Feedback, FloatBuffer, Group, GroupConfig, LossScale, Mode, Placement, Reader, Scaler,
    Sorter, checkpoint, internals, prelude::*, wgpu,
};

use crate::caller::{encoder, storage};

/// Submissions, waits, and objects of a call.
type Counts = [u64; 3];

fn counts(context: &Context) -> Counts {
    let [submissions, waits] = internals::moments(context);
    [submissions, waits, internals::objects_made(context)]
}

/// Makes all calls in an order that is allowed, three times, and returns what the last ones cost.
fn measured(context: &Context, placement: Placement) -> BTreeMap<&'static str, Counts> {
    let config = GroupConfig::new(&[1000], 8).with_cache_rows(64).with_placement(placement);
    let mut group = Group::new(context, config).unwrap();
    let feedback = Some(Feedback { rows: 16, ..Feedback::default() });
    let mut reader = group.reader(Reader { prefix: "emb", group: 1, feedback, ..Reader::default() }).unwrap();
    let mut scaler = Scaler::new(context, LossScale::default()).unwrap();
    let sorter = Sorter::new(context, 100).unwrap();
    let (indices, offsets) = ([1, 2, 3, 999], [0, 2, 4]);
    let [rows, ends, outputs, grads, weights, keys] =
        [&indices[..], &offsets, &[0; 16], &[0; 16], &[0; 4], &[7; 100]].map(|words| storage(context, words));
    let batch = Batch { indices: Some(rows.slice(..)), offsets: ends.slice(..), weights: None };
    let folder = tempfile::tempdir().unwrap();
    let mut found = BTreeMap::new();
    for round in 0..3 {
        let mut note = |call: &'static str, before: Counts| {
            let after = counts(context);
            found.insert(call, [0, 1, 2].map(|of| after[of] - before[of]));
        };
        macro_rules! cost {
            ($name:literal, $call:expr) => {{
                let before = counts(context);
                let made = $call.unwrap();
                note($name, before);
                made
            }};
        }
        // An encoder of the caller, which the caller submits.
        macro_rules! encodes {
            ($name:literal, |$encoder:ident| $call:expr) => {{
                let mut $encoder = encoder(context);
                cost!($name, $call);
                context.queue().submit([$encoder.finish()]);
                // A step that may still run keeps its scratch, and the next one has another.
                context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
            }};
        }
        if placement == Placement::Device {
            encodes!("encode_forward", |to| group.encode_forward(&mut to, &batch, outputs.slice(..), Mode::Train));
            encodes!("encode_weight_gradient", |to| {
                group.encode_weight_gradient(&mut to, &batch, grads.slice(..), weights.slice(..))
            });
            encodes!("encode_backward", |to| group.encode_backward(&mut to, grads.slice(..)));
            encodes!("frozen encode_forward", |to| group.encode_forward(
                &mut to,
                &batch,
                outputs.slice(..),
                Mode::Frozen
            ));
            encodes!("encode_forward", |to| group.encode_forward(&mut to, &batch, outputs.slice(..), Mode::Train));
            encodes!("Scaler::encode_inspect", |to| {
                scaler.encode_inspect(&mut to, FloatBuffer::F32(grads.slice(..)), 16)
            });
            encodes!("Scaler::encode_decide", |to| scaler.encode_decide(&mut to));
            encodes!("encode_backward_scaled", |to| {
                group.encode_backward_scaled(&mut to, FloatBuffer::F32(grads.slice(..)), &scaler)
            });
            encodes!("Sorter::encode_sort", |to| { sorter.encode_sort(&mut to, keys.slice(..400), None, None, 32) });
            encodes!("encode_flush", |to| group.encode_flush(&mut to));
            encodes!("encode_reset_discarding", |to| group.encode_reset_discarding(&mut to));
        }
        encodes!("encode_prefetch", |to| group.encode_prefetch(&mut to, &batch));
        cost!("fetch", group.fetch(None));
        encodes!("encode_forward_prefetched", |to| group.encode_forward_prefetched(&mut to, outputs.slice(..)));
        encodes!("encode_backward", |to| group.encode_backward(&mut to, grads.slice(..)));
        encodes!("encode_feedback", |to| group.encode_feedback(&mut to, &reader));
        // Once the device has answered; before that, `pump` finds nothing to do.
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        cost!("pump", group.pump());
        // The reader wants no row, so that nothing moves; a thread that gathers ends before the next step.
        for _ in 0..20 {
            context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
            group.pump().unwrap();
        }
        cost!("RowReader::bind_group", reader.bind_group().map(|_| ()));
        cost!("check", group.check());
        cost!("try_counters", group.try_counters());
        cost!("forward", group.forward(Bags::new(&indices, &offsets), Mode::Train));
        cost!("weight_gradient", group.weight_gradient(Bags::new(&indices, &offsets), &[1.0; 16]));
        cost!("backward", group.backward(&[1.0; 16]));
        cost!("frozen forward", group.forward(Bags::new(&indices, &offsets), Mode::Frozen));
        cost!("prefetch", group.prefetch(Bags::new(&indices, &offsets)));
        cost!("forward_prefetched", group.forward_prefetched());
        cost!("discard_pending", {
            group.discard_pending();
            Ok::<_, hotrow::Error>(())
        });
        cost!("read_rows", group.read_rows(&[5, 6]));
        cost!("write_rows", group.write_rows(&[5, 6], &[1.0; 16]));
        cost!("counters", group.counters());
        cost!("pin", group.pin(&[7], 4));
        cost!("pinned", group.pinned());
        // Each behind a step, whose changes it writes.
        macro_rules! step {
            () => {
                group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
                group.backward(&[1.0; 16]).unwrap();
            };
        }
        step!();
        cost!("flush", group.flush());
        step!();
        cost!("reset", group.reset());
        step!();
        cost!("reset_discarding", group.reset_discarding());
        cost!("Scaler::state", scaler.state());
        cost!("checkpoint::save", checkpoint::save(&mut group, folder.path().join("saved")));
        // Afterwards each call makes its bind groups anew.
        if round == 2 {
            cost!("resize_cache", group.resize_cache(64));
        }
        cost!("set_learning_rate", group.set_learning_rate(0.1));
    }
    found
}

/// The cells of the page: submissions, whether the call waits, whether it makes objects. How many differs from device to device.
fn cells([submissions, waits, objects]: Counts) -> Vec<String> {
    let (waits, made) = (if waits == 0 { "no" } else { "yes" }, if objects == 0 { "nothing" } else { "objects" });
    vec![submissions.to_string(), waits.to_owned(), made.to_owned()]
}

/// The rows of a table of docs/calls.md below `heading` that are not as found.
pub(crate) fn faults<C: AsRef<str>>(page: &str, heading: &str, found: &[(&str, Vec<C>)]) -> Vec<String> {
    let part = page.split(heading).nth(1).expect("the heading").split("\n## ").next().unwrap();
    let rows: Vec<&str> = part.lines().filter(|line| line.starts_with("| `")).collect();
    let row = |(call, cells): &(&str, Vec<C>)| {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        format!("| `{call}` | {} |", cells.join(" | "))
    };
    let wanted: Vec<String> = found.iter().map(row).collect();
    let missing = wanted.iter().filter(|row| !rows.contains(&&***row)).cloned();
    let extra = rows.iter().filter(|row| !wanted.iter().any(|wanted| wanted == *row)).map(|row| format!("not {row}"));
    missing.chain(extra).collect()
}

pub(crate) const PAGE: &str = include_str!("../../docs/calls.md");

#[gpu_test]
fn the_page_says_what_calls_cost(context: &Context) {
    for (placement, heading) in
        [(Placement::Device, "\n## Tables on the device"), (Placement::Staged, "\n## Staged tables")]
    {
        // A context of its own: other tests' calls are not counted.
        let own = Context::with_options(context.device(), context.queue(), &hotrow_harness::device::options()).unwrap();
        let found: Vec<_> = measured(&own, placement).into_iter().map(|(call, counts)| (call, cells(counts))).collect();
        let faults = faults(PAGE, heading, &found);
        assert!(faults.is_empty(), "{heading}: {} rows differ; found\n{}", faults.len(), faults.join("\n"));
    }
}

#[test]
fn a_wrong_row_is_found() {
    let page = "\n## One\n| call | submits | waits | makes |\n| `forward` | 1 | yes | nothing |\n| `gone` | 0 | no | nothing |\n";
    let found = [("forward", cells([1, 2, 0])), ("flush", cells([1, 1, 3]))];
    assert_eq!(
        faults(page, "\n## One", &found),
        ["| `flush` | 1 | yes | objects |", "not | `gone` | 0 | no | nothing |"]
    );
    assert_eq!(faults(page, "\n## One", &[("forward", cells([2, 2, 0]))])[0], "| `forward` | 2 | yes | nothing |");
}
