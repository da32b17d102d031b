//! `hotrow bench` and `bench robe` from outside, on the CPU: the files they write, and the input they refuse.

use crate::common::command::without_drivers;
use crate::common::records::{broken, number, records};
use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

fn bench(folder: &Path, args: &[&str]) -> assert_cmd::assert::Assert {
    // The command must work without any driver.
    let mut command = Command::cargo_bin("hotrow").expect("the command is built with the tests");
    without_drivers(&mut command).current_dir(folder).arg("bench").args(args).assert()
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the command names what it wrote")).expect("JSON")
}

const SMALL: [&str; 8] = ["--rows", "40000", "--dim", "8", "--batch", "100", "--seconds", "1"];

#[test]
fn without_a_driver_it_says_so_and_measures_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let done = bench(folder.path(), &SMALL).success();
    let output = done.get_output();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(err.contains("running on the CPU backend") && err.contains("no adapter"), "{err}");
    for file in [
        "bench-cpu-forward.svg",
        "bench-cpu-forward.png",
        "bench-cpu-backward.svg",
        "bench.json",
        "bench.csv",
        "bench.md",
    ] {
        assert!(folder.path().join("results").join(file).is_file(), "{file}");
        assert!(out.contains(file), "{file} is named:\n{out}");
    }
    let report = read(&folder.path().join("results/bench.json"));
    assert_eq!((&report["schema"], &report["command"]), (&2.into(), &"bench".into()));
    let of = |what: &str, kind: &str| records(&report, what, &[("kind", kind.into())]).len();
    // 5 precisions x (2 policies x 7 hit rates, and 1 without a cache), and the model's 7.
    for what in ["forward", "backward", "forward logical", "backward crossed", "table bytes read"] {
        assert_eq!([of(what, "cached"), of(what, "uncached"), of(what, "uvm model")], [5 * 2 * 7, 5, 7], "{what}");
    }
    for point in records(&report, "forward", &[]) {
        let setting = |name: &str| point["setting"][name].as_f64().unwrap();
        match point["setting"]["kind"].as_str().unwrap() {
            // Sets are hashed, so a few hot rows may find no way.
            "cached" => assert!((setting("hits") - setting("aim")).abs() < 5.0, "{point}"),
            "uncached" => assert_eq!(setting("hits"), 0.0),
            kind => assert_eq!(kind, "uvm model"),
        }
        assert_eq!(point["unit"], "seconds");
    }
    for (direction, times) in [("forward", 1.0), ("backward", 2.0)] {
        let (seconds, logical) =
            (records(&report, direction, &[]), records(&report, &format!("{direction} logical"), &[]));
        assert_eq!(seconds.len(), logical.len());
        for (seconds, logical) in seconds.into_iter().zip(logical) {
            assert_eq!(seconds["setting"], logical["setting"]);
            let wanted = times * 4.0 * 8.0 * (100.0 + 5.0) / number(seconds);
            assert!((number(logical) / wanted - 1.0).abs() < 1e-9, "{logical}");
        }
    }
    // The hit rates are judged on every device, times never on a CPU.
    let met =
        |id: &str| report["goals"].as_array().unwrap().iter().find(|goal| goal["id"] == id).unwrap()["met"].clone();
    assert_eq!((met("aim"), met("mapped_uvm")), (true.into(), Value::Null));
    let csv = std::fs::read_to_string(folder.path().join("results/bench.csv")).unwrap();
    assert_eq!(csv.lines().count() - 1, report["records"].as_array().unwrap().len());
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
    let cases: [&[&str]; 13] = [
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
        &["--rows", "1000", "suite"],
    ];
    for case in cases {
        bench(folder.path(), case).code(2);
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut args = SMALL.to_vec();
    args.extend(["--out", "file", "--precision", "fp32", "--policy", "lru", "--hit-rate", "50"]);
    bench(folder.path(), &args).code(2); // fails before any work
}

/// Runs `bench robe` on the CPU with small tables and narrow rows, so that it is short.
fn robe(folder: &Path, more: &[&str]) -> (String, Value) {
    let mut args = vec!["robe", "--backend", "cpu", "--size", "small", "--dim", "16", "--batch", "32", "--out", "out"];
    args.extend(more);
    let done = bench(folder, &args).success();
    let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
    (out, read(&folder.join("out/robe-cpu.json")))
}

const WAYS: [&str; 5] = ["dense update", "sparse update", "dense gradient", "sparse gradient", "atomic update"];

/// The figures of one cell: one number of rows, one compression, one chunk.
struct Cell<'r> {
    report: &'r Value,
    place: Vec<(&'static str, Value)>,
}

impl<'r> Cell<'r> {
    fn of(report: &'r Value, forward: &'r Value) -> Self {
        let names = ["rows", "compression", "chunk", "weights"];
        let place = names.map(|name| (name, forward["setting"][name].clone()));
        Self { report, place: place.into_iter().chain([("shape", "array".into())]).collect() }
    }

    fn record(&self, what: &str) -> Option<&'r Value> {
        records(self.report, what, &self.place).first().copied()
    }

    fn setting(&self, name: &str) -> u64 {
        let (_, value) = self.place.iter().find(|(known, _)| *known == name).expect("a name of the place");
        value.as_f64().expect("a number") as u64
    }

    fn count(&self, what: &str) -> u64 {
        self.record(what).map_or(0, |record| number(record) as u64)
    }

    fn lowest(&self, what: &str) -> Option<f64> {
        self.record(what)?["spread"]["lowest"].as_f64()
    }
}

/// The first place where a report of `bench robe` breaks the schema or has an impossible figure.
fn robe_wrong(report: &Value) -> Option<String> {
    if report["schema"] != 2 || report["command"] != "bench robe" {
        return Some(format!("{} {}", report["schema"], report["command"]));
    }
    let left_out = report["left_out"].as_array()?;
    let forwards = records(report, "forward", &[("shape", "array".into())]);
    let names: Vec<&str> = left_out.iter().filter_map(|one| one["what"].as_str()).collect();
    let refused = names.into_iter().filter(|name| name.contains(" rows at "));
    let (ways, whole): (Vec<_>, Vec<_>) = refused.partition(|name| WAYS.iter().any(|way| name.starts_with(way)));
    if forwards.len() + whole.len() != 90
        || left_out.iter().any(|one| one["why"].as_str().is_none_or(|why| why.len() < 10))
    {
        return Some(format!("{} cells measured, {} refused", forwards.len(), whole.len()));
    }
    let cells: Vec<Cell<'_>> = forwards.iter().map(|forward| Cell::of(report, forward)).collect();
    let mut measured = 0;
    for cell in &cells {
        let [weights, chunk] = ["weights", "chunk"].map(|name| cell.setting(name));
        let [touched, covered, starts] = ["touched", "covered", "starts"].map(|what| cell.count(what));
        let figures = WAYS.iter().filter_map(|way| cell.record(way));
        let positive =
            figures.clone().all(|figure| number(figure) > 0.0 && figure["spread"]["rounds"].as_u64() >= Some(3));
        measured += figures.count();
        // Auto chooses by starts for an update, and for a gradient by the most weights that the starts may touch.
        let of = |dense: bool| if dense { "dense" } else { "sparse" };
        let choices = [("update", of(starts >= weights / 32)), ("gradient", of(weights <= touched))];
        let lost = choices.iter().all(|(what, choice)| {
            let both = cell.lowest(&format!("dense {what}")).zip(cell.lowest(&format!("sparse {what}")));
            match (both, cell.record(&format!("lost by auto {what}"))) {
                (None, None) => *what != "update",
                (Some((dense, sparse)), Some(regret)) => {
                    let taken = if *choice == "dense" { dense } else { sparse };
                    regret["setting"]["choice"] == *choice
                        && (number(regret) - (taken / dense.min(sparse) - 1.0)).abs() < 1e-9
                }
                _ => false,
            }
        });
        if !(positive
            && lost
            && (1..=32 * 16_u64.div_ceil(chunk)).contains(&starts)
            && (chunk.min(16)..=touched.min(weights)).contains(&covered)
            && touched == 32 * 16_u64.div_ceil(chunk) * chunk.min(16))
        {
            return Some(format!("{:?}: {touched} {covered} {starts}", cell.place));
        }
    }
    // The report names every way that was not measured.
    if measured + ways.len() != 5 * cells.len() {
        return Some(format!("{measured} figures, {} refused", ways.len()));
    }
    // Count again the cells in which atomic is at least 5 % faster than the better of the others.
    let share = |cell: &Cell<'_>| {
        Some(cell.lowest("atomic update")? / cell.lowest("dense update")?.min(cell.lowest("sparse update")?))
    };
    let shares: Vec<f64> = cells.iter().filter_map(share).collect();
    let sum = |what: &str| records(report, what, &[("shape", "atomic".into())]).into_iter().map(number).sum::<f64>();
    let faster = shares.iter().filter(|share| **share < 0.95).count();
    if (sum("faster"), sum("cells")) != (faster as f64, shares.len() as f64) {
        return Some(format!("{faster} faster of {}", shares.len()));
    }
    // Compute again what Auto loses, for all cells and for each size of chunks.
    for what in ["update", "gradient"] {
        for chunk in [None, Some(1u64), Some(2), Some(4), Some(8), Some(16), Some(32)] {
            let these = cells.iter().filter(|cell| chunk.is_none_or(|chunk| cell.setting("chunk") == chunk));
            let lost: Vec<f64> =
                these.filter_map(|cell| cell.record(&format!("lost by auto {what}"))).map(number).collect();
            let chunks: Value = chunk.map_or("all".into(), Into::into);
            let wanted = [("shape", "auto".into()), ("of", what.into()), ("chunks of", chunks.clone())];
            let figure = |name: &str| records(report, name, &wanted).first().map(|record| number(record));
            let right = match (figure("cells"), figure("mean"), figure("worst")) {
                (None, None, None) => lost.is_empty(),
                (Some(n), Some(mean), Some(worst)) => {
                    n == lost.len() as f64
                        && (mean - lost.iter().sum::<f64>() / n).abs() < 1e-9
                        && worst == lost.iter().copied().fold(0.0, f64::max)
                }
                _ => false,
            };
            let wanted = [("shape", "crossover".into()), ("of", what.into()), ("chunks of", chunks)];
            let crossed = records(report, "sparse over dense, largest array", &wanted).len();
            if !right || crossed != usize::from(chunk.is_some() && !lost.is_empty()) {
                return Some(format!("{what}, chunks of {chunk:?}"));
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
    // 16 K rows x 16 at 10,000x give 25 weights, fewer than a chunk of 32.
    let left_out = report["left_out"].as_array().unwrap();
    assert!(left_out.len() == 1 && left_out[0]["why"].as_str().unwrap().contains("a chunk of 32"), "{left_out:?}");
    assert!(out.contains("Left out: 16 K rows at 10000x in chunks of 32: "), "{out}");
    assert!(out.contains("not ROBE's sizes") && out.contains("table 14") && out.contains("Figure 3 (f)"), "{out}");
    // Updates and gradients have tables, a line in the plot and lines in the CSV. The report also says where an atomic update is faster.
    let svg = std::fs::read_to_string(folder.path().join("out/robe-cpu-crossover.svg")).unwrap();
    assert!(WAYS.iter().all(|way| svg.contains(&format!(">{way}<"))), "{svg}");
    let heat = std::fs::read_to_string(folder.path().join("out/robe-cpu-heat.svg")).unwrap();
    let panels = ["(b) dense gradient", "(f) sparse gradient", "dense update", "sparse update", "atomic update"];
    assert!(panels.iter().all(|panel| heat.contains(&format!(">{panel}<"))), "{heat}");
    let csv = std::fs::read_to_string(folder.path().join("out/robe-cpu.csv")).unwrap();
    for way in WAYS {
        assert_eq!(csv.lines().filter(|line| line.starts_with(&format!("{way},array,"))).count(), 89, "{way}");
    }
    assert!(
        out.contains("sums of one thread, index by index")
            && out.contains("dense / sparse / atomic update: rows down, chunk across"),
        "{out}"
    );
    for title in [
        "Crossover of dense and sparse",
        "Atomic update against the better",
        "always sparse",
        "slowest against fastest",
    ] {
        assert!(out.contains(title), "{title}: {out}");
    }
    let goals = report["goals"].as_array().unwrap();
    for id in ["robe_flat", "robe_dense_gradient", "robe_sparse_gradient"] {
        assert!(goals.iter().any(|goal| goal["id"] == id && goal["reached"].as_f64() > Some(0.0)), "{id}");
    }
    // The goal takes the largest of the records "slowest against fastest".
    let flat = goals.iter().find(|goal| goal["id"] == "robe_flat").unwrap()["reached"].as_f64().unwrap();
    let apart = records(&report, "slowest against fastest", &[("shape", "flat".into())]);
    assert_eq!(apart.into_iter().map(number).fold(0.0, f64::max), flat);
    // Comparison tables of each kind, in bags of 20 and of 1. Without a GPU no goal is met or missed.
    let beside = records(&report, "forward", &[("shape", "beside".into())]);
    assert!(beside.len() == 12 && beside.iter().all(|one| number(one) > 0.0));
    assert!(goals.iter().all(|goal| goal["met"].is_null()));
    // The companion: missing figures and impossible figures are noticed.
    let array = |what: &'static str| move |record: &Value| record["what"] == what && record["shape"] == "array";
    for what in ["starts", "covered", "lost by auto update"].into_iter().chain(WAYS) {
        assert!(robe_wrong(&broken(&report, array(what), None)).is_some(), "no {what}");
        assert!(robe_wrong(&broken(&report, array(what), Some(0.0))).is_some(), "{what} of 0");
    }
    for shape in ["atomic", "auto", "crossover"] {
        assert!(robe_wrong(&broken(&report, |record| record["shape"] == shape, None)).is_some(), "{shape}");
    }
    assert!(robe_wrong(&broken(&report, |record| record["what"] == "mean", Some(0.9))).is_some());
    let mut wrong = report.clone();
    wrong["left_out"] = serde_json::json!([]);
    assert!(robe_wrong(&wrong).is_some());
    wrong["schema"] = 1.into();
    assert!(robe_wrong(&wrong).is_some());
}

#[test]
fn arrays_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // The rows of ROBE, with memory for the smallest arrays only.
    let args = ["robe", "--backend", "cpu", "--size", "full", "--batch", "16", "--memory", "300KB", "--out", "out"];
    bench(folder.path(), &args).success();
    let report = read(&folder.path().join("out/robe-cpu.json"));
    let reason = |what: &str| {
        let all = report["left_out"].as_array().unwrap();
        all.iter().find(|one| one["what"] == what).map(|one| one["why"].as_str().unwrap().to_owned())
    };
    assert_eq!(reason("4 M rows at 10000x in chunks of 32"), None);
    // An array of 200 KiB has room for both updates and for the few sums of a sparse gradient, but not for another 200 KiB of sums.
    let small = |what: &str| records(&report, what, &[("weights", 51_200.into()), ("chunk", 32.into())]).len();
    assert_eq!((small("sparse update"), small("sparse gradient")), (1, 1));
    for way in ["atomic update", "dense gradient"] {
        assert_eq!(small(way), 0, "{way}");
        assert!(reason(&format!("{way} of 4 M rows at 10000x in chunks of 32")).unwrap().contains("--memory"));
    }
    assert_eq!(small("lost by auto gradient"), 0);
    assert!(records(&report, "cells", &[("shape", "atomic".into())]).is_empty());
    assert!(reason("128 M rows at 10x in chunks of 32").unwrap().contains("--memory"));
    assert!(reason("256 M rows at 10x in chunks of 32").unwrap().contains("the prime 2038074743"));
    // A run without any figure is an error.
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
        &["robe", "suite"],
        &["robe", "--precision", "int8"],
        &["robe", "--rows", "1000"],
        &["robe", "--only", "sort"],
        &["robe", "--memory", "much"],
        &["robe", "--size", "huge"],
        &["--memory", "1GB"],
        &["robe", "--backend", "cpu", "--optimizer", "row-wise-adagrad"],
    ];
    for case in cases {
        bench(folder.path(), case).code(2);
    }
    // Only the unified-memory model takes these options. Elsewhere they are refused by name.
    for (option, value) in [("--page-kib", "128"), ("--bus-gb-s", "3"), ("--fault-us", "1")] {
        for mode in ["robe", "suite"] {
            let failed = bench(folder.path(), &[mode, option, value]).code(2);
            let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
            assert!(err.contains(mode) && err.contains(option), "{mode} {option}: {err}");
        }
    }
    let mut args = SMALL.to_vec();
    args.extend(["--precision", "fp32", "--policy", "lru", "--hit-rate", "50"]);
    args.extend(["--page-kib", "128", "--bus-gb-s", "3", "--fault-us", "1"]);
    bench(folder.path(), &args).success();
    let failed = bench(folder.path(), &["robe", "--backend", "gpu"]).code(1);
    assert!(String::from_utf8_lossy(&failed.get_output().stderr).contains("no adapter"));
}

/// The bytes of `bench dist` are those that a run of `plan dist --verify` counts for the same steps.
#[test]
fn groups_over_ranks_send_what_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let common = ["dist", "--trace", "zipf:rows=500,s=1,n=8000", "--lookups", "4", "--ranks", "1,2,4", "--shards", "8"];
    let common = [&common[..], &["--dim", "8", "--cache-percent", "20"]].concat();
    for (which, wire) in [&[][..], &["--wire-rows", "fp16", "--wire-gradients", "int8", "--summed"]].iter().enumerate()
    {
        let name = format!("run-{which}.json");
        let more = ["--batch", "40,81", "--steps", "3", "--json", &name];
        let done = bench(folder.path(), &[&common[..], wire, &more].concat()).success();
        let output = done.get_output();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            err.contains("share its") && out.contains("Seconds on this machine, whose cores the ranks share"),
            "{err}\n{out}"
        );
        let report = read(&folder.path().join(&name));
        for batch in ["40", "81"] {
            let mut plan = Command::cargo_bin("hotrow").expect("the command is built with the tests");
            plan.current_dir(folder.path()).arg("plan").args(&common).args(*wire);
            plan.args(["--batch", batch, "--steps", "3", "--json", "plan.json", "--verify"]).assert().success();
            let plans = read(&folder.path().join("plan.json"));
            for plan in plans.as_array().unwrap() {
                let place = |phase: &Value| {
                    [
                        ("batch", batch.parse::<u32>().unwrap().into()),
                        ("ranks", plan["ranks"].clone()),
                        ("phase", phase.clone()),
                    ]
                };
                for phase in plan["verify"].as_array().unwrap() {
                    let found = records(&report, "bytes", &place(&phase["phase"]));
                    let (wanted, found) = (phase["counted_bytes"].as_f64().unwrap(), number(found[0]));
                    assert!((found - wanted).abs() < 1e-6 * wanted.max(1.0), "bytes of {phase}: {found}");
                    assert!(plan["ranks"] == 1 || phase["phase"] == "sizes" || found > 0.0);
                }
                let setting = [("batch", batch.parse::<u32>().unwrap().into()), ("ranks", plan["ranks"].clone())];
                for what in ["exchanges alone", "whole step"] {
                    let found = records(&report, what, &setting);
                    assert!(found.len() == 1 && number(found[0]) > 0.0 && found[0]["spread"]["rounds"] == 3, "{what}");
                }
            }
        }
    }
    let csv = std::fs::read_to_string(folder.path().join("results/dist.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * 3 * (5 * 2 + 2), "{csv}");
    for (more, named) in [
        (&["--ranks", "3"][..], "--ranks: wanted powers of two that divide the 8 virtual shards, found 3"),
        (&["--ranks", "16"], "found 16"),
        (&["--wire-rows", "int8", "--dim", "3"], "wire: wanted a form that is shorter than FP32"),
        (&["--steps", "1"], "--steps"),
        (&["--lookups", "9000"], "--lookups: wanted at most 8000"),
        (&["--backend", "gpu"], "--backend"),
    ] {
        let keep = |option: &str| !more.iter().any(|given| given.starts_with("--") && *given == option);
        let rest = common[1..].chunks(2).filter(|pair| keep(pair[0])).flatten().copied();
        let arguments: Vec<&str> = ["dist"].into_iter().chain(rest).chain(more.iter().copied()).collect();
        let failed = bench(folder.path(), &arguments).code(2);
        let err = String::from_utf8_lossy(&failed.get_output().stderr).into_owned();
        assert!(err.contains(named), "{arguments:?}: {err}");
    }
}
