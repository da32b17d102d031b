use super::super::cells::{Cells, Lists};
use super::super::record;
use super::*;
use anyhow::ensure;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn plan(jobs: usize) -> Plan {
    let subject =
        Subject { task: "made up".into(), hyper: [("lr".to_owned(), "0.1".to_owned())].into(), fingerprint: None };
    Plan { subject, cells: Cells::Claims.settings(&Lists::default()), seeds: vec![7, 8, 9], jobs }
}

fn outcome(loss: f64) -> Outcome {
    Outcome {
        loss,
        accuracy: Some(0.5),
        auc: None,
        hit_rate: None,
        memory_paper: 1.0,
        memory_true: 1.0,
        bus_bytes: 0,
        skipped_rows: 0,
        overflows: None,
        samples_per_second: 1.0,
        steps: 1,
        seconds: 1.0,
        train_loss: 1.0,
    }
}

#[test]
fn fp32_comes_first_and_every_run_once() {
    let plan = plan(1);
    let seen = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let records = run(&plan, folder.path(), &|&setting, seed| {
        assert_eq!(rayon::current_num_threads(), 1, "a core a run");
        seen.lock().unwrap().push((setting, seed));
        Ok(outcome(seed as f64))
    })
    .unwrap();
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, plan.runs());
    assert_eq!(seen[..3], [7, 8, 9].map(|seed| (Setting::FP32, seed)));
    assert_eq!(seen.len(), 14 * 3);
    assert_eq!(records.len(), seen.len());
    assert!(records.iter().all(|record| record.outcome.as_ref().unwrap().loss == record.seed as f64));
}

#[test]
fn runs_go_on_beside_one_that_fails_panics_or_has_no_number() {
    let plan = plan(2);
    let folder = tempfile::tempdir().unwrap();
    let count = AtomicU32::new(0);
    let runner = |setting: &Setting, seed| {
        count.fetch_add(1, Relaxed);
        let label = setting.label();
        ensure!(label != "int8 nearest" || seed != 8, "loss: wanted a number, found NaN at step 3");
        assert!(label != "int4 nearest" || seed != 9, "made up to panic with {label}");
        if label == "int2 nearest" && seed == 7 {
            return Ok(outcome(f64::NAN));
        }
        Ok(outcome(1.0))
    };
    let records = run(&plan, folder.path(), &runner).unwrap();
    let failures: Vec<String> = records
        .iter()
        .filter_map(|record| Some(format!("{} {}: {}", record.setting.label(), record.seed, record.failure.as_ref()?)))
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
    // The next time only those are tried, and what they come to now counts.
    let records = run(&plan, folder.path(), &|_, _| {
        count.fetch_add(1, Relaxed);
        Ok(outcome(2.0))
    })
    .unwrap();
    assert_eq!(count.into_inner(), 3);
    assert!(records.iter().all(|record| record.failure.is_none()));
    assert_eq!(records.iter().filter(|record| record.outcome.as_ref().unwrap().loss == 2.0).count(), 3);
}

#[test]
fn two_runs_at_a_time() {
    let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let runner = |_: &Setting, _| {
        let now = running.fetch_add(1, Relaxed) + 1;
        most.fetch_max(now, Relaxed);
        thread::sleep(Duration::from_millis(20));
        running.fetch_sub(1, Relaxed);
        Ok(outcome(1.0))
    };
    for jobs in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        most.store(0, Relaxed);
        run(&Plan { seeds: vec![0], ..plan(jobs) }, folder.path(), &runner).unwrap();
        assert_eq!(most.load(Relaxed) as usize, jobs);
    }
}

#[test]
fn a_grid_goes_on_where_it_was_stopped() {
    let plan = plan(2);
    let folder = tempfile::tempdir().unwrap();
    run(&plan, folder.path(), &|_, seed| Ok(outcome(seed as f64))).unwrap();
    let path = folder.path().join(record::FILE);
    let whole = std::fs::read(&path).unwrap();
    let lines = whole.iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(lines, 42);
    // Killed at any moment, the file ends anywhere.
    for cut in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 1, whole.len()] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let ends = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
        // A run that lacks nothing but its newline is whole.
        let kept = ends + usize::from(cut == whole.len() - 1);
        let count = AtomicU32::new(0);
        let records = run(&plan, folder.path(), &|_, seed| {
            count.fetch_add(1, Relaxed);
            Ok(outcome(seed as f64))
        })
        .unwrap();
        assert_eq!(count.into_inner() as usize, 42 - kept, "cut at {cut}");
        assert_eq!(records.len(), 42);
    }
    // More seeds and other cells use what is there.
    let count = AtomicU32::new(0);
    let more = Plan { seeds: vec![9, 10], cells: plan.cells[..2].to_vec(), ..plan };
    let records = run(&more, folder.path(), &|_, seed| {
        assert_eq!(seed, 10);
        count.fetch_add(1, Relaxed);
        Ok(outcome(0.0))
    })
    .unwrap();
    assert_eq!((count.into_inner(), records.len()), (2, 4));
}

#[test]
fn other_hyperparameters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(2);
    run(&plan, folder.path(), &|_, _| Ok(outcome(1.0))).unwrap();
    plan.subject.hyper.insert("lr".into(), "0.2".into());
    let error = run(&plan, folder.path(), &|_, _| panic!("nothing may run")).unwrap_err().to_string();
    assert!(error.contains("lr = 0.2, found 0.1"), "{error}");
}
