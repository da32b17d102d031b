//! The files of which the kernels' texts are composed.

use std::{fs, path::Path, sync::OnceLock};

use wgsl_lanes::Files;

/// The files under `shaders/`. Without the sources, as on a bare machine, there are none, and places are lines of the composed text.
pub fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    let paths = |folder: &Path| {
        let mut paths: Vec<_> = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    FILES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders");
        let folders = paths(&root).into_iter().filter(|folder| folder.is_dir());
        let files = folders.flat_map(|folder| paths(&folder));
        let named = files.map(|path| {
            let name = path.strip_prefix(&root).unwrap().display().to_string().replace('\\', "/");
            (name, fs::read_to_string(&path).unwrap())
        });
        Files::new(named, copies)
    })
}

/// The lines that a line of a file becomes for each window or piece.
fn copies(line: &str) -> Vec<String> {
    let marked = |mark| line.trim_start().strip_prefix(mark);
    let piece = marked("#piece ").and_then(|rest: &str| rest.split_once(": "));
    let Some(text) = marked("#window ").or(piece.map(|(_, text)| text)) else { return Vec::new() };
    let digits = |number: u32| if number == 0 { String::new() } else { number.to_string() };
    (0..32).map(|number| format!("    {}", text.replace('$', &digits(number)))).collect()
}
