//! Where an experiment's file is wrong: errors with their line and key, in the words of the other refusals.

use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer, Error};

/// A file's keys with their places.
pub(crate) struct Lines<'t> {
    text: &'t str,
    root: DeTable<'t>,
}

impl<'t> Lines<'t> {
    /// # Errors
    /// The text is no TOML, or has no part.
    pub(crate) fn parse(text: &'t str) -> Result<Self, String> {
        let root = DeTable::parse(text).map_err(|error| {
            let line = line(text, error.span().map_or(0, |span| span.start));
            format!("{line}: wanted TOML, found: {}; correct the line", error.message())
        })?;
        let file = Self { text, root: root.into_inner() };
        if matches!(file.root.get("part").map(Spanned::get_ref), Some(DeValue::Table(parts)) if !parts.is_empty()) {
            return Ok(file);
        }
        Err("1: part: wanted at least one table [part.NAME], found none; name one".to_owned())
    }

    pub(crate) fn parts(&self) -> Vec<String> {
        let DeValue::Table(parts) = self.root["part"].get_ref() else { return Vec::new() };
        parts.keys().map(|name| name.get_ref().to_string()).collect()
    }

    /// A part with the file's keys where it has none of its own.
    pub(crate) fn part<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        let mut whole = self.root.clone();
        let span = self.root["part"].span();
        whole.remove("part");
        match self.part_of(name) {
            DeValue::Table(own) => whole.extend(own.clone()),
            _ => return Err(self.say(name, None, "part: wanted tables [part.NAME], found another value")),
        }
        T::deserialize(Deserializer::from(Spanned::new(span, whole))).map_err(|error| self.of_span(&error))
    }

    fn part_of(&self, name: &str) -> &DeValue<'t> {
        self.root["part"].get_ref().get(name).map_or(self.root["part"].get_ref(), Spanned::get_ref)
    }

    /// The error of a place in the file.
    fn of_span(&self, error: &Error) -> String {
        let at = error.span().map_or(0, |span| span.start);
        let (mut best, mut path) = (Vec::new(), Vec::new());
        let pairs = self.root.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value));
        pairs.for_each(|(name, span, value)| deepest((name, span), value, at, &mut path, &mut best));
        format!("{}: {}: {}", line(self.text, at), best.join("."), in_words(error.message()))
    }

    /// An error of a part, and if known of an entry of its settings, whose text begins with a key or names it behind its end.
    pub(crate) fn say(&self, part: &str, entry: Option<usize>, error: &str) -> String {
        let (text, inner) = error.trim_end().split_once("\nin `").unwrap_or((error.trim_end(), ""));
        let (head, body) = match text.find(": wanted ") {
            Some(at) => (&text[..at], &text[at + 2..]),
            None => text.rsplit_once(": ").filter(|_| text.starts_with("table ")).unwrap_or(("", text)),
        };
        let heads = head.split(": ").filter_map(|head| head.rsplit(' ').next());
        let names: Vec<&str> =
            heads.chain(inner.trim_end_matches('`').split('.')).filter(|name| !name.is_empty()).collect();
        let own = self.part_of(part);
        let settings = match own.get("setting") {
            Some(settings) => Some((vec!["part", part, "setting"], settings)),
            None => self.root.get("setting").map(|settings| (vec!["setting"], settings)),
        };
        let of_entry =
            settings.zip(entry).and_then(|((path, list), entry)| Some((path, list.get_ref().get(entry)?.get_ref())));
        let roots = of_entry.into_iter().chain([(vec!["part", part], own)]);
        let shared = self.root.iter().filter(|(key, _)| key.get_ref() != "part");
        let shared = shared.map(|(key, value)| (vec![key.get_ref().as_ref()], value.get_ref()));
        let found = roots.chain(shared).find_map(|(mut path, root)| {
            // The last of the names, within the ones before it as far as they are there.
            let (mut within, mut at) = (root, None);
            for name in &names {
                if let Some((place, value)) = find(within, name, &mut path) {
                    (within, at) = (value, Some((place, *name)));
                }
            }
            at.filter(|(_, name)| Some(name) == names.last()).map(|(place, _)| (place, path))
        });
        let header = || (self.root["part"].get_ref().as_table()?.get_key_value(part)).map(|(key, _)| key.span().start);
        let (at, path) = found.unwrap_or_else(|| (header().unwrap_or(0), vec!["part", part]));
        format!("{}: {}: {}", line(self.text, at), path.join("."), in_words(body))
    }
}

/// The line of a byte, from 1 on.
fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Leaves the path of the deepest key whose name or value is at a place.
fn deepest<'a>(
    (name, span): (&'a str, std::ops::Range<usize>),
    value: &'a Spanned<DeValue<'_>>,
    at: usize,
    path: &mut Vec<&'a str>,
    best: &mut Vec<&'a str>,
) {
    path.push(name);
    if (span.contains(&at) || value.span().contains(&at)) && path.len() > best.len() {
        best.clone_from(path);
    }
    within(value.get_ref()).for_each(|(name, span, value)| deepest((name, span), value, at, path, best));
    path.pop();
}

/// The place and value of the key with this name in a table or a list, else in the tables within it. `path` leads to the table, and then to the key.
fn find<'a>(value: &'a DeValue<'_>, name: &str, path: &mut Vec<&'a str>) -> Option<(usize, &'a DeValue<'a>)> {
    if let Some((own, span, value)) = within(value).find(|(own, ..)| *own == name) {
        path.push(own);
        return Some((span.start, value.get_ref()));
    }
    within(value).find_map(|(own, _, value)| {
        path.push(own);
        let found = find(value.get_ref(), name, path);
        if found.is_none() {
            path.pop();
        }
        found
    })
}

/// The keys of a table or of the tables of a list.
fn within<'a>(
    value: &'a DeValue<'_>,
) -> Box<dyn Iterator<Item = (&'a str, std::ops::Range<usize>, &'a Spanned<DeValue<'a>>)> + 'a> {
    match value {
        DeValue::Table(table) => Box::new(table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))),
        DeValue::Array(list) => Box::new(list.iter().flat_map(|value| within(value.get_ref()))),
        _ => Box::new(std::iter::empty()),
    }
}

/// A message of the reader as wanted and found, with a remedy.
fn in_words(message: &str) -> String {
    let message = message.trim_end().replace('`', "");
    let body = match message.split_once(", expected ") {
        _ if message.starts_with("wanted ") => message,
        Some((found, wanted)) => {
            let kinds = [
                "unknown field ",
                "unknown variant ",
                "invalid type: ",
                "invalid value: ",
                "integer ",
                "floating point ",
            ];
            let found = kinds.iter().fold(found, |found, kind| found.strip_prefix(kind).unwrap_or(found));
            let wanted = match wanted {
                "u32" | "u64" | "usize" | "i64" => "a whole number",
                "f32" | "f64" => "a number",
                "a sequence" => "a list",
                "a map" => "a table",
                _ if wanted.starts_with("a nonzero ") => "a whole number above 0",
                _ if wanted.starts_with("struct ") => "a table",
                _ => wanted,
            };
            format!("wanted {wanted}, found {found}")
        }
        None => match message.strip_prefix("missing field ") {
            Some(field) => format!("wanted the key {field}, found none"),
            None => match message.split_once(": wanted ") {
                Some((_, rest)) => format!("wanted {rest}"),
                None => format!("wanted another value, found: {message}"),
            },
        },
    };
    if body.contains("; ") { body } else { body + "; see hotrow-lab train --help" }
}
