//! `hotrow info` from outside: exit codes, messages, schema. No GPU is needed.

use crate::common::command::{ended, hotrow, read, without_drivers};
use serde_json::Value;
use std::io::Write as _;
use tempfile::TempDir;

/// Runs the command, without any Vulkan driver unless `drivers`, and expects an exit code. Returns stdout, stderr and the JSON.
fn info(arguments: &[&str], drivers: bool, code: i32) -> (String, String, Value) {
    let dir = TempDir::new().unwrap();
    let mut command = hotrow(&[&["info", "--json", "info.json"], arguments].concat());
    if !drivers {
        without_drivers(&mut command);
    }
    let (stdout, stderr) = ended(command.current_dir(&dir), code);
    (stdout, stderr, read(dir.path().join("info.json")))
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn without_a_driver_it_says_so_and_what_to_do() {
    let (stdout, _, json) = info(&[], false, 0);
    for wanted in ["No adapter was found", "mesa-vulkan-drivers", "libEGL_nvidia.so.0", "self-test: passed, 3 cases"] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    assert_eq!(keys(&json), ["adapters", "auto", "cpu", "remedy", "version"]);
    assert_eq!(json["auto"], "cpu");
    assert_eq!(json["adapters"], Value::Array(Vec::new()));
    assert!(json["remedy"].as_str().unwrap().contains("mesa-vulkan-drivers"));
    assert_eq!(keys(&json["cpu"]), ["self_test", "threads"]);
    assert_eq!(json["cpu"]["self_test"][0]["passed"], true);
    let (_, stderr, _) = info(&["--backend", "gpu"], false, 1);
    assert!(stderr.contains("error: --backend gpu: wanted an adapter"), "{stderr}");
    assert!(stderr.contains("install a Vulkan driver"), "{stderr}");
}

#[test]
fn backend_cpu_looks_at_no_adapter() {
    let (stdout, _, json) = info(&["--backend", "cpu"], true, 0);
    assert!(!stdout.contains("adapter"), "{stdout}");
    assert_eq!((&json["adapters"], &json["remedy"]), (&Value::Array(Vec::new()), &Value::Null));
    let (stdout, _, json) = info(&["--backend", "cpu", "--no-self-test"], true, 0);
    assert_eq!(json["cpu"]["self_test"], Value::Null);
    assert!(stdout.contains("self-test: not run"), "{stdout}");
}

/// Wayland's library, which drivers load, complains without a runtime folder: the command gives itself one.
#[test]
#[cfg(unix)]
fn without_a_runtime_folder_nothing_else_is_printed() {
    let of = |arguments: &[&str], code| {
        let [unset, relative, set] = [None, Some("run"), Some("/dev/null")].map(|folder| {
            let mut command = hotrow(arguments);
            command.env_remove("XDG_RUNTIME_DIR").envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder)));
            ended(&mut command, code)
        });
        assert_eq!((&unset, &relative), (&set, &set), "{arguments:?}");
        unset
    };
    let (stdout, stderr) = of(&["info", "--no-self-test"], 0);
    assert!(stdout.starts_with("hotrow ") && stderr.is_empty(), "{stdout}{stderr}");
    let (_, stderr) = of(&["simulate", "--trace", "no such trace"], 1);
    assert!(stderr.contains("no such trace"), "{stderr}");
    of(&["--help"], 0);
}

/// Checks every adapter of this machine, if there is one.
#[test]
fn every_adapter_passes_its_self_test() {
    let (stdout, _, json) = info(&[], true, 0);
    let adapters = json["adapters"].as_array().unwrap();
    if adapters.is_empty() {
        assert!(std::env::var("HOTROW_TEST_GPU").as_deref() != Ok("require"), "wanted an adapter, found none");
        // Prints to stderr directly, because libtest hides the output of a passing test.
        writeln!(std::io::stderr().lock(), "SKIPPED: no adapter to test").unwrap();
    }
    for adapter in adapters {
        let wanted = "add backend device_type driver hardware limits lookup lookup_why memory name rank rank_why self_test timestamp_step timestamps unusable";
        assert_eq!(keys(adapter).join(" "), wanted);
        assert_eq!(keys(&adapter["memory"]), ["cache_bytes", "device", "mapped", "mapped_why", "piece_bytes"]);
        assert!(adapter["memory"]["cache_bytes"].as_u64() >= adapter["memory"]["piece_bytes"].as_u64());
        assert!(adapter["limits"]["storage_buffers"].as_u64().unwrap() > 0);
        assert!(stdout.contains(adapter["name"].as_str().unwrap()), "{stdout}");
        if adapter["unusable"].is_null() {
            let cases = adapter["self_test"].as_array().unwrap();
            let per_placement = 15;
            // The placements device and staged, and mapped where the device has it.
            let placements = if adapter["memory"]["mapped"] == true { 3 } else { 2 };
            assert_eq!(cases.len(), per_placement * placements);
            assert_eq!(keys(&cases[0]), ["difference", "passed", "placement", "policy", "precision"]);
        }
    }
}
