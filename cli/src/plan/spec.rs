//! `kind:key=number,key=number`: a distribution or a table that is generated.

/// A text cut into its kind, its keys and their numbers.
pub(super) struct Spec<'a> {
    pub(super) kind: &'a str,
    numbers: Vec<(&'a str, &'a str)>,
}

impl<'a> Spec<'a> {
    /// Cuts up `text`, whose kind is one of `kinds`, each with its keys. `wanted` is the form that an error names.
    pub(super) fn parse(text: &'a str, kinds: &[(&str, &[&str])], wanted: &str) -> Result<Self, String> {
        let (kind, pairs) = text.split_once(':').ok_or(wanted)?;
        let kind = kind.trim();
        let (_, keys) = kinds.iter().find(|(name, _)| *name == kind).ok_or(wanted)?;
        let mut numbers: Vec<(&str, &str)> = Vec::new();
        for pair in pairs.split(',') {
            let (key, number) = pair.split_once('=').ok_or(wanted)?;
            let key = key.trim();
            if !keys.contains(&key) {
                return Err(format!("{wanted}, found the key {key}"));
            }
            if numbers.iter().any(|&(known, _)| known == key) {
                return Err(format!("wanted {key} once, found it twice"));
            }
            numbers.push((key, number));
        }
        Ok(Self { kind, numbers })
    }

    /// The number of `key`, as `read` reads it, if it is given.
    pub(super) fn number<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let found = self.numbers.iter().find(|&&(known, _)| known == key);
        found.map(|&(_, number)| read(number).map_err(|reason| format!("{key}: {reason}"))).transpose()
    }

    /// The number of `key`, which must be given.
    pub(super) fn required<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        self.number(key, read)?.ok_or_else(|| format!("wanted {key}=X, found none"))
    }
}
