//! `kind:key=number,key=number`: a distribution or a table that is generated.

/// A kind of distribution or table: its name, its keys, and an example.
pub(super) type Kind = (&'static str, &'static [&'static str], &'static str);

/// A text cut into its kind, its keys and their numbers.
pub(super) struct Spec<'a> {
    pub(super) kind: &'a str,
    example: &'static str,
    numbers: Vec<(&'a str, &'a str)>,
}

impl<'a> Spec<'a> {
    /// Cuts `text`, whose kind must be one of `kinds`. `wanted` is the form that an error names.
    pub(super) fn parse(text: &'a str, kinds: &[Kind], wanted: &str) -> Result<Self, String> {
        let (kind, pairs) = text.split_once(':').ok_or(wanted)?;
        let kind = kind.trim();
        let &(_, keys, example) = kinds.iter().find(|(name, ..)| *name == kind).ok_or(wanted)?;
        let mut numbers: Vec<(&str, &str)> = Vec::new();
        for pair in pairs.split(',') {
            let (key, number) =
                pair.split_once('=').ok_or_else(|| format!("{wanted}, found {pair:?}; write it as {example}"))?;
            let key = key.trim();
            if !keys.contains(&key) {
                return Err(format!("{wanted}, found the key {key}; write it as {example}"));
            }
            if numbers.iter().any(|&(known, _)| known == key) {
                return Err(format!("wanted {key} once, found it twice; write it as {example}"));
            }
            numbers.push((key, number));
        }
        Ok(Self { kind, example, numbers })
    }

    /// The number of `key` as `read` reads it, if the key is given.
    pub(super) fn number<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let found = self.numbers.iter().find(|&&(known, _)| known == key);
        let read = |&(_, number): &(&str, &str)| {
            read(number).map_err(|reason| format!("{key}: {reason}, found {number}; write it as {}", self.example))
        };
        found.map(read).transpose()
    }

    /// The number of `key`, which must be given.
    pub(super) fn required<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        self.number(key, read)?.ok_or_else(|| format!("wanted {key}=X, found none; write it as {}", self.example))
    }
}
