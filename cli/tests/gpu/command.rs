//! The command on the GPU: the real kernels give the counts of the simulator.

use crate::common::records::{broken, number, records};
use assert_cmd::Command;
use serde_json::Value;

use hotrow_harness::device::with_gpu;

fn simulate(backend: &str, trace: &str, batch: &str) -> Value {
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
            // One batch larger than the trace finds an empty cache.
            assert_eq!(gpu[0]["hits"].as_u64().unwrap() > 0, batch != "100000");
        }
        // In batches of one, every access is a step of its own.
        let short = "zipf:rows=200,s=1.05,n=300";
        assert_eq!(simulate("gpu", short, "1"), simulate("cpu", short, "1"));
        assert_ne!(simulate("gpu", trace, "1000"), simulate("cpu", trace, "1001"), "the comparison can fail");
    });
}

/// The runs of `plan --verify`: the counted figures, and whether they match the prediction.
fn verified(backend: &str, trace: &str, seed: &str) -> Vec<(bool, Vec<f64>)> {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::cargo_bin("hotrow").unwrap();
    command.args(["plan", "--verify", "--trace", trace, "--backend", backend, "--seed", seed, "--dim", "8"]);
    command.args(["--budget", "32KiB", "--precision", "int4", "--optimizer", "adagrad"]);
    command.arg("--json").arg(&json).assert().success();
    let plan: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let run = |run: &Value| {
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

/// The figure of the only record of this kind.
fn figure(report: &Value, what: &str, wanted: &[(&str, Value)]) -> Option<f64> {
    match records(report, what, wanted)[..] {
        [record] => Some(number(record)),
        _ => None,
    }
}

fn goal<'r>(report: &'r Value, id: &str) -> &'r Value {
    report["goals"].as_array().unwrap().iter().find(|goal| goal["id"] == id).unwrap()
}

/// Tables in host memory against the table on the device, with the bytes that crossed in each pass. A record of INT4 x 8 has 12 bytes.
fn placements_are_compared(report: &Value, mappable: bool) {
    let crossed = |placement: &str, kind: &str| -> Vec<[f64; 2]> {
        let wanted = [("placement", placement.into()), ("kind", kind.into()), ("precision", "INT4".into())];
        let bytes = |pass: &str| -> Vec<f64> {
            let rates = records(report, &format!("{pass} crossed"), &wanted);
            let seconds = records(report, pass, &wanted);
            rates.iter().zip(seconds).map(|(rate, seconds)| number(rate) * number(seconds)).collect()
        };
        bytes("forward").into_iter().zip(bytes("backward")).map(|(forward, backward)| [forward, backward]).collect()
    };
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.01 * wanted;
    for placement in if mappable { &["device", "mapped"][..] } else { &["device"] } {
        let uncached = crossed(placement, "uncached");
        assert!(uncached.len() == 1 && uncached[0].iter().all(|&bytes| near(bytes, 100.0 * 12.0)), "{uncached:?}");
        assert!(!near(uncached[0][0], 101.5 * 12.0));
    }
    // Records in and out, the list of the records, and at most the spare room of that list.
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
        command.current_dir(folder.path());
        let sizes = "bench --backend gpu --rows 40000 --dim 8 --batch 100 --precision int4 --policy lfu --seconds 1";
        command.args(sizes.split(' ')).args(["--hit-rate", "0,50,100", "--page-kib", "4,64"]);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter"), !context.caps().is_hardware(), "{out}");
        let report = std::fs::read(folder.path().join("results/bench.json")).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        placements_are_compared(&report, context.caps().mappable);
        for point in records(&report, "forward", &[("kind", "cached".into())]) {
            let setting = |name: &str| point["setting"][name].as_f64().unwrap();
            assert!((setting("hits") - setting("aim")).abs() < 5.0, "{point}");
        }
        // The baseline moves real pages at every hit rate.
        let moved = |what: &str| records(&report, what, &[("kind", "uvm pages".into())]);
        let (seconds, bytes) = (moved("forward"), moved("table bytes read"));
        assert_eq!((seconds.len(), bytes.len()), (2 * 3, 2 * 3));
        assert!(seconds.into_iter().chain(bytes).all(|record| number(record) > 0.0));
        assert!(out.contains("UVM model, 4 KiB, moved"), "{out}");
    });
}

/// The first place where a report of `suite` breaks the schema, lacks a kernel of `kernels`, or has an impossible figure.
fn wrong(suite: &Value, kernels: &[&str]) -> Option<String> {
    let copies = records(suite, "rate", &[("shape", "copy".into())]);
    if suite["schema"] != 2 || suite["command"] != "bench suite" || copies.iter().any(|rate| number(rate) <= 0.0) {
        return Some(format!("{} {} {copies:?}", suite["schema"], suite["command"]));
    }
    for key in ["adapter", "backend", "driver", "timing"] {
        if suite["machines"][0][key].as_str().is_none_or(str::is_empty) {
            return Some(format!("machine: {key}"));
        }
    }
    for case in records(suite, "accesses", &[]) {
        let name = &case["shape"];
        let these = [("shape", name.clone())];
        let dispatches = records(suite, "dispatches", &these);
        let (of_kernels, whole): (Vec<&Value>, Vec<&Value>) =
            dispatches.into_iter().partition(|record| record["setting"]["kernel"].is_string());
        let all: f64 = of_kernels.iter().map(|record| number(record)).sum();
        if whole.len() != 1 || all != number(whole[0]) {
            return Some(format!("{name}: dispatches"));
        }
        if figure(suite, "forward", &these).is_none_or(|seconds| seconds <= 0.0) || number(case) <= 0.0 {
            return Some(format!("{name}: forward"));
        }
        // A stage without a formula is a stage that was renamed and forgotten in suite/bytes.rs.
        if records(suite, "must move", &these).len() != of_kernels.len() {
            return Some(format!("{name}: a kernel without a formula"));
        }
    }
    for kernel in kernels {
        if !records(suite, "must move", &[("kernel", (*kernel).into())]).iter().any(|record| number(record) > 0.0) {
            return Some((*kernel).to_owned());
        }
    }
    None
}

/// The first wrong figure of the suite about bytes that cross the bus, or about windows. The bytes that steps count must follow from the
/// records.
fn placements_wrong(suite: &Value) -> Option<String> {
    if goal(suite, "bus_bytes")["met"] != true || suite["wrong"] != serde_json::json!([]) {
        return Some(format!("{} {}", goal(suite, "bus_bytes"), suite["wrong"]));
    }
    // 136 B a record against 512 B.
    if goal(suite, "packed_bytes")["reached"] != 136.0 / 512.0 {
        return Some(goal(suite, "packed_bytes").to_string());
    }
    let of = |what: &str, shape: &str| figure(suite, what, &[("shape", shape.into())]);
    let cut = ["windows-one", "windows-cut", "windows-large"].map(|shape| of("windows", shape));
    if cut[0] != Some(1.0) || cut[1..].iter().any(|windows| windows.is_none_or(|windows| windows < 2.0)) {
        return Some(format!("windows: {cut:?}"));
    }
    let paces = records(suite, "pace", &[]);
    for pace in &paces {
        let shape = pace["shape"].as_str().unwrap();
        // Lists and notes add bytes, but fewer than the records have.
        let plausible = of("counted in", shape).zip(of("counted out", shape)).is_some_and(|(read, written)| {
            let both = read + written;
            read == 60.0 * 136.0
                && written > 0.0
                && of("copied", shape).is_none_or(|copied| copied > 1.1 * both && copied < 3.0 * both)
        });
        let staged = pace["setting"]["placement"] == "staged";
        if !plausible || of("copied", shape).is_some() != staged || of("hits", shape) != Some(0.95) {
            return Some(pace.to_string());
        }
    }
    (paces.len() < 2).then(|| format!("{} paces", paces.len()))
}

/// The first wrong figure of the suite about pinned rows. All shapes of SCARS must be there, and a hot batch must move no row.
fn pinned_wrong(suite: &Value) -> Option<String> {
    let pinned = ("shape", Value::from("pinned"));
    for step in records(suite, "step", std::slice::from_ref(&pinned)) {
        let place: Vec<(&str, Value)> = ["batches", "placement", "cache MB", "batch"]
            .into_iter()
            .map(|name| (name, step["setting"][name].clone()))
            .chain([pinned.clone()])
            .collect();
        let value = |what: &str| figure(suite, what, &place).unwrap_or(f64::NAN);
        let (rate, bytes) = (value("hit rate"), value("bytes in") + value("bytes out"));
        let uncached = step["setting"]["cache MB"] == 0.0;
        let right = match step["setting"]["batches"].as_str().unwrap_or_default() {
            "hot" => rate == 1.0 && bytes == 0.0,
            "normal" => rate < 1.0 && bytes > 0.0,
            "even" => uncached && rate == 0.0 || (rate - 0.95).abs() < 3e-3,
            _ => rate > 0.0 || uncached && rate == 0.0 && bytes > 0.0,
        };
        if !right || number(step) <= 0.0 || value("pinned rows").is_nan() {
            return Some(step.to_string());
        }
    }
    let of = |kind: &str, cache: u32| -> Vec<f64> {
        let wanted = [pinned.clone(), ("batches", kind.into()), ("cache MB", cache.into())];
        let all = records(suite, "bytes in", &wanted).into_iter();
        all.filter(|record| record["setting"]["placement"] != "device").map(number).collect()
    };
    // A larger cache holds more rows, so the same batches move fewer bytes.
    let mixed: Vec<f64> =
        [0, 128, 256, 512, 1024].iter().filter_map(|&cache| of("mixed", cache).first().copied()).collect();
    let counts = [of("hot", 256).len(), of("normal", 256).len(), of("even", 1024).len(), mixed.len()];
    if counts != [5, 5, 2, 5] || !mixed.is_sorted_by(|a, b| a >= b) || mixed[0] == mixed[4] {
        return Some(format!("{counts:?} {mixed:?}"));
    }
    let epochs = records(suite, "bytes saved", &[("shape", "epoch".into())]).len();
    (epochs != 5).then(|| format!("{epochs} epochs"))
}

/// The first wrong figure of the suite about readers: a time that is missing, or a ratio of other times.
fn readers_wrong(suite: &Value) -> Option<String> {
    for (precision, stage) in
        ["FP32", "FP16", "INT8"].into_iter().flat_map(|name| ["compute", "fragment"].map(|stage| (name, stage)))
    {
        let place = [("shape", "readers".into()), ("precision", precision.into()), ("stage", stage.into())];
        let of = |what: &str| figure(suite, what, &place).filter(|&value| value > 0.0).unwrap_or(f64::NAN);
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        // A slot has 256 B, a look-up reads 128 B of tags.
        let ratios = near(of("flushed against raw"), of("flushed") / of("raw, record"))
            && near(of("cached against raw with tags"), of("cached") / of("raw, slot") / 1.5)
            && near(of("cached against frozen forward"), of("cached") / of("frozen forward"));
        if !ratios {
            return Some(format!("{precision}, {stage}"));
        }
    }
    let rates = records(suite, "cached", &[("shape", "readers by hit rate".into())]).len();
    let times = ["want", "feedback", "pump"].map(|what| records(suite, what, &[("shape", "feedback".into())]));
    let counts = times.each_ref().map(Vec::len);
    let positive = times.iter().flatten().all(|record| number(record) > 0.0);
    (rates != 8 || counts != [2, 2, 1] || !positive).then(|| format!("{rates} {counts:?} {positive}"))
}

/// The first wrong figure of the suite about hash grids: a time that is missing, or a step that is not the sum of its parts.
fn grid_wrong(suite: &Value) -> Option<String> {
    let steps = records(suite, "step", &[("shape", "grid".into())]);
    let parts = |tables: &Value| {
        let of = |what: &&str| figure(suite, what, &[("shape", "grid".into()), ("tables", tables.clone())]);
        ["grid", "forward", "coordinates", "backward"].iter().map(of).sum::<Option<f64>>()
    };
    let sum = |step: &Value| (parts(&step["setting"]["tables"])? / number(step) - 1.0).abs().partial_cmp(&1e-9);
    let wrong = steps.iter().find(|step| sum(step) != Some(std::cmp::Ordering::Less));
    wrong.map(|step| step.to_string()).or((steps.len() != 4).then(|| format!("{} steps", steps.len())))
}

#[test]
fn the_suite_measures_every_kernel() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let beside = folder.path().join("beside.json");
        std::fs::write(&beside, r#"{"sorts": [{"name": "cub", "pairs": 16777216, "pairs_per_second": 1e10}]}"#)
            .unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        let parts = "hits,small,sort,uncached,staged,pinned,windows,readers,feedback,grid";
        command.current_dir(folder.path()).args(["bench", "suite", "--backend", "gpu", "--size", "small"]);
        command.args(["--only", parts, "--commit", "abc", "--out", "out", "--beside"]).arg(&beside);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        for file in ["suite.json", "suite.csv", "goals.md", "suite-kernels.svg", "suite-kernels.png", "suite-work.png"]
        {
            assert!(folder.path().join("out").join(file).is_file() && out.contains(file), "{file}:\n{out}");
        }
        let suite = std::fs::read(folder.path().join("out/suite.json")).unwrap();
        let suite: Value = serde_json::from_slice(&suite).unwrap();
        assert_eq!((&suite["commit"], &suite["size"]), (&"abc".into(), &"small".into()));
        let kernels = ["linearize", "probe", "sort", "admit", "exchange", "gather", "arrange", "update"];
        assert_eq!(wrong(&suite, &kernels), None);
        assert_eq!(suite["left_out"], serde_json::json!([]));
        assert_eq!(figure(&suite, "hit rate", &[("shape", "hits-uniform".into())]), Some(1.0));
        // This run does not measure nvidia_step, and the report does not claim it.
        assert!(
            goal(&suite, "gather")["reached"].as_f64().is_some() && goal(&suite, "nvidia_step")["reached"].is_null()
        );
        assert_eq!(placements_wrong(&suite), None);
        assert_eq!(pinned_wrong(&suite), None);
        assert_eq!(grid_wrong(&suite), None);
        assert_eq!(readers_wrong(&suite), None);
        assert!(std::fs::read_to_string(folder.path().join("out/goals.md")).unwrap().contains("unmeasured"));
        // The companion: missing figures and impossible figures are noticed.
        assert!(wrong(&suite, &["teleport"]).is_some());
        let of = |what: &'static str, shape: &'static str| {
            move |record: &Value| record["what"] == what && record["shape"] == shape
        };
        for value in [None, Some(1.0)] {
            assert!(wrong(&broken(&suite, of("dispatches", "hits-uniform"), value), &kernels).is_some());
        }
        for value in [None, Some(1.0)] {
            assert!(grid_wrong(&broken(&suite, of("backward", "grid"), value)).is_some());
        }
        assert!(wrong(&broken(&suite, of("must move", "hits-uniform"), None), &kernels).is_some());
        assert!(wrong(&broken(&suite, of("rate", "copy"), Some(0.0)), &kernels).is_some());
        let hot = |what: &'static str| {
            move |record: &Value| of(what, "pinned")(record) && record["setting"]["batches"] == "hot"
        };
        for (what, value) in [("bytes in", 1.0), ("hit rate", 0.99), ("step", 0.0)] {
            assert!(pinned_wrong(&broken(&suite, hot(what), Some(value))).is_some(), "{what}");
        }
        assert!(pinned_wrong(&broken(&suite, hot("bytes in"), None)).is_some());
        assert!(pinned_wrong(&broken(&suite, |record| record["shape"] == "pinned", None)).is_some());
        for (what, value) in [("cached", None), ("flushed against raw", Some(0.5)), ("pump", Some(0.0))] {
            assert!(readers_wrong(&broken(&suite, |record| record["what"] == what, value)).is_some(), "{what}");
        }
        for what in ["counted in", "copied"] {
            let changed = broken(&suite, |record| record["what"] == what, Some(1.0));
            assert!(placements_wrong(&changed).is_some(), "{what}");
        }
        assert!(placements_wrong(&broken(&suite, |record| record["shape"] == "windows-cut", None)).is_some());
    });
}

/// What is wrong with the records of NVIDIA's whole shape.
fn whole_wrong(suite: &Value, mapped: bool) -> Option<String> {
    let suffixes = if mapped { &["", "-device"][..] } else { &[""] };
    for suffix in suffixes {
        for (name, shards, rows) in [
            ("nvidia-full", 18.0, 600_000.0),
            ("nvidia-18-shards", 18.0, 200_000.0),
            ("nvidia-2-shards", 2.0, 200_000.0),
        ] {
            let name = format!("{name}{suffix}");
            let of = |what: &str| figure(suite, what, &[("shape", name.as_str().into())]);
            let sizes = of("shards") == Some(shards) && of("record bytes") == Some(140.0 * rows);
            let times = ["made", "filled", "fill rate", "step"].map(of);
            let ratio = of("step against 2 shards").is_some() == (shards == 18.0);
            if !sizes || !ratio || !times.iter().all(|time| time.is_some_and(|time| time > 0.0)) {
                return Some(format!("{name}: {times:?}"));
            }
        }
    }
    let reached = goal(suite, "nvidia_full_step")["reached"].as_f64();
    (reached.is_some() != mapped).then(|| format!("{reached:?}"))
}

#[test]
fn the_whole_shape_is_measured_only_if_it_is_named() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let suite = |args: &[&str]| -> Value {
            let mut command = Command::cargo_bin("hotrow").unwrap();
            command.current_dir(folder.path()).args(["bench", "suite", "--backend", "gpu", "--size", "small"]);
            command.args(["--commit", "abc", "--out", "out"]).args(args).assert().success();
            serde_json::from_slice(&std::fs::read(folder.path().join("out/suite.json")).unwrap()).unwrap()
        };
        let named = suite(&["--only", "nvidia-full"]);
        assert_eq!(named["left_out"], serde_json::json!([]));
        let mapped = context.caps().mappable;
        assert_eq!(whole_wrong(&named, mapped), None);
        // The companion.
        for (what, value) in [("shards", Some(17.0)), ("filled", None), ("step against 2 shards", None)] {
            let changed = |record: &Value| record["what"] == what && record["shape"] == "nvidia-full";
            assert!(whole_wrong(&broken(&named, changed, value), mapped).is_some(), "{what}");
        }
        // Without names: some parts, then no time for the others, of which the whole shape is none.
        let all = suite(&["--seconds", "8"]);
        let left_out: Vec<&str> =
            all["left_out"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
        assert!(left_out.contains(&"tbe") && !left_out.contains(&"nvidia-full"), "{left_out:?}");
        assert!(goal(&all, "nvidia_full_step")["reached"].is_null());
    });
}

#[test]
fn shared_tables_are_measured_on_the_device() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        command.current_dir(folder.path()).args("bench robe --backend gpu --size small --out out".split(' '));
        // Only small arrays and narrow rows.
        command.args("--dim 8 --batch 64 --memory 20KB --commit abc --seconds 60".split(' '));
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        let report: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("out/robe-gpu.json")).unwrap()).unwrap();
        assert_eq!(report["commit"], "abc");
        let array = [("shape", Value::from("array"))];
        let cells = records(&report, "forward", &array).len();
        assert!(cells > 10, "{cells} cells");
        let stage = |way: &str, name: &str| {
            !records(&report, "stage", &[("way", way.into()), ("stage", name.into())]).is_empty()
        };
        let refused = |way: &str| {
            let all = report["left_out"].as_array().unwrap().iter();
            let these = all.filter(|one| one["what"].as_str().unwrap().starts_with(way));
            these.filter(|one| one["why"].as_str().unwrap().contains("--memory")).count()
        };
        // A gradient without room gets a message.
        for (way, last) in [
            ("dense update", "robe_update"),
            ("sparse update", "robe_update"),
            ("dense gradient", "robe_gradient"),
            ("sparse gradient", "robe_covered"),
        ] {
            let measured = records(&report, way, &array);
            assert!(measured.len() > 5 && measured.iter().all(|one| number(one) > 0.0), "{way}: {}", measured.len());
            assert_eq!(measured.len() + refused(way), cells, "{way}");
            assert!(stage(way, last), "{way}");
            assert!(!stage(way, "probe"), "the comparison can fail");
        }
        assert!(stage("dense update", "robe_gather") && refused("dense update") == 0);
        // The sizes are not those of the goals, so goals are shown, but neither met nor missed.
        assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["met"].is_null()));
        // The report names comparison tables above the size limit, and does not measure them.
        let beside = [("shape", Value::from("beside"))];
        let small = records(&report, "memory", &beside).into_iter().filter(|one| number(one) <= 20_000.0).count();
        let measured = records(&report, "forward", &beside);
        assert!(measured.len() == small && small > 0 && measured.iter().all(|one| number(one) > 0.0));
        let named = report["left_out"].as_array().unwrap().iter();
        assert_eq!(named.filter(|one| one["what"].as_str().unwrap().contains(" in bags of ")).count(), 12 - small);
    });
}
