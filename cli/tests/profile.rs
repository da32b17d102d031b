//! Profiles of the real traces: shares of the hottest rows, samples, and counts in bounded memory.

use crate::common::trace;
use hotrow::scars::{Counting, Profile};
use hotrow_cli::trace::Trace;
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

fn profile(trace: &Trace, counting: Counting) -> Profile {
    let rows = trace.ids.iter().max().unwrap() + 1;
    let mut profile = Profile::new(&[rows], counting);
    trace.ids.chunks(100_000).for_each(|ids| profile.count_rows(ids).unwrap());
    profile
}

#[test]
fn shares_are_those_of_the_data_folder() {
    for (name, accesses, distinct, top) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let ranked = profile(&trace, Counting::Exact).ranked();
        assert_eq!((ranked.accesses(), ranked.used().len()), (accesses, distinct), "{name}");
        let off = |percent: usize, wanted: f64| 100.0 * ranked.share_of((distinct * percent).div_ceil(100)) - wanted;
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
        let exact = profile(&trace, Counting::Exact).ranked();
        let kept = (exact.used().len() / 20) as u32;
        let bounded = profile(&trace, Counting::Bounded { rows: kept });
        let ranked = bounded.ranked();
        let error = ranked.most_below();
        assert!(error > 0, "{name}: a twentieth of the rows is not all");
        let mut counts = vec![0; exact.rows() as usize];
        exact.used().iter().for_each(|&(row, count)| counts[row as usize] = count);
        let mut found = vec![0; counts.len()];
        ranked.used().iter().for_each(|&(row, count)| found[row as usize] = count);
        let within = |error: u64| counts.iter().zip(&found).all(|(&n, &kept)| kept <= n && n <= kept + error);
        assert!(within(error), "{name}");
        assert!(!within(error / 4), "{name}: the bound is not loose by 4");
        // The share of accesses of the profile's hottest rows, against the share of the truly hottest rows.
        let rows = kept as usize / 4;
        let carried: u64 = ranked.hottest(rows).iter().map(|&row| counts[row as usize]).sum();
        let (carried, best) = (carried as f64 / exact.accesses() as f64, exact.share_of(rows));
        assert!(carried <= best && best - carried < 0.05, "{name}: {carried} of {best}");
    }
}

#[test]
fn samples_of_real_traces_find_their_skew() {
    for (name, ..) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let exact = profile(&trace, Counting::Exact).ranked();
        let one_in = NonZeroU32::new(16).unwrap();
        let ranked = profile(&trace, Counting::Sampled { one_in, seed: 1 }).ranked();
        assert!(ranked.accesses().abs_diff(exact.accesses()) < 16);
        // The count of the hottest row is within 5 standard errors, and the hottest hundredth of the rows is picked nearly as well.
        let (row, count) = ranked.used()[0];
        let truth = exact.used().iter().find(|&&(other, _)| other == row).unwrap().1;
        let off = (count as f64 - truth as f64).abs() / ranked.standard_error(truth);
        assert!(off < 5.0, "{name}: {off}");
        let rows = exact.used().len() / 100;
        let picked: std::collections::HashSet<u32> = ranked.hottest(rows).into_iter().collect();
        let carried: u64 = exact.used().iter().filter(|(row, _)| picked.contains(row)).map(|&(_, count)| count).sum();
        let (carried, best) = (carried as f64 / exact.accesses() as f64, exact.share_of(rows));
        // A sixteenth says least about bigrams: 619,592 rows with 3.4 accesses each.
        assert!(carried <= best && best - carried < 0.03, "{name}: {carried} of {best}");
    }
}
