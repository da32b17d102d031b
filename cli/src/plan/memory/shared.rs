//! `--memory --compression`: what tables take whose rows share one array (ROBE).

use super::report::Taken;
use super::{BATCH, BINDING};
use crate::failure::Failure;
use crate::names::{OptimizerName, option_name};
use crate::options::Options;
use crate::output;
use crate::plan::{Common, robe};
use hotrow::internals::Pieces as _;
use hotrow::robe::Config;
use hotrow::{Calls, MemoryReport};
use serde::Serialize;

/// One plan. The fields and their order are the schema of `--json`.
#[derive(Debug, Serialize)]
struct Plan {
    rows: u64,
    dim: u32,
    compression: f64,
    chunk: u32,
    weights: u32,
    optimizer: OptimizerName,
    batch: u32,
    #[serde(flatten)]
    taken: Taken,
}

impl Plan {
    fn new(config: &Config, optimizer: OptimizerName, batch: u32) -> Result<Self, hotrow::Error> {
        config.check_batch(batch, batch)?;
        let calls = if batch == 0 { Calls::default() } else { batch.into() };
        let report = MemoryReport::plan_robe(config, calls)?;
        Ok(Self {
            rows: report.rows,
            dim: config.dim,
            compression: config.compression(),
            chunk: config.chunk,
            weights: config.weights,
            optimizer,
            batch,
            taken: Taken::of(report),
        })
    }

    fn title(&self) -> String {
        format!(
            "{} rows x {} in {} shared weights ({:.6} times fewer, chunks of {}), {}, batches of {} indices",
            self.rows,
            self.dim,
            self.weights,
            self.compression,
            self.chunk,
            option_name(&self.optimizer),
            self.batch
        )
    }
}

/// Every combination, in the order the options name them; a bag an index, which is the most that outputs take.
pub(super) fn run(options: &Options, common: &Common, rows: &[u32], asked: &robe::Args) -> Result<(), Failure> {
    let batches = if common.batch.is_empty() { &[BATCH][..] } else { &common.batch };
    let mut plans = Vec::new();
    for &dim in common.dims() {
        for &chunk in asked.chunks() {
            for &compression in asked.compressions() {
                for &optimizer in &common.optimizer {
                    for &batch in batches {
                        let plan = Config::compressed(rows, dim, compression, chunk).and_then(|config| {
                            // As a Vulkan device cuts it.
                            let window_bytes = Some(BINDING);
                            let config =
                                config.with_optimizer(optimizer.optimizer(0.01)).with_window_bytes(window_bytes);
                            Plan::new(&config, optimizer, batch)
                        });
                        // What a group refuses is bad usage here.
                        plans.push(plan.map_err(|error| Failure::Usage(error.to_string()))?);
                    }
                }
            }
        }
    }
    if let Some(path) = &options.json {
        output::write_json(path, &plans)?;
    }
    for plan in &plans {
        output::print(&plan.taken.text(&plan.title(), "P4's formula"))?;
    }
    if plans.len() > 1 {
        output::print(&summary(&plans))?;
    }
    for plan in &plans {
        if let Some(warning) = plan.taken.too_large(&plan.title(), "make the batch smaller, or compress more") {
            output::note(&warning);
        }
    }
    Ok(())
}

/// One line a plan.
fn summary(plans: &[Plan]) -> String {
    let header = ["optimizer", "dim", "compression", "chunk", "batch", "weights", "kept", "device bytes", "factor"];
    let mut table = output::table(header, 1);
    for plan in plans {
        table.add_row([
            option_name(&plan.optimizer),
            plan.dim.to_string(),
            format!("{:.2}", plan.compression),
            plan.chunk.to_string(),
            plan.batch.to_string(),
            plan.weights.to_string(),
            plan.taken.kept_bytes.to_string(),
            plan.taken.device_bytes.to_string(),
            format!("{:.6}", plan.taken.factor),
        ]);
    }
    table.to_string()
}
