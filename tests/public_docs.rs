//! Each public type of the packages that are published has an example in its documentation, or names the place of an example.

use std::{fs, path::Path};

use hotrow_harness::modules::files;
use syn::{Attribute, Item, Visibility};

/// Types that only `internals` exports, or nothing: those are in the signatures of a trait that no other crate can name.
const INTERNAL: &str = "
    Access Bodies ComposedShader Constants Deduped Device Dispatch Field Held HostStruct Kernel Kind Noise Numbers Pieces Prefetched ReadableBuffers ReaderKind
    ReaderText RowStep Rows Shared Sizes Storage WantedList WeightGradient
";

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|one| one.path().is_ident("doc")).filter_map(|one| match &one.meta {
        syn::Meta::NameValue(value) => match &value.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A public type, alias or trait, or a function that may be named for an example, and its documentation.
struct Public {
    name: String,
    is_type: bool,
    text: String,
}

impl Public {
    fn shows(&self) -> bool {
        self.text.contains("```")
    }

    /// The types, functions and modules that its documentation names for an example.
    fn pointers(&self) -> Vec<String> {
        let lines = self.text.lines().filter_map(|line| line.trim().strip_prefix("Example: "));
        let links =
            lines.flat_map(|line| line.split('[').skip(1).map(|rest| rest.split(']').next().unwrap().to_owned()));
        links.map(|link| link.trim_matches('`').to_owned()).collect()
    }
}

/// The public types of a file.
fn of_file(text: &str) -> Vec<Public> {
    let types = syn::parse_file(text).unwrap().items.into_iter().filter_map(|item| match item {
        Item::Struct(one) => Some((one.vis, one.ident, one.attrs)),
        Item::Enum(one) => Some((one.vis, one.ident, one.attrs)),
        Item::Trait(one) => Some((one.vis, one.ident, one.attrs)),
        Item::Fn(one) => Some((one.vis, one.sig.ident, one.attrs)),
        // An alias of a tuple shows by itself what it is.
        Item::Type(one) if matches!(*one.ty, syn::Type::Path(_)) => Some((one.vis, one.ident, one.attrs)),
        _ => None,
    });
    let public = types.filter(|(visibility, name, _)| {
        matches!(visibility, Visibility::Public(_)) && !INTERNAL.split_whitespace().any(|internal| name == internal)
    });
    let public = public.map(|(_, name, attributes)| {
        let name = name.to_string();
        Public { is_type: name.starts_with(char::is_uppercase), name, text: documentation(&attributes) }
    });
    public.collect()
}

/// The types without an example: without one of their own, and without the name of a type or a module that has one.
fn without(types: &[Public]) -> Vec<&str> {
    let shown = |name: &String| name == "module" || types.iter().any(|one| one.name == *name && one.shows());
    let bare = types.iter().filter(|one| one.is_type && !one.shows() && !one.pointers().iter().any(shown));
    bare.map(|one| one.name.as_str()).collect()
}

fn all() -> Vec<Public> {
    let below = |folder| files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &|_| false);
    ["src", "plan/src", "dist/src"]
        .into_iter()
        .flat_map(below)
        .flat_map(|file| of_file(&fs::read_to_string(file).unwrap()))
        .collect()
}

#[test]
fn every_public_type_has_an_example() {
    let types = all();
    assert!(types.iter().filter(|one| one.shows()).count() > 20, "{} types", types.len());
    let found = without(&types);
    assert!(
        found.is_empty(),
        "wanted an example, or `Example: [`Type`].` with a type that has one, found none: {found:#?}"
    );
}

#[test]
fn a_type_without_an_example_is_found() {
    let text = "/// Bare.\npub struct Bare;\n/// ```\n/// ```\npub enum Shown {}\n/// Example: [`Shown`](crate::Shown).\npub trait Named {}\n\
                /// Example: [`Bare`].\npub struct Astray;\nstruct Private;\n\
                /// ```\n/// ```\npub fn shown() {}\n/// Example: [`shown`].\npub struct ByCall;\npub fn bare() {}\n/// Example: [`bare`].\npub struct Lost;";
    assert_eq!(without(&of_file(text)), ["Bare", "Astray", "Lost"]);
}

/// The guide shows the marked part of the streaming example, word for word, and it is short.
#[test]
fn the_guide_shows_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let guide = read("docs/renderers.md");
    for (file, most) in [("tiles.rs", 30), ("stream.wgsl", 10)] {
        let text = read(&format!("examples/stream/{file}"));
        let lines: Vec<_> = text.lines().skip_while(|line| line.trim() != "// hotrow begins").skip(1).collect();
        let indent = lines[0].len() - lines[0].trim_start().len();
        let marked: Vec<_> = lines.iter().take_while(|line| line.trim() != "// hotrow ends").collect();
        assert!((1..=most).contains(&marked.len()) && marked.len() < lines.len(), "{file}: {} lines", marked.len());
        let shown: String = marked.iter().map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect();
        assert!(
            guide.contains(&shown),
            "docs/renderers.md: wanted the marked part of {file}, found another text:\n{shown}"
        );
        assert!(!guide.contains(&shown.replacen("emb", "other", 1)), "the comparison can fail");
    }
}
