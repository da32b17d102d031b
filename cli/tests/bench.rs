//! `hotrow bench` with its modes from outside, on the CPU: the files they write, and the input they refuse. `cli/tests/gpu/command.rs` runs them
//! on a GPU.

use crate::common::command::{ended, hotrow, read, without_drivers};
use crate::common::records::{goal, number, records};
use crate::golden;
use serde_json::Value;
use std::path::Path;

/// Runs `bench` without any driver and expects an exit code. Returns stdout and stderr, which is one line after a failure.
fn bench(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let mut command = hotrow(&[&["bench"], args].concat());
    let (out, err) = ended(without_drivers(&mut command).current_dir(folder), code);
    assert!(code != 1 || err.trim().lines().count() == 1, "{args:?}: {err}");
    (out, err)
}

const SMALL: [&str; 8] = ["--rows", "40000", "--dim", "8", "--batch", "100", "--seconds", "1"];

#[test]
fn without_a_driver_it_says_so_and_measures_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let (out, err) = bench(folder.path(), &SMALL, 0);
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
    let report = read(folder.path().join("results/bench.json"));
    // INT2 has 2 MB, which a cache of the size that it names holds, or does not.
    let note = report["notes"][0].as_str().unwrap();
    assert!(out.contains(note) && note.starts_with("cpu: ") && note.contains("last-level cache"), "{note}");
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
    assert_eq!(["aim", "mapped_uvm"].map(|id| &goal(&report, id)["met"]), [&true.into(), &Value::Null]);
    let csv = std::fs::read_to_string(folder.path().join("results/bench.csv")).unwrap();
    assert_eq!(csv.lines().count() - 1, report["records"].as_array().unwrap().len());
}

#[test]
fn the_gpu_is_not_replaced_behind_ones_back() {
    let folder = tempfile::tempdir().unwrap();
    for (args, hint) in [
        (&["--backend", "gpu"][..], "wanted a Vulkan, Metal or DX12 driver, the device has no adapter"),
        (&["suite", "--backend", "gpu"], "no adapter"),
        (&["suite", "--backend", "auto"], "--backend gpu takes a software driver too"),
    ] {
        let (_, err) = bench(folder.path(), args, 1);
        assert!(err.starts_with("error: ") && err.contains(hint), "{args:?}: {err}");
    }
}

/// Systems that are no Unix word their errors otherwise.
#[cfg(unix)]
#[test]
fn bad_usage_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    golden::refused("bench", folder.path());
}

/// Runs `bench robe` on the CPU with small tables and narrow rows, so that it is short.
fn robe(folder: &Path, more: &[&str]) -> (String, Value) {
    let args = ["robe", "--backend", "cpu", "--size", "small", "--dim", "16", "--batch", "32", "--out", "out"];
    let (out, _) = bench(folder, &[&args[..], more].concat(), 0);
    (out, read(folder.join("out/robe-cpu.json")))
}

const WAYS: [&str; 3] = ["dense update", "sparse update", "atomic update"];

#[test]
fn shared_tables_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (out, report) = robe(folder.path(), &[]);
    assert_eq!((&report["schema"], &report["command"]), (&2.into(), &"bench robe".into()));
    let forwards = records(&report, "forward", &[("shape", "array".into())]);
    // 3 numbers of rows x 4 compressions x 2 chunks.
    assert_eq!(forwards.len() + report["left_out"].as_array().unwrap().len(), 24);
    for forward in forwards {
        let place = ["rows", "compression", "chunk", "weights"].map(|name| (name, forward["setting"][name].clone()));
        let of = |what: &str| records(&report, what, &place)[0];
        let [dense, sparse, atomic] = WAYS.map(|way| of(way)["spread"]["lowest"].as_f64().unwrap());
        assert!(dense.min(sparse).min(atomic) > 0.0 && number(forward) > 0.0, "{forward}");
        let near = |what: &str, wanted: f64| (number(of(what)) / wanted - 1.0).abs() < 1e-9;
        assert!(near("sparse against dense update", sparse / dense), "{forward}");
        assert!(near("atomic against the better update", atomic / dense.min(sparse)), "{forward}");
        assert!(number(of("touched at most")) >= 1.0, "{forward}");
    }
    for file in ["robe-cpu.json", "robe-cpu.csv", "robe-cpu.md", "robe-cpu.png", "robe-cpu.svg"] {
        assert!(folder.path().join("out").join(file).is_file() && out.contains(file), "{file}:\n{out}");
    }
    // 10 K rows x 16 at 10,000x give 16 weights, fewer than a chunk of 32.
    assert!(out.contains("Left out: 10 K rows at 10000x in chunks of 32: "), "{out}");
    // Three tables share an array of 16 K weights; the goal takes the slowest against the fastest.
    let flat = records(&report, "slowest against fastest", &[("shape", "flat".into()), ("chunks of", 32.into())]);
    let reached = goal(&report, "robe_flat")["reached"].as_f64().unwrap();
    assert_eq!(flat.into_iter().map(number).fold(0.0, f64::max), reached);
    // Without a GPU no goal is met or missed.
    assert!(report["goals"].as_array().unwrap().iter().all(|goal| goal["met"].is_null()));
}

#[test]
fn arrays_that_cannot_be_are_named() {
    let folder = tempfile::tempdir().unwrap();
    // Memory for the smallest arrays only, and not for all atomic sums beside them.
    let (_, report) = robe(folder.path(), &["--memory", "1KB"]);
    let reason = |what: &str| {
        let all = report["left_out"].as_array().unwrap();
        all.iter().find(|one| one["what"] == what).map(|one| one["why"].as_str().unwrap().to_owned())
    };
    assert!(reason("100 K rows at 10x in chunks of 32").unwrap().contains("--memory"));
    assert!(reason("atomic update of 100 K rows at 10000x in chunks of 1").unwrap().contains("--memory"));
    assert!(reason("100 K rows at 10000x in chunks of 1").is_none(), "160 weights fit");
    // A run without any figure is refused.
    let args = ["robe", "--backend", "cpu", "--size", "small", "--memory", "1B", "--out", "out"];
    let (_, err) = bench(folder.path(), &args, 2);
    assert!(err.contains("--memory: wanted at least 512 B, the smallest array, found 1;"), "{err}");
}

/// Every rank but one sends; ids go in as many bytes whatever the batch's order, and fewer bytes go in short forms.
#[test]
fn groups_over_ranks_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let common = ["dist", "--trace", "zipf:rows=500,s=1,n=8000", "--lookups", "4", "--ranks", "1,2,4", "--shards", "8"];
    let common = [&common[..], &["--dim", "8", "--cache-percent", "20"]].concat();
    let run = |more: &[&str]| {
        let args = [&common[..], &["--batch", "40,81", "--steps", "3", "--json", "run.json"], more].concat();
        let (out, _) = bench(folder.path(), &args, 0);
        assert!(out.contains("Seconds on this machine, whose cores the ranks share"), "{out}");
        read(folder.path().join("run.json"))
    };
    let [exact, short] = [run(&[]), run(&["--wire-rows", "fp16", "--wire-gradients", "int8", "--summed"])];
    for batch in [40, 81] {
        let bytes = |report: &Value, ranks: u32| {
            let all = records(report, "bytes", &[("batch", batch.into()), ("ranks", ranks.into())]);
            all.into_iter().map(number).sum::<f64>()
        };
        assert_eq!(bytes(&exact, 1), 0.0, "a rank alone sends nothing");
        assert!(bytes(&exact, 4) > bytes(&exact, 2) && bytes(&exact, 2) > bytes(&short, 2) && bytes(&short, 2) > 0.0);
        let steps = records(&exact, "whole step", &[("batch", batch.into())]);
        assert!(steps.len() == 3 && steps.iter().all(|step| number(step) > 0.0 && step["spread"]["rounds"] == 3));
    }
}

/// A report of a machine whose forward takes these seconds at hit rates of 0 and 100 %.
fn made(adapter: &str, seconds: [f64; 2]) -> Value {
    let at = |hits: u32, seconds: f64| {
        let setting = serde_json::json!({ "precision": "INT8", "aim": hits, "hits": f64::from(hits) * 0.99 });
        let record = |what, value: f64, unit| {
            serde_json::json!({
                "what": what, "shape": "page", "setting": setting, "value": value, "unit": unit, "spread": null,
            })
        };
        [record("forward", seconds, "seconds"), record("forward logical", 1e6 / seconds, "bytes_per_second")]
    };
    let mut page = hotrow_fuzz::page();
    page["machines"][0]["adapter"] = adapter.into();
    page["records"] = [at(0, seconds[0]), at(100, seconds[1])].concat().into();
    page
}

/// A slowdown counts only beyond the bound and beyond what the rounds of both files differ by.
#[test]
fn slowdowns_beyond_a_bound_end_with_code_1() {
    let folder = tempfile::tempdir().unwrap();
    // The median seconds of a forward, and bytes a second of random rows, each with how far its rounds are apart.
    let write = |name: &str, forward: (f64, f64), rows: (f64, f64), rounds: u32| {
        let record = |what, (value, apart): (f64, f64), unit| {
            let [lowest, highest] = [-1.0, 1.0].map(|sign| value * (1.0 + sign * apart));
            let spread = serde_json::json!({ "median": value, "lowest": lowest, "highest": highest, "rounds": rounds });
            serde_json::json!({ "what": what, "shape": "page", "setting": { "dim": 8 }, "value": value, "unit": unit, "spread": spread })
        };
        let mut page = hotrow_fuzz::page();
        page["machines"][0]["adapter"] = name.into();
        page["records"] =
            vec![record("forward", forward, "seconds"), record("random read", rows, "bytes_per_second")].into();
        std::fs::write(folder.path().join(name), page.to_string()).unwrap();
    };
    let (time, rate, slow, slow_rate) = ((1.0, 0.01), (1e9, 0.01), (1.3, 0.01), (0.71e9, 0.01));
    write("first", time, rate, 5);
    for (name, forward, rows, bound, slower) in [
        ("same", time, rate, "10%", [false, false]),
        ("slow-call", slow, rate, "10%", [true, false]),
        ("both-slow", slow, slow_rate, "10", [true, true]),
        ("without", time, (0.0, 0.0), "10%", [false, true]),
        // The medians are as slow, but some rounds were as fast as the first's.
        ("noisy", (1.3, 0.3), (0.71e9, 0.4), "10%", [false, false]),
        ("allowed", slow, slow_rate, "50%", [false, false]),
    ] {
        write(name, forward, rows, 5);
        let code = i32::from(slower.contains(&true));
        let (out, err) =
            bench(folder.path(), &["compare", "first", name, "--worse", bound, "--json", "all.json"], code);
        // The ends of a speed are 2 % to either side: 1 % of each file's.
        let rate = if rows.0 == 0.0 { "none" } else { "0.71 x (4 %)" };
        let named = [
            format!("- forward of page, dim 8 on {name}: 0.77 x (4 %)"),
            format!("- random read of page, dim 8 on {name}: {rate}"),
        ];
        assert_eq!(named.map(|text| out.contains(&text)), slower, "{name}: {out}");
        assert_eq!(err.contains("slower or gone"), code == 1, "{name}: {err}");
    }
    // Of many rounds as noisy, the median is known better.
    write("many", (1.3, 0.3), rate, 30);
    let (out, _) = bench(folder.path(), &["compare", "first", "many", "--worse", "10%", "--json", "all.json"], 1);
    assert!(out.contains("- forward of page, dim 8 on many: 0.77 x"), "{out}");
    let all = read(folder.path().join("all.json"));
    assert!(all["version"].is_string() && all["commit"].is_string() && all["files"][0]["commit"] == "abc", "{all}");
}

#[test]
fn machines_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    write("a.json", &made("Card A", [4e-3, 1e-3]));
    write("b.json", &made("Phone | B", [8e-3, 5e-4]));
    let (out, _) = bench(folder.path(), &["compare", "a.json", "b.json", "a.json", "--json", "all.json"], 0);
    // 0.5 and 2 times as fast: on the geometric mean as fast.
    let line = "- Phone / B: web page, hotrow 0.1.0, commit abc, 2026-01-01T00:00:00Z; 1.00 times as fast as the first";
    assert!(out.contains(line), "{out}");
    assert!(out.contains("8.00 ms / 0.50 x") && out.contains("500.0 us / 2.00 x"), "{out}");
    assert!(out.contains("Card A (a)") && out.contains("Card A (a), file 3"), "names of their own: {out}");
    let all = read(folder.path().join("all.json"));
    let speed = |aim: u32| number(records(&all, "speed", &[("machine", "Phone / B".into()), ("aim", aim.into())])[0]);
    assert_eq!((speed(0), speed(100)), (0.5, 2.0));
    let svg = std::fs::read_to_string(folder.path().join("results/compare-hits.svg")).unwrap();
    assert!(svg.contains("Phone / B, forward logical") && svg.contains("Card A (a), forward logical"), "{svg}");
    assert!(folder.path().join("results/compare.csv").is_file());

    // Without rounds nothing can be judged.
    let (_, err) = bench(folder.path(), &["compare", "a.json", "b.json", "--worse", "10%"], 1);
    assert!(err.contains("--worse: wanted figures of several rounds in both files, found none"), "{err}");

    // Files that are no reports, impossible figures, and failed self-tests are refused whole, by file and figure.
    let set = |place: &str, to: Value| {
        let mut value = made("Card A", [4e-3, 1e-3]);
        *value.pointer_mut(place).unwrap() = to;
        value
    };
    let spread = serde_json::json!({ "median": 1, "lowest": 2, "highest": 3, "rounds": 3 });
    for (name, value) in [
        ("schema.json", set("/schema", "hotrow-web/1".into())),
        ("passed.json", set("/self_test/passed", 2.into())),
        ("untested.json", set("/self_test", Value::Null)),
        ("machines.json", set("/machines", serde_json::json!([]))),
        ("none.json", set("/records", serde_json::json!([]))),
        ("negative.json", set("/records/2/value", (-1.0).into())),
        ("rate.json", set("/records/1/setting/hits", 101.into())),
        ("unit.json", set("/records/0/unit", "parsecs".into())),
        ("spread.json", set("/records/0/spread", spread)),
        ("other.json", set("/shapes/page", "more rows".into())),
    ] {
        write(name, &value);
    }
    golden::refused("bench-compare", folder.path());
}
