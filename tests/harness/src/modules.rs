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

/// Panics unless every file of the tests of the package at `root` runs.
pub fn all_named(root: &str) {
    let found = unnamed(&Path::new(root).join("tests"));
    assert!(found.is_empty(), "wanted a `mod` line for each file, found none for {found:?}");
}

/// The Rust files of a test program's folder that would never run, because no `mod` line names them. Folders of packages are left out.
pub fn unnamed(tests: &Path) -> Vec<PathBuf> {
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    // `a.rs` is named by `main.rs`, `mod.rs` or `../folder.rs`, `folder/mod.rs` by those one folder up.
    let named = |file: &PathBuf| {
        let folder = file.parent().unwrap();
        let (name, folder) = match &*stem(file) {
            "mod" => (stem(folder), folder.parent().unwrap()),
            name => (name.to_owned(), folder),
        };
        let parents = [folder.join("main.rs"), folder.join("mod.rs"), folder.with_extension("rs")];
        let text: String = parents.iter().filter_map(|parent| fs::read_to_string(parent).ok()).collect();
        ["", "pub ", "pub(crate) "].iter().any(|public| text.lines().any(|line| line == format!("{public}mod {name};")))
    };
    let mut files = files(tests, &|path| path.join("Cargo.toml").exists());
    files.retain(|file| file.extension().is_some_and(|end| end == "rs") && stem(file) != "main" && !named(file));
    files
}
