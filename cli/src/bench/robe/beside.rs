//! The forward of a batch of bags, of shared tables and of cached ones in the same run.

use hotrow::robe::Config;
use hotrow::{GroupConfig, Init, Optimizer, Policy, Pooling, Precision};

use super::Plan;
use super::shape::CHUNK;
use crate::bench::suite::shapes::{random, zipf};
use crate::report::run::Run;
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Rows in a bag: TBE's, and one.
const BAGS: [u32; 2] = [20, 1];
/// Skew of the rows, as in TBE's benchmarks.
const ALPHA: f64 = 1.05;
/// Batches in turn.
const TURNS: usize = 4;
/// Batches that fill a cache before.
const WARM: usize = 12;
const COMPRESSIONS: [f64; 3] = [10.0, 100.0, 1_000.0];

/// A table to look up in.
pub(super) enum Table {
    Cached(Box<GroupConfig>),
    Robe(Config),
}

/// What its forward took.
pub(super) struct Forward {
    pub(super) times: Times,
    pub(super) hit_rate: Option<f64>,
}

/// A table with the bytes of weights, state and cache; or why there is none.
type Made = Result<(Table, u64), String>;

/// All of them, by name.
fn tables(rows: u32, dim: u32, seed: u32) -> Vec<(String, Made)> {
    let cached = |precision, cache_rows| {
        let mut config = GroupConfig::new(&[rows], dim);
        (config.precision, config.cache_rows, config.policy) = (precision, cache_rows, Policy::Lfu);
        (config.optimizer, config.pooling, config.seed) = (Optimizer::sgd(1e-3), Pooling::Sum, seed);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        let layout = hotrow::Layout::new(&config, u64::MAX).map_err(|error| error.to_string())?;
        let bytes = u64::from(rows) * layout.stride() + u64::from(layout.slots()) * layout.slot_bytes();
        Ok((Table::Cached(Box::new(config)), bytes))
    };
    let shared = |compression| {
        let config =
            Config::compressed(&[rows], dim, compression, CHUNK.min(dim)).map_err(|error| error.to_string())?;
        let config = config.with_optimizer(Optimizer::sgd(1e-3)).with_seed(seed);
        let bytes = config.table_bytes();
        Ok((Table::Robe(config), bytes))
    };
    let mut tables = vec![
        ("FP32, no cache".to_owned(), cached(Precision::Fp32, 0)),
        ("INT8, 5 % LFU".to_owned(), cached(Precision::Int8, rows / 20)),
        ("INT8, 10 % LFU".to_owned(), cached(Precision::Int8, rows / 10)),
    ];
    tables.extend(COMPRESSIONS.map(|times| (format!("ROBE {times}x"), shared(times))));
    tables
}

/// Measures all tables; `forward` gets a table, batches to warm its cache with, batches, offsets and rows in a bag.
pub(super) fn run(
    plan: &Plan<'_>,
    run: &mut Run,
    mut forward: impl FnMut(&Table, &[Vec<u32>], &[Vec<u32>], &[u32], u32) -> anyhow::Result<Forward>,
) -> anyhow::Result<()> {
    let (rows, bags) = match (plan.size.is_full(), plan.backend) {
        (true, "gpu") => (4_000_000, 10_240),
        // 512 MB in FP32.
        (true, _) => (1_000_000, 10_240),
        (false, _) => (40_000, 256),
    };
    run.describe("beside", format!("{bags} bags, sum, rows by Zipf {ALPHA} of a table of {rows} x {}", plan.shape.dim));
    let pool: Vec<u32> = (0..rows).collect();
    for bag in BAGS {
        let mut random = random(plan.seed, u64::from(bag));
        let mut draw = |n: usize| (0..n).map(|_| zipf(&pool, (bags * bag) as usize, ALPHA, &mut random)).collect();
        let (warm, batches): (anyhow::Result<Vec<_>>, anyhow::Result<Vec<_>>) = (draw(WARM), draw(TURNS));
        let (warm, batches) = (warm?, batches?);
        let offsets: Vec<u32> = (0..=bags).map(|i| i * bag).collect();
        let mut plain = None;
        for (name, table) in tables(rows, plan.shape.dim, plan.seed) {
            let setting = Setting::default().with("bags of", bag).with("table", name.as_str());
            let bytes = table.as_ref().map_or(f64::NAN, |(_, bytes)| *bytes as f64);
            run.push_some("memory", "beside", &setting, Some(bytes).filter(|bytes| bytes.is_finite()), Unit::Bytes);
            let too_large = plan.memory.filter(|&most| bytes > most as f64);
            let too_large = too_large
                .map(|most| format!("memory: wanted at most {most} bytes a table (--memory), found {bytes} bytes"));
            let done = match (too_large.or_else(|| plan.deadline.over()), table) {
                (Some(reason), _) | (None, Err(reason)) => Err(reason),
                (None, Ok((table, _))) => {
                    forward(&table, &warm, &batches, &offsets, bag).map_err(|error| format!("{error:#}"))
                }
            };
            match done {
                Ok(Forward { times, hit_rate }) => {
                    run.push_some("hit rate", "beside", &setting, hit_rate, Unit::Share);
                    run.timed("forward", "beside", &setting, times);
                    if name.starts_with("FP32") {
                        plain = Some(times.median);
                    }
                    let ratio = plain.map(|plain| times.median / plain);
                    run.push_some("against FP32", "beside", &setting, ratio, Unit::Times);
                }
                Err(reason) => run.leave_out(format!("{name} in bags of {bag}"), reason),
            }
        }
    }
    Ok(())
}
