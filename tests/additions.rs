//! The places that an addition needs, beside those without which nothing compiles: each is there for every rule and every format of packed rows that does not
//! train, and one that is left out is named.

use std::{fs, path::Path};

use hotrow::{OptimizerKind, Precision};

/// A file that must name each addition, whose name stands in place of NAME: in which words.
type Place<T> = (&'static str, fn(T) -> String);

fn snake(kind: OptimizerKind) -> String {
    kind.name().replace('-', "_")
}

/// The places of a rule (ARCHITECTURE, "To add an optimiser"). The enum, its facts and its step are one list, which the compiler checks.
const RULES: [Place<OptimizerKind>; 10] = [
    ("shaders/rules/NAME.wgsl", |kind| format!("fn {}(e: Element, n: Numbers) -> Element", snake(kind))),
    ("src/rules/NAME.rs", |_| "fn element(".into()),
    ("src/config.rs", |kind| format!("pub const fn {}(lr: f32)", snake(kind))),
    ("python/lib/hotrow/__init__.py", |kind| format!("\"kind\": \"{}\"", snake(kind))),
    ("docs/training.md", |kind| format!("{}`", snake(kind))),
    ("docs/SPEC.md", |kind| format!("\n| {} |", kind.name())),
    ("tests/harness/src/naive.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("tests/harness/src/ranks.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("tests/harness/src/lockstep.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("CHANGELOG.md", |kind| kind.name().into()),
];

/// The places of a format that does not train (ARCHITECTURE, "To add a format of packed rows").
const FORMATS: [Place<Precision>; 6] = [
    ("shaders/formats/NAME.wgsl", |_| "fn head_of(record: Record, e: u32)".into()),
    ("src/record/NAME.rs", |_| "pub(crate) fn pack(".into()),
    ("python/lib/hotrow/__init__.py", |precision| format!("\"{precision}\": ")), // the weights of a block
    ("docs/SPEC.md", |precision| format!("\n| {precision} |")),
    ("tests/harness/src/formats.rs", |precision| format!("(Precision::{precision:?}, [")),
    ("CHANGELOG.md", |precision| format!("`Precision::{precision:?}`")),
];

/// A text as it is compared: prose writes AdaGrad and row-wise Adam.
fn plain(text: &str) -> String {
    text.to_lowercase().replace("row-wise ", "row-wise-")
}

/// The places that do not name an addition, with these contents of files.
fn missing<T: Copy>(places: &[Place<T>], one: T, name: &str, read: impl Fn(&str) -> String) -> Vec<&'static str> {
    let lacks = |(path, word): &&Place<T>| !plain(&read(&path.replace("NAME", name))).contains(&plain(&word(one)));
    places.iter().filter(lacks).map(|(path, _)| *path).collect()
}

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

/// Every place names the addition, and one that is left out is named.
fn check<T: Copy>(places: &[Place<T>], one: T, name: &str) {
    assert_eq!(missing(places, one, name, file), Vec::<&str>::new(), "{name}");
    for (place, word) in places {
        let path = place.replace("NAME", name);
        let left_out = |name: &str| plain(&file(name)).replace(&plain(&word(one)), "");
        let found = missing(places, one, name, |name| if name == path { left_out(name) } else { file(name) });
        assert_eq!(found, [*place], "{name} is left out");
    }
}

#[test]
fn every_place_names_every_rule() {
    OptimizerKind::ALL.into_iter().for_each(|kind| check(&RULES, kind, &snake(kind)));
}

#[test]
fn every_place_names_every_format() {
    Precision::READ_ONLY.into_iter().for_each(|precision| check(&FORMATS, precision, precision.name()));
}
