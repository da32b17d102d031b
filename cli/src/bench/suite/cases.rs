//! The workloads of the suite: a table of cases, and the batches that each of them draws.

use hotrow::internals::Pieces as _;
use hotrow::internals::layout::WAYS;
use hotrow::{Context, ContextOptions, LookupBody, OptimizerKind, Placement, Policy, Precision, Rounding};
use std::collections::BTreeMap;

use super::bench::{Bench, DIM};
use super::shapes::{Batch, distinct, fitting, pool, random, shuffle, uniform, zipf};
use super::workload::Workload;

/// Batches in turn, enough that none finds its own rows in the chip's caches.
const TURNS: usize = 4;
/// Batches of a case whose batches bring new rows.
const NEW: usize = 26;

/// How the rows of a batch are drawn from a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Draw {
    Uniform,
    Zipf(f64),
    /// Uniform, but one row takes a tenth of the lookups.
    Tenth,
    /// No row is in two batches, nor twice in one.
    Distinct,
    /// 95 % of a batch are the same rows in all batches; no other row comes twice.
    MostlyHits,
    /// A fifth of the distinct rows of a batch is new; the others are those of one batch by Zipf's law.
    Renewed,
    /// 95 % of the lookups go to rows that the smallest of these caches holds, the others to rows that none holds. Hot rows are pinned.
    Pinned([u32; 2]),
}

/// What a case compiles its shaders with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum With {
    Default,
    Trusted,
    Body(LookupBody),
}

/// A case: tables, cache and batches. What is a pair is so at small and at full size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) part: &'static str,
    pub(super) name: &'static str,
    draw: Draw,
    tables: [u32; 2],
    /// Rows of each table; 0: as many as the cache has slots, and batches draw from those that it holds together.
    rows: [u32; 2],
    /// Lookups in each table.
    lookups: [u32; 2],
    bag: u32,
    dim: u32,
    slots: [u32; 2],
    precision: Precision,
    rounding: Rounding,
    optimizer: OptimizerKind,
    /// Mapped if the device maps memory.
    mapped: bool,
    backward: bool,
    with: With,
    /// The most bytes of a window of the cache; 0: a binding.
    window: [u64; 2],
    /// Pieces of a table of zeros; 0: as bindings cut it, and filled by the group.
    pub(super) pieces: u32,
    /// The share of the lookups that hit, on any machine.
    pub(super) hits: Option<f64>,
}

/// A million lookups of rows that are all in a cache of 4 GiB.
const RESIDENT: Case = Case {
    part: "",
    name: "",
    draw: Draw::Uniform,
    tables: [1, 1],
    rows: [0, 0],
    lookups: [4096, 1 << 20],
    bag: 20,
    dim: DIM,
    slots: [16 << 10, 8 << 20],
    precision: Precision::Fp32,
    rounding: Rounding::Stochastic,
    optimizer: OptimizerKind::Sgd,
    mapped: false,
    backward: true,
    with: With::Default,
    window: [0, 0],
    pieces: 0,
    hits: Some(1.0),
};
/// With room for element-wise state, in one binding of 2 GiB, half the goal's size, so that tables are made in half the time.
const HALF: Case = Case { draw: Draw::Zipf(1.05), slots: [8 << 10, 2 << 20], ..RESIDENT };
const ADAGRAD: Case = Case { optimizer: OptimizerKind::AdaGrad, ..HALF };
/// Zhang 2018, Table 1: a quarter of the rows, each with its own gradient, of a table without a cache whose state has the table's type. The
/// paper has 16 M rows.
const UPDATE: Case = Case {
    part: "low-precision",
    draw: Draw::Distinct,
    rows: [4096, 4_000_000],
    lookups: [1024, 1_000_000],
    bag: 1,
    dim: 64,
    slots: [0, 0],
    hits: Some(0.0),
    ..ADAGRAD
};
const LOOKUP: Case = Case { part: "lookups", slots: [16 << 10, 4 << 20], backward: false, ..HALF };
/// A batch over the bus.
const BUS: Case = Case {
    part: "bus",
    draw: Draw::MostlyHits,
    rows: [40_000, 8_000_000],
    lookups: [2048, 1 << 19],
    slots: [4096, 1 << 20],
    precision: Precision::Int8,
    mapped: true,
    ..RESIDENT
};
const UNCACHED: Case =
    Case { part: "uncached", draw: Draw::Distinct, slots: [0, 0], backward: false, hits: Some(0.0), ..BUS };
/// The table is INT8, since it is filled sooner and the cost of a hit does not depend on it.
const WINDOWS: Case = Case {
    part: "windows",
    slots: [8192, 4 << 20],
    window: [4 << 20, 2 << 30],
    precision: Precision::Int8,
    backward: false,
    ..RESIDENT
};
const SKEW: Case = Case { part: "skew", lookups: [5000, 1_000_000], slots: [2528, 500_000], ..RESIDENT };
/// A thousand indices, whose time is that of launches, not of bytes.
const SMALL: Case = Case {
    part: "small",
    lookups: [1000, 1000],
    slots: [1 << 15, 1 << 15],
    precision: Precision::Int8,
    optimizer: OptimizerKind::RowWiseAdaGrad,
    ..RESIDENT
};
/// TBE's shape: B 512, T 32, D 128, L 20, E 100,000, a cache of a fifth of the rows. Its alpha 1.0 means uniform.
const TBE: Case = Case {
    part: "tbe",
    draw: Draw::Uniform,
    tables: [8, 32],
    rows: [2000, 100_000],
    lookups: [160, 10_240],
    slots: [3200, 640_000],
    hits: None,
    ..Case { precision: Precision::Fp32, ..BUS }
};
const TBE_ZIPF: Case = Case { draw: Draw::Zipf(1.15), ..TBE };
/// NVIDIA's benchmark of TBE: 4.77 ms with SGD, 15.0 ms with Adam on an H100. Its smaller setting, where its cached figures have 26.8 M rows a
/// table; the part `nvidia-full` has those. The cache holds 0.8 of the rows that the batches touch.
const NVIDIA: Case = Case {
    part: "nvidia",
    draw: Draw::Renewed,
    tables: [10, 10],
    rows: [20_000, 1_680_000],
    lookups: [1048, 104_857],
    bag: 10,
    optimizer: OptimizerKind::RowWiseAdaGrad,
    hits: None,
    ..BUS
};
const WHOLE: Case = Case { part: "nvidia-full", pieces: 18, ..NVIDIA };
/// The rows of NVIDIA's cached figures.
const ALL_ROWS: [u32; 2] = [60_000, 26_800_000];
/// SCARS's cache of 1024 MB and its batch of 32,768 samples of 26 lookups, divided by 512 at small size.
const PINNED: Case = Case {
    part: "pinned",
    draw: Draw::Pinned([512, 262_144]),
    rows: [15_625, 8_000_000],
    lookups: [1664, 851_968],
    bag: 1,
    slots: [4096, 2_097_152],
    hits: Some(0.95),
    ..Case { precision: Precision::Fp32, ..BUS }
};

const CASES: [Case; 42] = [
    Case { part: "hits", name: "hits-uniform", ..RESIDENT },
    Case { part: "hits", name: "hits-zipf", slots: [8 << 10, 4 << 20], ..ADAGRAD },
    Case { name: "nvidia-row-wise", ..NVIDIA },
    Case { name: "nvidia-element-wise", optimizer: OptimizerKind::AdaGrad, ..NVIDIA },
    Case { name: "mapped-int8", hits: Some(0.95), ..BUS },
    Case { name: "mapped-fp32-uncached", precision: Precision::Fp32, slots: [0, 0], hits: Some(0.0), ..BUS },
    Case { name: "uncached-fp32", precision: Precision::Fp32, ..UNCACHED },
    Case { name: "uncached-int8", ..UNCACHED },
    Case { name: "windows-one", ..WINDOWS },
    // In as many windows as the large cache has.
    Case { name: "windows-cut", window: [(4 << 20) / 3, (2 << 30) / 3], ..WINDOWS },
    Case { name: "windows-large", slots: [20_480, 10 << 20], ..WINDOWS },
    Case { name: "skew-even", ..SKEW },
    Case { name: "skew-tenth", draw: Draw::Tenth, ..SKEW },
    Case { part: "optimizers", name: "optimizer-sgd", ..HALF },
    Case { part: "optimizers", name: "optimizer-row-wise", optimizer: OptimizerKind::RowWiseAdaGrad, ..HALF },
    Case { part: "optimizers", name: "optimizer-adagrad", ..ADAGRAD },
    Case { name: "update-fp32", ..UPDATE },
    Case { name: "update-fp16", precision: Precision::Fp16, ..UPDATE },
    Case { name: "update-fp16-nearest", precision: Precision::Fp16, rounding: Rounding::Nearest, ..UPDATE },
    Case { name: "update-int8", precision: Precision::Int8, ..UPDATE },
    Case { name: "update-int8-nearest", precision: Precision::Int8, rounding: Rounding::Nearest, ..UPDATE },
    Case { name: "update-int4", precision: Precision::Int4, ..UPDATE },
    Case { name: "update-int2", precision: Precision::Int2, ..UPDATE },
    Case { name: "pinned-0", slots: [0, 0], hits: Some(0.0), ..PINNED },
    Case { name: "pinned-128", slots: [512, 262_144], ..PINNED },
    Case { name: "pinned-1024", ..PINNED },
    Case { name: "small-hits", ..SMALL },
    Case { name: "small-misses", rows: [8 << 15, 8 << 15], hits: None, ..SMALL },
    Case { name: "lookup-lanes32", with: With::Body(LookupBody::Lanes32), ..LOOKUP },
    Case { name: "lookup-lanes8", with: With::Body(LookupBody::Lanes8), ..LOOKUP },
    Case { name: "lookup-lane1", with: With::Body(LookupBody::Lane1), ..LOOKUP },
    Case { part: "trusted", name: "shaders-trusted", with: With::Trusted, ..ADAGRAD },
    Case { part: "trusted", name: "shaders-checked", ..ADAGRAD },
    Case { name: "tbe-1-fp32", ..TBE },
    Case { name: "tbe-1-int8", precision: Precision::Int8, ..TBE },
    Case { name: "tbe-1.15-fp32", ..TBE_ZIPF },
    Case { name: "tbe-1.15-int8", precision: Precision::Int8, ..TBE_ZIPF },
    // What decides the goal comes first.
    Case { name: "nvidia-full", rows: ALL_ROWS, ..WHOLE },
    Case { name: "nvidia-full-device", rows: ALL_ROWS, mapped: false, ..WHOLE },
    Case { name: "nvidia-2-pieces", pieces: 2, ..WHOLE },
    Case { name: "nvidia-18-pieces", ..WHOLE },
    Case { name: "nvidia-18-pieces-device", mapped: false, ..WHOLE },
];

/// Distinct rows of the part `scaling`, small and full, all in one cache of ten million narrow rows.
const COUNTS: [[u32; 2]; 7] = [
    [100, 1_000],
    [300, 10_000],
    [1_000, 100_000],
    [3_000, 300_000],
    [10_000, 1_000_000],
    [20_000, 3_000_000],
    [30_000, 10_000_000],
];

/// The cases of a part, in their order.
pub(super) fn of(part: &str) -> Vec<Case> {
    // The cache is slightly larger, since sets do not fill evenly. Few floats, so that ten million rows fit one binding.
    let slots = [33_760, 11_250_016];
    let scaling =
        Case { part: "scaling", name: "scaling", draw: Draw::Distinct, dim: 32, slots, hits: None, ..RESIDENT };
    let scaling = COUNTS.map(|lookups| Case { lookups, ..scaling });
    CASES.into_iter().chain(scaling).filter(|case| case.part == part).collect()
}

impl Case {
    /// A context with the shaders of this case, if they are others than the clock's.
    pub(super) fn context(&self, bench: &Bench<'_>) -> Result<Option<Context>, hotrow::Error> {
        let timed = &bench.clock.timed;
        let with = |options: &ContextOptions| Context::with_options(timed.device(), timed.queue(), options);
        match self.with {
            With::Default => Ok(None),
            With::Trusted => with(&ContextOptions::default().trusted_shaders(true)).map(Some),
            With::Body(body) => with(&ContextOptions::default().lookup(body)).map(Some),
        }
    }

    /// Whether the case is another one's twin on this device, which maps no memory.
    pub(super) fn is_twin(&self, bench: &Bench<'_>) -> bool {
        self.pieces > 0 && !self.mapped && !bench.is_mapped()
    }

    /// Whether the case may have a smaller cache, and so fewer rows.
    pub(super) fn may_shrink(&self) -> bool {
        self.rows == [0, 0]
    }

    /// The tables, the cache, `by` times smaller than wanted, and the batches of the case on this device.
    pub(super) fn workload(&self, bench: &Bench<'_>, by: u32) -> anyhow::Result<Workload> {
        let [tables, rows, lookups, wanted] =
            [self.tables, self.rows, self.lookups, self.slots].map(|[small, full]| bench.size.of(small, full));
        let mut config = bench.config(&[1], self.precision, self.optimizer, 0).with_rounding(self.rounding);
        let slot = 4 * u64::from(self.dim) * if self.optimizer == OptimizerKind::AdaGrad { 2 } else { 1 };
        let mut slots = bench.slots(wanted / by, slot);
        let rows = if rows == 0 { slots } else { rows };
        // Rows that the cache holds together.
        let resident = if wanted > 0 { pool(rows, slots / WAYS) } else { Vec::new() };
        let drawn = if rows == slots { resident.clone() } else { (0..rows).collect() };
        let (n, mut random) = (lookups as usize, random(bench.seed, 1));
        let mut pins = Vec::new();
        let (warm, batches) = match self.draw {
            Draw::Uniform | Draw::Zipf(_) | Draw::Tenth => {
                let mut batch = || -> anyhow::Result<Batch> {
                    let mut table = || -> anyhow::Result<Vec<u32>> {
                        if let Draw::Zipf(alpha) = self.draw {
                            return zipf(&drawn, n, alpha, &mut random);
                        }
                        let mut all = uniform(&drawn, n, &mut random);
                        if self.draw == Draw::Tenth {
                            all[..n / 10].fill(drawn[0]);
                            shuffle(&mut all, &mut random);
                        }
                        Ok(all)
                    };
                    let features = (0..tables).map(|_| table()).collect::<anyhow::Result<_>>()?;
                    Ok(Batch { features, bag: self.bag })
                };
                let batches = (0..TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?;
                // Several tables fill their cache by batches, one table by its rows in turn.
                let warm =
                    if tables > 1 { (0..8).map(|_| batch()).collect() } else { Ok(in_turn(&resident, n, self.bag)) };
                (warm?, batches)
            }
            Draw::Distinct => {
                let n = n.min(drawn.len());
                let all = distinct(&drawn, drawn.len().min(TURNS * n));
                let batches = all.chunks_exact(n).map(|rows| Batch::of(rows.to_vec(), self.bag)).collect();
                (in_turn(&resident, n, self.bag), batches)
            }
            Draw::MostlyHits => {
                let (hot, batches) = mostly_hits((n, rows), NEW, self.bag, bench.seed);
                (vec![Batch::of(hot, self.bag)], batches)
            }
            Draw::Renewed => {
                let known: Vec<u32> = (0..rows / 2).collect();
                let base: Vec<Vec<u32>> =
                    (0..tables).map(|_| zipf(&known, n, 1.05, &mut random)).collect::<anyhow::Result<_>>()?;
                let leaving: Vec<Vec<Option<u32>>> = base.iter().map(|rows| leaving(rows)).collect();
                let mut fresh = vec![rows / 2; tables as usize];
                let mut batches: Vec<Batch> =
                    (0..NEW).map(|_| renewed(&base, &leaving, &mut fresh, rows, self.bag)).collect();
                let base = Batch { features: base, bag: self.bag };
                let new = batches.len() * leaving.iter().map(|rows| many(rows) as usize).sum::<usize>();
                slots = ((base.repeats().len() + new) as f64 * 0.8) as u32;
                (std::iter::once(base).chain(batches.drain(..2)).collect(), batches)
            }
            Draw::Pinned([small, full]) => {
                let smallest = bench.size.of(small, full);
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
                (Vec::new(), (0..TURNS).map(|_| batch()).collect::<anyhow::Result<_>>()?)
            }
        };
        (config.tables, config.dim, config.cache_rows) = (vec![rows; tables as usize], self.dim, slots);
        config.placement = if self.mapped { bench.mapped() } else { Placement::Device };
        let window = bench.size.of(self.window[0], self.window[1]).min(bench.clock.binding());
        config.set_window_bytes((window > 0).then(|| window.next_multiple_of(slot).min(bench.clock.binding())));
        // Bindings may be slightly smaller than a round number.
        let short = self.draw != Draw::Renewed && slots < wanted - wanted / 1000;
        let (dim, bag, law) = (self.dim, self.bag, self.draw.text());
        let lookups = format!("{lookups} lookups in each of {tables} tables of {rows} rows x {dim}, {law}");
        let shape = format!("{lookups}, bags of {bag}, a cache of {slots} rows");
        Ok(Workload {
            name: self.name.to_owned(),
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

impl Draw {
    fn text(self) -> String {
        match self {
            Self::Uniform => "uniform".to_owned(),
            Self::Zipf(alpha) => format!("Zipf {alpha}"),
            Self::Tenth => "uniform, but a tenth to one row".to_owned(),
            Self::Distinct => "all to distinct rows".to_owned(),
            Self::MostlyHits => "95 % of them to rows that are always asked for".to_owned(),
            Self::Renewed => "Zipf 1.05, a fifth of the distinct rows of each batch new".to_owned(),
            Self::Pinned(_) => "95 % of them, by Zipf 1.05, to rows that the smallest cache pins".to_owned(),
        }
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

/// For each access, the number of its row among those that new rows replace: the fifth of the distinct rows that is used least.
fn leaving(known: &[u32]) -> Vec<Option<u32>> {
    let mut count = BTreeMap::<u32, u32>::new();
    known.iter().for_each(|&row| *count.entry(row).or_default() += 1);
    let mut by_use: Vec<(u32, u32)> = count.into_iter().map(|(row, n)| (n, row)).collect();
    by_use.sort_unstable();
    let fifth = by_use.len() / 5;
    let number: BTreeMap<u32, u32> = by_use[..fifth].iter().map(|&(_, row)| row).zip(0..).collect();
    known.iter().map(|row| number.get(row).copied()).collect()
}

fn many(leaving: &[Option<u32>]) -> u32 {
    leaving.iter().flatten().max().map_or(0, |last| last + 1)
}

/// `base` with the leaving rows replaced by rows of each table's second half, of which the longest unused come first.
fn renewed(base: &[Vec<u32>], leaving: &[Vec<Option<u32>>], fresh: &mut [u32], rows: u32, bag: u32) -> Batch {
    let feature = |((known, leaving), next): ((&Vec<u32>, &Vec<Option<u32>>), &mut u32)| {
        let half = rows / 2;
        let new = |number: u32| half + (*next - half + number) % (rows - half);
        let features = known.iter().zip(leaving).map(|(&row, number)| number.map_or(row, new)).collect();
        *next = new(many(leaving));
        features
    };
    Batch { features: base.iter().zip(leaving).zip(fresh).map(feature).collect(), bag }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn a_fifth_of_the_rows_is_new() {
        let base = vec![vec![1, 1, 2, 3, 4, 5, 5]];
        let leaving = vec![leaving(&base[0])];
        assert_eq!(leaving[0], [None, None, Some(0), None, None, None, None]);
        let mut fresh = vec![98];
        for wanted in [98, 99, 50] {
            let batch = renewed(&base, &leaving, &mut fresh, 100, 10);
            assert_eq!(batch.features[0], [1, 1, wanted, 3, 4, 5, 5]);
        }
        assert_eq!(fresh, [51]);
    }
}
