//! The lines of a file, with their numbers for messages, and the fields of a line of a table.

use super::error::TraceError;
use super::ids::{Id, Ids};
use super::packed::Input;
use std::path::Path;

/// The longest id that is text.
const LONGEST: usize = 1024;

/// An open file of lines.
pub(super) struct Lines {
    input: Input,
    bytes: Vec<u8>,
    number: u64,
    /// Whether all lines so far were comments, and blank ones behind them.
    is_head: bool,
    /// The longest legal line.
    most: u64,
}

/// A line without its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'l> {
    path: &'l Path,
    pub(super) number: u64,
    pub(super) bytes: &'l [u8],
}

/// Whether a line at the beginning of a text is a comment, or a blank line `behind` one.
pub(super) fn is_comment(line: &[u8], behind: bool) -> bool {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start();
    line.starts_with(b"#") || behind && line.is_empty()
}

impl Lines {
    pub(super) fn open(path: &Path, most: u64) -> Result<Self, TraceError> {
        Ok(Self { input: Input::open(path)?, bytes: Vec::new(), number: 0, is_head: true, most })
    }

    /// The next line behind the comments at the beginning, or `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Line<'_>>, TraceError> {
        loop {
            self.bytes.clear();
            if self.input.line(self.most.saturating_add(1), &mut self.bytes)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.is_head &= self.bytes.len() as u64 <= self.most && is_comment(&self.bytes, self.number > 1);
            if !self.is_head {
                break;
            }
        }
        let bytes = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").filter(|_| self.number == 1).unwrap_or(bytes);
        let line = Line { path: &self.input.path, number: self.number, bytes };
        if bytes.len() as u64 > self.most {
            let found = format!("more than {} bytes without a line end", self.most);
            return Err(line.fail("lines", &found, "is this a file of text?"));
        }
        if bytes.contains(&0) {
            return Err(TraceError::binary(line.path, format_args!("in line {}", line.number)));
        }
        Ok(Some(line))
    }
}

impl<'l> Line<'l> {
    /// A first line of no file.
    pub(super) fn alone(bytes: &'l [u8]) -> Self {
        Self { path: Path::new(""), number: 1, bytes }
    }

    pub(super) fn fail(&self, wanted: &str, found: &str, remedy: &str) -> TraceError {
        TraceError::of(self.path, wanted, format!("{found} in line {}", self.number), remedy)
    }

    /// Adds an id of the line.
    pub(super) fn push(&self, ids: &mut Ids<'_>, id: Id<'_>) -> Result<(), TraceError> {
        let before = ids.numbered;
        ids.push(id)?;
        if ids.numbered && !before {
            ids.first = match id {
                Id::Number(id) => format!(" (the first is {id} in line {})", self.number),
                Id::Text(id) => format!(" (the first is {:?} in line {})", quote(id), self.number),
            };
        }
        Ok(())
    }

    /// A piece of the line as an id.
    pub(super) fn id(&self, piece: &'l [u8]) -> Result<Id<'l>, TraceError> {
        let id = Id::of(piece);
        let is_text = |piece: &[u8]| {
            let fits = || std::str::from_utf8(piece).is_ok_and(|piece| !piece.chars().any(char::is_control));
            piece.len() <= LONGEST && (piece.iter().all(|byte| (b' '..=b'~').contains(byte)) || fits())
        };
        match id {
            Id::Text(b"") => Err(self.fail("an id in each line", "none", "fill it in, or remove the line")),
            Id::Text(piece) if !is_text(piece) => Err(self.fail(
                &format!("ids that are numbers or text in UTF-8 of at most {LONGEST} bytes"),
                &format!("{:?}", quote(piece)),
                "repair or remove the line",
            )),
            id => Ok(id),
        }
    }
}

/// The most characters of a bad field that a message quotes.
const QUOTED: usize = 40;

/// The start of a field, for a message.
pub(super) fn quote(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(QUOTED).collect()
}

/// The fields of a line, without blanks around them. One in quotes may hold the separator, and quotes that are doubled; both stay as they are.
pub(super) struct Fields<'l> {
    rest: Option<&'l [u8]>,
    separator: Option<u8>,
}

impl<'l> Fields<'l> {
    /// Without a separator, runs of blanks separate.
    pub(super) fn new(line: &'l [u8], separator: Option<u8>) -> Self {
        let rest = if separator.is_none() { line.trim_ascii() } else { line };
        Self { rest: Some(rest), separator }
    }

    fn quoted(&mut self, inner: &'l [u8]) -> Result<&'l [u8], &'static str> {
        let mut at = 0;
        loop {
            at += inner[at..].iter().position(|&byte| byte == b'"').ok_or("a quote that does not end there")?;
            if inner.get(at + 1) != Some(&b'"') {
                break;
            }
            at += 2;
        }
        let behind = trim(&inner[at + 1..]);
        self.rest = match behind.split_first() {
            None => None,
            Some((&byte, rest)) if Some(byte) == self.separator => Some(rest.strip_prefix(b":").unwrap_or(rest)),
            Some(_) if self.separator.is_none() && behind.len() < inner.len() - at - 1 => Some(behind),
            Some(_) => return Err("text behind a quote"),
        };
        Ok(&inner[..at])
    }
}

/// Without blanks at either end; a tab may separate.
fn trim(mut field: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = field {
        field = rest;
    }
    field
}

impl<'l> Iterator for Fields<'l> {
    type Item = Result<&'l [u8], &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let start = if rest.first() == Some(&b' ') { trim(rest) } else { rest };
        if let Some(inner) = start.strip_prefix(b"\"") {
            return Some(self.quoted(inner));
        }
        let end = match self.separator {
            None => rest.iter().position(u8::is_ascii_whitespace),
            Some(b':') => rest.windows(2).position(|pair| pair == b"::"),
            Some(by) => rest.iter().position(|&byte| byte == by),
        };
        let Some(end) = end else { return Some(Ok(trim(rest))) };
        self.rest = Some(
            self.separator.map_or(rest[end..].trim_ascii_start(), |by| &rest[end + 1 + usize::from(by == b':')..]),
        );
        Some(Ok(trim(&rest[..end])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_blanks_and_empty_fields() {
        for (line, separator, wanted) in [
            ("1,2", Some(b','), &["1", "2"][..]),
            (",, 3 ,", Some(b','), &["", "", "3", ""]),
            ("", Some(b','), &[""]),
            ("\t\t", Some(b'\t'), &["", "", ""]),
            (r#"1::"2"::a:b::"#, Some(b':'), &["1", "2", "a:b", ""]),
            (r#""a,b" , "c""d","""#, Some(b','), &["a,b", r#"c""d"#, ""]),
            (r#"1,"""#, Some(b','), &["1", ""]),
            ("  7  8\t9 ", None, &["7", "8", "9"]),
            (r#""7 8" 9"#, None, &["7 8", "9"]),
        ] {
            let found = Fields::new(line.as_bytes(), separator).map_while(Result::ok).collect::<Vec<_>>();
            assert_eq!(found, wanted.iter().map(|field| field.as_bytes()).collect::<Vec<_>>(), "{line}");
        }
        for (line, fault) in [(r#"1,"2"#, "a quote that does not end there"), (r#""1"2,3"#, "text behind a quote")] {
            assert_eq!(Fields::new(line.as_bytes(), Some(b',')).find_map(Result::err), Some(fault), "{line}");
        }
    }
}
