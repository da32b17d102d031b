//! No files of the command name each other in a circle: the check of the library's layers, run over `cli/src`.

use hotrow_harness::layers::{Module, arrows, circles, sources};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn faults(add: Option<(&str, &str)>) -> Vec<String> {
    let mut sources = sources(ROOT);
    if let Some((file, line)) = add {
        let module: Module = file.split("::").map(str::to_owned).collect();
        sources.get_mut(&module).unwrap().push_str(line);
    }
    circles(&arrows(&sources))
}

#[test]
fn no_files_name_each_other_in_a_circle() {
    let faults = faults(None);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_circle_is_found() {
    for (file, line) in [
        // A circle: output names failures.
        ("failure", "use crate::output as _;"),
        ("failure", "fn to_screen() { crate::output::note(\"\") }"),
        ("plan::amount", "use super::distribution::Distribution as _;"),
        ("report::object", "mod inner { use crate::simulate as _; }"),
        // A file beneath names its parent, which calls it.
        ("plan::cache", "use super::Args as _;"),
        ("plan::cache", "fn up() { use crate::{plan::Args as _, output as _}; }"),
        ("failure", "#[cfg(not(test))] use crate::output as _;"),
    ] {
        assert!(!faults(Some((file, line))).is_empty(), "{file}: {line}");
    }
    assert_eq!(faults(Some(("failure", "#[cfg(test)] mod tests { use crate::output as _; }"))), [""; 0]);
    assert_eq!(faults(Some(("output", "use crate::failure as _;"))), [""; 0], "an arrow is no circle");
}
