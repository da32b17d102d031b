//! Proposals against a trial of every number of rows, and against batches that are drawn and counted.

use crate::{
    scars::{
        adapt::*,
        profile::{Counting, Profile},
    },
    table::rng::pcg4d,
};
use proptest::prelude::*;

/// Enough sets and ways for every row.
const ROOM: (u32, u32) = (64, 32);

fn ranked(counts: &[u32]) -> Ranked {
    Profile::of_frequencies(&[counts.len() as u32], counts).unwrap().ranked()
}

/// A run in batches of 100 lookups.
fn run<'a>(ranked: &'a Ranked, pinned: &[u32]) -> Run<'a> {
    let accesses = ranked.accesses();
    let counters = Counters { accesses, ..Counters::default() };
    let batches = accesses.div_ceil(100);
    Run {
        counters,
        batches,
        ranked,
        pinned: pinned.to_vec(),
        sets: ROOM.0,
        set_ways: ROOM.1,
        ways: ROOM.1,
        record: 8,
        training: true,
    }
}

/// Counts of rows `0 .. rows`, proportional to `(row + 1 + shift)^-s`.
fn zipf(rows: u32, s: f64, top: f64) -> Vec<u32> {
    (0..rows).map(|row| (top * f64::from(row + 1).powf(-s)).round() as u32).collect()
}

/// SCARS, eq. 6, row by row: the bytes of a batch with `rows` pinned.
fn bytes(run: &Run<'_>, rows: &[u32]) -> f64 {
    let (n, b) = (run.ranked.accesses() as f64, run.counters.accesses as f64 / run.batches as f64);
    let crossing = run.ranked.used().iter().filter(|(row, _)| !rows.contains(row));
    let rows: f64 = crossing.map(|&(_, count)| 1.0 - (1.0 - count as f64 / n).powf(b)).sum();
    rows * run.record as f64 * if run.training { 2.0 } else { 1.0 }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Checks a proposal against its rules by trying every number of rows.
fn check(run: &Run<'_>, rules: &Rules, proposal: &Proposal) -> Result<(), String> {
    let err = |what: &str| Err(format!("{what}: {proposal:?}"));
    if !close(proposal.now.bytes, bytes(run, &run.pinned)) || !close(proposal.then.bytes, bytes(run, &proposal.rows)) {
        return err("bytes");
    }
    let hits = |rows: &[u32]| {
        let hits = run.ranked.used().iter().filter(|(row, _)| rows.contains(row)).map(|&(_, count)| count).sum::<u64>();
        hits as f64 / run.ranked.accesses() as f64
    };
    if !close(proposal.now.hit_rate, hits(&run.pinned)) || !close(proposal.then.hit_rate, hits(&proposal.rows)) {
        return err("hit rate");
    }
    let all = bytes(run, &[]);
    let of = |size: usize| bytes(run, &run.ranked.hottest(size));
    let most = run.ranked.used().len().min(rules.most_rows as usize);
    let pinned = run.pinned.len();
    let same = of(pinned.min(most));
    let (gain, loss) = (rules.gain * all, rules.loss * all);
    let shares = 1e-9 * all;
    match proposal.advice {
        Advice::Keep => {
            if proposal.rows != run.pinned || proposal.moved != 0 {
                return err("kept rows");
            }
            // More than what rounding may add where a change saves just what it costs.
            let earned = |bytes: f64, moved: usize| {
                let cost = (moved as u64 * run.record) as f64;
                (proposal.now.bytes - bytes) * run.batches as f64 > cost * (1.0 + 1e-9)
            };
            // The fewest rows that are as good as the most, less or plus what rounding may add.
            let enough = |slack: f64| (0..=most).find(|&size| of(size) <= of(most) + loss + slack);
            let grown = [-shares, shares].map(enough);
            let pays = |size: &Option<usize>| size.is_some_and(|size| earned(of(size), size + pinned));
            if same - of(most) >= gain + loss + shares && grown.iter().all(pays) {
                return err("growing would have paid");
            }
            if proposal.now.bytes - same >= gain + shares && earned(same, 2 * pinned) {
                return err("other rows would have paid");
            }
            let fewer = |&size: &usize| size < pinned && size as f64 <= (1.0 - rules.fewer) * pinned as f64;
            if enough(-shares).is_some_and(|size| fewer(&size)) {
                return err("fewer rows would have done");
            }
        }
        Advice::Grow | Advice::Shrink | Advice::Repin => {
            let size = proposal.rows.len();
            if proposal.rows != run.ranked.hottest(size) {
                return err("not the hottest");
            }
            let right = match proposal.advice {
                Advice::Grow => {
                    // The fewest rows that are as good as the most, if that is worth the change.
                    size > pinned
                        && same - of(size) >= gain - shares
                        && of(size) <= of(most) + loss + shares
                        && of(size - 1) >= of(most) + loss - shares
                }
                Advice::Shrink => {
                    size as f64 <= (1.0 - rules.fewer) * pinned as f64
                        && of(size) <= of(most) + loss + shares
                        && (size == 0 || of(size - 1) >= of(most) + loss - shares)
                }
                _ => size == pinned.min(most) && proposal.now.bytes - of(size) >= gain - shares,
            };
            if !right {
                return err("not what the rules say");
            }
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn proposals_are_what_trying_every_size_gives(
        counts in proptest::collection::vec(0..200_u32, 2..60),
        skew in 0.0..3.0_f64,
        pinned in proptest::collection::btree_set(0..60_u32, 0..40),
        gain in 0.0..0.3_f64,
        loss in 0.0..0.1_f64,
        most_rows in 0..60_u64,
        training: bool,
    ) {
        let rows = counts.len() as u32;
        let counts: Vec<u32> = (1..).zip(counts).map(|(i, count)| (f64::from(count) / f64::from(i).powf(skew)).ceil() as u32).collect();
        prop_assume!(counts.iter().any(|&count| count > 0));
        let ranked = ranked(&counts);
        let pinned: Vec<u32> = pinned.into_iter().filter(|&row| row < rows).collect();
        let rules = Rules { gain, loss, most_rows, ..Rules::default() };
        let run = Run { training, ..run(&ranked, &pinned) };
        let proposal = run.propose(&rules).unwrap();
        check(&run, &rules, &proposal).map_err(TestCaseError::fail)?;
    }
}

/// A row whose pinning saves its record once, in one batch, and costs it once.
#[test]
fn a_change_that_saves_what_it_costs_is_not_made() {
    let ranked = ranked(&[60, 9, 20]);
    let rules = Rules { gain: 0.0, loss: 0.0, most_rows: 1, ..Rules::default() };
    let run = Run { training: false, ..run(&ranked, &[]) };
    let proposal = run.propose(&rules).unwrap();
    assert_eq!(proposal.advice, Advice::Keep);
    assert_eq!(check(&run, &rules, &proposal), Ok(()));
    let twice = Run { batches: 2, counters: Counters { accesses: 178, ..Counters::default() }, ..run };
    assert_eq!(twice.propose(&rules).unwrap().advice, Advice::Grow);
}

/// One row is hot and not pinned. Loading the 38 other rows that save a little costs more than they save.
#[test]
fn other_rows_are_pinned_where_more_would_cost_too_much() {
    let counts: Vec<u32> = [141, 10, 3, 2].into_iter().chain([1; 45]).collect();
    let ranked = ranked(&counts);
    let rules = Rules { gain: 0.0, loss: 0.02, most_rows: 37, ..Rules::default() };
    let run = Run { training: false, ..run(&ranked, &[4, 38]) };
    let proposal = run.propose(&rules).unwrap();
    assert_eq!((proposal.advice, &proposal.rows[..]), (Advice::Repin, &[0, 1][..]));
    assert_eq!(check(&run, &rules, &proposal), Ok(()));
    let kept = Proposal { advice: Advice::Keep, rows: run.pinned.clone(), then: proposal.now, moved: 0, ..proposal };
    assert!(check(&run, &rules, &kept).unwrap_err().starts_with("other rows would have paid"));
}

/// The run after a proposal was applied, on the same accesses.
fn after<'a>(run: &Run<'a>, proposal: &Proposal) -> Run<'a> {
    Run { pinned: proposal.rows.clone(), sets: proposal.cache_rows / run.set_ways, ..run.clone() }
}

proptest! {
    #[test]
    fn what_was_applied_is_kept(
        counts in proptest::collection::vec(0..200_u32, 2..60),
        skew in 0.0..3.0_f64,
        pinned in proptest::collection::btree_set(0..60_u32, 0..40),
        shares in (prop_oneof![Just(0.0), 0.0..0.3_f64], prop_oneof![Just(0.0), 0.0..0.1_f64], prop_oneof![Just(0.0), 0.0..1.0_f64]),
        most_rows in prop_oneof![Just(u64::MAX), 0..60_u64],
        (sets, set_ways, ways) in (0..9_u32, 1..9_u32, 1..9_u32),
        resize: bool,
        training: bool,
    ) {
        let rows = counts.len() as u32;
        let counts: Vec<u32> = (1..).zip(counts).map(|(i, count)| (f64::from(count) / f64::from(i).powf(skew)).ceil() as u32).collect();
        prop_assume!(counts.iter().any(|&count| count > 0));
        let ranked = ranked(&counts);
        let mut run = Run { sets, set_ways, ways: ways.min(set_ways), training, ..run(&ranked, &[]) };
        let pinned: Vec<u32> = pinned.into_iter().filter(|&row| row < rows).collect();
        let left_out = if sets == 0 { pinned.clone() } else { crate::scars::fit::left_out(&pinned, sets, run.ways) };
        run.pinned = pinned.into_iter().filter(|row| !left_out.contains(row)).collect();
        let rules = Rules { gain: shares.0, loss: shares.1, fewer: shares.2, most_rows, resize };
        let first = run.propose(&rules).unwrap();
        let second = after(&run, &first).propose(&rules).unwrap();
        prop_assert_eq!(second.advice, Advice::Keep, "{:?} after {:?}", second, first);
        prop_assert_eq!((second.rows, second.now), (first.rows, first.then));
    }
}

/// The advice of each epoch in turn, each applied, on accesses whose counts are `counted`.
fn epochs<'a>(first: Run<'a>, counted: &'a [Ranked], rules: &Rules) -> Vec<(Advice, usize, f64)> {
    let mut run = first;
    let epoch = |ranked: &'a Ranked| {
        run.ranked = ranked;
        let proposal = run.propose(rules).unwrap();
        run = after(&run, &proposal);
        (proposal.advice, proposal.rows.len(), proposal.then.bytes)
    };
    counted.iter().map(epoch).collect()
}

/// Counts of newly drawn accesses: each row gets about `counts`, by chance.
fn drawn(counts: &[u32], seed: u32) -> Ranked {
    let ends: Vec<u64> = counts.iter().scan(0, |end, &n| (*end += u64::from(n), Some(*end)).1).collect();
    let all = ends[ends.len() - 1];
    let mut drawn = vec![0; counts.len()];
    for i in 0..all as u32 {
        let at = (u64::from(pcg4d([seed, i, 0, 0])[0]) * all) >> 32;
        drawn[ends.partition_point(|&end| end <= at)] += 1;
    }
    ranked(&drawn)
}

#[test]
fn a_steady_workload_is_left_alone() {
    // Zipf of s = 2, a heavy tail, and equal counts; each from nothing pinned and from everything pinned.
    for (what, counts) in
        [("s = 2", zipf(20_000, 2.0, 60_000.0)), ("s = 0.6", zipf(4000, 0.6, 600.0)), ("uniform", vec![50; 2000])]
    {
        let same = vec![ranked(&counts); 8];
        let anew: Vec<Ranked> = (0..8).map(|seed| drawn(&counts, seed)).collect();
        for counted in [&same, &anew] {
            for hottest in [0, 5000] {
                for resize in [false, true] {
                    let rules = Rules { resize, ..Rules::default() };
                    let first = Run { sets: 256, ..run(&counted[0], &counted[0].hottest(hottest)) };
                    let advice = epochs(first, counted, &rules);
                    let changes = advice.iter().filter(|epoch| epoch.0 != Advice::Keep).count();
                    assert!(
                        changes <= 1 && advice[1..].iter().all(|epoch| epoch.0 == Advice::Keep),
                        "{what}: {advice:?}"
                    );
                    assert!(hottest > 0 || advice[0].0 == Advice::Grow, "{what}: something is proposed at all");
                }
            }
        }
        // A different workload must be answered.
        let moved: Vec<u32> = counts.iter().rev().copied().chain([7; 100]).collect();
        let drifts = [ranked(&counts), ranked(&moved), ranked(&counts)];
        let advice =
            epochs(Run { sets: 256, ..run(&drifts[0], &[]) }, &drifts, &Rules { most_rows: 200, ..Rules::default() });
        assert!(what == "uniform" || advice[1..].iter().all(|epoch| epoch.0 != Advice::Keep), "{what}: {advice:?}");
    }
}

#[test]
fn the_check_refuses_other_proposals() {
    let ranked = ranked(&zipf(1000, 1.0, 5000.0));
    let run = run(&ranked, &ranked.hottest(40));
    let rules = Rules { most_rows: 100, ..Rules::default() };
    let good = run.propose(&rules).unwrap();
    assert_eq!((good.advice, check(&run, &rules, &good)), (Advice::Grow, Ok(())));
    type Wrong = fn(&mut Proposal);
    let wrongs: [Wrong; 6] = [
        |proposal| proposal.then.bytes *= 1.001,
        |proposal| proposal.now.hit_rate += 0.001,
        |proposal| proposal.advice = Advice::Keep,
        |proposal| proposal.advice = Advice::Shrink,
        |proposal| proposal.advice = Advice::Repin,
        |proposal| proposal.rows.truncate(proposal.rows.len() - 1),
    ];
    for wrong in wrongs {
        let mut other = good.clone();
        wrong(&mut other);
        assert!(check(&run, &rules, &other).is_err(), "{other:?}");
    }
}

#[test]
fn each_change_where_it_belongs() {
    let skewed = zipf(1000, 1.0, 5000.0);
    let of_zipf = ranked(&skewed);
    let change = |ranked: &Ranked, pinned: &[u32], rules: &Rules| run(ranked, pinned).propose(rules).unwrap().advice;
    let as_many = |rows: u64| Rules { most_rows: rows, ..Rules::default() };
    // The hottest rows are pinned and there is no room for more.
    assert_eq!(change(&of_zipf, &of_zipf.hottest(100), &as_many(100)), Advice::Keep);
    // There is room for three times as many.
    assert_eq!(change(&of_zipf, &of_zipf.hottest(100), &as_many(300)), Advice::Grow);
    // The hot rows have shifted by 50.
    assert_eq!(change(&of_zipf, &(50..150).collect::<Vec<_>>(), &as_many(100)), Advice::Repin);
    // 100 rows are used, 900 other rows are pinned too.
    let mut few = vec![50; 1000];
    few[100..].fill(0);
    let few = ranked(&few);
    let proposal = run(&few, &(0..1000).collect::<Vec<_>>()).propose(&as_many(1000)).unwrap();
    assert_eq!((proposal.advice, proposal.rows.len()), (Advice::Shrink, 100));
    assert!(proposal.then.hit_rate == 1.0 && proposal.then.bytes < 1e-9 && proposal.moved == 900 * 8, "{proposal:?}");
    assert_eq!(proposal.reason, "100 rows would take 100.0 % of the accesses, the 1000 rows pinned take 100.0 %");
    // The change costs more than a run like this one saves.
    let short = Run { batches: 1, counters: Counters { accesses: 100, ..Counters::default() }, ..run(&of_zipf, &[]) };
    assert_eq!(short.propose(&as_many(100)).unwrap().advice, Advice::Keep);
}

#[test]
fn rows_that_find_no_way_are_passed_over() {
    let of_zipf = ranked(&zipf(1000, 1.0, 5000.0));
    let run = Run { sets: 8, ways: 4, ..run(&of_zipf, &[]) };
    let proposal = run.propose(&Rules { loss: 0.0, ..Rules::default() }).unwrap();
    assert_eq!((proposal.advice, proposal.rows.len()), (Advice::Grow, 32), "as many as there are ways");
    for (at, &(row, _)) in of_zipf.used().iter().enumerate() {
        let hotter = of_zipf.used()[..at].iter().filter(|(other, _)| fmix32(*other) % 8 == fmix32(row) % 8).count();
        assert_eq!(proposal.rows.contains(&row), hotter < 4, "row {row}");
    }
    assert!(proposal.rows != of_zipf.hottest(32));
}

#[test]
fn a_cache_that_may_be_resized_holds_what_is_proposed() {
    let of_zipf = ranked(&zipf(1000, 1.0, 5000.0));
    let resize = Rules { most_rows: 500, resize: true, ..Rules::default() };
    let small = Run { sets: 2, ..run(&of_zipf, &of_zipf.hottest(30)) };
    let fixed = small.propose(&Rules { resize: false, ..resize }).unwrap();
    assert!(fixed.cache_rows == 64 && fixed.rows.len() <= 64, "{}", fixed.reason);
    let grown = small.propose(&resize).unwrap();
    assert_eq!(grown.advice, Advice::Grow);
    assert!(
        grown.rows.len() > 250 && grown.rows.len() <= 500 && grown.then.bytes < fixed.then.bytes,
        "{}",
        grown.reason
    );
    let sets = grown.cache_rows / 32;
    assert!(
        crate::scars::fit::left_out(&grown.rows, sets, 32).is_empty() && grown.cache_rows < 1000,
        "{}",
        grown.cache_rows
    );
    assert_eq!(grown.moved, 8 * grown.rows.len() as u64, "a resized cache begins anew");
    // 100 rows are used, 900 other rows are pinned too.
    let mut few = vec![50; 1000];
    few[100..].fill(0);
    let few = ranked(&few);
    let shrunk = run(&few, &(0..1000).collect::<Vec<_>>()).propose(&resize).unwrap();
    assert!(
        shrunk.advice == Advice::Shrink && shrunk.cache_rows < 64 * 32 / 8,
        "{} {}",
        shrunk.reason,
        shrunk.cache_rows
    );
    assert!(shrunk.rows.len() >= 95 && shrunk.then.hit_rate > 0.94, "{}", shrunk.reason);
}

#[test]
fn what_is_expected_is_what_batches_drawn_have() {
    let counts = zipf(1000, 0.8, 1000.0);
    let of_zipf = ranked(&counts);
    let proposal = run(&of_zipf, &[]).propose(&Rules { most_rows: 50, ..Rules::default() }).unwrap();
    assert_eq!(proposal.advice, Advice::Grow);
    let accesses: Vec<u32> = (0..).zip(&counts).flat_map(|(row, &n)| vec![row; n as usize]).collect();
    let (mut crossed, batches) = (0, 2000);
    for batch in 0..batches {
        let mut rows: Vec<u32> = (0..100)
            .map(|i| accesses[((u64::from(pcg4d([1, batch, i, 0])[0]) * accesses.len() as u64) >> 32) as usize])
            .filter(|row| !proposal.rows.contains(row))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        crossed += rows.len();
    }
    let drawn = 16.0 * crossed as f64 / f64::from(batches);
    // About 60 rows a batch: the mean of 2,000 has a standard error of about 0.1 %.
    assert!((drawn / proposal.then.bytes - 1.0).abs() < 0.005, "{drawn} {}", proposal.then.bytes);
    assert!((drawn / proposal.now.bytes - 1.0).abs() > 0.1);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let of_zipf = ranked(&zipf(100, 1.0, 50.0));
    let none = Run { batches: 0, ..run(&of_zipf, &[]) };
    assert!(none.propose(&Rules::default()).unwrap_err().to_string().starts_with("lookups of a batch: wanted"));
    let idle = Run { counters: Counters::default(), ..run(&of_zipf, &[]) };
    assert!(idle.propose(&Rules::default()).is_err());
    let unused = Profile::new(&[10], Counting::Exact).ranked();
    let run_of_unused =
        Run { counters: Counters { accesses: 5, ..Counters::default() }, batches: 1, ..run(&unused, &[]) };
    assert!(matches!(run_of_unused.propose(&Rules::default()), Err(Error::Scars { what: "counts", .. })));
    for gain in [f64::NAN, -0.1, 1.1] {
        let error = run(&of_zipf, &[]).propose(&Rules { gain, ..Rules::default() }).unwrap_err();
        assert!(matches!(error, Error::Scars { what: "gain", .. }), "{error}");
    }
}
