//! What the command prints and writes, in files: results; refused command lines and their messages: the line, then the exit code and the error's first line.
//! A line `= NAME TEXT` is a file, whose bytes are the characters of a text of JSON. `HOTROW_GOLDEN=write cargo test` writes what is found into the files.

use crate::common::command::{ended, hotrow};
use crate::common::plan::words;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<OsString, Option<Vec<u8>>> {
    let all = fs::read_dir(folder).unwrap().map(Result::unwrap);
    all.map(|file| (file.file_name(), fs::read(file.path()).ok())).collect()
}

/// Runs each line of a file in the folder, and compares what it says. Nothing goes to standard output, and all files stay as they were.
pub(crate) fn refused(name: &str, folder: &Path) {
    let golden = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let wanted = fs::read_to_string(&golden).unwrap();
    let (made, lines): (Vec<&str>, Vec<&str>) = wanted.lines().partition(|line| line.starts_with("= "));
    for (name, text) in made.iter().map(|line| line[2..].split_once(' ').unwrap()) {
        let text: String = serde_json::from_str(text).unwrap();
        fs::write(folder.join(name), text.chars().map(|byte| byte as u8).collect::<Vec<_>>()).unwrap();
    }
    let (before, mut found) = (files(folder), made.iter().map(|line| format!("{line}\n")).collect::<String>());
    for line in lines.into_iter().filter(|line| line.starts_with("$ ")) {
        let output = hotrow(&line[2..].split(' ').collect::<Vec<_>>()).current_dir(folder).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code().unwrap();
        assert!(output.stdout.is_empty() && files(folder) == before, "{line}: {:?} {stderr}", output.stdout);
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        // What clap refuses is followed by its advice.
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!stderr.contains(steers), "{line}: wanted no control character, found {stderr:?}");
        assert!(!stderr.contains("{ "), "{line}: wanted a sentence, found a Rust struct: {stderr}");
        assert!(errors.len() == 1 && (code == 2 || stderr.lines().count() == 1), "{line}: {stderr}");
        found += &format!("{line}\n{code} {}\n", errors[0].trim_end());
    }
    same(&golden, &wanted, &found);
}

/// Compares a text with a file's, or replaces the file.
fn same(golden: &str, wanted: &str, found: &str) {
    if std::env::var("HOTROW_GOLDEN").is_ok_and(|mode| mode == "write") {
        fs::write(golden, found).unwrap();
        return;
    }
    let lines = wanted.lines().zip(found.lines()).filter(|(wanted, found)| wanted != found);
    let lines: Vec<String> = lines.map(|(wanted, found)| format!("wanted {wanted}\nfound  {found}")).collect();
    assert!(wanted == found, "{golden}: {} bytes, found {}\n{}", wanted.len(), found.len(), lines.join("\n"));
}

/// Runs a line in the folder. What it prints, and its `out.json` and `out.csv` where it names them, must be the files of this name.
pub(crate) fn written(name: &str, line: &str, folder: &Path) {
    let (stdout, _) = ended(hotrow(&words(line)).current_dir(folder), 0);
    fs::write(folder.join("out.txt"), stdout).unwrap();
    for ending in
        ["txt", "json", "csv"].into_iter().filter(|ending| *ending == "txt" || line.contains(&format!("out.{ending}")))
    {
        let found = fs::read_to_string(folder.join(format!("out.{ending}"))).unwrap();
        let golden = format!("{}/tests/golden/{name}.{ending}", env!("CARGO_MANIFEST_DIR"));
        same(&golden, &fs::read_to_string(&golden).unwrap_or_default(), &found);
    }
}

#[test]
fn bad_usage_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("bags.txt"), "0 1\n2\n5\n7\n").unwrap();
    fs::write(folder.path().join("tables.u8"), [0, 1, 2, 1, 0]).unwrap();
    for name in ["usage", "plan", "plan-dist"] {
        refused(name, folder.path());
    }
}
