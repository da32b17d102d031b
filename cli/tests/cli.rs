//! The `hotrow` command from outside: exit codes, messages, files.

use crate::common::command::{hotrow, outcome};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const KEYS: [&str; 15] = [
    "trace",
    "policy",
    "ways",
    "cache_percent",
    "sets",
    "slots",
    "batch",
    "accesses",
    "hits",
    "hit_rate",
    "unique",
    "unique_misses",
    "admitted",
    "conflicts",
    "evictions",
];

/// A trace of `3 1 3 2`, a thousand times, in which 3 recurs.
fn small(dir: &TempDir) -> PathBuf {
    let path = dir.path().join("small.u32");
    let bytes: Vec<u8> = [3_u32, 1, 3, 2].repeat(1000).iter().flat_map(|id| id.to_le_bytes()).collect();
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn simulate_writes_what_the_schema_says() {
    let dir = TempDir::new().unwrap();
    let trace = small(&dir);
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (json, csv, plot) = (file("out.json"), file("out.csv"), file("out"));
    let arguments = ["simulate", "--trace", trace.to_str().unwrap(), "--ways", "0,32", "--cache-percent", "50,100"];
    let files = ["--json", &json, "--csv", &csv, "--plot", &plot];
    let (stdout, _) = outcome(&[&arguments[..], &files].concat(), 0);
    assert!(stdout.contains("small") && stdout.contains("99.925"), "{stdout}");

    let json = fs::read_to_string(json).unwrap();
    let list: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&json).unwrap();
    assert_eq!(list.len(), 8, "2 policies x 2 ways x 2 sizes");
    // The keys in the order of the text, because a parsed map sorts them.
    let first = &json[..json.find('}').unwrap()];
    let found: Vec<&str> = first.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
    assert_eq!(found, KEYS);
    for object in &list {
        assert_eq!(object["accesses"], 4000);
        assert_eq!(object["hits"], 3997, "three rows, all cached");
        assert_eq!(object["hit_rate"], 0.99925);
        assert_eq!(object["batch"], 1);
        assert_eq!(object["slots"], 32);
    }
    assert_eq!(list[0]["policy"], "lru");
    assert_eq!(list[7]["policy"], "lfu");
    assert_eq!((&list[0]["ways"], &list[7]["ways"]), (&0.into(), &32.into()));

    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().next().unwrap(), KEYS.join(","));
    assert_eq!(csv.lines().count(), 9);
    assert!(fs::read_to_string(format!("{plot}.svg")).unwrap().starts_with("<svg"));
    assert!(fs::read(format!("{plot}.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn batches_count_accesses_and_the_last_is_shorter() {
    let dir = TempDir::new().unwrap();
    let (trace, json) = (small(&dir), dir.path().join("out.json"));
    let paths = [trace.to_str().unwrap(), json.to_str().unwrap()];
    let arguments = ["simulate", "--trace", paths[0], "--json", paths[1], "--batch", "1500", "--policy", "lru"];
    outcome(&arguments, 0);
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    // The first batch of 1500 misses. Each of the three batches has three distinct rows.
    assert_eq!((&list[0]["hits"], &list[0]["unique"]), (&2500.into(), &9.into()));
}

#[test]
fn the_hottest_rows_are_pinned() {
    let dir = TempDir::new().unwrap();
    let (trace, json) = (dir.path().join("trace.txt"), dir.path().join("out.json"));
    // Row 7 k occurs k + 1 times, for k below 64. The 32 hottest rows take all of the 32 slots.
    let ids: Vec<String> = (0..64).flat_map(|k| vec![(7 * k).to_string(); k + 1]).collect();
    fs::write(&trace, ids.join(" ")).unwrap();
    let paths = [trace.to_str().unwrap(), json.to_str().unwrap()];
    let arguments = ["--policy", "static,lru", "--ways", "0,32", "--cache-percent", "1", "--batch", "9"];
    outcome(&[&["simulate", "--trace", paths[0], "--json", paths[1]][..], &arguments].concat(), 0);
    let list: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    for one in &list.as_array().unwrap()[..2] {
        assert_eq!(one["policy"], "static");
        assert_eq!(one["hits"], (33..=64).sum::<u32>());
        assert_eq!((&one["admitted"], &one["evictions"]), (&32.into(), &0.into()));
    }
    assert_ne!(list[2]["hits"], list[0]["hits"]);
}

#[test]
fn the_seed_decides_generated_traces() {
    let run =
        |seed| outcome(&["simulate", "--trace", "zipf:rows=1000,s=1,n=5000,uniform:rows=50", "--seed", seed], 0).0;
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
    assert!(run("1").contains("uniform:rows=50"), "two traces in one option");
}

#[test]
fn without_a_trace_it_generates_one_and_says_so() {
    let (stdout, stderr) = outcome(&["simulate", "--policy", "lru", "--cache-percent", "1"], 0);
    assert!(stderr.starts_with("no --trace: "), "{stderr}");
    assert!(stdout.contains("zipf:"), "{stdout}");
}

#[test]
fn names_are_looked_up_in_the_data_folder() {
    let dir = TempDir::new().unwrap();
    small(&dir);
    let folder = dir.path().to_str().unwrap();
    outcome(&["simulate", "--trace", "small", "--data", folder], 0);
    outcome(&["--data", folder, "simulate", "--trace", "small"], 0);
    hotrow(&["simulate", "--trace", "small"]).env("HOTROW_DATA", folder).assert().code(0);
    let (_, stderr) = outcome(&["simulate", "--trace", "small"], 1);
    assert!(stderr.contains("--data"), "{stderr}");
}

#[test]
fn bad_usage_exits_with_2() {
    for (bad, named) in [
        (&["--ways", "5000000000"][..], "--ways"),
        (&["--ways", "1048577"], "--ways"),
        (&["--ways", "-1"], "--ways"),
        (&["--ways", "many"], "--ways"),
        (&["--cache-percent", "0"], "--cache-percent"),
        (&["--cache-percent", "-1"], "--cache-percent"),
        (&["--cache-percent", "101"], "--cache-percent"),
        (&["--cache-percent", "nan"], "--cache-percent"),
        (&["--cache-percent", "1,inf"], "--cache-percent"),
        (&["--batch", "0"], "--batch"),
        (&["--batch", "-5"], "--batch"),
        (&["--batch", "1073741825"], "--batch"),
        (&["--policy", "random"], "--policy"),
        (&["--backend", "abacus"], "--backend"),
        (&["--seed", "-1"], "--seed"),
        (&["--trace", ","], "--trace"),
        (&["--trace", "zipf:rows=10,s=1,k=3"], "keys"),
        (&["--trace", "uniform:rows=-1"], "rows"),
        (&["--backend", "gpu", "--ways", "32,8"], "--ways"),
        (&["--frobnicate"], "--frobnicate"),
    ] {
        let (stdout, stderr) = outcome(&[&["simulate"], bad].concat(), 2);
        assert!(stdout.is_empty() && stderr.contains(named), "{bad:?}: {stderr}");
    }
    outcome(&["dissimulate"], 2);
    outcome(&[], 2);
}

#[test]
fn a_job_that_fails_exits_with_1_and_one_sentence() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    for (arguments, named) in [
        (vec!["--trace", "no_such_trace"], "no_such_trace"),
        (vec!["--trace", &file("cut.u32", &[1, 2, 3])], "4 bytes"),
        (vec!["--trace", &file("cut.u32.zst", &[0x28, 0xb5, 0x2f, 0xfd, 4])], "zstd"),
        (vec!["--trace", &file("empty.u32", &[])], "empty"),
        (vec!["--trace", &file("words.txt", b"one two")], "one"),
    ] {
        let (stdout, stderr) = outcome(&[&["simulate"], &arguments[..]].concat(), 1);
        assert!(stdout.is_empty(), "{stdout}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(named), "{stderr}");
    }
}

#[test]
fn sets_that_cannot_be_whole_are_pointed_out() {
    let (_, stderr) = outcome(
        &["simulate", "--trace", "uniform:rows=100,n=500", "--ways", "24", "--policy", "lru", "--cache-percent", "1"],
        0,
    );
    assert!(stderr.contains("whole sets of 24 ways make it 48"), "{stderr}");
}

#[test]
fn help_and_version_succeed() {
    for arguments in [&["--help"][..], &["--version"], &["simulate", "--help"]] {
        let (stdout, stderr) = outcome(arguments, 0);
        assert!(!stdout.is_empty() && stderr.is_empty());
    }
}

#[test]
fn options_of_one_mode_are_refused_in_the_other_modes() {
    for (arguments, named) in [
        (&["plan", "--rows", "10"][..], "--rows"),
        (&["plan", "memory", "--rows", "10", "--budget", "1MiB"], "--budget"),
        (&["plan", "robe", "normal:rows=10,dim=2", "--rows", "10"], "--rows"),
    ] {
        let (stdout, stderr) = outcome(arguments, 2);
        assert!(stdout.is_empty() && stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

/// The memory plan of `arguments` that `--json` writes.
fn planned(dir: &TempDir, arguments: &[&str]) -> Vec<serde_json::Value> {
    let json = dir.path().join("plan.json");
    let mut all = vec!["plan", "memory", "--json", json.to_str().unwrap()];
    all.extend(arguments);
    outcome(&all, 0);
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

#[test]
fn plan_knows_the_papers_answers() {
    let dir = TempDir::new().unwrap();
    let common = ["--rows", "64000", "--dim", "128", "--batch", "0"];
    let list = planned(
        &dir,
        &[&common[..], &["--precision", "int8,fp16", "--cache-percent", "0,10", "--policy", "lru,lfu,static"]].concat(),
    );
    let factors: Vec<f64> = list.iter().map(|plan| plan["formula_factor"].as_f64().unwrap()).collect();
    // INT8 with 10 % under LFU: Yang 2020, appendix A, prints 0.374.
    assert_eq!(
        factors,
        [
            0.265625, 0.265625, 0.265625, 0.36640625, 0.37421875, 0.36640625, 0.5, 0.5, 0.5, 0.60078125, 0.60859375,
            0.60078125,
        ]
    );
    for plan in &list {
        // The paper leaves out stamps, dirty flags and a few counters. The crate keeps LFU's frequencies without a cache too.
        let (formula, factor) = (plan["formula_factor"].as_f64().unwrap(), plan["factor"].as_f64().unwrap());
        let formula = formula + if plan["slots"] == 0 && plan["policy"] == "lfu" { 1.0 / 128.0 } else { 0.0 };
        assert!(factor > formula && factor < formula + 0.003, "{plan}");
    }
}

#[test]
fn plan_adds_up() {
    let dir = TempDir::new().unwrap();
    let list = planned(
        &dir,
        &[
            "--rows",
            "1000,30,7",
            "--dim",
            "5",
            "--precision",
            "int4",
            "--policy",
            "lfu",
            "--optimizer",
            "adagrad",
            "--placement",
            "device,mapped",
            "--batch",
            "1000",
            "--shard-bytes",
            "2400",
            "--cache-percent",
            "50",
        ],
    );
    let sum =
        |of: &serde_json::Value| of.as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum::<u64>();
    assert_eq!(list.len(), 2);
    for plan in &list {
        assert_eq!(sum(&plan["bytes"]), plan["total_bytes"]);
        assert_eq!(plan["device_bytes"].as_u64().unwrap() + plan["host_bytes"].as_u64().unwrap(), plan["total_bytes"]);
        // A record has 24 bytes: 8 of scale and bias, 10 of state, 3 of codes, and padding.
        assert_eq!((&plan["shards"], &plan["slots"]), (&11.into(), &544.into()));
        let small = &plan["tables"][2];
        let bytes =
            ["payload", "scales", "state", "padding", "frequencies", "total_bytes"].map(|key| small[key].as_u64());
        assert_eq!(bytes, [21, 56, 70, 21, 28, 196].map(Some));
        for key in ["payload", "scales", "frequencies"] {
            let all: u64 = plan["tables"].as_array().unwrap().iter().map(|table| table[key].as_u64().unwrap()).sum();
            assert_eq!(all, plan["bytes"][key], "{key}");
        }
    }
    assert_eq!(list[0]["total_bytes"], list[1]["total_bytes"]);
    // 1037 records of 24 bytes. Each shard is rounded up to a multiple of 16 bytes.
    let [device, mapped] = [0, 1].map(|at: usize| list[at]["host_bytes"].as_u64().unwrap());
    assert!(mapped - device >= 1037 * 24 && mapped - device < 1037 * 24 + 11 * 16, "{device} {mapped}");
    let (stdout, _) = outcome(&["plan", "memory", "--rows", "10,20", "--precision", "int8,int4"], 0);
    assert!(stdout.contains("tables do not share") && stdout.contains("| int4"), "{stdout}");
}

#[test]
fn plan_refuses_what_no_group_can_be() {
    for (arguments, named) in [
        (&["plan", "--rows", "10"][..], "--rows"),
        (&["plan", "memory"], "--rows"),
        (&["plan", "memory", "--rows", "0"], "--rows"),
        (&["plan", "memory", "--rows", "-1"], "--rows"),
        (&["plan", "memory", "--rows", "4000000000,4000000000"], "2^32 - 2"),
        (&["plan", "memory", "--rows", "10", "--dim", "0"], "--dim"),
        (&["plan", "memory", "--rows", "10", "--cache-percent", "101"], "--cache-percent"),
        (&["plan", "memory", "--rows", "10", "--precision", "int3"], "--precision"),
        (&["plan", "memory", "--rows", "10", "--shard-bytes", "8"], "shard_bytes"),
        (&["plan", "memory", "--rows", "4294967294", "--cache-percent", "100"], "cache_rows"),
    ] {
        let (_, stderr) = outcome(arguments, 2);
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
    // The plan is possible on some devices, and the message says that it is too large for most.
    let large = ["plan", "memory", "--rows", "100000000", "--cache-percent", "1", "--batch", "10000000"];
    let (_, stderr) = outcome(&large, 0);
    assert!(stderr.contains("`scratch`") && stderr.contains("make the batch"), "{stderr}");
}

/// Each of four ranks would do the whole job, and write the same files.
#[test]
fn a_rank_of_many_is_refused() {
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
        let of = |ranks: &str| hotrow(&["plan", "memory", "--rows", "10"]).env(variable, ranks).output().unwrap();
        let refused = of("4");
        assert_eq!(refused.status.code(), Some(2));
        assert!(refused.stdout.is_empty(), "{refused:?}");
        let wanted = format!(
            "error: hotrow: wanted one rank, found 4 ({variable}), each of which would do the whole job; start hotrow-mpi in its \
             place (cargo build -p hotrow-mpi), or unset {variable}\n"
        );
        assert_eq!(String::from_utf8(refused.stderr).unwrap(), wanted);
        for ranks in ["1", "", "four"] {
            assert_eq!(of(ranks).status.code(), Some(0), "{variable}={ranks}");
        }
    }
}
