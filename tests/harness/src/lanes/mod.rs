//! hotrow on the lane executor (`wgsl-lanes`): what the executor must know of the kernels, whole runs that meet all of them, and what is expected.

mod files;
pub mod known;
pub mod runs;

use std::collections::HashSet;

pub use files::files;
use hotrow::internals::{
    self, AddBody, LookupBody, RankBody,
    shader::{self, Bodies, Sizes},
};
use wgsl_lanes::{Config, Files, Known, Ordered, Project};

/// A device of the executor that knows hotrow's kernels.
pub fn config() -> Config {
    // Three windows of a cache, or three pieces at once.
    Config { project: &Hotrow, storage_buffers: 10, ..Config::default() }
}

#[derive(Debug)]
struct Hotrow;

impl Project for Hotrow {
    fn kernel<'a>(&self, label: &'a str) -> &'a str {
        label.trim_start_matches("hotrow.")
    }

    /// True for a text that the crate composes itself.
    fn own(&self, kernel: &str, text: &str) -> bool {
        let Some(kernel) = internals::kernels().iter().find(|known| known.name == kernel) else { return false };
        // One line declares each further window, one each further piece.
        let number = |name: &str| {
            let declares = |line: &&str| {
                let after = line.split_once(&format!("> {name}")).map(|(_, rest)| rest);
                after.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            };
            1 + text.lines().filter(declares).count() as u32
        };
        let (windows, pieces) = (number("cache").max(number("window")), number("records"));
        let all_sizes: HashSet<Sizes> = [(1, 1), (4, 1), (4, 4)]
            .map(|(width, item)| Sizes { width, windows, pieces, item, ..Sizes::ONE }.of(kernel))
            .into_iter()
            .collect();
        let mut bodies = Vec::new();
        for rank in RankBody::ALL {
            for lookup in LookupBody::ALL {
                for add in [AddBody::Exchange, AddBody::Native] {
                    bodies.extend(all_sizes.iter().map(|&sizes| Bodies { rank, add, lookup, sizes, ..Bodies::PLAIN }));
                }
            }
        }
        bodies.into_iter().any(|bodies| shader::compose(kernel, bodies) == text)
    }

    fn files(&self) -> &Files {
        files()
    }

    fn known(&self) -> &[Known] {
        known::KNOWN
    }

    fn ordered(&self) -> &[Ordered] {
        known::ORDERED
    }
}
