use super::super::asked::{Cells, Lists};
use super::super::figures::{self, LOSS_CHANGE, find};
use super::super::journal::{Record, Runner, Subject};
use super::super::run::Outcome;
use super::super::setting::Setting;
use super::*;
use anyhow::ensure;
use hotrow::{Policy, Precision, Rounding};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Cells, seeds, and runs at a time.
#[derive(Clone)]
struct Plan {
    subject: Subject,
    cells: Vec<Setup>,
    seeds: Vec<u64>,
    jobs: usize,
}

impl Plan {
    fn runs(&self) -> Vec<Run> {
        in_order(&self.cells, &self.seeds)
    }
}

fn plan(jobs: usize) -> Plan {
    let cells = Cells::Claims.settings(&Lists::default()).into_iter().map(Setup::from).collect();
    Plan { subject: subject(), cells, seeds: vec![7, 8, 9], jobs }
}

/// Makes the runs of a plan that are missing in a folder, and returns the last record of each.
fn done(plan: &Plan, folder: &Path, runner: &Runner<'_>) -> anyhow::Result<Vec<Record>> {
    let journal = Journal::open(folder, plan.subject.clone())?;
    journal.run(&journal.missing(&plan.runs()), plan.jobs, false, runner)?;
    Ok(journal.last(&plan.runs()))
}

fn of_loss(loss: f64) -> Outcome {
    Outcome { loss, accuracy: Some(0.5), memory_paper: 1.0, ..Outcome::default() }
}

#[test]
fn fp32_comes_first_and_every_run_once() {
    let plan = plan(1);
    let seen = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let records = done(&plan, folder.path(), &|setup, seed| {
        assert_eq!(rayon::current_num_threads(), 1, "a core a run");
        seen.lock().unwrap().push((setup.clone(), seed));
        Ok(of_loss(seed as f64))
    })
    .unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, plan.runs());
    assert_eq!(seen[..3], [7, 8, 9].map(|seed| (Setup::FP32, seed)));
    assert_eq!(seen.len(), 14 * 3);
    assert_eq!(records.len(), seen.len());
    assert!(records.iter().all(|record| record.outcome.as_ref().unwrap().loss == record.seed as f64));
}

#[test]
fn runs_go_on_beside_one_that_fails_panics_or_has_no_number() {
    let plan = plan(2);
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    let runner = |setup: &Setup, seed| {
        count.fetch_add(1, Relaxed);
        let label = setup.label();
        ensure!(label != "int8 nearest" || seed != 8, "loss: wanted a number, found NaN at step 3");
        assert!(label != "int4 nearest" || seed != 9, "made up to panic with {label}");
        if label == "int2 nearest" && seed == 7 {
            return Ok(of_loss(f64::NAN));
        }
        Ok(of_loss(1.0))
    };
    let records = done(&plan, folder.path(), &runner).unwrap();
    let failures: Vec<String> = records
        .iter()
        .filter_map(|record| Some(format!("{} {}: {}", record.setup.label(), record.seed, record.failure.as_ref()?)))
        .collect();
    assert_eq!(
        failures,
        [
            "int2 nearest 7: test loss NaN",
            "int8 nearest 8: loss: wanted a number, found NaN at step 3",
            "int4 nearest 9: panic: made up to panic with int4 nearest",
        ]
    );
    assert_eq!(count.swap(0, Relaxed), 42, "the others went on");
    // The next time only the failed runs are tried, and their new outcomes count.
    let records = done(&plan, folder.path(), &|_, _| {
        count.fetch_add(1, Relaxed);
        Ok(of_loss(2.0))
    })
    .unwrap();
    assert_eq!(count.into_inner(), 3);
    assert!(records.iter().all(|record| record.failure.is_none()));
    assert_eq!(records.iter().filter(|record| record.outcome.as_ref().unwrap().loss == 2.0).count(), 3);
}

#[test]
fn two_runs_at_a_time() {
    let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let runner = |_: &Setup, _| {
        let now = running.fetch_add(1, Relaxed) + 1;
        most.fetch_max(now, Relaxed);
        thread::sleep(Duration::from_millis(20));
        running.fetch_sub(1, Relaxed);
        Ok(of_loss(1.0))
    };
    for jobs in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        most.store(0, Relaxed);
        done(&Plan { seeds: vec![0], ..plan(jobs) }, folder.path(), &runner).unwrap();
        assert_eq!(most.load(Relaxed) as usize, jobs);
    }
}

#[test]
fn a_grid_goes_on_where_it_was_stopped() {
    let plan = plan(2);
    let folder = tempfile::tempdir().unwrap();
    done(&plan, folder.path(), &|_, seed| Ok(of_loss(seed as f64))).unwrap();
    let path = folder.path().join(journal::FILE);
    let whole = std::fs::read(&path).unwrap();
    let lines = whole.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(lines, 42);
    // A killed process may leave a file that ends anywhere.
    for cut in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 1, whole.len()] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let ends = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
        // A run that lacks only its newline is complete.
        let kept = ends + usize::from(cut == whole.len() - 1);
        let count = AtomicU32::new(0);
        let records = done(&plan, folder.path(), &|_, seed| {
            count.fetch_add(1, Relaxed);
            Ok(of_loss(seed as f64))
        })
        .unwrap();
        assert_eq!(count.into_inner() as usize, 42 - kept, "cut at {cut}");
        assert_eq!(records.len(), 42);
    }
    // More seeds and other cells reuse the existing runs.
    let count = AtomicU32::new(0);
    let more = Plan { seeds: vec![9, 10], cells: plan.cells[..2].to_vec(), ..plan };
    let records = done(&more, folder.path(), &|_, seed| {
        assert_eq!(seed, 10);
        count.fetch_add(1, Relaxed);
        Ok(of_loss(0.0))
    })
    .unwrap();
    assert_eq!((count.into_inner(), records.len()), (2, 4));
}

#[test]
fn other_hyperparameters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(2);
    done(&plan, folder.path(), &|_, _| Ok(of_loss(1.0))).unwrap();
    plan.subject.hyper.insert("lr".into(), "0.2".into());
    let error = done(&plan, folder.path(), &|_, _| panic!("nothing may run")).unwrap_err().to_string();
    assert!(error.contains("lr = 0.2, found 0.1"), "{error}");
}

/// The made-up mean loss above FP32's in percent: more with fewer bits, less with a larger cache.
fn above(setting: &Setting) -> f64 {
    let bits = f64::from(setting.precision.bits());
    if setting.precision == Precision::Fp32 {
        return 0.0;
    }
    let nearest = if setting.rounding == Rounding::Nearest { 6.0 } else { 1.0 };
    let ways = if setting.ways == 1 { 1.5 } else { 1.0 };
    nearest * ways * 40.0 / bits.powi(2) * (-0.3 * setting.cache_percent).exp()
}

/// A made-up run. The seed moves FP32 and the others alike, by far more than they differ.
pub(in crate) fn outcome(setting: &Setting, seed: u64) -> Outcome {
    let fp32 = 0.5 + 0.1 * seed as f64;
    let noise = 0.001 * ((seed * 7 + u64::from(setting.ways)) % 5) as f64;
    let change = above(setting) + if *setting == Setting::FP32 { 0.0 } else { noise - 0.002 };
    let of_policy = if setting.policy == Policy::Lfu { 0.05 } else { 0.0 };
    let hit_rate = 0.4 + setting.cache_percent / 200.0 + of_policy + f64::from(setting.ways) / 1000.0;
    Outcome {
        loss: fp32 * (1.0 + change / 100.0),
        accuracy: Some(0.8 * (1.0 - change / 500.0)),
        hit_rate: setting.has_cache().then_some(hit_rate),
        memory_paper: f64::from(setting.precision.bits()) / 32.0 + setting.cache_percent / 100.0,
        memory_true: 0.5,
        bus_bytes: 1000,
        samples_per_second: 2000.0,
        steps: 10,
        ..Outcome::default()
    }
}

fn subject() -> Subject {
    Subject { task: "made up".into(), hyper: [("lr".to_owned(), "0.1".to_owned())].into(), fingerprint: None }
}

pub(in crate) fn records(cells: &[Setting], of: &dyn Fn(&Setting, u64) -> Option<Outcome>) -> Vec<Record> {
    let record = |&setting: &Setting, seed| {
        let outcome = of(&setting, seed);
        let failure = outcome.is_none().then(|| "made up".to_owned());
        Record { subject: subject(), setup: setting.into(), seed, outcome, failure }
    };
    cells.iter().flat_map(|cell| (0..3).map(move |seed| record(cell, seed))).collect()
}

/// A whole grid of made-up results.
pub(in crate) fn made_up() -> Report {
    let cells = Cells::Full.settings(&Lists::default());
    Report::new(&subject(), &records(&cells, &|setting, seed| Some(outcome(setting, seed))))
}

fn cells(runs: &[Record]) -> Vec<figures::Cell> {
    figures::cells(runs)
}

fn all() -> Vec<Record> {
    records(&Cells::Full.settings(&Lists::default()), &|setting, seed| Some(outcome(setting, seed)))
}

#[test]
fn changes_are_paired_by_seed() {
    let cells = cells(&all());
    let cell = find(&cells, Setting::uncached(Precision::Int4, Rounding::Stochastic)).unwrap();
    let change = cell.figure(LOSS_CHANGE).unwrap();
    // FP32's own losses are 0.5, 0.6 and 0.7: unpaired, the interval would be wider than 30 %.
    assert!((change.mean - 2.5).abs() < 0.01 && change.high.unwrap() - change.mean < 0.02, "{change:?}");
    let drop = cell.figure("accuracy drop").unwrap();
    assert!((drop.mean - 0.5).abs() < 0.01, "{drop:?}");
    assert_eq!(find(&cells, Setting::FP32).unwrap().figure(LOSS_CHANGE), None);
}

#[test]
fn a_seed_without_fp32_takes_no_part() {
    let setting = Setting::uncached(Precision::Int8, Rounding::Nearest);
    let of = |cell: &Setting, seed| (*cell != Setting::FP32 || seed != 1).then(|| outcome(cell, seed));
    let runs = records(&[Setting::FP32, setting], &of);
    let cells = cells(&runs);
    let cell = find(&cells, setting).unwrap();
    assert_eq!((cell.runs.len(), cell.figure(LOSS_CHANGE).unwrap().seeds), (3, 2));
    let report = Report::new(&subject(), &runs);
    assert_eq!((report.failures.len(), find(&cells, Setting::FP32).unwrap().failed), (1, 1));
    let text = report.markdown();
    assert!(text.contains("## Runs that failed") && text.contains("- fp32, seed 1: made up"), "{text}");
}

/// Verdicts of the goals: no worse than FP32 thrice, FP16 nearest, stochastic against nearest thrice, 32 ways.
fn met(report: &Report) -> Vec<Option<bool>> {
    report.goals.iter().map(|goal| goal.met).collect()
}

const MET: Option<bool> = Some(true);
const MISSED: Option<bool> = Some(false);

/// The made-up grid with the outcomes of some cells changed.
fn changed(change: &dyn Fn(&Setting, u64, Outcome) -> Option<Outcome>) -> Report {
    let cells = Cells::Full.settings(&Lists::default());
    Report::new(&subject(), &records(&cells, &|setting, seed| change(setting, seed, outcome(setting, seed))))
}

#[test]
fn a_seed_that_failed_shows_nothing() {
    let report = changed(&|setting, seed, run| (seed != 1 || *setting == Setting::FP32).then_some(run));
    assert_eq!(met(&report), [None; 8]);
    // One missing cell of many is enough; without FP32 nothing can be compared.
    let int2 = Setting::uncached(Precision::Int2, Rounding::Nearest);
    let report = changed(&|setting, seed, run| (seed != 1 || *setting != int2).then_some(run));
    assert_eq!(met(&report), [MISSED, MISSED, MISSED, MET, MET, MET, None, MET]);
    let report = changed(&|setting, seed, run| (seed != 1 || *setting != Setting::FP32).then_some(run));
    assert_eq!(met(&report), [None, None, None, None, None, None, None, MET]);
    let lfu = Setting::lfu(Precision::Int8, 5.0, 1);
    let report = changed(&|setting, seed, run| (seed != 1 || *setting != lfu).then_some(run));
    assert_eq!(met(&report)[7], None, "every size, or none");
}

#[test]
fn an_interval_too_wide_shows_nothing() {
    // FP16 scatters by 5 % or 0.1 % around FP32.
    for (scatter, verdict) in [(0.05, None), (0.001, MET)] {
        let report = changed(&|setting, seed, run| {
            let fp32 = outcome(&Setting::FP32, seed).loss;
            let loss = fp32 * (1.0 + scatter * (seed as f64 - 1.0));
            let fp16 = setting.precision == Precision::Fp16;
            Some(if fp16 { Outcome { loss, ..run } } else { run })
        });
        let nearest = verdict.map(|_| false);
        assert_eq!(met(&report), [verdict, MISSED, MISSED, nearest, MET, MET, MET, MET]);
    }
}

#[test]
fn tables_that_all_stayed_in_fp32_show_nothing() {
    let report = changed(&|_, seed, run| Some(Outcome { memory_paper: 1.0, loss: 0.5 + seed as f64, ..run }));
    assert_eq!(met(&report), [None, None, None, None, None, None, None, MET]);
}

#[test]
fn two_seeds_show_nothing() {
    let mut runs = all();
    for seeds in [2, 1] {
        runs.retain(|record| record.seed < seeds);
        assert_eq!(met(&Report::new(&subject(), &runs)), [None; 8]);
    }
}

#[test]
fn the_mean_says_which_rounding_is_better() {
    let int8 = Setting::uncached(Precision::Int8, Rounding::Stochastic);
    let nearest = Setting { rounding: Rounding::Nearest, ..int8 };
    // Better by 1 % on average, by 0 to 2 % for single seeds; then worse.
    for (sign, verdict) in [(-1.0, MET), (1.0, MISSED)] {
        let report = changed(&|setting, seed, run| {
            let loss = outcome(&nearest, seed).loss + sign * 0.01 * seed as f64 * outcome(&Setting::FP32, seed).loss;
            Some(if *setting == int8 { Outcome { loss, ..run } } else { run })
        });
        assert_eq!(met(&report)[4..7], [verdict, MET, MET]);
    }
}

#[test]
fn the_goals_are_met_where_the_data_say_so() {
    let report = made_up();
    // FP16 stochastic is 0.16 % worse, INT8 with 5 % 0.14 %, INT4 with 10 % 0.12 %.
    assert_eq!(met(&report), [MISSED, MISSED, MISSED, MET, MET, MET, MET, MET]);
    let least = report.goals[0].reached.unwrap();
    assert!((1.0014..1.00157).contains(&least), "{least}");
}

#[test]
fn the_goals_are_missed_where_the_data_say_so() {
    let cells = Cells::Full.settings(&Lists::default());
    // Reversed results: nearest is better, one way hits more, and everything equals FP32.
    let turned = |setting: &Setting, seed| {
        let mut run = Outcome { memory_paper: 0.5, ..outcome(&Setting::FP32, seed) };
        let sign = if setting.rounding == Rounding::Nearest { -1.0 } else { 1.0 };
        if *setting != Setting::FP32 {
            run.loss *= 1.0 + sign * 1e-6 * (1.0 + seed as f64);
        }
        run.hit_rate = Some(0.5 - f64::from(setting.ways) / 1000.0);
        Some(run)
    };
    let report = Report::new(&subject(), &records(&cells, &turned));
    assert_eq!(met(&report), [MET, MET, MET, MISSED, MISSED, MISSED, MISSED, MISSED]);
    let text = report.markdown();
    assert!(text.contains("| fp16 nearest, no cache: ") && text.contains(" missed |"), "{text}");
}

#[test]
fn what_was_not_run_is_not_judged() {
    let report = Report::new(&subject(), &records(&[Setting::FP32], &|cell, seed| Some(outcome(cell, seed))));
    assert!(report.goals.iter().all(|goal| goal.reached.is_none()) && report.markdown().contains("| unmeasured "));
    let nothing = Report::new(&subject(), &[]);
    assert!(nothing.markdown().contains("No run in FP32"));
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
    assert_eq!(lines.next().unwrap(), "what,shape,setting,value,unit,lowest,highest,rounds");
    let rows: Vec<&str> = lines.collect();
    let of = |what: &str| rows.iter().filter(|row| row.starts_with(what)).count();
    assert_eq!(
        [of("test loss,"), of("test loss change,"), of("accuracy drop,"), of("hit rate,")],
        [233, 232, 232, 224]
    );
    assert!(rows[0].starts_with("test loss,made up,tables=fp32; line=fp32 nearest; precision=fp32;"), "{}", rows[0]);
    assert!(rows[0].contains(",0.6,score,") && rows[0].ends_with(",3"), "{}", rows[0]);
    let cell = "tables=int4 stochastic, 5 % lfu, 16 ways; line=int4 stochastic; precision=int4; rounding=stochastic; cache=16-way LFU;";
    assert!(rows.iter().any(|row| row.contains(cell)));
    let json: serde_json::Value =
        serde_json::from_reader(std::fs::File::open(folder.path().join("grid.json")).unwrap()).unwrap();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["failures", "goals", "hyper", "records", "runs", "schema", "task"]);
    assert_eq!(json["schema"], 3);
    let records = json["records"].as_array().unwrap();
    let change = records.iter().find(|record| record["what"] == LOSS_CHANGE).unwrap();
    assert_eq!(change["spread"]["rounds"], 3);
    assert_eq!(json["goals"].as_array().unwrap().len(), 8);
}

#[test]
fn tables_have_the_shape_of_the_papers() {
    let text = made_up().markdown();
    for wanted in [
        "Without a cache (Yang 2020, Table 2):",
        "32-way LFU (Yang 2020, Tables 3 and 9):",
        "1-way LRU (Yang 2020, Table 4):",
        "1-way LFU (Yang 2020, Table 5):",
        "32-way LRU (Yang 2020, Table 8):",
        "LFU, stochastic, by ways (Yang 2020, Figure 6):",
        "## Hit rate (Yang 2020, Table 6)",
        "## Goals",
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

/// Draws the charts of made-up results. `HOTROW_CHARTS` names a folder to keep them in.
#[test]
fn a_full_grid_has_every_chart() {
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("HOTROW_CHARTS").map(PathBuf::from);
    let folder = kept.as_deref().unwrap_or(folder.path());
    let written = made_up().draw(folder).unwrap();
    let names: Vec<String> =
        written.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    for measure in ["loss", "score"] {
        for of in ["by-size-lru-1", "by-size-lru-32", "by-size-lfu-1", "by-size-lfu-32", "by-memory"] {
            assert!(names.contains(&format!("{measure}-{of}.png")), "{of}: {names:?}");
        }
        for of in
            ["by-policy-fp16", "by-policy-int8", "by-policy-int4", "by-policy-int2", "by-ways-int4", "by-ways-int2"]
        {
            assert!(names.contains(&format!("{measure}-{of}.svg")), "{of}: {names:?}");
        }
    }
    assert!(names.contains(&"hit-rate.png".to_owned()));
    assert_eq!(names.len(), 2 * (2 * (5 + 6) + 1));
}

#[test]
fn a_line_has_its_points_and_intervals() {
    let charts = made_up().charts(LOSS_CHANGE);
    let (_, chart) = charts.into_iter().find(|(stem, _)| stem == "by-size-lfu-32").unwrap();
    assert_eq!(chart.x_names, ["0", "0.1", "1", "5", "10", "30", "50"]);
    assert_eq!(chart.series.len(), 8);
    let line = chart.series.iter().find(|series| series.label == "int4 stochastic").unwrap();
    let setting = Setting::uncached(Precision::Int4, Rounding::Stochastic);
    let change = find(&cells(&all()), setting).unwrap().figure(LOSS_CHANGE).unwrap();
    assert_eq!(line.points.len(), 7);
    assert_eq!(line.points[0].1, change.mean);
    assert!((line.spread[0].1 - (change.high.unwrap() - change.mean)).abs() < 1e-12);
    assert!(!line.dashed && line.points[0].0.abs() < 0.5);
}

#[test]
fn without_runs_nothing_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    assert!(Report::new(&subject(), &[]).draw(folder.path()).unwrap().is_empty());
}
