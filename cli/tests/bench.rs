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

/// A run of `--robe` on the CPU: small tables, and narrow rows so that it is short.
fn robe(folder: &std::path::Path, more: &[&str]) -> (String, serde_json::Value) {
    let mut args =
        vec!["--robe", "--backend", "cpu", "--size", "small", "--dim", "16", "--batch", "32", "--out", "out"];
    args.extend(more);
    let done = bench(folder, &args).success();
    let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
    let json = std::fs::read(folder.join("out/robe-cpu.json")).expect("the command names what it wrote");
    (out, serde_json::from_slice(&json).expect("the command writes JSON"))
}

/// Where a report of `--robe` is not as the schema says, or has a figure that cannot be.
fn robe_wrong(report: &serde_json::Value) -> Option<String> {
    if report["schema"] != 2 || report["command"] != "bench --robe" || report["backend"] != "cpu" {
        return Some(format!("{} {} {}", report["schema"], report["command"], report["backend"]));
    }
    let cells = report["cells"].as_array()?;
    if cells.len() != 90 {
        return Some(format!("{} cells", cells.len()));
    }
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    // What is compared with each other, and the key of what the rule loses there.
    let pairs = [("update", "regret"), ("gradient", "gradient_regret")];
    let ways = ["dense_update", "sparse_update", "dense_gradient", "sparse_gradient", "atomic_update"];
    let lowest = |cell: &serde_json::Value, way: &str| cell["steps"][way]["backward"]["lowest"].as_f64();
    for cell in cells {
        let number = |key: &str| cell[key].as_u64();
        let [weights, chunk, touched] = ["weights", "chunk", "touched"].map(|key| number(key).unwrap_or(0));
        let right = if cell["refused"].is_null() {
            // Dense and sparse updates are measured; the others too, or why not is said.
            let measured = ways.iter().enumerate().all(|(i, way)| {
                let step = &cell["steps"][way];
                match cell["ways_refused"][way].as_str() {
                    None => positive(&step["forward"]["median"]) && positive(&step["backward"]["median"]),
                    Some(reason) => i > 1 && reason.len() > 10 && step.is_null(),
                }
            });
            // By places for an update, by what they may touch at most for a gradient.
            let of = |dense: bool| if dense { "dense" } else { "sparse" };
            let starts = number("starts").unwrap_or(0);
            let choices = [of(starts >= weights / 32), of(weights <= touched)];
            let lost = pairs.iter().zip(choices).all(|((what, key), choice)| {
                let way = |how: &str| lowest(cell, &format!("{how}_{what}"));
                match (way("dense").zip(way("sparse")), cell[key].as_f64()) {
                    (None, None) => *what != "update",
                    (Some((dense, sparse)), Some(regret)) => {
                        let taken = if choice == "dense" { dense } else { sparse };
                        (regret - (taken / dense.min(sparse) - 1.0)).abs() < 1e-9
                    }
                    _ => false,
                }
            });
            let covered = number("covered").unwrap_or(0);
            measured
                && lost
                && [&cell["auto"], &cell["gradient_auto"]] == choices
                && (1..=32 * 16_u64.div_ceil(chunk)).contains(&starts)
                && (chunk.min(16)..=touched.min(weights)).contains(&covered)
                && touched == 32 * 16_u64.div_ceil(chunk) * chunk.min(16)
        } else {
            let none = |key: &str| cell[key].as_object().is_some_and(serde_json::Map::is_empty);
            cell["refused"].as_str().is_some_and(|reason| reason.len() > 10) && none("steps") && none("ways_refused")
        };
        if !right {
            return Some(cell.to_string());
        }
    }
    let refused = cells.iter().filter(|cell| !cell["refused"].is_null()).count()
        + cells.iter().map(|cell| cell["ways_refused"].as_object().map_or(0, serde_json::Map::len)).sum::<usize>();
    let named = report["left_out"].as_array()?.len();
    if named != refused {
        return Some(format!("{refused} cells refused, {named} named"));
    }
    // Where atomic is at least 5 % faster than the better of the others: counted again.
    let share =
        |cell| Some(lowest(cell, "atomic_update")? / lowest(cell, "dense_update")?.min(lowest(cell, "sparse_update")?));
    let shares: Vec<f64> = cells.iter().filter_map(share).collect();
    let (faster, atomic) = (shares.iter().filter(|share| **share < 0.95).count() as u64, shares.len());
    let sum = |key: &str| report["atomic"].as_array()?.iter().map(|one| one[key].as_u64()).sum::<Option<u64>>();
    let counted = (sum("faster"), sum("cells"));
    let verdict = report["verdict"].as_str()?;
    let said = if faster == 0 { "nowhere faster".to_owned() } else { format!("in {faster} of {atomic} cells") };
    if counted != (Some(faster), Some(atomic as u64)) || !(verdict.contains(&said) || atomic == 0) {
        return Some(format!("{faster} faster, found {counted:?}: {verdict}"));
    }
    // Of Auto, for all and for each size of chunks: counted again.
    for (what, key) in pairs {
        for chunk in [None, Some(1u64), Some(2), Some(4), Some(8), Some(16), Some(32)] {
            let these = cells.iter().filter(|cell| chunk.is_none_or(|chunk| cell["chunk"] == chunk));
            let lost: Vec<f64> = these.filter_map(|cell| cell[key].as_f64()).collect();
            let same = |one: &&serde_json::Value| one["of"] == what && one["chunk"].as_u64() == chunk;
            let found: Vec<_> = report["regrets"].as_array()?.iter().filter(same).collect();
            let figures =
                |one: &serde_json::Value| Some((one["cells"].as_u64()?, one["mean"].as_f64()?, one["worst"].as_f64()?));
            let right = match found[..] {
                [] => lost.is_empty(),
                [one] => figures(one).is_some_and(|(n, mean, worst)| {
                    let sum: f64 = lost.iter().sum();
                    n == lost.len() as u64
                        && (mean - sum / lost.len() as f64).abs() < 1e-9
                        && worst == lost.iter().copied().fold(0.0, f64::max)
                }),
                _ => false,
            };
            let crossovers = report["crossovers"].as_array()?.iter();
            let crossed = crossovers.filter(|one| one["of"] == what && one["chunk"].as_u64() == chunk);
            if !right || crossed.count() != usize::from(chunk.is_some() && !lost.is_empty()) {
                return Some(format!("{what}, chunks of {chunk:?}: {found:?}"));
            }
        }
    }
    None
}

#[test]
fn shared_tables_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = robe(folder.path(), &[]);
    assert_eq!(robe_wrong(&report), None);
    for file in [
        "robe-cpu.json",
        "robe-cpu.csv",
        "robe-cpu.md",
        "robe-cpu-heat.png",
        "robe-cpu-heat.svg",
        "robe-cpu-crossover.png",
    ] {
        assert!(folder.path().join("out").join(file).is_file() && out.contains(file), "{file}:\n{out}");
    }
    // 16 K rows x 16 at 10,000x are 25 weights: less than a chunk of 32.
    let refused = |cell: &&serde_json::Value| !cell["refused"].is_null();
    let cells = report["cells"].as_array().unwrap();
    let none: Vec<_> = cells.iter().filter(refused).collect();
    assert_eq!(none.len(), 1, "{none:?}");
    assert!(none[0]["weights"] == 25 && none[0]["refused"].as_str().unwrap().contains("a chunk of 32"), "{}", none[0]);
    assert!(out.contains("Left out: 16 K rows at 10000x in chunks of 32: "), "{out}");
    assert!(out.contains("Not P4's sizes") && out.contains("P4 table 14") && out.contains("Figure 3 (f)"), "{out}");
    // Of updates and gradients: tables, a line in the plot, a column in the CSV; and where an atomic update is faster.
    let svg = std::fs::read_to_string(folder.path().join("out/robe-cpu-crossover.svg")).unwrap();
    let ways = ["dense update", "sparse update", "atomic update", "dense gradient", "sparse gradient"];
    assert!(ways.iter().all(|way| svg.contains(&format!(">{way}<"))), "{svg}");
    let heat = std::fs::read_to_string(folder.path().join("out/robe-cpu-heat.svg")).unwrap();
    let panels = ["(b) dense gradient", "(f) sparse gradient", "dense update", "sparse update", "atomic update"];
    assert!(panels.iter().all(|panel| heat.contains(&format!(">{panel}<"))), "{heat}");
    let csv = std::fs::read_to_string(folder.path().join("out/robe-cpu.csv")).unwrap();
    let (head, lines) = csv.split_once('\n').unwrap();
    assert_eq!(lines.lines().count(), 90);
    for way in ways {
        let column = |figure| format!(",{}_{figure}_seconds,", way.replace(' ', "_"));
        assert!(head.contains(&column("median")) && head.contains(&column("lowest")), "{way}: {head}");
    }
    let updates = "dense / sparse / atomic update (atomic: sums of one thread, index by index): rows against chunk";
    assert!(out.contains(updates) && out.contains("P4 table 10, Figure 3 (f): sparse gradient: rows"), "{out}");
    for what in ["Crossover of dense and sparse update.", "Crossover of dense and sparse gradient.", "always sparse |"]
    {
        assert!(out.contains(what), "{what}: {out}");
    }
    // Flat or not is said of what was measured.
    let goals = report["goals"].as_array().unwrap();
    let flat = goals.iter().find(|goal| goal["id"] == "robe_flat").unwrap()["reached"].as_f64().unwrap();
    let said = format!("takes at most {flat:.2} times as long as the fastest");
    let verdict = if flat <= 1.1 { "within the goal of 1.1" } else { "above the goal of 1.1" };
    let line = out.lines().find(|line| line.starts_with("One array, several numbers of rows")).unwrap();
    assert!(line.contains(&said) && line.contains(verdict), "{line}");
    for id in ["robe_dense_gradient", "robe_sparse_gradient"] {
        assert!(goals.iter().any(|goal| goal["id"] == id && goal["reached"].as_f64() > Some(0.0)), "{id}");
    }
    assert!(out.contains(report["verdict"].as_str().unwrap()), "{out}");
    // Tables of each kind in bags of 20 and of 1; without a GPU no goal is met or missed.
    let beside = report["beside"].as_array().unwrap();
    assert_eq!(beside.len(), 12);
    assert!(beside.iter().all(|one| one["forward"]["median"].as_f64().unwrap() > 0.0));
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["met"].is_null()));
    // The companion: what is missing or cannot be is noticed.
    let at = cells.iter().position(|cell| cell["refused"].is_null()).unwrap();
    for (key, value) in [
        ("auto", "neither".into()),
        ("gradient_auto", "neither".into()),
        ("starts", 0.into()),
        ("covered", 0.into()),
        ("regret", 9.0.into()),
        ("gradient_regret", serde_json::Value::Null),
        ("refused", "no".into()),
        ("steps", serde_json::json!({})),
        ("ways_refused", serde_json::json!({"dense_gradient": "found no room for it"})),
    ] {
        let mut broken = report.clone();
        broken["cells"][at][key] = value;
        assert!(robe_wrong(&broken).is_some(), "{key}");
    }
    for (key, value) in [
        ("verdict", "Atomic update is faster in 91 of 90 cells".into()),
        ("atomic", serde_json::json!([])),
        ("regrets", serde_json::json!([])),
        ("crossovers", serde_json::json!([])),
    ] {
        let mut broken = report.clone();
        broken[key] = value;
        assert!(robe_wrong(&broken).is_some(), "{key}");
    }
    for way in ways.map(|way| way.replace(' ', "_")) {
        let mut broken = report.clone();
        broken["cells"][at]["steps"][&way]["backward"]["median"] = 0.into();
        assert!(robe_wrong(&broken).is_some(), "{way}");
    }
    let mut broken = report.clone();
    broken["regrets"][0]["mean"] = 0.9.into();
    assert!(robe_wrong(&broken).is_some());
    let mut broken = report.clone();
    broken["left_out"] = serde_json::json!([]);
    assert!(robe_wrong(&broken).is_some());
    broken["cells"].as_array_mut().unwrap().pop();
    assert!(robe_wrong(&broken).is_some());
}

#[test]
fn arrays_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // P4's rows, of which memory for the smallest arrays only.
    let args = ["--robe", "--backend", "cpu", "--size", "full", "--batch", "16", "--memory", "300KB", "--out", "out"];
    bench(folder.path(), &args).success();
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("out/robe-cpu.json")).unwrap()).unwrap();
    let reason = |weights: u64| {
        let cells = report["cells"].as_array().unwrap();
        let cell = cells.iter().find(|cell| cell["weights"] == weights && cell["chunk"] == 32).unwrap();
        cell["refused"].as_str().map(str::to_owned)
    };
    assert_eq!(reason(51_200), None, "4 M at 10,000x");
    // Of its 200 KiB both updates and the few sums of a sparse gradient, but not as many bytes of sums beside them.
    let cells = report["cells"].as_array().unwrap();
    let small = cells.iter().find(|cell| cell["weights"] == 51_200 && cell["chunk"] == 32).unwrap();
    assert!(small["steps"]["sparse_update"].is_object() && small["steps"]["sparse_gradient"].is_object(), "{small}");
    for way in ["atomic_update", "dense_gradient"] {
        assert!(small["steps"][way].is_null(), "{small}");
        assert!(small["ways_refused"][way].as_str().unwrap().contains("--memory"), "{small}");
    }
    assert_eq!(small["gradient_regret"], serde_json::Value::Null);
    let csv = std::fs::read_to_string(folder.path().join("out/robe-cpu.csv")).unwrap();
    assert!(csv.contains("dense gradient: memory: ") && csv.contains("; atomic update: memory: "), "{csv}");
    assert_eq!(report["verdict"], "Atomic update was measured nowhere.");
    for what in ["atomic update of 4 M", "dense gradient of 4 M"] {
        let all = report["left_out"].as_array().unwrap();
        assert!(all.iter().any(|one| one.as_str().unwrap().starts_with(what)), "{what}");
    }
    assert!(reason(1_638_400_000).unwrap().contains("--memory"), "128 M at 10x");
    assert!(reason(3_276_800_000).unwrap().contains("the prime 2038074743"), "256 M at 10x");
    // Nothing at all is no result.
    let mut args = args.to_vec();
    args[8] = "1KB";
    let failed = bench(folder.path(), &args).code(1);
    let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
    assert!(err.contains("wanted measurements, found none") && err.trim().lines().count() == 1, "{err}");
}

#[test]
fn bad_usage_of_robe_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [&[&str]; 8] = [
        &["--robe", "--suite"],
        &["--robe", "--precision", "int8"],
        &["--robe", "--rows", "1000"],
        &["--robe", "--only", "sort"],
        &["--robe", "--memory", "much"],
        &["--robe", "--size", "huge"],
        &["--memory", "1GB"],
        &["--robe", "--backend", "cpu", "--optimizer", "row-wise-adagrad"],
    ];
    for case in cases {
        bench(folder.path(), case).code(2);
    }
    // What only the model of unified memory reads is refused by its name elsewhere, and read there.
    for (option, value) in [("--page-kib", "128"), ("--bus-gb-s", "3"), ("--fault-us", "1")] {
        for mode in ["--robe", "--suite"] {
            let failed = bench(folder.path(), &[mode, option, value]).code(2);
            let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
            assert!(err.contains(mode) && err.contains(option), "{mode} {option}: {err}");
        }
    }
    let mut args = SMALL.to_vec();
    args.extend(["--precision", "fp32", "--policy", "lru", "--hit-rate", "50"]);
    args.extend(["--page-kib", "128", "--bus-gb-s", "3", "--fault-us", "1"]);
    bench(folder.path(), &args).success();
    let failed = bench(folder.path(), &["--robe", "--backend", "gpu"]).code(1);
    assert!(String::from_utf8_lossy(&failed.get_output().stderr).contains("no adapter"));
}
