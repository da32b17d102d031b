//! `hotrow plan` for cache and batch from outside: bad input, schema, figures computed by hand, and `--verify`.

use crate::common::{command::keys, plan as common, write};
use common::{json, outcome, plan, words};
use hotrow_harness::data;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

fn near(found: &Value, wanted: f64) {
    common::near(found, wanted, 1e-9);
}

/// A trace of `3 1 3 2`, a thousand times, with the given number of ids in each line (a bag).
fn trace(folder: &TempDir, bag: usize) -> String {
    let ids = [3, 1, 3, 2].repeat(1000);
    let lines: Vec<String> =
        ids.chunks(bag).map(|bag| bag.iter().map(|id: &u32| id.to_string()).collect::<Vec<_>>().join(" ")).collect();
    write(folder, "small.txt", lines.join("\n").as_bytes())
}

#[test]
fn the_schema_is_stable() {
    let from = ["--distribution", "zipf:rows=2000,s=1", "--dim", "4", "--budget", "64KiB"];
    let json = json(&[&from[..], &["--verify", "--backend", "cpu"]].concat());
    let wanted = "source name kind rows used_rows samples lookups_per_sample lookups error \
                  group dim precision optimizer training record_bytes slot_bytes \
                  budget bytes sample_bytes smallest_batch fixed_batch batch_cost pinned_ways \
                  plan cache_rows cache_bytes cache_percent pinned_rows without_a_way without_a_way_share batch_samples batch_lookups device_bytes form \
                  hit_rate batch distinct_rows index_bytes read_bytes written_bytes epoch epoch_without_cache epoch_uncoalesced \
                  load_bytes load_pays_after_epochs one_more_set optimum epoch_bytes epoch_cost cost_percent curve skew lookups_percent rows_percent \
                  one_more_row saved_rows cost_rows cost_by_eq_13 pays \
                  verify order backend batches whole_epoch record measures what \
                  predicted counted deviation_percent allowed_percent too_short within locality";
    assert_eq!(keys(&json), words(wanted));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&value["source"]["kind"], &value["group"]["precision"]), (&"distribution".into(), &"int8".into()));
    assert!(value["curve"].as_array().unwrap().len() > 2);
    assert_eq!(value["skew"].as_array().unwrap().len(), 5);
}

#[test]
fn figures_are_those_worked_out_by_hand() {
    let folder = TempDir::new().unwrap();
    let bags = trace(&folder, 2);
    let common = ["--trace", &bags, "--dim", "4", "--precision", "fp32", "--batch", "1"];
    // There is no room for a row beside the batch.
    let sizes = plan(&[&common[..], &["--budget", "1MiB"]].concat());
    let sample = sizes["budget"]["sample_bytes"].to_string();
    let bare = plan(&[&common[..], &["--budget", &sample]].concat());
    assert_eq!((&bare["plan"]["cache_rows"], &bare["plan"]["hit_rate"]), (&0.into(), &0.0.into()));
    // Rows 3, 1, 2 with shares 1/2, 1/4, 1/4, and two lookups: 3/4 + 2 * 7/16. A record of FP32 x 4 has 16 bytes.
    near(&bare["plan"]["batch"]["distinct_rows"], 1.625);
    near(&bare["plan"]["batch"]["read_bytes"], 26.0);
    near(&bare["plan"]["batch"]["written_bytes"], 26.0);
    near(&bare["plan"]["batch"]["index_bytes"], 8.0);
    near(&bare["plan"]["epoch"]["read_bytes"], 2000.0 * 26.0);
    near(&bare["plan"]["epoch_uncoalesced"]["read_bytes"], 4000.0 * 16.0);
    assert_eq!(bare["plan"]["form"], "binomial");
    // With all rows pinned, only the indices cross the bus, and the three rows once in the flush.
    let all = &sizes["plan"];
    assert_eq!((&all["hit_rate"], &all["pinned_rows"]), (&1.0.into(), &3.0.into()));
    assert_eq!((&all["epoch"]["read_bytes"], &all["epoch"]["written_bytes"]), (&0.0.into(), &48.0.into()));
    assert_eq!((&sizes["source"]["rows"], &sizes["source"]["used_rows"]), (&4.into(), &3.into()));
    // A batch of more than a hundredth of the trace is drawn without putting back.
    let all = plan(&["--trace", &bags, "--dim", "4", "--budget", "4MiB", "--batch", "1000"]);
    assert_eq!((&all["plan"]["form"], &all["plan"]["batch"]["distinct_rows"]), (&"hypergeometric".into(), &3.0.into()));
    // Inference writes nothing.
    let read = plan(&[&common[..], &["--budget", &sample, "--inference"]].concat());
    assert_eq!((&read["plan"]["epoch"]["written_bytes"], &read["group"]["training"]), (&0.0.into(), &false.into()));
    // Row 3 gets half of the lookups, so one row is enough.
    assert_eq!((&sizes["skew"][0]["rows"], &sizes["skew"][4]["rows"]), (&1.into(), &3.into()));
}

/// The bytes in a value of traffic.
fn bytes(traffic: &Value) -> f64 {
    ["index_bytes", "read_bytes", "written_bytes"].map(|key| traffic[key].as_f64().unwrap()).iter().sum()
}

/// The plan is the optimum, which is the cheapest point of the curve.
fn one_and_the_same(plan: &Value) {
    let best = &plan["optimum"];
    let curve = plan["curve"].as_array().unwrap();
    let cheapest = curve.iter().min_by(|a, b| {
        let [a, b] = [a, b].map(|point| point["epoch_cost"].as_f64().unwrap());
        a.total_cmp(&b)
    });
    assert_eq!(cheapest, Some(best));
    for key in ["pinned_rows", "cache_bytes", "batch_samples", "hit_rate"] {
        assert_eq!(plan["plan"][key], best[key], "{key}");
    }
    near(&best["epoch_bytes"], bytes(&plan["plan"]["epoch"]));
}

#[test]
fn plan_optimum_and_curve_are_one() {
    let zipf = ["--distribution", "zipf:rows=100000,s=0.8", "--lookups", "4", "--budget", "24MiB"];
    let free = plan(&zipf);
    one_and_the_same(&free);
    // One more row is judged where batch and cache share the memory, by equation 13 never as cheaper than it is.
    let more = free["one_more_row"].as_array().unwrap();
    assert!(more.len() > 2 && more[0]["pinned_rows"] == 0, "{more:?}");
    assert!(more.iter().all(|row| row["cost_by_eq_13"].as_f64() >= row["cost_rows"].as_f64()), "{more:?}");
    let cost = |plan: &Value| plan["optimum"]["epoch_cost"].as_f64().unwrap();
    // If that costs less, the batch takes the memory that the table does not need.
    for batch in ["2048", "5000"] {
        let fixed = plan(&[&zipf[..], &["--batch", batch]].concat());
        one_and_the_same(&fixed);
        assert_eq!(fixed["one_more_row"], serde_json::json!([]), "a fixed batch pays for no row");
        assert!(cost(&free) < cost(&fixed), "{batch}");
    }
    let uniform = plan(&["--distribution", "uniform:rows=1000", "--budget", "1GiB"]);
    one_and_the_same(&uniform);
    assert_eq!(uniform["plan"]["batch_samples"], 1_000_000, "4 MB an epoch; 12 MB in batches of 2048");
    // With one way of each set few rows can be pinned, and the curve shows it.
    let narrow = plan(&["--distribution", "uniform:rows=1000", "--budget", "1GiB", "--pinned-ways", "1"]);
    one_and_the_same(&narrow);
    assert!(narrow["curve"].as_array().unwrap().iter().all(|point| point["hit_rate"].as_f64().unwrap() <= 0.032));
    let known = plan(&["--trace", "zipf:rows=3000,s=1.05,n=60000", "--dim", "4", "--budget", "1MiB"]);
    one_and_the_same(&known);
}

#[test]
fn an_epoch_has_a_shorter_last_batch() {
    let trace =
        ["--trace", "zipf:rows=20000,s=0.5,n=200000", "--dim", "4", "--budget", "200KiB", "--sample-bytes", "1"];
    let plan = plan(&[&trace[..], &["--batch", "120000", "--verify", "--backend", "cpu"]].concat());
    let epoch = &plan["plan"]["epoch"];
    // The average batch instead of a short last one would give 15 % less than counted.
    for (key, measure) in [("read_bytes", "bytes read"), ("written_bytes", "bytes written")] {
        let measures = plan["verify"][0]["measures"].as_array().unwrap();
        let counted = measures.iter().find(|one| one["what"] == measure).unwrap()["counted"].as_f64().unwrap();
        let planned = epoch[key].as_f64().unwrap();
        assert!((planned / counted - 1.0).abs() < 0.02, "{key}: {planned}, counted {counted}");
    }
    near(&plan["plan"]["epoch_uncoalesced"]["read_bytes"], 2_400_000.0);
}

#[test]
fn a_plan_keeps_to_its_budget_or_says_so() {
    let said = |arguments: &[&str]| {
        let (stdout, stderr) = outcome(arguments, 0);
        (stdout.contains("more than the budget"), stderr.contains("more than the budget"))
    };
    let uniform = |rows: &'static str| ["--distribution", rows];
    // A set does not fit, so there is no cache. The smallest memory of a group already exceeds the budget.
    let small = [&uniform("uniform:rows=100")[..], &["--budget", "2000", "--batch", "1"]].concat();
    assert_eq!(plan(&small)["plan"]["cache_rows"], 0);
    assert_eq!(said(&small), (true, true));
    let lied = ["--budget", "1MiB", "--sample-bytes", "1", "--batch", "500000"];
    assert_eq!(said(&[&uniform("uniform:rows=1000")[..], &lied].concat()), (true, true));
    for budget in ["200KiB", "1MiB", "8MiB"] {
        let zipf = ["--distribution", "zipf:rows=1e6,s=1", "--budget", budget];
        assert_eq!(said(&zipf), (false, false), "{budget}");
        assert!(said(&[&zipf[..], &["--sample-bytes", "1", "--batch", "100000"]].concat()).0, "{budget}");
    }
    // The cache has no more rows than the table, and no more than the crate allows.
    let ten = plan(&["--distribution", "uniform:rows=10", "--budget", "1MiB"]);
    assert_eq!((&ten["plan"]["cache_rows"], &ten["plan"]["cache_percent"]), (&10.into(), &100.0.into()));
    let huge = plan(&["--distribution", "zipf:rows=4294967294,s=1", "--budget", "4TiB", "--dim", "4"]);
    assert_eq!(huge["plan"]["cache_rows"], 1_u64 << 31);
}

#[test]
fn why_no_more_rows_are_pinned() {
    let zipf = ["--distribution", "zipf:rows=1e6,s=1.05", "--budget", "8MiB"];
    for (arguments, why) in [
        (&["--distribution", "uniform:rows=10", "--budget", "1MiB"][..], "all-rows"),
        (&["--distribution", "uniform:rows=4e9", "--budget", "8TiB"], "all-ways"),
        (&["--trace", "uniform:rows=3,n=100", "--budget", "1MiB"], "all-rows"),
        (&[&zipf[..], &["--batch", "2048"]].concat(), "no-room"),
        (&[&zipf[..], &["--smallest-batch", "10", "--batch-cost", "10MiB"]].concat(), "does-not-pay"),
    ] {
        assert_eq!(plan(arguments)["plan"]["one_more_set"], why, "{arguments:?}");
    }
}

#[test]
fn options_do_what_they_say() {
    let common = ["--distribution", "zipf:rows=1e6,s=1.05", "--dim", "16", "--lookups", "10", "--budget", "8MiB"];
    let with = |more: &[&str]| plan(&[&common[..], more].concat());
    let number = |value: &Value| value.as_f64().unwrap();
    let plain = with(&[]);
    // SCARS' smallest, since a batch costs nothing of its own, and the bytes that are left over, fewer than a set takes.
    assert!((2048.0..2050.0).contains(&number(&plain["plan"]["batch_samples"])), "{}", plain["plan"]);
    // The plan takes the whole budget, and no more.
    for plan in [&plain, &with(&["--pinned-ways", "16"]), &with(&["--optimizer", "adagrad", "--precision", "int4"])] {
        let taken = number(&plan["plan"]["device_bytes"]);
        assert!(taken <= f64::from(8 << 20) && taken > 0.95 * f64::from(8 << 20), "{}", plan["plan"]);
    }
    let halved = with(&["--pinned-ways", "16"]);
    let pinned = |plan: &Value| number(&plan["plan"]["pinned_rows"]);
    assert!(pinned(&halved) < 0.55 * pinned(&plain) && pinned(&halved) > 0.45 * pinned(&plain));
    // A cost for each batch makes batches larger. Larger samples make the cache smaller.
    let costly = with(&["--smallest-batch", "10", "--batch-cost", "10MiB"]);
    let cheap = with(&["--smallest-batch", "10"]);
    // The memory that no whole set fills goes to the batch.
    assert!(number(&costly["plan"]["batch_samples"]) > 100.0 && number(&cheap["plan"]["batch_samples"]) < 20.0);
    let heavy = with(&["--sample-bytes", "1MiB", "--smallest-batch", "6"]);
    assert!(pinned(&heavy) < 0.6 * pinned(&plain) && heavy["budget"]["sample_bytes"] == 1 << 20);
    for plan in [&plain, &costly, &heavy, &halved] {
        one_and_the_same(plan);
    }
    assert_eq!(plain["curve"][0]["hit_rate"], 0.0);
    // What loading the pinned rows takes, and when it has paid.
    let found = &plain["plan"];
    near(&found["load_bytes"], pinned(&plain) * number(&plain["group"]["record_bytes"]));
    let saved = bytes(&found["epoch_without_cache"]) - bytes(&found["epoch"]);
    near(&found["load_pays_after_epochs"], number(&found["load_bytes"]) / saved);
}

#[test]
fn plots_are_drawn() {
    let folder = TempDir::new().unwrap();
    let stem = folder.path().join("plan");
    let rows = plan(&["--plot", stem.to_str().unwrap()])["plan"]["pinned_rows"].as_f64().unwrap();
    let curve = fs::read_to_string(folder.path().join("plan.svg")).unwrap();
    assert!(curve.contains(&format!("the plan: {rows:.0} rows in ")), "the table's rows");
    assert!(curve.starts_with("<svg") && fs::read(folder.path().join("plan.png")).unwrap().starts_with(b"\x89PNG"));
}

/// The runs of `--verify`, by order. Each measure must be within its bound.
fn verified(arguments: &[&str]) -> Vec<Value> {
    let plan = plan(&[arguments, &["--verify"]].concat());
    let runs = plan["verify"].as_array().unwrap().clone();
    assert_eq!((&runs[0]["order"], &runs[0]["within"]), (&"shuffled".into(), &true.into()), "{}", runs[0]);
    for measure in runs[0]["measures"].as_array().unwrap() {
        let [found, allowed] = ["deviation_percent", "allowed_percent"].map(|key| measure[key].as_f64().unwrap());
        assert!(found.abs() <= allowed, "{measure}");
    }
    runs
}

#[test]
fn the_kernels_count_what_was_predicted() {
    let small = ["--dim", "4", "--budget", "64KiB", "--backend", "cpu"];
    for from in [
        &["--trace", "zipf:rows=3000,s=1.05,n=200000"][..],
        &["--trace", "zipf:rows=3000,s=1.05,n=200000", "--inference", "--lookups", "3"],
        &["--trace", "uniform:rows=3000,n=200000", "--batch", "100", "--verify-batches", "1000"],
        &["--distribution", "exponential:rows=5000,scale=400", "--batch", "200"],
        &["--distribution", "half-normal:rows=5000,scale=400", "--batch", "100", "--pinned-ways", "8"],
    ] {
        let runs = verified(&[from, &small].concat());
        // A generated trace has no locality, so every order of its samples gives the same figures.
        let orders: Vec<&str> = runs.iter().map(|run| run["order"].as_str().unwrap()).collect();
        let wanted = match (from[0], from.contains(&"--lookups")) {
            ("--distribution", _) => &["shuffled"][..],
            (_, false) => &["shuffled", "real"],
            (_, true) => &["shuffled", "samples shuffled", "real"],
        };
        assert_eq!(orders, wanted);
        for run in &runs {
            assert!((run["locality"].as_f64().unwrap() - 1.0).abs() < 0.02, "{run}");
        }
        assert!(runs[0]["measures"][2]["counted"].as_f64().unwrap() > 0.0, "some rows are hit");
    }
}

#[test]
fn a_made_tables_pinned_rows_are_known() {
    // Each batch accesses every row, so its misses are exactly the rows that find no way. The cache covers the table, 32 rows a set, of which 16 are pinned:
    // 31 sets leave out 16 each, and the last one, of 8 rows, none.
    let law =
        "--distribution zipf:rows=1000,s=1 --lookups 1e4 --samples 1000 --batch 16 --verify-batches 2 --pinned-ways 16";
    let runs = verified(&words(&format!("{law} --dim 4 --budget 1EiB --sample-bytes 1 --backend cpu")));
    let missing = &runs[0]["measures"][1];
    assert!(missing["deviation_percent"].as_f64().unwrap().abs() < 0.1, "{missing}");
    assert_eq!(missing["counted"], 2.0 * 31.0 * 16.0, "not all but 16 of each of 32 sets: {missing}");
}

#[test]
fn too_short_is_no_proof() {
    let short = ["--trace", "zipf:rows=3000,s=1.05,n=60000", "--dim", "4", "--budget", "64KiB", "--batch", "1"];
    let (stdout, stderr) =
        outcome(&[&short[..], &["--verify", "--verify-batches", "16", "--backend", "cpu"]].concat(), 1);
    assert!(stdout.contains("too short to tell") && !stdout.contains("prediction holds"), "{stdout}");
    assert!(stderr.contains("nothing was proved"), "{stderr}");
}

#[test]
fn locality_is_found_where_it_is() {
    let folder = TempDir::new().unwrap();
    let common = ["--dim", "4", "--backend", "cpu"];
    let locality = |name: &str, bytes: &[u8], more: &str, order: &str| {
        let path = write(&folder, name, bytes);
        let runs = verified(&[&["--trace", &path][..], &common, &words(more)].concat());
        assert_eq!(runs[1]["order"], order);
        runs[1]["locality"].as_f64().unwrap()
    };
    // Each row occurs four times in succession. A batch has ten distinct rows; forty shuffled lookups would have about 39.
    let runs: Vec<u8> = (0..8000_u32).flat_map(|i| (i / 4 * 7 % 1000).to_le_bytes()).collect();
    let found = locality("runs.u32", &runs, "--budget 16KiB --batch 40", "real");
    assert!((0.25..0.27).contains(&found), "{found}");
    // Each sample has eight lookups of one row. A batch has two distinct rows if samples are shuffled, and about sixteen if lookups are.
    let line = |i: u32| vec![(i % 500).to_string(); 8].join(" ");
    let alike = (0..5000).map(line).collect::<Vec<_>>().join("\n");
    let found = locality("alike.txt", alike.as_bytes(), "--budget 4KiB --batch 2", "samples shuffled");
    assert!((0.12..0.14).contains(&found), "{found}");
}

#[test]
fn real_traces_within_one_percent() {
    let Some(folder) = data::folder("the traces of hotrow plan --verify") else { return };
    for name in data::TRACES {
        let data = folder.to_str().unwrap();
        let common = format!("--data {data} --trace {name} --backend cpu --dim 4 --precision fp32");
        let samples = plan(&words(&common))["source"]["samples"].as_u64().unwrap();
        // Small batches, then batches of 5 % of the trace.
        let (batch, budget) = (samples / 20, samples / 20 + (128 << 10));
        let large = format!("--sample-bytes 1 --budget {budget} --batch {batch} --verify-batches 20");
        for (options, form) in [("--budget 256KiB --verify-batches 1000", "binomial"), (&large, "hypergeometric")] {
            let runs = verified(&words(&format!("{common} {options}")));
            assert_eq!(runs[0]["form"], form, "{name}");
            for measure in runs[0]["measures"].as_array().unwrap() {
                assert!(measure["deviation_percent"].as_f64().unwrap().abs() <= 1.0, "{name}, {form}: {measure}");
            }
        }
    }
}

/// Five of 10 rows are looked up: none of them stays in INT4, and the two of most look-ups get FP16. The map has each row once, in its group's order.
#[test]
fn rows_are_sorted_into_precisions_by_use() {
    let folder = TempDir::new().unwrap();
    let trace = write(&folder, "trace.txt", b"3 0 3 0 3 9\n0 3 9 5 1\n3 3 0 9 9\n");
    let stem = folder.path().join("stem").to_str().unwrap().to_owned();
    // Records of dim 64: FP16 has 128 B, INT8 72, INT4 40.
    let bytes = (2 * 128 + 3 * 72 + 5 * 40).to_string();
    let found = plan(&["precision", "--trace", &trace, "--dim", "64", "--bytes", &bytes, "--out", &stem]);
    let groups = found["groups"].as_array().unwrap();
    let of = |name: &str| groups.iter().map(|group| group[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("precision"), ["fp16", "int8", "int4"]);
    assert_eq!(
        (of("rows"), of("bytes")),
        (vec![2.into(), 3.into(), 5.into()], vec![256.into(), 216.into(), 200.into()])
    );
    assert_eq!(found["bytes"], 672);
    let written: Value = serde_json::from_slice(&fs::read(format!("{stem}.json")).unwrap()).unwrap();
    assert_eq!(written, found);
    let map = fs::read(format!("{stem}.map.npy")).unwrap();
    let numbers: Vec<u32> =
        map[map.len() - 80..].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(numbers, [0, 0, 1, 0, 2, 0, 0, 1, 2, 1, 1, 1, 2, 2, 2, 3, 2, 4, 1, 2]);
    let refused = |more: &[&str]| {
        outcome(&[&["precision", "--trace", &trace, "--dim", "64", "--out", &stem], more].concat(), 2).1
    };
    for (more, wanted) in [
        (
            &["--bytes", "399"][..],
            "--bytes: wanted at least 400, those of 10 rows in the smallest precision, found 399",
        ),
        (&["--bytes", "1MB", "--rows", "9"], "--rows: wanted at least 10, the trace's, found 9"),
        (
            &["--bytes", "1MB", "--precisions", "int8,int8"],
            "--precisions: wanted rows of different sizes, the largest first, found int8 of 72 B before int8 of 72 B",
        ),
    ] {
        let found = refused(more);
        assert!(found.contains(wanted), "{found}");
    }
    // A map of numbers that the file does not have would be another table's.
    for (name, content) in [("words.txt", "red green red"), ("far.txt", "1 99999999999")] {
        let found = outcome(
            &["precision", "--trace", &write(&folder, name, content.as_bytes()), "--bytes", "1MB", "--out", &stem],
            2,
        )
        .1;
        assert!(found.contains("--trace: wanted ids that are rows of one table, found others"), "{found}");
    }
}
