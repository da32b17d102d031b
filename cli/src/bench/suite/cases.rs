//! The workloads of the suite: lines of `data/cases.csv`, and the batches that each of them draws.

use hotrow::internals::layout::WAYS;
use hotrow::{OptimizerKind, Placement, Policy, Precision, Rounding};
use serde::{Deserialize, Deserializer, de::Error as _};
use std::collections::{BTreeMap, HashMap};

use super::bench::Bench;
use super::shapes::{Batch, distinct, fitting, random, shuffle, uniform, zipf};
use super::workload::Workload;

/// Batches in turn, enough that none finds its own rows in the chip's caches.
const TURNS: usize = 4;
/// Batches of a case whose batches bring new rows.
const NEW: usize = 26;
/// The smallest cache of the part `pinned`.
const SMALLEST: [u32; 2] = [512, 262_144];

/// How the rows of a batch are drawn from a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Draw {
    Uniform,
    Zipf,
    Distinct,
    MostlyHits,
    Renewed,
    Pinned,
}

/// A line of the table of cases, which says what its columns mean.
#[derive(Debug, Deserialize)]
pub(super) struct Case {
    pub(super) part: String,
    pub(super) name: String,
    draw: Draw,
    alpha: Option<f64>,
    #[serde(deserialize_with = "pair")]
    tables: [u32; 2],
    #[serde(deserialize_with = "pair")]
    pub(super) rows: [u32; 2],
    #[serde(deserialize_with = "pair")]
    lookups: [u32; 2],
    bag: u32,
    dim: u32,
    #[serde(deserialize_with = "pair")]
    slots: [u32; 2],
    precision: Precision,
    rounding: Rounding,
    optimizer: OptimizerKind,
    pub(super) mapped: bool,
    backward: bool,
    pub(super) pieces: u32,
    pub(super) hits: Option<f64>,
}

/// Reads `small/full`, or one number for both.
fn pair<'de, D: Deserializer<'de>>(from: D) -> Result<[u32; 2], D::Error> {
    let text = String::deserialize(from)?;
    let (small, full) = text.split_once('/').unwrap_or((&text, &text));
    let read = |text: &str| text.parse().map_err(D::Error::custom);
    Ok([read(small)?, read(full)?])
}

pub(super) fn of(part: &str) -> Vec<Case> {
    let table = include_bytes!("../../../data/cases.csv");
    let lines = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(&table[..]);
    lines.into_deserialize().flatten().filter(|case: &Case| case.part == part).collect()
}

impl Case {
    /// The tables, the cache, `by` times smaller than wanted, and the batches of the case on this device.
    pub(super) fn workload(&self, bench: &Bench<'_>, by: u32) -> anyhow::Result<Workload> {
        let [tables, rows, lookups, wanted, smallest] = [self.tables, self.rows, self.lookups, self.slots, SMALLEST]
            .map(|[small, full]| bench.size.of(small, full));
        let mut config = bench.config(&[1], self.precision, self.optimizer, 0).with_rounding(self.rounding);
        let slot = 4 * u64::from(self.dim) * if self.optimizer == OptimizerKind::AdaGrad { 2 } else { 1 };
        let mut slots = bench.slots(wanted / by, slot);
        let rows = if rows == 0 { slots } else { rows };
        // Rows that the cache holds together.
        let resident = if wanted > 0 { fitting(0..rows, slots / WAYS * WAYS, rows) } else { Vec::new() };
        let drawn = if rows == slots { resident.clone() } else { (0..rows).collect() };
        let (n, mut random) = (lookups as usize, random(bench.seed, 1));
        let mut pins = Vec::new();
        let (law, warm, batches) = match self.draw {
            Draw::Uniform | Draw::Zipf => {
                let mut batch = || -> anyhow::Result<Batch> {
                    let mut table = || -> anyhow::Result<Vec<u32>> {
                        match self.alpha {
                            Some(alpha) => zipf(&drawn, n, alpha, &mut random),
                            None => Ok(uniform(&drawn, n, &mut random)),
                        }
                    };
                    let features = (0..tables).map(|_| table()).collect::<anyhow::Result<_>>()?;
                    Ok(Batch { features, bag: self.bag })
                };
                let batches = (0..TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?;
                // Several tables fill their cache by batches, one table by its rows in turn.
                let warm =
                    if tables > 1 { (0..8).map(|_| batch()).collect() } else { Ok(in_turn(&resident, n, self.bag)) };
                (self.alpha.map_or_else(|| "uniform".to_owned(), |alpha| format!("Zipf {alpha}")), warm?, batches)
            }
            Draw::Distinct => {
                let n = n.min(drawn.len());
                let all = distinct(&drawn, drawn.len().min(TURNS * n));
                let batches = all.chunks_exact(n).map(|rows| Batch::of(rows.to_vec(), self.bag)).collect();
                ("all to distinct rows".to_owned(), in_turn(&resident, n, self.bag), batches)
            }
            Draw::MostlyHits => {
                let (hot, batches) = mostly_hits((n, rows), NEW, self.bag, bench.seed);
                let law = "95 % of them to rows that are always asked for".to_owned();
                (law, vec![Batch::of(hot, self.bag)], batches)
            }
            Draw::Renewed => {
                let known: Vec<u32> = (0..rows / 2).collect();
                let base: Vec<Vec<u32>> =
                    (0..tables).map(|_| zipf(&known, n, 1.05, &mut random)).collect::<anyhow::Result<_>>()?;
                let leaving: Vec<HashMap<u32, u32>> = base.iter().map(|rows| leaving(rows)).collect();
                let renewed = |turn| {
                    let features = base.iter().zip(&leaving).map(|(base, leaving)| renewed(base, leaving, turn, rows));
                    Batch { features: features.collect(), bag: self.bag }
                };
                let mut batches: Vec<Batch> = (0..NEW as u32).map(renewed).collect();
                let new = NEW * leaving.iter().map(HashMap::len).sum::<usize>();
                let base = Batch { features: base, bag: self.bag };
                slots = ((base.repeats().len() + new) as f64 * 0.8) as u32;
                let law = "Zipf 1.05, a fifth of the distinct rows of each batch new".to_owned();
                (law, std::iter::once(base).chain(batches.drain(..2)).collect(), batches)
            }
            Draw::Pinned => {
                let hot = fitting(0..smallest / 4 * 5, smallest, rows);
                // The rows behind the hot ones fill the larger caches and are never looked up; those behind the middle are cold.
                let pinned = hot.iter().copied().chain(rows / 8 * 5..rows);
                pins = if slots > 0 { fitting(pinned, slots, rows) } else { Vec::new() };
                let cold: Vec<u32> = (rows / 2..rows / 8 * 5).collect();
                let mut batch = || -> anyhow::Result<Batch> {
                    let mut all = zipf(&hot, n - n / 20, 1.05, &mut random)?;
                    all.extend(uniform(&cold, n / 20, &mut random));
                    shuffle(&mut all, &mut random);
                    Ok(Batch::of(all, self.bag))
                };
                config.policy = Policy::Static;
                let law = "95 % of them, by Zipf 1.05, to rows that the smallest cache pins".to_owned();
                (law, Vec::new(), (0..TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?)
            }
        };
        (config.tables, config.dim, config.cache_rows) = (vec![rows; tables as usize], self.dim, slots);
        config.placement = if self.mapped { bench.mapped() } else { Placement::Device };
        // Bindings may be slightly smaller than a round number.
        let short = self.draw != Draw::Renewed && slots < wanted - wanted / 1000;
        let (dim, bag) = (self.dim, self.bag);
        let lookups = format!("{lookups} lookups in each of {tables} tables of {rows} rows x {dim}, {law}");
        let shape = format!("{lookups}, bags of {bag}, a cache of {slots} rows");
        Ok(Workload {
            name: self.name.clone(),
            shape,
            scaled: short.then(|| format!("{slots} of {wanted} slots")),
            config,
            pins,
            warm,
            batches,
            backward: self.backward,
        })
    }
}

/// The rows in batches of `n`. After them all are in a cache that has room for them.
pub(super) fn in_turn(rows: &[u32], n: usize, bag: u32) -> Vec<Batch> {
    rows.chunks(n.max(1)).map(|rows| Batch::of(rows.to_vec(), bag)).collect()
}

/// `count` batches of `n` distinct rows: 95 % of a batch are the same rows in all batches, which come first; no other row comes twice.
pub(super) fn mostly_hits((n, rows): (usize, u32), count: usize, bag: u32, seed: u32) -> (Vec<u32>, Vec<Batch>) {
    let misses = n / 20;
    let half = |rows: std::ops::Range<u32>, n| distinct(&rows.collect::<Vec<_>>(), n);
    let (hot, cold) = (half(0..rows / 2, n - misses), half(rows / 2..rows, count * misses));
    let mut random = random(seed, 6);
    let mut batch = |cold: &[u32]| {
        let mut all = [&hot, cold].concat();
        shuffle(&mut all, &mut random);
        Batch::of(all, bag)
    };
    let batches = cold.chunks_exact(misses).map(&mut batch).collect();
    (hot, batches)
}

/// The rows that new rows replace, numbered: the fifth of the distinct rows that is used least.
fn leaving(known: &[u32]) -> HashMap<u32, u32> {
    let mut count = BTreeMap::<u32, u32>::new();
    known.iter().for_each(|&row| *count.entry(row).or_default() += 1);
    let mut by_use: Vec<(u32, u32)> = count.into_iter().map(|(row, n)| (n, row)).collect();
    by_use.sort_unstable();
    let fifth = by_use.len() / 5;
    by_use[..fifth].iter().map(|&(_, row)| row).zip(0..).collect()
}

/// `base` with the leaving rows replaced by rows of the table's second half, each turn by those that were unused for longest.
fn renewed(base: &[u32], leaving: &HashMap<u32, u32>, turn: u32, rows: u32) -> Vec<u32> {
    let half = rows / 2;
    let new = |number: &u32| half + (turn * leaving.len() as u32 + number) % (rows - half);
    base.iter().map(|row| leaving.get(row).map_or(*row, new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_case() {
        let lines = include_str!("../../../data/cases.csv").lines().filter(|line| !line.starts_with('#')).count() - 1;
        let all: Vec<Case> = super::super::PARTS.iter().flat_map(|(part, ..)| of(part)).collect();
        assert_eq!(all.len(), lines, "a line that cannot be read, or whose part does not exist, is left out");
        let names: std::collections::BTreeSet<_> = all.iter().map(|case| (&case.name, case.lookups)).collect();
        assert_eq!(names.len(), lines);
        assert!(all.iter().all(|case| (case.draw == Draw::Zipf) == case.alpha.is_some()));
        // Each case of SCARS has a place in a table, and each place has a case.
        let shown =
            include_str!("../../../data/tables.csv").split([',', '|', '"']).filter(|name| name.starts_with("scars-"));
        let shown: std::collections::BTreeSet<_> = shown.collect();
        let scars = of("scars");
        assert_eq!(shown, scars.iter().map(|case| case.name.as_str()).collect());
    }

    #[test]
    fn a_fifth_of_the_rows_is_new() {
        let base = [1, 1, 2, 3, 4, 5, 5];
        assert_eq!(leaving(&base), HashMap::from([(2, 0)]));
        for (turn, wanted) in [(0, 50), (49, 99), (50, 50)] {
            assert_eq!(renewed(&base, &leaving(&base), turn, 100), [1, 1, wanted, 3, 4, 5, 5]);
        }
    }
}
