//! Lists the shaders, so that `src/wgsl.rs` has each file of `shaders/` by its path.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = |name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(format!("wanted {name}")));
    let root = folder("CARGO_MANIFEST_DIR")?.join("shaders");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = BTreeMap::new();
    for stages in fs::read_dir(&root)? {
        let stages = stages?.path();
        if !stages.is_dir() {
            continue;
        }
        for file in fs::read_dir(stages)? {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "wgsl") {
                continue;
            }
            let name = path.strip_prefix(&root).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
            files.insert(name, path);
        }
    }
    let line = |(name, path): (&String, &PathBuf)| format!("({name:?}, include_str!({path:?})),\n");
    let list: String = files.iter().map(line).collect();
    fs::write(folder("OUT_DIR")?.join("shaders.rs"), format!("&[\n{list}]"))
}
