//! The text of readers, without a GPU: it must stand in a module of another program, in every stage, beside a second reader.

use std::collections::BTreeSet;

use hotrow::internals::{
    layout,
    shader::{ReaderKind, ReaderText, Sizes, reader_modules},
};
use naga::Module;

use super::{
    MAX_STORAGE_BUFFERS, as_u32, check_all, check_bindings, check_directives, check_struct, parse, rejected, validate,
};

/// A reader of a cached table.
fn cached(prefix: &str, group: u32) -> ReaderText<'_> {
    let kind = ReaderKind::Rows { cache: true, shares: false, table: true };
    ReaderText { prefix, group, sizes: Sizes { width: 4, ..Sizes::ONE }, kind, feedback: None, grid: None }
}

/// Names of a module's top level.
fn names(module: &Module) -> impl Iterator<Item = String> {
    let types = module.types.iter().filter_map(|(_, one)| one.name.clone());
    let constants = module.constants.iter().filter_map(|(_, one)| one.name.clone());
    let variables = module.global_variables.iter().filter_map(|(_, one)| one.name.clone());
    let functions = module.functions.iter().filter_map(|(_, one)| one.name.clone());
    types.chain(constants).chain(variables).chain(functions)
}

/// Names of a module's top level that do not begin with the prefix.
fn strangers(module: &Module, prefix: &str) -> Vec<String> {
    names(module).filter(|name| !name.starts_with(prefix)).collect()
}

/// Names that end with `_` and another name: with a second prefix that ends with their beginning, two readers would define one name twice.
fn colliding(all: &BTreeSet<String>) -> Vec<&str> {
    let ends = |name: &str| name.match_indices('_').any(|(at, _)| all.contains(&name[at + 1..]));
    all.iter().map(String::as_str).filter(|name| ends(name)).collect()
}

#[test]
fn no_two_prefixes_make_one_name() {
    let mut all = BTreeSet::new();
    for (_, _, text) in reader_modules() {
        all.extend(names(&parse(&text.compose()).unwrap()).map(|name| name["emb_".len()..].to_owned()));
    }
    assert!(all.contains("at") && all.contains("want"));
    assert_eq!(colliding(&all), [""; 0]);
    all.insert("quad_at".into());
    assert_eq!(colliding(&all), ["quad_at"]);
}

#[test]
fn every_reader_passes_every_check() {
    let modules = reader_modules();
    assert!(modules.len() > 15);
    for (name, module, text) in &modules {
        let bindings = text.bindings();
        check_all(module, false, bindings.len() + 1).unwrap_or_else(|error| panic!("{name}: {error}"));
        let own = text.compose();
        check_directives(&own).unwrap();
        let parsed = parse(&own).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(strangers(&parsed, "emb_"), [""; 0], "{name}");
        let named: Vec<_> = bindings.iter().map(|(access, name)| (*access, format!("emb_{name}"))).collect();
        let wanted: Vec<_> = (0..).zip(&named).map(|(i, (access, name))| (i, name.as_str(), *access)).collect();
        check_bindings(&parsed, &wanted).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (cache, table, shared) = match text.kind {
            ReaderKind::Rows { cache, table, .. } => (cache, table, false),
            ReaderKind::Shared { .. } => (false, false, true),
        };
        let structs = [("Params", true), ("Piece", table), ("Robe", shared)];
        for (wanted, _) in structs.into_iter().filter(|(_, bound)| *bound) {
            let wanted = layout::structs().into_iter().find(|one| one.name == wanted).unwrap();
            let members: Vec<_> = wanted.fields.iter().map(|&(member, offset)| (member, as_u32(offset))).collect();
            check_struct(&parsed, &format!("emb_{}", wanted.name), as_u32(wanted.size), &members).unwrap();
        }
        // Nothing that only kernels need.
        assert!(!own.contains("workgroup") && !own.contains("scratch") && !own.contains("//"), "{name}");
        for (word, wanted) in [
            ("atomic", text.feedback.is_some()),
            ("records", table),
            ("slot_among", cache),
            ("COMING", false),
            ("row_hash", shared),
        ] {
            assert_eq!(own.contains(word), wanted, "{name}: {word}");
        }
    }
}

/// A caller's names, which are those of our functions without a prefix, stay the caller's.
const BIGGER: &str = "
struct Params { scale: f32, row: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> cache: array<vec4<f32>>;
alias Place = u32;
fn find(row: u32) -> Place { return row + params.row; }
fn at(place: Place) -> vec4<f32> { return emb_row4(place, 0u) + map_at(map_find(place), 1u); }
@vertex fn vertex(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> { return emb_row4(i, 0u); }
@fragment fn fragment(@builtin(position) p: vec4<f32>) -> @location(0) vec4<f32> { return at(find(u32(p.x))); }
@compute @workgroup_size(1) fn main() { cache[0] = at(find(0u)) * params.scale; }
";

#[test]
fn two_readers_stand_in_a_bigger_module() {
    let check = |text: &str| {
        let module = parse(text)?;
        validate(&module, text, false).map(drop)
    };
    let (emb, map) = (cached("emb", 1).compose(), cached("map", 2).compose());
    check(&format!("{emb}{map}{BIGGER}")).unwrap();
    check(&format!("{BIGGER}{map}{emb}")).unwrap();
    // A prefix that begins with the other.
    let again = cached("map_2", 1).compose();
    check(&format!("{again}{map}{}", BIGGER.replace("emb_", "map_2_"))).unwrap();
    rejected(check(&format!("{emb}{}{map}{BIGGER}", cached("emb", 3).compose())), "redefinition");
    rejected(check(&format!("{emb}{BIGGER}")), "map_");
    assert_eq!(strangers(&parse(&format!("{emb}fn find() {{}}")).unwrap(), "emb_"), ["find"]);
}

/// The caller's own binding at a reader's place is refused by wgpu.
#[test]
fn a_bind_group_in_use_is_refused() {
    let text = |group| {
        cached("emb", group).compose()
            + "
        @group(0) @binding(0) var<storage, read_write> sink: array<vec4<f32>>;
        @compute @workgroup_size(1) fn main() { sink[0] = emb_row4(7u, 0u); }"
    };
    check_all(&text(1), false, MAX_STORAGE_BUFFERS).unwrap();
    rejected(check_all(&text(0), false, MAX_STORAGE_BUFFERS), "conflict with other resource");
}
