//! Each way of counting against plain counts.

use crate::scars::{profile::*, skew::Skew};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

fn zipf(rows: u32, s: f64, n: usize, seed: u64) -> Vec<u32> {
    let ranks = Zipf::new(f64::from(rows), s).expect("a distribution");
    // Multiplied, so that the hottest rows are not the first ones.
    let row = |rank: f64| ((rank as u64 - 1).min(u64::from(rows) - 1) * 7919 % u64::from(rows)) as u32;
    ranks.sample_iter(Pcg64::seed_from_u64(seed)).take(n).map(row).collect()
}

fn plain(rows: &[u32]) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    rows.iter().for_each(|&row| *counts.entry(row).or_insert(0) += 1);
    counts
}

fn ordered(counts: &BTreeMap<u32, u64>) -> Vec<(u32, u64)> {
    let mut used: Vec<(u32, u64)> = counts.iter().map(|(&row, &count)| (row, count)).collect();
    used.sort_by_key(|&(_, count)| std::cmp::Reverse(count)); // stable: rows ascend where counts are equal
    used
}

/// Counts one of `one_in` lookups of a table of `rows` rows.
fn sampled(rows: u32, one_in: u32, seed: u32) -> Profile {
    Profile::sampled(&[rows], NonZeroU32::new(one_in).expect("not 0"), seed)
}

proptest! {
    #[test]
    fn exact_counts_are_the_plain_ones(
        first in proptest::collection::vec(0..40_u32, 0..300),
        second in proptest::collection::vec(0..25_u32, 1..300),
        n in 0..70_usize,
    ) {
        let mut profile = Profile::exact(&[40, 25]);
        profile.count(0, &first).unwrap();
        profile.count(1, &second).unwrap();
        let linear: Vec<u32> = first.iter().copied().chain(second.iter().map(|index| 40 + index)).collect();
        let wanted = ordered(&plain(&linear));
        prop_assert_eq!(profile.hottest(n), wanted.iter().take(n).map(|&(row, _)| row).collect::<Vec<_>>());
        prop_assert_eq!(profile.ranked(), wanted);
        let counts = (0..65).map(|row| (linear.iter().filter(|&&other| other == row).count() as u64, 1));
        prop_assert!(profile.skew().unwrap().bins() == Skew::from_bins(counts).unwrap().bins());
    }

    #[test]
    fn a_sample_does_not_depend_on_how_the_stream_is_cut(
        rows in proptest::collection::vec(0..30_u32, 0..400),
        cuts in proptest::collection::vec(0..400_usize, 0..10),
        one_in in 1..60_u32,
        seed: u32,
    ) {
        let mut whole = sampled(30, one_in, seed);
        whole.count_rows(&rows).unwrap();
        let mut cut = sampled(30, one_in, seed);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(rows.len())).chain([0, rows.len()]).collect();
        cuts.sort_unstable();
        cuts.windows(2).for_each(|pair| cut.count_rows(&rows[pair[0]..pair[1]]).unwrap());
        let found = whole.ranked();
        prop_assert_eq!(&found, &cut.ranked());
        // One access of each run; the last run may have none.
        let stretches = rows.len() as u64 / u64::from(one_in);
        let taken = found.iter().map(|&(_, count)| count).sum::<u64>() / u64::from(one_in);
        prop_assert!(taken == stretches || taken == stretches + 1 && !(rows.len() as u64).is_multiple_of(u64::from(one_in)));
        if one_in == 1 {
            prop_assert_eq!(found, ordered(&plain(&rows)));
        }
    }

    #[test]
    fn bounded_counts_keep_their_bounds(
        s in 0.0..2.0_f64,
        kept in 1..300_u32,
        n in 1..20_000_usize,
        seed: u64,
    ) {
        let stream = zipf(2000, s, n, seed);
        let mut profile = Profile::bounded(&[1500, 500], kept);
        profile.count_rows(&stream).unwrap();
        bounds(&profile, &plain(&stream))?;
        prop_assert!(profile.most_below() * u64::from(kept) <= n as u64, "what takes more than its share is listed");
        // What was dropped is shared out.
        let skew = profile.skew().unwrap();
        prop_assert_eq!((skew.accesses(), skew.rows()), (Some(n as u64), 2000));
    }
}

fn bounds(profile: &Profile, plain: &BTreeMap<u32, u64>) -> Result<(), TestCaseError> {
    let error = profile.most_below();
    let found: BTreeMap<u32, u64> = profile.ranked().into_iter().collect();
    for (row, &count) in plain {
        let kept = found.get(row).copied().unwrap_or(0);
        prop_assert!(kept <= count && count <= kept + error, "row {row}: {count} within {kept} + {error}");
    }
    prop_assert!(found.keys().all(|row| plain.contains_key(row)));
    Ok(())
}

#[test]
fn bounds_are_not_met_by_other_counts() {
    let stream = zipf(2000, 1.0, 20_000, 3);
    let mut profile = Profile::bounded(&[2000], 100);
    profile.count_rows(&stream).unwrap();
    let error = profile.most_below();
    assert!(error > 0, "2000 rows do not fit 100");
    let counts = plain(&stream);
    assert!(bounds(&profile, &counts).is_ok());
    let hottest = profile.hottest(1)[0];
    for wrong in [counts[&hottest] + error + 1, counts[&hottest] - error - 1] {
        let mut others = counts.clone();
        others.insert(hottest, wrong);
        assert!(bounds(&profile, &others).is_err(), "{wrong}");
    }
}

#[test]
fn what_takes_more_than_its_share_is_listed() {
    // In each 91 accesses 60 go to the same 60 rows, the others to rows that occur once. Then there are only rows that occur once.
    let mut others = 60..;
    let accesses = |_| (0..60).chain(others.by_ref().take(31)).collect::<Vec<_>>();
    let mut stream: Vec<u32> = (0..1000).flat_map(accesses).collect();
    stream.extend(others.take(200));
    // A row that is not listed was used at most as often as the error.
    let takes_more = |room: u32| {
        let mut profile = Profile::bounded(&[50_000], room);
        profile.count_rows(&stream).unwrap();
        profile.most_below() * 96 > stream.len() as u64
    };
    // A quarter of the places, with room for as many rows, must lose some.
    assert!(!takes_more(96) && takes_more(24));
}

/// A row's count as a sample of one in `one_in` estimates it.
fn estimate(stream: &[u32], row: u32, one_in: u32, seed: u32) -> u64 {
    let mut profile = sampled(1000, one_in, seed);
    profile.count_rows(stream).unwrap();
    profile.ranked().iter().find(|&&(other, _)| other == row).map_or(0, |&(_, count)| count)
}

/// Mean and root mean square of an estimate's deviation from a row's true count over 400 seeds, in units of the largest standard error that a sample
/// may have. The standard error of the mean itself is then at most 1 / 20.
fn deviation(stream: &[u32], row: u32, one_in: u32, estimate: impl Fn(&[u32], u32, u32, u32) -> u64) -> (f64, f64) {
    let truth = stream.iter().filter(|&&other| other == row).count() as f64;
    let error = (truth * f64::from(one_in - 1)).sqrt();
    let seeds = 400;
    let (sum, squares) = (0..seeds).fold((0.0, 0.0), |(sum, squares), seed| {
        let off = (estimate(stream, row, one_in, seed) as f64 - truth) / error;
        (sum + off, squares + off * off)
    });
    (sum / f64::from(seeds), (squares / f64::from(seeds)).sqrt())
}

#[test]
fn a_sample_is_right_on_average_whatever_the_order() {
    let drawn = zipf(1000, 1.0, 20_000, 4);
    for row in [0, 7919 % 1000] {
        let (mean, spread) = deviation(&drawn, row, 10, estimate);
        assert!(mean.abs() < 0.2 && (0.8..1.15).contains(&spread), "{mean} {spread}");
    }
    // Fields one after another, as many as one counted access stands for: counting each 26th access would see one field only.
    let fields: Vec<u32> = (0..26_000).map(|i| i % 26).collect();
    let (mean, spread) = deviation(&fields, 3, 26, estimate);
    assert!(mean.abs() < 0.2 && spread < 1.15, "{mean} {spread}");
    let each_26th = |stream: &[u32], row, one_in: u32, _| {
        let counted = stream.iter().step_by(one_in as usize).filter(|&&other| other == row).count();
        counted as u64 * u64::from(one_in)
    };
    assert!(deviation(&fields, 3, 26, each_26th).0 < -0.2);
}

#[test]
fn rows_never_used_cost_nothing() {
    let rows = u32::MAX - 1;
    let mut profile = Profile::exact(&[rows]);
    profile.count_rows(&[5, 7, 5]).unwrap();
    // One by one they would take over a minute.
    let skew = profile.skew().unwrap();
    assert_eq!((skew.rows(), skew.accesses(), skew.bins().len()), (u64::from(rows), Some(3), 3));
}

#[test]
fn bad_input_is_named_and_nothing_is_counted() {
    let mut profile = Profile::exact(&[10, 5]);
    let error = profile.count(1, &[0, 4, 5]).unwrap_err();
    assert_eq!(error, Error::IndexOutOfRange { table: 1, rows: 5, position: 2, value: 5 });
    let error = profile.count_rows(&[14, u32::MAX]).unwrap_err();
    assert_eq!(error, Error::RowOutOfRange { call: "count_rows", rows: 15, position: 1, row: u32::MAX });
    assert_eq!(profile.ranked(), []);
}
