//! `hotrow export`: the tables of a checkpoint in the formats of other programs (docs/pytorch.md), and shared arrays (docs/shared-tables.md).

use crate::fused::{Change, Form, RowForm};
use ::safetensors::Dtype;
use anyhow::Context as _;
use clap::ValueEnum;
use hotrow::internals::safetensors;
use hotrow::robe::{Config, hash};
use hotrow::{CpuGroup, CpuSharedGroup, Error, Init, checkpoint, prelude::*, state::Part};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::value_name;
use hotrow_report::object::{Object, fields};
use hotrow_report::options::Options;
use hotrow_report::output;
use hotrow_report::progress::Progress;
use npyz::WriterBuilder as _;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

/// Write the tables of a checkpoint, or its shared array, as numpy, torch and FBGEMM load them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Checkpoint of a group of tables or of a shared array
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// Format
    #[arg(long, value_enum)]
    format: Format,
    /// File to write
    #[arg(long, value_name = "FILE", value_parser = output::file())]
    out: PathBuf,
    /// The table to write, counted from 0 [default: all of them]
    #[arg(long, value_name = "N")]
    table: Option<usize>,
}

/// A format of tables outside hotrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One FP32 array [rows, dim] (numpy); of a shared array its FP32 weights, with FILE.json beside, which says where the values of a row are
    Npy,
    /// FP32 tensors [rows, dim], named as torch's embedding bags name them: weight, or 0.weight, 1.weight, ..
    Safetensors,
    /// Tensors of bytes [rows, bytes] of INT8, INT4 or INT2 tables: codes, then scale and bias (FBGEMM's fused rows)
    Fused,
    /// As fused, with scale and bias first, in FP16 (FBGEMM's inference TBE)
    Tbe,
}

impl Format {
    /// The form of rows of bytes; formats of FP32 rows have none.
    pub(crate) const fn form(self) -> Option<Form> {
        match self {
            Self::Npy | Self::Safetensors => None,
            Self::Fused => Some(Form::Fused),
            Self::Tbe => Some(Form::Tbe),
        }
    }
}

/// Number of rows that are written at once.
const PIECE: u32 = 1 << 12;

/// A loaded checkpoint, and the linear rows of each of its tables that are written.
struct Tables {
    group: CpuGroup,
    tables: Vec<Range<u32>>,
    progress: Progress,
    /// The checkpoint's path, for messages.
    shown: String,
}

impl Tables {
    fn open(args: &Args) -> Result<Self, Failure> {
        let (path, shown) = (&args.checkpoint, args.checkpoint.display());
        let config = checkpoint::contents(path)?.0.with_init(Init::Constant(0.0));
        let mut end = 0;
        let mut tables: Vec<Range<u32>> = Vec::new();
        for &rows in &config.tables {
            tables.push(end..end + rows);
            end += rows;
        }
        if let Some(at) = args.table {
            let all = tables.len();
            ensure_usage!(at < all, "--table: wanted one of the {all} tables of {shown}, counted from 0, found {at}");
            tables = vec![tables[at].clone()];
        }
        ensure_usage!(
            args.format != Format::Npy || tables.len() <= 1,
            "--table: wanted one table beside format npy, found the {} of {shown}; name one, or take format safetensors",
            tables.len()
        );
        let rows = tables.iter().map(|rows| rows.len() as u64).sum();
        let mut group = CpuGroup::new(config)?;
        checkpoint::load(&mut group, path)?;
        Ok(Self { group, tables, progress: Progress::new("export", rows), shown: shown.to_string() })
    }

    /// The tensors' names, and their shapes if a row has so many entries.
    fn named(&self, width: u64) -> Vec<(String, Vec<u64>)> {
        let name = |at| if self.tables.len() == 1 { "weight".to_owned() } else { format!("{at}.weight") };
        let each = self.tables.iter().enumerate();
        each.map(|(at, rows)| (name(at), vec![rows.len() as u64, width])).collect()
    }

    fn header(&self, texts: &[(&str, String)], dtype: Dtype, width: u64) -> Vec<u8> {
        let named = self.named(width);
        safetensors::header(texts, named.iter().map(|(name, shape)| (name.as_str(), dtype, shape.clone())))
    }

    /// The newest values of neighbouring rows, from the cache where they are there.
    fn values(&mut self, rows: Range<u32>) -> Result<Vec<f32>, Failure> {
        self.progress.advance(rows.len() as u64);
        Ok(self.group.read_rows(&rows.collect::<Vec<_>>())?)
    }

    fn pieces(&self) -> Vec<Range<u32>> {
        let cut = |rows: &Range<u32>| {
            let end = rows.end;
            rows.clone().step_by(PIECE as usize).map(move |first| first..end.min(first.saturating_add(PIECE)))
        };
        self.tables.iter().flat_map(cut).collect()
    }

    fn write_floats(&mut self, file: &mut impl Write) -> Result<(), Failure> {
        for rows in self.pieces() {
            let bytes: Vec<u8> = self.values(rows)?.into_iter().flat_map(f32::to_le_bytes).collect();
            file.write_all(&bytes)?;
        }
        Ok(())
    }

    fn write_codes(&mut self, form: &RowForm, file: &mut impl Write) -> Result<Change, Failure> {
        let layout = self.group.layout().row;
        let shown = self.shown.clone();
        let words = layout.record_words as usize;
        let mut change = Change::default();
        for rows in self.pieces() {
            let count = rows.len();
            let (mut records, mut bytes) = (vec![0; count * words], vec![0; count * form.bytes()]);
            self.group.read_part(Part::Records, u64::from(rows.start) * words as u64, &mut records)?;
            for ((row, record), out) in rows.zip(records.chunks_exact(words)).zip(bytes.chunks_exact_mut(form.bytes()))
            {
                form.write(&layout, row, record, out, &mut change).with_context(|| shown.clone())?;
            }
            file.write_all(&bytes)?;
            self.progress.advance(count as u64);
        }
        Ok(change)
    }
}

/// Writes the weights of a shared array, and the constants of SPEC 8 by which the values of a row are found among them.
fn export_array(options: &Options, args: &Args, config: Config, step: u32) -> Result<(), Failure> {
    let (shown, out) = (args.checkpoint.display(), args.out.as_path());
    ensure_usage!(
        args.format == Format::Npy,
        "--format: wanted npy beside a shared array, whose rows share weights, found {}",
        value_name(&args.format)
    );
    if let Some(table) = args.table {
        let found = format!(
            "--table: wanted none beside a shared array, which {shown} holds whole, found {table}; leave it out"
        );
        return Err(Failure::Usage(found));
    }
    let constants = output::with_ending(out, ".json");
    output::check_out(&constants, options.json.as_deref(), std::slice::from_ref(&args.checkpoint))?;
    let mut group = CpuSharedGroup::new(config.with_init(Init::Constant(0.0)))?;
    checkpoint::load_lookup(&mut group, &args.checkpoint)?;
    let snapshot = group.snapshot()?;
    let config = SharedArray::config(&group);
    let weights = snapshot.weights(config)?;
    output::replace(out, |file| {
        let shape = [u64::from(config.weights)];
        let mut array = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
        array.extend(weights)?;
        Ok(array.finish()?)
    })?;
    let array = Object::default()
        .with("dim", config.dim)
        .with("precision", config.precision.name())
        .with("addressing", config.addressing.name())
        .with("weights", config.weights)
        .with("chunk", config.chunk);
    let hash = [("step", step), ("prime", hash::PRIME), ("r1", hash::R1), ("r2", hash::R2), ("r3", hash::R3)];
    let found = Object::default().with("tables", serde_json::json!(config.tables)).and(array.clone());
    output::write_json(&constants, &hash.into_iter().fold(found, |found, (name, value)| found.with(name, value)))?;
    let rows = config.rows().total_rows();
    told(options, args, [config.tables.len() as u64, rows], array, Object::default())
}

/// Writes and prints what was written; `more` comes behind the file's size.
fn told(options: &Options, args: &Args, sizes: [u64; 2], about: Object, more: Object) -> Result<(), Failure> {
    let report = Object::default()
        .with("format", value_name(&args.format))
        .with("file", args.out.display().to_string())
        .with("tables", sizes[0])
        .with("rows", sizes[1])
        .and(about)
        .with("file_bytes", std::fs::metadata(&args.out)?.len())
        .and(more);
    options.write_json(&report)?;
    Ok(output::print(&report.table("export"))?)
}

pub(crate) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    let out = args.out.as_path();
    output::check_out(out, options.json.as_deref(), std::slice::from_ref(&args.checkpoint))?;
    match checkpoint::array_contents(&args.checkpoint) {
        Ok((config, step)) => return export_array(options, args, config, step),
        // Other files are tables, or nothing.
        Err(Error::Checkpoint { what: "file" | "header" | "format", .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut tables = Tables::open(args)?;
    let (dim, precision) = (tables.group.config().dim, tables.group.config().precision);
    let form = args.format.form().map(|form| RowForm::new(form, precision, dim)).transpose();
    let form = form.map_err(|error| Failure::Usage(format!("{}: {error}", args.checkpoint.display())))?;
    let texts = [("format", format!("hotrow {}", value_name(&args.format))), ("dim", dim.to_string())];
    let precision_text = form.map(|_| ("precision", precision.to_string()));
    let texts: Vec<_> = texts.into_iter().chain(precision_text).collect();
    let mut change = None;
    output::replace(out, |file| {
        match (args.format, &form) {
            (Format::Npy, _) => {
                let rows = tables.pieces();
                let shape = tables.named(dim.into())[0].1.clone();
                let mut array = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
                for rows in rows {
                    array.extend(tables.values(rows)?)?;
                }
                array.finish()?;
            }
            (_, None) => {
                file.write_all(&tables.header(&texts, Dtype::F32, dim.into()))?;
                tables.write_floats(file)?;
            }
            (_, Some(form)) => {
                // Rows in the cache go into their records first, rounded as in any flush.
                tables.group.flush()?;
                file.write_all(&tables.header(&texts, Dtype::U8, form.bytes() as u64))?;
                change = Some(tables.write_codes(form, file)?);
            }
        }
        Ok(())
    })?;
    let rows: u64 = tables.tables.iter().map(|rows| rows.len() as u64).sum();
    let rounding = change.map(|change| {
        Object::default().with("scale_share", change.scale).and(fields!(change; bias, weight, lost_scales))
    });
    if let Some(lost) = change.map(|change| change.lost_scales).filter(|&lost| lost > 0) {
        let rows = if lost == 1 { "1 row has a scale".to_owned() } else { format!("{lost} rows have scales") };
        output::note(&format!(
            "note: {rows} too small for FP16; all weights of such a row come out as its bias: take format npy or safetensors"
        ));
    }
    let about = Object::default().with("dim", dim).with("precision", precision.name());
    let more = Object::default().with("largest_change", Object::or_null(rounding));
    told(options, args, [tables.tables.len() as u64, rows], about, more)
}
