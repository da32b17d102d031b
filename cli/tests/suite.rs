//! `hotrow bench suite` from outside: the input that it refuses, and its message without a GPU. `cli/tests/gpu/command.rs` runs it on a
//! GPU.

use crate::common::command::without_drivers;
use assert_cmd::Command;

fn suite(folder: &std::path::Path, args: &[&str]) -> assert_cmd::assert::Assert {
    // The command sees no driver at all.
    let mut command = Command::cargo_bin("hotrow").expect("the command is built with the tests");
    without_drivers(&mut command).current_dir(folder).arg("bench").args(args).assert()
}

#[test]
fn without_a_gpu_it_says_so_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    for (backend, hint) in [("auto", true), ("gpu", false)] {
        let failed = suite(folder.path(), &["suite", "--backend", backend]).code(1);
        let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
        assert!(err.starts_with("error: ") && err.contains("no adapter"), "{err}");
        assert_eq!(err.contains("--backend gpu takes a software driver too"), hint, "{err}");
        assert_eq!(err.trim().lines().count(), 1, "{err}");
    }
}

#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [&[&str]; 6] = [
        &["suite", "--predict", "h200"],
        &["suite", "--size", "huge"],
        &["suite", "--only", "everything"],
        &["--only", "sort"],
        &["suite", "--page-kib", "64"],
        &["suite", "--backend", "cpu"],
    ];
    for case in cases {
        suite(folder.path(), case).code(2);
    }
    // An unreadable file is found before the first measurement.
    let failed = suite(folder.path(), &["suite", "--beside", "missing.json"]).code(2);
    let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    let wanted = "error: --beside: wanted JSON written by benches/side_by_side.py, found missing.json: ";
    assert!(err.starts_with(wanted) && err.ends_with("; run that script on this machine\n"), "{err}");
}
