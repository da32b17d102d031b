//! Profiles of the real traces: shares of the hottest rows, samples, and counts in bounded memory.

use crate::common::trace;
use hotrow_plan::scars::{Profile, Skew};
use hotrow_report::trace::Trace;
use std::num::NonZeroU32;

/// Trace, accesses, distinct rows, % of the accesses of the top 1, 5 and 10 % of the rows. The figures are those of the data folder's table,
/// which another program made.
type Line = (&'static str, u64, usize, [f64; 3]);
const TABLE: [Line; 8] = [
    ("cache2k_orm_busy", 5_000_000, 76_349, [33.4, 62.1, 75.8]),
    ("cache2k_orm_night", 5_000_000, 86_466, [36.8, 67.6, 82.0]),
    ("wikitext2_words", 2_551_843, 33_278, [60.9, 75.9, 83.1]),
    ("wikitext2_bigrams", 2_088_627, 619_592, [37.5, 54.2, 62.9]),
    ("ebooks_words", 4_401_142, 69_929, [74.2, 87.8, 93.0]),
    ("online_retail_stock", 541_909, 3_958, [9.6, 29.5, 44.9]),
    ("diabetes130_fields", 4_070_640, 72_688, [97.4, 97.9, 98.1]),
    ("goemotions_words", 669_894, 27_290, [69.9, 85.4, 90.4]),
];

/// Number of rows of a trace's table.
fn rows_of(trace: &Trace) -> u32 {
    trace.ids.iter().max().unwrap() + 1
}

fn counted(mut profile: Profile, trace: &Trace) -> Profile {
    trace.ids.chunks(100_000).for_each(|ids| profile.count_rows(ids).unwrap());
    profile
}

fn exact(trace: &Trace) -> (Profile, Skew) {
    let profile = counted(Profile::exact(&[rows_of(trace)]), trace);
    let skew = profile.skew().unwrap();
    (profile, skew)
}

#[test]
fn shares_are_those_of_the_data_folder() {
    for (name, accesses, distinct, top) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let (profile, skew) = exact(&trace);
        assert_eq!((skew.accesses(), profile.ranked().len()), (Some(accesses), distinct), "{name}");
        let off = |percent: usize, wanted: f64| 100.0 * skew.mass((distinct * percent).div_ceil(100) as u64) - wanted;
        for (percent, wanted) in [1, 5, 10].into_iter().zip(top) {
            // Twice as many rows have another share, also where the curve is flat.
            assert!(off(percent, wanted).abs() < 0.0501 && off(2 * percent, wanted).abs() > 0.0501, "{name} {percent}");
        }
    }
}

#[test]
fn bounded_counts_keep_their_bounds_on_real_traces() {
    for (name, ..) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let (exact, skew) = exact(&trace);
        let exact = exact.ranked();
        let kept = (exact.len() / 20) as u32;
        let bounded = counted(Profile::bounded(&[rows_of(&trace)], kept), &trace);
        let error = bounded.most_below();
        assert!(error > 0, "{name}: a twentieth of the rows is not all");
        let mut counts = vec![0; rows_of(&trace) as usize];
        exact.iter().for_each(|&(row, count)| counts[row as usize] = count);
        let mut found = vec![0; counts.len()];
        bounded.ranked().iter().for_each(|&(row, count)| found[row as usize] = count);
        let within = |error: u64| counts.iter().zip(&found).all(|(&n, &kept)| kept <= n && n <= kept + error);
        assert!(within(error), "{name}");
        assert!(!within(error / 4), "{name}: the bound is not loose by 4");
        // The share of accesses of the profile's hottest rows, against the share of the truly hottest rows.
        let rows = kept as usize / 4;
        let carried: u64 = bounded.hottest(rows).iter().map(|&row| counts[row as usize]).sum();
        let (carried, best) = (carried as f64 / trace.ids.len() as f64, skew.mass(rows as u64));
        assert!(carried <= best && best - carried < 0.05, "{name}: {carried} of {best}");
    }
}

#[test]
fn samples_of_real_traces_find_their_skew() {
    for (name, ..) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let (exact, skew) = exact(&trace);
        let exact = exact.ranked();
        let one_in = NonZeroU32::new(16).unwrap();
        let sample = counted(Profile::sampled(&[rows_of(&trace)], one_in, 1), &trace);
        assert!(sample.skew().unwrap().accesses().unwrap().abs_diff(trace.ids.len() as u64) < 16);
        // The count of the hottest row is within 5 standard errors, and the hottest hundredth of the rows is picked nearly as well.
        let (row, count) = sample.ranked()[0];
        let truth = exact.iter().find(|&&(other, _)| other == row).unwrap().1;
        let off = (count as f64 - truth as f64).abs() / (truth as f64 * 15.0).sqrt();
        assert!(off < 5.0, "{name}: {off}");
        let rows = exact.len() / 100;
        let picked: std::collections::HashSet<u32> = sample.hottest(rows).into_iter().collect();
        let carried: u64 = exact.iter().filter(|(row, _)| picked.contains(row)).map(|&(_, count)| count).sum();
        let (carried, best) = (carried as f64 / trace.ids.len() as f64, skew.mass(rows as u64));
        // A sixteenth says least about bigrams: 619,592 rows with 3.4 accesses each.
        assert!(carried <= best && best - carried < 0.03, "{name}: {carried} of {best}");
    }
}
