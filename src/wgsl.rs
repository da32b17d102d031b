//! Composes shaders from the WGSL files. No other file knows where shader text comes from.
//!
//! A stage is `shaders/<folder>/<stage>.wgsl` with one entry point `main`; where its lanes differ by device, `shared/lane_*.wgsl` has `main`, which calls the
//! stage's `run`. A line `#include "shared/x.wgsl"` is replaced by that file. In its
//! path, `{rank}`, `{add}`, `{lookup}` and `{sum}` stand for the bodies that [`Caps`](crate::Caps) chose, `{width}` for the width that a group's dim
//! allows ([`quad_width`](crate::table::row::quad_width)), `{item}` for the words that a shader reads from a record at once, and `{format}` for the file of the
//! group's format in `shaders/formats/`.
//! A line `#window text` is replaced by one copy of the
//! text for each window of the cache, or of a shared array, except the first window. The copies are in descending order, with the window's number
//! for every `$`. A line `#piece number: text` is replaced by branches that choose, by the value of `number`, the copy of the text for that bound
//! piece, with the piece's number for every `$`, and nothing for the first. The bindings of both are declared at the end.
//! A line `#rules` is replaced by the files of the update rules, and by `stepped`, `begun` and `row_stepped`, which choose one by `params.optimizer`; if that is a
//! constant of the text, by the file of that rule alone.

use crate::{
    config::{Optimizer, OptimizerKind, PolicyFacts, Precision},
    host::trusted::Composed,
    robe,
    rules::Facts,
};

mod constants;
mod own_rule;
pub mod reader;

pub use constants::Constants;
pub(crate) use own_rule::check_rule;

/// The way in which the sort ranks keys of a block, a workgroup adds up sums, and the lanes of a row find its range and its state.
///
/// Example: [`ContextOptions`](crate::ContextOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RankBody {
    /// By ballots and shuffles. Needs subgroups of exactly 32 lanes.
    Subgroup32,
    /// By ballots and shuffles. Needs subgroups of 32 or 64 lanes.
    Subgroup64,
    /// Through shared memory. Works on any device.
    Portable,
}

impl RankBody {
    /// Every body.
    pub const ALL: [Self; 3] = [Self::Subgroup32, Self::Subgroup64, Self::Portable];

    /// The variant's name, as in `shaders/shared/rank_<name>.wgsl`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Subgroup32 => "subgroup32",
            Self::Subgroup64 => "subgroup64",
            Self::Portable => "portable",
        }
    }
}

/// The number of lanes that look up a row together in the 32 tags of its set.
///
/// Example: [`ContextOptions`](crate::ContextOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupBody {
    /// 32 lanes, one tag each, which ballot. Needs subgroups of exactly 32 lanes.
    Lanes32,
    /// 8 neighbouring lanes, four tags each. Works on any device.
    Lanes8,
    /// One lane, which reads all 32 tags. Works on any device; for drivers that run on a CPU.
    Lane1,
}

impl LookupBody {
    /// Every body.
    pub const ALL: [Self; 3] = [Self::Lanes32, Self::Lanes8, Self::Lane1];

    /// The variant's name, as in `shaders/shared/lookup_<name>.wgsl`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lanes32 => "lanes32",
            Self::Lanes8 => "lanes8",
            Self::Lane1 => "lane1",
        }
    }
}

/// The way in which several invocations add to one float in memory ([`Backward::Atomic`](crate::robe::config::Backward::Atomic)).
///
/// Example: [`ContextOptions`](crate::ContextOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddBody {
    /// By the device's native addition.
    Native,
    /// By compare and exchange, repeated until no other invocation interferes. Works on any device.
    Exchange,
}

impl AddBody {
    /// The variant's name, as in `shaders/shared/add_<name>.wgsl`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Exchange => "exchange",
        }
    }
}

/// The way in which steps of a sum whose order counts are written.
///
/// Example: [`ContextOptions`](crate::ContextOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumBody {
    /// As they are.
    Plain,
    /// Each result passes as an integer, so that no compiler changes the order: for DX12.
    Settled,
}

impl SumBody {
    /// The variant's name, as in `shaders/shared/steps_<name>.wgsl`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Settled => "settled",
        }
    }
}

/// The access of a shader to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<uniform>`
    Uniform,
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// The host's description of a stage: its workgroup size and its bindings in order, as the table in `gpu/stages/mod.rs` declares them.
/// `tests/shaders.rs` compares it with the WGSL.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The stage, and the name of its files.
    pub name: &'static str,
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// The bindings of group 0, by number.
    pub bindings: &'static [(Access, &'static str)],
}

/// A composed shader.
#[derive(Clone, Debug)]
pub struct ComposedShader {
    /// The stage.
    pub name: &'static str,
    /// The body that was included, or empty.
    pub variant: &'static str,
    /// The text without an `enable` line. If `subgroups` is set, browsers want `enable subgroups;` in front.
    pub wgsl: String,
    /// Whether the shader uses subgroup operations.
    pub subgroups: bool,
    /// Whether the shader adds to floats atomically. WGSL has no name for this, so only wgpu's compiler accepts it.
    pub float_atomics: bool,
    /// The sizes and numbers of the buffers that it binds.
    pub sizes: Sizes,
}

/// The files of `shaders/` by their paths below it, sorted: `build.rs` lists them.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/shaders.rs"));

fn file(path: &str) -> Option<&'static str> {
    FILES.binary_search_by(|(known, _)| (*known).cmp(path)).ok().map(|at| FILES[at].1)
}

/// The formats of `shaders/formats/`, as their files are named.
fn formats() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(path, _)| path.strip_prefix("formats/")?.strip_suffix(".wgsl"))
}

/// The folders of stages; `shared/` has their includes.
const FOLDERS: [&str; 5] = ["sort", "cached", "robe", "scaler", "grid"];

/// The path of a stage's file below `shaders/`.
fn path_of(kernel: &Kernel) -> String {
    let paths = FOLDERS.map(|folder| format!("{folder}/{}.wgsl", kernel.name));
    paths.into_iter().find(|path| file(path).is_some()).unwrap_or_else(|| kernel.name.to_owned())
}

/// The part of a shader's text that depends on a group: the sizes and numbers of the buffers that it binds, and values that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sizes {
    /// Floats of a Quad: 4 or 1.
    pub width: u32,
    /// Number of windows of the cache, or of a shared array. Each beyond the first is one more storage buffer.
    pub windows: u32,
    /// Number of pieces of a table that are bound at once. Each beyond the first is one more storage buffer.
    pub pieces: u32,
    /// Words of a record that are read and written at once: 4 or 1.
    pub item: u32,
    /// The file of `shaders/formats/` by which records are packed and unpacked.
    pub format: &'static str,
    /// The values.
    pub constants: Constants,
    /// The hash of the own rule that `update` runs; 0: a rule of the library.
    pub own_rule: u64,
}

impl Sizes {
    /// One float, one word, one window, one piece, and no constants.
    pub const ONE: Self =
        Self { width: 1, windows: 1, pieces: 1, item: 1, format: "row", constants: Constants::NONE, own_rule: 0 };

    /// The part of these sizes that `kernel` depends on; 1 for every other number, and no other constant.
    #[must_use]
    pub fn of(self, kernel: &Kernel) -> Self {
        let when = |depends: bool, number: u32| if depends { number } else { 1 };
        let records = bound(kernel, &IN_PIECES).is_some();
        let own = Self {
            width: when(moves_rows(kernel), self.width),
            windows: when(has_windows(kernel), self.windows),
            pieces: when(records, self.pieces),
            item: when(records, self.item),
            format: if records { self.format } else { Self::ONE.format },
            constants: Constants::NONE,
            own_rule: if kernel.name == "update" { self.own_rule } else { 0 },
        };
        let text = compose(kernel, Bodies::PLAIN.sizes(own));
        Self { constants: self.constants.in_stage(kernel.name, &text), ..own }
    }

    /// Number of storage buffers beyond those that a kernel declares.
    #[must_use]
    pub const fn more_buffers(self) -> u32 {
        self.windows + self.pieces - 2
    }
}

/// The bodies that a shader is composed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bodies {
    /// The body that ranks the keys of a sort.
    pub rank: RankBody,
    /// The body that adds to floats in memory.
    pub add: AddBody,
    /// The body that looks up rows.
    pub lookup: LookupBody,
    /// The body that adds where the order counts.
    pub sum: SumBody,
    /// The sizes and numbers of the bound buffers.
    pub sizes: Sizes,
}

impl Bodies {
    /// The bodies that run on any device, for a cache within one binding.
    pub const PLAIN: Self = Self {
        rank: RankBody::Portable,
        add: AddBody::Exchange,
        lookup: LookupBody::Lanes8,
        sum: SumBody::Plain,
        sizes: Sizes::ONE,
    };

    /// These bodies with other sizes.
    #[must_use]
    pub const fn sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }
}

/// The bindings that may have windows, and their element types: the cache, and the shared array in stages that read all of it.
const WINDOWED: [(&str, &str); 2] = [("cache", "Quad"), ("window", "u32")];

/// The binding that may have several pieces, and its element type (`shaders/shared/record_items*.wgsl`).
const IN_PIECES: [(&str, &str); 1] = [("records", "Item")];

/// The binding of `kernel` that is one of `names`, if any: its access, name and element type.
fn bound(kernel: &Kernel, names: &[(&str, &'static str)]) -> Option<(Access, &'static str, &'static str)> {
    let find = |&(access, name): &(Access, &'static str)| {
        names.iter().find(|(known, _)| *known == name).map(|&(_, element)| (access, name, element))
    };
    kernel.bindings.iter().find_map(find)
}

/// True if `kernel` binds the cache or a whole shared array, and so exists for each number of windows.
#[must_use]
pub fn has_windows(kernel: &Kernel) -> bool {
    bound(kernel, &WINDOWED).is_some()
}

/// True if `kernel` binds the records of a table, and so exists for each number of pieces.
#[must_use]
pub fn has_pieces(kernel: &Kernel) -> bool {
    bound(kernel, &IN_PIECES).is_some()
}

fn position(kernel: &Kernel, names: &[(&str, &'static str)]) -> Option<usize> {
    bound(kernel, names).and_then(|(_, wanted, _)| kernel.bindings.iter().position(|(_, name)| *name == wanted))
}

/// The position of the binding of `kernel` that has further windows.
#[must_use]
pub fn window_binding(kernel: &Kernel) -> Option<usize> {
    position(kernel, &WINDOWED)
}

/// The position of the binding of `kernel` that has further pieces.
#[must_use]
pub fn piece_binding(kernel: &Kernel) -> Option<usize> {
    position(kernel, &IN_PIECES)
}

/// The bindings of further windows, then of further pieces: access, name and element type.
fn further(kernel: &Kernel, sizes: Sizes) -> impl Iterator<Item = (Access, String, &'static str)> {
    let all = [(bound(kernel, &WINDOWED), sizes.windows), (bound(kernel, &IN_PIECES), sizes.pieces)];
    all.into_iter().flat_map(|(binding, number)| {
        binding
            .into_iter()
            .flat_map(move |(access, name, element)| (1..number).map(move |i| (access, format!("{name}{i}"), element)))
    })
}

/// The bindings of `kernel`: those it declares, then the further windows and the further pieces, each with the access of the first.
#[must_use]
pub fn bindings(kernel: &Kernel, sizes: Sizes) -> Vec<(Access, String)> {
    let own = kernel.bindings.iter().map(|&(access, name)| (access, name.to_owned()));
    own.chain(further(kernel, sizes).map(|(access, name, _)| (access, name))).collect()
}

/// True if `kernel` exists for several sizes. Such a kernel is built when a group needs it.
#[must_use]
pub fn has_sizes(kernel: &Kernel) -> bool {
    moves_rows(kernel) || has_windows(kernel)
}

/// True if `kernel` moves rows, and so exists for each width.
#[must_use]
pub fn moves_rows(kernel: &Kernel) -> bool {
    file(&path_of(kernel)).is_some_and(|text| text.contains("#include \"shared/quad{width}.wgsl\""))
}

fn include(path: &str, bodies: Bodies, out: &mut String) {
    let path = path
        .replace("{rank}", bodies.rank.name())
        .replace("{add}", bodies.add.name())
        .replace("{lookup}", bodies.lookup.name())
        .replace("{sum}", bodies.sum.name())
        .replace("{width}", &bodies.sizes.width.to_string())
        .replace("{item}", &bodies.sizes.item.to_string())
        .replace("{format}", bodies.sizes.format);
    let Some(text) = file(&path) else {
        // The line stays in the text, so that the shader compiler reports it; `tests/shaders.rs` compiles every stage.
        out.push_str(&format!("missing include {path}\n"));
        return;
    };
    for line in text.lines() {
        let marked = |mark| line.trim_start().strip_prefix(mark);
        if let Some(inner) = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            include(inner, bodies, out);
        } else if let Some(text) = marked("#window ") {
            for i in (1..bodies.sizes.windows).rev() {
                out.push_str(&format!("    {}\n", text.replace('$', &i.to_string())));
            }
        } else if line == "#rules" {
            rules(bodies, out);
        } else if let Some((number, text)) = marked("#piece ").and_then(|rest| rest.split_once(": ")) {
            choose_piece(number, text, 0..bodies.sizes.pieces, out);
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
}

/// The line of a text in whose place the text of an own rule comes.
pub(crate) const OWN_RULE: &str = "#own";

/// Writes the update rules that a text may be asked for, and the functions that choose one.
fn rules(bodies: Bodies, out: &mut String) {
    let Sizes { constants, own_rule, .. } = bodies.sizes;
    let kinds: Vec<_> = OptimizerKind::ALL
        .into_iter()
        .filter(|&kind| own_rule == 0 && constants.rule().is_none_or(|rule| rule == kind as u32))
        .collect();
    let function = |kind: &OptimizerKind| kind.name().replace('-', "_");
    if own_rule != 0 {
        out.push_str(&format!("{OWN_RULE}\n"));
    }
    for kind in &kinds {
        include(&format!("rules/{}.wgsl", function(kind)), bodies, out);
    }
    let mut choose = |head: &str, end: &str, arguments: &str, has: fn(&Facts) -> bool| {
        let first = arguments.split(',').next().unwrap_or_default();
        let having: Vec<_> = kinds.iter().filter(|kind| has(kind.facts())).collect();
        out.push_str(&format!("fn {head} {{\n"));
        match having[..] {
            // States that the rule does not have stay 0.
            [] if own_rule != 0 && end.is_empty() => out.push_str(
                "    var after = rule(e, n);\n    if (params.each < 1u) { after.first = e.first; }\n    \
                 if (params.each < 2u) { after.second = e.second; }\n    return after;\n",
            ),
            [] => out.push_str(&format!("    return {first};\n")),
            [only] if kinds.len() == 1 => out.push_str(&format!("    return {}{end}({arguments});\n", function(only))),
            _ => {
                out.push_str("    switch params.optimizer {\n");
                for kind in having {
                    let (number, name) = (*kind as u32, function(kind));
                    out.push_str(&format!("        case {number}u: {{ return {name}{end}({arguments}); }}\n"));
                }
                out.push_str(&format!("        default: {{ return {first}; }}\n    }}\n"));
            }
        }
        out.push_str("}\n");
    };
    choose("stepped(e: Element, n: Numbers) -> Element", "", "e, n", |_| true);
    choose("begun(e: Element, n: Numbers) -> Element", "_begun", "e, n", |facts| facts.begins);
    choose("row_stepped(before: f32, mean: f32, n: Numbers) -> f32", "_row", "before, mean, n", |facts| facts.of_row);
}

/// Writes `text` for each of `pieces`, chosen by the value of `number`: by halves, so one of 18 pieces is found in five comparisons.
fn choose_piece(number: &str, text: &str, pieces: std::ops::Range<u32>, out: &mut String) {
    if pieces.len() <= 1 {
        let digits = if pieces.start == 0 { String::new() } else { pieces.start.to_string() };
        return out.push_str(&format!("    {}\n", text.replace('$', &digits)));
    }
    let middle = pieces.start.midpoint(pieces.end);
    out.push_str(&format!("    if ({number} < {middle}u) {{\n"));
    choose_piece(number, text, pieces.start..middle, out);
    out.push_str("    } else {\n");
    choose_piece(number, text, middle..pieces.end, out);
    out.push_str("    }\n");
}

/// The text of `kernel` with the chosen bodies.
#[must_use]
pub fn compose(kernel: &Kernel, bodies: Bodies) -> String {
    let mut out = String::new();
    include(&path_of(kernel), bodies, &mut out);
    out = bodies.sizes.constants.write(&out);
    for (binding, (access, name, element)) in (kernel.bindings.len()..).zip(further(kernel, bodies.sizes)) {
        let access = if access == Access::Read { "read" } else { "read_write" };
        out.push_str(&format!("@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;\n"));
    }
    out
}

/// As [`compose`], for [`shader_module`](crate::host::trusted::shader_module).
pub(crate) fn composed(kernel: &Kernel, bodies: Bodies) -> Composed {
    Composed { name: kernel.name, wgsl: compose(kernel, bodies) }
}

/// Every stage in every variant, with one, two and three windows and pieces. More of them differ only in number.
#[must_use]
pub fn sources(kernels: &[&Kernel], sum: SumBody) -> Vec<ComposedShader> {
    let source = |kernel: &Kernel, variant, bodies: Bodies| ComposedShader {
        name: kernel.name,
        variant,
        wgsl: compose(kernel, Bodies { sum, ..bodies }),
        subgroups: bodies.rank != RankBody::Portable || bodies.lookup == LookupBody::Lanes32,
        float_atomics: bodies.add == AddBody::Native,
        sizes: bodies.sizes.of(kernel),
    };
    let sizes = |width, windows, pieces, item| Sizes { width, windows, pieces, item, ..Sizes::ONE };
    let all_sizes = [
        ("quad1", sizes(1, 1, 1, 1)),
        ("quad4", sizes(4, 1, 1, 1)),
        ("quad1 windows2", sizes(1, 2, 1, 1)),
        ("quad4 windows2", sizes(4, 2, 1, 1)),
        ("quad1 windows3", sizes(1, 3, 1, 1)),
        ("quad4 windows3", sizes(4, 3, 1, 1)),
        ("quad4 items4", sizes(4, 1, 1, 4)),
        ("quad4 pieces2", sizes(4, 1, 2, 1)),
        // No text binds more than 10 storage buffers, the most of SwiftShader.
        ("quad1 pieces3", sizes(1, 1, 3, 1)),
        ("quad4 windows2 pieces2 items4", sizes(4, 2, 2, 4)),
    ];
    let windows = [("", 1), ("windows2", 2), ("windows3", 3)].map(|(name, windows)| (name, sizes(1, windows, 1, 1)));
    let mut all = Vec::new();
    for kernel in kernels {
        let ranks = RankBody::ALL.map(|rank| source(kernel, rank.name(), Bodies { rank, ..Bodies::PLAIN }));
        if has_sizes(kernel) {
            let all_sizes: &[_] = if moves_rows(kernel) { &all_sizes } else { &windows };
            let own = all_sizes.iter().filter(|(_, sizes)| sizes.of(kernel) == *sizes);
            all.extend(own.map(|&(name, sizes)| source(kernel, name, Bodies::PLAIN.sizes(sizes))));
            for (name, precision, optimizer) in [
                ("int8 adagrad", Precision::Int8, Optimizer::adagrad(0.1)),
                ("fp16 adam", Precision::Fp16, Optimizer::adam(0.1)),
            ] {
                let constants = Constants::of_group(precision, optimizer, 64);
                let own = Sizes { constants, ..sizes(4, 1, 1, 1) }.of(kernel);
                if own.constants != Constants::NONE {
                    all.push(source(kernel, name, Bodies::PLAIN.sizes(own)));
                }
            }
            for format in formats() {
                let own = Sizes { format, ..sizes(4, 1, 1, 1) }.of(kernel);
                let usual = Sizes { format: Sizes::ONE.format, ..own };
                if compose(kernel, Bodies::PLAIN.sizes(own)) != compose(kernel, Bodies::PLAIN.sizes(usual)) {
                    all.push(source(kernel, format, Bodies::PLAIN.sizes(own)));
                }
            }
            if moves_rows(kernel) && ranks[0].wgsl != ranks[2].wgsl {
                let shuffled = [("quad4 subgroup32", RankBody::Subgroup32), ("quad4 subgroup64", RankBody::Subgroup64)];
                all.extend(shuffled.map(|(name, rank)| {
                    source(kernel, name, Bodies { rank, ..Bodies::PLAIN.sizes(sizes(4, 1, 1, 1)) })
                }));
            }
        } else if ranks[0].wgsl != ranks[1].wgsl {
            all.extend(ranks);
        } else {
            let [exchange, native] = [AddBody::Exchange, AddBody::Native]
                .map(|add| source(kernel, add.name(), Bodies { add, ..Bodies::PLAIN }));
            let lookups =
                LookupBody::ALL.map(|lookup| source(kernel, lookup.name(), Bodies { lookup, ..Bodies::PLAIN }));
            if lookups[0].wgsl != lookups[1].wgsl {
                all.extend(lookups);
            } else if exchange.wgsl == native.wgsl {
                all.push(source(kernel, "", Bodies::PLAIN));
            } else {
                all.extend([exchange, native]);
            }
        }
    }
    all
}

/// The constants that host and shaders share, by name.
#[must_use]
pub fn constants() -> Vec<(&'static str, u32)> {
    use crate::table::abi::{
        CLOCK_WORDS, COMING, DIRTY, Field, NONE, PINNED, Piece, RECENT, SINCE, Swap, TABLE_WORDS, count, feedback,
    };
    let none = PolicyFacts::default();
    vec![
        ("NONE", NONE),
        ("CLOCK_WORDS", CLOCK_WORDS as u32),
        ("TABLE_WORDS", TABLE_WORDS as u32),
        ("TAG", Field::Tag as u32),
        ("STAMP", Field::Stamp as u32),
        ("FREQ", Field::Freq as u32),
        ("FLAGS", Field::Flags as u32),
        ("DIRTY", DIRTY),
        ("PINNED", PINNED),
        ("COMING", COMING),
        ("RECENT", RECENT),
        ("SINCE", SINCE as u32),
        ("ADMITS", PolicyFacts { admits: true, ..none }.bits()),
        ("COUNTS", PolicyFacts { counts: true, ..none }.bits()),
        ("AGES", PolicyFacts { ages: true, ..none }.bits()),
        ("RECENTS", PolicyFacts { recent: true, ..none }.bits()),
        ("OWN_LEAVE", PolicyFacts { own_leave: true, ..none }.bits()),
        ("WRITE", Swap::WRITE),
        ("KEEP", Swap::KEEP),
        ("PACK", Piece::PACK),
        ("UNPACK", Piece::UNPACK),
        ("COUNT_INDICES", count::INDICES as u32),
        ("COUNT_UNIQUE", count::UNIQUE as u32),
        ("COUNT_VALID", count::VALID as u32),
        ("COUNT_MISSED", count::MISSED as u32),
        ("COUNT_SWAPS", count::SWAPS as u32),
        ("COUNT_CHUNKS", count::CHUNKS as u32),
        ("COUNT_HALVINGS", count::HALVINGS as u32),
        ("FEEDBACK_HEAD", feedback::HEAD as u32),
        ("FEEDBACK_MISSING", feedback::MISSING as u32),
        ("FEEDBACK_PRESENT", feedback::PRESENT as u32),
        ("FEEDBACK_FRAME", feedback::FRAME as u32),
        ("FEEDBACK_WANTED", feedback::WANTED as u32),
        ("FEEDBACK_LOST", feedback::LOST as u32),
        ("FEEDBACK_BEYOND", feedback::BEYOND as u32),
        ("ROBE_PRIME", robe::hash::PRIME),
        ("ROBE_R1", robe::hash::R1),
        ("ROBE_R2", robe::hash::R2),
        ("ROBE_R3", robe::hash::R3),
    ]
}
