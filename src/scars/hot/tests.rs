//! Any stream, any pins, any batch size: each sample once, of its kind, in order.

use crate::scars::hot::*;
use proptest::prelude::*;

type Sample = (usize, Vec<u32>);

/// Checks the batches of an epoch. With `window` 0 it is not shuffled.
fn check(
    samples: &[Sample],
    batches: &[HotBatch<Sample>],
    pinned: &[u32],
    batch: usize,
    window: usize,
) -> Result<(), String> {
    let is_hot = |sample: &Sample| sample.1.iter().all(|row| pinned.contains(row));
    for kind in [Kind::Hot, Kind::Normal] {
        let of_kind: Vec<_> = batches.iter().filter(|batch| batch.kind == kind).collect();
        let short = of_kind.iter().position(|found| found.samples.len() != batch);
        if short.is_some_and(|at| at + 1 != of_kind.len() || of_kind[at].samples.is_empty()) {
            return Err("a batch that is not full is not the last".to_owned());
        }
        let mut found: Vec<&Sample> = of_kind.iter().flat_map(|batch| &batch.samples).collect();
        if window > 0 {
            found.sort();
        }
        let wanted: Vec<&Sample> = samples.iter().filter(|sample| is_hot(sample) == (kind == Kind::Hot)).collect();
        if found != wanted {
            return Err(format!("{kind:?}: wanted {wanted:?}, found {found:?}"));
        }
    }
    Ok(())
}

fn epoch(
    samples: &[Sample],
    pinned: &[u32],
    batch: usize,
    window: usize,
    seed: u32,
) -> (Vec<HotBatch<Sample>>, Samples, usize) {
    let hot = HotRows::new(pinned);
    let mut batches = HotBatches::new(samples.to_vec(), batch, |sample: &Sample| hot.has_all(sample.1.iter().copied()))
        .shuffled(window, seed);
    let found = batches.by_ref().collect();
    assert!(batches.next().is_none(), "nothing comes after the end");
    (found, batches.samples(), batches.peak())
}

fn streams() -> impl Strategy<Value = Vec<Sample>> {
    proptest::collection::vec(proptest::collection::vec(0..200_u32, 0..4), 0..200)
        .prop_map(|samples| samples.into_iter().enumerate().collect())
}

proptest! {
    #[test]
    fn an_epoch_yields_each_sample_once(
        samples in streams(),
        pinned in proptest::collection::vec(0..200_u32, 0..150),
        batch in 1..20_usize,
        window in 0..50_usize,
        seed: u32,
    ) {
        let (batches, seen, peak) = epoch(&samples, &pinned, batch, window, seed);
        check(&samples, &batches, &pinned, batch, window).map_err(TestCaseError::fail)?;
        prop_assert_eq!(seen.hot + seen.normal, samples.len() as u64);
        let hot: usize = batches.iter().filter(|batch| batch.kind == Kind::Hot).map(|batch| batch.samples.len()).sum();
        prop_assert_eq!(seen.hot, hot as u64);
        prop_assert!(peak < 2 * batch + window, "{peak}");
        prop_assert_eq!(batches, epoch(&samples, &pinned, batch, window, seed).0, "the same seed, the same batches");
    }

    #[test]
    fn a_set_is_what_was_put_in(rows in proptest::collection::vec(0..2000_u32, 0..100)) {
        let set = HotRows::new(&rows);
        let wanted: std::collections::BTreeSet<u32> = rows.iter().copied().collect();
        prop_assert!((0..3000).all(|row| set.has(row) == wanted.contains(&row)));
        prop_assert_eq!((set.len(), set.is_empty()), (wanted.len(), wanted.is_empty()));
        prop_assert!(set.has_all(rows.iter().copied()) && set.has_all([]) && !set.has_all([u32::MAX]));
    }
}

#[test]
fn memory_is_bounded_however_long_the_stream() {
    let mut batches = HotBatches::new(0..200_000_u32, 64, |&sample| sample % 7 != 0).shuffled(1000, 5);
    assert_eq!(batches.by_ref().map(|batch| batch.samples.len()).sum::<usize>(), 200_000);
    assert!((1064..1000 + 2 * 64).contains(&batches.peak()), "{}", batches.peak());
    assert_eq!(batches.samples(), Samples { hot: 171_428, normal: 28_572 });
    assert!((batches.samples().hot_share() - 6.0 / 7.0).abs() < 1e-5);
}

#[test]
fn seeds_differ() {
    let samples: Vec<Sample> = (0..100).map(|i| (i, vec![])).collect();
    assert_ne!(epoch(&samples, &[], 10, 50, 1).0, epoch(&samples, &[], 10, 50, 2).0);
    assert_ne!(epoch(&samples, &[], 10, 50, 1).0, epoch(&samples, &[], 10, 0, 1).0);
}

#[test]
fn the_check_finds_what_is_wrong() {
    let samples: Vec<Sample> = (0..20).map(|i| (i, vec![i as u32 % 3])).collect();
    let (pinned, batch) = ([0, 1], 4);
    let good = epoch(&samples, &pinned, batch, 0, 0).0;
    assert_eq!(check(&samples, &good, &pinned, batch, 0), Ok(()));
    type Wrong = fn(&mut Vec<HotBatch<Sample>>);
    let wrongs: [(&str, Wrong); 6] = [
        ("lost", |batches| batches.truncate(batches.len() - 1)),
        ("twice", |batches| batches.push(batches[0].clone())),
        ("other kind", |batches| batches[0].kind = Kind::Normal),
        ("order", |batches| batches[0].samples.swap(0, 1)),
        ("short", |batches| {
            let last = batches[0].samples.split_off(2);
            batches.insert(1, HotBatch { kind: batches[0].kind, samples: last });
        }),
        ("a rest not kept", |batches| {
            let rest = batches.iter().position(|batch| batch.samples.len() < 4).expect("14 are hot");
            batches.remove(rest);
        }),
    ];
    for (name, wrong) in wrongs {
        let mut batches = good.clone();
        wrong(&mut batches);
        assert!(check(&samples, &batches, &pinned, batch, 0).is_err(), "{name}");
    }
}

#[test]
fn errors_of_a_stream_come_through() {
    let stream = [Ok(1), Err("a bad line"), Ok(2), Ok(7)];
    let batches = HotBatches::new(stream, 2, |sample| sample.is_ok_and(|row: u32| row < 5));
    let all: Vec<_> = batches.flat_map(|batch| batch.samples).collect();
    assert_eq!(all, [Ok(1), Ok(2), Err("a bad line"), Ok(7)]);
}
