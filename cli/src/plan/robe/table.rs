//! The table of `plan robe`: an array of numpy's or a checkpoint.

use crate::import::number;
use crate::plan::amount::MOST_DIM;
use crate::tensors::{FLOATS, Stacked, Tensors, converted};
use hotrow::{CpuGroup, Source, checkpoint, prelude::*};
use hotrow_report::failure::Failure;
use hotrow_report::options::MOST_ROWS;
use hotrow_report::output;
use std::path::Path;

pub(super) struct Table {
    pub(super) name: String,
    /// `numpy` or `checkpoint`.
    pub(super) kind: &'static str,
    /// Rows of each table; a checkpoint may hold several.
    pub(super) tables: Vec<u32>,
    /// Rows of all tables together.
    pub(super) rows: u32,
    pub(super) dim: u32,
    pub(super) source: Box<dyn Source>,
}

impl Table {
    pub(super) fn values(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.dim)
    }
}

pub(super) fn open(text: &str) -> Result<Table, Failure> {
    let path = Path::new(text);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("npy") => numpy(text, path),
        Some("safetensors") => saved(text, path),
        _ => Err(Failure::Usage(format!(
            "{text}: wanted a .npy file or a checkpoint (.safetensors), found another ending; name such a file"
        ))),
    }
}

fn numpy(text: &str, path: &Path) -> Result<Table, Failure> {
    let tensors = Tensors::npy(path)?;
    let matrix = tensors.matrix(&tensors.names()[0], &FLOATS)?;
    let [rows, dim] = matrix.shape;
    converted(std::slice::from_ref(&matrix)).iter().for_each(|note| output::note(&format!("note: {text}: {note}")));
    let (rows, dim) = (number(path, "rows", rows, MOST_ROWS)?, number(path, "dim", dim, MOST_DIM)?);
    let source = Box::new(Stacked { tensors, matrices: vec![matrix] });
    Ok(Table { name: text.to_owned(), kind: "numpy", tables: vec![rows], rows, dim, source })
}

/// Number of rows that are read from a group at once.
const PIECE: u32 = 1 << 14;

/// Reads the newest values of all rows of a checkpoint into memory.
fn saved(text: &str, path: &Path) -> Result<Table, Failure> {
    let config = checkpoint::contents(path)?.0;
    let (tables, dim, rows) = (config.tables.clone(), config.dim, config.total_rows() as u32);
    let mut group = CpuGroup::new(config)?;
    checkpoint::load(&mut group, path)?;
    let mut values: Vec<f32> = Vec::new();
    for first in (0..rows).step_by(PIECE as usize) {
        let piece: Vec<u32> = (first..rows.min(first.saturating_add(PIECE))).collect();
        values.extend(group.read_rows(&piece)?);
    }
    Ok(Table { name: text.to_owned(), kind: "checkpoint", tables, rows, dim, source: Box::new(values) })
}
