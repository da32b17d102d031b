//! Writes results to standard output, files and folders.
//!
//! [`check_files`] and [`check_folder`] refuse a path that cannot be written before the work begins.

use crate::failure::{Closed, Failure, ensure_usage, plain_lines};
use anyhow::Context;
use clap::builder::{PathBufValueParser, TypedValueParser};
use comfy_table::{CellAlignment, Table, presets};
use hotrow::{Error, ranks::write_pieces};
use serde::Serialize;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf, is_separator};

/// Writes a result to standard output.
///
/// # Errors
/// [`Closed`] if the reader is gone. Unlike `println!` it never panics.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{}", plain_lines(text)).and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("standard output: wanted to write the results there; is the disk full?"),
    }
}

/// Writes a note to standard error. If that is closed, the note is lost.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain_lines(text));
}

/// The option of a file: `-` is refused, since standard output carries the text.
pub fn file() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("wanted a file, found -; standard output carries the tables, so name a file"),
        false => Ok(path),
    })
}

/// The option of a plot's stem: the ending of a picture is cut off.
pub fn stem() -> impl TypedValueParser<Value = PathBuf> {
    file().try_map(|path| {
        let text = path.to_string_lossy();
        Ok(match path.extension().and_then(|ending| ending.to_str()) {
            _ if matches!(text.rsplit(is_separator).next(), Some("" | "." | "..")) => {
                return Err(format!("wanted the name of a file, found the folder {text}; put a name behind it"));
            }
            Some("svg" | "png") => path.with_extension(""),
            _ => path,
        })
    })
}

/// Refuses files of `--json`, `--csv` and `--plot` that cannot be written, that are among those that are `read`, or that two of them name.
/// Every subcommand calls this before its work, so that no result is lost. Each of `stems` becomes an SVG and a PNG.
pub fn check_files(
    json: Option<&Path>,
    csv: Option<&Path>,
    stems: &[PathBuf],
    read: &[PathBuf],
) -> Result<(), Failure> {
    let named =
        [("--json", json), ("--csv", csv)].into_iter().filter_map(|(option, path)| Some((option, path?.to_owned())));
    let pictures = stems.iter().flat_map(|stem| [".svg", ".png"].map(|ending| ("--plot", with_ending(stem, ending))));
    check_named(named.chain(pictures), read)
}

/// As [`check_files`], of the file of `--out`, which is replaced: it must be no pipe or device.
pub fn check_out(out: &Path, json: Option<&Path>, read: &[PathBuf]) -> Result<(), Failure> {
    ensure_usage!(
        !is_special(out),
        "--out: wanted a file, found {}, a pipe or a device; name a file, and send it on from there",
        out.display()
    );
    let json = json.map(|json| ("--json", json.to_owned()));
    check_named([("--out", out.to_owned())].into_iter().chain(json), read)
}

fn check_named(files: impl Iterator<Item = (&'static str, PathBuf)>, read: &[PathBuf]) -> Result<(), Failure> {
    let mut checked: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in files {
        // Opening a pipe or a terminal could be noticed at its other end.
        if is_special(&path) {
            continue;
        }
        ensure_usage!(
            !read.iter().any(|read| is_same(read, &path)),
            "{option}: wanted another file than those that are read, found {}; name another",
            path.display()
        );
        check_file(option, &path)?;
        if let Some((other, _)) = checked.iter().find(|(_, known)| is_same(known, &path)) {
            return Err(Failure::Usage(format!(
                "{option}: wanted another file than {other}'s, found {} for both; name two files",
                path.display()
            )));
        }
        checked.push((option, path));
    }
    Ok(())
}

/// Whether this is a pipe, a terminal or another device.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Checks a file. An existing one keeps its content; a new one is removed again.
fn check_file(option: &str, path: &Path) -> Result<(), Failure> {
    let is_new = fs::symlink_metadata(path).is_err();
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| refused(option, path, "file", &error))?;
    if is_new {
        // If removal fails, an empty file stays and is overwritten.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// The canonical path of a file that need not exist.
fn place(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()).join(name)
        }
        _ => path.to_owned(),
    })
}

/// Whether two paths name one file, by whatever links.
fn is_same(a: &Path, b: &Path) -> bool {
    place(a) == place(b) || fs::metadata(a).is_ok_and(|a| fs::metadata(b).is_ok_and(|b| is_linked(&a, &b)))
}

#[cfg(unix)]
fn is_linked(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// The standard library tells hard links on Unix only.
#[cfg(not(unix))]
const fn is_linked(_: &Metadata, _: &Metadata) -> bool {
    false
}

/// Makes `--out`'s folder, and refuses one in which no file can be made. As [`check_inside`].
pub fn check_folder(folder: &Path, json: Option<&Path>) -> Result<(), Failure> {
    let probe = folder.join(".hotrow-check");
    fs::create_dir_all(folder).and_then(|()| File::create(&probe)).and_then(|_| fs::remove_file(&probe)).or_else(
        |error| match error.kind() {
            // Another command is checking the same folder at this moment.
            ErrorKind::NotFound if folder.is_dir() => Ok(()),
            _ => Err(refused("--out", folder, "folder", &error)),
        },
    )?;
    check_inside(folder, json)
}

/// Refuses a file of `json` in `--out`'s folder unless it ends in .json: under another ending it could be a table, a picture or a journal
/// that the command writes there.
pub fn check_inside(folder: &Path, json: Option<&Path>) -> Result<(), Failure> {
    let inside = json.filter(|json| place(json).parent() == Some(&place(folder)));
    match inside.filter(|json| json.extension().is_none_or(|ending| ending != "json")) {
        Some(json) => Err(Failure::Usage(format!(
            "--json: wanted a name that ends in .json in --out's folder, found {}; its other files are written there",
            json.display()
        ))),
        None => Ok(()),
    }
}

fn refused(option: &str, path: &Path, kind: &str, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::Usage(format!(
        "{option}: wanted a {kind} that can be written, found {path}: {error}; check the folder and its permissions"
    ))
}

/// The path `STEM` followed by `ending`, such as `.svg`.
pub fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// A table in Markdown. Columns of words stand left, others right.
pub fn table(
    head: impl IntoIterator<Item = String>,
    is_words: impl Fn(usize) -> bool,
    lines: impl IntoIterator<Item = impl IntoIterator<Item = String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(head).add_rows(lines);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| !is_words(*at)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Writes `value` to a file as indented JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write_file(path, &text)
}

pub fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    fs::write(path, content).with_context(|| cannot_write(path))
}

/// Writes a file in pieces, as a checkpoint is written: beside its place, and renamed once it is whole. After an error the old file is still there. A link
/// stays, and so do the permissions of an old file. What a killed process leaves behind, the next write of the file removes.
pub fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), Failure>) -> Result<(), Failure> {
    let whole = |file: &File| {
        let mut file = BufWriter::new(file);
        write(&mut file).and_then(|()| Ok(file.flush()?))
    };
    write_pieces(path, whole).map_err(|failure| match failure {
        Failure::Job(error)
            if error.is::<io::Error>() || matches!(error.downcast_ref(), Some(Error::Checkpoint { .. })) =>
        {
            error.context(cannot_write(path)).into()
        }
        failure => failure,
    })
}

fn cannot_write(path: &Path) -> String {
    format!("{}: wanted to write the results there; make room, or check the folder and its permissions", path.display())
}
