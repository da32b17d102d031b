//! `hotrow plan robe` from outside: bad input, schema, figures computed by hand, and the same table in several files.

use crate::common::{bytes, command::keys, npy, plan as common, records::records, write};
#[cfg(unix)]
use crate::golden;
use common::{json, outcome, plan};
use hotrow::robe::Config;
use hotrow::{Calls, CpuGroup, GroupConfig, Init, MemoryReport, Optimizer, Precision, checkpoint};
use serde_json::Value;
use tempfile::TempDir;

fn near(found: &Value, wanted: f64) {
    common::near(found, wanted, 1e-6);
}

/// The figures of a quantity, in the order of the arrays or chunks.
fn figures(plan: &Value, what: &str, shape: &str) -> Vec<f64> {
    records(plan, what, &[("shape", shape.into())]).into_iter().map(|one| one["value"].as_f64().unwrap()).collect()
}

/// 300 rows of 8 normal numbers.
fn rows() -> Vec<f32> {
    let mut rows = vec![0.0; 2400];
    let each = (0..300).zip(rows.chunks_exact_mut(8));
    each.for_each(|(row, values)| Init::Normal { mean: 0.1, std: 1.0 }.row(1, row, values));
    rows
}

/// Systems that are no Unix word their errors otherwise.
#[cfg(unix)]
#[test]
fn bad_input_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    let mut hole = rows();
    hole[805] = f32::NAN;
    for (name, content) in [
        ("rows.f32", bytes(&rows())),
        ("flat.npy", npy("<f4", "(8,)", &bytes(&[1.0; 8]))),
        ("rows.npy", npy("<f4", "(300, 8)", &bytes(&rows()))),
        ("narrow.npy", npy("<f4", "(10, 0)", &[])),
        ("wide.npy", npy("<f4", "(1, 16777217)", &[])),
        ("none.npy", npy("<f4", "(0, 8)", &[])),
        ("trace.txt", b"1 2 300".to_vec()),
        ("doubles.npy", npy("<f8", "(1, 1)", &[0; 8])),
        ("hole.npy", npy("<f4", "(300, 8)", &bytes(&hole))),
        ("short.npy", npy("<f4", "(300, 8)", &bytes(&rows()[1..]))),
        ("foreign.safetensors", b"not a checkpoint".to_vec()),
    ] {
        write(&folder, name, &content);
    }
    golden::refused("plan-robe", folder.path());
}

#[test]
fn the_schema_is_stable() {
    let json = json(&["robe", "normal:rows=100,dim=8", "--chunk", "4", "--eps", "3"]);
    let wanted = "command sample by rms_length rows table bytes dim kind name tables values wanted eps quantile relative records";
    assert_eq!(keys(&json).join(" "), wanted);
}

/// Two rows of one value share one weight.
#[test]
fn figures_are_those_worked_out_by_hand() {
    let folder = TempDir::new().unwrap();
    let two = write(&folder, "two.f32", &bytes(&[1.0, 4.0]));
    let found = plan(&["robe", &two, "--dim", "1", "--compression", "2", "--chunk", "1", "--eps", "1.5"]);
    // The weight is 2.5. Both rows, of lengths 1 and 4, are off by 1.5. Their distance of 3 is lost. An array of one weight is the limit, too.
    for (what, wanted) in [
        ("bytes", 4.0),
        ("eps, median", 1.5),
        ("eps, 95 %", 1.5),
        ("eps, largest", 1.5),
        ("eps, root mean square", 1.5),
        ("relative, median", 0.375),
        ("relative, largest", 1.5),
        ("lost", 1.0),
        ("pairs", 1.0),
        ("inner product", 4.0),
        ("distance", 3.0),
        ("distance, error", 3.0),
    ] {
        near(&figures(&found, what, "one weight")[0].into(), wanted);
    }
    assert_eq!(figures(&found, "pairs beyond", "one weight"), [0.0, 0.0]);
    near(&figures(&found, "lost if unlike", "one weight")[0].into(), 0.5);
    // The error of the inner product depends on the first row of the drawn pair: 1.5 x 4 or 1.5 x 1.
    let inner = figures(&found, "inner product, error", "one weight")[0];
    assert!((inner - 6.0).abs() < 1e-6 || (inner - 1.5).abs() < 1e-6, "{inner}");
    near(&found["sample"]["rms_length"], 8.5f64.sqrt());
    near(&found["table"]["bytes"], 8.0);
    assert_eq!((figures(&found, "weights", "size"), figures(&found, "weights below", "size")), (vec![1.0], vec![]));
    near(&figures(&found, "eps", "size")[0].into(), 1.5);
    // No array keeps half a percent.
    let found = plan(&["robe", &two, "--dim", "1", "--compression", "1", "--chunk", "1", "--eps", "0.5%"]);
    near(&found["wanted"]["eps"], 0.005);
    assert_eq!(found["wanted"]["relative"], true);
    let fits = figures(&found, "eps, largest", "array")[0] == 0.0;
    assert_eq!(figures(&found, "weights", "size").is_empty(), !fits);
}

/// Four files hold the same rows, a fifth file holds other rows.
#[test]
fn a_table_is_read_from_any_file() {
    let folder = TempDir::new().unwrap();
    let rows = rows();
    let array = write(&folder, "rows.npy", &npy("<f4", "(300, 8)", &bytes(&rows)));
    let floats = write(&folder, "rows.f32", &bytes(&rows));
    let saved = |name: &str, precision, tables: &[u32]| {
        let config = GroupConfig::new(tables, 8).with_precision(precision);
        let mut group = CpuGroup::filled(config, &rows).unwrap();
        let path = folder.path().join(name);
        checkpoint::save(&mut group, &path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let one = saved("one.safetensors", Precision::Fp32, &[300]);
    let two = saved("two.safetensors", Precision::Fp32, &[250, 50]);
    let coarse = saved("coarse.safetensors", Precision::Int2, &[300]);
    let lines = |arguments: &[&str]| {
        plan(&[arguments, &["--chunk", "2,32", "--compression", "1,3,20"]].concat())["records"].clone()
    };
    let wanted = lines(&["robe", &array]);
    assert_eq!(wanted.as_array().unwrap().len(), 6 * 16 + 15);
    assert_eq!(lines(&["robe", &array, "--dim", "8"]), wanted);
    assert_eq!(lines(&["robe", &floats, "--dim", "8"]), wanted);
    assert_eq!(lines(&["robe", &one]), wanted);
    assert_eq!(lines(&["robe", &two]), wanted, "linear rows are hashed, whatever table they are of");
    assert_ne!(lines(&["robe", &coarse]), wanted);
    assert_ne!(lines(&["robe", &floats, "--dim", "16"]), wanted);
    assert_eq!(plan(&["robe", &two])["table"]["tables"], serde_json::json!([250, 50]));
}

#[test]
fn unlike_rows_lose_what_is_expected() {
    let found = plan(&["robe", "normal:rows=5000,dim=16,mean=3", "--chunk", "8", "--seed", "4"]);
    let [lost, unlike] = ["lost", "lost if unlike"].map(|what| figures(&found, what, "array"));
    assert_eq!(lost.len(), 5, "1 to 10,000 times, the last in 8 weights");
    assert!(lost.iter().zip(&unlike).all(|(lost, unlike)| (lost - unlike).abs() < 0.01), "{lost:?} {unlike:?}");
    let [beyond, pairs] = ["pairs beyond", "pairs"].map(|what| figures(&found, what, "array"));
    assert_eq!((beyond, pairs), (vec![0.0; 5], vec![2500.0; 5]));
    assert!(lost[0] < 0.5 && lost[2] > 0.95);
    near(&figures(&found, "lost", "one weight")[0].into(), 1.0);
    // Clusters do not help. A table of one value is kept by a single chunk.
    let clustered = plan(&["robe", "clustered:rows=5000,dim=16,clusters=10", "--compression", "100"]);
    assert!(figures(&clustered, "lost", "array")[0] > 0.9, "{clustered}");
    let alike = plan(&["robe", "normal:rows=5000,dim=16,mean=3,std=0", "--eps", "0.001"]);
    assert_eq!((figures(&alike, "weights", "size"), figures(&alike, "lost", "array")[3]), (vec![32.0], 0.0));
}

#[test]
fn a_size_that_does_is_found_or_none_is_told() {
    let table = ["robe", "normal:rows=2000,dim=8,mean=1", "--chunk", "8", "--compression", "2"];
    let with = |more: &[&str]| plan(&[&table[..], more].concat());
    let size = |found: &Value, what: &str| figures(found, what, "size").first().copied();
    let found = with(&["--eps", "60%", "--quantile", "0.5"]);
    let [weights, below, eps] = ["weights", "weights below", "eps"].map(|what| size(&found, what).unwrap());
    assert!(eps <= 0.6 && size(&found, "eps below").unwrap() > 0.6, "{found}");
    assert!(below < weights && weights - below <= below / 100.0 + 1.0, "{found}");
    // An array of exactly that size is measured again.
    let again = with(&["--compression", &format!("{:.9}", 16_000.0 / (weights + 0.5))]);
    let measured = records(&again, "relative, median", &[("weights", weights.into())]);
    assert_eq!(measured[0]["value"], eps);
    // Keeping every row takes more weights than keeping half of the rows.
    assert!(size(&with(&["--eps", "60%"]), "weights").is_none_or(|each| each > weights));
    let none = with(&["--eps", "0.001"]);
    assert_eq!((size(&none, "weights"), size(&none, "most weights tried")), (None, Some(16_000.0)));
    // From eps^2 = dim / (2 load).
    let rms = figures(&none, "eps, root mean square", "one weight")[0];
    near(&size(&none, "weights if unlike").unwrap().into(), 16_000.0 * 8.0 / (2.0 * 1e-6) * rms.powi(2) / 8.0);
}

/// Rows without lookups have no influence.
#[test]
fn a_trace_weighs_the_rows() {
    let folder = TempDir::new().unwrap();
    let trace = write(&folder, "trace.txt", "3 1 3 2 ".repeat(1000).as_bytes());
    let table = ["robe", "normal:rows=4000,dim=8", "--chunk", "8", "--compression", "20"];
    let by_row = plan(&table);
    let used = plan(&[&table[..], &["--trace", &trace]].concat());
    assert_eq!((&by_row["sample"]["by"], &used["sample"]["rows"]), (&"row".into(), &4000.into()));
    assert!(used["sample"]["by"].as_str().unwrap().contains("trace"), "{}", used["sample"]);
    assert!(figures(&used, "lost if unlike", "array").is_empty());
    let none = plan(&[&table[..], &["--trace", "uniform:rows=4000,n=8000", "--eps", "1e-9"]].concat());
    assert!(["weights", "weights if unlike"].iter().all(|what| figures(&none, what, "size").is_empty()));
    let median = |plan: &Value| figures(plan, "eps, median", "array")[0];
    assert!(median(&by_row) > 2.0 && median(&used) < 0.5, "{} {}", median(&by_row), median(&used));
    // A sample of the lookups is enough.
    assert_eq!(plan(&[&table[..], &["--trace", &trace, "--sample", "7"]].concat())["sample"]["rows"], 7);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let folder = TempDir::new().unwrap();
    let file = write(&folder, "rows.npy", &npy("<f4", "(300, 8)", &bytes(&rows())));
    let table = ["robe", &file, "--sample", "50", "--eps", "2.5"];
    let at = |seed: &str| json(&[&table[..], &["--seed", seed]].concat());
    assert_eq!(at("1"), at("1"));
    assert_ne!(at("1"), at("2"), "other rows are drawn");
}

/// The bytes equal the library's plan, which equals a group's real size.
#[test]
fn memory_of_a_shared_array() {
    let rows = ["memory", "--rows", "100000,2000", "--dim", "16"];
    let with = |more: &[&str]| plan(&[&rows[..], more].concat());
    let found =
        with(&["--compression", "10,1000", "--chunk", "8,32", "--optimizer", "sgd,adagrad", "--batch", "0,4096"]);
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 16);
    let at = |place: usize, key: &str| found[place][key].as_u64().unwrap();
    for (place, optimizer) in [(0, Optimizer::sgd(0.01)), (3, Optimizer::adagrad(0.01))] {
        let config = Config::compressed(&[100_000, 2000], 16, 10.0, 8).unwrap().with_optimizer(optimizer);
        let calls = if place == 0 { Calls::default() } else { 4096.into() };
        let report = MemoryReport::plan_robe(&config, calls).unwrap();
        assert_eq!((at(place, "total_bytes"), at(place, "weights")), (report.total(), 163_200));
        assert_eq!(at(place, "device_bytes"), report.device());
        assert_eq!(found[place]["bytes"]["payload"], 4 * 163_200);
    }
    assert!(at(0, "total_bytes") < at(1, "total_bytes") && at(1, "total_bytes") < at(3, "total_bytes"));
    assert_eq!((at(4, "weights"), at(8, "chunk")), (1632, 32));
    let (stdout, _) = outcome(&[&rows[..], &["--compression", "10,1000"]].concat(), 0);
    assert!(stdout.contains("formula factor") && stdout.contains("| 1632 ") && stdout.contains("tables do not share"));
}
