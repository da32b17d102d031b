//! Text for shaders of other programs: functions that read rows, every name with the caller's prefix.
//!
//! The functions stand in `shaders/shared/reader.wgsl`, which includes the files that the crate's own kernels are made of. Whatever the
//! functions do not use is left out.

use std::collections::BTreeSet;

use super::{Access, Bodies, Sizes, formats, include};
use crate::{
    grid,
    table::abi::{Level, feedback},
};

/// The functions that a caller's shader may call, without their prefix; `want` only with feedback, `grid` only with a grid.
const FUNCTIONS: [&str; 7] = ["find", "at", "row4", "value", "contains", "want", "grid"];

/// What is bound of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderKind {
    /// Of a group of rows: the cache (tags and slots), the records of the table, or both.
    Rows {
        /// The cache.
        cache: bool,
        /// Whether each table has a share of the cache.
        shares: bool,
        /// The records.
        table: bool,
    },
    /// Of a shared array: its weights.
    Shared {
        /// Whether each weight is a word of its own.
        plain: bool,
    },
}

/// The list of wanted rows that a shader fills, and the filter that keeps a row from being listed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedList {
    /// Most rows of a list, of those in the cache or of the others.
    pub rows: u32,
    /// Bits of the filter: one for each row of the group or, hashed, a power of two.
    pub bits: u32,
    /// Whether a row's bit is given by a hash that changes from frame to frame.
    pub hashed: bool,
}

/// The choices that decide on a reader's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReaderText<'p> {
    /// The beginning of every name.
    pub prefix: &'p str,
    /// The bind group.
    pub group: u32,
    /// The sizes and numbers of the buffers that are bound.
    pub sizes: Sizes,
    /// What is bound.
    pub kind: ReaderKind,
    /// The list of wanted rows, if the shader fills one.
    pub feedback: Option<WantedList>,
    /// The hash grid whose rows are read, if the shader asks for the features of points; a legal one.
    pub grid: Option<&'p grid::Config>,
}

impl WantedList {
    /// Words of the head, the two lists and the filter.
    #[must_use]
    pub const fn words(&self) -> u64 {
        self.filter() + self.bits.div_ceil(32) as u64
    }

    /// First word of the filter.
    #[must_use]
    pub const fn filter(&self) -> u64 {
        feedback::HEAD as u64 + 2 * self.rows as u64
    }
}

/// A binding: its access, the name of its kind, its number among these, and its type.
struct Declared {
    access: Access,
    name: &'static str,
    nth: u32,
    ty: &'static str,
}

impl Declared {
    fn name(&self) -> String {
        if self.nth == 0 { self.name.to_owned() } else { format!("{}{}", self.name, self.nth) }
    }
}

impl ReaderText<'_> {
    /// The buffers that are bound, in the order of their numbers, by access and name.
    #[must_use]
    pub fn bindings(&self) -> Vec<(Access, String)> {
        self.declared().iter().map(|one| (one.access, one.name())).collect()
    }

    /// The buffers that are bound: the kind of each, and its number among these.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = (Access, &'static str, u32)> {
        self.declared().into_iter().map(|one| (one.access, one.name, one.nth))
    }

    fn declared(&self) -> Vec<Declared> {
        let one = |access, name, ty| Declared { access, name, nth: 0, ty };
        let several = |number, name, ty| (0..number).map(move |nth| Declared { access: Access::Read, name, nth, ty });
        let mut all = vec![one(Access::Uniform, "params", "Params")];
        match self.kind {
            ReaderKind::Rows { cache, shares, table } => {
                if table {
                    all.push(one(Access::Uniform, "piece", "Piece"));
                }
                if cache && shares {
                    all.push(one(Access::Read, "shares", "array<Share>"));
                }
                if cache {
                    all.push(one(Access::Read, "ways", "array<vec4<u32>>"));
                    all.extend(several(self.sizes.windows, "cache", "array<Quad>"));
                }
                if table {
                    all.extend(several(self.sizes.pieces, "records", "array<Item>"));
                }
            }
            ReaderKind::Shared { .. } => {
                all.push(one(Access::Uniform, "robe", "Robe"));
                all.extend(several(self.sizes.windows, "window", "array<u32>"));
            }
        }
        if self.feedback.is_some() {
            all.push(one(Access::ReadWrite, "feedback", "array<atomic<u32>>"));
        }
        all
    }

    /// The text: one string without directives.
    #[must_use]
    pub fn compose(&self) -> String {
        let mut text = String::new();
        if let Some(list) = self.feedback {
            text.push_str(&format!("const WANTED_ROWS: u32 = {}u;\n", list.rows));
            text.push_str(&format!("const WANTED_BITS: u32 = {}u;\n", list.bits));
        }
        let file = match self.kind {
            ReaderKind::Rows { .. } => "shared/reader.wgsl",
            ReaderKind::Shared { .. } => "shared/robe_reader.wgsl",
        };
        include(file, Bodies::PLAIN.sizes(self.sizes), &mut text);
        if let Some(grid) = self.grid {
            include("shared/grid_reader.wgsl", Bodies::PLAIN.sizes(self.sizes), &mut text);
            text.push_str(&grid_function(grid));
        }
        let text = self.marked(&text);
        let items = Items::of(&text);
        let mut out = String::new();
        let declared = self.declared();
        for (binding, one) in declared.iter().enumerate() {
            let (group, prefix, name) = (self.group, self.prefix, one.name());
            let space = match one.access {
                Access::Uniform => "uniform",
                Access::Read => "storage, read",
                Access::ReadWrite => "storage, read_write",
            };
            let ty = items.renamed(one.ty, prefix);
            out.push_str(&format!("@group({group}) @binding({binding}) var<{space}> {prefix}_{name}: {ty};\n"));
        }
        let bound: BTreeSet<String> = declared.iter().map(Declared::name).collect();
        let types = declared.iter().flat_map(|one| words(one.ty));
        items.write(FUNCTIONS.into_iter().chain(types), &bound, self.prefix, &mut out);
        out
    }

    /// `text` without the lines that are marked for other choices.
    fn marked(&self, text: &str) -> String {
        let (cache, shares, table) = match self.kind {
            ReaderKind::Rows { cache, shares, table } => (cache, cache && shares, table),
            ReaderKind::Shared { .. } => (false, false, false),
        };
        let plain = self.kind == ReaderKind::Shared { plain: true };
        let hashed = self.feedback.is_some_and(|list| list.hashed);
        let quad = format!("#quad{} ", self.sizes.width);
        let kept = [
            (cache, "#cache "),
            (!cache, "#uncached "),
            (cache && shares, "#shares "),
            (cache && !shares, "#common "),
            (table, "#table "),
            (!table, "#staged "),
            (plain, "#plain "),
            (!plain, "#packed "),
            (hashed, "#hashed "),
            (!hashed, "#exact "),
            (self.feedback.is_some(), "#feedback "),
            (true, quad.as_str()),
        ];
        let mut out = String::new();
        for line in text.lines() {
            // A line may have several marks.
            let mut rest = line;
            while let Some(inner) =
                kept.iter().find_map(|(keep, mark)| rest.trim_start().strip_prefix(mark).filter(|_| *keep))
            {
                rest = inner;
            }
            if !rest.trim_start().starts_with('#') {
                out.push_str(rest);
                out.push('\n');
            }
        }
        out
    }
}

/// The function that reads the features of a point, `[levels, features]`, and the constants of a grid.
fn grid_function(grid: &grid::Config) -> String {
    let (dims, features) = (grid.dims, grid.features);
    let point = if dims == 2 { "vec3<f32>(x, 0.0)" } else { "x" };
    let wrap = u32::from(grid.outside == grid::Outside::Wrap);
    let array = format!("array<f32, {}>", grid.levels * features);
    let mut text = format!("const GRID_DIMS: u32 = {dims}u;\nconst GRID_WRAP: u32 = {wrap}u;\n");
    text.push_str(&format!("fn grid(x: vec{dims}<f32>) -> {array} {{\nvar features: {array};\nvar four: vec4<f32>;\n"));
    let mut base = 0;
    for (l, level) in (0..).zip(grid.levels_of()) {
        let Level { scale, side, rows, hashed } = level;
        let scale = format!("bitcast<f32>({}u)", scale.to_bits());
        for quad in 0..features.div_ceil(4) {
            let call = format!("Level({scale}, {side}u, {rows}u, {hashed}u), {base}u, {quad}u");
            text.push_str(&format!("four = on_level({point}, {call});\n"));
            for k in 0..features.min(4) {
                text.push_str(&format!("features[{}] = four[{k}];\n", l * features + 4 * quad + k));
            }
        }
        base += rows;
    }
    text + "return features;\n}\n"
}

/// A declaration at the top level of a text, without comments.
struct Item<'t> {
    name: &'t str,
    pieces: Vec<&'t str>,
    is_struct: bool,
}

/// The declarations of a text, the first of each name.
struct Items<'t>(Vec<Item<'t>>);

impl<'t> Items<'t> {
    fn of(text: &'t str) -> Self {
        let mut items: Vec<Item<'t>> = Vec::new();
        let (mut pieces, mut depth): (Vec<&'t str>, u32) = (Vec::new(), 0);
        for piece in cut_pieces(text) {
            if pieces.is_empty() && piece.trim().is_empty() {
                continue;
            }
            pieces.push(piece);
            match piece {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(piece, ";" | "}") {
                let item = Item::of(std::mem::take(&mut pieces));
                if items.iter().all(|other| other.name != item.name) {
                    items.push(item);
                }
            }
        }
        Self(items)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|item| item.name == name)
    }

    /// `text` with the prefix before the names of items.
    fn renamed(&self, text: &str, prefix: &str) -> String {
        let mut out = String::new();
        for piece in cut_pieces(text) {
            if self.has(piece) {
                out.push_str(prefix);
                out.push('_');
            }
            out.push_str(piece);
        }
        out
    }

    /// Writes the items that `roots` use, and these items use, with the prefix before their names and before the names of `bound`.
    fn write<'n>(
        &self,
        roots: impl Iterator<Item = &'n str>,
        bound: &BTreeSet<String>,
        prefix: &str,
        out: &mut String,
    ) {
        let mut used: Vec<bool> = vec![false; self.0.len()];
        let mut next: Vec<usize> = Vec::new();
        let place = |name: &str| self.0.iter().position(|item| item.name == name);
        next.extend(roots.filter_map(place));
        while let Some(at) = next.pop() {
            if !std::mem::replace(&mut used[at], true) {
                next.extend(self.0[at].names().filter_map(|(_, name)| place(name)));
            }
        }
        for (item, _) in self.0.iter().zip(used).filter(|(_, used)| *used) {
            let named: BTreeSet<usize> =
                item.names().filter(|(_, name)| self.has(name) || bound.contains(*name)).map(|(at, _)| at).collect();
            for (at, piece) in item.pieces.iter().enumerate() {
                if named.contains(&at) {
                    out.push_str(prefix);
                    out.push('_');
                }
                out.push_str(piece);
            }
            out.push('\n');
        }
    }
}

impl<'t> Item<'t> {
    fn of(pieces: Vec<&'t str>) -> Self {
        let mut words = pieces.iter().copied().filter(|piece| is_word(piece));
        let kind = words.next().unwrap_or_default();
        Self { name: words.next().unwrap_or_default(), pieces, is_struct: kind == "struct" }
    }

    /// The words that may name an item, with their positions: not members, which follow a point or stand before a colon in a struct.
    fn names(&self) -> impl Iterator<Item = (usize, &'t str)> {
        self.pieces.iter().enumerate().filter_map(|(at, &piece)| {
            let member = at > 0 && self.pieces[at - 1] == ".";
            let field = self.is_struct && self.pieces.get(at + 1) == Some(&":");
            (is_word(piece) && !member && !field).then_some((at, piece))
        })
    }
}

fn is_word(piece: &str) -> bool {
    piece.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
}

/// The words of a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    cut_pieces(text).filter(|piece| is_word(piece))
}

/// Cuts a text into words, numbers, white space and single other characters; leaves comments out.
fn cut_pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
        }
        let first = rest.chars().next()?;
        let part = |c: char| match first {
            _ if first == '_' || first.is_ascii_alphabetic() => c == '_' || c.is_ascii_alphanumeric(),
            _ if first.is_ascii_digit() => c == '.' || c.is_ascii_alphanumeric(),
            _ if first.is_whitespace() => c.is_whitespace(),
            _ => false,
        };
        let length = rest.find(|c: char| !part(c)).map_or(rest.len(), |end| end.max(first.len_utf8()));
        let (piece, after) = rest.split_at(length);
        rest = after;
        Some(piece)
    })
}

/// Readers of every kind in modules of their own, for checks: the kind, the text with an entry point `main`, and its parts.
#[must_use]
pub fn modules() -> Vec<(String, String, ReaderText<'static>)> {
    let rows = |cache, table| ReaderKind::Rows { cache, shares: false, table };
    let mut texts = Vec::new();
    let mut add =
        |kind, sizes, feedback| texts.push(ReaderText { prefix: "emb", group: 0, sizes, kind, feedback, grid: None });
    for (width, item) in [(1, 1), (4, 1), (4, 4)] {
        for (windows, pieces) in [(1, 1), (3, 1), (1, 3), (2, 2)] {
            let sizes = Sizes { width, windows, pieces, item, ..Sizes::ONE };
            add(
                rows(true, true),
                sizes,
                (pieces == 3).then_some(WantedList { rows: 100, bits: 1 << 10, hashed: false }),
            );
            if windows == 1 {
                add(rows(false, true), sizes, None);
            }
            if pieces == 1 && item == 1 {
                for hashed in [false, true] {
                    add(rows(true, false), sizes, Some(WantedList { rows: 100, bits: 1 << 10, hashed }));
                }
            }
        }
    }
    for format in formats() {
        add(rows(true, true), Sizes { width: 4, format, ..Sizes::ONE }, None);
    }
    for table in [true, false] {
        add(ReaderKind::Rows { cache: true, shares: true, table }, Sizes::ONE, None);
    }
    for plain in [true, false] {
        for windows in [1, 3] {
            add(ReaderKind::Shared { plain }, Sizes { windows, ..Sizes::ONE }, None);
        }
    }
    static GRIDS: [grid::Config; 2] = [grid::Config::new(2), grid::Config::new(3)];
    for (sizes, kind) in [(Sizes::ONE, rows(true, true)), (Sizes::ONE, ReaderKind::Shared { plain: true })] {
        let with = |grid| ReaderText { prefix: "emb", group: 0, sizes, kind, feedback: None, grid: Some(grid) };
        texts.extend(GRIDS.iter().map(with));
    }
    let module = |text: ReaderText<'static>| {
        let wants = if text.feedback.is_some() { "emb_want(id.x);" } else { "" };
        let features = match text.grid {
            Some(grid) => format!("let x = emb_grid(vec{}<f32>(0.5)); sink[id.x].x += x[id.y % 32u];", grid.dims),
            None => String::new(),
        };
        (format!("{text:?}"), text.compose() + &ENTRY.replace("WANT", wants).replace("GRID", &features), text)
    };
    texts.into_iter().map(module).collect()
}

/// An entry point that calls every function.
const ENTRY: &str = "
@group(1) @binding(0) var<storage, read_write> sink: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    WANT
    if (emb_contains(id.x)) { sink[id.x] = emb_at(emb_find(id.x), 1u) + emb_row4(id.x, 0u) + emb_value(id.x, 2u); }
    GRID
}
";
