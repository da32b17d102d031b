//! Checks the layers that ARCHITECTURE.md draws: every module is in one layer, no module names one of a higher layer,
//! and no files of any package name each other in a circle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use hotrow_harness::layers::{Module, arrows, circles, name, sources};

/// The folder of the package.
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The files of the library.
fn library() -> BTreeMap<Module, String> {
    sources(&Path::new(ROOT).join("src"))
}

/// The layers that ARCHITECTURE.md draws, the highest first. Each layer is a list of modules.
fn layers() -> Vec<Vec<Module>> {
    let page = fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).unwrap();
    let drawn = page.split("```layers\n").nth(1).expect("a block ```layers").split("```").next().unwrap();
    let modules = |line: &str| {
        let names = line.split('|').next().unwrap().split_whitespace();
        names.map(|name| name.split("::").filter(|part| *part != "lib").map(str::to_owned).collect()).collect()
    };
    drawn.lines().map(modules).filter(|layer: &Vec<Module>| !layer.is_empty()).collect()
}

/// The number of a module's layer, 0 for the highest, by the longest drawn prefix of its path.
fn layer_of(layers: &[Vec<Module>], module: &Module) -> Option<usize> {
    let fits = |drawn: &Module| module.starts_with(drawn) && (!drawn.is_empty() || module.is_empty());
    let found = layers.iter().enumerate().flat_map(|(at, layer)| layer.iter().map(move |drawn| (at, drawn)));
    found.filter(|(_, drawn)| fits(drawn)).max_by_key(|(_, drawn)| drawn.len()).map(|(at, _)| at)
}

/// The violations of the order.
fn faults(layers: &[Vec<Module>], arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (from, targets) in arrows {
        let Some(own) = layer_of(layers, from) else {
            faults.push(format!("{} is in no layer", name(from)));
            continue;
        };
        for to in targets {
            match layer_of(layers, to) {
                Some(other) if other < own => {
                    faults.push(format!("{} names {}, which is above it", name(from), name(to)));
                }
                _ => {}
            }
        }
    }
    faults.extend(circles(arrows));
    faults
}

#[test]
fn no_module_names_one_above_it() {
    let arrows = arrows(&library());
    assert!(arrows.len() > 100, "{} files", arrows.len());
    let faults = faults(&layers(), &arrows);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn an_arrow_up_and_a_circle_are_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let spoiled = |file: &str, line: &str| {
        let mut sources = library();
        let text = sources.get_mut(&module(file)).unwrap();
        text.push_str(line);
        faults(&layers(), &arrows(&sources)).len()
    };
    let before = faults(&layers(), &arrows(&library())).len();
    assert_eq!(spoiled("table::pins", "use crate::table::layout::NONE as _;"), before, "an arrow down is none");
    for (file, line) in [
        ("table::hash", "use crate::gpu::cached::group::Group as _;"),
        ("table::hash", "fn up() -> crate::gpu::cached::group::Group { loop {} }"),
        ("table::hash", "fn up() { println!(\"{}\", crate::gpu::stages::KERNELS.len()) }"),
        ("table::hash", "use super::super::gpu::cached::group::Group as _;"),
        ("gpu::engine::call", "use crate::gpu::stages::KERNELS as _;"),
        ("config", "use crate::Group as _;"),
        ("error", "mod inner { use crate::table::hash as _; }"),
        // A circle within a layer: layout names hash.
        ("table::hash", "use crate::table::layout as _;"),
    ] {
        assert!(spoiled(file, line) > before, "{file}: {line}");
    }
    let tests = "#[cfg(test)] mod extra { use crate::gpu::cached::group::Group as _; }";
    assert_eq!(spoiled("table::hash", tests), before, "tests may name anything");
}

/// The folders of crates: `src` of each package of the workspace, and the laboratory's program for MPI.
fn crates() -> Vec<PathBuf> {
    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let members = manifest.split_once("\nmembers = [").unwrap().1.split(']').next().unwrap();
    let members = members.split('"').skip(1).step_by(2).map(|package| format!("{package}/src"));
    let folders = members.chain(["lab/mpi".into()]);
    folders.map(|folder| Path::new(ROOT).join(folder)).filter(|folder| folder.exists()).collect()
}

#[test]
fn no_files_of_a_package_name_each_other_in_a_circle() {
    let crates = crates();
    assert!(crates.len() > 10, "{crates:?}");
    let of = |folder: &PathBuf| (folder.clone(), circles(&arrows(&sources(folder))));
    let faults: Vec<_> = crates.iter().map(of).filter(|(_, faults)| !faults.is_empty()).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_circle_of_a_package_is_found() {
    let spoiled = |folder: &str, file: &str, line: &str| {
        let mut sources = sources(&Path::new(ROOT).join(folder));
        let module: Module = file.split("::").map(str::to_owned).collect();
        sources.get_mut(&module).unwrap().push_str(line);
        circles(&arrows(&sources))
    };
    for (folder, file, line) in [
        // Output names failures.
        ("report/src", "failure", "use crate::output as _;"),
        ("report/src", "failure", "fn to_screen() { crate::output::note(\"\") }"),
        ("report/src", "failure", "#[cfg(not(test))] use crate::output as _;"),
        ("cli/src", "plan::amount", "use super::distribution::Distribution as _;"),
        ("report/src", "object", "mod inner { use crate::trace as _; }"),
        // A file beneath names its parent, which calls it.
        ("cli/src", "plan::cache", "use super::Args as _;"),
        ("cli/src", "plan::cache", "fn up() { use crate::{plan::Args as _, tensors as _}; }"),
        ("lab/mpi", "same", "use crate::say as _;"),
        ("lab/src", "task", "use crate::tasks::open as _;"),
        ("wgsl-lanes/src", "source", "use crate::compile::compile as _;"),
    ] {
        assert!(!spoiled(folder, file, line).is_empty(), "{folder}, {file}: {line}");
    }
    let tests = "#[cfg(test)] mod tests { use crate::output as _; }";
    assert_eq!(spoiled("report/src", "failure", tests), [""; 0]);
    assert_eq!(spoiled("report/src", "output", "use crate::failure as _;"), [""; 0], "an arrow is no circle");
}

/// The lane executor is any project's: neither its code nor its manifest names another package of this one.
#[test]
fn the_lane_executor_knows_no_tables() {
    let root = Path::new(ROOT).join("wgsl-lanes");
    let mut texts: Vec<String> = sources(&root.join("src")).into_values().collect();
    assert!(texts.len() > 15, "{} files", texts.len());
    texts.push(fs::read_to_string(root.join("Cargo.toml")).unwrap());
    let names = |text: &String| ["hotrow", "embedding"].into_iter().find(|name| text.to_lowercase().contains(name));
    assert_eq!(texts.iter().find_map(names), None);
}

/// Calls that make an object of the device.
const MAKERS: [&str; 3] = [".create_buffer(", ".create_bind_group(", ".create_compute_pipeline("];

/// `Context::objects_made` counts every buffer, bind group and pipeline, because one file makes them all. Another's are named.
fn uncounted(sources: &BTreeMap<Module, String>) -> Vec<String> {
    let makes = |text: &String| MAKERS.iter().any(|maker| text.contains(maker));
    let own = |module: &String| {
        !["gpu::engine::context", "gpu::engine::lost", "gpu::engine::timeline"].contains(&module.as_str())
    };
    sources.iter().filter(|(_, text)| makes(text)).map(|(module, _)| name(module)).filter(own).collect()
}

/// A timeline makes its queries when a benchmark begins, and a probe is made after an error.
#[test]
fn one_file_makes_the_objects_of_a_device() {
    let mut sources = library();
    let found = uncounted(&sources);
    assert!(found.is_empty(), "{found:?}");
    sources.values_mut().next().unwrap().push_str("fn own() { device.create_buffer(&descriptor); }");
    assert_eq!(uncounted(&sources).len(), 1);
}

/// The files and folders that a page names in backticks, by a path, and that are not there. `*` stands for a part of a name.
fn missing(page: &str) -> Vec<&str> {
    let is = |name: &&str| name.contains('/') && !name.contains(['<', '{', ' ']);
    let ends = |name: &&str| ["/", ".rs", ".wgsl", ".csv", ".txt"].iter().any(|end| name.ends_with(end));
    let there = |name: &str| {
        let Some((before, after)) = name.split_once('*') else { return Path::new(ROOT).join(name).exists() };
        let (folder, begins) = before.rsplit_once('/').unwrap();
        let names = fs::read_dir(Path::new(ROOT).join(folder)).into_iter().flatten();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with(begins) && name.ends_with(after))
    };
    page.split('`').skip(1).step_by(2).filter(is).filter(ends).filter(|name| !there(name)).collect()
}

#[test]
fn the_files_that_the_page_names_are_there() {
    let page = fs::read_to_string(Path::new(ROOT).join("ARCHITECTURE.md")).unwrap();
    assert_eq!(missing(&page), [""; 0]);
    assert!(page.matches(".rs`").count() > 60, "the page names files");
    let wrong = "```text\n a\n```\nIn `src/gone.rs`, `src/lib.rs`, `shaders/gone/`, `shaders/shared/gone_*.wgsl`, `shaders/shared/rank_*.wgsl`.";
    assert_eq!(missing(wrong), ["src/gone.rs", "shaders/gone/", "shaders/shared/gone_*.wgsl"]);
}
