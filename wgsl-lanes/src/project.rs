//! What a project says of its own kernels: their names, the files of their texts, and what is expected of them, with reasons.

use std::{collections::BTreeMap, fmt::Debug};

use crate::{
    findings::{Fault, Finding},
    mutants::Mutant,
};

/// What a project says of its own kernels. Each method has an answer for a project of which nothing is known.
pub trait Project: Debug + Send + Sync {
    /// The name of the kernel whose pipeline has this label.
    fn kernel<'a>(&self, label: &'a str) -> &'a str {
        label
    }

    /// Whether the project itself makes this text of a kernel. Findings in another, which a test has spoiled, stand in the report and fail nothing.
    fn own(&self, _kernel: &str, _text: &str) -> bool {
        true
    }

    /// The files of which texts are composed.
    fn files(&self) -> &Files {
        static NONE: Files = Files::NONE;
        &NONE
    }

    /// The findings that are expected, which fail nothing.
    fn known(&self) -> &[Known] {
        &[]
    }

    /// The bindings whose words may depend on the order of atomic operations.
    fn ordered(&self) -> &[Ordered] {
        &[]
    }
}

/// A project of which nothing is known.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Project for Nothing {}

/// An expected finding.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its kind.
    pub fault: Fault,
    /// The kernel's name.
    pub kernel: &'static str,
    /// A part of the line at which it is found, which stays when other lines move.
    pub text: &'static str,
    /// Why it is expected.
    pub reason: &'static str,
}

impl Known {
    /// True if this entry is about a finding.
    #[must_use]
    pub fn is(&self, finding: &Finding) -> bool {
        self.fault == finding.fault && self.kernel == finding.kernel && finding.detail.contains(self.text)
    }
}

/// A binding whose words may depend on the order of atomic operations.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The variable's name.
    pub binding: &'static str,
    /// Why any order is right.
    pub reason: &'static str,
}

/// A mutant that no run tells from its kernel: a barrier that nothing needs, say.
#[derive(Clone, Copy, Debug)]
pub struct Redundant {
    /// The kernel's name, or nothing for any kernel.
    pub kernel: &'static str,
    /// The file with the mutant's line.
    pub file: &'static str,
    /// A part of that line, or of the line before or behind it.
    pub near: &'static str,
    /// Why no run tells it.
    pub proof: &'static str,
}

impl Redundant {
    /// True if this entry is about a mutant, whose place is in one of these files.
    #[must_use]
    pub fn is(&self, mutant: &Mutant, files: &Files) -> bool {
        let place = mutant.place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse::<usize>().ok()?)));
        let Some((file, line)) = place else { return false };
        let Some((_, lines)) = files.files.iter().find(|(name, _)| name == file) else { return false };
        let near = &lines[line.saturating_sub(2)..lines.len().min(line + 1)];
        (self.kernel.is_empty() || self.kernel == mutant.kernel)
            && self.file == file
            && near.iter().any(|line| line.contains(self.near))
    }
}

/// Files of which texts are composed, so that a line of a text can be told by its file and line.
#[derive(Debug)]
pub struct Files {
    files: Vec<(String, Vec<String>)>,
    /// Where a line stands: the file and the line in it, from 0.
    places: BTreeMap<String, Vec<(usize, usize)>>,
}

impl Files {
    const NONE: Self = Self { files: Vec::new(), places: BTreeMap::new() };

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
