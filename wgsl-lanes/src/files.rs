//! The files of which texts are composed.

use std::collections::BTreeMap;

/// Files of which texts are composed, so that a line of a text can be told by its file and line.
#[derive(Debug)]
pub struct Files {
    pub(crate) files: Vec<(String, Vec<String>)>,
    /// Where a line stands: the file and the line in it, from 0.
    places: BTreeMap<String, Vec<(usize, usize)>>,
}

impl Files {
    pub(crate) const NONE: Self = Self { files: Vec::new(), places: BTreeMap::new() };

    /// Files by their names and texts. `becomes` gives the lines of a text that a line of a file may become beside itself, where texts are composed with
    /// more than copies.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (String, String)>, becomes: impl Fn(&str) -> Vec<String>) -> Self {
        let mut all = Self::NONE;
        for (name, text) in files {
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for (at, line) in lines.iter().enumerate() {
                for spelt in std::iter::once(line.clone()).chain(becomes(line)) {
                    all.places.entry(spelt).or_default().push((all.files.len(), at));
                }
            }
            all.files.push((name, lines));
        }
        all
    }

    /// `file:line` of a line of a text, from 1: the place whose neighbours agree with those in the text for the longest. `line N` where no file has it;
    /// nothing for line 0.
    #[must_use]
    pub fn place(&self, text: &str, line: u32) -> String {
        if line == 0 {
            return String::new();
        }
        let lines: Vec<&str> = text.lines().collect();
        let at = line as usize - 1;
        let agreeing = |&(file, line): &(usize, usize)| {
            let there = &self.files[file].1;
            let before = (1..=line.min(at)).take_while(|&i| there[line - i] == lines[at - i]).count();
            let behind = (1..(there.len() - line).min(lines.len() - at))
                .take_while(|&i| there[line + i] == lines[at + i])
                .count();
            before + behind
        };
        let places = lines.get(at).and_then(|line| self.places.get(*line));
        match places.and_then(|places| places.iter().max_by_key(|place| agreeing(place))) {
            Some(&(file, line)) => format!("{}:{}", self.files[file].0, line + 1),
            None => format!("line {line}"),
        }
    }
}
