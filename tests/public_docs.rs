//! Each public type has an example in its documentation, or names the place of an example.

use std::{fs, path::Path};

use syn::{Attribute, Item, Visibility};

/// Types that only `internals` exports.
const INTERNAL: &[&str] = &[
    "Access",
    "Bodies",
    "ComposedShader",
    "Deduped",
    "Device",
    "Field",
    "Held",
    "HostStruct",
    "Kernel",
    "List",
    "Noise",
    "Pieces",
    "Records",
    "Rule",
];

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

/// The public types of a file without an example.
fn without(text: &str) -> Vec<String> {
    let items = syn::parse_file(text).unwrap().items;
    let types = items.iter().filter_map(|item| match item {
        Item::Struct(one) => Some((&one.vis, &one.ident, &one.attrs)),
        Item::Enum(one) => Some((&one.vis, &one.ident, &one.attrs)),
        Item::Trait(one) => Some((&one.vis, &one.ident, &one.attrs)),
        _ => None,
    });
    let public = types.filter(|(visibility, ..)| matches!(visibility, Visibility::Public(_)));
    let bare = public.filter(|(.., attributes)| {
        let text = documentation(attributes);
        !text.contains("```") && !text.contains("Example: [`") && !text.contains("Example: the [module]")
    });
    bare.map(|(_, name, _)| name.to_string()).collect()
}

#[test]
fn every_public_type_has_an_example() {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                let names = without(&fs::read_to_string(&path).unwrap());
                let names = names.into_iter().filter(|name| !INTERNAL.contains(&name.as_str()));
                found.extend(names.map(|name| format!("{name} in {}", path.display())));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.is_empty(), "wanted an example, or `Example: [`Type`].`, found none: {found:#?}");
}

#[test]
fn a_type_without_an_example_is_found() {
    let text = "/// Bare.\npub struct Bare;\n/// ```\n/// ```\npub enum Shown {}\n/// Example: [`Shown`].\npub trait Named {}\nstruct Private;";
    assert_eq!(without(text), ["Bare"]);
}
