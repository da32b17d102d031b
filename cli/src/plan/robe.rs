//! `hotrow plan robe`: the loss of a given table in a shared array (ROBE, definition 2), and the array size for a wanted eps.

pub(crate) mod arrays;
mod report;
mod table;

use super::amount::{self, MOST_DIM};
use hotrow::robe::Config;
use hotrow_plan::{
    Error,
    fidelity::{Fidelity, Fit, Size, WantedEps, size_for},
};
use hotrow_report::failure::{Failure, ensure_usage};
use hotrow_report::options::{Options, TraceArgs, compression, whole};
use hotrow_report::output;
use rand::SeedableRng;
use rand::seq::index;
use rand_pcg::Pcg64;
use report::Answer;
use table::Table;

pub(super) use arrays::CHUNK;
use arrays::{COMPRESSIONS, arrays};

/// The most weights of an array that is fitted by default; a fit of it takes 5 GiB.
const MOST_WEIGHTS: u32 = 1 << 28;

/// Measure how much of a table a shared array (ROBE) would lose
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table: a .npy file, a checkpoint (.safetensors), a file of nothing but FP32 rows (with --dim), or generated:
    /// normal:rows=..,dim=..[,mean=..,std=..], clustered:rows=..,dim=..,clusters=..[,noise=..]
    #[arg(value_name = "TABLE")]
    table: String,
    /// Floats in a row of the table, if the file does not say
    #[arg(long, value_name = "D", allow_negative_numbers = true, value_parser = whole(1..=MOST_DIM))]
    dim: Option<u32>,
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
    /// Search the smallest array that keeps each sampled row within this: a length such as 0.5, or 10% of the row's own
    #[arg(long, value_name = "EPS", allow_negative_numbers = true, value_parser = eps)]
    eps: Option<WantedEps>,
    /// Share of the sampled rows that must keep to --eps [default: 1]
    #[arg(long, value_name = "SHARE", requires = "eps", allow_negative_numbers = true, value_parser = amount::share)]
    quantile: Option<f64>,
    /// Rows to measure, or lookups of a trace, drawn at random
    #[arg(long, value_name = "N", default_value_t = 10_000, allow_negative_numbers = true, value_parser = amount::count)]
    sample: u64,
}

/// Reads a wanted eps for every row.
fn eps(text: &str) -> Result<WantedEps, String> {
    match text.trim().strip_suffix('%') {
        Some(percent) => Ok(WantedEps::relative(amount::positive(percent)? / 100.0)),
        None => Ok(WantedEps::absolute(amount::positive(text)?)),
    }
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, args.trace.is_some())?;
    let mut read = options.trace_files(args.trace.as_slice());
    read.push(args.table.as_str().into());
    output::check_files(options.json.as_deref(), None, &[], &read)?;
    let table = table::open(&args.table, args.dim, options.group_seed())?;
    let uses = args.trace.as_deref().map(|trace| Uses::new(options, args, trace, &table)).transpose()?;
    let mut random = Pcg64::seed_from_u64(options.seed);
    let rows = sample(&table, uses.as_ref(), args.sample, &mut random);
    let job = Job { table, uses, rows };
    let answer = job.answer(args)?;
    if let Some(path) = &options.json {
        answer.write(path)?;
    }
    Ok(output::print(&answer.text())?)
}

/// The number of lookups of each row.
struct Uses {
    name: String,
    ids: Vec<u32>,
    counts: Vec<u32>,
}

impl Uses {
    fn new(options: &Options, args: &Args, trace: &str, table: &Table) -> Result<Self, Failure> {
        let trace = options.trace(trace, &args.reading)?;
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

/// The rows to measure, in random order: distinct ones, or the rows of lookups.
fn sample(table: &Table, uses: Option<&Uses>, most: u64, random: &mut Pcg64) -> Vec<u32> {
    let all = uses.map_or(table.rows as usize, |uses| uses.ids.len());
    let places = index::sample(random, all, usize::try_from(most).unwrap_or(all).min(all));
    places.into_iter().map(|place| uses.map_or(place as u32, |uses| uses.ids[place])).collect()
}

struct Job {
    table: Table,
    uses: Option<Uses>,
    rows: Vec<u32>,
}

/// A configuration that the library refuses is bad usage.
fn usage(error: impl Into<Error>) -> Failure {
    match error.into() {
        error @ (Error::Argument { .. } | Error::Hotrow(hotrow::Error::Config { .. })) => Failure::usage(error),
        error => error.into(),
    }
}

impl Job {
    fn answer(&self, args: &Args) -> Result<Answer<'_>, Failure> {
        let Self { table, uses, rows } = self;
        let configs = self.configs(args)?;
        let one_weight = Config::new(&table.tables, table.dim, 1, 1);
        let (constant, _) = self.measured(&one_weight)?;
        let wanted = args.eps.map(|eps| WantedEps { quantile: args.quantile.unwrap_or(1.0), ..eps });
        let by = uses.as_ref().map_or("row", |uses| &uses.name);
        let mut answer =
            Answer { table, rows: rows.len(), by, constant: constant.clone(), wanted, records: Vec::new() };
        for config in &configs {
            let (found, unlike) = self.measured(config)?;
            answer.fit(config, &found, unlike)?;
        }
        answer.fit(&one_weight, &constant, None)?;
        if let Some(wanted) = wanted {
            for &chunk in &args.chunk {
                let (size, unlike) = self.size(chunk, wanted, &constant)?;
                answer.size(chunk, &size, unlike);
            }
        }
        Ok(answer)
    }

    /// The arrays to fit: every chunk with every compression.
    fn configs(&self, args: &Args) -> Result<Vec<Config>, Failure> {
        let table = &self.table;
        let unasked = args.compression.is_empty();
        let compressions = if unasked { &COMPRESSIONS[..] } else { &args.compression };
        let mut configs = Vec::new();
        for &chunk in &args.chunk {
            let before = configs.len();
            for (_, config) in arrays(&table.tables, table.dim, chunk, compressions) {
                if unasked && !config.as_ref().is_ok_and(|config| config.weights <= MOST_WEIGHTS) {
                    continue;
                }
                configs.push(config.map_err(usage)?);
            }
            ensure_usage!(
                configs.len() > before,
                "--chunk: wanted at most {}, since no larger array is fitted unasked for the {} values of {}, found {chunk}; make it \
                     smaller, or name a --compression",
                table.values().min(MOST_WEIGHTS.into()),
                table.values(),
                table.name
            );
        }
        Ok(configs)
    }

    fn measured(&self, config: &Config) -> Result<(Fidelity, Option<f64>), Failure> {
        let fit = Fit::new(config, &*self.table.source, self.counts()).map_err(usage)?;
        let unlike = fit.unlike_share(&self.rows)?;
        Ok((fit.fidelity(&*self.table.source, &self.rows)?, unlike))
    }

    fn counts(&self) -> Option<&[u32]> {
        self.uses.as_ref().map(|uses| &uses.counts[..])
    }

    fn size(&self, chunk: u32, wanted: WantedEps, constant: &Fidelity) -> Result<(Size, Option<f64>), Failure> {
        let table = &self.table;
        let config = Config::new(&table.tables, table.dim, chunk, chunk);
        ensure_usage!(
            table.values() <= u64::from(MOST_WEIGHTS),
            "--eps: wanted a table of at most {MOST_WEIGHTS} values, since arrays up to its size are fitted at 20 B a weight, found {} in {}; \
                 give --compression alone, or fewer rows",
            table.values(),
            table.name
        );
        let size = size_for(&config, &*table.source, self.counts(), &self.rows, wanted).map_err(usage)?;
        let unlike = self.uses.is_none().then(|| wanted.unlike_weights(constant, table.values()).max(f64::from(chunk)));
        Ok((size, unlike))
    }
}
