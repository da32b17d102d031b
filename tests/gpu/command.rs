//! The command on the GPU: the real kernels count what the simulator counts.

use assert_cmd::Command;

use crate::device::with_gpu;

fn simulate(backend: &str, trace: &str, batch: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let mut command = Command::cargo_bin("hotrow").unwrap();
    command.args([
        "simulate",
        "--trace",
        trace,
        "--batch",
        batch,
        "--cache-percent",
        "2,10",
        "--backend",
        backend,
        "--json",
    ]);
    command.arg(&json).assert().success();
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

#[test]
fn simulate_counts_the_same_on_both_backends() {
    with_gpu(|_| {
        let trace = "zipf:rows=3000,s=1.05,n=20000";
        for batch in ["1000", "7777", "100000"] {
            let gpu = simulate("gpu", trace, batch);
            assert_eq!(gpu, simulate("cpu", trace, batch), "batches of {batch}");
            // One batch that is larger than the trace finds an empty cache.
            assert_eq!(gpu[0]["hits"].as_u64().unwrap() > 0, batch != "100000");
        }
        // Batches of one, where every access is a step of its own.
        let short = "zipf:rows=200,s=1.05,n=300";
        assert_eq!(simulate("gpu", short, "1"), simulate("cpu", short, "1"));
        assert_ne!(simulate("gpu", trace, "1000"), simulate("cpu", trace, "1001"), "the comparison can fail");
    });
}

#[test]
fn bench_labels_a_software_adapter() {
    with_gpu(|context| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::cargo_bin("hotrow").unwrap();
        command.current_dir(folder.path()).args([
            "bench",
            "--backend",
            "gpu",
            "--rows",
            "40000",
            "--dim",
            "8",
            "--batch",
            "100",
        ]);
        command.args(["--precision", "int4", "--policy", "lfu", "--hit-rate", "0,50,100", "--seconds", "1"]);
        let done = command.assert().success();
        let out = String::from_utf8_lossy(&done.get_output().stdout).into_owned();
        assert_eq!(out.contains("software adapter"), !context.caps().is_hardware(), "{out}");
        let report = std::fs::read(folder.path().join("results/bench.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        for point in report["points"].as_array().unwrap() {
            if point["kind"] == "cached" {
                let wrong = point["hit_rate"].as_f64().unwrap() - point["target_hit_rate"].as_f64().unwrap();
                assert!(wrong.abs() < 0.05, "{point}");
            }
        }
    });
}
