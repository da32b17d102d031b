//! Measures every setting on a backend. Settings of one size share an array; settings without room are left out with the reason.

use hotrow::robe::{Backward, Config, hash};
use hotrow::{Error, Pooling};

use super::compare::choices;
use super::plan::{Batches, Behind, Plan, Runner, WAYS};
use super::shape::Setting;
use crate::lab::Stage;
use crate::progress::Progress;
use crate::report::run::Run;
use crate::report::units::Times;
use crate::report::{self, Unit};

/// Measures all settings in their order. Neighbours with the same |M| share an array.
pub(super) fn run(plan: &Plan<'_>, settings: &[Setting], run: &mut Run, runner: &mut dyn Runner) -> anyhow::Result<()> {
    let progress = Progress::new("shared arrays", settings.len() as u64);
    let mut held = None;
    for setting in settings {
        let mut ready = || -> Result<Config, String> {
            let config = config(plan, setting)?;
            plan.has_room(config.table_bytes(), "an array")?;
            let same = held.take() == Some(setting.weights);
            runner.array(config.clone(), same).map_err(|error| error.to_string())?;
            held = Some(setting.weights);
            Ok(config)
        };
        match ready() {
            Ok(config) => cell(plan, run, runner, (setting, &config))?,
            Err(reason) => run.leave_out(setting.name(), reason),
        }
        progress.advance(1);
    }
    Ok(())
}

/// The configuration of a setting, or the reason why it is illegal.
fn config(plan: &Plan<'_>, setting: &Setting) -> Result<Config, String> {
    let weights = u32::try_from(setting.weights).unwrap_or(u32::MAX);
    let config = Config::new(&[setting.rows], plan.shape.dim, weights, setting.chunk)
        .with_pooling(Pooling::None)
        .with_optimizer(plan.optimizer)
        .with_seed(plan.seed);
    config.check().map(|()| config).map_err(|error| error.to_string())
}

/// Measures and records a cell: the number of weights that a batch touches, every way, and the loss of `Backward::Auto`.
fn cell(
    plan: &Plan<'_>,
    run: &mut Run,
    runner: &mut dyn Runner,
    (setting, config): (&Setting, &Config),
) -> anyhow::Result<()> {
    let touched = plan.shape.touched(setting.chunk);
    let place = setting.place(touched);
    let rows = plan.shape.batches(setting.rows, plan.seed);
    let (starts, covered) = places(config, &rows[0]);
    let gradient = if config.is_dense(plan.shape.batch) { "dense" } else { "sparse" };
    let taken = [("update", runner.auto(starts)), ("gradient", gradient)];
    let mut at = run.at("array", &place);
    for (what, n) in [("touched", touched as f64), ("covered", covered as f64), ("starts", f64::from(starts))] {
        at.push(what, n, Unit::Count);
    }
    for way in WAYS {
        match measured(plan, runner, config, way, &Batches { rows: &rows, bag: 1 })? {
            Ok(times) => {
                record(run, &place, way.0, times);
                stages(run, &place, way.0, times, runner.stages());
            }
            Err(reason) => run.leave_out(format!("{} of {}", way.0, setting.name()), reason),
        }
    }
    choices(run, &place, taken);
    Ok(())
}

/// Records the times of a way and of the forward before it.
fn record(run: &mut Run, place: &report::Setting, way: &str, [forward, backward]: [Times; 2]) {
    let mut at = run.at("array", place);
    match way {
        "dense update" => at.timed("forward", forward),
        "sparse update" => at.timed("forward before sparse update", forward),
        _ => (),
    }
    at.timed(way, backward);
}

/// Records the stages of a way that take at least 5 % of their phase. The forward is the same in all ways, so it is recorded once.
fn stages(run: &mut Run, place: &report::Setting, way: &str, [forward, backward]: [Times; 2], stages: Vec<Stage>) {
    for part in stages.into_iter().filter(|part| part.phase != "forward" || way == "dense update") {
        let whole = if part.phase == "forward" { forward } else { backward };
        let Some(times) = part.times.filter(|times| times.median >= 0.05 * whole.median) else { continue };
        let mut at = run.at("stages", &place.clone().with("way", way).with("stage", part.stage));
        at.timed("stage", times);
        at.push("dispatches", part.dispatches as f64, Unit::Count);
    }
}

/// Measures a way, or returns the reason if there is no room or time. Any other error ends the run.
fn measured(
    plan: &Plan<'_>,
    runner: &mut dyn Runner,
    config: &Config,
    (_, behind, backward): (&str, Behind, Backward),
    batches: &Batches<'_>,
) -> anyhow::Result<Result<[Times; 2], String>> {
    // Memory beside the array: sums of all weights, or sums and places of the weights that a batch can cover.
    let beside = match (behind, backward) {
        (_, Backward::Atomic) => Some((4 * u64::from(config.weights), "an array and its atomic sums")),
        (Behind::Gradient, Backward::Dense) => Some((4 * u64::from(config.weights), "an array and its gradient")),
        (Behind::Gradient, _) => {
            Some((8 * u64::from(config.most_covered(plan.shape.batch)), "an array and its gradient"))
        }
        _ => None,
    };
    if let Some(Err(reason)) = beside.map(|(bytes, of)| plan.has_room(config.table_bytes() + bytes, of)) {
        return Ok(Err(reason));
    }
    let mut step = || {
        runner.array(config.clone().with_backward(backward), true)?;
        runner.steps(batches, behind)
    };
    match step() {
        Ok(step) => Ok(Ok(step)),
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::TooLarge { .. } | Error::OutOfMemory { .. }) => Ok(Err(error.to_string())),
            _ => Err(error),
        },
    }
}

/// The number of distinct places where the chunks of a batch begin, and of distinct weights that they cover. `rows` are rows of one table.
fn places(config: &Config, rows: &[u32]) -> (u32, u64) {
    let (chunk, dim) = (config.chunk, config.dim);
    let piece = |(row, j): (u32, u32)| {
        let start = hash::chunk_start(hash::row_hash(row), j, config.weights - chunk + 1);
        (start, start + chunk.min(dim - j * chunk))
    };
    let of_row = |&row: &u32| (0..dim.div_ceil(chunk)).map(move |j| (row, j));
    let mut pieces: Vec<(u32, u32)> = rows.iter().flat_map(of_row).map(piece).collect();
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
    use super::super::shape::Shape;
    use super::*;
    use crate::bench::suite::Size;
    use hotrow::{GroupConfig, Optimizer};

    /// A runner that takes no time and has room for the sums of `most` weights, in an atomic update or a gradient.
    struct Pretended {
        most: u32,
        config: Option<Config>,
        /// The ways that were asked for, array by array.
        asked: Vec<(Backward, Behind)>,
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
        fn array(&mut self, config: Config, _: bool) -> Result<(), Error> {
            if config.backward == Backward::Atomic {
                self.room(config.weights)?;
            }
            self.config = Some(config);
            Ok(())
        }

        fn auto(&self, starts: u32) -> &'static str {
            let weights = self.config.as_ref().map_or(0, |config| config.weights);
            if starts >= weights / 32 { "dense" } else { "sparse" }
        }

        fn steps(&mut self, batches: &Batches<'_>, behind: Behind) -> anyhow::Result<[Times; 2]> {
            let config = self.config.as_ref().unwrap();
            let seconds = match (config.backward, behind) {
                (Backward::Dense, Behind::Update) => 3.0,
                (Backward::Sparse, Behind::Update) => 2.0,
                (Backward::Dense, Behind::Gradient) => {
                    self.room(config.weights)?;
                    4.0
                }
                (Backward::Sparse, Behind::Gradient) => 5.0,
                _ => 1.0,
            };
            assert_eq!(batches.rows.len(), 4);
            self.asked.push((config.backward, behind));
            let times = Times { median: 2.0 * seconds, lowest: seconds, rounds: 3, ..Times::default() };
            Ok([times; 2])
        }

        fn cached(&mut self, _: &GroupConfig, _: &[Vec<u32>], _: &Batches<'_>) -> anyhow::Result<(Times, f64)> {
            anyhow::bail!("no cached table")
        }
    }

    /// Runs arrays of these numbers of weights and returns the records.
    fn measured(
        runner: &mut dyn Runner,
        weights: &[u64],
        memory: u64,
        over: &dyn Fn() -> Option<String>,
    ) -> anyhow::Result<Run> {
        let plan = Plan {
            size: Size::Small,
            shape: Shape::new(Size::Small, None, Some(64)),
            memory: Some(memory),
            optimizer: Optimizer::sgd(1e-3),
            seed: 1,
            over,
            backend: "cpu",
        };
        let setting = |&weights| Setting { weights, ..plan.shape.setting(4_000, 512.0, 32) };
        let mut found = Run::new("bench robe", Some("abc"), 0, "small");
        run(&plan, &weights.iter().map(setting).collect::<Vec<_>>(), &mut found, runner)?;
        Ok(found)
    }

    const WEIGHTS: [&str; 3] = ["weights=1000", "weights=2000", "weights=4000"];

    /// The lowest time of a way in the cell of this size, or the reason why it was left out.
    fn way(run: &Run, what: &str, weights: &str) -> Result<f64, String> {
        let select = report::Select { what, shape: "array", setting: weights };
        let found = run.select(select).next().map(|record| record.spread.unwrap().lowest);
        let reasons = run.reasons();
        let reason = reasons.iter().find(|(names, _)| names.iter().any(|name| name.starts_with(what)));
        found.ok_or_else(|| reason.map(|(_, why)| (*why).to_owned()).unwrap_or_default())
    }

    #[test]
    fn what_has_no_room_is_named() {
        let mut runner = Pretended::new(1500);
        // 8 x 2,000 bytes are enough for array and sums of 2,000 weights, or for array, places and sums of 666.
        let run = measured(&mut runner, &[1000, 2000, 4000], 8 * 2000, &|| None).unwrap();
        for weights in WEIGHTS {
            assert_eq!((way(&run, "dense update", weights), way(&run, "sparse update", weights)), (Ok(3.0), Ok(2.0)));
        }
        for (what, seconds) in [("atomic update", 1.0), ("dense gradient", 4.0), ("sparse gradient", 5.0)] {
            let found = WEIGHTS.map(|weights| way(&run, what, weights).ok());
            assert_eq!(found, [Some(seconds), None, None], "{what}");
        }
        // Each reason is named: the runner has no room, or the memory limit is exceeded. A weight takes 4 bytes, a covered weight 8 more;
        // all 2,000 are covered, too many for the limit.
        let why: Vec<(usize, &str)> = run.reasons().into_iter().map(|(all, why)| (all.len(), why)).collect();
        let count = |what: &str| why.iter().filter(|(_, why)| why.contains(what)).map(|(n, _)| n).sum::<usize>();
        assert_eq!((count("sums: wanted"), count("atomic sums (--memory)"), count("gradient (--memory)")), (2, 1, 3));
        let all = WAYS.map(|(_, behind, backward)| (backward, behind));
        assert_eq!(runner.asked, [&all[..], &all[..2], &all[..2]].concat());
    }

    #[test]
    fn regret_of_a_gradient_is_its_own() {
        // A batch touches 8,192 weights: far more and far fewer than the arrays have.
        let run = measured(&mut Pretended::new(1 << 20), &[1000, 800_000], 1 << 24, &|| None).unwrap();
        let lost = |what: &str, place: &str| run.value(what, "array", place);
        let found = ["weights=1000; choice=dense", "weights=800 K; choice=sparse"]
            .map(|place| ["lost by auto update", "lost by auto gradient"].map(|what| lost(what, place)));
        assert_eq!(found, [[Some(0.5), Some(0.0)], [Some(0.0), Some(0.25)]]);
    }

    #[test]
    fn what_comes_too_late_is_named() {
        // The deadline is checked before a cell, and before each way that takes memory of its own.
        let asked = std::cell::Cell::new(0);
        let late = || {
            asked.set(asked.get() + 1);
            (asked.get() > 2).then(|| "out of time".to_owned())
        };
        let run = measured(&mut Pretended::new(9000), &[1000, 2000], 1 << 20, &late).unwrap();
        let measured = WAYS.map(|(what, ..)| way(&run, what, "weights=1000").is_ok());
        assert_eq!(measured, [true, true, true, false, false]);
        let cell = "4 K rows at 512x in chunks of 32";
        let names = [&format!("sparse gradient of {cell}"), &format!("atomic update of {cell}"), cell];
        assert_eq!(run.reasons(), [(names.to_vec(), "out of time")]);
        assert!(run.records.iter().all(|record| record.setting.number("weights") == Some(1000.0)));
    }

    #[test]
    fn other_errors_end_the_run() {
        struct Broken;
        impl Runner for Broken {
            fn array(&mut self, _: Config, _: bool) -> Result<(), Error> {
                Ok(())
            }
            fn auto(&self, _: u32) -> &'static str {
                "sparse"
            }
            fn steps(&mut self, _: &Batches<'_>, _: Behind) -> anyhow::Result<[Times; 2]> {
                Err(Error::Device { reason: "lost".into() }.into())
            }
            fn cached(&mut self, _: &GroupConfig, _: &[Vec<u32>], _: &Batches<'_>) -> anyhow::Result<(Times, f64)> {
                anyhow::bail!("no cached table")
            }
        }
        let failed = measured(&mut Broken, &[1000], 1 << 20, &|| None).unwrap_err();
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
