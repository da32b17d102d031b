//! Comparisons of the cells: where dense and sparse cross, the loss of `Backward::Auto`, and how much times depend on the number of rows.

use super::plan::WAYS;
use super::shape::{CHUNK, CHUNKS};
use crate::report::run::Run;
use crate::report::units::apart;
use crate::report::{Record, Setting, Unit};

/// The least difference of two times, as a share of the faster, at which one update counts as faster.
const APART: f64 = 0.05;

/// Records sparse against dense, and how much longer the choice of `Backward::Auto` took than the faster one, as a share of it (lowest times).
pub(super) fn choices(run: &mut Run, place: &Setting, taken: [(&str, &str); 2]) {
    for (what, choice) in taken {
        let cell = Cell(run.records.iter().filter(|record| record.setting == *place).collect());
        let both = ["dense", "sparse"].map(|how| cell.lowest(&format!("{how} {what}")));
        let [Some(dense), Some(sparse)] = both else { continue };
        let chosen = if choice == "dense" { dense } else { sparse };
        let lost = chosen / dense.min(sparse) - 1.0;
        run.at("array", place).push(&format!("sparse against dense {what}"), sparse / dense, Unit::Times);
        let place = place.clone().with("choice", choice);
        run.at("array", &place).push(&format!("lost by auto {what}"), lost, Unit::Share);
    }
}

/// The records of an array of one setting.
struct Cell<'r>(Vec<&'r Record>);

impl<'r> Cell<'r> {
    /// Every cell of a run.
    fn all(records: &'r [Record]) -> Vec<Self> {
        let key = |record: &Record| ["rows", "chunk", "weights"].map(|name| record.setting.number(name));
        let mut cells: Vec<Self> = Vec::new();
        for record in records.iter().filter(|record| record.shape == "array") {
            match cells.iter_mut().find(|cell| key(cell.0[0]) == key(record)) {
                Some(cell) => cell.0.push(record),
                None => cells.push(Self(vec![record])),
            }
        }
        cells
    }

    fn value(&self, what: &str) -> Option<f64> {
        self.0.iter().find(|record| record.what == what).map(|record| record.value)
    }

    fn number(&self, name: &str) -> f64 {
        self.0[0].setting.number(name).unwrap_or(f64::NAN)
    }

    /// The lowest time, since other load on the machine only adds time.
    fn lowest(&self, what: &str) -> Option<f64> {
        let record = self.0.iter().find(|record| record.what == what)?;
        Some(record.spread?.lowest).filter(|&seconds| seconds > 0.0)
    }

    /// |M| divided by the number of weights that the batch's chunks touch.
    fn ratio(&self) -> f64 {
        self.number("weights") / self.value("touched").unwrap_or(1.0).max(1.0)
    }

    /// The time of the atomic update divided by that of the faster of dense and sparse.
    fn atomic_share(&self) -> Option<f64> {
        let [dense, sparse] = ["dense update", "sparse update"].map(|what| self.lowest(what));
        Some(self.lowest("atomic update")? / dense?.min(sparse?))
    }
}

pub(super) fn record(run: &mut Run) {
    let records = run.records.clone();
    let cells = Cell::all(&records);
    let all: Vec<&Cell<'_>> = cells.iter().collect();
    let of_chunk = |chunk: u32| -> Vec<&Cell<'_>> {
        cells.iter().filter(|cell| cell.number("chunk") == f64::from(chunk)).collect()
    };
    for what in ["update", "gradient"] {
        let of = Setting::default().with("of", what);
        regret(&all, what, run, &of.clone().with("chunks of", "all"));
        for chunk in CHUNKS {
            let setting = of.clone().with("chunks of", chunk);
            regret(&of_chunk(chunk), what, run, &setting);
            crossover(&of_chunk(chunk), what, run, &setting);
        }
    }
    for chunk in CHUNKS {
        atomic(&of_chunk(chunk), run, &Setting::default().with("chunks of", chunk));
    }
    flat(&of_chunk(CHUNK), run);
}

/// Records where sparse becomes faster than dense for one chunk size: |M| over the touched weights in the cells on either side of the split
/// that loses least time (lowest times).
fn crossover(cells: &[&Cell<'_>], what: &str, run: &mut Run, setting: &Setting) {
    let share = format!("sparse against dense {what}");
    let ratios = cells.iter().filter_map(|cell| Some((*cell, cell.value(&share)?)));
    let mut these: Vec<(&Cell<'_>, f64)> = ratios.collect();
    these.sort_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()));
    let (Some(smallest), Some(largest)) = (these.first(), these.last()) else { return };
    // Dense below the split loses if sparse is faster; sparse above it loses if dense is faster.
    let loss = |split: usize| -> f64 {
        let below = these[..split].iter().map(|(_, share)| (-share.ln()).max(0.0));
        below.chain(these[split..].iter().map(|(_, share)| share.ln().max(0.0))).sum()
    };
    let Some(split) = (0..=these.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b))) else { return };
    let [below, above] = [split.checked_sub(1).map(|i| these[i].0), these.get(split).map(|one| one.0)];
    let weights = |cell: Option<&Cell<'_>>| cell.map(|cell| cell.number("weights"));
    let mut at = run.at("crossover", setting);
    at.push("dense until", below.map(Cell::ratio), Unit::Times);
    at.push("sparse from", above.map(Cell::ratio), Unit::Times);
    at.push("weights below", weights(below), Unit::Count);
    at.push("weights above", weights(above), Unit::Count);
    at.push("sparse over dense, smallest array", smallest.1, Unit::Times);
    at.push("sparse over dense, largest array", largest.1, Unit::Times);
    at.push("above it", these[split..].iter().map(|one| one.1).reduce(f64::max), Unit::Times);
}

/// Records, for each cell, how much slower `Auto`, always `Dense` and always `Sparse` are than the faster of dense and sparse (lowest times).
fn regret(cells: &[&Cell<'_>], what: &str, run: &mut Run, setting: &Setting) {
    let [lost, share] = ["lost by auto", "sparse against dense"].map(|name| format!("{name} {what}"));
    let losses = cells.iter().filter_map(|cell| {
        let share = cell.value(&share)?;
        Some([cell.value(&lost)?, 1.0 / share.min(1.0) - 1.0, share.max(1.0) - 1.0])
    });
    let all: Vec<[f64; 3]> = losses.collect();
    let Some(worst) = all.iter().map(|one| one[0]).reduce(f64::max) else { return };
    let mean = |k: usize| all.iter().map(|one| one[k]).sum::<f64>() / all.len() as f64;
    let mut at = run.at("auto", setting);
    at.push("cells", all.len() as f64, Unit::Count);
    at.push("mean", mean(0), Unit::Share);
    at.push("worst", worst, Unit::Share);
    at.push("always dense", mean(1), Unit::Share);
    at.push("always sparse", mean(2), Unit::Share);
}

/// Records for one chunk size where the atomic update is faster than both dense and sparse.
fn atomic(cells: &[&Cell<'_>], run: &mut Run, setting: &Setting) {
    let shares = cells.iter().filter_map(|cell| Some((cell.ratio(), cell.atomic_share()?)));
    let (ratios, shares): (Vec<f64>, Vec<f64>) = shares.unzip();
    let (Some(best), Some(worst)) = (least(shares.iter()), most(shares.iter())) else { return };
    let faster = || ratios.iter().zip(&shares).filter(|one| *one.1 < 1.0 - APART).map(|one| one.0);
    let mut at = run.at("atomic", setting);
    at.push("cells", shares.len() as f64, Unit::Count);
    at.push("faster", faster().count() as f64, Unit::Count);
    at.push("faster from ratio", least(faster()), Unit::Times);
    at.push("faster to ratio", most(faster()), Unit::Times);
    at.push("best", best, Unit::Times);
    at.push("worst", worst, Unit::Times);
}

fn least<'v>(values: impl Iterator<Item = &'v f64>) -> Option<f64> {
    values.copied().reduce(f64::min)
}

fn most<'v>(values: impl Iterator<Item = &'v f64>) -> Option<f64> {
    values.copied().reduce(f64::max)
}

/// Records how far times differ between numbers of rows at one |M|: the slowest over the fastest (lowest times). Atomic updates are left
/// out, since collisions of their additions vary.
fn flat(cells: &[&Cell<'_>], run: &mut Run) {
    let mut arrays: Vec<f64> = cells.iter().map(|cell| cell.number("weights")).collect();
    arrays.sort_by(f64::total_cmp);
    arrays.dedup();
    let ways = || ["forward"].into_iter().chain(WAYS.map(|way| way.0)).filter(|way| *way != "atomic update");
    for (weights, way) in arrays.into_iter().flat_map(|weights| ways().map(move |way| (weights, way))) {
        let whole = |cell: &&&Cell<'_>| cell.value("sparse against dense update").is_some();
        let same = cells.iter().filter(|cell| cell.number("weights") == weights).filter(whole);
        let times: Vec<f64> = same.filter_map(|cell| cell.lowest(way)).collect();
        let setting = Setting::default().with("weights", weights).with("way", way);
        run.at("flat", &setting).push("slowest against fastest", apart(&times), Unit::Times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::robe::shape;
    use crate::report::goals::goals;
    use crate::report::units::Times;

    /// An array with chunks of 32, of which a batch touches 1,000 weights, and the lowest times of its ways.
    #[derive(Clone)]
    struct Cell {
        setting: shape::Setting,
        ways: Vec<(&'static str, f64)>,
        choice: &'static str,
    }

    /// A cell whose updates take these seconds. Sparse gradients take the same, dense gradients twice as long.
    fn cell(weights: u64, rows: u32, dense: f64, sparse: f64) -> Cell {
        let compression = f64::from(rows) * 128.0 / weights as f64;
        let ways = vec![
            ("forward", 3.2e-5),
            ("dense update", dense),
            ("sparse update", sparse),
            ("dense gradient", 2.0 * dense),
            ("sparse gradient", sparse),
        ];
        Cell { setting: shape::Setting { rows, compression, chunk: CHUNK, weights }, ways, choice: "dense" }
    }

    fn recorded(cells: &[Cell]) -> Run {
        let mut run = Run::new("bench robe", Some("abc"), 0, "small");
        for Cell { setting, ways, choice } in cells {
            let place = setting.place(1000);
            run.at("array", &place).push("touched", 1000.0, Unit::Count);
            for &(way, lowest) in ways {
                // The median differs from the lowest time, so that the test shows which is used.
                let times = Times { median: 1.25 * lowest, lowest, rounds: 3, ..Times::default() };
                run.at("array", &place).timed(way, times);
            }
            choices(&mut run, &place, [("update", choice), ("gradient", choice)]);
        }
        record(&mut run);
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
        let found = |of, what: &str| run.value(what, "crossover", &format!("of={of}; chunks of=32"));
        assert_eq!((found("update", "dense until"), found("update", "sparse from")), (Some(3.0), Some(4.0)));
        // Dense gradients take twice as long, so no cell prefers them.
        assert_eq!((found("gradient", "dense until"), found("gradient", "sparse from")), (None, Some(1.0)));
        near(found("gradient", "sparse over dense, smallest array"), 0.65);
        near(found("update", "above it"), 3.01 / 3.0);
    }

    #[test]
    fn atomic_is_named_where_it_is_faster() {
        // The atomic update over the better one: 0.5, 0.97 (less than 5 % apart), 0.8, 3.
        let times = [(2.0, 3.0, 1.0), (1.0, 2.0, 0.97), (4.0, 2.0, 1.6), (4.0, 1.0, 3.0)];
        let mut cells = Vec::new();
        for (weights, (dense, sparse, atomic)) in (1..).map(|k| 1000 * k).zip(times) {
            let mut one = cell(weights, 1000, dense, sparse);
            one.ways.push(("atomic update", atomic));
            cells.push(one);
        }
        cells.push(cell(9000, 1000, 1.0, 1.0)); // was not measured
        let run = recorded(&cells);
        let found = |what: &str| run.value(what, "atomic", "chunks of=32");
        let all = ["cells", "faster", "faster from ratio", "faster to ratio", "best", "worst"].map(found);
        assert_eq!(all, [4.0, 2.0, 1.0, 3.0, 0.5, 3.0].map(Some));
        let run = recorded(&cells[3..]);
        assert_eq!(run.value("faster to ratio", "atomic", ""), None);
        assert_eq!(run.value("faster", "atomic", ""), Some(0.0));
        assert_eq!(recorded(&cells[4..]).value("cells", "atomic", ""), None);
    }

    #[test]
    fn regret_is_of_the_choice() {
        let mut cells = vec![cell(1000, 10, 1.0, 2.0), cell(2000, 10, 3.0, 2.0), cell(3000, 10, 6.0, 2.0)];
        cells[2].setting.chunk = 1;
        let run = recorded(&cells);
        let found = |of, chunk, what: &str| run.value(what, "auto", &format!("of={of}; chunks of={chunk}"));
        let figures = |of, chunk| ["cells", "mean", "worst"].map(|what| found(of, chunk, what));
        // Losses over all cells 0, 0.5 and 2; for chunks of 32 the last one is missing; for gradients, whose dense way takes twice as long,
        // 0, 2 and 5.
        near(found("update", "all", "mean"), 2.5 / 3.0);
        assert_eq!(figures("update", "1"), [1.0, 2.0, 2.0].map(Some));
        assert_eq!(figures("update", "32"), [2.0, 0.25, 0.5].map(Some));
        assert_eq!(figures("gradient", "1"), [1.0, 5.0, 5.0].map(Some));
        assert_eq!(figures("gradient", "32"), [2.0, 1.0, 2.0].map(Some));
        near(found("update", "32", "always dense"), 0.25);
        near(found("update", "32", "always sparse"), 0.5);
        cells.iter_mut().for_each(|cell| cell.ways.truncate(3));
        assert_eq!(recorded(&cells).value("mean", "auto", "of=gradient"), None);
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
        // A single number of rows gives no figure; atomic updates are left out.
        cells[1].ways.truncate(4);
        cells.iter_mut().zip([1.0, 5.0]).for_each(|(cell, seconds)| cell.ways.push(("atomic update", seconds)));
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
        // Medians of forward and dense update; lowest times of sparse against dense; gradients of their own.
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
