//! The `hotrow` command from outside.

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;
use tempfile::TempDir;

/// The command, without a data folder and alone.
pub(crate) fn hotrow(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("hotrow").unwrap();
    command.env_remove("HOTROW_DATA").env_remove("OMPI_COMM_WORLD_SIZE").env_remove("PMI_SIZE").args(arguments);
    command
}

/// Hides every driver from the command: it asks Vulkan only, which finds none.
pub(crate) fn without_drivers(command: &mut Command) -> &mut Command {
    command.env("WGPU_BACKEND", "vulkan").env("VK_DRIVER_FILES", "/nonexistent").env("VK_ICD_FILENAMES", "/nonexistent")
}

/// Runs the command and expects an exit code. Returns stdout and stderr.
pub(crate) fn outcome(arguments: &[&str], code: i32) -> (String, String) {
    ended(&mut hotrow(arguments), code)
}

/// As [`outcome`], of a command with further settings.
pub(crate) fn ended(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{stdout}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{command:?}: {stderr}");
    assert!(!stderr.contains("{ "), "wanted a sentence, found a Rust struct: {stderr}");
    (stdout, stderr)
}

/// The output of `--json`, as text.
pub(crate) fn json(arguments: &[&str]) -> String {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("results.json");
    outcome(&[arguments, &["--json", file.to_str().unwrap()]].concat(), 0);
    std::fs::read_to_string(file).unwrap()
}

/// The output of `--json`.
pub(crate) fn value(arguments: &[&str]) -> Value {
    serde_json::from_str(&json(arguments)).unwrap()
}

/// The JSON of a file.
pub(crate) fn read(file: impl AsRef<Path>) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the command names what it wrote")).expect("JSON")
}

/// Every key of the text in order, without repeats.
pub(crate) fn keys(json: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    for line in json.lines() {
        let Some((key, _)) = line.trim().strip_prefix('"').and_then(|line| line.split_once("\":")) else { continue };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}
