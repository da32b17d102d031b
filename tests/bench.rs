//! `hotrow bench` from outside, on the CPU: what it writes, and what it refuses.

use assert_cmd::Command;

fn bench(folder: &std::path::Path, args: &[&str]) -> assert_cmd::assert::Assert {
    // No driver at all: the command must get along without.
    let mut command = Command::cargo_bin("hotrow").expect("the command is built with the tests");
    command.env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent").current_dir(folder);
    command.arg("bench").args(args).assert()
}

const SMALL: [&str; 8] = ["--rows", "40000", "--dim", "8", "--batch", "100", "--seconds", "1"];

#[test]
fn without_a_driver_it_says_so_and_measures_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let done = bench(folder.path(), &SMALL).success();
    let output = done.get_output();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(err.contains("running on the CPU backend") && err.contains("no adapter"), "{err}");
    for file in ["bench-cpu-forward.svg", "bench-cpu-forward.png", "bench-cpu-backward.svg", "bench.json", "bench.csv"]
    {
        assert!(folder.path().join("results").join(file).is_file(), "{file}");
        assert!(out.contains(file), "{file} is named:\n{out}");
    }
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("results/bench.json")).unwrap()).unwrap();
    assert_eq!(report["command"], "bench");
    let points = report["points"].as_array().unwrap();
    // 5 precisions x (2 policies x 7 hit rates + 1 without a cache) and the model's 7.
    assert_eq!(points.len(), 5 * (2 * 7 + 1) + 7);
    for point in points {
        let number = |name: &str| point[name].as_f64().unwrap();
        let (kind, rate) = (point["kind"].as_str().unwrap(), number("hit_rate"));
        match kind {
            "cached" => {
                // Sets are hashed, so a few hot rows may find no way.
                assert!((rate - number("target_hit_rate")).abs() < 0.05, "{point}");
            }
            "uncached" => assert_eq!(rate, 0.0),
            _ => assert_eq!(kind, "uvm model"),
        }
        for direction in ["forward", "backward"] {
            let times = if direction == "backward" { 2.0 } else { 1.0 };
            let bytes = times * 4.0 * 8.0 * (100.0 + 5.0);
            let wanted = bytes * 1e-9 / number(&format!("{direction}_seconds"));
            let found = number(&format!("{direction}_logical_gb_s"));
            assert!((found / wanted - 1.0).abs() < 1e-9, "{point}");
        }
    }
}

#[test]
fn the_gpu_is_not_replaced_behind_ones_back() {
    let folder = tempfile::tempdir().unwrap();
    let failed = bench(folder.path(), &["--backend", "gpu"]).code(1);
    let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    assert!(err.contains("wanted a Vulkan, Metal or DX12 driver, the device has no adapter"), "{err}");
    assert_eq!(err.trim().lines().count(), 1, "{err}");
}

#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [&[&str]; 12] = [
        &["--precision", "int3"],
        &["--policy", "fifo"],
        &["--policy", "static"],
        &["--hit-rate", "101"],
        &["--hit-rate", "nan"],
        &["--dim", "0"],
        &["--batch", "0"],
        &["--seconds", "0"],
        &["--rows", "5000000000"],
        &["--page-kib", "3"],
        &["--bus-gb-s", "0"],
        &["--fault-us", "nan"],
    ];
    for case in cases {
        bench(folder.path(), case).code(2);
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut args = SMALL.to_vec();
    args.extend(["--out", "file", "--precision", "fp32", "--policy", "lru", "--hit-rate", "50"]);
    bench(folder.path(), &args).code(1);
}
