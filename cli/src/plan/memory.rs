//! `hotrow plan --memory`: what a group of tables will take, before anything is allocated and without a device.

mod report;
mod shared;

use super::{Common, robe};
use crate::failure::Failure;
use crate::names::{CachePolicyName, OptimizerName, PlacementName, PrecisionName};
use crate::options::Options;
use crate::output;
use hotrow::internals::Pieces as _;
use hotrow::{Calls, GroupConfig, Layout, MemoryReport};
use report::Plan;

/// Bytes of one binding: what a Vulkan device binds through wgpu at most.
pub(super) const BINDING: u64 = (1 << 31) - 256;

/// Indices of the largest batch, if none is given.
const BATCH: u32 = 65_536;

/// Options of `plan --memory`
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory to the byte (--memory)")]
#[group(skip)]
pub(crate) struct Args {
    /// Plan the memory of a group of tables, before anything is allocated; with --compression of one whose rows share an array (ROBE)
    #[arg(long, requires = "rows", group = "sharing")]
    pub(super) memory: bool,
    /// Rows of each table of the group
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', requires = "memory", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=4_294_967_294))]
    rows: Vec<u32>,
    /// Rows that the FP32 cache holds, in percent of all rows; 0: no cache
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', default_values_t = [10.0], requires = "memory",
          allow_negative_numbers = true, value_parser = percent)]
    cache_percent: Vec<f64>,
    /// Replacement policies
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [CachePolicyName::Lru], requires = "memory")]
    policy: Vec<CachePolicyName>,
    /// Where the table lives
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [PlacementName::Device], requires = "memory")]
    placement: Vec<PlacementName>,
    /// Batches are prefetched while the last one waits for its backward
    #[arg(long, requires = "memory")]
    prefetch: bool,
    /// Most bytes of one buffer of records [default: 2147483392, what Vulkan binds at most]
    #[arg(long, value_name = "B", requires = "memory", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u64).range(1..))]
    shard_bytes: Option<u64>,
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
    fn choices(&self, common: &Common) -> Vec<Choice> {
        let mut choices = Vec::new();
        let batches = if common.batch.is_empty() { &[BATCH][..] } else { &common.batch };
        for &dim in common.dims() {
            for &precision in &common.precision {
                for &cache_percent in &self.cache_percent {
                    for &policy in &self.policy {
                        for &optimizer in &common.optimizer {
                            for &placement in &self.placement {
                                choices.extend(batches.iter().map(|&batch| Choice {
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
        config.set_shard_bytes(self.shard_bytes);
        // What a group refuses is bad usage here.
        let layout = Layout::new(&config, BINDING).map_err(|error| Failure::Usage(error.to_string()))?;
        let calls = if choice.batch == 0 { Calls::default() } else { choice.batch.into() };
        let calls = calls.with_prefetch(self.prefetch);
        Ok(Plan::new(choice, &config, &layout, MemoryReport::plan(&config, &layout, calls)))
    }
}

/// Runs the subcommand.
pub(super) fn run(options: &Options, common: &Common, args: &Args, robe: &robe::Args) -> Result<(), Failure> {
    if robe.shared()? {
        return shared::run(options, common, &args.rows, robe);
    }
    let plans = args.choices(common).into_iter().map(|choice| args.plan(choice)).collect::<Result<Vec<_>, _>>()?;
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
