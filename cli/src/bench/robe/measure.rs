//! Every setting on a backend: arrays that serve all settings of their size, and those that have no room, with the reason.

use hotrow::robe::{Backward, Config, hash};
use hotrow::{Error, Optimizer, Pooling};
use std::collections::BTreeMap;

use super::shape::{Setting, Shape};
use crate::lab::Stage;
use crate::report::run::Run;
use crate::report::units::{Times, count, decimals};
use crate::report::{self, Unit};

/// A backend that measures.
pub(super) trait Runner {
    /// An array of this configuration, in place of the last one.
    fn allocate(&mut self, config: Config) -> Result<(), Error>;
    /// The same array under another configuration.
    fn reconfigure(&mut self, config: Config) -> Result<(), Error>;
    /// Forward, and update or gradient, over the batches in turn.
    fn steps(&mut self, batches: &[Vec<u32>], what: What) -> anyhow::Result<Step>;
    /// The choice of `Backward::Auto` for an update of an array of that configuration, whose batch has so many distinct starts.
    fn auto(&self, starts: u32) -> &'static str;
    /// Frees the array.
    fn free(&mut self);
}

/// Forward, and the update or gradient behind it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) forward: Times,
    pub(super) backward: Times,
    /// Of both, on a device that stamps them.
    pub(super) stages: Vec<Stage>,
}

/// Done behind a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The sums and the optimiser in one: `backward`. No gradient lies in memory.
    Update,
    /// The gradient alone, into memory: ROBE's backward.
    Gradient,
}

impl What {
    pub(super) const ALL: [Self; 2] = [Self::Update, Self::Gradient];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Gradient => "gradient",
        }
    }

    /// Dense and sparse.
    pub(super) const fn ways(self) -> [Way; 2] {
        match self {
            Self::Update => [Way::DenseUpdate, Way::SparseUpdate],
            Self::Gradient => [Way::DenseGradient, Way::SparseGradient],
        }
    }
}

/// An update or a gradient, and how it comes by its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    DenseUpdate,
    SparseUpdate,
    DenseGradient,
    SparseGradient,
    AtomicUpdate,
}

impl Way {
    /// In the order in which they are measured: name, kind, how.
    const TABLE: [(Self, &'static str, What, Backward); 5] = [
        (Self::DenseUpdate, "dense update", What::Update, Backward::Dense),
        (Self::SparseUpdate, "sparse update", What::Update, Backward::Sparse),
        (Self::DenseGradient, "dense gradient", What::Gradient, Backward::Dense),
        (Self::SparseGradient, "sparse gradient", What::Gradient, Backward::Sparse),
        (Self::AtomicUpdate, "atomic update", What::Update, Backward::Atomic),
    ];
    pub(super) const ALL: [Self; 5] =
        [Self::DenseUpdate, Self::SparseUpdate, Self::DenseGradient, Self::SparseGradient, Self::AtomicUpdate];

    pub(super) fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    fn what(self) -> What {
        Self::TABLE[self as usize].2
    }

    fn backward(self) -> Backward {
        Self::TABLE[self as usize].3
    }

    /// Bytes beside the array: sums of all weights, or sums and places of the weights that a batch covers at most.
    fn beside(self, config: &Config, batch: u32) -> u64 {
        match self {
            Self::DenseUpdate | Self::SparseUpdate => 0,
            Self::AtomicUpdate | Self::DenseGradient => 4 * u64::from(config.weights),
            Self::SparseGradient => 8 * u64::from(config.most_covered(batch)),
        }
    }
}

/// A setting, measured or not.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) setting: Setting,
    /// Chunks of a batch times the longest chunk: `Backward::Auto` compares |M| with it, of a gradient.
    pub(super) touched: u64,
    /// Distinct weights among them, of the first batch, and distinct places where its chunks begin: for an update `Backward::Auto` compares
    /// |M| with the latter.
    pub(super) covered: Option<(u64, u32)>,
    pub(super) steps: BTreeMap<Way, Step>,
    /// Why other ways were not measured, where the cell was.
    pub(super) ways_refused: BTreeMap<Way, String>,
    /// The choices of `Backward::Auto` for an update and for a gradient.
    pub(super) auto: [Option<&'static str>; 2],
    /// Why it was not measured.
    pub(super) refused: Option<String>,
}

impl Cell {
    pub(super) fn step(&self, way: Way) -> Option<&Step> {
        self.steps.get(&way)
    }

    /// The lowest time: neighbours on the machine only ever add.
    pub(super) fn lowest(&self, way: Way) -> Option<f64> {
        Some(self.step(way)?.backward.lowest).filter(|&seconds| seconds > 0.0)
    }

    /// Dense and sparse, as they are compared with each other.
    pub(super) fn both(&self, what: What) -> Option<(f64, f64)> {
        let [dense, sparse] = what.ways().map(|way| self.lowest(way));
        dense.zip(sparse)
    }

    /// How much longer the choice of `Backward::Auto` took than the faster one, as a share of it.
    pub(super) fn regret(&self, what: What) -> Option<f64> {
        let (dense, sparse) = self.both(what)?;
        let taken = if self.auto[what as usize]? == "dense" { dense } else { sparse };
        Some(taken / dense.min(sparse) - 1.0)
    }

    /// The atomic update over the faster of the other two.
    pub(super) fn atomic_share(&self) -> Option<f64> {
        let (dense, sparse) = self.both(What::Update)?;
        Some(self.lowest(Way::AtomicUpdate)? / dense.min(sparse))
    }

    /// |M| over the weights that the batch's chunks touch.
    pub(super) fn ratio(&self) -> f64 {
        self.setting.weights as f64 / self.touched.max(1) as f64
    }

    /// The setting of its records.
    pub(super) fn place(&self) -> report::Setting {
        let Setting { rows, compression, chunk, weights } = self.setting;
        let place = report::Setting::default()
            .with("rows", rows)
            .with("compression", compression)
            .with("chunk", chunk)
            .with("weights", weights as f64);
        // Goals ask for both.
        let place = if compression >= 1_000.0 { place.with("from 1000x", "yes") } else { place };
        if self.ratio() <= 1.0 { place.with("all touched", "yes") } else { place }
    }

    /// All that was measured of it, and what was left out.
    pub(super) fn record(&self, run: &mut Run) {
        let Setting { rows, compression, chunk, .. } = self.setting;
        let name = format!("{} rows at {}x in chunks of {chunk}", count(f64::from(rows)), decimals(compression));
        if let Some(reason) = &self.refused {
            run.leave_out(&name, reason);
        }
        for (way, reason) in &self.ways_refused {
            run.leave_out(format!("{} of {name}", way.name()), reason);
        }
        let place = self.place();
        let mut count = |what: &str, n: Option<f64>| run.push_some(what, "array", &place, n, Unit::Count);
        if let Some((covered, starts)) = self.covered {
            count("touched", Some(self.touched as f64));
            count("covered", Some(covered as f64));
            count("starts", Some(f64::from(starts)));
        }
        for (&way, step) in &self.steps {
            match way {
                Way::DenseUpdate => run.timed("forward", "array", &place, step.forward),
                Way::SparseUpdate => run.timed("forward before sparse update", "array", &place, step.forward),
                _ => (),
            }
            run.timed(way.name(), "array", &place, step.backward);
            for stage in step.stages.iter().filter(|stage| stage.phase != "forward" || way == Way::DenseUpdate) {
                let whole = if stage.phase == "forward" { step.forward } else { step.backward };
                let Some(times) = stage.times.filter(|times| times.median >= 0.05 * whole.median) else { continue };
                let place = place.clone().with("way", way.name()).with("stage", stage.stage);
                run.timed("stage", "stages", &place, times);
                run.push("dispatches", "stages", &place, stage.dispatches as f64, Unit::Count);
            }
        }
        for what in What::ALL {
            let Some((dense, sparse)) = self.both(what) else { continue };
            let name = what.name();
            run.push(&format!("sparse against dense {name}"), "array", &place, sparse / dense, Unit::Times);
            if let Some((regret, choice)) = self.regret(what).zip(self.auto[what as usize]) {
                let place = place.clone().with("choice", choice);
                run.push(&format!("lost by auto {name}"), "array", &place, regret, Unit::Share);
            }
        }
    }
}

/// What a run may take.
pub(super) struct Limits<'a> {
    /// Bytes of an array and its state.
    pub(super) memory: Option<u64>,
    pub(super) optimizer: Optimizer,
    pub(super) seed: u32,
    /// Whether the time is up, and what to say then.
    pub(super) out_of_time: &'a dyn Fn() -> Option<String>,
}

/// Measures all settings in their order; neighbours of one |M| share an array.
pub(super) fn run(
    runner: &mut dyn Runner,
    shape: &Shape,
    settings: &[Setting],
    limits: &Limits<'_>,
    done: &dyn Fn(),
) -> anyhow::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut held = None;
    for setting in settings {
        let config = config(shape, setting, limits);
        let mut cell = unmeasured(shape, setting, config.as_ref().ok());
        match config.and_then(|config| fits(&config, limits).map(|()| config)) {
            Err(reason) => cell.refused = Some(reason),
            Ok(config) => {
                let ready = if held == Some(setting.weights) {
                    runner.reconfigure(config.clone())
                } else {
                    held = None;
                    runner.allocate(config.clone())
                };
                match ready {
                    Err(error) => cell.refused = Some(error.to_string()),
                    Ok(()) => {
                        held = Some(setting.weights);
                        measure(runner, shape, &config, limits, &mut cell)?;
                    }
                }
            }
        }
        cells.push(cell);
        done();
    }
    runner.free();
    Ok(cells)
}

/// The setting as a configuration, or why it is none.
fn config(shape: &Shape, setting: &Setting, limits: &Limits<'_>) -> Result<Config, String> {
    let weights = u32::try_from(setting.weights).unwrap_or(u32::MAX);
    let config = Config::new(&[setting.rows], shape.dim, weights, setting.chunk)
        .with_pooling(Pooling::None)
        .with_optimizer(limits.optimizer)
        .with_seed(limits.seed);
    config.check().map(|()| config).map_err(|error| error.to_string())
}

fn fits(config: &Config, limits: &Limits<'_>) -> Result<(), String> {
    within(limits, config.table_bytes(), "an array")?;
    (limits.out_of_time)().map_or(Ok(()), Err)
}

fn within(limits: &Limits<'_>, bytes: u64, of: &str) -> Result<(), String> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match limits.memory {
        Some(most) if bytes > most => {
            Err(format!("memory: wanted at most {:.3} GiB {of} (--memory), found {:.3} GiB", gib(most), gib(bytes)))
        }
        _ => Ok(()),
    }
}

fn unmeasured(shape: &Shape, setting: &Setting, config: Option<&Config>) -> Cell {
    let (chunk, dim) = (u64::from(setting.chunk), u64::from(shape.dim));
    let gradient = config.map(|config| if config.is_dense(shape.batch) { "dense" } else { "sparse" });
    Cell {
        setting: *setting,
        touched: u64::from(shape.batch) * dim.div_ceil(chunk) * chunk.min(dim),
        covered: None,
        steps: BTreeMap::new(),
        ways_refused: BTreeMap::new(),
        auto: [None, gradient],
        refused: None,
    }
}

fn measure(
    runner: &mut dyn Runner,
    shape: &Shape,
    config: &Config,
    limits: &Limits<'_>,
    cell: &mut Cell,
) -> anyhow::Result<()> {
    let batches = shape.batches(cell.setting.rows, limits.seed);
    let (starts, covered) = places(config, &batches[0]);
    (cell.covered, cell.auto[0]) = (Some((covered, starts)), Some(runner.auto(starts)));
    for way in Way::ALL {
        match measured(runner, (shape, config), limits, way, &batches)? {
            Ok(step) => drop(cell.steps.insert(way, step)),
            Err(reason) => drop(cell.ways_refused.insert(way, reason)),
        }
    }
    Ok(())
}

/// A way, or why there is neither room nor time for it; whatever else fails, ends the run.
fn measured(
    runner: &mut dyn Runner,
    (shape, config): (&Shape, &Config),
    limits: &Limits<'_>,
    way: Way,
    batches: &[Vec<u32>],
) -> anyhow::Result<Result<Step, String>> {
    let beside = way.beside(config, shape.batch);
    if beside > 0 {
        let of = match way {
            Way::AtomicUpdate => "an array and its atomic sums",
            _ => "an array and its gradient",
        };
        let fits = within(limits, config.table_bytes() + beside, of);
        if let Err(reason) = fits.and_then(|()| (limits.out_of_time)().map_or(Ok(()), Err)) {
            return Ok(Err(reason));
        }
    }
    let mut step = || {
        runner.reconfigure(config.clone().with_backward(way.backward()))?;
        runner.steps(batches, way.what())
    };
    match step() {
        Ok(step) => Ok(Ok(step)),
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::TooLarge { .. } | Error::OutOfMemory { .. }) => Ok(Err(error.to_string())),
            _ => Err(error),
        },
    }
}

/// In how many distinct places the chunks of a batch begin, and how many distinct weights they cover; rows are those of one table.
fn places(config: &Config, rows: &[u32]) -> (u32, u64) {
    let (chunk, dim) = (config.chunk, config.dim);
    let mut pieces: Vec<(u32, u32)> = rows
        .iter()
        .flat_map(|&row| {
            let hash = hash::row_hash(row);
            (0..dim.div_ceil(chunk)).map(move |j| (j, hash))
        })
        .map(|(j, hash)| {
            let start = hash::chunk_start(hash, j, config.weights - chunk + 1);
            (start, start + chunk.min(dim - j * chunk))
        })
        .collect();
    pieces.sort_unstable();
    let starts = pieces.chunk_by(|one, next| one.0 == next.0).count() as u32;
    let (mut sum, mut reached) = (0, 0);
    for (start, end) in pieces {
        sum += u64::from(end.saturating_sub(start.max(reached)));
        reached = reached.max(end);
    }
    (starts, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::suite::Size;

    /// Takes no time; has no room for the sums of more than `most` weights, be they an atomic update's or a gradient's.
    struct Pretended {
        most: u32,
        config: Option<Config>,
        /// What was asked for, of one array after the other.
        asked: Vec<(Backward, What)>,
    }

    impl Pretended {
        fn new(most: u32) -> Self {
            Self { most, config: None, asked: Vec::new() }
        }

        fn room(&self, weights: u32) -> Result<(), Error> {
            let (wanted, limit) = (u64::from(weights), u64::from(self.most));
            if wanted > limit {
                return Err(Error::TooLarge { what: "sums", wanted, limit, remedy: "fewer" });
            }
            Ok(())
        }
    }

    impl Runner for Pretended {
        fn allocate(&mut self, config: Config) -> Result<(), Error> {
            self.config = Some(config);
            Ok(())
        }

        fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
            if config.backward == Backward::Atomic {
                self.room(config.weights)?;
            }
            self.config = Some(config);
            Ok(())
        }

        fn steps(&mut self, batches: &[Vec<u32>], what: What) -> anyhow::Result<Step> {
            let config = self.config.as_ref().unwrap();
            let seconds = match (config.backward, what) {
                (Backward::Dense, What::Update) => 3.0,
                (Backward::Sparse, What::Update) => 2.0,
                (Backward::Dense, What::Gradient) => {
                    self.room(config.weights)?;
                    4.0
                }
                (Backward::Sparse, What::Gradient) => 5.0,
                _ => 1.0,
            };
            assert_eq!(batches.len(), 4);
            self.asked.push((config.backward, what));
            let times = Times { median: 2.0 * seconds, lowest: seconds, ..Times::default() };
            Ok(Step { forward: times, backward: times, stages: Vec::new() })
        }

        fn auto(&self, starts: u32) -> &'static str {
            let weights = self.config.as_ref().map_or(0, |config| config.weights);
            if starts >= weights / 32 { "dense" } else { "sparse" }
        }

        fn free(&mut self) {}
    }

    const IN_TIME: &dyn Fn() -> Option<String> = &|| None;

    fn limits(memory: u64, out_of_time: &dyn Fn() -> Option<String>) -> Limits<'_> {
        Limits { memory: Some(memory), optimizer: Optimizer::sgd(1e-3), seed: 1, out_of_time }
    }

    #[test]
    fn what_has_no_room_is_named() {
        let shape = Shape::new(Size::Small, None, Some(64));
        let settings = [1000, 2000, 4000].map(|weights| Setting { weights, ..shape.setting(4_000, 512.0, 32) });
        let mut runner = Pretended::new(1500);
        // 8 KB: array and sums of 2,000 weights, or array and places and sums of 666.
        let cells = run(&mut runner, &shape, &settings, &limits(8 * 2000, IN_TIME), &|| ()).unwrap();
        assert_eq!(cells.iter().map(Cell::atomic_share).collect::<Vec<_>>(), [Some(0.5), None, None]);
        assert!(cells.iter().all(|cell| cell.refused.is_none() && cell.both(What::Update) == Some((3.0, 2.0))));
        let both: Vec<_> = cells.iter().map(|cell| cell.both(What::Gradient)).collect();
        assert_eq!(both, [Some((4.0, 5.0)), None, None]);
        let reason = |at: usize, way| cells[at].ways_refused.get(&way).cloned().unwrap_or_default();
        for (way, what) in [(Way::AtomicUpdate, "atomic sums (--memory)"), (Way::DenseGradient, "gradient (--memory)")]
        {
            assert_eq!(reason(0, way), "");
            assert!(reason(1, way).contains("sums") && !reason(1, way).contains("--memory"), "{}", reason(1, way));
            assert!(reason(2, way).contains(what), "{}", reason(2, way));
        }
        // 4 bytes a weight, and 8 of each that is covered: all 2,000, more than there is room for.
        assert_eq!(reason(0, Way::SparseGradient), "");
        assert!(reason(1, Way::SparseGradient).contains("gradient (--memory)"));
        let all = [
            (Backward::Dense, What::Update),
            (Backward::Sparse, What::Update),
            (Backward::Dense, What::Gradient),
            (Backward::Sparse, What::Gradient),
            (Backward::Atomic, What::Update),
        ];
        assert_eq!(runner.asked, [&all[..], &all[..2], &all[..2]].concat());
    }

    #[test]
    fn regret_of_a_gradient_is_its_own() {
        let shape = Shape::new(Size::Small, None, Some(64));
        // 8,192 weights are touched: far below and far above.
        let settings = [1000, 800_000].map(|weights| Setting { weights, ..shape.setting(4_000, 512.0, 32) });
        let cells = run(&mut Pretended::new(1 << 20), &shape, &settings, &limits(1 << 24, IN_TIME), &|| ()).unwrap();
        let found: Vec<_> =
            cells.iter().map(|cell| (cell.auto[0], cell.regret(What::Update), cell.regret(What::Gradient))).collect();
        assert_eq!(found, [(Some("dense"), Some(0.5), Some(0.0)), (Some("sparse"), Some(0.0), Some(0.25))]);
    }

    #[test]
    fn what_comes_too_late_is_named() {
        let shape = Shape::new(Size::Small, None, Some(64));
        let settings = [1000, 2000].map(|weights| Setting { weights, ..shape.setting(4_000, 512.0, 32) });
        // Asked before a cell, and before each way that takes memory of its own.
        let asked = std::cell::Cell::new(0);
        let late = || {
            asked.set(asked.get() + 1);
            (asked.get() > 2).then(|| "out of time".to_owned())
        };
        let cells = run(&mut Pretended::new(9000), &shape, &settings, &limits(1 << 20, &late), &|| ()).unwrap();
        let measured: Vec<Way> = cells[0].steps.keys().copied().collect();
        assert_eq!(measured, [Way::DenseUpdate, Way::SparseUpdate, Way::DenseGradient]);
        let refused: Vec<(Way, &str)> = cells[0].ways_refused.iter().map(|(&way, why)| (way, why.as_str())).collect();
        assert_eq!(refused, [(Way::SparseGradient, "out of time"), (Way::AtomicUpdate, "out of time")]);
        assert_eq!(cells[1].refused.as_deref(), Some("out of time"));
        assert!(cells[1].steps.is_empty() && cells[1].ways_refused.is_empty());
    }

    #[test]
    fn other_errors_end_the_run() {
        struct Broken;
        impl Runner for Broken {
            fn allocate(&mut self, _: Config) -> Result<(), Error> {
                Ok(())
            }
            fn reconfigure(&mut self, _: Config) -> Result<(), Error> {
                Ok(())
            }
            fn steps(&mut self, _: &[Vec<u32>], _: What) -> anyhow::Result<Step> {
                Err(Error::Device { reason: "lost".into() }.into())
            }
            fn auto(&self, _: u32) -> &'static str {
                "sparse"
            }
            fn free(&mut self) {}
        }
        let shape = Shape::new(Size::Small, None, Some(64));
        let settings = [shape.setting(4_000, 512.0, 32)];
        let failed = run(&mut Broken, &shape, &settings, &limits(1 << 20, IN_TIME), &|| ()).unwrap_err();
        assert!(failed.to_string().contains("lost"), "{failed}");
    }

    #[test]
    fn covered_weights_are_counted_once() {
        let config = Config::new(&[1000], 10, 60, 4);
        for rows in [&[][..], &[7], &[7, 7], &[1, 2, 3, 500, 999]] {
            let mut places: Vec<u32> =
                rows.iter().flat_map(|&row| (0..10).map(move |e| hash::location(row, e, 60, 4))).collect();
            places.sort_unstable();
            places.dedup();
            let mut starts: Vec<u32> =
                rows.iter().flat_map(|&row| [0, 4, 8].map(|e| hash::location(row, e, 60, 4))).collect();
            starts.sort_unstable();
            starts.dedup();
            let found = super::places(&config, rows);
            assert_eq!(found, (starts.len() as u32, places.len() as u64), "{rows:?}");
        }
        assert_eq!(places(&Config::new(&[1000], 8, 8, 8), &[1, 2, 3]), (1, 8));
    }
}
