//! The lines of a file, with their numbers for messages.

use super::error::TraceError;
use super::fields::quote;
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

    /// The error of this line.
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
