use super::super::cells::{Cells, Lists};
use super::super::claims::Verdict::{self, Met, NotMet, NotShown};
use super::super::outcome::Outcome;
use super::*;

/// Mean loss above FP32's in percent that made-up results give a cell: more with fewer bits, less with a larger cache.
fn above(setting: &Setting) -> f64 {
    let bits = f64::from(setting.precision.precision().bits());
    if setting.precision == PrecisionName::Fp32 {
        return 0.0;
    }
    let nearest = if setting.rounding == RoundingName::Nearest { 6.0 } else { 1.0 };
    let ways = if setting.ways == 1 { 1.5 } else { 1.0 };
    nearest * ways * 40.0 / bits.powi(2) * (-0.3 * setting.cache_percent).exp()
}

/// One made-up run. The seed moves FP32 and the others alike, by far more than they differ.
pub(in crate::train) fn outcome(setting: &Setting, seed: u64) -> Outcome {
    let fp32 = 0.5 + 0.1 * seed as f64;
    let noise = 0.001 * ((seed * 7 + u64::from(setting.ways)) % 5) as f64;
    let change = above(setting) + if *setting == Setting::FP32 { 0.0 } else { noise - 0.002 };
    let of_policy = if setting.policy == PolicyName::Lfu { 0.05 } else { 0.0 };
    let hit_rate = 0.4 + setting.cache_percent / 200.0 + of_policy + f64::from(setting.ways) / 1000.0;
    Outcome {
        loss: fp32 * (1.0 + change / 100.0),
        accuracy: Some(0.8 * (1.0 - change / 500.0)),
        auc: None,
        hit_rate: setting.has_cache().then_some(hit_rate),
        memory_paper: f64::from(setting.precision.precision().bits()) / 32.0 + setting.cache_percent / 100.0,
        memory_true: 0.5,
        bus_bytes: 1000,
        skipped_rows: 0,
        overflows: None,
        samples_per_second: 2000.0,
        steps: 10,
        seconds: 1.5,
        train_loss: 0.4,
    }
}

fn subject() -> Subject {
    Subject { task: "made up".into(), hyper: [("lr".to_owned(), "0.1".to_owned())].into(), fingerprint: None }
}

pub(in crate::train) fn records(cells: &[Setting], of: &dyn Fn(&Setting, u64) -> Option<Outcome>) -> Vec<Record> {
    let record = |&setting: &Setting, seed| {
        let outcome = of(&setting, seed);
        let failure = outcome.is_none().then(|| "made up".to_owned());
        Record { subject: subject(), setting, seed, outcome, failure }
    };
    cells.iter().flat_map(|cell| (0..3).map(move |seed| record(cell, seed))).collect()
}

/// A whole grid of made-up results.
pub(in crate::train) fn made_up() -> Report {
    let cells = Cells::Full.settings(&Lists::default());
    Report::new(&subject(), &records(&cells, &|setting, seed| Some(outcome(setting, seed))))
}

#[test]
fn changes_are_paired_by_seed() {
    let report = made_up();
    let cell = report.find(Setting::uncached(PrecisionName::Int4, RoundingName::Stochastic)).unwrap();
    let change = cell.loss_change.unwrap();
    // FP32's own losses are 0.5, 0.6 and 0.7: unpaired, the interval would be wider than 30 %.
    assert!((change.mean - 2.5).abs() < 0.01 && change.half().unwrap() < 0.02, "{change:?}");
    let drop = cell.accuracy_drop.unwrap();
    assert!((drop.mean - 0.5).abs() < 0.01, "{drop:?}");
    assert_eq!(report.find(Setting::FP32).unwrap().loss_change, None);
}

#[test]
fn a_seed_without_fp32_takes_no_part() {
    let setting = Setting::uncached(PrecisionName::Int8, RoundingName::Nearest);
    let of = |cell: &Setting, seed| (*cell != Setting::FP32 || seed != 1).then(|| outcome(cell, seed));
    let report = Report::new(&subject(), &records(&[Setting::FP32, setting], &of));
    let cell = report.find(setting).unwrap();
    assert_eq!((cell.runs, cell.changes.len(), cell.loss_change.unwrap().seeds), (3, 2, 2));
    assert_eq!((report.failures.len(), report.find(Setting::FP32).unwrap().failed), (1, 1));
    let text = report.markdown();
    assert!(text.contains("## Runs that failed") && text.contains("- fp32, seed 1: made up"), "{text}");
}

fn verdicts(report: &Report) -> Vec<Verdict> {
    report.claims.iter().map(|claim| claim.verdict).collect()
}

/// The made-up grid with the outcomes of some cells changed.
fn changed(change: &dyn Fn(&Setting, u64, Outcome) -> Option<Outcome>) -> Report {
    let cells = Cells::Full.settings(&Lists::default());
    Report::new(&subject(), &records(&cells, &|setting, seed| change(setting, seed, outcome(setting, seed))))
}

#[test]
fn a_seed_that_failed_shows_nothing() {
    let report = changed(&|setting, seed, run| (seed != 1 || *setting == Setting::FP32).then_some(run));
    assert_eq!(verdicts(&report), [NotShown; 6]);
    assert!(report.claims[0].found.contains("1 of 3 seeds failed"), "{}", report.claims[0].found);
    // One cell of many is enough, FP32 for all that is compared with it.
    let int2 = Setting::uncached(PrecisionName::Int2, RoundingName::Nearest);
    let report = changed(&|setting, seed, run| (seed != 1 || *setting != int2).then_some(run));
    assert_eq!(verdicts(&report), [NotMet, NotMet, NotMet, Met, NotShown, Met]);
    let report = changed(&|setting, seed, run| (seed != 1 || *setting != Setting::FP32).then_some(run));
    assert_eq!(verdicts(&report), [NotShown, NotShown, NotShown, NotShown, NotShown, Met]);
}

#[test]
fn an_interval_too_wide_shows_nothing() {
    // FP16 scatters by 5 % or 0.1 % around FP32.
    for (scatter, verdict, why) in [(0.05, NotShown, "interval too wide"), (0.001, Met, "holds 0")] {
        let report = changed(&|setting, seed, run| {
            let fp32 = outcome(&Setting::FP32, seed).loss;
            let loss = fp32 * (1.0 + scatter * (seed as f64 - 1.0));
            let fp16 = setting.precision == PrecisionName::Fp16;
            Some(if fp16 { Outcome { loss, ..run } } else { run })
        });
        let nearest = if verdict == Met { NotMet } else { NotShown };
        assert_eq!(verdicts(&report), [verdict, NotMet, NotMet, nearest, Met, Met]);
        let found = &report.claims[0].found;
        assert!(found.contains(why) && found.contains(" % [-") && found.contains("3 seeds"), "{found}");
    }
}

#[test]
fn tables_that_all_stayed_in_fp32_show_nothing() {
    let report = changed(&|_, seed, run| Some(Outcome { memory_paper: 1.0, loss: 0.5 + seed as f64, ..run }));
    assert_eq!(verdicts(&report), [NotShown, NotShown, NotShown, NotShown, NotShown, Met]);
    assert!(report.claims[0].found.contains("no table was in low precision"), "{}", report.claims[0].found);
}

#[test]
fn two_seeds_show_nothing() {
    let cells = Cells::Full.settings(&Lists::default());
    let mut runs = records(&cells, &|setting, seed| Some(outcome(setting, seed)));
    runs.retain(|record| record.seed < 2);
    let report = Report::new(&subject(), &runs);
    assert_eq!(verdicts(&report), [NotShown; 6]);
    assert!(report.claims[0].found.contains("2 seeds, 3 are needed"), "{}", report.claims[0].found);
}

#[test]
fn each_precision_says_whether_it_excludes_0() {
    let int8 = Setting::uncached(PrecisionName::Int8, RoundingName::Stochastic);
    let nearest = Setting { rounding: RoundingName::Nearest, ..int8 };
    // Better by 1 % on average, by 0 to 2 % seed by seed.
    let report = changed(&|setting, seed, run| {
        let loss = outcome(&nearest, seed).loss - 0.01 * seed as f64 * outcome(&Setting::FP32, seed).loss;
        Some(if *setting == int8 { Outcome { loss, ..run } } else { run })
    });
    let claim = &report.claims[4];
    assert_eq!(claim.verdict, Met);
    let said: Vec<&str> = claim.found.split("; ").collect();
    assert!(said[0].starts_with("int8: ") && said[0].ends_with("holds 0"), "{said:?}");
    assert!(said[1..].iter().all(|said| said.ends_with("excludes 0")) && said.len() == 3, "{said:?}");
}

#[test]
fn the_claims_hold_where_the_data_say_so() {
    let report = made_up();
    // FP16 stochastic is made 0.16 % worse, INT8 with 5 % 0.14 %, INT4 with 10 % 0.12 %.
    assert_eq!(verdicts(&report), [NotMet, NotMet, NotMet, Met, Met, Met]);
    assert!(report.claims[1].found.contains("reached with 30 %"), "{}", report.claims[1].found);
    assert_eq!(report.claims[0].exceptions, ["fp16 stochastic"]);
}

#[test]
fn the_claims_fall_where_the_data_say_so() {
    let cells = Cells::Full.settings(&Lists::default());
    // The other way round: nearest is better, one way hits more, and everything equals FP32.
    let turned = |setting: &Setting, seed| {
        let mut run = Outcome { memory_paper: 0.5, ..outcome(&Setting::FP32, seed) };
        let sign = if setting.rounding == RoundingName::Nearest { -1.0 } else { 1.0 };
        if *setting != Setting::FP32 {
            run.loss *= 1.0 + sign * 1e-6 * (1.0 + seed as f64);
        }
        run.hit_rate = Some(0.5 - f64::from(setting.ways) / 1000.0);
        Some(run)
    };
    let report = Report::new(&subject(), &records(&cells, &turned));
    assert_eq!(verdicts(&report), [Met, Met, Met, NotMet, NotMet, NotMet]);
    assert_eq!(report.claims[4].exceptions.len(), 3);
    assert_eq!(report.claims[5].exceptions.len(), 4 * 2 * 6);
    let text = report.markdown();
    assert!(text.contains("Exceptions:") && text.contains("fp16 nearest"), "{text}");
}

#[test]
fn what_was_not_run_is_not_claimed() {
    let report = Report::new(&subject(), &records(&[Setting::FP32], &|cell, seed| Some(outcome(cell, seed))));
    assert!(report.claims.iter().all(|claim| claim.verdict == NotShown && claim.found.contains("not run")));
    let nothing = Report::new(&subject(), &[]);
    assert!(nothing.markdown().contains("No run in FP32"));
    // A single seed has no interval, so nothing can be said.
    let fp16 = Setting::uncached(PrecisionName::Fp16, RoundingName::Stochastic);
    let one: Vec<Record> = records(&[Setting::FP32, fp16], &|cell, seed| Some(outcome(cell, seed)))
        .into_iter()
        .filter(|record| record.seed == 0)
        .collect();
    let report = Report::new(&subject(), &one);
    assert_eq!(report.claims[0].verdict, NotShown);
    assert!(report.claims[0].found.contains("one seed"), "{}", report.claims[0].found);
}

#[test]
fn the_order_of_the_runs_makes_no_difference() {
    let cells = Cells::Full.settings(&Lists::default());
    let mut runs = records(&cells, &|setting, seed| Some(outcome(setting, seed)));
    let text = Report::new(&subject(), &runs).markdown();
    runs.reverse();
    runs.rotate_left(100);
    assert_eq!(Report::new(&subject(), &runs).markdown(), text);
}

#[test]
fn the_files_keep_their_schema() {
    let folder = tempfile::tempdir().unwrap();
    made_up().write(folder.path()).unwrap();
    let text = std::fs::read_to_string(folder.path().join("grid.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "task,precision,rounding,policy,cache_percent,ways,runs,failed,loss,loss_change_percent,loss_change_low,\
         loss_change_high,accuracy,accuracy_drop_percent,accuracy_drop_low,accuracy_drop_high,auc,auc_drop_percent,\
         auc_drop_low,auc_drop_high,hit_rate,memory_paper,memory_true,bus_bytes,samples_per_second,steps,seconds,\
         train_loss"
    );
    let rows: Vec<&str> = lines.collect();
    assert_eq!(rows.len(), 233);
    assert!(rows[0].starts_with("made up,fp32,nearest,,0.0,,3,0,0.6,,,,0.8"), "{}", rows[0]);
    assert!(rows.iter().any(|row| row.starts_with("made up,int4,stochastic,lfu,5.0,16,3,0,")));
    let json: serde_json::Value =
        serde_json::from_reader(std::fs::File::open(folder.path().join("grid.json")).unwrap()).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["cells", "claims", "failures", "hyper", "task"]);
    assert_eq!(json["cells"][1]["loss_change"]["seeds"], 3);
    assert_eq!(keys(&json["claims"][0]), ["claim", "exceptions", "found", "verdict"]);
}

#[test]
fn tables_have_the_shape_of_the_papers() {
    let text = made_up().markdown();
    for wanted in [
        "Without a cache (P1 Table 2):",
        "32-way LFU (P1 Tables 3 and 9):",
        "1-way LRU (P1 Table 4):",
        "1-way LFU (P1 Table 5):",
        "32-way LRU (P1 Table 8):",
        "LFU, stochastic, by ways (P1 Figure 6):",
        "## Hit rate, % (P1 Table 6)",
        "## Claims",
        "lr 0.1",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let row = text.lines().find(|line| line.starts_with("| stochastic")).unwrap();
    assert!(row.contains("+0.157 ±0.00") && row.contains("+2.500 ±0.00") && row.contains("+10.0"), "{row}");
    if std::env::var_os("HOTROW_CHARTS").is_some() {
        output::note(&text);
    }
}
