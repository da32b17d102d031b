//! The forward of a batch of bags, of shared tables and of cached ones in the same run.

use hotrow::robe::Config;
use hotrow::{GroupConfig, Init, Optimizer, Policy, Pooling, Precision};
use serde::Serialize;

use super::shape::CHUNK;
use crate::suite::Size;
use crate::suite::lab::Times;
use crate::suite::shapes::{random, zipf};

/// Rows in a bag: TBE's, and one.
const BAGS: [u32; 2] = [20, 1];
/// Skew of the rows, as in TBE's benchmarks.
const ALPHA: f64 = 1.05;
/// Batches in turn.
const TURNS: usize = 4;
/// Batches that fill a cache before.
const WARM: usize = 12;
const COMPRESSIONS: [f64; 3] = [10.0, 100.0, 1_000.0];

/// What is looked up.
pub(crate) enum Table {
    Cached(Box<GroupConfig>),
    Robe(Config),
}

/// What its forward took.
pub(crate) struct Forward {
    pub(crate) times: Times,
    pub(crate) hit_rate: Option<f64>,
}

/// A table beside others.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) table: String,
    pub(crate) rows: u32,
    pub(crate) dim: u32,
    pub(crate) bags: u32,
    /// Rows in a bag.
    pub(crate) bag: u32,
    /// Weights and state, and the cache.
    pub(crate) bytes: u64,
    pub(crate) forward: Option<Times>,
    pub(crate) hit_rate: Option<f64>,
    /// Against FP32 rows without a cache.
    pub(crate) times_fp32: Option<f64>,
    /// Why it was not measured.
    pub(crate) refused: Option<String>,
}

/// Rows and bags.
pub(crate) fn sizes(size: Size, gpu: bool) -> (u32, u32) {
    match (size.is_full(), gpu) {
        (true, true) => (4_000_000, 10_240),
        // 512 MB in FP32.
        (true, false) => (1_000_000, 10_240),
        (false, _) => (40_000, 256),
    }
}

fn tables(rows: u32, dim: u32, seed: u32) -> Vec<(String, Result<Table, String>, u64)> {
    let cached = |precision, cache_rows| {
        let mut config = GroupConfig::new(&[rows], dim);
        (config.precision, config.cache_rows, config.policy) = (precision, cache_rows, Policy::Lfu);
        (config.optimizer, config.pooling, config.seed) = (Optimizer::sgd(1e-3), Pooling::Sum, seed);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config
    };
    let mut tables = Vec::new();
    let settings = [
        ("FP32, no cache", Precision::Fp32, 0),
        ("INT8, 5 % LFU", Precision::Int8, rows / 20),
        ("INT8, 10 % LFU", Precision::Int8, rows / 10),
    ];
    for (name, precision, cache_rows) in settings {
        let config = cached(precision, cache_rows);
        let (table, bytes) = match hotrow::Layout::new(&config, u64::MAX) {
            Ok(layout) => {
                let bytes = u64::from(rows) * layout.stride() + u64::from(layout.slots()) * layout.slot_bytes();
                (Ok(Table::Cached(Box::new(config))), bytes)
            }
            Err(error) => (Err(error.to_string()), 0),
        };
        tables.push((name.to_owned(), table, bytes));
    }
    for compression in COMPRESSIONS {
        let config = Config::compressed(&[rows], dim, compression, CHUNK.min(dim));
        let config = config.map(|config| config.with_optimizer(Optimizer::sgd(1e-3)).with_seed(seed));
        let bytes = config.as_ref().map_or(0, Config::table_bytes);
        let table = config.map(Table::Robe).map_err(|error| error.to_string());
        tables.push((format!("ROBE {compression}x"), table, bytes));
    }
    tables
}

/// Measures all tables; `forward` gets a table, batches to warm its cache with, batches, offsets and rows in a bag.
pub(crate) fn run(
    (rows, bags): (u32, u32),
    dim: u32,
    seed: u32,
    memory: Option<u64>,
    out_of_time: &dyn Fn() -> Option<String>,
    mut forward: impl FnMut(&Table, &[Vec<u32>], &[Vec<u32>], &[u32], u32) -> anyhow::Result<Forward>,
) -> anyhow::Result<Vec<Beside>> {
    let pool: Vec<u32> = (0..rows).collect();
    let too_large = |bytes: u64| {
        let most = memory.filter(|&most| bytes > most)?;
        Some(format!("memory: wanted at most {most} bytes a table (--memory), found {bytes}"))
    };
    let mut found: Vec<Beside> = Vec::new();
    for bag in BAGS {
        let mut random = random(seed, u64::from(bag));
        let mut draw = |n: usize| (0..n).map(|_| zipf(&pool, (bags * bag) as usize, ALPHA, &mut random)).collect();
        let (warm, batches): (anyhow::Result<Vec<_>>, anyhow::Result<Vec<_>>) = (draw(WARM), draw(TURNS));
        let (warm, batches) = (warm?, batches?);
        let offsets: Vec<u32> = (0..=bags).map(|i| i * bag).collect();
        let first = found.len();
        for (name, table, bytes) in tables(rows, dim, seed) {
            let done = match (table, too_large(bytes).or_else(out_of_time)) {
                (_, Some(reason)) => Err(reason),
                (Err(reason), _) => Err(reason),
                (Ok(table), None) => {
                    forward(&table, &warm, &batches, &offsets, bag).map_err(|error| format!("{error:#}"))
                }
            };
            let (times, hit_rate, refused) = match done {
                Ok(Forward { times, hit_rate }) => (Some(times), hit_rate, None),
                Err(reason) => (None, None, Some(reason)),
            };
            let (forward, times_fp32) = (times, None);
            found.push(Beside { table: name, rows, dim, bags, bag, bytes, forward, hit_rate, times_fp32, refused });
        }
        let plain = found[first].forward.map(|times| times.median);
        for one in &mut found[first..] {
            one.times_fp32 = one.forward.zip(plain).map(|(times, plain)| times.median / plain);
        }
    }
    Ok(found)
}
