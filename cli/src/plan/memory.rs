//! `hotrow plan memory`: the bytes of a group of tables, before anything is allocated and without a device.

use super::amount::{BINDING, MOST_DIM, largest};
use super::robe;
use hotrow::internals::Pieces as _;
use hotrow::robe::Config;
use hotrow::{
    Calls, Error, GroupConfig, MemoryReport, Optimizer, OptimizerKind, Placement, Policy, Precision, StatePrecision,
    internals::Layout,
};
use hotrow_report::failure::Failure;
use hotrow_report::names::{PLACES, one_of, precisions};
use hotrow_report::object::{self, Field, Object, fields};
use hotrow_report::options::{MOST_ROWS, Options, compression, percent, whole};
use hotrow_report::output;

/// Count the memory of a group of tables to the byte, before anything is allocated; with --compression for tables that share an array (ROBE)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rows of each table of the group
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', required = true, allow_negative_numbers = true,
          value_parser = whole(1..=MOST_ROWS))]
    rows: Vec<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D[,D]", value_delimiter = ',', default_values_t = [128], allow_negative_numbers = true,
          value_parser = whole(1..=MOST_DIM))]
    dim: Vec<u32>,
    /// Precisions of the table
    #[arg(long, value_delimiter = ',', default_values_t = [Precision::Int8], value_parser = one_of(precisions()))]
    precision: Vec<Precision>,
    /// Update rules
    #[arg(long, value_delimiter = ',', default_values_t = [OptimizerKind::Sgd], value_parser = one_of(OptimizerKind::ALL))]
    optimizer: Vec<OptimizerKind>,
    /// Type of the optimiser's state of an element in a record [default: fp32 beside fp32, else fp16]
    #[arg(long, value_parser = one_of(StatePrecision::ALL))]
    state: Option<StatePrecision>,
    /// Indices of the largest batch; 0 counts only the memory that stays between steps
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [65_536], allow_negative_numbers = true,
          value_parser = whole(0u32..=1 << 30))]
    batch: Vec<u32>,
    /// Rows that the FP32 cache holds, in percent of all rows; 0: no cache
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_values_t = [10.0],
          allow_negative_numbers = true, value_parser = percent)]
    cache_percent: Vec<f64>,
    /// Replacement policies
    #[arg(long, value_delimiter = ',', default_values_t = [Policy::Lru], value_parser = one_of(Policy::ALL))]
    policy: Vec<Policy>,
    /// Placements of the table
    #[arg(long, value_delimiter = ',', default_values_t = [Placement::Device], value_parser = one_of(PLACES))]
    placement: Vec<Placement>,
    /// Count the memory of prefetched batches too
    #[arg(long)]
    prefetch: bool,
    /// Most bytes of one buffer of records [default: 2147483392, the most that Vulkan binds]
    #[arg(long, value_name = "B", allow_negative_numbers = true,
          value_parser = whole(1..=u64::MAX))]
    piece_bytes: Option<u64>,
    /// Share an array (ROBE) of so many times fewer weights than the tables have values
    #[arg(long, value_name = "X[,X]", value_delimiter = ',', allow_negative_numbers = true, value_parser = compression,
          conflicts_with_all = ["precision", "state", "cache_percent", "policy", "placement", "prefetch", "piece_bytes"])]
    compression: Vec<f64>,
    /// Values of a row that lie together in the array, Z
    #[arg(long, value_name = "Z[,Z]", value_delimiter = ',', requires = "compression", default_values_t = [robe::CHUNK],
          allow_negative_numbers = true, value_parser = whole(1..=u32::MAX))]
    chunk: Vec<u32>,
}

/// Every pair of a first and a second value; second values vary faster.
fn pairs<A: Copy, B: Copy>(firsts: &[A], seconds: &[B]) -> Vec<(A, B)> {
    firsts.iter().flat_map(|&first| seconds.iter().map(move |&second| (first, second))).collect()
}

impl Args {
    /// Plans a cached group for every combination, in the order of the options.
    fn cached(&self) -> Result<Vec<Plan>, Failure> {
        let rows = pairs(&pairs(&self.dim, &self.precision), &pairs(&self.cache_percent, &self.policy));
        let calls = pairs(&pairs(&self.optimizer, &self.placement), &self.batch);
        let mut plans = Vec::new();
        for (((dim, precision), (cache_percent, policy)), ((optimizer, placement), batch)) in pairs(&rows, &calls) {
            let mut config = GroupConfig::new(&self.rows, dim)
                .with_precision(precision)
                .with_forward_only(!precision.trains())
                .with_state(self.state)
                .with_policy(policy)
                .with_placement(placement)
                .with_optimizer(Optimizer::usual(optimizer, 0.01));
            // The percentage is at most 100, so this is at most the number of rows.
            let rows = config.total_rows();
            config.cache_rows = ((rows as f64 * cache_percent / 100.0).ceil() as u64).min(rows) as u32;
            config.set_piece_bytes(self.piece_bytes);
            let layout = Layout::new(&config, BINDING).map_err(Failure::usage)?;
            let of = |cache_rows, batch| {
                let config = config.clone().with_cache_rows(cache_rows);
                let calls = calls_of(batch).with_prefetch(self.prefetch);
                MemoryReport::plan(&config, BINDING, calls)
            };
            let report = of(config.cache_rows, batch).map_err(Failure::usage)?;
            let fits = |rows, batch| is_bound(&of(rows, batch));
            let remedy = if fits(config.cache_rows, batch) {
                None
            } else if fits(config.cache_rows, 0) {
                batch_that(batch, |batch| fits(config.cache_rows, batch))
            } else {
                // In thousandths of a percent.
                let percent = |cache: u32| (f64::from(cache) * 1e5 / rows as f64).floor() / 1e3;
                largest(config.cache_rows, |rows| fits(rows, batch))
                    .map(|cache| format!("--cache-percent {}", percent(cache)))
            };
            let settings = Object::default()
                .with("precision", precision.name())
                .with("cache_percent", cache_percent)
                .with("cache_rows", config.cache_rows)
                .with("slots", layout.slots())
                .with("policy", policy.name())
                .with("optimizer", optimizer.name())
                .with("batch", batch)
                .with("placement", placement.name())
                .with("piece_bytes", config.piece_bytes())
                .with("pieces", layout.pieces);
            plans.push((plan(dim, settings, &report), remedy));
        }
        Ok(plans)
    }

    /// Plans tables that share an array, for every combination. Bags have one index, for which outputs are largest.
    fn shared(&self) -> Result<Vec<Plan>, Failure> {
        let arrays = pairs(&pairs(&self.dim, &self.chunk), &self.compression);
        let calls = pairs(&self.optimizer, &self.batch);
        let mut plans = Vec::new();
        for (((dim, chunk), compression), (optimizer, batch)) in pairs(&arrays, &calls) {
            let mut config = Config::compressed(&self.rows, dim, compression, chunk).map_err(Failure::usage)?;
            config.optimizer = Optimizer::usual(optimizer, 0.01);
            // Windows are as large as bindings on a Vulkan device.
            config.set_window_bytes(Some(BINDING));
            config.check_batch(batch, batch).map_err(|error| {
                let fits = batch_that(batch, |batch| config.check_batch(batch, batch).is_ok());
                Failure::Usage(fits.map_or_else(|| error.to_string(), |fits| format!("{error}: {fits} fits")))
            })?;
            let of = |batch| MemoryReport::plan_robe(&config, calls_of(batch));
            let report = of(batch).map_err(Failure::usage)?;
            let (weights, compression) = (config.weights, config.compression());
            let settings = Object::default()
                .with("compression", compression)
                .with("chunk", chunk)
                .with("weights", weights)
                .with("optimizer", optimizer.name())
                .with("batch", batch);
            let fits = |batch| is_bound(&of(batch));
            plans.push((plan(dim, settings, &report), if fits(batch) { None } else { batch_that(batch, fits) }));
        }
        Ok(plans)
    }
}

/// A plan, and the options with which a device could bind its buffers, where it cannot.
type Plan = (Object, Option<String>);

/// Whether a device can bind every buffer.
fn is_bound(report: &Result<MemoryReport, Error>) -> bool {
    report.as_ref().is_ok_and(|report| report.largest().1 <= BINDING)
}

fn batch_that(most: u32, fits: impl Fn(u32) -> bool) -> Option<String> {
    largest(most, fits).map(|batch| format!("--batch {batch}"))
}

fn calls_of(batch: u32) -> Calls {
    if batch == 0 { Calls::default() } else { batch.into() }
}

/// An object of the schema of `--json`: the settings of a group, and its memory.
fn plan(dim: u32, settings: Object, report: &MemoryReport) -> Object {
    let bytes = fields!(
        report; payload, scales, record_state, cache_weights, cache_state, tags, stamps, frequencies, counters, staging, scratch, padding
    );
    let (largest, largest_bytes) = report.largest();
    let tables = report.tables.iter().map(|table| {
        fields!(table; rows, payload, scales, state, padding, frequencies).with("total_bytes", table.total())
    });
    Object::default()
        .with("rows", report.rows)
        .with("dim", dim)
        .and(settings)
        .with("bytes", bytes)
        .with("total_bytes", report.total())
        .with("kept_bytes", report.kept())
        .with("device_bytes", report.device())
        .with("host_bytes", report.host)
        .with("largest_buffer", Object::default().with("what", largest).with("bytes", largest_bytes))
        .with("formula_factor", report.formula)
        .with("factor", report.factor())
        .with("factor_with_state", report.factor_with_state())
        .with("tables", tables.collect::<Field>())
}

pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    options.check_used(false, false)?;
    let plans = if args.compression.is_empty() { args.cached()? } else { args.shared()? };
    let (plans, remedies): (Vec<Object>, Vec<_>) = plans.into_iter().unzip();
    options.write_json(&plans)?;
    for (plan, remedy) in plans.iter().zip(remedies) {
        output::print(&format!("{}\n", plan.table("plan memory")))?;
        if plan.list("tables").len() > 1 {
            output::print(&format!("What the tables do not share:\n{}\n", object::table(plan.list("tables"))))?;
        }
        let (what, bytes) = (plan.text("largest_buffer what"), plan.number("largest_buffer bytes"));
        if bytes > BINDING as f64 {
            output::note(&format!(
                "note: the buffer `{what}` takes {bytes} bytes, more than the {BINDING} of a Vulkan binding: {}",
                remedy.map_or_else(|| "make the table or the array smaller".to_owned(), |remedy| remedy + " fits")
            ));
        }
    }
    if plans.len() > 1 {
        output::print(&object::table(&plans.into_iter().map(Object::plain).collect::<Vec<_>>()))?;
    }
    Ok(())
}
