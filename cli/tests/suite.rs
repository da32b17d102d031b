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
fn a_prediction_needs_no_gpu() {
    let folder = tempfile::tempdir().unwrap();
    for backend in ["auto", "cpu"] {
        let args =
            ["suite", "--predict", "h200", "--only", "sort,staged", "--backend", backend, "--json", "goals.json"];
        let done = suite(folder.path(), &args).success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        let line = |name: &str| {
            out.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {out}")).to_owned()
        };
        assert!(line("| goal").contains("predicted (h200)"), "{out}");
        let sort = line("against CUB");
        assert!(sort.contains("unmeasured") && sort.trim_end_matches(" |").ends_with('%'), "{sort}");
        for name in ["against lampshade", "share of the host's part", "NVIDIA's shape"] {
            assert!(line(name).contains("unmeasured") && line(name).contains("not predicted"), "{}", line(name));
        }
        assert!(line("| scatter").contains("sort of 16777216 pairs"), "{out}");
        assert!(out.contains("Left out: staged: not predicted: it needs a device."), "{out}");
    }
    let text = std::fs::read_to_string(folder.path().join("goals.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["predicted"], &json["machines"]), (&"h200".into(), &serde_json::json!([])));
    assert!(folder.path().join("results/predicted.csv").exists());
}

#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [&[&str]; 9] = [
        &["suite", "--predict", "another"],
        &["suite", "--size", "huge"],
        &["suite", "--only", "everything"],
        &["--size", "small"],
        &["--only", "sort"],
        &["--beside", "file"],
        &["suite", "--precision", "int8"],
        &["suite", "--dim", "8"],
        &["suite", "--backend", "cpu"],
    ];
    for case in cases {
        suite(folder.path(), case).code(2);
    }
    // An unreadable file is found before the first measurement.
    let failed = suite(folder.path(), &["suite", "--beside", "missing.json"]).code(2);
    let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    assert!(
        err.starts_with("error: --beside: wanted JSON written by benches/side_by_side.py, found missing.json: "),
        "{err}"
    );
    assert!(err.ends_with("; run that script on this machine\n"), "{err}");
}
