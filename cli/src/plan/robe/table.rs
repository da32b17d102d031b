//! The table of `plan robe`: a file of rows, a checkpoint, or a generated table.

use crate::plan::amount::{MOST_DIM, count_to};
use crate::tensors::{FLOATS, Stacked, Tensors, converted};
use anyhow::Context as _;
use hotrow::rng::pcg4d;
use hotrow::{CpuGroup, Error, F32File, Init, Source, checkpoint, prelude::*};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::options::{MOST_ROWS, read};
use hotrow_report::output;
use hotrow_report::spec::{Kind, Spec};
use std::path::Path;

pub(super) struct Table {
    pub(super) name: String,
    /// `numpy`, `checkpoint`, `floats` or `generated`.
    pub(super) kind: &'static str,
    /// Rows of each table; a checkpoint may hold several.
    pub(super) tables: Vec<u32>,
    /// Rows of all tables together.
    pub(super) rows: u32,
    pub(super) dim: u32,
    pub(super) source: Box<dyn Source>,
}

impl Table {
    fn new(name: &str, kind: &'static str, rows: u32, dim: u32, source: impl Source + 'static) -> Self {
        Self { name: name.to_owned(), kind, tables: vec![rows], rows, dim, source: Box::new(source) }
    }

    pub(super) fn values(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.dim)
    }
}

/// Opens the table. Only a file of nothing but floats needs `dim`; for other tables it must agree.
pub(super) fn open(text: &str, dim: Option<u32>, seed: u32) -> Result<Table, Failure> {
    let path = Path::new(text);
    let is_made = text.split_once(':').is_some_and(|(kind, _)| KINDS.iter().any(|&(known, ..)| known == kind));
    let table = if is_made {
        made(text, seed).map_err(|reason| Failure::Usage(format!("{text}: {reason}")))?
    } else {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("npy") => numpy(text, path)?,
            Some("safetensors") => saved(text, path)?,
            _ => floats(text, path, dim)?,
        }
    };
    match dim {
        Some(dim) if dim != table.dim => {
            Err(Failure::Usage(format!("--dim: wanted {}, as {text} has it, found {dim}; leave it out", table.dim)))
        }
        _ => Ok(table),
    }
}

/// The number of rows, or of floats in a row, if a group of tables can hold them.
fn held(text: &str, wanted: &str, found: u64, most: u32) -> Result<u32, Failure> {
    let fits = u32::try_from(found).ok().filter(|number| (1..=most).contains(number));
    fits.ok_or_else(|| Failure::Usage(format!("{text}: wanted {wanted}, found {found}; name another table")))
}

fn rows_of(text: &str, rows: u64) -> Result<u32, Failure> {
    held(text, "1 to 4294967294 rows", rows, MOST_ROWS)
}

fn dim_of(text: &str, dim: u64) -> Result<u32, Failure> {
    held(text, "a dim of 1 to 16777216", dim, MOST_DIM)
}

fn numpy(text: &str, path: &Path) -> Result<Table, Failure> {
    let tensors = Tensors::npy(path)?;
    let matrix = tensors.matrix(&tensors.names()[0], &FLOATS)?;
    let [rows, dim] = matrix.shape;
    converted(std::slice::from_ref(&matrix)).iter().for_each(|note| output::note(&format!("note: {text}: {note}")));
    let (rows, dim) = (rows_of(text, rows)?, dim_of(text, dim)?);
    Ok(Table::new(text, "numpy", rows, dim, Stacked { tensors, matrices: vec![matrix] }))
}

fn floats(text: &str, path: &Path, dim: Option<u32>) -> Result<Table, Failure> {
    let source = F32File::raw(path)?;
    let dim = dim.ok_or_else(|| {
        Failure::Usage(format!(
            "{text}: wanted --dim beside a file of nothing but floats, found none; give the floats of a row"
        ))
    })?;
    let dim = dim_of(text, dim.into())?;
    let (bytes, row) = (path.metadata().with_context(|| text.to_owned())?.len(), 4 * u64::from(dim));
    ensure_usage!(
        bytes.is_multiple_of(row),
        "{text}: wanted whole rows of {dim} floats, {row} B each, found {bytes} B; give the dim of the file"
    );
    Ok(Table::new(text, "floats", rows_of(text, bytes / row)?, dim, source))
}

/// Number of rows that are read from a group at once.
const PIECE: u32 = 1 << 14;

/// Reads the newest values of all rows of a checkpoint into memory.
fn saved(text: &str, path: &Path) -> Result<Table, Failure> {
    let config = checkpoint::contents(path)?.config;
    let (tables, dim) = (config.tables.clone(), config.dim);
    let rows = config.total_rows() as u32;
    let mut group = CpuGroup::new(config)?;
    checkpoint::load(&mut group, path)?;
    let mut values: Vec<f32> = Vec::new();
    for first in (0..rows).step_by(PIECE as usize) {
        let piece: Vec<u32> = (first..rows.min(first.saturating_add(PIECE))).collect();
        values.extend(group.read_rows(&piece)?);
    }
    Ok(Table { tables, ..Table::new(text, "checkpoint", rows, dim, values) })
}

const KINDS: [Kind; 2] = [
    ("normal", &["rows", "dim", "mean", "std"], "normal:rows=4096,dim=64"),
    ("clustered", &["rows", "dim", "clusters", "noise"], "clustered:rows=4096,dim=64,clusters=16"),
];

const WANTED: &str = "wanted normal:rows=N,dim=D[,mean=X,std=X] or clustered:rows=N,dim=D,clusters=N[,noise=X]";

fn finite(number: &str) -> Result<f32, String> {
    read(number, "a number", |number: &f32| number.is_finite())
}

/// A number from 0 on.
fn not_negative(number: &str) -> Result<f32, String> {
    match finite(number)? {
        value if value >= 0.0 => Ok(value),
        _ => Err("wanted a number from 0 on".to_owned()),
    }
}

fn made(text: &str, seed: u32) -> Result<Table, String> {
    let spec = Spec::parse(text, &KINDS, WANTED)?;
    let (rows, dim) = (spec.required("rows", count_to(MOST_ROWS))?, spec.required("dim", count_to(MOST_DIM))?);
    let normal = |std| Init::Normal { mean: 0.0, std };
    Ok(if spec.kind == "normal" {
        let init = Init::Normal {
            mean: spec.number("mean", finite)?.unwrap_or(0.0),
            std: spec.number("std", not_negative)?.unwrap_or(1.0),
        };
        let source = move |first_row: u32, dim: usize, out: &mut [f32]| -> Result<(), Error> {
            (first_row..).zip(out.chunks_exact_mut(dim)).for_each(|(row, values)| init.row(seed, row, values));
            Ok(())
        };
        Table::new(text, "generated", rows, dim, source)
    } else {
        let clusters = spec.required("clusters", count_to(MOST_ROWS))?;
        let (centres, noise) = (normal(1.0), normal(spec.number("noise", not_negative)?.unwrap_or(0.0)));
        let source = move |first_row: u32, dim: usize, out: &mut [f32]| -> Result<(), Error> {
            let mut own = vec![0.0; dim];
            for (row, values) in (first_row..).zip(out.chunks_exact_mut(dim)) {
                centres.row(seed, pcg4d([seed, row, 0, 0])[0] % clusters, values);
                noise.row(!seed, row, &mut own);
                values.iter_mut().zip(&own).for_each(|(x, own)| *x += own);
            }
            Ok(())
        };
        Table::new(text, "generated", rows, dim, source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_tables_are_what_they_say() {
        let read = |text: &str, first: u32, rows: usize| {
            let table = open(text, None, 5).ok().unwrap();
            let mut out = vec![0.0; rows * table.dim as usize];
            table.source.rows(first, table.dim as usize, &mut out).unwrap();
            out
        };
        let mut wanted = vec![0.0; 4];
        Init::Normal { mean: 2.0, std: 0.5 }.row(5, 7, &mut wanted);
        assert_eq!(read("normal:rows=10,dim=4,mean=2,std=0.5", 7, 1), wanted);
        // Without noise there are as many distinct rows as clusters.
        let out = read("clustered:rows=1000,dim=4,clusters=20", 0, 1000);
        let rows: std::collections::BTreeSet<_> =
            out.chunks(4).map(|row| [0, 1, 2, 3].map(|k| row[k].to_bits())).collect();
        assert_eq!(rows.len(), 20);
    }
}
