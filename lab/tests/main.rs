//! The command `hotrow-lab` from the shell, on generated clicks: files, runs that are there, checkpoints, refusals.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs the command, and expects an exit code. Returns stdout and stderr.
fn lab(line: &str, code: i32) -> (String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("hotrow-lab"));
    command.env_remove("HOTROW_DATA").args(line.split_whitespace()).args(["--backend", "cpu"]);
    let output = command.output().unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(output.status.code(), Some(code), "{line}\n{stdout}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    // No message has a Rust struct, or JSON.
    assert!(!["{ ", "{\""].iter().any(|text| (stdout.clone() + &stderr).contains(text)), "{line}: {stdout}{stderr}");
    (stdout, stderr)
}

/// The label, seed and loss of each run in a file of `--json`.
fn losses(path: &Path) -> Vec<(String, Value, f64)> {
    let found: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let runs = found["runs"].as_array().unwrap().iter();
    runs.map(|run| (run["tables"].to_string(), run["seed"].clone(), run["outcome"]["loss"].as_f64().unwrap())).collect()
}

/// A click log in which the first category decides about a click.
fn log(lines: u32) -> String {
    let line = |i: u32| {
        let category = i.wrapping_mul(2_654_435_761) >> 30;
        format!("{}\t{i}{}\t{category:08x}{}\n", category / 3, "\t".repeat(12), "\tab".repeat(25))
    };
    (0..lines).map(line).collect()
}

#[test]
fn runs_are_kept_resumed_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let [out, json, clicks] = ["out", "found.json", "clicks"].map(|name| folder.path().join(name));
    fs::write(&clicks, log(2100)).unwrap();
    let task = format!(
        "train criteo={} cardinalities=2000 precision=int8 cache-percent=5 decay=false batch=64",
        clicks.display()
    );
    let train = |more: &str| lab(&format!("{task} --seeds 2 {more} --json {}", json.display()), 0).0;
    let at = out.display();
    let shown = train(&format!("steps=12 --out {at} --checkpoint-every 5"));
    assert!(shown.contains("| int8 stochastic, 5 % lfu ") && shown.contains("1800 samples to train, 300 to test"));
    let (short, runs) = (losses(&json), || fs::read_dir(out.join("runs")).unwrap().count());
    assert_eq!((short.len(), runs()), (4, 4));
    assert!(
        out.join("records.csv").is_file() && fs::read_to_string(out.join("report.md")).unwrap().trim() == shown.trim()
    );
    // What is there is not run again: the same output with its times.
    assert_eq!(train(&format!("steps=12 --out {at}")), shown);
    // Nor with a goal, which is another number for each seed.
    let goal = format!("steps=12 goal=loss --out {}", folder.path().join("goal").display());
    assert_eq!(train(&goal), train(&goal));
    // More steps go on from the checkpoints, to the bits of runs that were not cut.
    assert!(out.join("checkpoints/int8-stochastic-5-lfu-seed1/step-10").is_dir());
    train(&format!("steps=20 --resume {at} --jobs 1"));
    let resumed = losses(&json);
    assert_eq!(runs(), 8);
    train("steps=20");
    assert_eq!(losses(&json), resumed);
    assert_ne!(resumed, short);
    // Other options are named, once for all runs and tables, before a file is changed.
    let results = || ["records.csv", "report.md"].map(|name| fs::read_to_string(out.join(name)).unwrap());
    let (before, others) = (results(), folder.path().join("others"));
    fs::write(&others, log(2800)).unwrap();
    for line in include_str!("resumed.txt").lines().filter(|line| !line.starts_with('#')) {
        let (more, wanted) = line.split_once(" => ").unwrap();
        let more = more.replace("OTHERS", &others.display().to_string());
        let (stdout, stderr) = lab(&format!("{task} --seeds 1 steps=20 --resume {at} {more}"), 2);
        let found = stderr.lines().filter(|line| line.contains("in the checkpoint")).map(str::to_owned);
        let line = |line: &str| line.replace(", ", " in the checkpoint, ") + " asked";
        let alike = found.collect::<BTreeSet<_>>() == wanted.split('|').map(line).collect();
        assert!(alike && stdout.is_empty() && results() == before, "{more}: {stdout}{stderr}");
    }
    fs::copy(&others, &clicks).unwrap();
    fs::write(out.join("checkpoints/fp32-seed1/step-10/run.json"), "{}").unwrap();
    let (_, stderr) = lab(&format!("{task} --seeds 2 steps=20 --resume {at} limit=1800"), 1);
    assert!(stderr.contains("fp32-seed1/step-10: wanted the run of a checkpoint") && results() == before, "{stderr}");
    let (_, stderr) = lab(&format!("{task} --seeds 2 steps=20 loss-scale=static:1e30"), 1);
    assert!(stderr.contains("4 of 4 runs failed") && stderr.contains("a step that does not overflow"), "{stderr}");
}

#[test]
fn a_training_that_fails_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train =
        |more: &str| lab(&format!("train task=dlrm cardinalities=1/10000 precision=fp32 --seeds 1 {more}"), 0).0;
    let failed = train(&format!("limit=2000 lr=1e6 --json {}", at("found.json")));
    let of_loss = "\nwarning: fp32: wanted a test loss below the base rate's 0.5";
    for wanted in [of_loss, "e10: lower lr, ", ": none of the way from the base rate's"] {
        assert!(failed.contains(wanted) && !failed.contains("% of the way from"), "{wanted}: {failed}");
    }
    assert!(fs::read_to_string(at("found.json")).unwrap().contains("\"warnings\": [\n    \"fp32: wanted a test loss"));
    let fine = train("limit=20000 steps=60");
    assert!(!fine.contains("warning: ") && fine.contains("% of the way from the base rate's"), "{fine}");
    // A rank of one class, and why there is none.
    let line = |(at, line): (usize, &str)| format!("{}{}\n", if at < 1800 { &line[..1] } else { "0" }, &line[1..]);
    fs::write(at("alike"), log(2100).lines().enumerate().map(line).collect::<String>()).unwrap();
    let alike =
        train(&format!("criteo={} cardinalities=1/10000 steps=5 precision=int8 lr=1e10 dense-lr=0.5", at("alike")));
    for wanted in [
        "\nAUC: none, since all labels of the test set are alike\n\nwarning: fp32: wanted a test loss below the base rate's 0.00000, found ",
        ": test on labels of two classes (seeds: 1 of 1)\nwarning: int8",
        ", adagrad at 10000000000, dense part adagrad at 0.5",
    ] {
        assert!(alike.contains(wanted), "{wanted}: {alike}");
    }
    assert!(fine.contains(" AUC |") && !fine.contains("AUC: none"), "{fine}");
}

/// A log whose packed form is larger than all memory that the process may have. `ulimit -v` is known, but not kept, on other systems.
#[cfg(target_os = "linux")]
#[test]
fn a_log_larger_than_the_memory_is_trained_on() {
    const LIMIT: u64 = 320 << 20;
    let folder = tempfile::tempdir().unwrap();
    let [clicks, packed] = ["clicks", "packed"].map(|name| folder.path().join(name));
    let lines = u32::try_from(LIMIT / 160 + 1).unwrap();
    fs::write(&clicks, log(lines).replace("\tab", "\t")).unwrap();
    let bounded = |more: &str| {
        let words = format!(
            "train {more} small-table=2 precision=int8 steps=20 batch=64 dim=4 --seeds 1 --jobs 1 --backend cpu"
        );
        let line = format!(
            "ulimit -v {}; exec {} {words}",
            LIMIT >> 10,
            assert_cmd::cargo::cargo_bin!("hotrow-lab").display()
        );
        // Each thread's own arena would reserve 64 MB.
        Command::new("sh").args(["-c", &line]).env_remove("HOTROW_DATA").env("MALLOC_ARENA_MAX", "1").output().unwrap()
    };
    let task = format!("criteo={} packed={}", clicks.display(), packed.display());
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let first = bounded(&task);
    assert!(first.status.success() && text(&first).contains("| int8 stochastic "), "{first:?}");
    let note = format!("335.54 MB for {lines} lines of {}; categories are numbered: at most ", clicks.display());
    assert!(
        String::from_utf8_lossy(&first.stderr).contains(&note) && fs::metadata(&packed).unwrap().len() > LIMIT,
        "{first:?}"
    );
    // A later run reads what is there, and finds the same.
    let again = bounded(&task);
    let losses =
        |text: String| text.lines().filter_map(|line| Some(line.split('|').nth(3)?.to_owned())).collect::<Vec<_>>();
    assert!(
        !String::from_utf8_lossy(&again.stderr).contains("categories") && losses(text(&again)) == losses(text(&first)),
        "{again:?}"
    );
    // As many samples in memory do not fit.
    let held = bounded(&format!("limit={lines}"));
    assert!(
        !held.status.success() && String::from_utf8_lossy(&held.stderr).contains("memory allocation of"),
        "{held:?}"
    );
}

#[test]
fn a_file_is_run_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/robe.toml");
    let line = format!("run {} --only dlrm --seeds 1 --steps 10 --out {}", file.display(), folder.path().display());
    let (stdout, _) = lab(&line, 0);
    for wanted in ["# robe, dlrm", "| robe 1000x, chunks of 16 ", "To the best test of the first setting"] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    for name in ["until", "tests"] {
        assert!(fs::read(folder.path().join("dlrm").join(format!("{name}.png"))).unwrap().starts_with(b"\x89PNG"));
    }
    let bad = folder.path().join("bad.toml");
    fs::write(&bad, "[part.a]\n\n[part.a.train]\nlr = 0\n").unwrap();
    let (_, stderr) = lab(&format!("run {}", bad.display()), 2);
    let wanted = ":4: part.a.train.lr: wanted a finite number above 0, found 0; see hotrow-lab train --help\n";
    assert_eq!(stderr, format!("error: {}{wanted}", bad.display()));
    let (stdout, _) = lab(&format!("run {} --only growth", file.with_file_name("scars.toml").display()), 0);
    assert!(stdout.lines().any(|line| line.contains("Zipf") && line.contains("4.60")), "{stdout}");
}

#[test]
fn what_cannot_be_asked_for() {
    for line in include_str!("refused.txt").lines().filter(|line| !line.starts_with('#')) {
        let (line, wanted) = line.split_once(" => ").unwrap();
        let (code, words) = line.split_once(' ').unwrap();
        let (stdout, stderr) = lab(words, code.parse().unwrap());
        assert!(stdout.is_empty() && stderr.starts_with("error: ") && stderr.contains(wanted), "{line}: {stderr}");
    }
}
