//! What the cells show: where dense and sparse cross, the loss of `Backward::Auto`, how flat time is in the rows, and the goals.

use super::measure::{Cell, Step, Way, What};
use super::shape::CHUNK;
use crate::bench::suite::apart;
use crate::report::run::Run;
use crate::report::units::Times;
use crate::report::{Setting, Unit};

/// Records all comparisons of cells.
pub(super) fn record(cells: &[Cell], run: &mut Run) {
    let mut chunks: Vec<u32> = cells.iter().map(|cell| cell.setting.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    for what in What::ALL {
        let of = Setting::default().with("of", what.name());
        regret(cells.iter(), what, run, &of.clone().with("chunks of", "all"));
        for &chunk in &chunks {
            let these = || cells.iter().filter(move |cell| cell.setting.chunk == chunk);
            let setting = of.clone().with("chunks of", chunk);
            regret(these(), what, run, &setting);
            crossover(these(), what, run, &setting);
        }
    }
    for chunk in chunks {
        atomic(
            cells.iter().filter(|cell| cell.setting.chunk == chunk),
            run,
            &Setting::default().with("chunks of", chunk),
        );
    }
    flat(cells, run);
}

/// Where sparse becomes faster than dense, for chunks of one size: |M| over the weights that the batch touches, of the cells on either side
/// of the split that loses least time. Lowest times.
fn crossover<'c>(cells: impl Iterator<Item = &'c Cell>, what: What, run: &mut Run, setting: &Setting) {
    let ratio = |cell: &'c Cell| Some((cell, cell.both(what).map(|(dense, sparse)| sparse / dense)?));
    let mut these: Vec<(&Cell, f64)> = cells.filter_map(ratio).collect();
    these.sort_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()));
    let (Some(smallest), Some(largest)) = (these.first(), these.last()) else { return };
    // Dense below the split loses where sparse is faster, sparse above it where dense is.
    let loss = |split: usize| -> f64 {
        let below = these[..split].iter().map(|(_, share)| (-share.ln()).max(0.0));
        below.chain(these[split..].iter().map(|(_, share)| share.ln().max(0.0))).sum()
    };
    let Some(split) = (0..=these.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b))) else { return };
    let [below, above] = [split.checked_sub(1).map(|i| these[i].0), these.get(split).map(|one| one.0)];
    let weights = |cell: Option<&Cell>| cell.map(|cell| cell.setting.weights as f64);
    let worst = these[split..].iter().map(|one| one.1).reduce(f64::max);
    for (name, value, unit) in [
        ("dense until", below.map(Cell::ratio), Unit::Times),
        ("sparse from", above.map(Cell::ratio), Unit::Times),
        ("weights below", weights(below), Unit::Count),
        ("weights above", weights(above), Unit::Count),
        ("sparse over dense, smallest array", Some(smallest.1), Unit::Times),
        ("sparse over dense, largest array", Some(largest.1), Unit::Times),
        ("above it", worst, Unit::Times),
    ] {
        run.push_some(name, "crossover", setting, value, unit);
    }
}

/// What `Backward::Auto` loses against the faster of dense and sparse in each cell; lowest times.
fn regret<'c>(cells: impl Iterator<Item = &'c Cell>, what: What, run: &mut Run, setting: &Setting) {
    // Lost by the choice, by always dense, by always sparse.
    let lost = |cell: &'c Cell| {
        let (dense, sparse) = cell.both(what)?;
        Some([cell.regret(what)?, dense / dense.min(sparse) - 1.0, sparse / dense.min(sparse) - 1.0])
    };
    let all: Vec<[f64; 3]> = cells.filter_map(lost).collect();
    let [mean, dense, sparse] = [0, 1, 2].map(|k| all.iter().map(|one| one[k]).sum::<f64>() / all.len() as f64);
    let Some(worst) = all.iter().map(|one| one[0]).reduce(f64::max) else { return };
    run.push("cells", "auto", setting, all.len() as f64, Unit::Count);
    for (name, share) in [("mean", mean), ("worst", worst), ("always dense", dense), ("always sparse", sparse)] {
        run.push(name, "auto", setting, share, Unit::Share);
    }
}

/// Share of the faster one's time by which an update must differ to be called faster.
const APART: f64 = 0.05;

/// Where the atomic update is faster than the better of dense and sparse, for chunks of one size.
fn atomic<'c>(cells: impl Iterator<Item = &'c Cell>, run: &mut Run, setting: &Setting) {
    let these: Vec<(&Cell, f64)> = cells.filter_map(|cell| Some((cell, cell.atomic_share()?))).collect();
    let shares = || these.iter().map(|one| one.1);
    let (Some(best), Some(worst)) = (shares().reduce(f64::min), shares().reduce(f64::max)) else { return };
    let faster = || these.iter().filter(|one| one.1 < 1.0 - APART).map(|one| one.0);
    let (from, to) = (faster().map(Cell::ratio).reduce(f64::min), faster().map(Cell::ratio).reduce(f64::max));
    for (name, value, unit) in [
        ("cells", Some(these.len() as f64), Unit::Count),
        ("faster", Some(faster().count() as f64), Unit::Count),
        ("faster from ratio", from, Unit::Times),
        ("faster to ratio", to, Unit::Times),
        ("best", Some(best), Unit::Times),
        ("worst", Some(worst), Unit::Times),
    ] {
        run.push_some(name, "atomic", setting, value, unit);
    }
}

/// How far apart times are at one |M|, over all numbers of rows: slowest over fastest, the lowest time of each. No atomic update: its
/// additions meet by chance.
fn flat(cells: &[Cell], run: &mut Run) {
    let mut arrays: Vec<u64> = cells.iter().map(|cell| cell.setting.weights).collect();
    arrays.sort_unstable();
    arrays.dedup();
    for weights in arrays {
        let same = |cell: &&Cell| cell.setting.weights == weights && cell.setting.chunk == CHUNK;
        let lowest = |way, of: fn(&Step) -> Times| -> Vec<f64> {
            let these = cells.iter().filter(same).filter(|cell| cell.both(What::Update).is_some());
            these.filter_map(|cell| cell.step(way)).map(|step| of(step).lowest).collect()
        };
        let forward = ("forward", lowest(Way::DenseUpdate, |step| step.forward));
        let ways = What::ALL.into_iter().flat_map(What::ways);
        for (way, times) in
            std::iter::once(forward).chain(ways.map(|way| (way.name(), lowest(way, |step| step.backward))))
        {
            let setting = Setting::default().with("weights", weights as f64).with("way", way);
            run.push_some("slowest against fastest", "flat", &setting, apart(&times), Unit::Times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::robe::shape;
    use crate::report::goals::goals;
    use std::collections::BTreeMap;

    fn step(seconds: f64) -> Step {
        // Medians are another figure than the lowest: it shows which is taken.
        let times = |lowest: f64| Times { median: 1.25 * lowest, lowest, rounds: 3, ..Times::default() };
        Step { forward: times(3.2e-5), backward: times(seconds), stages: Vec::new() }
    }

    /// Updates of so many seconds; gradients take as long, dense ones twice.
    fn cell(weights: u64, rows: u32, dense: f64, sparse: f64) -> Cell {
        let compression = f64::from(rows) * 128.0 / weights as f64;
        let ways = [
            (Way::DenseUpdate, dense),
            (Way::SparseUpdate, sparse),
            (Way::DenseGradient, 2.0 * dense),
            (Way::SparseGradient, sparse),
        ];
        Cell {
            setting: shape::Setting { rows, compression, chunk: CHUNK, weights },
            touched: 1000,
            covered: Some((500, 100)),
            steps: ways.into_iter().map(|(way, seconds)| (way, step(seconds))).collect(),
            ways_refused: BTreeMap::new(),
            auto: [Some("dense"); 2],
            refused: None,
        }
    }

    fn recorded(cells: &[Cell]) -> Run {
        let mut run = Run::new("bench robe", Some("abc"), 0, "small");
        cells.iter().for_each(|cell| cell.record(&mut run));
        record(cells, &mut run);
        run
    }

    fn near(found: Option<f64>, wanted: f64) {
        assert!(found.is_some_and(|found| (found / wanted - 1.0).abs() < 1e-9), "{found:?} {wanted}");
    }

    #[test]
    fn a_crossover_is_the_split_that_loses_least() {
        // One noisy cell on either side changes nothing.
        let times = [(1.0, 1.3), (1.0, 0.99), (1.0, 1.2), (2.0, 1.2), (3.0, 3.01), (9.0, 1.2)];
        let cells: Vec<Cell> = (1..).zip(times).map(|(k, (a, b))| cell(1000 * k, 1000, a, b)).collect();
        let run = recorded(&cells);
        let found = |of, what: &str| run.value(what, "crossover", &[("of", of), ("chunks of", "32")]);
        assert_eq!((found("update", "dense until"), found("update", "sparse from")), (Some(3.0), Some(4.0)));
        // Dense gradients take twice as long: none is worth it.
        assert_eq!((found("gradient", "dense until"), found("gradient", "sparse from")), (None, Some(1.0)));
        near(found("gradient", "sparse over dense, smallest array"), 0.65);
        near(found("update", "above it"), 3.01 / 3.0);
    }

    #[test]
    fn atomic_is_named_where_it_is_faster() {
        // Over the better one: 0.5, 0.97 (not 5 % apart), 0.8, 3.
        let times = [(2.0, 3.0, 1.0), (1.0, 2.0, 0.97), (4.0, 2.0, 1.6), (4.0, 1.0, 3.0)];
        let mut cells = Vec::new();
        for (weights, (dense, sparse, atomic)) in (1..).map(|k| 1000 * k).zip(times) {
            let mut one = cell(weights, 1000, dense, sparse);
            one.steps.insert(Way::AtomicUpdate, step(atomic));
            cells.push(one);
        }
        cells.push(cell(9000, 1000, 1.0, 1.0)); // was not measured
        let run = recorded(&cells);
        let found = |what: &str| run.value(what, "atomic", &[("chunks of", "32")]);
        let all = ["cells", "faster", "faster from ratio", "faster to ratio", "best", "worst"].map(found);
        assert_eq!(all, [4.0, 2.0, 1.0, 3.0, 0.5, 3.0].map(Some));
        let run = recorded(&cells[3..]);
        assert_eq!(run.value("faster to ratio", "atomic", &[]), None);
        assert_eq!(run.value("faster", "atomic", &[]), Some(0.0));
        assert_eq!(recorded(&cells[4..]).value("cells", "atomic", &[]), None);
    }

    #[test]
    fn regret_is_of_the_choice() {
        let mut cells = vec![cell(1000, 10, 1.0, 2.0), cell(2000, 10, 3.0, 2.0), cell(3000, 10, 6.0, 2.0)];
        cells[2].setting.chunk = 1;
        let run = recorded(&cells);
        let found = |of, chunk, what: &str| run.value(what, "auto", &[("of", of), ("chunks of", chunk)]);
        let figures = |of, chunk| ["cells", "mean", "worst"].map(|what| found(of, chunk, what));
        // Over all 0, 0.5 and 2; of chunks of 32 without the last; of gradients, of which dense takes twice as long, 0, 2 and 5.
        near(found("update", "all", "mean"), 2.5 / 3.0);
        assert_eq!(figures("update", "1"), [1.0, 2.0, 2.0].map(Some));
        assert_eq!(figures("update", "32"), [2.0, 0.25, 0.5].map(Some));
        assert_eq!(figures("gradient", "1"), [1.0, 5.0, 5.0].map(Some));
        assert_eq!(figures("gradient", "32"), [2.0, 1.0, 2.0].map(Some));
        assert_eq!(["always dense", "always sparse"].map(|what| found("update", "32", what)), [0.25, 0.5].map(Some));
        cells.iter_mut().for_each(|cell| cell.auto[1] = None);
        assert_eq!(recorded(&cells).value("mean", "auto", &[("of", "gradient")]), None);
    }

    #[test]
    fn flat_is_what_was_measured() {
        let mut cells = vec![cell(1000, 10, 1.0, 2.0), cell(1000, 20, 1.05, 2.0), cell(2000, 10, 1.0, 9.0)];
        let flat = |cells: &[Cell]| {
            let run = recorded(cells);
            let found = run.records.into_iter().filter(|record| record.shape == "flat");
            found
                .map(|record| (record.setting.get("way").map(ToString::to_string).unwrap_or_default(), record.value))
                .collect::<Vec<_>>()
        };
        let names =
            ["forward", "dense update", "sparse update", "dense gradient", "sparse gradient"].map(str::to_owned);
        assert_eq!(flat(&cells), names.into_iter().zip([1.0, 1.05, 1.0, 1.05, 1.0]).collect::<Vec<_>>());
        // A figure of one number of rows is neither flat nor not; an atomic update is left out.
        cells[1].steps.remove(&Way::SparseGradient);
        cells.iter_mut().zip([1.0, 5.0]).for_each(|(cell, s)| drop(cell.steps.insert(Way::AtomicUpdate, step(s))));
        assert_eq!(flat(&cells).len(), 4);
    }

    #[test]
    fn goals_are_judged_by_their_cells() {
        let cells =
            [cell(1000, 10_000, 4e-5, 5.5e-5), cell(1000, 80_000, 4e-5, 5e-5), cell(64_000, 80_000, 3e-4, 1.5e-4)];
        let run = recorded(&cells);
        let judged = |id: &str, run: &Run, judged| {
            let all = goals("robe").into_iter().map(|goal| goal.judge(&run.records, judged));
            all.into_iter().find(|goal| goal.id == id).unwrap()
        };
        // Medians of forward and dense ones, the lowest of sparse against dense; gradients by themselves.
        for (id, wanted) in [
            ("robe_forward", 4e-5),
            ("robe_dense", 5e-5),
            ("robe_dense_gradient", 1e-4),
            ("robe_sparse", 5.5 / 4.0),
            ("robe_sparse_gradient", 5.5 / 8.0),
            ("robe_crossover", 0.5),
            ("robe_crossover_gradient", 5.5 / 8.0),
            ("robe_flat", 1.1),
        ] {
            near(judged(id, &run, true).reached, wanted);
            assert_eq!(judged(id, &run, true).met, Some(true), "{id}");
            assert_eq!(judged(id, &run, false).met, None, "{id}");
        }
        let run = recorded(&[cell(1000, 10_000, 9e-5, 2e-4)]);
        let ids = ["robe_dense", "robe_dense_gradient", "robe_sparse", "robe_sparse_gradient", "robe_flat"];
        let met = ids.map(|id| judged(id, &run, true).met);
        assert_eq!(met, [Some(false), Some(false), Some(false), Some(true), None]);
    }
}
