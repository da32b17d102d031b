//! The texts of kernels that `scripts/isa` compiles with the compilers of GPU drivers. Each row of `benches/results/isa.csv` has the hash of its text, so
//! that a test can name the rows that are older than the kernels.
//!
//! `tests/isa/texts.csv` has each kernel with each width, item, number of windows and of pieces that it depends on, any two of these together in some row,
//! and texts with a group's constants. A text for more windows or pieces has all that one for fewer has. A kernel without a row there has one text, for
//! one window and one piece.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
};

use hotrow::{
    GroupConfig,
    internals::{
        Layout, kernels,
        shader::{AddBody, Bodies, Constants, Kernel, LookupBody, RankBody, Sizes, compose},
    },
};

use crate::seed::hash;

type Failed = Box<dyn Error>;

const TEXTS: &str = include_str!("../../isa/texts.csv");
/// The most texts of a family.
const MOST: usize = 60;

/// A text of a kernel, its name with `_` for blanks, and its hash.
#[derive(Debug)]
pub struct Text {
    pub kernel: String,
    pub name: String,
    pub wgsl: String,
    pub hash: String,
}

impl Text {
    #[must_use]
    pub fn new(kernel: &str, name: &str, wgsl: String) -> Self {
        Self { kernel: kernel.to_owned(), name: name.replace(' ', "_"), hash: format!("{:016x}", hash(&wgsl)), wgsl }
    }
}

/// The bodies that `Caps` chooses on a family of cards.
fn bodies(family: &str) -> Result<Bodies, Failed> {
    let (rank, add, lookup) = match family {
        "navi21" | "vega20" => (RankBody::Subgroup64, AddBody::Exchange, LookupBody::Lanes8),
        "gfx1201" => (RankBody::Subgroup64, AddBody::Native, LookupBody::Lanes8),
        "ampere" => (RankBody::Subgroup32, AddBody::Native, LookupBody::Lanes32),
        _ => return Err(format!("wanted navi21, vega20, gfx1201 or ampere, found {family}").into()),
    };
    Ok(Bodies { rank, add, lookup, sizes: Sizes::ONE, ..Bodies::PLAIN })
}

/// The constants of a group, of words such as `int8 adagrad 64`: of its plain calls, or with `any` of all its calls. Without words, none.
fn constants(words: &str) -> Result<Constants, Failed> {
    let (precision, optimizer, dim, any) = match words.split_whitespace().collect::<Vec<_>>()[..] {
        [] => return Ok(Constants::NONE),
        [precision, optimizer, dim] => (precision, optimizer, dim, false),
        [precision, optimizer, dim, "any"] => (precision, optimizer, dim, true),
        _ => return Err(format!("texts.csv: wanted precision, optimiser, dim and perhaps any, found {words}").into()),
    };
    let mut config = GroupConfig::new(&[1000], dim.parse()?).with_precision(precision.parse()?);
    config.optimizer.kind = optimizer.parse()?;
    let params = hotrow::internals::params(&config, &Layout::new(&config, u64::MAX)?, 0, 0);
    Ok(Constants::texts(&params)[usize::from(any)])
}

/// The texts of a family.
///
/// # Errors
/// An unknown family, or a row of `texts.csv` that is malformed.
pub fn texts(family: &str) -> Result<Vec<Text>, Failed> {
    let bodies = bodies(family)?;
    let composed =
        |kernel: &Kernel, sizes: Sizes, name: &str| Text::new(kernel.name, name, compose(kernel, bodies.sizes(sizes)));
    let (mut all, mut named) = (Vec::new(), BTreeSet::new());
    for row in TEXTS.lines().skip(1) {
        let [name, text, width, item, windows, pieces, words] = row.split(',').collect::<Vec<_>>()[..] else {
            return Err(format!("texts.csv: wanted 7 columns, found {row}").into());
        };
        let kernel = kernels()
            .iter()
            .find(|kernel| kernel.name == name)
            .ok_or(format!("texts.csv: no kernel {name}: mend the row"))?;
        let [width, windows, pieces, item] = [width.parse()?, windows.parse()?, pieces.parse()?, item.parse()?];
        let sizes = Sizes { width, windows, pieces, item, constants: constants(words)?, ..Sizes::ONE };
        all.push(composed(kernel, sizes.of(kernel), text));
        named.insert(name);
    }
    for kernel in kernels().iter().filter(|kernel| !named.contains(kernel.name)) {
        all.push(composed(kernel, Sizes::ONE, "-"));
    }
    if all.len() > MOST {
        return Err(
            format!("wanted at most {MOST} texts, found {}: take rows from tests/isa/texts.csv", all.len()).into()
        );
    }
    Ok(all)
}

/// The rows of `isa.csv` (columns: compiler, family, kernel, text, mode, .., hash) that are missing, or made of another text than the kernel's of today.
///
/// # Errors
/// As [`texts`]; a row without its columns.
pub fn stale(csv: &str, families: &[&str]) -> Result<Vec<String>, Failed> {
    let mut rows = BTreeMap::new();
    for row in csv.lines().skip(1) {
        let [_, family, kernel, text, mode, .., hash] = row.split(',').collect::<Vec<_>>()[..] else {
            return Err(format!("isa.csv: wanted compiler, family, kernel, text, mode, .., hash; found {row}").into());
        };
        rows.insert(format!("{family} {kernel} {text} {mode}"), hash);
    }
    let mut found = Vec::new();
    for family in families {
        for Text { kernel, name, hash, .. } in texts(family)? {
            for mode in ["checked", "trusted"] {
                let key = format!("{family} {kernel} {} {mode}", name.replace('_', " "));
                match rows.remove(&key) {
                    Some(of) if of == hash => {}
                    Some(_) => found.push(format!("{key}: of an older text")),
                    None => found.push(format!("{key}: no row")),
                }
            }
        }
    }
    found.extend(rows.into_keys().map(|key| format!("{key}: no such text")));
    Ok(found)
}
