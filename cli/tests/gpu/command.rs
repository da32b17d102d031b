//! The command on the GPU: the real kernels give the counts of the simulator.

use crate::common::command::{ended, hotrow, read, value};
use crate::common::plan::words;
use crate::common::records::{goal, number, records};
use serde_json::Value;
use std::path::Path;

use hotrow_harness::device::with_gpu;

fn simulate(backend: &str, trace: &str, batch: &str) -> Value {
    let policies = "--policy lru,lfu,window --window-ways 0,4";
    let line = format!("simulate --trace {trace} {policies} --batch {batch} --cache-percent 2,10 --backend {backend}");
    value(&words(&line))
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
    let plan = format!("plan --verify --trace {trace} --backend {backend} --seed {seed} --dim 8 --budget 32KiB");
    let plan = value(&words(&(plan + " --precision int4 --optimizer adagrad")));
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

/// Runs `hotrow bench` in a folder. Returns what it printed and the report that it wrote.
fn bench(folder: &Path, args: &str, report: &str) -> (String, Value) {
    let (out, _) = ended(hotrow(&words(&format!("bench {args} --backend gpu"))).current_dir(folder), 0);
    (out, read(folder.join(report)))
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
        let sizes =
            "--rows 40000 --dim 8 --batch 100 --precision int4,fp32 --policy lfu --seconds 1 --hit-rate 0,50,100";
        let (out, report) = bench(folder.path(), &format!("{sizes} --page-kib 4,64"), "results/bench.json");
        assert_eq!(out.contains("software adapter"), !context.caps().is_hardware(), "{out}");
        placements_are_compared(&report, context.caps().mappable);
        for point in records(&report, "forward", &[("kind", "cached".into())]) {
            let setting = |name: &str| point["setting"][name].as_f64().unwrap();
            assert!((setting("hits") - setting("aim")).abs() < 5.0, "{point}");
        }
        // Pages are predicted and moved at every hit rate. Where no row is hot, larger pages bring more bytes, and all take their time.
        let resident =
            figure(&report, "forward", &[("precision", "FP32".into()), ("kind", "cached".into()), ("aim", 100.into())]);
        for kind in ["uvm model", "uvm pages"] {
            let of = |what: &str| records(&report, what, &[("kind", kind.into())]);
            assert_eq!((of("forward").len(), of("table bytes read").len()), (2 * 3, 2 * 3), "{kind}");
            let cold = |what: &str| {
                [4, 64].map(|kib| {
                    figure(&report, what, &[("kind", kind.into()), ("page KiB", kib.into()), ("aim", 0.into())])
                        .unwrap()
                })
            };
            let [small, large] = cold("table bytes read");
            assert!(100.0 * 4096.0 < small && small < large, "{kind}: {small} {large}");
            assert!(cold("forward").into_iter().all(|seconds| seconds > resident.unwrap()), "{kind}");
        }
        assert!(out.contains("UVM model, 4 KiB, moved"), "{out}");
    });
}

/// Each case of a suite has its times, and each of these kernels, and every other, the bytes that it must move.
fn kernels_are_whole(suite: &Value, kernels: &[&str]) {
    assert_eq!((&suite["schema"], &suite["command"]), (&2.into(), &"bench suite".into()));
    assert!(records(suite, "rate", &[("shape", "copy".into())]).iter().all(|rate| number(rate) > 0.0));
    for case in records(suite, "accesses", &[]) {
        let these = [("shape", case["shape"].clone())];
        let (of_kernels, whole): (Vec<&Value>, Vec<&Value>) = records(suite, "dispatches", &these)
            .into_iter()
            .partition(|record| record["setting"]["kernel"].is_string());
        assert_eq!(of_kernels.iter().map(|record| number(record)).sum::<f64>(), number(whole[0]), "{case}");
        assert!(figure(suite, "forward", &these).unwrap() > 0.0 && number(case) > 0.0 && whole.len() == 1, "{case}");
        // A stage without a formula is a stage that was renamed and forgotten in suite/bytes.rs.
        assert_eq!(records(suite, "must move", &these).len(), of_kernels.len(), "{case}");
    }
    for kernel in kernels {
        let moved = records(suite, "must move", &[("kernel", (*kernel).into())]);
        assert!(moved.into_iter().any(|one| number(one) > 0.0), "{kernel}");
    }
}

/// Figures of the suite that follow from its shapes: bytes of the bus, hits, sums of times, ratios of times.
fn figures_are_right(suite: &Value) {
    let of = |what: &str, shape: &str| figure(suite, what, &[("shape", shape.into())]).unwrap_or(f64::NAN);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    let mut right = vec![
        (
            "bytes counted and copied",
            goal(suite, "bus_bytes")["met"] == true && suite["wrong"] == serde_json::json!([]),
        ),
        // 136 B a record against 512 B.
        ("packed bytes", goal(suite, "packed_bytes")["reached"] == 136.0 / 512.0),
        ("hits", of("hit rate", "hits-uniform") == 1.0 && of("hit rate", "uncached-int8") == 0.0),
        ("low precision", records(suite, "backward against FP32", &[]).len() == 6),
        ("pinned", (of("hit rate", "pinned-1024") - 0.95).abs() < 1e-3 && of("hit rate", "pinned-0") == 0.0),
        ("pinned bytes", of("forward table bytes", "pinned-0") > 4.0 * of("forward table bytes", "pinned-128")),
    ];
    let paces = records(suite, "pace", &[]);
    for pace in &paces {
        let shape = pace["shape"].as_str().unwrap();
        let (read, written, copied) = (of("counted in", shape), of("counted out", shape), of("copied", shape));
        // Lists and notes add bytes, but fewer than the records have.
        let plausible = copied > 1.1 * (read + written) && copied < 3.0 * (read + written);
        let staged = pace["setting"]["placement"] == "staged";
        right.push(("pace", read == 60.0 * 136.0 && written > 0.0 && plausible == staged && of("hits", shape) == 0.95));
    }
    for precision in ["FP32", "INT8"] {
        let of = |precision: &str, what| {
            figure(suite, what, &[("shape", "readers".into()), ("precision", precision.into())]).unwrap_or(f64::NAN)
        };
        let flushed = of(precision, "flushed") / of(precision, "raw");
        // A slot has 256 B, a look-up reads 128 B of tags.
        let cached = of(precision, "cached") / of("FP32", "raw") / 1.5;
        right.push(("flushed readers", near(of(precision, "flushed against raw"), flushed)));
        right.push(("cached readers", near(of(precision, "cached against raw with tags"), cached)));
    }
    let steps = records(suite, "step", &[("shape", "grid".into())]);
    for step in &steps {
        let place = [("shape", "grid".into()), ("tables", step["setting"]["tables"].clone())];
        let parts = ["grid", "forward", "coordinates", "backward"].iter().map(|what| figure(suite, what, &place));
        right.push(("grid", parts.sum::<Option<f64>>().is_some_and(|sum| near(sum, number(step)))));
    }
    let copies = records(suite, "rate", &[("path", "within device memory".into())]);
    let copy = copies.into_iter().map(number).fold(0.0, f64::max);
    let rows = ["read", "update"].map(|what| (what, records(suite, &format!("random {what}"), &[])));
    for (what, row) in rows.iter().flat_map(|(what, rows)| rows.iter().map(move |row| (what, row))) {
        let place = ["row bytes", "table MiB"].map(|name| (name, row["setting"][name].clone()));
        let share = figure(suite, &format!("{what} of copy"), &place);
        right.push(("random rows of copy", share.is_some_and(|share| near(share, number(row) / copy))));
    }
    // Rows of 64, 256, 1,024 and 4,096 B in three tables.
    right.push(("random rows", rows.iter().all(|(_, rows)| rows.len() == 12)));
    right.push(("parts", paces.len() >= 2 && steps.len() == 3));
    right.into_iter().for_each(|(what, right)| assert!(right, "{what}"));
}

#[test]
fn the_suite_measures_every_kernel() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(
            folder.path().join("beside.json"),
            r#"{"sorts": [{"name": "cub", "pairs": 16777216, "pairs_per_second": 1e10}]}"#,
        )
        .unwrap();
        let parts = "random,hits,small,sort,uncached,staged,low-precision,pinned,readers,grid";
        let args =
            format!("suite --size small --only {parts} --commit abc --out out --seconds 900 --beside beside.json");
        let (out, suite) = bench(folder.path(), &args, "out/suite.json");
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        for file in ["suite.json", "suite.csv", "goals.md", "suite-random.svg", "suite-random.png"] {
            assert!(folder.path().join("out").join(file).is_file() && out.contains(file), "{file}:\n{out}");
        }
        assert_eq!((&suite["commit"], &suite["size"]), (&"abc".into(), &"small".into()));
        assert_eq!(suite["machines"][0]["timestamp_step"].is_number(), context.caps().timestamps);
        // Of a goal without a figure, the reason stands in its place.
        let goals = suite["goals"].as_array().unwrap();
        assert!(goals.iter().all(|goal| goal["reached"].is_number() || goal["why"].is_string()), "{goals:?}");
        let kernels = ["linearize", "probe", "sort", "admit", "exchange", "gather", "arrange", "update"];
        kernels_are_whole(&suite, &kernels);
        assert_eq!(suite["left_out"], serde_json::json!([]));
        figures_are_right(&suite);
        // Numbers of dispatches are judged on any driver; times only on a card.
        let judged = |id: &str| goal(&suite, id)["met"].is_boolean();
        assert!(judged("forward_dispatches") && judged("step_dispatches"));
        assert!(!judged("gather"));
        assert!(goal(&suite, "gather")["reached"].is_number() && goal(&suite, "nvidia_step")["reached"].is_null());
    });
}

/// The records of NVIDIA's whole shape are there.
fn is_whole(suite: &Value, mapped: bool) {
    let mut names = vec![("nvidia-full", 600_000.0), ("nvidia-18-pieces", 200_000.0), ("nvidia-2-pieces", 200_000.0)];
    if mapped {
        names.extend([("nvidia-full-device", 600_000.0), ("nvidia-18-pieces-device", 200_000.0)]);
    }
    for (name, rows) in names {
        let of = |what: &str| figure(suite, what, &[("shape", name.into())]);
        let pieces = if name == "nvidia-2-pieces" { 2.0 } else { 18.0 };
        assert_eq!((of("pieces"), of("record bytes")), (Some(pieces), Some(140.0 * rows)), "{name}");
        let has_ratio = pieces == 18.0 && !name.ends_with("device");
        assert_eq!(of("step against 2 pieces").is_some(), has_ratio, "{name}");
        assert!(["made", "step"].into_iter().all(|what| of(what).unwrap() > 0.0), "{name}");
    }
    assert_eq!(goal(suite, "nvidia_full_step")["reached"].is_number(), mapped);
}

#[test]
fn the_whole_shape_is_measured_only_if_it_is_named() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let suite = |args: &str| {
            bench(folder.path(), &format!("suite --size small --commit abc --out out {args}"), "out/suite.json").1
        };
        let named = suite("--only nvidia-full");
        assert_eq!(named["left_out"], serde_json::json!([]));
        is_whole(&named, context.caps().mappable);
        // Without names: some parts, then no time for the others, of which the whole shape is none.
        let all = suite("--seconds 3");
        let left_out = all["left_out"].as_array().unwrap();
        let has = |name: &str| left_out.iter().any(|one| one["what"] == name);
        assert!(has("small") && !has("nvidia-full"), "{left_out:?}");
    });
}

#[test]
fn shared_tables_are_measured_on_the_device() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        // Only small arrays and narrow rows.
        let args = "robe --size small --out out --dim 8 --batch 64 --memory 20KB --commit abc --seconds 60";
        let (out, report) = bench(folder.path(), args, "out/robe-gpu.json");
        assert_eq!(out.contains("software adapter: these figures show"), !context.caps().is_hardware(), "{out}");
        let array = [("shape", Value::from("array"))];
        let refused = |name: &str| {
            let all = report["left_out"].as_array().unwrap().iter();
            all.filter(|one| {
                one["what"].as_str().unwrap().contains(name) && one["why"].as_str().unwrap().contains("--memory")
            })
            .count()
        };
        let arrays = records(&report, "forward", &array).len();
        assert!(arrays > 5 && refused(" rows at 10x") > 0, "{report}");
        for way in ["dense update", "sparse update", "atomic update"] {
            let measured = records(&report, way, &array);
            assert!(measured.iter().all(|one| number(one) > 0.0), "{way}");
            assert_eq!(measured.len() + refused(&format!("{way} of")), arrays, "{way}");
        }
        // The sizes are not those of the goals, so goals are shown, but neither met nor missed.
        assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["met"].is_null()));
    });
}
