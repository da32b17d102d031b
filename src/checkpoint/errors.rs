//! The errors of files.

use std::{io, path::Path};

use crate::error::{Error, cause};

/// The error for a file at `path` that the operating system refuses.
#[must_use]
pub fn refused(path: &Path, what: &'static str, wanted: &str, error: &io::Error, remedy: &'static str) -> Error {
    let (path, wanted, found) = (path.display().to_string(), wanted.into(), error.to_string());
    Error::Checkpoint { path, what, wanted, found, remedy, source: Some(cause(error)) }
}

/// The error for a fault of the file at `path`.
pub fn fault(
    path: &Path,
    what: &'static str,
    wanted: impl Into<String>,
    found: &(impl std::fmt::Display + ?Sized),
    remedy: &'static str,
) -> Error {
    Error::Checkpoint {
        path: path.display().to_string(),
        what,
        wanted: wanted.into(),
        found: found.to_string(),
        remedy,
        source: None,
    }
}
