//! The command on the GPU: the real kernels count what the simulator counts.

use assert_cmd::Command;

use hotrow_harness::device::with_gpu;

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

/// The runs of `plan --verify`: what is counted, and whether that is what was predicted.
fn verified(backend: &str, trace: &str, seed: &str) -> Vec<(bool, Vec<f64>)> {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::cargo_bin("hotrow").unwrap();
    command.args(["plan", "--verify", "--trace", trace, "--backend", backend, "--seed", seed, "--dim", "8"]);
    command.args(["--budget", "32KiB", "--precision", "int4", "--optimizer", "adagrad"]);
    command.arg("--json").arg(&json).assert().success();
    let plan: serde_json::Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let run = |run: &serde_json::Value| {
        let measures = run["measures"].as_array().unwrap();
        (run["within"] == true, measures.iter().map(|measure| measure["counted"].as_f64().unwrap()).collect())
    };
    plan["verify"].as_array().unwrap().iter().map(run).collect()
}

#[test]
fn plans_hold_on_the_device() {
    with_gpu(|_| {
        for trace in ["zipf:rows=4000,s=1.05,n=20000", "zipf:rows=900,s=0.7,n=20000", "uniform:rows=3000,n=20000"] {
            let gpu = verified("gpu", trace, "1");
            assert!(gpu.len() == 2 && gpu[0].0 && gpu[0].1.iter().all(|&counted| counted > 0.0), "{trace}: {gpu:?}");
            assert_eq!(gpu, verified("cpu", trace, "1"), "{trace}");
            assert_ne!(gpu, verified("cpu", trace, "2"), "the comparison can fail");
        }
    });
}

/// Tables in host memory stand beside the one on the device, with the bytes that crossed in each pass: INT4 x 8 takes 12 a record.
fn placements_are_compared(points: &[serde_json::Value], mappable: bool) {
    let crossed = |placement: &str, kind: &str| -> Vec<[f64; 2]> {
        let these = points.iter().filter(|point| point["placement"] == placement && point["kind"] == kind);
        let these = these.filter(|point| point["precision"] == "INT4");
        let bytes = |point: &serde_json::Value, pass: &str| {
            let number = |name: String| point[name].as_f64().unwrap();
            number(format!("{pass}_bus_gb_s")) * 1e9 * number(format!("{pass}_seconds"))
        };
        these.map(|point| ["forward", "backward"].map(|pass| bytes(point, pass))).collect()
    };
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.01 * wanted;
    for placement in if mappable { &["device", "mapped"][..] } else { &["device"] } {
        let uncached = crossed(placement, "uncached");
        assert!(uncached.len() == 1 && uncached[0].iter().all(|&bytes| near(bytes, 100.0 * 12.0)), "{uncached:?}");
        assert!(!near(uncached[0][0], 101.5 * 12.0));
    }
    // Records in and out, the list of them, and at most the room kept for more of it.
    let [forward, backward] = crossed("staged", "uncached")[0];
    let rows = |bytes: f64| 100.0 * bytes;
    assert!((rows(12.0 + 12.0 + 16.0)..rows(12.0 + 16.0 + 32.0) + 256.0).contains(&forward), "{forward}");
    assert_eq!(backward, 0.0);
    let staged = crossed("staged", "cached");
    assert!(staged.len() == 3 && staged[0][0] > staged[1][0] && staged[1][0] > staged[2][0], "{staged:?}");
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
        let points = report["points"].as_array().unwrap();
        placements_are_compared(points, context.caps().mappable);
        for point in points {
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

/// Where the suite's figures of what crosses the bus, and of windows, cannot be: bytes that steps counted follow from the records.
fn placements_wrong(suite: &serde_json::Value) -> Option<String> {
    let goal = |id: &str| suite["goals"].as_array().unwrap().iter().find(|goal| goal["id"] == id).unwrap();
    let case = |name: &str| suite["cases"].as_array().unwrap().iter().find(|case| case["name"] == name);
    if goal("bus_bytes")["met"] != true || suite["wrong"] != serde_json::json!([]) {
        return Some(format!("{} {}", goal("bus_bytes"), suite["wrong"]));
    }
    // 136 B a record against 512.
    if goal("packed_bytes")["reached"] != 136.0 / 512.0 {
        return Some(goal("packed_bytes").to_string());
    }
    let windows =
        |name: &str| case(name).and_then(|case| case["shape"].as_str()).map(|shape| shape.contains("1 windows"));
    let cut = ["windows-one", "windows-cut", "windows-large"].map(windows);
    if cut != [Some(true), Some(false), Some(false)] {
        return Some(format!("windows: {cut:?}"));
    }
    let paces = suite["paces"].as_array()?;
    for pace in paces {
        let bytes = |key: &str| pace[key].as_f64();
        let records = bytes("counted_bytes_in").zip(bytes("counted_bytes_out")).map(|(a, b)| (a, b, a + b));
        // Lists and notes come on top, but do not outweigh the records.
        let plausible = records.is_some_and(|(read, written, both)| {
            let copied = bytes("copied_bytes");
            read == 60.0 * 136.0
                && written > 0.0
                && copied.is_none_or(|copied| copied > 1.1 * both && copied < 3.0 * both)
        });
        if !plausible || bytes("copied_bytes").is_some() != (pace["placement"] == "staged") || pace["hit_rate"] != 0.95
        {
            return Some(pace.to_string());
        }
    }
    (paces.len() < 2).then(|| format!("{} paces", paces.len()))
}

/// Where the suite's figures of pinned rows cannot be: P3's shapes are all there, and a hot batch moves nothing.
fn pinned_wrong(suite: &serde_json::Value) -> Option<String> {
    let (Some(steps), Some(epochs)) = (suite["pinned"]["steps"].as_array(), suite["pinned"]["epochs"].as_array())
    else {
        return Some(suite["pinned"].to_string());
    };
    let of = |kind: &'static str, cache: u64| {
        steps
            .iter()
            .filter(move |step| step["kind"] == kind && step["cache_mb"] == cache && step["placement"] != "device")
    };
    for step in steps {
        let number = |key: &str| step[key].as_f64().unwrap_or(f64::NAN);
        let (rate, bytes) = (number("hit_rate"), number("bytes_in") + number("bytes_out"));
        let right = match step["kind"].as_str().unwrap_or_default() {
            "hot" => rate == 1.0 && bytes == 0.0,
            "normal" => rate < 1.0 && bytes > 0.0,
            "even" => step["cache_mb"] == 0 && rate == 0.0 || (rate - 0.95).abs() < 3e-3,
            _ => step["cache_mb"] != 0 || rate == 0.0 && bytes > 0.0,
        };
        if !right || number("step_seconds") <= 0.0 || number("pinned_rows") > number("cache_rows") {
            return Some(step.to_string());
        }
    }
    // A larger cache holds more: fewer bytes for the same batches.
    let mixed: Vec<f64> =
        [0, 128, 256, 512, 1024].iter().filter_map(|&cache| of("mixed", cache).next()?["bytes_in"].as_f64()).collect();
    let counts = [of("hot", 256).count(), of("normal", 256).count(), of("even", 1024).count(), mixed.len()];
    if counts != [5, 5, 2, 5] || !mixed.is_sorted_by(|a, b| a >= b) || mixed[0] == mixed[4] {
        return Some(format!("{counts:?} {mixed:?}"));
    }
    (epochs.len() != 5).then(|| format!("{} epochs", epochs.len()))
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
        command
            .args([
                "--only",
                "hits,small,sort,uncached,staged,pinned,windows",
                "--commit",
                "abc",
                "--out",
                "out",
                "--beside",
            ])
            .arg(&beside);
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
        assert_eq!(placements_wrong(&suite), None);
        assert_eq!(pinned_wrong(&suite), None);
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
        let hot = suite["pinned"]["steps"].as_array().unwrap().iter().position(|step| step["kind"] == "hot").unwrap();
        for (key, value) in [("bytes_in", 1.0), ("hit_rate", 0.99), ("step_seconds", 0.0)] {
            broken = suite.clone();
            broken["pinned"]["steps"][hot][key] = value.into();
            assert!(pinned_wrong(&broken).is_some(), "{key}");
        }
        broken = suite.clone();
        broken["pinned"]["steps"].as_array_mut().unwrap().remove(hot);
        assert!(pinned_wrong(&broken).is_some());
        broken["pinned"] = serde_json::Value::Null;
        assert!(pinned_wrong(&broken).is_some());
        let paces = suite["paces"].as_array().unwrap().len();
        for (pace, key) in (0..paces).flat_map(|pace| ["counted_bytes_in", "copied_bytes"].map(|key| (pace, key))) {
            broken = suite.clone();
            broken["paces"][pace][key] = 1.into();
            assert!(placements_wrong(&broken).is_some() || broken["paces"][pace]["placement"] == "mapped", "{key}");
        }
        broken = suite.clone();
        broken["cases"].as_array_mut().unwrap().retain(|case| case["name"] != "windows-cut");
        assert!(placements_wrong(&broken).is_some());
    });
}

#[test]
fn shared_tables_are_measured_on_the_device() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        command.current_dir(folder.path()).args([
            "bench",
            "--robe",
            "--backend",
            "gpu",
            "--size",
            "small",
            "--out",
            "out",
        ]);
        // Small arrays only, and narrow rows.
        command.args(["--dim", "8", "--batch", "64", "--memory", "20KB", "--commit", "abc", "--seconds", "60"]);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        let report: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("out/robe-gpu.json")).unwrap()).unwrap();
        assert_eq!((&report["backend"], &report["commit"]), (&"gpu".into(), &"abc".into()));
        let cells = report["cells"].as_array().unwrap();
        let measured: Vec<_> = cells.iter().filter(|cell| cell["refused"].is_null()).collect();
        assert!(measured.len() > 10, "{} of {}", measured.len(), cells.len());
        let stage = |step: &serde_json::Value, name: &str| {
            step["stages"].as_array().unwrap().iter().any(|stage| stage["stage"] == name)
        };
        for (way, last, must) in [
            ("dense_update", "robe_update", true),
            ("sparse_update", "robe_update", true),
            // What has no room says so.
            ("dense_gradient", "robe_gradient", false),
            ("sparse_gradient", "robe_covered", false),
        ] {
            let mut steps = 0;
            for cell in &measured {
                let step = &cell["steps"][way];
                if step.is_null() {
                    assert!(!must && cell["ways_refused"][way].as_str().unwrap().contains("--memory"), "{way}: {cell}");
                    continue;
                }
                steps += 1;
                assert!(step["backward"]["median"].as_f64().unwrap() > 0.0, "{way}: {cell}");
                assert!(stage(step, "robe_gather") && stage(step, last), "{way}: {cell}");
                assert!(!stage(step, "probe"), "the comparison can fail");
            }
            assert!(steps > 5, "{way}: {steps} of {}", measured.len());
        }
        // Of other sizes than the goals': shown, neither met nor missed.
        assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["met"].is_null()));
        // Tables beside them that are larger than that are named, not measured.
        let beside = report["beside"].as_array().unwrap();
        let small = |one: &&serde_json::Value| one["bytes"].as_u64().unwrap() <= 20_000;
        let measured = |one: &serde_json::Value| one["forward"]["median"].as_f64().is_some_and(|median| median > 0.0);
        assert!(beside.iter().all(|one| measured(one) == small(&one) && one["refused"].is_null() == small(&one)));
        assert!(beside.iter().any(measured), "the comparison can fail");
    });
}
