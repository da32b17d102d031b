//! `hotrow train` on clicks: bad files and options are refused by name, and a small log is learned.

use assert_cmd::Command;
use hotrow::hash::fmix32;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Runs `hotrow train --backend cpu` with `args`.
fn train(args: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = Command::cargo_bin("hotrow-lab").unwrap();
    command.env_remove("HOTROW_DATA").args(["train", "--backend", "cpu", "--precision", "fp32", "--seeds", "1"]);
    command.args(args).assert()
}

fn stdout(assert: &assert_cmd::assert::Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// A log in which the first category decides about a click: `1` of four values gives one.
fn log(lines: u32) -> String {
    let line = |i: u32| {
        let category = fmix32(i + 1) % 4;
        format!(
            "{}\t{i}{}\t{category:08x}{}\n",
            u32::from(category == 1),
            "\t".repeat(12),
            "\tab\t".repeat(12) + "\tcd"
        )
    };
    (0..lines).map(line).collect()
}

fn write(dir: &TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

/// Expects a refusal with `code` and a message that contains everything in `found`.
fn refused(args: &[&str], code: i32, found: &[&str]) {
    let assert = train(args).failure().code(code);
    let message = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    for part in found {
        assert!(message.contains(part), "{args:?}: {message:?} lacks {part:?}");
    }
    assert!(stdout(&assert).is_empty(), "{args:?} printed results");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_log_is_learned_packed_or_not() {
    let dir = TempDir::new().unwrap();
    let content = log(2100);
    let plain = write(&dir, "clicks.txt", content.as_bytes());
    let packed = write(&dir, "clicks.txt.zst", &zstd::encode_all(content.as_bytes(), 3).unwrap());
    let loss = |path: &Path| -> String {
        let found = stdout(
            &train(&["--criteo", text(path), "--cardinalities", "100", "--batch", "32", "--epochs", "3"]).success(),
        );
        assert!(found.contains("1800 samples to train, 300 to test") && found.contains("at most 100 rows"), "{found}");
        let row = found.lines().find(|line| line.starts_with("| fp32")).unwrap();
        row.split('|').nth(2).unwrap().trim().to_owned()
    };
    let found = loss(&plain);
    // The log-loss of the base rate is 0.56.
    assert!(found.parse::<f64>().unwrap() < 0.3, "{found}");
    assert_eq!(found, loss(&packed));
}

#[test]
fn bad_logs_are_refused_by_line() {
    let dir = TempDir::new().unwrap();
    let good = log(20);
    for (name, content, found) in [
        ("few", good.clone() + "1\t2\t3\n", "found \"3 fields\" in line 21"),
        ("many", good.replacen('\n', "\t0\n", 1), "found \"41 fields\" in line 1"),
        ("label", good.clone() + &good.replacen("0\t", "7\t", 1), "wanted a label of 0 or 1, found \"7\""),
        ("hex", good.replacen("\tab", "\tno hex", 1), "as category 2 of 26, found \"no hex\" in line 1"),
        ("integer", good.replacen("\t3\t", "\t3.5\t", 1), "as count 1 of 13, found \"3.5\" in line 4"),
        ("empty", String::new(), "at least 7 lines"),
    ] {
        let path = write(&dir, name, content.as_bytes());
        refused(&["--criteo", text(&path)], 1, &[text(&path), "wanted", found, "; "]);
    }
    refused(&["--criteo", "no/such/file"], 1, &["no/such/file: wanted a readable file"]);
}

#[test]
fn bad_options_are_refused() {
    refused(&["--cardinalities", "1"], 2, &["--cardinalities", "wanted a cap", "found \"1\""]);
    refused(&["--cardinalities", "5,6,7"], 2, &["found 3 numbers"]);
    refused(&["--task", "author", "--cardinalities", "50"], 2, &["wanted --task dlrm beside it, found author"]);
    refused(&["--table", "C3=int5"], 2, &["fp32, fp16, int8, int4, int2", "'int5'"]);
    refused(&["--cardinalities", "50", "--table", "D3=int4"], 2, &["--table D3", "C1, C2, C3"]);
}

/// A table with its own setting is trained beside plain FP32, and the report names its setting.
#[test]
fn a_generated_log_with_a_setting_of_its_own_for_a_table() {
    let args = ["--cardinalities", "2000", "--limit", "2000", "--table", "C3=int2:nearest:lfu:10"];
    let found = stdout(&train(&args).success());
    let row =
        |name: &str| found.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {found}"));
    let loss = |row: &str| row.split('|').nth(2).unwrap().trim().parse::<f64>().unwrap();
    let (plain, mixed) = (row("| fp32  "), row("| fp32; C3 int2 nearest, 10 % lfu"));
    assert_ne!(loss(plain), loss(mixed));
    assert!(found.contains("generated click log") && found.contains("best reachable log-loss"), "{found}");
    assert!(found.contains("% of the way from the base rate's"), "{found}");
}
