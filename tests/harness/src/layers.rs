//! Lists the files that each file of a package names, and the circles among them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, File, Item, UseTree, Visibility};

use crate::modules::files;

/// A module by its path from the crate's root; the root itself is empty.
pub type Module = Vec<String>;

pub fn name(module: &Module) -> String {
    if module.is_empty() { "lib".into() } else { module.join("::") }
}

/// The Rust files of a crate, whose root lies in this folder, by module. The root is `lib.rs`, or `main.rs` if there is no other.
pub fn sources(folder: &Path) -> BTreeMap<Module, String> {
    let program = !folder.join("lib.rs").exists();
    let mut files = files(folder, &|_| false);
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let module = |file: &Path| {
        let path = file.strip_prefix(folder).unwrap().with_extension("");
        let mut module: Module = path.iter().map(|part| part.to_str().unwrap().into()).collect();
        if matches!(module.last().unwrap().as_str(), "mod" | "lib") || program && module == ["main"] {
            module.pop();
        }
        module
    };
    files.iter().map(|file| (module(file), fs::read_to_string(file).unwrap())).collect()
}

fn for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |one: &Attribute| one.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test");
    attributes.iter().any(|one| one.path().is_ident("cfg") && is_test(one))
}

/// The paths of a `use`, one for each imported name.
pub(crate) fn spread(tree: &UseTree, before: &[String], paths: &mut Vec<Module>) {
    let with = |last: &dyn ToString| before.iter().cloned().chain([last.to_string()]).collect::<Module>();
    match tree {
        UseTree::Path(path) => spread(&path.tree, &with(&path.ident), paths),
        UseTree::Name(name) if name.ident == "self" => paths.push(before.to_vec()),
        UseTree::Name(name) => paths.push(with(&name.ident)),
        UseTree::Rename(name) => paths.push(with(&name.ident)),
        UseTree::Glob(_) => paths.push(before.to_vec()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| spread(tree, before, paths)),
    }
}

/// The paths of a list in braces behind the path `before`.
fn in_braces(tokens: TokenStream, before: &[String], paths: &mut Vec<Module>) {
    let mut path = before.to_vec();
    for token in tokens {
        match token {
            TokenTree::Ident(part) => path.push(part.to_string()),
            TokenTree::Group(group) => in_braces(group.stream(), &path, paths),
            TokenTree::Punct(mark) if mark.as_char() == ',' => {
                paths.push(std::mem::replace(&mut path, before.to_vec()));
            }
            _ => {}
        }
    }
    paths.push(path);
}

/// Collects `crate::a::b`, `super::a::b` and `child::b` among tokens, including the tokens of macros.
fn in_tokens(tokens: TokenStream, children: &BTreeSet<String>, paths: &mut Vec<Module>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let colons = |at: usize| {
        let two = tokens.get(at..at + 2).unwrap_or_default();
        two.len() == 2 && two.iter().all(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ':'))
    };
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => in_tokens(group.stream(), children, paths),
            TokenTree::Ident(first) => {
                let (mut path, start) = (vec![first.to_string()], at);
                while let (true, Some(TokenTree::Ident(next))) = (colons(at + 1), tokens.get(at + 3)) {
                    path.push(next.to_string());
                    at += 3;
                }
                let begins = start < 2 || !colons(start - 2);
                let known = first == "crate" || first == "super" || children.contains(&path[0]);
                if let (true, Some(TokenTree::Group(group))) = (begins && known && colons(at + 1), tokens.get(at + 3)) {
                    in_braces(group.stream(), &path, paths);
                } else if begins && known && path.len() > 1 {
                    paths.push(path);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Collects the absolute paths that the items of `module` name outside tests. A module that re-exports names of its own files does not name
/// these files.
fn named(module: &Module, items: &[Item], out: &mut Vec<Module>) {
    let children = items.iter().filter_map(|item| match item {
        Item::Mod(child) if child.content.is_none() => Some(child.ident.to_string()),
        _ => None,
    });
    let children: BTreeSet<String> = children.collect();
    let resolved = |path: &Module| {
        let ups = path.iter().take_while(|part| *part == "super").count();
        let base = |ups: usize| module[..module.len().saturating_sub(ups)].iter();
        if ups == path.len() {
            return None; // of `pub(in super::super)`
        }
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "super" => Some(base(ups).chain(&path[ups..]).cloned().collect::<Module>()),
            child if children.contains(child) => Some(base(0).chain(path).cloned().collect()),
            _ => None,
        }
    };
    for item in items {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if for_tests(attributes) {
            continue;
        }
        let mut paths = Vec::new();
        match item {
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    let inner = module.iter().cloned().chain([inner.ident.to_string()]).collect();
                    named(&inner, items, out);
                }
            }
            Item::Use(one) => {
                spread(&one.tree, &[], &mut paths);
                let own = |path: &Module| resolved(path).is_some_and(|path| path.starts_with(module));
                if !matches!(one.vis, Visibility::Inherited) {
                    paths.retain(|path| !own(path));
                }
            }
            item => in_tokens(item.to_token_stream(), &children, &mut paths),
        }
        out.extend(paths.iter().filter_map(resolved));
    }
}

/// For each file, the files that it names.
pub fn arrows(sources: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut arrows = BTreeMap::new();
    for (module, text) in sources {
        if module.iter().any(|part| part == "tests") {
            continue;
        }
        let File { items, .. } = syn::parse_file(text).unwrap_or_else(|error| panic!("{}: {error}", name(module)));
        let mut paths = Vec::new();
        named(module, &items, &mut paths);
        let files = paths.iter().map(|path| {
            let file = (0..=path.len()).rev().map(|n| &path[..n]).find(|head| sources.contains_key(*head));
            file.unwrap_or_default().to_vec()
        });
        arrows.insert(module.clone(), files.filter(|file| file != module).collect());
    }
    arrows
}

/// The files in circles. Each file comes with the files of its circle that it names.
pub fn circles(arrows: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let mut faults = Vec::new();
    let next = |from: &Module| arrows[from].iter().cloned().collect::<Vec<_>>();
    let circular = arrows.keys().filter(|start| {
        let (mut seen, mut todo) = (BTreeSet::new(), next(start));
        while let Some(module) = todo.pop() {
            if seen.insert(module.clone()) {
                todo.extend(next(&module));
            }
        }
        seen.contains(*start)
    });
    let circular: BTreeSet<&Module> = circular.collect();
    for from in &circular {
        let to: Vec<String> = next(from).iter().filter(|to| circular.contains(to)).map(name).collect();
        faults.push(format!("in a circle: {} -> {}", name(from), to.join(", ")));
    }
    faults
}
