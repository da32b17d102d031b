//! `kind:key=number,key=number`: a distribution, a table or a trace that is generated.

use std::fmt::Display;
use std::str::FromStr;

/// Reads a value that `legal` accepts. `wanted` is what an error says was wanted.
pub fn read<T: FromStr>(text: &str, wanted: impl Display, legal: impl Fn(&T) -> bool) -> Result<T, String> {
    text.trim().parse().ok().filter(legal).ok_or_else(|| format!("wanted {wanted}"))
}

/// A kind of what is generated: its name, its keys, and an example.
pub type Kind = (&'static str, &'static [&'static str], &'static str);

/// A text cut into its kind, its keys and their numbers.
#[derive(Debug)]
pub struct Spec<'a> {
    pub kind: &'a str,
    example: &'static str,
    numbers: Vec<(&'a str, &'a str)>,
}

impl<'a> Spec<'a> {
    /// Cuts `text`, whose kind must be one of `kinds`. `wanted` is the form that an error names.
    pub fn parse(text: &'a str, kinds: &[Kind], wanted: &str) -> Result<Self, String> {
        let (kind, pairs) = text.split_once(':').unwrap_or((text, ""));
        let kind = kind.trim();
        let &(_, keys, example) = kinds.iter().find(|(name, ..)| *name == kind).ok_or(wanted)?;
        let mut numbers: Vec<(&str, &str)> = Vec::new();
        for pair in pairs.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, number) = pair.split_once('=').unwrap_or((pair, "nothing"));
            let key = key.trim();
            if !keys.contains(&key) {
                return Err(format!("wanted the keys {}, found {key}; write it as {example}", keys.join(", ")));
            }
            if numbers.iter().any(|&(known, _)| known == key) {
                return Err(format!("wanted {key} once, found it twice; write it as {example}"));
            }
            numbers.push((key, number.trim()));
        }
        Ok(Self { kind, example, numbers })
    }

    /// The number of `key` as `read` reads it, if the key is given.
    pub fn number<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let found = self.numbers.iter().find(|&&(known, _)| known == key);
        let read = |&(_, number): &(&str, &str)| {
            read(number).map_err(|reason| format!("{key}: {reason}, found {number}; write it as {}", self.example))
        };
        found.map(read).transpose()
    }

    /// The number of `key`, which must be given.
    pub fn required<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        self.number(key, read)?.ok_or_else(|| format!("wanted {key}=X, found none; write it as {}", self.example))
    }
}
