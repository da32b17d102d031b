//! `hotrow plan robe`: the loss of a given table in a shared array (ROBE, definition 2).

use super::amount;
use crate::import::number;
use crate::tensors::{FLOATS, Stacked, Tensors, converted};
use hotrow::robe::Config;
use hotrow::{CpuGroup, Source, checkpoint, prelude::*};
use hotrow_plan::{
    Error,
    fidelity::{Fidelity, Row, fit},
};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::options::{MOST_ROWS, Options, TraceArgs, compression, whole};
use hotrow_report::output;
use hotrow_report::records::{self, Measurement, Setting, Unit};
use rand::SeedableRng;
use rand::seq::index;
use rand_pcg::Pcg64;
use serde_json::json;
use std::path::Path;

/// The chunk of ROBE's paper.
pub(crate) const CHUNK: u32 = 32;

/// No compression, and those of ROBE's paper.
pub(crate) const COMPRESSIONS: [f64; 5] = [1.0, 10.0, 100.0, 1000.0, 10_000.0];

/// The most weights of an array that is fitted by default; a fit of it takes 5 GiB.
const MOST_WEIGHTS: u32 = 1 << 28;

/// Measure how much of a table a shared array (ROBE) would lose
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table: a .npy file or a checkpoint (.safetensors)
    #[arg(value_name = "TABLE")]
    table: String,
    /// Trace whose lookups weight the rows: a file, a name in the data folder, or generated
    #[arg(long, value_name = "T")]
    trace: Option<String>,
    #[command(flatten)]
    reading: TraceArgs,
    /// How many times fewer weights than the table has values [default: 1,10,100,1000,10000, if at least a chunk and at most 2^28 weights
    /// are left; a fit takes 20 B a weight]
    #[arg(long, value_name = "X[,X]", value_delimiter = ',', allow_negative_numbers = true, value_parser = compression)]
    compression: Vec<f64>,
    /// Values of a row that lie together in the array, Z
    #[arg(long, value_name = "Z[,Z]", value_delimiter = ',', default_values_t = [CHUNK], allow_negative_numbers = true,
          value_parser = whole(1..=u32::MAX))]
    chunk: Vec<u32>,
    /// Rows to measure, or lookups of a trace, drawn at random
    #[arg(long, value_name = "N", default_value_t = 10_000, allow_negative_numbers = true, value_parser = amount::count)]
    sample: u64,
}

/// The setting of the records of an array of this compression.
pub(crate) fn setting(config: &Config, compression: f64) -> Setting {
    Setting::default()
        .with("rows", config.tables.iter().map(|&rows| f64::from(rows)).sum::<f64>())
        .with("compression", compression)
        .with("chunk", config.chunk)
        .with("weights", config.weights)
}

/// A configuration that the library refuses is bad usage.
fn usage(error: impl Into<Error>) -> Failure {
    match error.into() {
        error @ (Error::Argument { .. } | Error::Hotrow(hotrow::Error::Config { .. })) => Failure::usage(error),
        error => error.into(),
    }
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, args.trace.is_some())?;
    let mut read = options.trace_files(args.trace.as_slice());
    read.push(args.table.as_str().into());
    output::check_files(options.json.as_deref(), None, &[], &read)?;
    let table = open(&args.table)?;
    let uses = args.trace.as_deref().map(|trace| Uses::new(options, args, trace, &table)).transpose()?;
    // Distinct rows in random order, or the rows of lookups.
    let all = uses.as_ref().map_or(table.rows as usize, |uses| uses.ids.len());
    let most = usize::try_from(args.sample).unwrap_or(all).min(all);
    let drawn = index::sample(&mut Pcg64::seed_from_u64(options.seed), all, most).into_iter();
    let rows: Vec<u32> = drawn.map(|place| uses.as_ref().map_or(place as u32, |uses| uses.ids[place])).collect();
    let measured = |config: &Config| -> Result<Fidelity, Failure> {
        let weights = fit(config, &*table.source, uses.as_ref().map(|uses| &uses.counts[..])).map_err(usage)?;
        Ok(Fidelity::new(config, &weights, &*table.source, &rows)?)
    };
    // The mean of all values in every place is the limit for an array of few weights.
    let constant = measured(&Config::new(&table.tables, table.dim, 1, 1))?;
    let mut all = Vec::new();
    for config in configs(&table, args)? {
        all.extend(records_of(&config, &measured(&config)?, &constant));
    }
    let (Table { name, kind, tables, rows: table_rows, dim, .. }, values) = (&table, table.values());
    let (by, rms_length) = (uses.as_ref().map_or("row", |uses| &uses.name), constant.rms_length());
    if let Some(path) = &options.json {
        let table = json!({
            "name": name, "kind": kind, "tables": tables, "rows": table_rows, "dim": dim, "values": values, "bytes": 4 * values,
        });
        let sample = json!({ "rows": rows.len(), "by": by, "rms_length": rms_length });
        records::write_json(path, &json!({ "command": "plan robe", "table": table, "sample": sample }), &all)?;
    }
    let (bytes, length) = (Unit::Bytes.show(4.0 * values as f64), Unit::Length.show(rms_length));
    let text = records::table(&all, &["chunk", "what"], "weights").unwrap_or_default();
    Ok(output::print(&format!(
        "plan robe: {name} ({kind}), {table_rows} rows x {dim}, {bytes}; {} rows by {by}, of root mean square length {length}\n\n\
         What rows lose in an array, by its weights; eps: the distance of a row from what comes back.\n\n{text}\n",
        rows.len()
    ))?)
}

/// The arrays to fit: every chunk with every compression.
fn configs(table: &Table, args: &Args) -> Result<Vec<Config>, Failure> {
    let unasked = args.compression.is_empty();
    let compressions = if unasked { &COMPRESSIONS[..] } else { &args.compression };
    let mut configs = Vec::new();
    for &chunk in &args.chunk {
        let before = configs.len();
        for &compression in compressions {
            let config = Config::compressed(&table.tables, table.dim, compression, chunk);
            if !unasked || config.as_ref().is_ok_and(|config| config.weights <= MOST_WEIGHTS) {
                configs.push(config.map_err(usage)?);
            }
        }
        ensure_usage!(
            configs.len() > before,
            "--chunk: wanted at most {}, since no larger array is fitted unasked for the {} values of {}, found {chunk}; make it smaller, or \
             name a --compression",
            table.values().min(MOST_WEIGHTS.into()),
            table.values(),
            table.name
        );
    }
    Ok(configs)
}

/// The figures of an array. Those relative to a row's own length are not finite for a row of length 0 that is not kept exactly.
fn records_of(config: &Config, found: &Fidelity, constant: &Fidelity) -> Vec<Measurement> {
    let (lost, eps) = (found.mean_square(), |row: &Row| row.eps);
    let setting = setting(config, config.compression());
    [
        ("bytes", 4.0 * f64::from(config.weights), Unit::Bytes),
        ("eps, median", found.quantile(0.5, eps), Unit::Length),
        ("eps, 95 %", found.quantile(0.95, eps), Unit::Length),
        ("eps, largest", found.quantile(1.0, eps), Unit::Length),
        ("eps, root mean square", lost.sqrt(), Unit::Length),
        ("relative, median", found.quantile(0.5, Row::relative), Unit::Share),
        ("relative, 95 %", found.quantile(0.95, Row::relative), Unit::Share),
        ("relative, largest", found.quantile(1.0, Row::relative), Unit::Share),
        // The mean of eps^2 divided by that of one weight for all.
        ("lost", if lost == 0.0 { 0.0 } else { lost / constant.mean_square() }, Unit::Share),
    ]
    .map(|(what, value, unit)| Measurement::new(what, "array", &setting, value, unit))
    .into()
}

/// The lookups of a trace, and their number for each row.
struct Uses {
    name: String,
    ids: Vec<u32>,
    counts: Vec<u32>,
}

impl Uses {
    fn new(options: &Options, args: &Args, trace: &str, table: &Table) -> Result<Self, Failure> {
        let trace = options.trace(trace, &args.reading, None)?;
        ensure_usage!(
            !trace.numbered,
            "--trace: wanted ids that are rows of {}, found others in {}; write the row of each access",
            table.name,
            trace.name
        );
        let mut counts = vec![0; table.rows as usize];
        for &id in &trace.ids {
            let Some(count) = counts.get_mut(id as usize) else {
                return Err(Failure::Usage(format!(
                    "--trace: wanted ids below {}, the rows of {}, found {id}; name the trace of this table",
                    table.rows, table.name
                )));
            };
            *count += 1;
        }
        Ok(Self { name: trace.name, ids: trace.ids, counts })
    }
}

/// An array of numpy's, or a checkpoint.
struct Table {
    name: String,
    /// `numpy` or `checkpoint`.
    kind: &'static str,
    /// Rows of each table; a checkpoint may hold several.
    tables: Vec<u32>,
    /// Rows of all tables together.
    rows: u32,
    dim: u32,
    source: Box<dyn Source>,
}

impl Table {
    fn values(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.dim)
    }
}

fn open(text: &str) -> Result<Table, Failure> {
    let (path, name) = (Path::new(text), text.to_owned());
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("npy") => {
            let tensors = Tensors::npy(path)?;
            let matrix = tensors.matrix(&tensors.names()[0], &FLOATS)?;
            let [rows, dim] = matrix.shape;
            converted(std::slice::from_ref(&matrix))
                .iter()
                .for_each(|note| output::note(&format!("note: {text}: {note}")));
            let (rows, dim) = (number(path, "rows", rows, MOST_ROWS)?, number(path, "dim", dim, amount::MOST_DIM)?);
            let source = Box::new(Stacked { tensors, matrices: vec![matrix] });
            Ok(Table { name, kind: "numpy", tables: vec![rows], rows, dim, source })
        }
        // The newest values of all rows are read into memory.
        Some("safetensors") => {
            let config = checkpoint::contents(path)?.0;
            let (tables, dim, rows) = (config.tables.clone(), config.dim, config.total_rows() as u32);
            let mut group = CpuGroup::new(config)?;
            checkpoint::load(&mut group, path)?;
            let source = Box::new(group.read_rows(&(0..rows).collect::<Vec<_>>())?);
            Ok(Table { name, kind: "checkpoint", tables, rows, dim, source })
        }
        _ => Err(Failure::Usage(format!(
            "{text}: wanted a .npy file or a checkpoint (.safetensors), found another ending; name such a file"
        ))),
    }
}
