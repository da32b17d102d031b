//! Lists the public face of a crate from its source: the types and traits that its root exports, and their methods.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use syn::{Attribute, ImplItem, Item, Meta, Token, TraitItem, Type, Visibility, punctuated::Punctuated};

use crate::layers::{Module, sources, spread};

/// A crate's items by module, without those of tests and of the features that are off.
struct Crate<'a> {
    modules: BTreeMap<Module, Vec<Item>>,
    off: &'a [&'a str],
}

/// Types and traits, and their methods, each with its type.
#[derive(Debug, PartialEq, Eq)]
pub struct Face {
    pub types: BTreeSet<String>,
    pub methods: BTreeSet<String>,
}

/// The face of the crate whose root lies in this folder. Items that a macro makes have no methods here, and hidden items are left out.
pub fn of_folder(folder: &Path, off: &[&str]) -> Face {
    face(&sources(folder), off)
}

/// The face of a crate of these files.
pub fn face(sources: &BTreeMap<Module, String>, off: &[&str]) -> Face {
    let mut whole = Crate { modules: BTreeMap::new(), off };
    whole.collect(sources, Module::new(), syn::parse_file(&sources[&Module::new()]).unwrap().items);
    let mut found = BTreeSet::new();
    whole.exports(&Module::new(), &mut found);
    let spelled =
        |(module, name): &(Module, String)| module.iter().chain([name]).cloned().collect::<Vec<_>>().join("::");
    let mut methods = BTreeSet::new();
    // The methods of an alias are those of the type that it names.
    let aliased = found.iter().filter_map(|(module, name)| match whole.item(module, name) {
        Some(Item::Type(alias)) => Some(whole.definition(module, &last(&alias.ty)?)),
        _ => None,
    });
    let bodies: BTreeSet<_> = found.iter().cloned().chain(aliased).collect();
    for (module, items) in &whole.modules {
        for item in items {
            match item {
                Item::Trait(one) if found.contains(&(module.clone(), one.ident.to_string())) => {
                    let functions = one.items.iter().filter_map(|item| match item {
                        TraitItem::Fn(one) if whole.shown(&one.attrs) => Some(&one.sig.ident),
                        _ => None,
                    });
                    methods.extend(functions.map(|function| format!("{}::{function}", one.ident)));
                }
                Item::Impl(one) if one.trait_.is_none() => {
                    let Some(body) = last(&one.self_ty).map(|name| whole.definition(module, &name)) else { continue };
                    if bodies.contains(&body) {
                        let functions = one.items.iter().filter_map(|item| match item {
                            ImplItem::Fn(one) => {
                                (is_public(&one.vis) && whole.shown(&one.attrs)).then_some(&one.sig.ident)
                            }
                            _ => None,
                        });
                        methods.extend(functions.map(|function| format!("{}::{function}", spelled(&body))));
                    }
                }
                _ => {}
            }
        }
    }
    Face { types: found.iter().map(spelled).collect(), methods }
}

/// The last name of a type's path.
fn last(one: &Type) -> Option<String> {
    match one {
        Type::Path(path) => path.path.segments.last().map(|part| part.ident.to_string()),
        _ => None,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// An item's name, visibility and attributes, if it can be exported by name.
fn named(item: &Item) -> Option<(String, &Visibility, &[Attribute])> {
    let (name, visibility, attributes) = match item {
        Item::Struct(one) => (&one.ident, &one.vis, &one.attrs),
        Item::Enum(one) => (&one.ident, &one.vis, &one.attrs),
        Item::Trait(one) => (&one.ident, &one.vis, &one.attrs),
        Item::Type(one) => (&one.ident, &one.vis, &one.attrs),
        _ => return None,
    };
    Some((name.to_string(), visibility, attributes))
}

impl Crate<'_> {
    /// Whether a condition holds on a desktop with every feature but those that are off.
    fn holds(&self, condition: &Meta) -> bool {
        let parts = |list: &syn::MetaList| {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap();
            parts.iter().map(|part| self.holds(part)).collect::<Vec<_>>()
        };
        match condition {
            Meta::Path(path) => !["test", "doctest", "windows"].iter().any(|name| path.is_ident(name)),
            Meta::NameValue(pair) => {
                let value = quote::ToTokens::to_token_stream(&pair.value).to_string();
                let value = value.trim_matches('"');
                if pair.path.is_ident("feature") { !self.off.contains(&value) } else { value != "wasm" }
            }
            Meta::List(list) if list.path.is_ident("not") => !parts(list)[0],
            Meta::List(list) if list.path.is_ident("any") => parts(list).contains(&true),
            Meta::List(list) => !parts(list).contains(&false),
        }
    }

    fn compiled(&self, attributes: &[Attribute]) -> bool {
        let conditions = attributes.iter().filter(|one| one.path().is_ident("cfg"));
        conditions.map(|one| one.parse_args::<Meta>().unwrap()).all(|condition| self.holds(&condition))
    }

    /// Whether an item is compiled and stands in the documentation.
    fn shown(&self, attributes: &[Attribute]) -> bool {
        let hidden = |one: &Attribute| {
            one.path().is_ident("doc") && one.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
        };
        self.compiled(attributes) && !attributes.iter().any(hidden)
    }

    /// Takes the items of a module and of its children.
    fn collect(&mut self, sources: &BTreeMap<Module, String>, module: Module, mut items: Vec<Item>) {
        items.retain(|item| match item {
            Item::Mod(one) => self.compiled(&one.attrs),
            Item::Use(one) => self.compiled(&one.attrs),
            Item::Impl(one) => self.compiled(&one.attrs),
            item => named(item).is_none_or(|(_, _, attributes)| self.compiled(attributes)),
        });
        for item in &items {
            if let Item::Mod(one) = item {
                let child: Module = module.iter().cloned().chain([one.ident.to_string()]).collect();
                let items = match &one.content {
                    Some((_, items)) => items.clone(),
                    None => syn::parse_file(&sources[&child]).unwrap().items,
                };
                self.collect(sources, child, items);
            }
        }
        self.modules.insert(module, items);
    }

    fn item(&self, module: &Module, name: &str) -> Option<&Item> {
        self.modules.get(module)?.iter().find(|item| named(item).is_some_and(|(ident, ..)| ident == name))
    }

    /// The absolute path of a path in a module; nothing for another crate's.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let ups = path.iter().take_while(|part| *part == "super").count();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(module.iter().chain(&path[1..]).cloned().collect()),
            "super" => Some(module[..module.len() - ups].iter().chain(&path[ups..]).cloned().collect()),
            _ => {
                let child: Module = module.iter().chain([&path[0]]).cloned().collect();
                let path = module.iter().chain(path).cloned().collect();
                (self.modules.contains_key(&child) || self.item(module, &child[child.len() - 1]).is_some())
                    .then_some(path)
            }
        }
    }

    /// Where the type or trait is defined that a module knows by this name.
    fn definition(&self, module: &Module, name: &str) -> (Module, String) {
        let here = (module.clone(), name.to_owned());
        if self.item(module, name).is_some() {
            return here;
        }
        let uses = self.modules.get(module).into_iter().flatten().filter_map(|item| match item {
            Item::Use(one) => Some(one),
            _ => None,
        });
        let mut paths = Vec::new();
        uses.for_each(|one| spread(&one.tree, &[], &mut paths));
        let mut found = paths.iter().filter(|path| path.last().is_some_and(|end| end == name));
        match found.find_map(|path| self.absolute(module, path)) {
            Some(path) => self.definition(&path[..path.len() - 1].to_vec(), name),
            None => here,
        }
    }

    /// The types and traits that another crate can name through this module.
    fn exports(&self, module: &Module, found: &mut BTreeSet<(Module, String)>) {
        for item in &self.modules[module] {
            match item {
                Item::Mod(one) if is_public(&one.vis) && self.shown(&one.attrs) => {
                    self.exports(&module.iter().cloned().chain([one.ident.to_string()]).collect(), found);
                }
                Item::Use(one) if is_public(&one.vis) && self.shown(&one.attrs) => {
                    let mut paths = Vec::new();
                    spread(&one.tree, &[], &mut paths);
                    for path in paths.iter().filter_map(|path| self.absolute(module, path)) {
                        if self.modules.contains_key(&path) {
                            self.exports(&path, found);
                            continue;
                        }
                        let (name, parent) = path.split_last().unwrap();
                        let definition = self.definition(&parent.to_vec(), name);
                        let hidden = self.item(&definition.0, name).and_then(named);
                        if name.starts_with(char::is_uppercase)
                            && hidden.is_none_or(|(_, _, attributes)| self.shown(attributes))
                        {
                            found.insert(definition);
                        }
                    }
                }
                item => {
                    if let Some((name, visibility, attributes)) = named(item)
                        && is_public(visibility)
                        && self.shown(attributes)
                    {
                        found.insert((module.clone(), name));
                    }
                }
            }
        }
    }
}
