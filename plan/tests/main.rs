//! Plans against the CPU backend and against formulas written out.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod fidelity;
mod hot;

#[test]
fn no_files_name_each_other_in_a_circle() {
    use hotrow_harness::layers::{arrows, circles, sources};
    hotrow_harness::modules::all_named(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(circles(&arrows(&sources)), Vec::<String>::new());
    let mut spoiled = sources;
    spoiled
        .get_mut(&vec!["scars".to_owned(), "law".to_owned()])
        .unwrap()
        .push_str("use crate::scars::skew::Skew as _;");
    assert!(!circles(&arrows(&spoiled)).is_empty(), "a circle is found");
}
