//! Profiles of the real traces: their skew table, samples of them, and counts in bounded memory.

use hotrow::Counters;
use hotrow::scars::{Accuracy, Advice, Counting, Profile, Ranked, Rules, Run};
use hotrow_cli::trace::{Source, Trace, load};
use hotrow_harness::data;
use std::num::NonZeroU32;

/// Trace, accesses, distinct rows, exponent, % of the accesses of the top 1, 5 and 10 % of the rows, % of the rows seen once. The figures
/// are those of the data folder's table, which another program made.
type Line = (&'static str, u64, u64, f64, [f64; 3], f64);
const TABLE: [Line; 8] = [
    ("cache2k_orm_busy", 5_000_000, 76_349, 0.603, [33.4, 62.1, 75.8], 11.5),
    ("cache2k_orm_night", 5_000_000, 86_466, 0.308, [36.8, 67.6, 82.0], 13.5),
    ("wikitext2_words", 2_551_843, 33_278, 0.967, [60.9, 75.9, 83.1], 0.0),
    ("wikitext2_bigrams", 2_088_627, 619_592, 0.845, [37.5, 54.2, 62.9], 66.8),
    ("ebooks_words", 4_401_142, 69_929, 1.086, [74.2, 87.8, 93.0], 43.6),
    ("online_retail_stock", 541_909, 3_958, 0.389, [9.6, 29.5, 44.9], 5.1),
    ("diabetes130_fields", 4_070_640, 72_688, 2.332, [97.4, 97.9, 98.1], 75.5),
    ("goemotions_words", 669_894, 27_290, 1.147, [69.9, 85.4, 90.4], 49.8),
];

/// Loads a trace. Without a data folder, prints that the test did not run and returns None.
fn trace(name: &str) -> Option<Trace> {
    let data = data::folder(name)?;
    Some(load(name, &Source { data: Some(&data), seed: 0 }).unwrap())
}

fn profile(trace: &Trace, counting: Counting) -> Profile {
    let rows = trace.ids.iter().max().unwrap() + 1;
    let mut profile = Profile::new(&[rows], counting);
    trace.ids.chunks(100_000).for_each(|ids| profile.count_rows(ids).unwrap());
    profile
}

/// The figure agrees with the table's to the last digit.
fn agrees(ranked: &Ranked, line: &Line) -> bool {
    let (table, &(_, accesses, distinct, exponent, top, once)) = (ranked.table(), line);
    let percent = |found: f64, wanted: f64| (100.0 * found - wanted).abs() < 0.0501;
    (table.accesses, table.distinct) == (accesses, distinct)
        && (table.exponent.unwrap() - exponent).abs() < 0.000_501
        && table.top.into_iter().zip(top).all(|(found, wanted)| percent(found, wanted))
        && percent(table.once.unwrap(), once)
}

#[test]
fn skew_tables_are_those_of_the_data_folder() {
    for line in TABLE {
        let Some(trace) = trace(line.0) else { continue };
        let ranked = profile(&trace, Counting::Exact).ranked();
        assert!(agrees(&ranked, &line), "{line:?} {:?}", ranked.table());
        let mut other = line;
        other.3 += 0.002;
        assert!(!agrees(&ranked, &other));
        other = line;
        other.4[1] -= 0.2;
        assert!(!agrees(&ranked, &other));
    }
}

#[test]
fn bounded_counts_keep_their_bounds_on_real_traces() {
    for (name, ..) in TABLE {
        let Some(trace) = trace(name) else { continue };
        let exact = profile(&trace, Counting::Exact).ranked();
        let kept = (exact.used().len() / 20) as u32;
        let bounded = profile(&trace, Counting::Bounded { rows: kept });
        let Accuracy::Below(error) = bounded.accuracy() else { panic!("{name}: a twentieth of the rows is not all") };
        let ranked = bounded.ranked();
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
        eprintln!(
            "{name}: {kept} rows kept, no count below the truth by more than {error} ({:.4} % of the accesses); hottest {rows} carry {:.2} of {:.2} %",
            100.0 * error as f64 / exact.accesses() as f64,
            100.0 * carried,
            100.0 * best,
        );
        assert!(carried <= best && best - carried < 0.05, "{name}");
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
        eprintln!("{name}: hottest {rows} of one access in 16 carry {:.2} of {:.2} %", 100.0 * carried, 100.0 * best);
        // A sixteenth says least about bigrams: 619,592 rows with 3.4 accesses each.
        assert!(carried <= best && best - carried < 0.03, "{name}");
    }
}

#[test]
fn proposals_on_a_real_trace_come_to_rest() {
    let Some(trace) = trace("ebooks_words") else { return };
    let ranked = profile(&trace, Counting::Exact).ranked();
    let counters = Counters { accesses: ranked.accesses(), ..Counters::default() };
    for lookups in [256, 2048] {
        for (hottest, wanted) in [(0, Advice::Grow), (usize::MAX, Advice::Shrink)] {
            let batches = ranked.accesses() / lookups;
            // The cache has room for every row.
            let (sets, set_ways, ways) = (8192, 32, 32);
            let pinned = ranked.hottest(hottest);
            let (ranked, record, training) = (&ranked, 68, true);
            let mut run = Run { counters, batches, ranked, pinned, sets, set_ways, ways, record, training };
            let epochs: Vec<_> = (0..5)
                .map(|_| {
                    let proposal = run.propose(&Rules::default()).unwrap();
                    run.pinned.clone_from(&proposal.rows);
                    (proposal.advice, proposal.rows.len(), proposal.then.bytes)
                })
                .collect();
            eprintln!("ebooks_words, {lookups} lookups a batch: {epochs:?}");
            assert_eq!(epochs[0].0, wanted, "something is proposed at all");
            let rest = (Advice::Keep, epochs[0].1, epochs[0].2);
            assert!(epochs[1..].iter().all(|&epoch| epoch == rest), "{lookups}: {epochs:?}");
        }
    }
}
