//! `hotrow plan robe` from outside: bad input, figures computed by hand, and the same table in several files; and `plan memory` of shared arrays.

use crate::common::{bytes, npy, plan as common, records::records, write};
#[cfg(unix)]
use crate::golden;
use common::{outcome, plan};
use hotrow::robe::Config;
use hotrow::{Calls, CpuGroup, GroupConfig, Init, MemoryReport, Optimizer, Precision, checkpoint};
use serde_json::Value;
use tempfile::TempDir;

/// The figures of a quantity, in the order of the arrays.
fn figures(plan: &Value, what: &str) -> Vec<f64> {
    records(plan, what, &[]).into_iter().map(|one| one["value"].as_f64().unwrap()).collect()
}

/// Rows of 8 normal numbers.
fn rows(count: u32) -> Vec<f32> {
    let mut rows = vec![0.0; 8 * count as usize];
    let each = (0..count).zip(rows.chunks_exact_mut(8));
    each.for_each(|(row, values)| Init::Normal { mean: 0.1, std: 1.0 }.row(1, row, values));
    rows
}

/// A file of rows of 8.
fn array(folder: &TempDir, name: &str, values: &[f32]) -> String {
    write(folder, name, &npy("<f4", &format!("({}, 8)", values.len() / 8), &bytes(values)))
}

/// Systems that are no Unix word their errors otherwise.
#[cfg(unix)]
#[test]
fn bad_input_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    let mut hole = rows(300);
    hole[805] = f32::NAN;
    for (name, content) in [
        ("flat.npy", npy("<f4", "(8,)", &bytes(&[1.0; 8]))),
        ("rows.npy", npy("<f4", "(300, 8)", &bytes(&rows(300)))),
        ("few.npy", npy("<f4", "(100, 8)", &bytes(&rows(100)))),
        ("narrow.npy", npy("<f4", "(10, 0)", &[])),
        ("wide.npy", npy("<f4", "(1, 16777217)", &[])),
        ("none.npy", npy("<f4", "(0, 8)", &[])),
        ("trace.txt", b"1 2 300".to_vec()),
        ("hole.npy", npy("<f4", "(300, 8)", &bytes(&hole))),
        ("short.npy", npy("<f4", "(300, 8)", &bytes(&rows(300)[1..]))),
        ("foreign.safetensors", b"not a checkpoint".to_vec()),
    ] {
        write(&folder, name, &content);
    }
    golden::refused("plan-robe", folder.path());
}

/// Two rows of one value share one weight of 2.5: rows of lengths 1 and 4 are off by 1.5.
#[test]
fn figures_are_those_worked_out_by_hand() {
    let folder = TempDir::new().unwrap();
    let two = write(&folder, "two.npy", &npy("<f4", "(2, 1)", &bytes(&[1.0, 4.0])));
    let found = plan(&["robe", &two, "--compression", "2", "--chunk", "1"]);
    for (what, wanted) in [
        ("bytes", 4.0),
        ("eps, median", 1.5),
        ("eps, 95 %", 1.5),
        ("eps, largest", 1.5),
        ("eps, root mean square", 1.5),
        ("relative, median", 0.375),
        ("relative, 95 %", 1.5),
        ("relative, largest", 1.5),
        ("lost", 1.0),
    ] {
        assert_eq!(figures(&found, what), [wanted], "{what}");
    }
    assert_eq!(found["sample"], serde_json::json!({ "rows": 2, "by": "row", "rms_length": 8.5f64.sqrt() }));
    let keys: Vec<&String> = found["table"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["bytes", "dim", "kind", "name", "rows", "tables", "values"]);
}

/// Three files hold the same rows, a fourth file holds other rows.
#[test]
fn a_table_is_read_from_any_file() {
    let folder = TempDir::new().unwrap();
    let rows = rows(300);
    let array = array(&folder, "rows.npy", &rows);
    let saved = |name: &str, precision, tables: &[u32]| {
        let config = GroupConfig::new(tables, 8).with_precision(precision);
        let mut group = CpuGroup::filled(config, &rows).unwrap();
        let path = folder.path().join(name);
        checkpoint::save(&mut group, &path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let lines = |table: &str, seed: &str| {
        let options = ["--chunk", "2,32", "--compression", "1,3,20", "--sample", "50", "--seed", seed];
        plan(&[&["robe", table], &options[..]].concat())["records"].clone()
    };
    let wanted = lines(&array, "1");
    assert_eq!(wanted.as_array().unwrap().len(), 6 * 9);
    assert_eq!(lines(&saved("one.safetensors", Precision::Fp32, &[300]), "1"), wanted);
    let two = saved("two.safetensors", Precision::Fp32, &[250, 50]);
    assert_eq!(lines(&two, "1"), wanted, "linear rows are hashed, whatever table they are of");
    assert_ne!(lines(&saved("coarse.safetensors", Precision::Int2, &[300]), "1"), wanted);
    assert_ne!(lines(&array, "2"), wanted, "other rows are drawn");
    assert_eq!(plan(&["robe", &two])["table"]["tables"], serde_json::json!([250, 50]));
}

/// Rows that are looked up often nearly keep their own weights.
#[test]
fn a_trace_weighs_the_rows() {
    let folder = TempDir::new().unwrap();
    let trace = write(&folder, "trace.txt", "3 1 3 2 ".repeat(1000).as_bytes());
    let file = array(&folder, "rows.npy", &rows(4000));
    let table = ["robe", &file, "--chunk", "8", "--compression", "20"];
    let by_row = plan(&table);
    let used = plan(&[&table[..], &["--trace", &trace]].concat());
    assert_eq!((&by_row["sample"]["by"], &used["sample"]["rows"]), (&"row".into(), &4000.into()));
    assert!(used["sample"]["by"].as_str().unwrap().contains("trace"), "{}", used["sample"]);
    let median = |plan: &Value| figures(plan, "eps, median")[0];
    assert!(median(&by_row) > 2.0 && median(&used) < 0.5, "{} {}", median(&by_row), median(&used));
    assert!((figures(&by_row, "lost")[0] - 0.95).abs() < 0.01, "independent rows lose what Poisson's law says");
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
