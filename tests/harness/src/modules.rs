//! Checks the files of a test program. With `autotests = false`, a file without a `mod` line would never run.

use std::{fs, path::Path};

/// Panics unless the `main.rs` or `mod.rs` of `folder`, below the package at `root`, names every other Rust file there.
pub fn all_named(root: &str, folder: &str) {
    let folder = Path::new(root).join(folder);
    let main = ["main.rs", "mod.rs"].into_iter().find_map(|main| fs::read_to_string(folder.join(main)).ok()).unwrap();
    for entry in fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_stem().unwrap().to_str().unwrap();
        if file.extension().is_some_and(|end| end == "rs") && !matches!(name, "main" | "mod") {
            assert!(
                main.contains(&format!("mod {name};\n")),
                "wanted `mod {name};` in {}, found none",
                folder.display()
            );
        }
    }
}
