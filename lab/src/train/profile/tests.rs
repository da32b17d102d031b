use super::super::asked::{Cells, Lists};
use super::super::grid::tests as made_up;
use super::*;
use anyhow::bail;
use hotrow::{Init, Pooling};
use std::cell::RefCell;

fn table(name: &str, rows: u32) -> TableSpec {
    let (pooling, init) = (Pooling::Sum, Init::Constant(0.0));
    TableSpec { name: name.to_owned(), rows, dim: 32, pooling, init, stream: 0 }
}

/// Batches of 100 accesses to the first `hot` rows, which return in the next batch.
fn hot(hot: u32) -> Observed {
    let mut seen = Observed::default();
    for step in 0..40 {
        let batch: Vec<u32> = (0..100).map(|i| (step * 50 + i) % hot).collect();
        seen.add(&batch);
    }
    seen
}

/// Every row once.
fn cold() -> Observed {
    let mut seen = Observed::default();
    (0..40).for_each(|step| seen.add(&(step * 100..(step + 1) * 100).collect::<Vec<u32>>()));
    seen
}

/// Runs `one` for each seed.
fn each(
    one: impl Fn(&[Setting], u64) -> anyhow::Result<Outcome>,
) -> impl Fn(&[Setting], &[u64]) -> anyhow::Result<Vec<Outcome>> {
    move |settings: &[Setting], seeds: &[u64]| seeds.iter().map(|&seed| one(settings, seed)).collect()
}

/// Made-up results of short runs, in which little is lost.
fn trial(settings: &[Setting], seed: u64) -> anyhow::Result<Outcome> {
    let [fp32, mut run] = [Setting::FP32, settings[0]].map(|setting| made_up::outcome(&setting, seed));
    run.loss = fp32.loss + (run.loss - fp32.loss) / 1000.0;
    Ok(run)
}

#[test]
fn a_hot_table_gets_a_cache_a_cold_one_fp16_a_small_one_nothing() {
    let tables = [table("hot", 10_000), table("cold", 10_000), table("small", 1000)];
    let observed = [hot(90), cold(), hot(90)];
    // Only rows stored in fewer than 8 bits cost loss.
    let tried = RefCell::new(Vec::new());
    let runner = |settings: &[Setting], seed| {
        tried.borrow_mut().push((settings.to_vec(), seed));
        let low = settings.iter().any(|setting| setting.precision.bits() < 8);
        let change = if low { 1.01 } else { 1.0001 };
        let loss = if settings[0] == Setting::FP32 { 1.0 } else { change };
        Ok(Outcome { loss, ..made_up::outcome(&Setting::FP32, seed) })
    };
    let profile = propose(&tables, &observed, &[0, 1], &each(&runner)).unwrap();
    let settings: Vec<String> = profile.proposals.iter().map(|proposal| proposal.setting.label()).collect();
    // 96 slots of 3 sets hold most of 90 rows.
    assert_eq!(settings, ["int8 stochastic, 1 % lru", "fp16 stochastic", "fp32"]);
    let trials: Vec<(bool, u64)> =
        profile.trials.iter().map(|trial| (trial.taken, (1e4 * trial.memory) as u64)).collect();
    assert!(trials.windows(2).all(|pair| !pair[0].0 && pair[0].1 <= pair[1].1), "least memory first: {trials:?}");
    assert!(trials.last().unwrap().0);
    let tried = tried.into_inner();
    assert_eq!(tried.len(), 2 * (1 + profile.trials.len()), "FP32 and each candidate, both seeds");
    assert!(tried[..2].iter().all(|(settings, _)| *settings == [Setting::FP32; 3]));
    let known: Vec<bool> = profile.proposals.iter().map(|proposal| proposal.predicted().is_some()).collect();
    assert_eq!(known, [true, false, false], "a cache, none, and nothing to look at");
    // Two tables of 10,000 and one of 1,000 rows.
    let [hot, cold] = [0, 1].map(|i| profile.proposals[i].memory);
    assert!((profile.memory - (10.0 * hot + 10.0 * cold + 1.0) / 21.0).abs() < 1e-12);
    assert_eq!(cold, 0.5);
}

#[test]
fn a_candidate_that_fails_is_passed_over() {
    let tables = [table("hot", 10_000)];
    let observed = [hot(90)];
    let runner = |settings: &[Setting], seed| {
        if settings[0].precision == Precision::Int2 {
            bail!("made up");
        }
        Ok(made_up::outcome(&Setting::FP32, seed))
    };
    let profile = propose(&tables, &observed, &[0, 1], &each(&runner)).unwrap();
    assert_eq!(profile.proposals[0].setting.precision, Precision::Int4);
    assert!(profile.trials[0].failure.as_deref() == Some("made up") && !profile.trials[0].taken);
}

#[test]
fn if_nothing_serves_it_stays_in_fp32() {
    let tables = [table("hot", 10_000)];
    let observed = [hot(90)];
    let runner = |settings: &[Setting], seed| {
        let worse = if settings[0] == Setting::FP32 { 1.0 } else { 1.1 };
        Ok(Outcome { loss: worse, ..made_up::outcome(&Setting::FP32, seed) })
    };
    let profile = propose(&tables, &observed, &[0, 1], &each(&runner)).unwrap();
    assert_eq!((profile.proposals[0].setting, profile.memory), (Setting::FP32, 1.0));
    assert!(profile.trials.iter().all(|trial| !trial.taken));
    assert_eq!(profile.trials.last().unwrap().what, "fp16, no cache");
}

#[test]
fn luck_is_not_enough() {
    let [lucky, sure] = [[-1.0, 1.0, -0.5], [-0.01, 0.01, 0.0]].map(|changes| Interval::of(&changes).unwrap());
    assert!(lucky.mean < sure.mean && !good(&lucky) && good(&sure));
    assert!(good(&Interval::of(&[0.01]).unwrap()) && !good(&Interval::of(&[0.1]).unwrap()));
}

#[test]
fn small_tables_need_no_run() {
    let tables = [table("small", 1000)];
    let none = |_: &[Setting], _: &[u64]| bail!("nothing may run");
    let profile = propose(&tables, &[hot(90)], &[0], &none).unwrap();
    assert_eq!((profile.proposals[0].setting, profile.trials.len()), (Setting::FP32, 0));
}

#[test]
fn what_is_looked_at_is_bounded() {
    let mut seen = Observed::default();
    let batch = vec![7; ACCESSES / 2 - 1];
    (0..5).for_each(|_| seen.add(&batch));
    assert_eq!(seen.accesses(), ACCESSES - 2);
}

#[test]
fn the_grid_is_asked() {
    let tables = [table("hot", 10_000)];
    let observed = [hot(90)];
    let profile = propose(&tables, &observed, &[0, 1, 2], &each(trial)).unwrap();
    let records = made_up::records(&Cells::Full.settings(&Lists::default()), &|setting, seed| {
        Some(made_up::outcome(setting, seed))
    });
    let said = check(&profile, &figures::cells(&records));
    let lines: Vec<&str> = said.lines().skip(2).collect();
    // The short runs missed the loss; the grid shows it.
    let label = profile.proposals[0].setting.label();
    assert!(lines.len() == 2 && lines[0].contains(&label) && lines[0].contains("| not met"), "{said}");
    assert!(lines[1].starts_with("| smallest no worse") && lines[1].contains("| met"), "{said}");
    let said = check(&profile, &[]);
    assert!(said.lines().count() == 3 && said.contains("| not shown") && said.contains("|    0 |"), "{said}");
}
