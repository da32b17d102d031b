//! The forward of shared and of cached tables over the same bags, in one run.

use hotrow::robe::Config;
use hotrow::{Error, GroupConfig, Init, Layout, Optimizer, Policy, Pooling, Precision};

use super::plan::{Batches, Behind, Plan, Runner};
use super::shape::CHUNK;
use crate::bench::suite::shapes::{random, zipf};
use crate::report::run::Run;
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Rows in a bag: as in TBE's benchmark, and one.
const BAGS: [u32; 2] = [20, 1];
/// Skew of the rows, as in TBE's benchmarks.
const ALPHA: f64 = 1.05;
/// Number of batches that are looked up in turn.
const TURNS: usize = 4;
/// Number of batches that fill a cache before the measurement.
const WARM: usize = 12;

#[derive(Clone, Copy)]
enum Table {
    /// The precision, and the share 1/N of the rows that fits the cache; 0 for no cache.
    Cached(Precision, u32),
    Shared(f64),
}

const TABLES: [(&str, Table); 6] = [
    ("FP32, no cache", Table::Cached(Precision::Fp32, 0)),
    ("INT8, 5 % LFU", Table::Cached(Precision::Int8, 20)),
    ("INT8, 10 % LFU", Table::Cached(Precision::Int8, 10)),
    ("ROBE 10x", Table::Shared(10.0)),
    ("ROBE 100x", Table::Shared(100.0)),
    ("ROBE 1000x", Table::Shared(1_000.0)),
];

pub(super) fn run(plan: &Plan<'_>, run: &mut Run, runner: &mut dyn Runner) -> anyhow::Result<()> {
    let (rows, bags): (u32, u32) = match (plan.size.is_full(), plan.backend) {
        (true, "gpu") => (4_000_000, 10_240),
        // 512 MB in FP32.
        (true, _) => (1_000_000, 10_240),
        (false, _) => (40_000, 256),
    };
    run.describe("beside", format!("{bags} bags, sum, rows by Zipf {ALPHA} of a table of {rows} x {}", plan.shape.dim));
    let pool: Vec<u32> = (0..rows).collect();
    for bag in BAGS {
        let mut random = random(plan.seed, u64::from(bag));
        let mut draw = |n: usize| -> anyhow::Result<Vec<_>> {
            (0..n).map(|_| zipf(&pool, (bags * bag) as usize, ALPHA, &mut random)).collect()
        };
        let (warm, turns) = (draw(WARM)?, draw(TURNS)?);
        let batches = Batches { rows: &turns, bag };
        let mut plain = None;
        for (name, table) in TABLES {
            let setting = Setting::default().with("bags of", bag).with("table", name);
            let mut at = run.at("beside", &setting);
            let mut measure = || -> anyhow::Result<(Times, Option<f64>)> {
                let wanted = match table {
                    Table::Cached(precision, part) => Ok(cached(plan, rows, precision, part)?),
                    Table::Shared(compression) => Err(shared(plan, rows, compression)?),
                };
                let bytes = wanted.as_ref().map_or_else(Config::table_bytes, |(_, bytes)| *bytes);
                at.push("memory", bytes as f64, Unit::Bytes);
                plan.has_room(bytes, "a table").map_err(anyhow::Error::msg)?;
                match wanted {
                    Ok((config, _)) => {
                        runner.cached(&config, &warm, &batches).map(|(times, hit_rate)| (times, Some(hit_rate)))
                    }
                    Err(config) => {
                        runner.array(config, false)?;
                        Ok((runner.steps(&batches, Behind::Nothing)?[0], None))
                    }
                }
            };
            match measure() {
                Ok((times, hit_rate)) => {
                    if name.starts_with("FP32") {
                        plain = Some(times.median);
                    }
                    at.push("hit rate", hit_rate, Unit::Share);
                    at.timed("forward", times);
                    at.push("against FP32", plain.map(|plain| times.median / plain), Unit::Times);
                }
                Err(reason) => run.leave_out(format!("{name} in bags of {bag}"), format!("{reason:#}")),
            }
        }
    }
    Ok(())
}

/// The configuration of a cached table, and its bytes of weights, state and cache.
fn cached(plan: &Plan<'_>, rows: u32, precision: Precision, part: u32) -> Result<(GroupConfig, u64), Error> {
    let cache_rows = rows.checked_div(part).unwrap_or(0);
    let mut config = GroupConfig::new(&[rows], plan.shape.dim);
    (config.precision, config.cache_rows, config.policy) = (precision, cache_rows, Policy::Lfu);
    (config.optimizer, config.pooling, config.seed) = (Optimizer::sgd(1e-3), Pooling::Sum, plan.seed);
    config.init = Init::Uniform { low: -0.1, high: 0.1 };
    let layout = Layout::new(&config, u64::MAX)?;
    let bytes = u64::from(rows) * layout.stride() + u64::from(layout.slots()) * layout.slot_bytes();
    Ok((config, bytes))
}

/// The configuration of a shared table.
fn shared(plan: &Plan<'_>, rows: u32, compression: f64) -> Result<Config, Error> {
    let dim = plan.shape.dim;
    let config = Config::compressed(&[rows], dim, compression, CHUNK.min(dim))?;
    Ok(config.with_optimizer(Optimizer::sgd(1e-3)).with_seed(plan.seed))
}
