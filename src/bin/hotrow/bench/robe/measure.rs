//! Every setting on a backend: arrays that serve all settings of their size, and what cannot be, with the reason.

use hotrow::robe::{Backward, Config, hash};
use hotrow::{Error, Optimizer, Pooling};
use serde::Serialize;

use super::shape::{Setting, Shape};
use crate::suite::lab::Times;

/// What measures.
pub(crate) trait Runner {
    /// An array of this configuration, in place of the last one.
    fn allocate(&mut self, config: Config) -> Result<(), Error>;
    /// The same array under another configuration.
    fn reconfigure(&mut self, config: Config) -> Result<(), Error>;
    /// Forward and backward over the batches in turn.
    fn steps(&mut self, batches: &[Vec<u32>]) -> anyhow::Result<Step>;
    /// Frees the array.
    fn free(&mut self);
}

/// Forward and backward.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) forward: Times,
    pub(crate) backward: Times,
    /// What of it the stages took, on a device that stamps them.
    pub(crate) stages: Vec<StageTime>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct StageTime {
    pub(crate) phase: &'static str,
    pub(crate) stage: &'static str,
    pub(crate) dispatches: u64,
    pub(crate) seconds: Option<f64>,
}

/// A setting, measured or not.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    #[serde(flatten)]
    pub(crate) setting: Setting,
    pub(crate) array_bytes: u64,
    /// Chunks of a batch times the longest chunk: what the rule of `Backward::Auto` compares |M| with.
    pub(crate) touched: u64,
    /// Distinct weights among them, of the first batch.
    pub(crate) covered: Option<u64>,
    pub(crate) dense: Option<Step>,
    pub(crate) sparse: Option<Step>,
    pub(crate) atomic: Option<Step>,
    /// Why the atomic one was not, where the others were.
    pub(crate) atomic_refused: Option<String>,
    /// What `Backward::Auto` takes.
    pub(crate) auto: Option<&'static str>,
    /// How much longer that backward took than the faster one, as a share of it; lowest against lowest.
    pub(crate) regret: Option<f64>,
    /// Why it was not measured.
    pub(crate) refused: Option<String>,
}

/// How a backward comes by its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Dense,
    Sparse,
    Atomic,
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Dense, Self::Sparse, Self::Atomic];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Sparse => "sparse",
            Self::Atomic => "atomic",
        }
    }
}

impl Cell {
    pub(crate) fn step(&self, way: Way) -> Option<&Step> {
        match way {
            Way::Dense => self.dense.as_ref(),
            Way::Sparse => self.sparse.as_ref(),
            Way::Atomic => self.atomic.as_ref(),
        }
    }

    /// Dense and sparse backward as they are compared with each other: their lowest, for neighbours on the machine only ever add.
    pub(crate) fn backwards(&self) -> Option<(f64, f64)> {
        Some((self.dense.as_ref()?.backward.lowest, self.sparse.as_ref()?.backward.lowest))
    }

    /// The atomic backward over the faster of the other two, lowest against lowest.
    pub(crate) fn atomic_share(&self) -> Option<f64> {
        let (dense, sparse) = self.backwards()?;
        Some(self.atomic.as_ref()?.backward.lowest / dense.min(sparse)).filter(|share| share.is_finite())
    }

    /// |M| over what the batch's chunks touch.
    pub(crate) fn ratio(&self) -> f64 {
        self.setting.weights as f64 / self.touched.max(1) as f64
    }
}

/// What a run may take.
pub(crate) struct Limits<'a> {
    /// Bytes of an array and its state.
    pub(crate) memory: Option<u64>,
    pub(crate) optimizer: Optimizer,
    pub(crate) seed: u32,
    /// Whether the time is up, and what to say then.
    pub(crate) out_of_time: &'a dyn Fn() -> Option<String>,
}

/// Measures all settings in their order; neighbours of one |M| share an array.
pub(crate) fn run(
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
    let config = Config {
        pooling: Pooling::None,
        optimizer: limits.optimizer,
        seed: limits.seed,
        ..Config::new(&[setting.rows], shape.dim, weights, setting.chunk)
    };
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
    Cell {
        setting: *setting,
        array_bytes: config.map_or(4 * setting.weights, Config::table_bytes),
        touched: u64::from(shape.batch) * dim.div_ceil(chunk) * chunk.min(dim),
        covered: None,
        dense: None,
        sparse: None,
        atomic: None,
        atomic_refused: None,
        auto: config.map(|config| if config.is_dense(shape.batch) { "dense" } else { "sparse" }),
        regret: None,
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
    cell.covered = Some(covered(config, &batches[0]));
    let mut step = |backward| {
        runner.reconfigure(Config { backward, ..config.clone() })?;
        runner.steps(&batches)
    };
    let (dense, sparse) = (step(Backward::Dense)?, step(Backward::Sparse)?);
    (cell.dense, cell.sparse) = (Some(dense), Some(sparse));
    cell.regret = cell.backwards().filter(|(a, b)| a.min(*b) > 0.0).map(|(a, b)| {
        let taken = if cell.auto == Some("dense") { a } else { b };
        taken / a.min(b) - 1.0
    });
    match adding(runner, config, limits) {
        Ok(()) => cell.atomic = Some(runner.steps(&batches)?),
        Err(reason) => cell.atomic_refused = Some(reason),
    }
    Ok(())
}

/// Makes the array's backward atomic, or says why it cannot be: its sums take |M| floats more, in one binding.
fn adding(runner: &mut dyn Runner, config: &Config, limits: &Limits<'_>) -> Result<(), String> {
    within(limits, config.table_bytes() + 4 * u64::from(config.weights), "an array and its atomic sums")?;
    runner.reconfigure(Config { backward: Backward::Atomic, ..config.clone() }).map_err(|error| error.to_string())
}

/// How many distinct weights the chunks of a batch cover; rows are those of one table.
fn covered(config: &Config, rows: &[u32]) -> u64 {
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
    let (mut sum, mut reached) = (0, 0);
    for (start, end) in pieces {
        sum += u64::from(end.saturating_sub(start.max(reached)));
        reached = reached.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Size;

    /// Takes no time; has no room for the sums of more than `most` weights.
    struct Pretended {
        most: u32,
        backward: Backward,
    }

    impl Runner for Pretended {
        fn allocate(&mut self, _: Config) -> Result<(), Error> {
            Ok(())
        }

        fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
            if config.backward == Backward::Atomic && config.weights > self.most {
                let (wanted, limit) = (u64::from(config.weights), u64::from(self.most));
                return Err(Error::TooLarge { what: "sums", wanted, limit, remedy: "fewer" });
            }
            self.backward = config.backward;
            Ok(())
        }

        fn steps(&mut self, _: &[Vec<u32>]) -> anyhow::Result<Step> {
            let seconds = match self.backward {
                Backward::Dense => 3.0,
                Backward::Sparse => 2.0,
                _ => 1.0,
            };
            let times = Times { median: seconds, lowest: seconds, ..Times::default() };
            Ok(Step { forward: times, backward: times, stages: Vec::new() })
        }

        fn free(&mut self) {}
    }

    #[test]
    fn an_atomic_backward_that_cannot_be_is_named() {
        let shape = Shape::new(Size::Small, None, Some(64));
        let settings = [1000, 2000, 4000].map(|weights| Setting { weights, ..shape.setting(4_000, 512.0, 32) });
        let limits = Limits { memory: Some(8 * 2000), optimizer: Optimizer::sgd(1e-3), seed: 1, out_of_time: &|| None };
        let mut runner = Pretended { most: 1500, backward: Backward::Auto };
        let cells = run(&mut runner, &shape, &settings, &limits, &|| ()).unwrap();
        let share = |cell: &Cell| cell.atomic_share();
        assert_eq!(cells.iter().map(share).collect::<Vec<_>>(), [Some(0.5), None, None]);
        assert!(cells.iter().all(|cell| cell.refused.is_none() && cell.backwards() == Some((3.0, 2.0))));
        let reason = |at: usize| cells[at].atomic_refused.clone().unwrap_or_default();
        assert_eq!(reason(0), "");
        assert!(reason(1).contains("sums") && !reason(1).contains("--memory"), "{}", reason(1));
        assert!(reason(2).contains("atomic sums (--memory)"), "{}", reason(2));
    }

    #[test]
    fn covered_weights_are_counted_once() {
        let config = Config::new(&[1000], 10, 60, 4);
        for rows in [&[][..], &[7], &[7, 7], &[1, 2, 3, 500, 999]] {
            let mut places: Vec<u32> =
                rows.iter().flat_map(|&row| (0..10).map(move |e| hash::location(row, e, 60, 4))).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(covered(&config, rows), places.len() as u64, "{rows:?}");
        }
        assert_eq!(covered(&Config::new(&[1000], 8, 8, 8), &[1, 2, 3]), 8);
    }
}
