//! The `hotrow` command from outside: exit codes, messages, files.

use crate::common::command::{hotrow, outcome, read, value};
use crate::common::{id_bytes, plan::words, write};
use crate::golden;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// A trace of `3 1 3 2`, a thousand times, in which 3 recurs.
fn small(dir: &TempDir) {
    write(dir, "small.u32", &id_bytes(&[3_u32, 1, 3, 2].repeat(1000)));
}

/// Two ways, policies and sizes, one access at a time; and in batches of 1,500, of which the last is shorter: the first misses, and each of the
/// three has three distinct rows. Pinned rows: row 7 k occurs k + 1 times, so the 32 hottest take all of the 32 slots.
#[test]
fn simulate_writes_what_it_wrote() {
    let dir = TempDir::new().unwrap();
    small(&dir);
    let ids: Vec<String> = (0..64).flat_map(|k| vec![(7 * k).to_string(); k + 1]).collect();
    fs::write(dir.path().join("steps.txt"), ids.join(" ")).unwrap();
    let files = "--json out.json --csv out.csv --plot out";
    for (name, line) in [
        ("simulate", "simulate --trace small.u32 --ways 0,32 --cache-percent 50,100"),
        (
            "simulate-policies",
            "simulate --trace drift:rows=2000,s=1,every=900,n=6000 --rows 2000 --policy lru,lfu,static,window,best --window-ways 0,4 --cache-percent 2,5",
        ),
        ("simulate-batches", "simulate --trace small.u32 --batch 1500 --policy lru"),
        ("simulate-pinned", "simulate --trace steps.txt --policy static,lru --ways 0,32 --cache-percent 1 --batch 9"),
    ] {
        golden::written(name, &format!("{line} {files}"), dir.path());
    }
    assert!(fs::read_to_string(dir.path().join("out.svg")).unwrap().starts_with("<svg"));
    assert!(fs::read(dir.path().join("out.png")).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn the_gap_is_that_between_the_better_of_lru_and_lfu_and_the_best() {
    let of = |policies: &str| {
        let line = "simulate --trace drift:rows=2000,s=1,every=900,n=6000 --window-ways 0,4,7 --ways 8,32 --cache-percent 2,5,100 --policy";
        value(&[&words(line)[..], &[policies]].concat())
    };
    let played = of("window,lfu,best,lru");
    let rate = |policy: &str, at: usize| {
        let all: Vec<&Value> = played.as_array().unwrap().iter().filter(|one| one["policy"] == policy).collect();
        all[at % 6]["hit_rate"].as_f64().unwrap()
    };
    for (at, one) in played.as_array().unwrap().iter().enumerate() {
        let (from, best, hits) =
            (rate("lru", at).max(rate("lfu", at)), rate("best", at), one["hit_rate"].as_f64().unwrap());
        let closed = one["gap_closed_share"].as_f64();
        assert!(hits <= best && rate("lru", at) >= rate("lfu", at), "{one}: popular rows move");
        assert_eq!(
            closed.is_none(),
            one["cache_percent"] == 100.0,
            "{one}: no policy misses more than the first touches"
        );
        assert!(
            closed.is_none_or(|closed| ((hits - from) / (best - from) - closed).abs() < 1e-9 && closed <= 1.0),
            "{one}"
        );
    }
    assert!(of("lru,best,window")[0].get("gap_closed_share").is_none(), "without LFU there is no better of both");
}

#[test]
fn ids_are_numbered_unless_they_are_rows() {
    let dir = TempDir::new().unwrap();
    let ids: Vec<u32> = (0..3000_u32).map(|at| at * at % 1009 % 500).collect();
    let [plain, large] = [1, 100_003].map(|by| id_bytes(&ids.iter().map(|id| id * by).collect::<Vec<_>>()));
    let hits = |bytes: &[u8], more: &str| {
        let path = write(&dir, "ids.u32", bytes);
        let line =
            format!("simulate --trace {path} --cache-percent 5,20 --ways 4 --policy lru,window --window-ways 2 {more}");
        value(&words(&line)).as_array().unwrap().iter().map(|one| one["hits"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(hits(&plain, ""), hits(&large, ""), "whatever the ids are");
    assert_ne!(hits(&plain, ""), hits(&plain, "--rows 500"), "as rows they have other sets");
}

#[test]
fn the_file_of_tables_may_have_any_name() {
    let dir = TempDir::new().unwrap();
    let path = write(&dir, "tables.u8", &[0, 1, 1].repeat(2000));
    let line =
        format!("simulate --trace uniform:rows=50,n=6000 --policy best,lru --cache-percent 100 --table-file {path}");
    for one in value(&words(&line)).as_array().unwrap() {
        // Both tables have all 50 ids, which are rows of their own. Each misses its first time.
        let tables = one["tables"]
            .as_array()
            .unwrap()
            .iter()
            .map(|table| [&table["accesses"], &table["hits"]].map(|n| n.as_u64().unwrap()));
        assert_eq!(tables.collect::<Vec<_>>(), [[2000, 1950], [4000, 3950]], "{one}");
    }
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
    let plan = "no --trace: planning for generated lookups|no --budget|no --sample-bytes|no --smallest-batch";
    let dist = "no --trace: planning for generated accesses";
    for (line, said, shown) in [
        ("simulate --policy lru --cache-percent 1", "no --trace: playing generated data, zipf:", "zipf:"),
        ("plan", plan, "cache rows|hit rate|epoch without cache|hottest rows"),
        ("plan dist", dist, "exchange seconds|the group|distinct rows|gradients"),
    ] {
        let (stdout, stderr) = outcome(&words(line), 0);
        assert!(said.split('|').all(|text| stderr.contains(text)), "{line}: {stderr}");
        assert!(shown.split('|').all(|text| stdout.contains(text)), "{line}: {stdout}");
    }
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
fn sets_that_cannot_be_whole_are_pointed_out() {
    let line = "simulate --trace uniform:rows=100,n=500 --ways 24 --policy lru --cache-percent 1";
    let (_, stderr) = outcome(&words(line), 0);
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
fn plan_knows_the_papers_answers() {
    let line = "plan memory --rows 64000 --dim 128 --batch 0 --precision int8,fp16 --cache-percent 0,10 --policy lru,lfu,static";
    let list = value(&words(line));
    let list = list.as_array().unwrap();
    let factors: Vec<f64> = list.iter().map(|plan| plan["formula_factor"].as_f64().unwrap()).collect();
    // INT8 with 10 % under LFU: Yang 2020, appendix A, prints 0.374.
    let [int8, fp16] = [[0.265625, 0.36640625, 0.37421875], [0.5, 0.60078125, 0.60859375]];
    let wanted = [int8, fp16].map(|[none, lru, lfu]| [none, none, none, lru, lfu, lru]);
    assert_eq!(factors, wanted.concat());
    for plan in list {
        // The paper leaves out stamps, dirty flags and a few counters. The crate keeps LFU's frequencies without a cache too.
        let (formula, factor) = (plan["formula_factor"].as_f64().unwrap(), plan["factor"].as_f64().unwrap());
        let formula = formula + if plan["slots"] == 0 && plan["policy"] == "lfu" { 1.0 / 128.0 } else { 0.0 };
        assert!(factor > formula && factor < formula + 0.003, "{plan}");
    }
}

#[test]
fn plan_memory_writes_what_it_wrote_and_adds_up() {
    let dir = TempDir::new().unwrap();
    let line = "plan memory --rows 1000,30,7 --dim 5 --precision int4 --policy lfu --optimizer adagrad --placement device,mapped --batch 1000 \
                --piece-bytes 2400 --cache-percent 50 --json out.json";
    golden::written("plan-memory", line, dir.path());
    let list = read(dir.path().join("out.json"));
    for plan in list.as_array().unwrap() {
        let parts = plan["bytes"].as_object().unwrap().values();
        assert_eq!(parts.map(|bytes| bytes.as_u64().unwrap()).sum::<u64>(), plan["total_bytes"]);
        assert_eq!(plan["device_bytes"].as_u64().unwrap() + plan["host_bytes"].as_u64().unwrap(), plan["total_bytes"]);
        // A record has 24 bytes: 8 of scale and bias, 10 of state, 3 of codes, and padding.
        let wanted = [
            ("payload", 21),
            ("scales", 56),
            ("state", 70),
            ("padding", 21),
            ("frequencies", 28),
            ("total_bytes", 196),
        ];
        assert!(wanted.iter().all(|&(key, bytes)| plan["tables"][2][key] == bytes), "{plan}");
        for key in ["payload", "scales", "frequencies"] {
            let all: u64 = plan["tables"].as_array().unwrap().iter().map(|table| table[key].as_u64().unwrap()).sum();
            assert_eq!(all, plan["bytes"][key], "{key}");
        }
    }
    // 1037 records of 24 bytes. Each piece is rounded up to a multiple of 16 bytes.
    let [device, mapped] = [0, 1].map(|at: usize| list[at]["host_bytes"].as_u64().unwrap());
    assert!(mapped - device >= 1037 * 24 && mapped - device < 1037 * 24 + 11 * 16, "{device} {mapped}");
}

#[test]
fn a_plan_that_is_too_large_for_most_devices_says_so() {
    let notes = |line: &str| outcome(&words(line), 0).1;
    for (line, buffer) in [
        ("plan memory --rows 100000000 --cache-percent 1 --batch 10000000", "scratch"),
        ("plan memory --rows 4000000000 --batch 0", "ways"),
        ("plan memory --rows 1000000 --dim 16 --compression 100 --chunk 1 --batch 64000000", "chunk_access"),
    ] {
        let note = notes(line);
        let (what, remedy) = note.split_once(" of a Vulkan binding: ").unwrap();
        assert!(what.contains(&format!("`{buffer}`")), "{line}: {note}");
        // What is named fits, and twice as much does not.
        let (option, most) = remedy.strip_suffix(" fits\n").unwrap().split_once(' ').unwrap();
        let with = |value: f64| {
            let before = line.split_once(&format!(" {option} ")).map_or(line, |(before, _)| before);
            let batch = if option == "--batch" { "" } else { " --batch 0" };
            notes(&format!("{before} {option} {value}{batch}").replace(" --batch 0 --cache", " --cache"))
        };
        let most = most.parse::<f64>().unwrap();
        assert_eq!((with(most).as_str(), with(2.0 * most).is_empty()), ("", false), "{line}: {note}");
    }
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
             place (cargo build -p hotrow-lab --features mpi), or unset {variable}\n"
        );
        assert_eq!(String::from_utf8(refused.stderr).unwrap(), wanted);
        for ranks in ["1", "", "four"] {
            assert_eq!(of(ranks).status.code(), Some(0), "{variable}={ranks}");
        }
    }
}
