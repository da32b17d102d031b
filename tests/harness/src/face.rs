//! The calls of [`Lookup`] on any table: outputs in the caller's slice, counters without waiting, its whole state.

use hotrow::{
    Bags, Embedding, Error, GroupConfig, Init, Lookup, Mode, Optimizer, OutOfRange, OutputSlice, Pooling, Precision,
    Rounding, robe::RobeSnapshot, state::Snapshot,
};

/// The whole state of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Rows(Snapshot),
    Array(RobeSnapshot),
}

/// The state of a cached table, or of a shared array.
///
/// # Errors
/// Those of the table.
pub fn state(table: &mut dyn Lookup) -> Result<State, Error> {
    if let Some(rows) = table.as_embedding() {
        return Ok(State::Rows(rows.snapshot()?));
    }
    Ok(State::Array(table.as_shared_array().expect("a table of one rank").snapshot()?))
}

/// Checks the calls below on tables with 8 rows or more.
pub fn calls<T: Lookup>(new: impl Fn() -> T) {
    outputs_in_slices(&mut new(), &mut new());
    counters_arrive(&mut new());
    forwards_keep_their_gradients(&mut new(), &mut new());
}

/// A training forward before the backward of the last one is refused by name and changes nothing; `twin`, an equal table, never makes it.
fn forwards_keep_their_gradients(table: &mut dyn Lookup, twin: &mut dyn Lookup) {
    let (indices, offsets) = (&[1, 5, 5, 7][..], &[0, 1, 1, 4][..]);
    let outputs = table.forward(Bags::new(indices, offsets), Mode::Train).unwrap();
    let before = state(table).unwrap();
    let refused = |table: &mut dyn Lookup| match table.forward(Bags::new(&[2], &[0, 1]), Mode::Train) {
        Err(error @ Error::Order { call: "forward", .. }) => {
            let text = error.to_string();
            let remedies = ["backward", "frozen forward", "discard_pending", "forward_only"];
            assert!(remedies.iter().all(|remedy| text.contains(remedy)), "{text}");
        }
        other => panic!("{other:?}"),
    };
    refused(table);
    table.forward(Bags::new(&[2], &[0, 1]), Mode::Frozen).unwrap();
    table.read_rows(&[3]).unwrap();
    table.counters().unwrap();
    refused(table);
    assert!(state(table).unwrap() == before && table.pending());
    table.backward(&outputs).unwrap();
    twin.forward(Bags::new(indices, offsets), Mode::Train).unwrap();
    twin.backward(&outputs).unwrap();
    assert_eq!(state(table).unwrap(), state(twin).unwrap());
    // A gradient that is not wanted.
    for _ in 0..2 {
        table.forward(Bags::new(indices, offsets), Mode::Train).unwrap();
        let before = state(table).unwrap();
        table.discard_pending();
        assert!(!table.pending() && state(table).unwrap() == before);
        refuses!(table.backward(&outputs), Error::Order { call: "backward", .. });
        table.discard_pending();
    }
    // A prefetched batch waits for the backward of the forward before it.
    if let Some(rows) = table.as_embedding() {
        rows.forward(Bags::new(indices, offsets), Mode::Train).unwrap();
        rows.prefetch(Bags::new(indices, offsets)).unwrap();
        refuses!(rows.forward_prefetched(), Error::Order { call: "forward", .. });
        rows.backward(&outputs).unwrap();
        rows.forward_prefetched().unwrap();
        rows.backward(&outputs).unwrap();
    }
}

/// A group that only looks up: any number of forwards, each a step, and no backward.
pub fn forward_only<T: Embedding>(new: impl Fn(GroupConfig) -> T) {
    let config = GroupConfig::new(&[40], 6).with_cache_rows(32).with_init(Init::Uniform { low: -1.0, high: 1.0 });
    let (mut only, mut discards) = (new(config.clone().with_forward_only(true)), new(config));
    for step in 0..6 {
        let batch = (&[1, 5 + step, 5, 7][..], &[0, 1, 1, 4][..]);
        let outputs = if step == 3 {
            only.prefetch(Bags::new(batch.0, batch.1)).unwrap();
            only.forward_prefetched().unwrap()
        } else {
            only.forward(Bags::new(batch.0, batch.1), Mode::Train).unwrap()
        };
        assert_eq!(outputs, discards.forward(Bags::new(batch.0, batch.1), Mode::Train).unwrap());
        discards.discard_pending();
        assert!(!only.pending());
        let refused = only.backward(&outputs).expect_err("it never trains").to_string();
        assert!(
            refused.contains("forward_only") && only.weight_gradient(Bags::new(batch.0, batch.1), &outputs).is_err(),
            "{refused}"
        );
    }
    assert_eq!(only.snapshot().unwrap(), discards.snapshot().unwrap());
    only.pin(&[3], 1).unwrap();
    only.reset().unwrap();
}

/// Padding, in its table or outside, is what [`OutOfRange::Skip`] makes of an index that no table has, but for its counter, in every mode.
pub fn padding<T: Embedding>(new: impl Fn(GroupConfig) -> T) {
    let base = GroupConfig::new(&[40, 30], 6)
        .with_init(Init::Uniform { low: -1.0, high: 1.0 })
        .with_optimizer(Optimizer::adam(0.1))
        .with_features(vec![0, 1, 1]);
    let (offsets, weights) = (&[0, 3, 3, 5, 7, 8, 9][..], &[2.0, -1.0, 3.0, 0.5, 1.5, 2.5, 1.0, 1.0, -2.0][..]);
    for (k, padding) in [[Some(5), Some(5)], [Some(40), None], [Some(u32::MAX), Some(0)]].into_iter().enumerate() {
        let ids = if k == 0 { vec![Some(5)] } else { padding.to_vec() };
        for (pooling, cache_rows) in Pooling::ALL.into_iter().zip([0, 32, 64]) {
            for mode in OutOfRange::ALL {
                let config = base.clone().with_pooling(pooling).with_cache_rows(cache_rows);
                let mut padded = new(config.clone().with_padding(ids.clone()).with_out_of_range(mode));
                let mut skips = new(config.with_out_of_range(OutOfRange::Skip));
                let (own, other) = (padding[0].unwrap(), padding[1]);
                let second = other.unwrap_or(9);
                let batches = [[own, 7, own, 8, second, 3, second, 3, 4], [7, 8, 9, 1, 2, second, 3, 4, 2]];
                for batch in batches {
                    let pads = |i: usize| if i < 3 { Some(batch[i]) == padding[0] } else { Some(batch[i]) == other };
                    let plain: Vec<u32> = (0..9).map(|i| if pads(i) { 1000 + i as u32 } else { batch[i] }).collect();
                    let looked_up = |group: &mut T, indices: &[u32]| {
                        let frozen = group
                            .forward(Bags::new(indices, offsets).with_weights(Some(weights)), Mode::Frozen)
                            .unwrap();
                        let outputs = group
                            .forward(Bags::new(indices, offsets).with_weights(Some(weights)), Mode::Train)
                            .unwrap();
                        assert_eq!(frozen, outputs);
                        let gradient = group.weight_gradient(Bags::new(indices, offsets), &outputs).unwrap();
                        group.backward(&outputs).unwrap();
                        (outputs, gradient)
                    };
                    assert_eq!(
                        looked_up(&mut padded, &batch),
                        looked_up(&mut skips, &plain),
                        "{ids:?}, {pooling}, {mode}"
                    );
                }
                // Nothing but padding is no step.
                let only = [own; 3].into_iter().chain([second; 6]).collect::<Vec<_>>();
                if other.is_some() {
                    let outputs = padded.forward(Bags::new(&only, offsets), Mode::Train).unwrap();
                    padded.backward(&outputs).unwrap();
                    assert!(outputs.iter().all(|&x| x == 0.0));
                }
                let (mut found, mut wanted) = (padded.snapshot().unwrap(), skips.snapshot().unwrap());
                let skipped: Vec<u64> = wanted.counters.iter().map(|table| table.out_of_range).collect();
                let counted: Vec<u64> = found.counters.iter().map(|table| table.padding).collect();
                let more = if other.is_some() { [3, 6] } else { [0, 0] };
                assert_eq!(counted, [skipped[0] + more[0], skipped[1] + more[1]]);
                assert!(found.counters.iter().all(|table| table.out_of_range == 0) && skipped[0] > 0);
                found.counters.iter_mut().for_each(|table| table.padding = 0);
                wanted.counters.iter_mut().for_each(|table| table.out_of_range = 0);
                assert_eq!(found, wanted, "{ids:?}, {pooling}, {mode}");
                // A real error is one, beside padding; Clamp may bring it to padding.
                match padded.forward(Bags::new(&[own, 41, own, 1, 1, 1, 2, 3, 4], offsets), Mode::Train) {
                    Err(Error::IndexOutOfRange { position: 1, value: 41, .. }) => assert_eq!(mode, OutOfRange::Error),
                    other => assert!(other.is_ok() && mode != OutOfRange::Error, "{other:?}"),
                }
                assert_eq!(padded.counters().unwrap()[0].out_of_range, 1);
                padded.discard_pending();
                if own < 40 && cache_rows > 0 {
                    let refused = padded.pin(&[1, own], 2).expect_err("padding is never in the cache").to_string();
                    assert!(refused.contains("padding") && padded.pinned().unwrap().is_empty(), "{refused}");
                    padded.write_rows(&[own], &[0.5; 6]).unwrap();
                    assert!(padded.read_rows(&[own]).unwrap().iter().all(|x| (x - 0.5).abs() < 0.01));
                }
            }
        }
    }
}

/// Rows that a step does not change keep their records' bytes, and count as written; others are packed anew.
pub fn frozen<T: Embedding>(new: impl Fn(GroupConfig) -> T) {
    let (steps, rows) = (12, 60_u32);
    let indices: Vec<u32> = (0..rows).collect();
    let offsets: Vec<u32> = (0..=rows).collect();
    let rules = [
        (Optimizer::sgd(0.0), 1.0, true),
        (Optimizer::sgd(0.1), 0.0, true),
        (Optimizer::adagrad(0.1), 0.0, true),
        (Optimizer::row_wise_adagrad(0.1), 0.0, true),
        (Optimizer::momentum(0.1), 0.0, true),
        (Optimizer::adam(0.1), 0.0, true),
        (Optimizer::row_wise_adam(0.1), 0.0, true),
        (Optimizer::sgd(0.1), 1.0, false),
        (Optimizer::sgd(0.1).with_weight_decay(0.01), 0.0, false),
        (Optimizer::adagrad(0.0), 1.0, false),
        (Optimizer::row_wise_adam(0.0).with_own_count(true), 0.0, false),
    ];
    for (k, precision) in Precision::ALL.into_iter().enumerate() {
        for (j, (optimizer, gradient, stays)) in rules.into_iter().enumerate() {
            let config = GroupConfig::new(&[rows], [6, 8, 33, 64][(j + k) % 4])
                .with_precision(precision)
                .with_rounding(Rounding::ALL[(j + k) % 2])
                .with_init(Init::Uniform { low: -1.0, high: 2.0 })
                .with_optimizer(optimizer);
            let mut group = new(config);
            let before = group.snapshot().unwrap();
            for _ in 0..steps {
                let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
                group.backward(&vec![gradient; outputs.len()]).unwrap();
            }
            let after = group.snapshot().unwrap();
            assert_eq!(after.records == before.records, stays, "{precision}, {optimizer:?}");
            assert_eq!(after.counters[0].bypass_writes, u64::from(steps * rows));
        }
    }
}

/// Outputs in a slice equal outputs in a vector, and a slice of a wrong length is refused. `table` and `twin` are equal.
fn outputs_in_slices(table: &mut dyn Lookup, twin: &mut dyn Lookup) {
    let (indices, offsets) = (&[1, 5, 5, 7][..], &[0, 1, 1, 4][..]);
    let mut outputs = vec![f32::NAN; table.output_len(indices.len(), offsets.len() - 1)];
    for frozen in [true, false] {
        for wrong in [outputs.len() - 1, outputs.len() + 1] {
            let before = table.counters().unwrap();
            let mut other = vec![0.5; wrong];
            let refused = match frozen {
                true => table.forward_into(Bags::new(indices, offsets), Mode::Frozen, OutputSlice::F32(&mut other)),
                false => table.forward_into(Bags::new(indices, offsets), Mode::Train, OutputSlice::F32(&mut other)),
            };
            let [wanted, found] = [outputs.len(), wrong].map(|len| len as u64);
            assert_eq!(refused, Err(Error::Length { what: "outputs", wanted, found }));
            assert!(other.iter().all(|&x| x == 0.5) && table.counters().unwrap() == before && !table.pending());
        }
        let wanted = match frozen {
            true => twin.forward(Bags::new(indices, offsets), Mode::Frozen),
            false => twin.forward(Bags::new(indices, offsets), Mode::Train),
        };
        match frozen {
            true => {
                table.forward_into(Bags::new(indices, offsets), Mode::Frozen, OutputSlice::F32(&mut outputs)).unwrap();
            }
            false => {
                table.forward_into(Bags::new(indices, offsets), Mode::Train, OutputSlice::F32(&mut outputs)).unwrap();
            }
        }
        assert_eq!(outputs, wanted.unwrap());
    }
    assert!(table.pending());
    table.backward(&outputs).unwrap();
    // A skipped step leaves the slice as it is.
    let before = outputs.clone();
    let refused =
        table.forward_into(Bags::new(&[1, 5, 5, u32::MAX], offsets), Mode::Train, OutputSlice::F32(&mut outputs));
    refuses!(refused, Error::IndexOutOfRange { position: 3, .. });
    assert_eq!(outputs, before);
}

/// Counters arrive without a call that waits, and equal the counters of a call that waits.
fn counters_arrive(table: &mut dyn Lookup) {
    let wanted: Vec<u64> = (1..=3)
        .map(|_| {
            table.forward(Bags::new(&[1, 2, 2], &[0, 3]), Mode::Train).unwrap();
            table.discard_pending();
            table.counters().unwrap()[0].accesses
        })
        .collect();
    let newest = table.counters().unwrap();
    // The device answers when it is polled; each call polls once.
    for _ in 0..10_000 {
        match table.try_counters().unwrap() {
            Some(seen) if seen == newest => return,
            Some(seen) => assert!(wanted.contains(&seen[0].accesses), "{seen:?}"),
            None => {}
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("no counters within 10 seconds");
}
