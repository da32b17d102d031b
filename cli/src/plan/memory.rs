//! `hotrow plan memory`: what a group of tables will take, before anything is allocated and without a device.

mod report;
mod shared;

use super::{BINDING, MOST_DIM, robe};
use crate::failure::Failure;
use crate::names::{CachePolicyName, OptimizerName, PlacementName, PrecisionName};
use crate::options::Options;
use crate::output;
use hotrow::{Calls, GroupConfig, Layout, MemoryReport};
use report::Plan;

/// The memory of a group of tables, to the byte, before anything is allocated; with --compression of tables whose rows share an array (ROBE)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rows of each table of the group
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', required = true, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4_294_967_294))]
    rows: Vec<u32>,
    /// Floats in a row
    #[arg(long, value_name = "D[,D]", value_delimiter = ',', default_values_t = [128], allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=MOST_DIM))]
    dim: Vec<u32>,
    /// Precisions of the table
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PrecisionName::Int8])]
    precision: Vec<PrecisionName>,
    /// Update rules
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [OptimizerName::Sgd])]
    optimizer: Vec<OptimizerName>,
    /// Indices of the largest batch; 0: only what stays between steps
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [65_536], allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    batch: Vec<u32>,
    /// Rows that the FP32 cache holds, in percent of all rows; 0: no cache
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_values_t = [10.0],
          allow_negative_numbers = true, value_parser = percent)]
    cache_percent: Vec<f64>,
    /// Replacement policies
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [CachePolicyName::Lru])]
    policy: Vec<CachePolicyName>,
    /// Where the table lives
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PlacementName::Device])]
    placement: Vec<PlacementName>,
    /// Batches are prefetched while the last one waits for its backward
    #[arg(long)]
    prefetch: bool,
    /// Most bytes of one buffer of records [default: 2147483392, what Vulkan binds at most]
    #[arg(long, value_name = "B", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    shard_bytes: Option<u64>,
    /// The rows share an array (ROBE) of so many times fewer weights than the tables have values
    #[arg(long, value_name = "X[,X]", value_delimiter = ',', allow_negative_numbers = true,
          conflicts_with_all = ["precision", "cache_percent", "policy", "placement", "prefetch", "shard_bytes"])]
    compression: Vec<f64>,
    /// Neighbouring values of a row that lie together in the array, Z
    #[arg(long, value_name = "Z[,Z]", value_delimiter = ',', requires = "compression", default_values_t = [robe::CHUNK],
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    chunk: Vec<u32>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("wanted a number from 0 to 100".to_owned()),
    }
}

/// What a user chose for one plan.
#[derive(Clone, Copy, Debug)]
struct Choice {
    dim: u32,
    precision: PrecisionName,
    cache_percent: f64,
    policy: CachePolicyName,
    optimizer: OptimizerName,
    batch: u32,
    placement: PlacementName,
}

impl Args {
    /// Every combination, in the order the options name them.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for &dim in &self.dim {
            for &precision in &self.precision {
                for &cache_percent in &self.cache_percent {
                    for &policy in &self.policy {
                        for &optimizer in &self.optimizer {
                            for &placement in &self.placement {
                                choices.extend(self.batch.iter().map(|&batch| Choice {
                                    dim,
                                    precision,
                                    cache_percent,
                                    policy,
                                    optimizer,
                                    batch,
                                    placement,
                                }));
                            }
                        }
                    }
                }
            }
        }
        choices
    }

    fn plan(&self, choice: Choice) -> Result<Plan, Failure> {
        let mut config = GroupConfig::new(&self.rows, choice.dim);
        config.precision = choice.precision.precision();
        config.policy = choice.policy.policy();
        config.placement = choice.placement.placement();
        config.optimizer = choice.optimizer.optimizer(0.01);
        // Within the rows, since the percentage is at most 100.
        let rows = config.total_rows();
        config.cache_rows = ((rows as f64 * choice.cache_percent / 100.0).ceil() as u64).min(rows) as u32;
        config.shard_bytes = self.shard_bytes;
        // What a group refuses is bad usage here.
        let layout = Layout::new(&config, BINDING).map_err(|error| Failure::Usage(error.to_string()))?;
        let calls = if choice.batch == 0 { Calls::default() } else { choice.batch.into() };
        let calls = Calls { prefetch: self.prefetch, ..calls };
        Ok(Plan::new(choice, &config, &layout, MemoryReport::plan(&config, &layout, calls)))
    }
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, args: &Args) -> Result<(), Failure> {
    if !args.compression.is_empty() {
        return shared::run(options, args);
    }
    let plans = args.choices().into_iter().map(|choice| args.plan(choice)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = &options.json {
        output::write_json(path, &plans)?;
    }
    for plan in &plans {
        output::print(&plan.text())?;
    }
    if plans.len() > 1 {
        output::print(&report::summary(&plans))?;
    }
    for plan in &plans {
        if let Some(warning) = plan.too_large() {
            output::note(&warning);
        }
    }
    Ok(())
}
