//! `hotrow train` from the shell, on data that takes seconds: its output, its files, and its messages about bad input.

use hotrow_harness::data;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const ROWS: u32 = 2000;
const BAGS: u32 = 400;
const WORDS: u32 = 10;

fn write_words(path: &Path, words: impl IntoIterator<Item = u32>) {
    fs::write(path, words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
}

/// A data folder of eight authors, each with words of his own, and of patients with 39 fields.
fn data() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut state = 1_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let (mut ids, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..BAGS {
        let author = draw(8);
        labels.push(author as u8);
        ids.extend((0..WORDS).map(|_| draw(ROWS / 8) * 8 + author));
    }
    ids[0] = ROWS - 1;
    write_words(&at("ebooks_words.u32"), ids);
    for name in ["ebooks_words", "ebooks_sentences"] {
        write_words(&at(&format!("{name}.offsets.u32")), (0..=BAGS).map(|bag| bag * WORDS));
        fs::write(at(&format!("{name}.labels.u8")), &labels).unwrap();
    }
    let mut ids = Vec::new();
    for patient in 0..200 {
        ids.push(patient);
        ids.extend((0..39).map(|field| 1000 + field * 40 + draw(40)));
    }
    write_words(&at("diabetes130_fields.u32"), ids);
    write_words(&at("diabetes130_fields.offsets.u32"), (0..=200).map(|bag| bag * 40));
    fs::write(at("diabetes130_fields.labels.u8"), (0..200).map(|_| draw(2) as u8).collect::<Vec<u8>>()).unwrap();
    folder
}

/// Runs `hotrow train` and expects an exit code. Returns stdout and stderr.
fn train(arguments: &[&str], code: i32) -> (String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("hotrow-lab"));
    // Options follow the mode, if there is one.
    command.env_remove("HOTROW_DATA").arg("train").args(arguments).args(["--backend", "cpu"]);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stdout}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    (stdout, stderr)
}

/// Runs `hotrow train` on a data folder, with little work.
fn on(data: &TempDir, arguments: &[&str], code: i32) -> (String, String) {
    let folder = data.path().to_str().unwrap();
    let small = ["--data", folder, "--dim", "4", "--epochs", "1", "--batch", "32", "--decay", "false"];
    // --goal-steps replaces --epochs. Both together are refused.
    let instead = arguments.contains(&"--goal-steps").then_some("--epochs");
    let given = |option: &&[&str]| !arguments.contains(&option[0]) && instead != Some(option[0]);
    train(&[arguments, &small.chunks(2).filter(given).flatten().copied().collect::<Vec<_>>()].concat(), code)
}

fn json(path: &Path) -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The losses of all runs, by setting.
fn losses(path: &Path) -> Vec<Vec<f64>> {
    let runs =
        |choice: &Value| choice["runs"].as_array().unwrap().iter().map(|run| run["loss"].as_f64().unwrap()).collect();
    json(path).iter().map(runs).collect()
}

#[test]
fn a_table_and_json_of_what_was_asked_for() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let path = file.path().join("out.json");
    let asked = ["--task", "author", "--precision", "int8,int4", "--cache-percent", "0,10", "--seeds", "2", "--json"];
    let (stdout, stderr) = on(&data, &[&asked[..], &[path.to_str().unwrap()]].concat(), 0);
    assert_eq!(stderr, "");
    for wanted in ["ebooks_words: ", "1 epoch of 32 samples", "| int8 stochastic, 10 % lfu ", "change %", "moved MB"] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    assert_eq!(stdout.lines().filter(|line| line.starts_with('|')).count(), 2 + 5, "{stdout}");
    assert!(!stdout.contains("AUC"), "eight classes have none: {stdout}");
    let found = json(&path);
    assert_eq!(found.len(), 5);
    let keys: Vec<&String> = found[1].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["data", "loss", "loss_change", "runs", "setting", "tables", "task"]);
    assert!(found[0]["loss_change"].is_null());
    let table = &found[4]["tables"][0];
    assert_eq!((&table["precision"], &table["policy"], &table["rows"]), (&"int4".into(), &"lfu".into(), &ROWS.into()));
    let run = &found[4]["runs"][1];
    assert_eq!(run["seed"], 1);
    assert!(run["hit_rate"].as_f64().unwrap() > 0.0 && run["bus_bytes"].as_u64().unwrap() > 0);
    assert!(found[0]["runs"][0]["hit_rate"].is_null());
    // The change follows from the reported losses.
    let change = |k: usize| {
        let [plain, low] = [0, 4].map(|choice: usize| found[choice]["runs"][k]["loss"].as_f64().unwrap());
        100.0 * (low - plain) / plain
    };
    let mean = found[4]["loss_change"]["mean"].as_f64().unwrap();
    assert!((mean - (change(0) + change(1)) / 2.0).abs() < 1e-9);
}

#[test]
fn the_same_seed_the_same_losses() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let run = |name: &str, seed: &str, task: &[&str]| {
        let path = file.path().join(name);
        let asked = ["--precision", "int4", "--seeds", "2", "--seed", seed, "--json", path.to_str().unwrap()];
        on(&data, &[task, &asked[..]].concat(), 0);
        losses(&path)
    };
    for task in [&["--task", "author"][..], &["--task", "author", "--sentences"], &["--task", "readmission"]] {
        let (one, again, next) = (run("a", "5", task), run("b", "5", task), run("c", "6", task));
        assert_eq!(one, again, "{task:?}");
        // Seeds 5 and 6, then seeds 6 and 7.
        assert_eq!(
            one.iter().map(|runs| runs[1]).collect::<Vec<_>>(),
            next.iter().map(|runs| runs[0]).collect::<Vec<_>>()
        );
        assert!(one[0][0] != one[0][1] && one[0][0] != one[1][0], "{one:?}");
    }
}

#[test]
fn a_gpu_comes_close_to_the_cpu() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let path = file.path().join("out.json");
    let run = |backend: &str| {
        let asked =
            ["--task", "author", "--precision", "int8", "--cache-percent", "10", "--limit", "96", "--seeds", "1"];
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("hotrow-lab"));
        command.args(["train", "--backend", backend, "--dim", "4", "--epochs", "1", "--batch", "32", "--data"]);
        command.arg(data.path()).args(asked).arg("--json").arg(&path);
        command.output().unwrap()
    };
    assert!(run("cpu").status.success());
    let on_cpu = losses(&path);
    let done = run("gpu");
    let error = String::from_utf8_lossy(&done.stderr).into_owned();
    if error.contains("found no adapter") {
        assert_ne!(std::env::var("HOTROW_TEST_GPU").as_deref(), Ok("require"), "{error}");
        std::io::Write::write_all(&mut std::io::stderr(), b"SKIPPED: no Vulkan driver for train --backend gpu\n")
            .unwrap();
        return;
    }
    assert!(done.status.success(), "{error}");
    for (cpu, gpu) in on_cpu.iter().flatten().zip(losses(&path).iter().flatten()) {
        // Sums are added in another order, and some codes are neighbours.
        assert!((cpu - gpu).abs() < 1e-3 * cpu, "{cpu} against {gpu}");
    }
}

#[test]
fn what_is_no_data_is_named() {
    let message = |damage: &dyn Fn(&Path), task: &[&str]| {
        let data = data();
        damage(data.path());
        on(&data, &[task, &["--seeds", "1"]].concat(), 1).1
    };
    let author: &[&str] = &["--task", "author"];
    type Case<'a> = (&'a dyn Fn(&Path), &'a [&'a str], &'a str);
    let cases: [Case<'_>; 9] = [
        (&|at| fs::remove_file(at.join("ebooks_words.u32")).unwrap(), author, "trace ebooks_words: wanted a file"),
        (&|at| fs::write(at.join("ebooks_words.u32"), []).unwrap(), author, "the file is empty"),
        (&|at| fs::write(at.join("ebooks_words.u32"), [1, 2, 3]).unwrap(), author, "wanted whole ids of 4 bytes"),
        (
            &|at| fs::remove_file(at.join("ebooks_words.labels.u8")).unwrap(),
            author,
            "ebooks_words.labels.u8: wanted this file",
        ),
        (
            &|at| fs::write(at.join("ebooks_words.labels.u8"), [8; 400]).unwrap(),
            author,
            "wanted labels from 0 to 7, found 8 at bag 0",
        ),
        (
            &|at| fs::write(at.join("ebooks_words.labels.u8"), [0; 399]).unwrap(),
            author,
            "wanted 400 labels, one a bag, found 399",
        ),
        (
            &|at| fs::remove_file(at.join("ebooks_sentences.offsets.u32")).unwrap(),
            &["--task", "author", "--sentences"],
            "ebooks_sentences.offsets.u32: wanted this file",
        ),
        (&|at| write_words(&at.join("ebooks_words.offsets.u32"), [0, 5]), author, "wanted a last offset of 4000"),
        (
            &|at| write_words(&at.join("diabetes130_fields.offsets.u32"), [0, 39, 8000]),
            &["--task", "readmission"],
            "wanted 40 fields in each bag, found 39 in bag 0",
        ),
    ];
    for (damage, task, wanted) in cases {
        let found = message(damage, task);
        assert!(found.starts_with("error: ") && found.contains(wanted), "{wanted}: {found}");
    }
    let found = train(&["--task", "words"], 1).1;
    assert!(found.contains("task words: wanted the data folder, found none; give --data DIR"), "{found}");
    let (short, folder) = (tempfile::tempdir().unwrap(), |dir: &TempDir| dir.path().to_str().unwrap().to_owned());
    write_words(&short.path().join("wikitext2_words.u32"), 0..100);
    let found = train(&["--task", "words", "--data", &folder(&short)], 1).1;
    assert!(found.contains("wanted 2088628 tokens to train") && found.contains("found 100 in all"), "{found}");
}

#[test]
fn what_cannot_be_asked_for() {
    let data = data();
    let cases: [(&[&str], &str); 34] = [
        (&["until", "2"], "until: wanted settings to compare with the full table"),
        (&["until", "--table", "robe:weights=99"], "<N>"),
        // The old spellings of modes.
        (&["--seeds", "1", "--until-full", "2"], "until: wanted settings to compare with the full table"),
        (&["--table", "robe:weights=99", "--grid"], "unexpected argument '--table'"),
        (&["--precision", "int4", "--profile"], "unexpected argument '--precision'"),
        (&["until", "2", "--table", "robe:weights=99", "--decay", "true"], "--decay: wanted constant rates"),
        (&["until", "2", "--table", "robe:weights=9"], "at least a chunk of 32, found 9"),
        (&["--goal-steps", "2"], "unexpected argument '--goal-steps'"),
        (&["until", "2", "--batch", "8,16"], "invalid value '8,16' for '--batch"),
        (&["--table", "robe"], "not provided: <compression <X>|weights <N>>"),
        (&["--table", "robe:compression=10,z=8"], "unexpected argument 'z' found"),
        (&["--table", "robe:compression=0"], "invalid value '0' for 'compression <X>': wanted a number from 1 on"),
        (
            &["--table", "robe:compression=1000"],
            "wanted a compression that leaves 32 (one chunk) to 2038074743 weights, found 1000, which leaves",
        ),
        (&["--table", "robe:weights=16"], "at least a chunk of 32, found 16"),
        (&["--table", "words=robe:weights=16,chunk=17"], "at least a chunk of 17, found 16"),
        (&["--table", "words=robe:weights=2038074744"], "at most the prime 2038074743"),
        (&["--table", "robe:weights=99", "--optimizer", "row-wise-adagrad"], "a shared weight belongs to no row"),
        (&["--table", "verbs=robe:weights=99"], "wanted a table of the task, found none of that name; it has words"),
        (&["grid", "--table", "robe:weights=99"], "unexpected argument '--table'"),
        (&["--lr", "0"], "wanted a finite number above 0"),
        (&["--dense-lr", "nan"], "wanted a finite number above 0"),
        (&["--cache-percent", "101"], "wanted a number from 0 to 100"),
        (&["--precision", "int3"], "invalid value 'int3'"),
        (&["--policy", "static"], "invalid value 'static' for '--policy"),
        (&["--seeds", "0"], "wanted a whole number from 1 to 1000, such as 32"),
        (&["--checkpoint-every", "5"], "--checkpoint-every: wanted --out DIR beside it, found none"),
        (&["--out", "x"], "--out: wanted --checkpoint-every or several --batch sizes beside it, found none"),
        (&["--seconds", "1", "--epochs", "1"], "cannot be used with '--epochs <N>'"),
        (&["--batch", "8,16", "--table", "cached"], "--table: wanted one --batch size beside it, found 2"),
        (&["grid", "--batch", "8,16"], "invalid value '8,16' for '--batch"),
        (&["--batch", "8,16", "--resume", "x"], "--resume: wanted one --batch size beside it, found 2"),
        (&["--batch", "8,0"], "wanted a whole number from 1 to 1048576, such as 32"),
        (&["--resume", "x", "--out", "y"], "cannot be used with '--out <DIR>'"),
        (&["--resume", "nowhere"], "--resume: wanted checkpoints of these settings and seeds in nowhere, found none"),
    ];
    for (asked, wanted) in cases {
        let (_, found) = on(&data, &[asked, &["--task", "author"]].concat(), 2);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let (_, found) = train(&["--seconds", "1", "--task", "dlrm"], 2);
    assert!(found.contains("--seconds: wanted several --batch sizes beside it, found one"), "{found}");
}

#[test]
fn what_would_be_ignored_is_refused() {
    let data = data();
    let steps = ["until", "1", "--table", "robe:compression=10", "--goal-steps", "4"];
    // clap refuses these pairs, because the options never go together.
    for (asked, wanted) in [
        (&[&steps[..], &["--rates", "1", "--lr", "77"]].concat()[..], "cannot be used with '--lr <X>'"),
        (&[&steps[..], &["--epochs", "99"]].concat(), "cannot be used with '--epochs <N>'"),
        (&["profile", "--precision", "int4"], "unexpected argument '--precision'"),
        (&["profile", "--rounding", "nearest"], "unexpected argument '--rounding'"),
        (&["profile", "--policy", "lfu"], "unexpected argument '--policy'"),
        (&["profile", "--cache-percent", "5"], "unexpected argument '--cache-percent'"),
        (&["profile", "--ways", "1"], "unexpected argument '--ways'"),
    ] {
        let (_, found) = on(&data, asked, 2);
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let cases: [(&[&str], &str); 7] = [
        (&["--sentences", "--task", "readmission"], "--sentences: wanted --task author beside it, found readmission"),
        (&["--precision", "fp32", "--rounding", "nearest"], "--rounding: wanted a --precision below fp32 beside it"),
        (&["--precision", "int8", "--policy", "lru"], "--policy: wanted a --cache-percent above 0 beside it"),
        (&["--policy", "lru", "--cache-percent", "0"], "--policy: wanted a --cache-percent above 0 beside it"),
        (&["--precision", "int8", "--ways", "1"], "--ways: wanted a --cache-percent above 0 beside it"),
        (&["--batch", "8,16", "--ways", "1"], "--ways: wanted a --cache-percent above 0 beside it"),
        (&["--table", "cached:policy=lru"], "policy: wanted a cache-percent above 0 beside it, found no cache"),
    ];
    for (asked, wanted) in cases {
        let task = ["--task", "author"];
        let (_, found) = on(&data, &[asked, if asked.contains(&"--task") { &[][..] } else { &task }].concat(), 2);
        assert!(found.contains(wanted) && found.contains("; "), "{wanted}: {found}");
    }
    // Each option alone has an effect: another rate, other steps.
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("out.json");
    let run = |more: &[&str]| {
        let asked = ["until", "1", "--task", "author", "--table", "robe:weights=800", "--seeds", "1", "--json"];
        on(&data, &[&asked[..], &[path.to_str().unwrap()], more].concat(), 0);
        until(&path)
    };
    let [rates, lr] = [["--rates", "1"], ["--lr", "1"]].map(|rate| run(&[&rate[..], &["--goal-steps", "4"]].concat()));
    let tried = |found: &Value| found["settings"][0]["rates"].as_array().unwrap().len();
    assert_eq!((tried(&rates), tried(&lr)), (1, 3));
    let last = |found: &Value| found["settings"][0]["runs"][0]["curve"].as_array().unwrap().last().unwrap()[0].as_u64();
    let epoch = run(&["--rates", "1", "--epochs", "1", "--test-every", "5"]);
    assert!(last(&rates) == Some(4) && last(&epoch) > Some(4), "{:?} {:?}", last(&rates), last(&epoch));
}

#[test]
fn batch_sizes_are_compared() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let (path, out) = (file.path().join("out.json"), file.path().join("charts"));
    let (path, out_name) = (path.to_str().unwrap(), out.to_str().unwrap());
    let asked =
        ["--task", "author", "--batch", "64,16", "--seeds", "2", "--epochs", "2", "--out", out_name, "--json", path];
    let (printed, _) = on(&data, &asked, 0);
    assert!(printed.contains("| tables | batch |        test loss |"), "{printed}");
    let found: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(found["schema"], 2);
    let found = found["cells"].as_array().unwrap();
    let of = |at: usize, what: &str| found[at][what].as_u64().unwrap();
    assert_eq!((found.len(), of(0, "batch"), of(1, "batch")), (2, 16, 64), "ascending");
    let steps = |at: usize| found[at]["runs"][0]["steps"].as_u64().unwrap();
    assert!(steps(0) > 3 * steps(1), "the same epochs: {} and {} steps", steps(0), steps(1));
    // The losses equal those of a run with one size alone.
    let alone = |batch: &str| {
        on(
            &data,
            &[
                "--task",
                "author",
                "--precision",
                "fp32",
                "--batch",
                batch,
                "--seeds",
                "2",
                "--epochs",
                "2",
                "--json",
                path,
            ],
            0,
        );
        losses(Path::new(path))[0].clone()
    };
    let runs = |at: usize| -> Vec<f64> {
        found[at]["runs"].as_array().unwrap().iter().map(|run| run["loss"].as_f64().unwrap()).collect()
    };
    assert_eq!((runs(0), runs(1)), (alone("16"), alone("64")));
    assert_ne!(runs(0), runs(1));
    assert!(out.join("batches.svg").exists() && out.join("batches.png").exists());
}

#[test]
fn a_run_goes_on_from_its_checkpoint() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let (path, out) = (file.path().join("out.json"), file.path().join("out"));
    let run = |more: &[&str]| {
        let asked = ["--task", "author", "--precision", "int4", "--cache-percent", "5", "--seeds", "2", "--json"];
        on(&data, &[&asked[..], &[path.to_str().unwrap()], more].concat(), 0);
        losses(&path)
    };
    let out = out.to_str().unwrap();
    let whole = run(&["--epochs", "2"]);
    let half = run(&["--epochs", "1", "--out", out, "--checkpoint-every", "4"]);
    assert_ne!(half, whole);
    let kept: Vec<String> = fs::read_dir(file.path().join("out/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert!(kept.contains(&"int4-stochastic-5-lfu-seed1".to_owned()), "{kept:?}");
    assert_eq!(run(&["--epochs", "2", "--resume", out]), whole);
}

#[test]
fn shared_tables_beside_cached_ones() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let path = file.path().join("out.json");
    let run = |more: &[&str]| {
        let asked = ["--task", "author", "--seeds", "2", "--json", path.to_str().unwrap()];
        on(&data, &[&asked[..], more].concat(), 0).0
    };
    let tables =
        ["--table", "cached:precision=int8,cache-percent=5,policy=lfu", "--table", "robe:compression=10,chunk=2"];
    let stdout = run(&tables);
    for wanted in ["| fp32 ", "| int8 stochastic, 5 % lfu ", "| robe 10x, chunks of 2 "] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    let both = losses(&path);
    assert!(both.len() == 3 && both[2] != both[0] && both[2] != both[1], "{both:?}");
    let robe = &json(&path)[2];
    let table = &robe["tables"][0];
    assert_eq!((&table["kind"], &table["compression"], &table["chunk"]), (&"robe".into(), &10.0.into(), &2.into()));
    let run_of = &robe["runs"][0];
    assert!((run_of["memory_paper"].as_f64().unwrap() - 0.1).abs() < 1e-3 && run_of["hit_rate"].is_null());
    assert!(run_of["bus_bytes"].as_u64().unwrap() > 0);
    // A table alone, given by its weights, or as the setting of a named table, gives the same numbers.
    run(&["--table", "cached", "--table", "robe:weights=800,chunk=2"]);
    assert_eq!(losses(&path), [both[0].clone(), both[2].clone()]);
    run(&["--table", "words=robe:compression=10,chunk=2"]);
    assert_eq!(losses(&path), [both[0].clone(), both[2].clone()]);
    // Together with lists of options.
    run(&["--precision", "int8", "--table", "robe:compression=10,chunk=2"]);
    assert_eq!(losses(&path)[2], both[2]);
    // A run is stopped and resumed.
    let out = file.path().join("out");
    let (out, robe) = (out.to_str().unwrap(), &tables[2..]);
    run(&[robe, &["--epochs", "2"]].concat());
    let whole = losses(&path);
    run(&[robe, &["--epochs", "1", "--out", out, "--checkpoint-every", "4"]].concat());
    assert_ne!(losses(&path), whole);
    assert!(file.path().join("out/checkpoints/robe-10x-chunks-of-2-seed1").is_dir());
    run(&[robe, &["--epochs", "2", "--resume", out]].concat());
    assert_eq!(losses(&path), whole);
}

/// The result of `until`, without its times.
fn until(path: &Path) -> Value {
    let mut found: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for setting in found["settings"].as_array_mut().unwrap() {
        for time in ["step_ms", "tables_ms"] {
            assert!(setting[time].take().as_f64().unwrap() > 0.0);
        }
    }
    found
}

#[test]
fn steps_until_the_full_table_s_loss() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let run = |name: &str| {
        let out = file.path().join(name);
        let tables =
            ["--table", "robe:compression=4,chunk=2", "--table", "robe:weights=8,chunk=1", "--table", "cached"];
        let asked = ["until", "3", "--task", "author", "--goal-steps", "20", "--test-every", "5", "--tested", "60"];
        let more = ["--seeds", "2", "--rates", "0.3,0.1", "--out", out.to_str().unwrap()];
        let (stdout, _) = on(&data, &[&asked[..], &tables, &more].concat(), 0);
        for wanted in ["| fp32 ", "| robe 4x, chunks of 2 ", "| robe of 8 weights, chunks of 1 ", "60 steps at most"] {
            assert!(stdout.contains(wanted), "{wanted}: {stdout}");
        }
        for name in ["until.md", "until.png", "until.svg", "losses.png", "losses.svg"] {
            assert!(out.join(name).is_file(), "{name}");
        }
        until(&out.join("until.json"))
    };
    let found = run("one");
    assert_eq!(found["settings"].as_array().unwrap().len(), 3);
    for seed in 0..2 {
        let curve = |at: usize| -> Vec<(u64, f64)> {
            let run = &found["settings"][at]["runs"][seed];
            serde_json::from_value(run["curve"].clone()).unwrap()
        };
        let full = curve(0);
        assert_eq!(full.iter().map(|&(step, _)| step).collect::<Vec<_>>(), [5, 10, 15, 20]);
        let goal = full.iter().map(|&(_, loss)| loss).fold(f64::INFINITY, f64::min);
        for at in 0..3 {
            let (run, curve) = (&found["settings"][at]["runs"][seed], curve(at));
            assert_eq!(run["goal"].as_f64().unwrap(), goal);
            let reached = curve.iter().find(|&&(_, loss)| loss <= goal).map(|&(step, _)| step);
            assert_eq!(run["reached"].as_u64(), reached);
            // A run goes as far as the run of the full table did, and then on to its goal or to the end.
            let last = curve.last().unwrap().0;
            assert_eq!(last, reached.map_or(if at == 0 { 20 } else { 60 }, |step| step.max(20)), "{curve:?}");
        }
        // Eight weights cannot distinguish eight authors.
        assert!(found["settings"][2]["runs"][seed]["reached"].is_null());
    }
    // Draws the pictures again without training, from the results in the file.
    let at = |name: &str| file.path().join("one").join(name);
    let (svg, redraw) = (
        fs::read(at("until.svg")).unwrap(),
        ["until", "--plots", "--out", at("").to_str().unwrap()].map(str::to_owned),
    );
    let redraw = redraw.each_ref().map(String::as_str);
    fs::remove_file(at("until.svg")).unwrap();
    train(&redraw, 0);
    assert!(fs::read(at("until.svg")).unwrap() == svg);
    let json = fs::read_to_string(at("until.json")).unwrap();
    fs::write(at("until.json"), json.replacen("\"step_ms\": ", "\"step_ms\": 1", 1)).unwrap();
    train(&redraw, 0);
    assert!(fs::read(at("until.svg")).unwrap() != svg);
    fs::write(at("until.json"), "{}").unwrap();
    let (_, stderr) = train(&redraw, 1);
    assert!(stderr.contains("until.json") && stderr.lines().count() == 1, "{stderr}");
    let bytes = |at: usize| found["settings"][at]["runs"][0]["bytes"].as_u64().unwrap();
    // 2,000 rows of dim 4 with their AdaGrad state, and a quarter of that. Clock and counters take a little more.
    assert!((64_000..65_000).contains(&bytes(0)) && (16_000..16_500).contains(&bytes(1)), "{} {}", bytes(0), bytes(1));
    assert_eq!(run("another"), found, "the same numbers");
}

#[test]
fn a_loss_that_is_not_finite_is_an_error() {
    let (data, file) = (data(), tempfile::tempdir().unwrap());
    let wild = ["--task", "author", "--precision", "fp32", "--seeds", "1", "--dense-lr", "3e38", "--lr", "1000"];
    let (stdout, stderr) = on(&data, &wild, 1);
    assert_eq!(stdout, "");
    assert!(stderr.starts_with("error: fp32, seed 0: step 2: wanted a finite loss, found "), "{stderr}");
    assert!(stderr.contains("there is no checkpoint"), "{stderr}");
    let out = file.path().join("out");
    let keep = ["--out", out.to_str().unwrap(), "--checkpoint-every", "1"];
    let good = ["--task", "author", "--precision", "fp32", "--seeds", "1"];
    on(&data, &[&good[..], &keep].concat(), 0);
    let (_, stderr) = on(&data, &[&wild[..], &["--epochs", "2", "--resume", out.to_str().unwrap()]].concat(), 1);
    assert!(stderr.contains("the last good checkpoint is") && stderr.contains("fp32-seed0/step-"), "{stderr}");
}

/// The plain linear models of the data folder's README (7). FP32 must beat them before other precisions are compared with it.
#[test]
fn fp32_beats_the_floors() {
    let Some(folder) = data::folder("the floors of hotrow train") else { return };
    let (file, folder) = (tempfile::tempdir().unwrap(), folder.to_str().unwrap().to_owned());
    let path = file.path().join("out.json");
    let cases: [(&[&str], &str, f64, f64); 3] = [
        (&["--task", "author", "--epochs", "1"], "accuracy", 0.692, 1.022),
        (&["--task", "author", "--sentences", "--epochs", "1"], "accuracy", 0.547, 1.307),
        (&["--task", "readmission"], "auc", 0.6665, 0.64325),
    ];
    for (task, what, floor, ceiling) in cases {
        let asked = ["--precision", "fp32", "--seeds", "1", "--data", &folder, "--json", path.to_str().unwrap()];
        train(&[task, &asked[..]].concat(), 0);
        let run = &json(&path)[0]["runs"][0];
        assert!(run[what].as_f64().unwrap() > floor && run["loss"].as_f64().unwrap() < ceiling, "{task:?}: {run}");
    }
}
