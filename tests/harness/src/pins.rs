//! Properties of pins on any backend and placement. `naive.rs` checks each call.

use hotrow::internals::Pieces as _;
use hotrow::{
    Bags, Counters, Embedding, Error, GroupConfig, Init, Mode, Optimizer, Policy, Pooling, Precision, state::Part,
};

type Make<'m> = &'m dyn Fn(GroupConfig) -> Box<dyn Embedding>;

/// A configuration of three tables and a cache of four sets.
pub fn config(policy: Policy) -> GroupConfig {
    let config = GroupConfig::new(&[300, 1, 500], 8).with_policy(policy).with_cache_rows(128);
    let config = config.with_precision(Precision::Int4).with_optimizer(Optimizer::adagrad(0.05));
    config.with_init(Init::Uniform { low: -1.0, high: 1.0 })
}

/// A batch of these linear rows, with one bag for each table.
fn batch(rows: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let tables = [0..300u32, 300..301, 301..801];
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for table in tables {
        indices.extend(rows.iter().filter(|row| table.contains(*row)).map(|row| row - table.start));
        offsets.push(indices.len() as u32);
    }
    (indices, offsets)
}

/// Runs a step of these rows and returns its outputs.
pub fn step(group: &mut dyn Embedding, rows: &[u32]) -> Vec<f32> {
    let (indices, offsets) = batch(rows);
    let outputs = group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
    let grads: Vec<f32> = outputs.iter().map(|x| x * 0.1 + 0.01).collect();
    group.backward(&grads).unwrap();
    outputs
}

/// Rows from all tables, different for each seed.
pub fn some(seed: u32) -> Vec<u32> {
    (0..90).map(|i: u32| (i * i * 31 + i * 7 + seed * 977) % 801).collect()
}

fn total(group: &mut dyn Embedding) -> Counters {
    group.counters().unwrap().into_iter().sum()
}

/// Rows 0, 7, 14 ... are the hot rows.
fn hottest() -> Vec<u32> {
    (0..100).map(|i| i * 7).chain([300]).collect()
}

/// A batch of pinned rows moves no byte, whatever runs before and between; one more row does.
pub fn hot_batches_move_nothing(group: &mut dyn Embedding) {
    let what = format!("{:?}, {:?}", group.config().policy, group.config().placement);
    (0..3).for_each(|seed| drop(step(group, &some(seed))));
    let left_out = group.pin(&hottest(), 24).unwrap();
    let pinned = group.pinned().unwrap();
    assert_eq!(pinned.len() + left_out.len(), hottest().len(), "{what}");
    assert!(pinned.len() > 80 && left_out.len() > 2, "{what}: {left_out:?}");
    for seed in 3..6 {
        let before = total(group);
        (0..2).for_each(|_| drop(step(group, &pinned)));
        let after = total(group);
        let done = after - before;
        assert_eq!((done.bytes_read, done.bytes_written, done.unique_misses), (0, 0, 0), "{what}: {done:?}");
        assert_eq!([done.hits, done.accesses], [2 * pinned.len() as u64; 2], "{what}");
        // The companion: bytes of other batches are counted.
        step(group, &some(seed));
        step(group, &[&pinned[..], &left_out[..]].concat());
        let done = total(group) - after;
        assert!(done.bytes_read > 0 && done.accesses == 91 + 100, "{what}: {done:?}");
        assert_eq!(group.pinned().unwrap(), pinned, "{what}: none has left");
    }
}

/// The outputs of all steps, then all rows. With `pins`, each step is followed by a pin of other rows, sometimes of none.
fn outputs(group: &mut dyn Embedding, pins: bool) -> Vec<u32> {
    let mut all = Vec::new();
    for seed in 0..8 {
        all.extend(step(group, &some(seed % 5)));
        if pins {
            let rows: Vec<u32> = some((seed + 1) % 5).into_iter().take(20 * (seed as usize % 4)).collect();
            group.pin(&rows, [3, 32][seed as usize % 2]).unwrap();
        }
    }
    all.extend(group.read_rows(&(0..801).collect::<Vec<_>>()).unwrap());
    all.into_iter().map(f32::to_bits).collect()
}

/// Pins and a cache change no bit of an FP32 table: a group with pins equals a group without a cache.
pub fn fp32_shows_nothing(make: Make<'_>) {
    let optimizers = [Optimizer::adagrad(0.05), Optimizer::sgd(0.05), Optimizer::row_wise_adagrad(0.05)];
    let poolings = [Pooling::Sum, Pooling::Mean, Pooling::None];
    for (policy, (optimizer, pooling)) in Policy::ALL.into_iter().zip(optimizers.into_iter().zip(poolings)) {
        let config = config(policy).with_precision(Precision::Fp32).with_pooling(pooling);
        let config = config.with_optimizer(optimizer.with_weight_decay(0.01)).with_piece_bytes(Some(20_000));
        let wanted = outputs(&mut *make(config.clone().with_cache_rows(0)), false);
        for (pins, cache_rows) in [(true, 128), (false, 128), (false, 801)] {
            let mut group = make(config.clone().with_cache_rows(cache_rows));
            assert_eq!(outputs(&mut *group, pins), wanted, "{policy:?}, pins {pins}, {cache_rows} rows");
            let seen = total(&mut *group);
            assert!(!pins || seen.hits > 10 && seen.evictions > 10, "{policy:?}: {seen:?}");
        }
    }
    // The companion: the same run in INT4 shows the pins.
    let int4 = |policy| config(policy).with_precision(Precision::Int4);
    let plain = outputs(&mut *make(int4(Policy::Lru)), false);
    assert_ne!(outputs(&mut *make(int4(Policy::Lru)), true), plain);
}

/// Every wrong call has a named error and changes nothing.
pub fn misuse_is_refused(make: Make<'_>) {
    for policy in Policy::ALL {
        let mut group = make(config(policy));
        step(&mut *group, &some(1));
        group.pin(&[5, 6, 7], 2).unwrap();
        step(&mut *group, &some(2));
        let before = group.snapshot().unwrap();
        for ways in [0, 33] {
            let error = group.pin(&[1], ways).unwrap_err();
            assert!(matches!(&error, Error::Pins { what: "ways", .. }), "{error}");
            assert!(
                error.to_string().contains("wanted 1 to 32") && error.to_string().contains(&format!("found {ways}"))
            );
        }
        let error = group.pin(&[1, 801, 900], 3).unwrap_err();
        assert_eq!(error, Error::RowOutOfRange { call: "pin", rows: 801, position: 1, row: 801 });
        // The message speaks of linear rows and of all tables, not of a table's index, a step or a batch.
        assert_eq!(
            error.to_string(),
            "pin: wanted linear rows below 801, all tables together, found 801 at position 1; \
             nothing was done: give rows of a table as its first linear row plus the index"
        );
        let error = group.write_rows(&[801], &[0.0; 8]).unwrap_err();
        assert_eq!(error, Error::RowOutOfRange { call: "write_rows", rows: 801, position: 0, row: 801 });
        assert_eq!(group.snapshot().unwrap(), before);

        let (indices, offsets) = batch(&[1, 2, 3]);
        group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
        let waiting = group.snapshot().unwrap();
        refuses!(group.pin(&[1], 1), Error::Order { call: "pin", .. });
        assert!(group.pending(), "its backward may still come");
        assert_eq!(group.snapshot().unwrap(), waiting);
        let grads = vec![0.5; 24];
        group.backward(&grads).unwrap();
        // A repeated row adds nothing, and a call without rows removes all pins.
        assert_eq!(group.pin(&[9, 9, 8, 9], 32).unwrap(), [0u32; 0]);
        let once = group.snapshot().unwrap();
        assert_eq!(group.pin(&[8, 9], 32).unwrap(), [0u32; 0]);
        assert_eq!(group.snapshot().unwrap(), once);
        assert_eq!(group.pin(&[], 1).unwrap(), [0u32; 0]);
        assert_eq!(group.pinned().unwrap(), [0u32; 0]);
        // A reset removes all pins.
        group.pin(&[8, 9], 32).unwrap();
        group.reset().unwrap();
        assert_eq!(group.pinned().unwrap(), [0u32; 0]);
    }
    let mut bare = make(config(Policy::Static).with_cache_rows(0));
    refuses!(bare.pin(&[1], 1), Error::Pins { what: "cache", .. });
    assert_eq!(bare.pin(&[], 1).unwrap(), [0u32; 0]);
    assert_eq!(bare.pinned().unwrap(), [0u32; 0]);
}

/// A group with a resized cache equals a new group of that size with the same table, and continues with the same bits.
pub fn a_resized_cache_is_as_a_new_one(make: Make<'_>) {
    for policy in Policy::ALL {
        for cache_rows in [0, 40, 180, 900] {
            let what = format!("{policy:?}, {cache_rows} rows");
            let mut group = make(config(policy));
            (0..3).for_each(|seed| drop(step(&mut *group, &some(seed))));
            group.pin(&hottest(), 20).unwrap();
            step(&mut *group, &some(4));

            let (indices, offsets) = batch(&[1]);
            group.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
            refuses!(group.resize_cache(40), Error::Order { call: "resize_cache", .. }, "{what}");
            group.backward(&[0.5; 24]).unwrap();
            group.flush().unwrap();
            let before = group.snapshot().unwrap();
            assert!(
                matches!(group.resize_cache((1 << 31) + 1), Err(Error::Config { field: "cache_rows", .. })),
                "{what}"
            );
            assert_eq!(group.snapshot().unwrap(), before, "{what}");

            let mut counters = vec![0; Part::Counters.words(group.config(), group.layout()) as usize];
            group.read_part(Part::Counters, 0, &mut counters).unwrap();
            let pinned = group.pinned().unwrap();
            let left_out = group.resize_cache(cache_rows).unwrap();
            let mut new = make(group.config().clone().with_cache_rows(cache_rows));
            new.write_part(Part::Clock, 0, &[before.t]).unwrap();
            new.write_part(Part::Records, 0, &before.records).unwrap();
            new.write_part(Part::Frequencies, 0, &before.freqs).unwrap();
            let mut since = vec![0; Part::Since.words(group.config(), group.layout()) as usize];
            group.read_part(Part::Since, 0, &mut since).unwrap();
            new.write_part(Part::Since, 0, &since).unwrap();
            new.write_part(Part::Counters, 0, &counters).unwrap();
            let wanted = if cache_rows == 0 { pinned.clone() } else { new.pin(&pinned, 32).unwrap() };
            assert_eq!(left_out, wanted, "{what}");
            assert_eq!(left_out.is_empty(), cache_rows >= 180, "{what}");
            assert_eq!(group.snapshot().unwrap(), new.snapshot().unwrap(), "{what}");
            assert_ne!(group.snapshot().unwrap(), before, "{what}: the comparison can fail");
            for seed in 5..8 {
                assert_eq!(step(&mut *group, &some(seed)), step(&mut *new, &some(seed)), "{what}");
            }
            assert_eq!(group.snapshot().unwrap(), new.snapshot().unwrap(), "{what}");
        }
    }
}
