//! Every public call of the objects that a program keeps has a span of `tracing`, and the spans are those of the calls.

use std::sync::{Arc, Mutex, atomic::AtomicU64, atomic::Ordering};
use std::{fs, path::Path};

use hotrow::{Bags, CpuGroup, GroupConfig, Mode, prelude::*};
use hotrow_harness::modules::files;
use syn::{Attribute, FnArg, ImplItem, Item, ReturnType, Signature, TraitItem, Type, Visibility};
use tracing::{Event, Metadata, Subscriber, span};

/// The objects, by the types that implement their calls.
const OBJECTS: &str = "DeviceGroup Group SharedGroup CpuGroup CpuSharedGroup Grid CpuGrid Scaler CpuScaler Sorter RowReader Context Timeline FileStore SharedStore";
/// The files whose functions are calls of their own.
const FREE: [&str; 4] = ["checkpoint/save.rs", "checkpoint/load.rs", "gpu/adapter.rs", "store/fill.rs"];
const TRAITS: [&str; 3] = ["Lookup", "Embedding", "SharedArray"];

fn last(path: &syn::Path) -> String {
    path.segments.last().unwrap().ident.to_string()
}

/// Whether a function does work: it changes its object, encodes, makes an object, may fail, or is a future.
fn works(signature: &Signature) -> bool {
    let is = |of: &Type, names: &[&str]| matches!(of, Type::Path(path) if names.contains(&&*last(&path.path)));
    let fails = matches!(&signature.output, ReturnType::Type(_, found) if is(found, &["Result"]));
    let argument = |argument: &FnArg| match argument {
        FnArg::Receiver(receiver) => receiver.mutability.is_some() && receiver.reference.is_some(),
        FnArg::Typed(typed) => {
            matches!(&*typed.ty, Type::Reference(to) if is(&to.elem, &["CommandEncoder", "Context"]))
        }
    };
    fails || signature.asyncness.is_some() || signature.inputs.iter().any(argument)
}

fn has_span(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg_attr")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("tracing :: instrument"))
    })
}

/// The calls without a span of a source text; with `free`, its functions are calls, too.
fn silent(text: &str, free: bool) -> Vec<String> {
    let public = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
    let mut calls = Vec::new();
    for item in syn::parse_file(text).unwrap().items {
        match item {
            Item::Impl(block) => {
                let Type::Path(path) = &*block.self_ty else { continue };
                let (of, of_trait) = (last(&path.path), block.trait_.as_ref().map(|(_, path, _)| last(path)));
                let known = of_trait.as_ref().is_none_or(|of| TRAITS.contains(&&**of));
                for item in block.items {
                    if let ImplItem::Fn(call) = item
                        && (OBJECTS.split(' ').any(|object| object == of) && known)
                        && (of_trait.is_some() || public(&call.vis))
                    {
                        calls.push((of.clone(), call.attrs, call.sig));
                    }
                }
            }
            Item::Trait(block) if TRAITS.contains(&&*block.ident.to_string()) => {
                for item in block.items {
                    if let TraitItem::Fn(call) = item
                        && call.default.is_some()
                    {
                        calls.push((block.ident.to_string(), call.attrs, call.sig));
                    }
                }
            }
            Item::Fn(call) if free && public(&call.vis) => calls.push((String::new(), call.attrs, call.sig)),
            _ => {}
        }
    }
    // A cast does nothing that takes time.
    let casts = |signature: &Signature| signature.ident.to_string().starts_with("as_");
    calls.retain(|(_, attributes, signature)| works(signature) && !has_span(attributes) && !casts(signature));
    calls.into_iter().map(|(of, _, signature)| format!("{of}::{}", signature.ident)).collect()
}

#[test]
fn every_public_call_has_a_span() {
    let (mut spans, mut without) = (0, Vec::new());
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &|path| path.ends_with("internals")) {
        let text = fs::read_to_string(&path).unwrap();
        spans += text.matches("tracing::instrument").count();
        let free = FREE.iter().any(|file| path.ends_with(file));
        without.extend(silent(&text, free).into_iter().map(|call| format!("{}: {call}", path.display())));
    }
    assert!(without.is_empty(), "{} calls without a span:\n{}", without.len(), without.join("\n"));
    assert!(spans > 150, "{spans}");
}

#[test]
fn a_call_without_a_span_is_found() {
    let text = "pub fn save() -> Result<(), Error> {} fn own() -> Result<(), Error> {} impl Scaler { pub fn state(&self) -> Result<u32, Error> {} }
        impl CpuGroup { pub fn flush(&mut self) {} fn own(&mut self) {} pub fn config(&self) {}
        #[cfg_attr(feature = \"tracing\", tracing::instrument(skip_all))] pub fn reset(&mut self) {} }
        impl Lookup for CpuGroup { fn backward(&mut self) {} } impl Other { pub fn flush(&mut self) {} }";
    assert_eq!(silent(text, true), ["::save", "Scaler::state", "CpuGroup::flush", "CpuGroup::backward"]);
    assert_eq!(silent(text, false), ["Scaler::state", "CpuGroup::flush", "CpuGroup::backward"]);
}

/// Keeps the names of the spans in the order in which they begin, behind as many dots as spans are open.
#[derive(Default)]
struct Names {
    seen: Arc<Mutex<Vec<String>>>,
    names: Mutex<Vec<&'static str>>,
    depth: AtomicU64,
}

impl Subscriber for Names {
    fn enabled(&self, data: &Metadata<'_>) -> bool {
        data.target().starts_with("hotrow")
    }

    fn new_span(&self, of: &span::Attributes<'_>) -> span::Id {
        let mut names = self.names.lock().unwrap();
        names.push(of.metadata().name());
        span::Id::from_u64(names.len() as u64)
    }

    fn enter(&self, id: &span::Id) {
        let dots = ".".repeat(self.depth.fetch_add(1, Ordering::Relaxed) as usize);
        let name = self.names.lock().unwrap()[id.into_u64() as usize - 1];
        self.seen.lock().unwrap().push(format!("{dots}{name}"));
    }

    fn exit(&self, _: &span::Id) {
        self.depth.fetch_sub(1, Ordering::Relaxed);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {}
}

#[test]
fn spans_are_those_of_the_calls() {
    let names = Names::default();
    let seen = names.seen.clone();
    tracing::subscriber::with_default(names, || {
        let mut group = CpuGroup::new(GroupConfig::new(&[10], 2)).unwrap();
        let outputs = group.forward(Bags::new(&[1], &[0, 1]), Mode::Train).unwrap();
        group.backward(&outputs).unwrap();
        group.flush().unwrap();
    });
    let seen = seen.lock().unwrap();
    println!("{}", seen.join("\n"));
    assert_eq!(*seen, ["new", "forward", ".forward_into", "backward", "flush"]);
}
