//! Lists files, and checks those of a test program. With `autotests = false`, a file without a `mod` line would never run.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The files below a folder, but not below those that `left_out` names.
pub fn files(folder: &Path, left_out: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let kept = paths.filter(|path| !left_out(path));
    kept.flat_map(|path| if path.is_dir() { files(&path, left_out) } else { vec![path] }).collect()
}

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
