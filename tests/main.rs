//! The library's tests without a GPU, in one program. `tests/gpu` has the tests with one.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[macro_use]
extern crate hotrow_harness;
mod additions;
mod caps;
mod checkpoint;
mod cpu;
mod face;
mod grid;
mod layers;
mod low_precision;
mod naive;
mod optimisers;
mod pins;
mod public_docs;
mod robe;
mod scaler;
mod shaders;
mod spans;
mod store;
mod threads;
mod words;

#[test]
fn every_file_of_tests_is_a_module() {
    use hotrow_harness::modules::{all_named, unnamed};
    all_named(env!("CARGO_MANIFEST_DIR"));
    // It finds files without a line, and with a line that is a comment.
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in
        [("main.rs", "mod a;\n// mod b;\nmod c;"), ("a.rs", ""), ("b.rs", ""), ("c/mod.rs", ""), ("c/d.rs", "")]
    {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let mut found = unnamed(folder.path());
    found.sort();
    assert_eq!(found, ["b.rs", "c/d.rs"].map(|file| folder.path().join(file)));
}
