//! `hotrow train grid`, `grid --plots` and `train profile` from the shell, on a task that takes seconds.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ROWS: u32 = 3000;
const BAGS: u32 = 600;
const WORDS: u32 = 12;

/// A data folder of eight authors. Each author uses words of his own, among common words.
fn data() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 1_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let (mut ids, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..BAGS {
        let author = draw(8);
        labels.push(author as u8);
        for word in 0..WORDS {
            ids.push(if word % 3 == 0 { 40 + draw((ROWS - 40) / 8) * 8 + author } else { draw(40) });
        }
    }
    // The last id makes the table as large as it should be.
    *ids.last_mut().unwrap() = ROWS - 1;
    let offsets: Vec<u32> = (0..=BAGS).map(|bag| bag * WORDS).collect();
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    fs::write(folder.path().join("ebooks_words.u32"), bytes(&ids)).unwrap();
    fs::write(folder.path().join("ebooks_words.offsets.u32"), bytes(&offsets)).unwrap();
    fs::write(folder.path().join("ebooks_words.labels.u8"), labels).unwrap();
    folder
}

fn command(data: &TempDir, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("hotrow-lab"));
    // The mode precedes the options.
    command.arg("train").args(more).args(["--task", "author", "--backend", "cpu", "--epochs", "1", "--batch", "32"]);
    command.args(["--dim", "8", "--data"]).arg(data.path()).arg("--out").arg(out);
    command
}

fn run(data: &TempDir, out: &Path, more: &[&str]) -> Output {
    command(data, out, more).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Each run by its setting and seed.
fn runs(out: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(out.join("runs.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|run| (format!("{} {}", run["setting"], run["seed"]), run)).collect()
}

fn losses(out: &Path) -> BTreeMap<String, String> {
    runs(out).into_iter().map(|(run, value)| (run, value["outcome"]["loss"].to_string())).collect()
}

const CLAIMS: [&str; 5] = ["grid", "--cells", "claims", "--seeds", "2"];

#[test]
fn a_grid_is_run_kept_judged_and_drawn() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let out: PathBuf = folder.path().join("made/on/the/way");
    let done = run(&data, &out, &CLAIMS);
    let shown = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for wanted in ["# author", "Without a cache (Yang 2020, Table 2)", "## Goals", "fp16 stochastic", "batch 32, "] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    assert_eq!(runs(&out).len(), 14 * 2);
    let csv = fs::read_to_string(out.join("grid.csv")).unwrap();
    assert_eq!(csv.lines().filter(|line| line.starts_with("test loss,")).count(), 14);
    assert_eq!(fs::read_to_string(out.join("grid.md")).unwrap().trim_end(), shown.trim_end());
    for picture in ["skew", "loss-by-size-lfu-32", "loss-by-memory", "hit-rate"] {
        let png = fs::read(out.join(format!("{picture}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"), "{picture}");
    }
    // A second call runs nothing and prints the same, and so does `--plots`.
    let before = fs::read(out.join("runs.jsonl")).unwrap();
    let again = run(&data, &out, &CLAIMS);
    assert_eq!((text(&again.stdout), fs::read(out.join("runs.jsonl")).unwrap()), (shown.clone(), before));
    assert_eq!(text(&run(&data, &out, &["grid", "--plots"]).stdout), shown);
    // Another number of runs at a time gives the same bits.
    let alone = folder.path().join("alone");
    assert!(run(&data, &alone, &[&CLAIMS[..], &["--jobs", "1"]].concat()).status.success());
    assert_eq!(losses(&alone), losses(&out));
    let other = run(&data, &out, &[&CLAIMS[..], &["--lr", "0.015625"]].concat());
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("lr = 0.015625, found"), "{}", text(&other.stderr));
    // A file with runs of two subjects, and data that changed under the same name, are refused.
    let path = out.join("runs.jsonl");
    let kept = fs::read_to_string(&path).unwrap();
    let line = kept.lines().last().unwrap();
    for (from, to) in [("\"batch\":\"32\"", "\"batch\":\"64\""), ("\"fingerprint\":\"", "\"fingerprint\":\"0")] {
        assert!(line.contains(from), "{line}");
        fs::write(&path, format!("{kept}{}\n", line.replace(from, to))).unwrap();
        for more in [&["grid", "--plots"][..], &CLAIMS] {
            let mixed = run(&data, &out, more);
            assert_eq!(mixed.status.code(), Some(1), "{more:?}");
            assert!(text(&mixed.stderr).contains("wanted runs "), "{}", text(&mixed.stderr));
        }
    }
}

#[test]
fn a_killed_grid_goes_on() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    assert!(run(&data, &whole, &CLAIMS).status.success());
    let mut child = command(&data, &cut, &CLAIMS).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (start, path) = (Instant::now(), cut.join("runs.jsonl"));
    while !fs::read(&path).is_ok_and(|text| text.contains(&b'\n')) {
        assert!(start.elapsed() < Duration::from_secs(120), "no run came to its end");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = fs::read_to_string(&path).unwrap();
    let kept = &kept[..kept.rfind('\n').unwrap() + 1];
    assert!(run(&data, &cut, &CLAIMS).status.success());
    assert!(fs::read_to_string(&path).unwrap().starts_with(kept), "what was there was not run again");
    assert_eq!(losses(&cut), losses(&whole));
}

#[test]
fn runs_that_fail_are_recorded_and_tried_again() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let more = ["grid", "--seeds", "2", "--precision", "int8", "--rounding", "stochastic", "--policy", "lfu"];
    let more = [&more[..], &["--cache-percent", "0,10", "--ways", "1", "--loss-scale", "static:1e30"]].concat();
    for _ in 0..2 {
        let done = run(&data, folder.path(), &more);
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stderr).contains("6 of 6 runs failed"), "{}", text(&done.stderr));
        let shown = text(&done.stdout);
        assert!(
            shown.contains("- int8 stochastic, 10 % lfu, 1 way, seed 1: ") && shown.contains("overflow"),
            "{shown}"
        );
        let failed = runs(folder.path()).into_values().filter(|run| run["failure"].is_string()).count();
        assert_eq!((failed, runs(folder.path()).len()), (6, 6));
    }
}

#[test]
fn a_profile_proposes_and_asks_the_grid() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let json = folder.path().join("profile.json");
    let more = ["profile", "--seeds", "2", "--json", json.to_str().unwrap()];
    let done = run(&data, folder.path(), &more);
    let shown = text(&done.stdout);
    assert!(done.status.success(), "{}", text(&done.stderr));
    for wanted in ["| words", "accesses to 1 % of rows", "Short runs", "No grid in"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let profile: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let proposal = &profile["proposals"][0];
    assert_eq!((&proposal["rows"], proposal["predicted"].as_array().unwrap().len()), (&Value::from(ROWS), 6));
    assert!(profile["memory"].as_f64().unwrap() <= 1.0);
    assert!(run(&data, folder.path(), &CLAIMS).status.success());
    let done = run(&data, folder.path(), &more);
    assert!(text(&done.stdout).contains("Against the grid in"), "{}", text(&done.stdout));
    let done = run(&data, folder.path(), &[&more[..], &["--lr", "0.015625"]].concat());
    assert!(text(&done.stdout).contains("not checked"), "{}", text(&done.stdout));
}

#[test]
fn bad_usage_is_said() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    for (more, wanted) in [
        (&["grid", "profile"][..], "unexpected argument 'profile'"),
        (&["--cells", "full"], "unexpected argument '--cells'"),
        (&["grid", "--cells", "claims", "--precision", "int2", "--cache-percent", "5"], "wanted cells beside FP32"),
        (&["grid", "--jobs", "0"], "jobs"),
    ] {
        let done = run(&data, folder.path(), more);
        assert_eq!(done.status.code(), Some(2), "{more:?}");
        assert!(text(&done.stderr).contains(wanted), "{more:?}: {}", text(&done.stderr));
    }
    let done = run(&data, folder.path(), &["grid", "--plots"]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("found neither"), "{}", text(&done.stderr));
}
