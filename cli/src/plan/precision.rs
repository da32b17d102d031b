//! `hotrow plan precision`: the rows of a table, sorted by their use into groups of different precisions.

use super::amount;
use super::amount::MOST_DIM;
use hotrow::{GroupConfig, Optimizer, OptimizerKind, Precision};
use hotrow_plan::precision::{Kind, by_use};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::names::one_of;
use hotrow_report::object::{Field, Object, table};
use hotrow_report::options::{MOST_ROWS, Options, TraceArgs, whole};
use hotrow_report::output;
use npyz::WriterBuilder as _;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Sort the rows of a table by their lookups into groups of different precisions that have a number of bytes together
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Lookups: a file, a name in the data folder, or generated
    #[arg(long, value_name = "T")]
    trace: String,
    #[command(flatten)]
    reading: TraceArgs,
    /// Rows of the table [default: up to the last that the trace looks up]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1..=MOST_ROWS))]
    rows: Option<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D", default_value_t = 128, allow_negative_numbers = true, value_parser = whole(1..=MOST_DIM))]
    dim: u32,
    /// Update rule, whose state a record has, too
    #[arg(long, default_value_t = OptimizerKind::Sgd, value_parser = one_of(OptimizerKind::ALL))]
    optimizer: OptimizerKind,
    /// Precisions of the groups
    #[arg(long, value_name = "P,P[,P]", value_delimiter = ',', default_values_t = [Precision::Fp16, Precision::Int8, Precision::Int4],
          value_parser = one_of(Precision::ALL))]
    precisions: Vec<Precision>,
    /// Bytes of all records together, such as 64MiB
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = amount::some_bytes)]
    bytes: u64,
    /// Write STEM.map.npy, for each row its group and its row there, and STEM.json, the groups
    #[arg(long, value_name = "STEM", value_parser = output::stem())]
    out: PathBuf,
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, true)?;
    let (map, about) = (output::with_ending(&args.out, ".map.npy"), output::with_ending(&args.out, ".json"));
    let read = options.trace_files(std::slice::from_ref(&args.trace));
    for file in [&map, &about] {
        output::check_out(file, options.json.as_deref(), &read)?;
    }
    let optimizer = Optimizer::usual(args.optimizer, 0.01);
    let config = GroupConfig::new(&[1], args.dim).with_optimizer(optimizer);
    let kinds = args.precisions.iter().map(|&one| Kind::new(&config, one)).collect::<Result<Vec<_>, _>>();
    let mut kinds = kinds.map_err(Failure::usage)?;
    kinds.sort_by_key(|kind| Reverse(kind.bytes));
    let trace = options.trace(&args.trace, &args.reading, None)?;
    ensure_usage!(
        !trace.numbered,
        "--trace: wanted ids that are rows of one table, found others in {}; write the row of each access",
        trace.name
    );
    let last = trace.ids.iter().max().map_or(1, |&id| id + 1);
    let rows = args.rows.unwrap_or(last);
    ensure_usage!(rows >= last, "--rows: wanted at least {last}, the trace's, found {rows}");
    let mut uses = vec![0u64; rows as usize];
    trace.ids.iter().for_each(|&id| uses[id as usize] += 1);
    let group_of = by_use(&uses, &kinds, args.bytes).map_err(|error| Failure::Usage(format!("--{error}")))?;
    // A group has its rows in the order of the table.
    let mut next = vec![0u32; kinds.len()];
    let places = group_of.iter().flat_map(|&group| {
        next[group as usize] += 1;
        [group, next[group as usize] - 1]
    });
    output::replace(&map, |file| {
        let shape = [u64::from(rows), 2];
        let mut array = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd()?;
        array.extend(places)?;
        Ok(array.finish()?)
    })?;
    let all: u64 = uses.iter().sum();
    let mut bytes = 0;
    let groups = (0..).zip(&kinds).map(|(group, kind)| {
        let own = || group_of.iter().zip(&uses).filter(|(of, _)| **of == group);
        let (rows, lookups) = (own().count() as u64, own().map(|(_, uses)| uses).sum::<u64>());
        bytes += rows * kind.bytes;
        Object::default()
            .with("precision", kind.precision.name())
            .with("rows", rows)
            .with("bytes", rows * kind.bytes)
            .with("lookup_share", lookups as f64 / all.max(1) as f64)
    });
    let groups: Vec<Object> = groups.collect();
    let report = Object::default()
        .with("trace", trace.name.as_str())
        .with("rows", rows)
        .with("dim", args.dim)
        .with("optimizer", args.optimizer.name())
        .with("bytes", bytes)
        .with("groups", groups.iter().cloned().collect::<Field>());
    output::write_json(&about, &report)?;
    options.write_json(&report)?;
    Ok(output::print(&format!("{}\n{}", report.table("rows by use"), table(&groups)))?)
}
