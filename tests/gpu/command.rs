//! The command on the GPU: the real kernels count what the simulator counts.

use assert_cmd::Command;

use crate::device::with_gpu;

fn simulate(backend: &str, trace: &str, batch: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::cargo_bin("hotrow").unwrap();
    command.args([
        "simulate",
        "--trace",
        trace,
        "--batch",
        batch,
        "--cache-percent",
        "2,10",
        "--backend",
        backend,
        "--json",
    ]);
    command.arg(&json).assert().success();
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn simulate_counts_the_same_on_both_backends() {
    with_gpu(|_| {
        let trace = "zipf:rows=3000,s=1.05,n=20000";
        for batch in ["1000", "7777", "100000"] {
            let gpu = simulate("gpu", trace, batch);
            assert_eq!(gpu, simulate("cpu", trace, batch), "batches of {batch}");
            // One batch that is larger than the trace finds an empty cache.
            assert_eq!(gpu[0]["hits"].as_u64().unwrap() > 0, batch != "100000");
        }
        // Batches of one, where every access is a step of its own.
        let short = "zipf:rows=200,s=1.05,n=300";
        assert_eq!(simulate("gpu", short, "1"), simulate("cpu", short, "1"));
        assert_ne!(simulate("gpu", trace, "1000"), simulate("cpu", trace, "1001"), "the comparison can fail");
    });
}

#[test]
fn bench_labels_a_software_adapter() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        command.current_dir(folder.path()).args([
            "bench",
            "--backend",
            "gpu",
            "--rows",
            "40000",
            "--dim",
            "8",
            "--batch",
            "100",
        ]);
        command.args([
            "--precision",
            "int4",
            "--policy",
            "lfu",
            "--hit-rate",
            "0,50,100",
            "--seconds",
            "1",
            "--page-kib",
            "4,64",
        ]);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter"), !context.caps().is_hardware(), "{out}");
        let report = std::fs::read(folder.path().join("results/bench.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        for point in report["points"].as_array().unwrap() {
            if point["kind"] == "cached" {
                let wrong = point["hit_rate"].as_f64().unwrap() - point["target_hit_rate"].as_f64().unwrap();
                assert!(wrong.abs() < 0.05, "{point}");
            }
        }
        // Pages really moved at every hit rate.
        let moved: Vec<_> =
            report["points"].as_array().unwrap().iter().filter(|point| point["kind"] == "uvm pages").collect();
        assert_eq!(moved.len(), 2 * 3);
        for point in moved {
            let bytes = |key: &str| point[key].as_u64().unwrap() * point["steps"].as_u64().unwrap();
            assert!(
                bytes("bus_bytes_read_per_step") > 0 && point["forward_seconds"].as_f64().unwrap() > 0.0,
                "{point}"
            );
            assert!(point["timing"] != "predicted", "{point}");
        }
        assert!(out.contains("UVM model, 4 KiB, moved"), "{out}");
    });
}

/// Where `suite` is not as the schema says, or has a figure that cannot be; with every kernel of `kernels` in some case.
fn wrong(suite: &serde_json::Value, kernels: &[&str]) -> Option<String> {
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    if suite["schema"] != 1 || suite["command"] != "bench --suite" || !positive(&suite["copy_bytes_per_second"]) {
        return Some(format!("{} {}", suite["schema"], suite["copy_bytes_per_second"]));
    }
    for key in ["adapter", "backend", "driver", "timing"] {
        if suite["machine"][key].as_str().is_none_or(str::is_empty) {
            return Some(format!("machine: {key}"));
        }
    }
    let cases = suite["cases"].as_array()?;
    for case in cases {
        let dispatches =
            |list: &serde_json::Value| list.as_array().map(|all| all.iter().map(|k| k["dispatches"].as_u64()).sum());
        if dispatches(&case["kernels"]) != Some(case["dispatches"].as_u64()) {
            return Some(format!("{}: dispatches", case["name"]));
        }
        if !positive(&case["forward"]["median"]) || !positive(&case["facts"]["accesses"]) {
            return Some(format!("{}: {} {}", case["name"], case["forward"], case["facts"]));
        }
    }
    // A stage without a formula is a stage that was renamed and forgotten in suite/bytes.rs.
    if let Some(unknown) =
        cases.iter().filter_map(|case| case["kernels"].as_array()).flatten().find(|k| k["bytes"].is_null())
    {
        return Some(unknown["kernel"].to_string());
    }
    let all = || cases.iter().filter_map(|case| case["kernels"].as_array()).flatten();
    for kernel in kernels {
        if !all().any(|found| found["kernel"] == *kernel && positive(&found["bytes"])) {
            return Some((*kernel).to_owned());
        }
    }
    None
}

#[test]
fn the_suite_measures_every_kernel() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join("beside.json");
        std::fs::write(&beside, r#"{"sorts": [{"name": "cub", "pairs": 16777216, "pairs_per_second": 1e10}]}"#)
            .unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        command.current_dir(folder.path()).args(["bench", "--suite", "--backend", "gpu", "--size", "small"]);
        command.args(["--only", "hits,small,sort", "--commit", "abc", "--out", "out", "--beside"]).arg(&beside);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        for file in ["suite.json", "goals.md", "suite-kernels.svg", "suite-kernels.png", "suite-work.png"] {
            assert!(folder.path().join("out").join(file).is_file() && out.contains(file), "{file}:\n{out}");
        }
        let suite = std::fs::read(folder.path().join("out/suite.json")).unwrap();
        let suite: serde_json::Value = serde_json::from_slice(&suite).unwrap();
        assert_eq!((&suite["commit"], &suite["size"]), (&"abc".into(), &"small".into()));
        let kernels = ["linearize", "probe", "sort", "admit", "exchange", "gather", "arrange", "update"];
        assert_eq!(wrong(&suite, &kernels), None);
        assert_eq!(suite["left_out"], serde_json::json!([]));
        let hits = &suite["cases"][0];
        assert!(hits["name"] == "hits-uniform" && hits["hit_rate"] == 1.0, "{hits}");
        // Not measured here, and not said to be.
        let goal = |id: &str| suite["goals"].as_array().unwrap().iter().find(|goal| goal["id"] == id).unwrap().clone();
        assert!(goal("gather")["reached"].as_f64().is_some() && goal("nvidia_step")["reached"].is_null());
        assert!(std::fs::read_to_string(folder.path().join("out/goals.md")).unwrap().contains("unmeasured"));
        // The companion: what is missing or cannot be is noticed.
        assert!(wrong(&suite, &["teleport"]).is_some());
        let mut broken = suite.clone();
        broken["cases"][0]["dispatches"] = 1.into();
        assert!(wrong(&broken, &kernels).is_some());
        broken = suite.clone();
        broken["cases"][0]["kernels"][0]["bytes"] = serde_json::Value::Null;
        assert!(wrong(&broken, &kernels).is_some());
        broken["copy_bytes_per_second"] = 0.into();
        assert!(wrong(&broken, &kernels).is_some());
    });
}
