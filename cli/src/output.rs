//! Where results go. Nothing here panics when the reader has gone away, as `println!` would.

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a result to standard output. A closed pipe is an error: the job was not done.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(b"\n"))
        .and_then(|()| stdout.flush())
        .context("standard output: wanted to write the results there; is its reader gone, or the disk full?")
}

/// Tells the user something beside the results. If nobody listens, nothing is lost.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A table in Markdown, so that it can be pasted; the first `words` columns hold words, the others
/// numbers.
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
    std::fs::write(path, content).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("{}: wanted to write the results there; check the folder and its permissions", path.display())
}
