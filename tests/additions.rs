//! The places that an addition needs, beside those without which nothing compiles: each is there for every rule, and one that is left out is named.

use std::{fs, path::Path};

use hotrow::OptimizerKind;

/// A file that must name each rule: in which words.
type Place = (&'static str, fn(OptimizerKind) -> String);

fn snake(kind: OptimizerKind) -> String {
    kind.name().replace('-', "_")
}

/// The places of a rule (ARCHITECTURE, "To add an optimiser"). The enum, its facts and its step are one list, which the compiler checks.
const PLACES: [Place; 10] = [
    ("shaders/rules/RULE.wgsl", |kind| format!("fn {}(e: Element, n: Numbers) -> Element", snake(kind))),
    ("src/rules/RULE.rs", |_| "fn element(".into()),
    ("src/config.rs", |kind| format!("pub const fn {}(lr: f32)", snake(kind))),
    ("python/lib/hotrow/__init__.py", |kind| format!("\"kind\": \"{}\"", snake(kind))),
    ("docs/training.md", |kind| format!("{}`", snake(kind))),
    ("docs/SPEC.md", |kind| format!("\n| {} |", kind.name())),
    ("tests/harness/src/naive.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("tests/harness/src/ranks.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("tests/harness/src/lockstep.rs", |kind| format!("Optimizer::{}(", snake(kind))),
    ("CHANGELOG.md", |kind| kind.name().into()),
];

/// A text as it is compared: prose writes AdaGrad and row-wise Adam.
fn plain(text: &str) -> String {
    text.to_lowercase().replace("row-wise ", "row-wise-")
}

/// The places that do not name a rule, with these contents of files.
fn missing(kind: OptimizerKind, read: impl Fn(&str) -> String) -> Vec<&'static str> {
    let lacks =
        |(path, word): &&Place| !plain(&read(&path.replace("RULE", &snake(kind)))).contains(&plain(&word(kind)));
    PLACES.iter().filter(lacks).map(|(path, _)| *path).collect()
}

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap_or_default()
}

#[test]
fn every_place_names_every_rule() {
    for kind in OptimizerKind::ALL {
        assert_eq!(missing(kind, file), Vec::<&str>::new(), "{kind}");
    }
}

#[test]
fn a_place_that_is_left_out_is_named() {
    for kind in OptimizerKind::ALL {
        for (place, word) in PLACES {
            let path = place.replace("RULE", &snake(kind));
            let left_out = |name: &str| plain(&file(name)).replace(&plain(&word(kind)), "");
            let found = missing(kind, |name| if name == path { left_out(name) } else { file(name) });
            assert_eq!(found, [place], "{kind} is left out");
        }
    }
}
