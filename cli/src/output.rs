//! Where results go: standard output, files and folders.
//!
//! [`check_file`], [`check_plot`] and [`check_folder`] refuse a path that cannot be written before the work begins.

use crate::failure::{Closed, Failure};
use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a result to standard output.
///
/// # Errors
/// [`Closed`] if nobody reads it any longer. Unlike `println!` it never panics.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written =
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("standard output: wanted to write the results there; is the disk full?"),
    }
}

/// Writes a note to standard error. A note that nobody reads is no error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Refuses a file of `option` that cannot be written. Every subcommand calls this before its work, so that no result is lost.
///
/// An existing file keeps its content, and a file that was made for the check is removed again.
pub(crate) fn check_file(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    // Opening a pipe or a terminal would be seen at its other end.
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    let is_new = fs::symlink_metadata(path).is_err();
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| refused(option, path, "file", &error))?;
    if is_new {
        // A file that stays behind is empty, and is written over.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Refuses a plot's `stem` if `STEM.svg` or `STEM.png` cannot be written: as [`check_file`].
pub(crate) fn check_plot(option: &str, stem: Option<&Path>) -> Result<(), Failure> {
    let Some(stem) = stem else { return Ok(()) };
    [".svg", ".png"].iter().try_for_each(|ending| check_file(option, Some(&with_ending(stem, ending))))
}

/// Makes a folder for results, and refuses one in which no file can be made.
pub(crate) fn check_folder(option: &str, folder: &Path) -> Result<(), Failure> {
    let probe = folder.join(".hotrow-check");
    fs::create_dir_all(folder).and_then(|()| File::create(&probe)).and_then(|_| fs::remove_file(&probe)).or_else(
        |error| match error.kind() {
            // Another command has just checked the same folder.
            ErrorKind::NotFound if folder.is_dir() => Ok(()),
            _ => Err(refused(option, folder, "folder", &error)),
        },
    )
}

fn refused(option: &str, path: &Path, kind: &str, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::Usage(format!(
        "{option}: wanted a {kind} that can be written, found {path}: {error}; check the folder and its permissions"
    ))
}

/// The path `STEM` followed by `ending`, such as `-quarters` or `.svg`.
pub(crate) fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// A table in Markdown. The first `words` columns hold words, the others numbers.
pub(crate) fn table<H: Into<comfy_table::Row>>(header: H, words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Writes `value` to a file as indented JSON.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        serde_json::to_writer_pretty(&mut file, value)?;
        file.write_all(b"\n")?;
        file.flush()?;
        Ok(())
    };
    write().with_context(|| cannot_write(path))
}

/// Writes one line for each of `rows` to a file as CSV, with their fields' names above.
pub(crate) fn write_csv(path: &Path, rows: &[impl Serialize]) -> anyhow::Result<()> {
    let write = || -> anyhow::Result<()> {
        let mut file = csv::Writer::from_path(path)?;
        rows.iter().try_for_each(|row| file.serialize(row))?;
        file.flush()?;
        Ok(())
    };
    write().with_context(|| cannot_write(path))
}

/// Writes a whole file.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("{}: wanted to write the results there; check the folder and its permissions", path.display())
}
