//! `hotrow bench import` from outside: the plots, the CSV and the table that it makes of files of the web page, and the files that it refuses.

use crate::common::command::outcome;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A file as the page saves it: curves of two precisions that rise to `peak` bytes a second, a sort and a copy.
fn page(name: &str, peak: f64) -> Value {
    let mut figures = Vec::new();
    for (precision, packed) in [("fp32", 0.5), ("int8", 1.0)] {
        for (measure, share) in [("forward", 1.0), ("backward", 0.6)] {
            for rate in [0.0, 0.5, 0.9487, 1.0] {
                let speed = peak * share * packed * (0.2 + 0.8 * rate);
                figures.push(
                    json!({"measure": measure, "precision": precision, "dim": 64, "rows": 1_000_000, "hit_rate": rate,
                    "seconds": 4e6 / speed, "bytes": 4e6, "rounds": 11, "later": "ignored"}),
                );
            }
        }
    }
    for (measure, bytes) in [("sort", 8e6), ("copy", 3e7)] {
        figures.push(json!({"measure": measure, "precision": null, "dim": null, "rows": null, "hit_rate": null,
            "seconds": bytes / peak, "bytes": bytes, "rounds": 11}));
    }
    for (stage, bytes) in [("touch", 1e5), ("update", 1e6)] {
        figures.push(json!({"measure": "kernel", "stage": stage, "precision": "int8", "dim": 64, "rows": 1_000_000,
            "hit_rate": 0.5, "seconds": bytes / peak, "bytes": bytes, "rounds": 1}));
    }
    json!({"schema": "hotrow-web/1", "crate": "hotrow 0.1.0", "date": "2026-11-23T21:00:00Z", "agent": "Mozilla/5.0 (X11) Chrome/140",
        "adapter": {"name": "", "vendor": "", "architecture": "", "device": "", "description": name, "backend": "WebGPU",
            "subgroups": true, "timestamps": false, "later": 1},
        "self_test": {"cases": 12, "passed": 12}, "figures": figures, "later": [1]})
}

/// Writes these files, imports them into `out`, and returns what the command said.
fn import(folder: &TempDir, files: &[(&str, &Value)], code: i32) -> (String, String) {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, content) in files {
        fs::create_dir_all(Path::new(&path(name)).parent().unwrap()).unwrap();
        fs::write(path(name), content.to_string()).unwrap();
    }
    let names: Vec<String> = files.iter().map(|(name, _)| path(name)).collect();
    let mut args = vec!["bench", "import"];
    args.extend(names.iter().map(String::as_str));
    let (out, json) = (path("out"), path("all.json"));
    args.extend(["--out", &out, "--json", &json]);
    outcome(&args, code)
}

/// The first figure of `pages` that the CSV lacks or has wrongly, by machine.
fn lost(csv: &str, pages: &[(&str, &Value)]) -> Option<String> {
    let mut lines = csv::Reader::from_reader(csv.as_bytes());
    let found: Vec<Vec<String>> =
        lines.records().map(|line| line.unwrap().iter().map(str::to_owned).collect()).collect();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).replace("null", "");
    let mut wanted = Vec::new();
    for (machine, page) in pages {
        // The last digit of a number depends on how it was read.
        let page: Value = serde_json::from_str(&page.to_string()).unwrap();
        for figure in page["figures"].as_array().unwrap() {
            let mut line = vec![(*machine).to_owned()];
            let mut figure = figure.clone();
            if let Some(stage) = figure["stage"].as_str() {
                figure["measure"] = format!("kernel {stage}").into(); // a line of its own for each kernel
            }
            line.extend(
                ["measure", "precision", "dim", "rows", "hit_rate", "seconds", "bytes"].map(|name| text(&figure[name])),
            );
            let of = |name: &str| figure[name].as_f64().unwrap();
            line.extend([Value::from(of("bytes") / of("seconds")).to_string(), text(&figure["rounds"])]);
            wanted.push(line);
        }
    }
    let pairs = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
    let all = wanted.len() == found.len();
    pairs.map(|pair| format!("{pair:?}")).or((!all).then(|| format!("{} lines of {}", found.len(), wanted.len())))
}

#[test]
fn machines_stand_in_one_plot() {
    let folder = TempDir::new().unwrap();
    let (card, laptop, software) =
        (page("Card <A> & B | 1", 9e11), page("", 6e10), page("SwiftShader Device (Subzero)", 2e9));
    let mut laptop = laptop;
    (laptop["adapter"]["vendor"], laptop["adapter"]["architecture"]) = ("intel".into(), "gen-12lp".into());
    let files = [("card.json", &card), ("laptop.json", &laptop), ("software.json", &software)];
    let (out, _) = import(&folder, &files, 0);
    let names = ["Card <A> & B / 1", "intel gen-12lp", "SwiftShader Device (Subzero) (software)"];
    for name in names {
        assert!(
            out.contains(&format!("- {name}: WebGPU, with subgroups, without timestamps; self-test passed, 12 cases")),
            "{out}"
        );
    }
    assert_eq!(out.matches("it runs, not how fast").count(), 1, "{out}");
    // 900 GB/s at full hits with INT8, a fifth of it without hits, half of it with FP32.
    let line = |parts: &[&str]| {
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let lines = out.lines().map(cells);
        let mut fitting = lines.filter(|cells| parts.iter().all(|part| cells.contains(&(*part).to_owned())));
        fitting.next().unwrap_or_else(|| panic!("{parts:?}: {out}"))
    };
    let rates = line(&["forward", "INT8", "64", "1 M", names[0]]);
    assert_eq!(rates[6..10], ["180", "540", "863", "900"], "{out}");
    assert_eq!(line(&["backward", "FP32", names[1]])[9], "18.0", "{out}");
    assert_eq!(line(&["kernel touch", "INT8", names[0]])[7], "900", "{out}");
    assert!(line(&["sort", names[1]]).contains(&"133.3 us".to_owned()), "{out}");
    for stem in ["import-int8-64", "import-fp32-64"] {
        let svg = fs::read_to_string(folder.path().join(format!("out/{stem}.svg"))).unwrap();
        for line in [
            "Card &lt;A&gt; &amp; B / 1, forward",
            "intel gen-12lp, backward",
            "SwiftShader Device (Subzero) (software), forward",
        ] {
            assert!(svg.contains(line), "{stem}: {line}");
        }
        assert!(out.contains(&format!("{stem}.png")) && folder.path().join(format!("out/{stem}.png")).is_file());
    }
    let csv = fs::read_to_string(folder.path().join("out/import.csv")).unwrap();
    let pages = [(names[0], &card), (names[1], &laptop), (names[2], &software)];
    assert_eq!(lost(&csv, &pages), None);
    // The companion: a line that is missing, another figure, another machine.
    let without: Vec<&str> = csv.lines().filter(|line| !line.contains("sort")).collect();
    assert!(lost(&without.join("\n"), &pages).is_some());
    assert!(lost(&csv.replacen("4000000.0", "4000001.0", 1), &pages).is_some());
    assert!(lost(&csv, &[pages[1], pages[0], pages[2]]).is_some());
    let all: Value = serde_json::from_slice(&fs::read(folder.path().join("all.json")).unwrap()).unwrap();
    assert_eq!((&all["machines"][1]["name"], &all["machines"][2]["software"]), (&names[1].into(), &true.into()));
    assert_eq!(all["machines"][0]["figures"].as_array().unwrap().len(), 20);
}

#[test]
fn machines_of_one_name_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let (a, b) = (page("GPU", 1e11), page("GPU", 2e11));
    // A third machine has the name that the first one would get.
    let c = page("GPU (first)", 3e11);
    let files = [("one/first.json", &a), ("two/first.json", &b), ("second.json", &a), ("third.json", &c)];
    let (out, _) = import(&folder, &files, 0);
    let names = ["GPU (first), 2", "GPU (first), 3", "GPU (second)", "GPU (first)"];
    for name in names {
        assert_eq!(out.matches(&format!("- {name}: ")).count(), 1, "{name}: {out}");
    }
    let csv = fs::read_to_string(folder.path().join("out/import.csv")).unwrap();
    assert_eq!(lost(&csv, &[(names[0], &a), (names[1], &b), (names[2], &a), (names[3], &c)]), None);
}

/// The message is one sentence with the file, the wanted value, the found value and the remedy, and nothing is written.
fn refused(content: &[u8], parts: &[&str]) {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (folder.path().join("good.json"), folder.path().join("bad.json"));
    fs::write(&good, page("GPU", 1e11).to_string()).unwrap();
    fs::write(&bad, content).unwrap();
    let out = folder.path().join("out");
    let args = ["bench", "import", good.to_str().unwrap(), bad.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let (stdout, stderr) = outcome(&args, 1);
    assert!(stdout.is_empty() && !out.exists(), "{parts:?}: {stdout}");
    assert!(stderr.starts_with(&format!("error: {}: ", bad.display())) && stderr.lines().count() == 1, "{stderr}");
    let rest = &stderr[stderr.find("bad.json").unwrap()..];
    for part in [&["wanted ", "found ", "; "], parts].concat() {
        assert!(rest.contains(part), "{part}: {stderr}");
    }
}

#[test]
fn damaged_files_are_refused() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut page = page("GPU", 1e11);
        change(&mut page);
        page.to_string().into_bytes()
    };
    let figure = |name: &'static str, value: Value| with(&|page| page["figures"][3][name] = value.clone());
    let mut without = page("GPU", 1e11);
    without["figures"][3].as_object_mut().unwrap().remove("seconds");
    let cases: [(Vec<u8>, &[&str]); 23] = [
        (b"{\"schema\": ".to_vec(), &["wanted JSON", "line 1 column 11"]),
        (b"".to_vec(), &["wanted JSON"]),
        (vec![0xff, 0xfe], &["wanted JSON"]),
        (b"[1]".to_vec(), &["wanted \"schema\": \"hotrow-web/1\", found none"]),
        (with(&|page| page["schema"] = 2.into()), &["hotrow-web/1\", found 2"]),
        (with(&|page| page["schema"] = "hotrow-web/2".into()), &["found \"hotrow-web/2\""]),
        (with(&|page| drop(page.as_object_mut().unwrap().remove("agent"))), &["missing field `agent`"]),
        (with(&|page| page["adapter"] = Value::Null), &["wanted all fields"]),
        (with(&|page| page["adapter"]["subgroups"] = 1.into()), &["wanted all fields"]),
        (with(&|page| page["self_test"]["passed"] = 11.into()), &["self-test", "found 11 of 12 cases"]),
        (with(&|page| page["self_test"] = json!({"cases": 0, "passed": 0})), &["found 0 of 0 cases"]),
        (with(&|page| page["figures"] = json!([])), &["wanted 1 to 1000 figures, found 0"]),
        (without.to_string().into_bytes(), &["figure 4: ", "missing field `seconds`"]),
        // JSON has no NaN: a browser writes null.
        (figure("seconds", Value::Null), &["figure 4: ", "null"]),
        (
            page("GPU", 1e11).to_string().replacen("\"seconds\":", "\"seconds\":NaN,\"x\":", 1).into_bytes(),
            &["wanted JSON"],
        ),
        (figure("seconds", (-1e-3).into()), &["figure 4: forward: wanted seconds above 0, found -0.001"]),
        (figure("seconds", 0.into()), &["wanted seconds above 0, found 0"]),
        (figure("bytes", (-1).into()), &["wanted bytes from 0 on, found -1"]),
        (figure("hit_rate", 1.01.into()), &["wanted a hit_rate from 0 to 1, found 1.01"]),
        (figure("hit_rate", (-0.5).into()), &["wanted a hit_rate from 0 to 1, found -0.5"]),
        (figure("hit_rate", Value::Null), &["forward: wanted a hit_rate, found none"]),
        (figure("precision", "int3".into()), &["wanted a precision of fp32, fp16, int8, int4, int2, found int3"]),
        (with(&|page| page["later"] = "x".repeat(1 << 20).into()), &["wanted at most 1024 KiB, found more"]),
    ];
    for (content, parts) in &cases {
        refused(content, parts);
    }
    refused(&figure("rounds", 0.into()), &["wanted at least one round, found 0"]);
    // What these files have without their faults is taken.
    let folder = TempDir::new().unwrap();
    import(&folder, &[("good.json", &page("GPU", 1e11))], 0);
}

#[test]
fn bad_usage_is_refused() {
    let folder = TempDir::new().unwrap();
    let (path, good) = (folder.path().to_str().unwrap(), folder.path().join("good.json"));
    fs::write(&good, page("GPU", 1e11).to_string()).unwrap();
    let good = good.to_str().unwrap();
    let (_, stderr) = outcome(&["bench", "import"], 2);
    assert!(stderr.contains("<FILE>"), "{stderr}");
    for (args, parts) in [
        (
            &["missing.json"][..],
            &["wanted a file that the web page saved, found missing.json: ", "; check its name"][..],
        ),
        (&[path], &["found ", ": a folder; check its name"]),
        (&[good; 9], &["wanted at most 8 files", "found 9"]),
        (&[good, "--backend", "gpu"], &["--backend"]),
        (&[good, "--out", good], &["--out: wanted a folder"]),
        (&["-"], &["wanted a file, found -"]),
    ] {
        let (stdout, stderr) = outcome(&[&["bench", "import"], args].concat(), 2);
        assert!(stdout.is_empty() && parts.iter().all(|part| stderr.contains(part)), "{args:?}: {stdout}{stderr}");
    }
}

#[test]
fn figures_without_a_curve_give_a_table_alone() {
    let folder = TempDir::new().unwrap();
    let mut only = page("GPU", 1e11);
    only["figures"].as_array_mut().unwrap().retain(|figure| figure["hit_rate"].is_null());
    let (out, _) = import(&folder, &[("only.json", &only)], 0);
    assert!(out.contains("Other figures.") && !out.contains("by hit rate") && !out.contains(".png"), "{out}");
}
