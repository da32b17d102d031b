//! `hotrow plan robe` from outside: bad input, schema, figures computed by hand, and the same table in several files.

use crate::common::{command::keys, plan as common};
use common::{json, outcome, plan};
use hotrow::robe::Config;
use hotrow::{Calls, CpuGroup, GroupConfig, Init, MemoryReport, Optimizer, Precision, checkpoint};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

fn near(found: &Value, wanted: f64) {
    common::near(found, wanted, 1e-6);
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The bytes of a numpy file.
fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let room = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.push_str(&" ".repeat(room - header.len() - 1));
    header.push('\n');
    [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

/// Writes a file and returns its path.
fn write(folder: &TempDir, name: &str, content: &[u8]) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// 300 rows of 8 normal numbers.
fn rows() -> Vec<f32> {
    let mut rows = vec![0.0; 2400];
    let each = (0..300).zip(rows.chunks_exact_mut(8));
    each.for_each(|(row, values)| Init::Normal { mean: 0.1, std: 1.0 }.row(1, row, values));
    rows
}

#[test]
fn bad_input_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    let floats = write(&folder, "rows.f32", &bytes(&rows()));
    let flat = write(&folder, "flat.npy", &npy("<f4", "(8,)", &bytes(&[1.0; 8])));
    let array = write(&folder, "rows.npy", &npy("<f4", "(300, 8)", &bytes(&rows())));
    let narrow = write(&folder, "narrow.npy", &npy("<f4", "(10, 0)", &[]));
    let wide = write(&folder, "wide.npy", &npy("<f4", "(1, 16777217)", &[]));
    let none = write(&folder, "none.npy", &npy("<f4", "(0, 8)", &[]));
    let trace = write(&folder, "trace.txt", b"1 2 300");
    let normal = "normal:rows=100,dim=8";
    for (arguments, named) in [
        (&["robe", "normal:rows=10"][..], "dim"),
        (&["robe", "normal:rows=10,dim=4,std=big"], "std"),
        (&["robe", "clustered:rows=10,dim=4"], "clusters"),
        (&["robe", normal, "--dim", "9"], "--dim"),
        (&["robe", normal, "--dim", "8,9"], "--dim"),
        (&["robe", &floats], "--dim"),
        (&["robe", &floats, "--dim", "7"], "9600 B"),
        (&["robe", &flat], "two axes"),
        (&["robe", &narrow], "narrow.npy: wanted a dim of 1 to 16777216, found 0; "),
        (&["robe", &wide], "wide.npy: wanted a dim of 1 to 16777216, found 16777217; "),
        (&["robe", &none], "none.npy: wanted 1 to 4294967294 rows, found 0; "),
        (&["robe", &floats, "--dim", "16777217"], "dim"),
        (&["robe", &array, "--dim", "16"], "--dim"),
        (&["robe", &array, "--trace", &trace], "300"),
        (&["robe", normal, "--compression", "0.5"], "compression"),
        (&["robe", normal, "--compression", "nan"], "compression"),
        (&["robe", normal, "--compression", "-1"], "compression"),
        (&["robe", normal, "--compression", "10,1e9"], "compression"),
        (&["robe", normal, "--compression", "lots"], "--compression"),
        (&["robe", normal, "--chunk", "0"], "--chunk"),
        (&["robe", normal, "--chunk", "900"], "--chunk"),
        // A list with one bad value is refused as a whole.
        (&["robe", normal, "--chunk", "4,900"], "found 900"),
        (&["robe", normal, "--backend", "gpu"], "--backend"),
        (&["robe", normal, "--data", "."], "--data"),
        (&["robe", normal, "--eps", "0"], "--eps"),
        (&["robe", normal, "--eps", "-1"], "--eps"),
        (&["robe", normal, "--eps", "0%"], "--eps"),
        (&["robe", normal, "--eps", "small"], "--eps"),
        (&["robe", normal, "--quantile", "0.5"], "--eps"),
        (&["robe", normal, "--eps", "1", "--quantile", "1.5"], "--quantile"),
        (&["robe", normal, "--eps", "1", "--delta", "0"], "--delta"),
        (&["robe", normal, "--eps", "1", "--delta", "1"], "--delta"),
        (&["robe", normal, "--sample", "0"], "--sample"),
        (&["robe", normal, "--memory", "--rows", "10"], "--memory"),
        (&["robe", normal, "--budget", "1MiB"], "--budget"),
        (&["robe", normal, "--precision", "int4"], "--precision"),
        (&["robe", normal, "--batch", "7"], "--batch"),
        (&["robe", normal, "--verify"], "--verify"),
        (&["robe", normal, "--rows", "10"], "--rows"),
        (&["robe", normal, "--prefetch"], "--prefetch"),
        (&["robe", normal, "--policy", "lfu"], "--policy"),
        (&["--compression", "10"], "--compression"),
        (&["--chunk", "8"], "--chunk"),
        (&["--eps", "8"], "--eps"),
        (&["--sample", "8"], "--sample"),
        (&["robe"], "TABLE"),
    ] {
        let (stdout, stderr) = outcome(arguments, 2);
        assert!(stderr.contains(named) && stdout.is_empty(), "{arguments:?}: {stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{arguments:?}: {stderr}");
    }
    // Legal arguments with a table that cannot be read.
    let doubles = write(&folder, "doubles.npy", &npy("<f8", "(1, 1)", &[0; 8]));
    let mut hole = rows();
    hole[805] = f32::NAN;
    let hole = write(&folder, "hole.npy", &npy("<f4", "(300, 8)", &bytes(&hole)));
    let short = write(&folder, "short.npy", &npy("<f4", "(300, 8)", &bytes(&rows()[1..])));
    let foreign = write(&folder, "foreign.safetensors", b"not a checkpoint");
    for (table, named) in [
        ("no/such/table.npy", "no/such/table.npy"),
        ("no/such/table.safetensors", "no/such/table.safetensors"),
        (&doubles, "<f4"),
        (&hole, "row 100: wanted finite values, found NaN at element 5"),
        (&short, "short.npy"),
        (&foreign, "foreign.safetensors"),
    ] {
        let (_, stderr) = outcome(&["robe", table], 1);
        assert!(stderr.contains(named) && stderr.lines().count() == 1, "{table}: {stderr}");
    }
    outcome(&["robe", "no/such/floats", "--dim", "4"], 1);
}

#[test]
fn the_schema_is_stable() {
    let json = json(&["robe", "normal:rows=100,dim=8", "--chunk", "4", "--eps", "3"]);
    let wanted = "table name kind tables rows dim values bytes sample by rms_length constant compression chunk weights eps median percent_95 \
                  max relative rms lost unlike pairs beyond inner_error inner distance_error distance lines wanted quantile sizes below \
                  largest unlike_weights sketch sigma delta k of_the_table";
    assert_eq!(keys(&json).join(" "), wanted);
}

/// Two rows of one value share one weight.
#[test]
fn figures_are_those_worked_out_by_hand() {
    let folder = TempDir::new().unwrap();
    let two = write(&folder, "two.f32", &bytes(&[1.0, 4.0]));
    let found = plan(&["robe", &two, "--dim", "1", "--compression", "2", "--chunk", "1", "--eps", "1.5"]);
    let line = &found["lines"][0];
    assert_eq!(
        (&line["weights"], &line["bytes"], &line["pairs"], &line["beyond"]),
        (&1.into(), &4.into(), &1.into(), &0.into())
    );
    // The weight is 2.5. Both rows, of lengths 1 and 4, are off by 1.5. Their distance of 3 is lost.
    for key in ["median", "percent_95", "max"] {
        near(&line["eps"][key], 1.5);
    }
    near(&line["relative"]["median"], 0.375);
    near(&line["relative"]["max"], 1.5);
    near(&line["lost"], 1.0);
    near(&line["unlike"], 0.5);
    near(&line["inner"], 4.0);
    // The error of the inner product depends on the first row of the drawn pair: 1.5 x 4 or 1.5 x 1.
    let inner = line["inner_error"].as_f64().unwrap();
    assert!((inner - 6.0).abs() < 1e-6 || (inner - 1.5).abs() < 1e-6, "{inner}");
    near(&line["distance"], 3.0);
    near(&line["distance_error"], 3.0);
    near(&found["sample"]["rms_length"], 8.5f64.sqrt());
    near(&found["table"]["bytes"], 8.0);
    let size = &found["sizes"][0];
    assert_eq!((&size["weights"], &size["below"]), (&1.into(), &Value::Null));
    near(&size["eps"], 1.5);
    // sigma^2 = 17, k = 17 / 2.25 (ln 100 + 1) = 42.35.., dim 1.
    let sketch = &found["sketch"];
    near(&sketch["sigma"], 17f64.sqrt());
    near(&sketch["weights"], 43.0);
    near(&sketch["of_the_table"], 21.5);
    // No array keeps half a percent.
    let found = plan(&["robe", &two, "--dim", "1", "--compression", "1", "--chunk", "1", "--eps", "0.5%"]);
    near(&found["wanted"]["eps"], 0.005);
    assert_eq!(found["wanted"]["relative"], true);
    let fits = found["lines"][0]["eps"]["max"].as_f64().unwrap() == 0.0;
    assert_eq!(found["sizes"][0]["weights"].is_null(), !fits);
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
        plan(&[arguments, &["--chunk", "2,32", "--compression", "1,3,20"]].concat())["lines"].clone()
    };
    let wanted = lines(&["robe", &array]);
    assert_eq!(wanted.as_array().unwrap().len(), 6);
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
    let lines = found["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 5, "1 to 10,000 times, the last in 8 weights");
    for line in lines {
        let (lost, unlike) = (line["lost"].as_f64().unwrap(), line["unlike"].as_f64().unwrap());
        assert!((lost - unlike).abs() < 0.01, "{line}");
        assert_eq!((&line["beyond"], &line["pairs"]), (&0.into(), &2500.into()));
    }
    assert!(lines[0]["lost"].as_f64().unwrap() < 0.5 && lines[2]["lost"].as_f64().unwrap() > 0.95);
    near(&found["constant"]["lost"], 1.0);
    // Clusters do not help. A table of one value is kept by a single chunk.
    let clustered = plan(&["robe", "clustered:rows=5000,dim=16,clusters=10", "--compression", "100"]);
    assert!(clustered["lines"][0]["lost"].as_f64().unwrap() > 0.9, "{clustered}");
    let alike = plan(&["robe", "normal:rows=5000,dim=16,mean=3,std=0", "--eps", "0.001"]);
    assert_eq!((&alike["sizes"][0]["weights"], &alike["lines"][3]["lost"]), (&32.into(), &0.0.into()));
}

#[test]
fn a_size_that_does_is_found_or_none_is_told() {
    let table = ["robe", "normal:rows=2000,dim=8,mean=1", "--chunk", "8", "--compression", "2"];
    let with = |more: &[&str]| plan(&[&table[..], more].concat());
    let found = with(&["--eps", "60%", "--quantile", "0.5"]);
    let (size, wanted) = (&found["sizes"][0], 0.6);
    let weights = size["weights"].as_u64().unwrap();
    assert!(size["eps"].as_f64().unwrap() <= wanted && size["below"]["eps"].as_f64().unwrap() > wanted, "{size}");
    let below = size["below"]["weights"].as_u64().unwrap();
    assert!(below < weights && weights - below <= below / 100 + 1, "{size}");
    // An array of exactly that size is measured again.
    let again = with(&["--compression", &format!("{:.9}", 16_000.0 / (weights as f64 + 0.5))]);
    let line = &again["lines"][1];
    assert_eq!((&line["weights"], &line["relative"]["median"]), (&weights.into(), &size["eps"]));
    // Keeping every row takes more weights than keeping half of the rows.
    let each = with(&["--eps", "60%"])["sizes"][0]["weights"].as_u64();
    assert!(each.is_none_or(|each| each > weights));
    let none = with(&["--eps", "0.001"]);
    let size = &none["sizes"][0];
    assert_eq!((&size["weights"], &size["largest"]["weights"]), (&Value::Null, &16_000.into()));
    // From eps^2 = dim / (2 load).
    near(
        &size["unlike_weights"],
        16_000.0 * 8.0 / (2.0 * 1e-6) * none["constant"]["rms"].as_f64().unwrap().powi(2) / 8.0,
    );
    let (stdout, _) = outcome(&[&table[..], &["--eps", "0.001"]].concat(), 0);
    assert!(stdout.contains(" - |") && stdout.contains("corollary 6"), "{stdout}");
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
    assert!(used["lines"][0]["unlike"].is_null());
    let none = plan(&[&table[..], &["--trace", "uniform:rows=4000,n=8000", "--eps", "1e-9"]].concat());
    assert!(none["sizes"][0]["weights"].is_null() && none["sizes"][0]["unlike_weights"].is_null());
    let median = |plan: &Value| plan["lines"][0]["eps"]["median"].as_f64().unwrap();
    assert!(median(&by_row) > 2.0 && median(&used) < 0.5, "{} {}", median(&by_row), median(&used));
    // A sample of the lookups is enough.
    assert_eq!(plan(&[&table[..], &["--trace", &trace, "--sample", "7"]].concat())["sample"]["rows"], 7);
}

#[test]
fn the_same_seed_gives_the_same_answer_and_plots_are_drawn() {
    let folder = TempDir::new().unwrap();
    let stem = folder.path().join("eps");
    let (file, stem) = (write(&folder, "rows.npy", &npy("<f4", "(300, 8)", &bytes(&rows()))), stem.to_str().unwrap());
    let table = ["robe", &file, "--sample", "50", "--eps", "2.5"];
    let at = |seed: &str| json(&[&table[..], &["--seed", seed]].concat());
    assert_eq!(at("1"), at("1"));
    assert_ne!(at("1"), at("2"), "other rows are drawn");
    for chunks in ["8", "1,8"] {
        outcome(&[&table[..], &["--plot", stem, "--chunk", chunks]].concat(), 0);
        let svg = fs::read_to_string(format!("{stem}.svg")).unwrap();
        assert!(svg.contains("wanted of 100 % of the rows") && svg.contains("chunks of 8"));
        assert_eq!(svg.contains("chunks of 1<"), chunks == "1,8");
        assert!(fs::read(format!("{stem}.png")).unwrap().starts_with(b"\x89PNG"));
    }
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
    for (more, named) in [
        (&["--compression", "0.5"][..], "compression"),
        (&["--compression", "1e9"], "compression"),
        (&["--chunk", "8"], "--compression"),
        (&["--compression", "10", "--optimizer", "row-wise-adagrad"], "optimizer"),
        (&["--compression", "10", "--precision", "int8"], "--precision"),
        (&["--compression", "10", "--cache-percent", "5"], "--cache-percent"),
        (&["--compression", "10", "--prefetch"], "--prefetch"),
        (&["--compression", "10", "--eps", "1"], "--eps"),
        (&["--compression", "10", "--sample", "1"], "--sample"),
        (&["--delta", "0.5"], "--delta"),
        (&["--compression", "10", "--batch", "1000000000"], "32 bits count is 8589934588; split the batch"),
        (&["--compression", "10", "--backend", "gpu"], "--backend"),
        (&["--compression", "10", "--data", "."], "--data"),
    ] {
        let (stdout, stderr) = outcome(&[&rows[..], more].concat(), 2);
        assert!(stderr.contains(named) && stdout.is_empty(), "{more:?}: {stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{more:?}: {stderr}");
    }
}
