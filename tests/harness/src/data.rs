//! The data folder of the real traces, and new folders.

use std::io::Write as _;
use std::path::{Path, PathBuf};

pub const TRACES: [&str; 8] = [
    "cache2k_orm_busy",
    "cache2k_orm_night",
    "ebooks_words",
    "wikitext2_words",
    "wikitext2_bigrams",
    "online_retail_stock",
    "diabetes130_fields",
    "goemotions_words",
];

/// The folder `HOTROW_DATA`, or else the default folder beside the checkout. If there is none, prints that `left_out` did not run.
pub fn folder(left_out: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = std::env::var_os("HOTROW_DATA").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // The test harness hides the output of eprintln while a test passes.
    let line = format!("SKIPPED: no data folder for {left_out}; set HOTROW_DATA\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

/// How often the tests of killed processes kill one: `HOTROW_TEST_KILLS`, or 10.
pub fn kills() -> u32 {
    std::env::var("HOTROW_TEST_KILLS").map_or(10, |kills| kills.parse().expect("HOTROW_TEST_KILLS: wanted a number"))
}

/// A new folder, and the path of a file in it that is not there yet.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table");
    (folder, path)
}
