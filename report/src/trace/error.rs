//! The errors of traces.

use crate::failure::plain;
use std::fmt::Display;
use std::path::Path;

/// The largest id of a trace, since a group has fewer than 2^32 - 1 rows.
pub const MAX_ID: u32 = u32::MAX - 2;

/// What a file of ids may be.
pub(super) const FORMATS: &str = ".u32, .u64, .npy, .oracleGeneral or text, as it is or packed as .gz or .zst";

/// The reason why a trace could not be read or generated. Each message names the wanted content, the found content and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Neither a file nor a trace in the data folder; a file that cannot be read, or is damaged; a generated trace larger than memory.
    #[error("{}", plain(.0))]
    Content(String),
    /// A wrong specification of a generated trace.
    #[error("{}", plain(.0))]
    Spec(String),
}

impl From<String> for TraceError {
    fn from(reason: String) -> Self {
        Self::Spec(reason)
    }
}

impl TraceError {
    pub(super) fn of(path: &Path, wanted: impl Display, found: impl Display, remedy: &str) -> Self {
        Self::Content(format!("{}: wanted {wanted}, found {found}; {remedy}", path.display()))
    }

    /// The operating system, or a decompressor, refused to open or read a file, which is of a packed `format` if any.
    pub(super) fn unreadable(path: &Path, format: Option<&str>, reason: impl Display) -> Self {
        let (wanted, remedy) = match format {
            Some(format) => (
                format!("complete {format}"),
                "the file is cut off, damaged, longer than its packed data or of another format, get it again",
            ),
            None => ("readable".to_owned(), "check the path and its permissions"),
        };
        Self::Content(format!("{}: wanted a {wanted} file, found: {reason}; {remedy}", path.display()))
    }

    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |reason| Self::unreadable(path, None, reason)
    }

    /// A file that has NUL bytes, and is none of the formats that may.
    pub(super) fn binary(path: &Path, place: impl Display) -> Self {
        let found = format!("a binary file: a NUL byte {place}");
        Self::of(path, FORMATS, found, "convert it, or name it by its format")
    }

    pub(super) fn empty(path: &Path) -> Self {
        Self::of(path, "at least one id", "none", "the file is empty, get or write it again")
    }

    /// A number that is no row id, at an access counted from 0.
    pub(super) fn id(path: &Path, position: u64, found: impl Display) -> Self {
        let found = format!("{found} at access {position}");
        Self::of(path, "ids from 0 to 4294967293", found, "renumber the ids of the trace")
    }

    /// More accesses than offsets can count.
    pub(super) fn too_long(path: &Path) -> Self {
        Self::of(path, "at most 4294967295 accesses", "more", "split the trace")
    }
}
