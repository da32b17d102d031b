//! What the cells say: where dense and sparse cross, what the rule costs, how flat time is in the rows, and the goals.

use serde::Serialize;
use std::collections::BTreeMap;

use super::measure::{Cell, Step, Way, What};
use super::shape::{CHUNK, Setting, count};
use crate::suite::goals::{Goal, Id, reach, robe};
use crate::suite::lab::Times;

/// Where sparse becomes faster than dense, for chunks of one size; lowest times.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Crossover {
    pub(crate) of: What,
    pub(crate) chunk: u32,
    /// |M| over what the batch touches: the cells on either side of the split that loses least time.
    pub(crate) dense_until: Option<f64>,
    pub(crate) sparse_from: Option<f64>,
    /// Between the two, evenly by ratio.
    pub(crate) at: Option<f64>,
    /// |M| of those cells, and the distinct weights that their batches cover.
    pub(crate) weights: (Option<u64>, Option<u64>),
    pub(crate) covered: (Option<u64>, Option<u64>),
    /// Sparse over dense at the smallest and the largest array.
    pub(crate) smallest: f64,
    pub(crate) largest: f64,
}

/// Of updates and of gradients, chunk size by chunk size.
pub(crate) fn crossovers(cells: &[Cell]) -> Vec<Crossover> {
    let of = |what| chunks(cells).into_iter().filter_map(move |chunk| crossover(cells, chunk, what));
    What::ALL.into_iter().flat_map(of).collect()
}

/// Sizes of chunks, smallest first.
fn chunks(cells: &[Cell]) -> Vec<u32> {
    let mut chunks: Vec<u32> = cells.iter().map(|cell| cell.setting.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks
}

fn crossover(cells: &[Cell], chunk: u32, what: What) -> Option<Crossover> {
    let mut these: Vec<(&Cell, f64)> = cells
        .iter()
        .filter(|cell| cell.setting.chunk == chunk)
        .filter_map(|cell| cell.both(what).map(|(dense, sparse)| (cell, (sparse / dense).ln())))
        .collect();
    these.sort_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()));
    let (smallest, largest) = (these.first()?.1.exp(), these.last()?.1.exp());
    // Dense below the split loses where sparse is faster, sparse above it where dense is.
    let loss = |split: usize| -> f64 {
        let below = these[..split].iter().map(|(_, gain)| (-gain).max(0.0));
        below.chain(these[split..].iter().map(|(_, gain)| gain.max(0.0))).sum()
    };
    let split = (0..=these.len()).min_by(|&a, &b| loss(a).total_cmp(&loss(b)))?;
    let [below, above] = [split.checked_sub(1).map(|i| these[i].0), these.get(split).map(|one| one.0)];
    Some(Crossover {
        of: what,
        chunk,
        dense_until: below.map(Cell::ratio),
        sparse_from: above.map(Cell::ratio),
        at: below.zip(above).map(|(below, above)| (below.ratio() * above.ratio()).sqrt()),
        weights: (below.map(|cell| cell.setting.weights), above.map(|cell| cell.setting.weights)),
        covered: (below.and_then(|cell| cell.covered), above.and_then(|cell| cell.covered)),
        smallest,
        largest,
    })
}

/// Share of the faster one's time by which an update must differ to be called faster.
const APART: f64 = 0.05;

/// Where the atomic update is faster than the better of dense and sparse, for chunks of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Atomic {
    pub(crate) chunk: u32,
    /// Cells in which all three were measured.
    pub(crate) cells: usize,
    /// Those in which it takes at least 5 % less than the better of the others.
    pub(crate) faster: usize,
    /// The smallest and the largest of their arrays: |M|, |M| over what the batch touches, compression.
    pub(crate) from: Option<Edge>,
    pub(crate) to: Option<Edge>,
    /// Cells with no smaller and no larger an array than those.
    pub(crate) between: usize,
    /// Its time over the better one's: where least, where most.
    pub(crate) best: f64,
    pub(crate) best_at: Setting,
    pub(crate) worst: f64,
    pub(crate) worst_at: Setting,
}

/// An array at an end of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Edge {
    pub(crate) weights: u64,
    pub(crate) ratio: f64,
    pub(crate) compression: f64,
}

pub(crate) fn atomic(cells: &[Cell]) -> Vec<Atomic> {
    chunks(cells).into_iter().filter_map(|chunk| atomic_of(cells, chunk)).collect()
}

fn atomic_of(cells: &[Cell], chunk: u32) -> Option<Atomic> {
    let these = cells.iter().filter(|cell| cell.setting.chunk == chunk);
    let these: Vec<(&Cell, f64)> = these.filter_map(|cell| Some((cell, cell.atomic_share()?))).collect();
    let best = these.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let worst = these.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let faster: Vec<&Cell> = these.iter().filter(|one| one.1 < 1.0 - APART).map(|one| one.0).collect();
    let edge = |cell: &&Cell| Edge {
        weights: cell.setting.weights,
        ratio: cell.ratio(),
        compression: cell.setting.compression,
    };
    let weights = |cell: &&&Cell| cell.setting.weights;
    let (from, to) = (faster.iter().min_by_key(weights).map(edge), faster.iter().max_by_key(weights).map(edge));
    let ends = from.zip(to).map(|(from, to)| from.weights..=to.weights);
    Some(Atomic {
        chunk,
        cells: these.len(),
        faster: faster.len(),
        from,
        to,
        between: ends.map_or(0, |ends| these.iter().filter(|one| ends.contains(&one.0.setting.weights)).count()),
        best: best.1,
        best_at: best.0.setting,
        worst: worst.1,
        worst_at: worst.0.setting,
    })
}

/// Over all chunks, in a sentence.
pub(crate) fn verdict(all: &[Atomic]) -> String {
    let sum = |of: &dyn Fn(&Atomic) -> usize| all.iter().map(of).sum::<usize>();
    let (cells, faster) = (sum(&|one| one.cells), sum(&|one| one.faster));
    let Some(best) = all.iter().min_by(|a, b| a.best.total_cmp(&b.best)) else {
        return "Atomic update was measured nowhere.".to_owned();
    };
    let place = format!("{}, chunks of {}", place(&best.best_at), best.chunk);
    match faster {
        0 => format!(
            "Atomic update is nowhere faster than the better of dense and sparse ones, in {cells} cells: at best it takes {:.2} times as long ({place}).",
            best.best
        ),
        _ => format!(
            "Atomic update is faster than the better of dense and sparse ones in {faster} of {cells} cells, at most {:.2} times as fast ({place}).",
            1.0 / best.best
        ),
    }
}

/// Of one chunk size.
pub(crate) fn stretch(one: &Atomic) -> String {
    let cells = if one.cells == 1 { "1 cell".to_owned() } else { format!("{} cells", one.cells) };
    let times = format!(
        "its time is {:.2} ({}) to {:.2} ({}) of the better one's",
        one.best,
        place(&one.best_at),
        one.worst,
        place(&one.worst_at)
    );
    let Some((from, to)) = one.from.zip(one.to) else { return format!("faster nowhere, of {cells}; {times}") };
    let ends = |of: &dyn Fn(Edge) -> String| {
        let (from, to) = (of(from), of(to));
        if from == to { from } else { format!("{from} to {to}") }
    };
    format!(
        "faster with |M| of {} ({} times what the batch touches, {}), there in {} of {}, of {cells} in all; {times}",
        ends(&|edge| count(edge.weights as f64)),
        ends(&|edge| format!("{:.3}", edge.ratio)),
        ends(&|edge| format!("{}x", round(edge.compression))),
        one.faster,
        one.between,
    )
}

fn place(setting: &Setting) -> String {
    let (weights, rows) = (count(setting.weights as f64), count(f64::from(setting.rows)));
    format!("|M| {weights}, {rows} rows, {}x", round(setting.compression))
}

/// What `Backward::Auto` loses against the faster of dense and sparse in each cell; lowest times.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Regret {
    pub(crate) of: What,
    /// `None`: of every size.
    pub(crate) chunk: Option<u32>,
    pub(crate) cells: usize,
    pub(crate) mean: f64,
    pub(crate) worst: f64,
    pub(crate) worst_at: Setting,
    /// Of always dense and of always sparse.
    pub(crate) mean_dense: f64,
    pub(crate) mean_sparse: f64,
}

/// Of updates and of gradients: over all cells, and for each size of chunks.
pub(crate) fn regrets(cells: &[Cell]) -> Vec<Regret> {
    let sizes = || std::iter::once(None).chain(chunks(cells).into_iter().map(Some));
    What::ALL.into_iter().flat_map(|what| sizes().filter_map(move |chunk| regret(cells, chunk, what))).collect()
}

/// A cell, the regret of its choice, and its dense and sparse time.
type Chosen<'a> = (&'a Cell, f64, (f64, f64));

fn regret(cells: &[Cell], chunk: Option<u32>, what: What) -> Option<Regret> {
    let these = cells.iter().filter(|cell| chunk.is_none_or(|chunk| cell.setting.chunk == chunk));
    let all: Vec<Chosen<'_>> = these.filter_map(|cell| Some((cell, cell.regret(what)?, cell.both(what)?))).collect();
    let mean = |of: &dyn Fn(&Chosen<'_>) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let worst = all.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Regret {
        of: what,
        chunk,
        cells: all.len(),
        mean: mean(&|one| one.1),
        worst: worst.1,
        worst_at: worst.0.setting,
        mean_dense: mean(&|(_, _, (dense, sparse))| dense / dense.min(*sparse) - 1.0),
        mean_sparse: mean(&|(_, _, (dense, sparse))| sparse / dense.min(*sparse) - 1.0),
    })
}

/// How far apart times are at one |M|, over all numbers of rows: slowest over fastest, the lowest time of each.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Flat {
    pub(crate) weights: u64,
    /// Numbers of rows that were measured.
    pub(crate) rows: usize,
    pub(crate) forward: f64,
    /// Of those that were measured with at least two numbers of rows. No atomic update: its additions meet by chance.
    pub(crate) ways: BTreeMap<Way, f64>,
}

impl Flat {
    /// Each with its name.
    fn all(&self) -> impl Iterator<Item = (&'static str, f64)> {
        std::iter::once(("forward", self.forward)).chain(self.ways.iter().map(|(way, &apart)| (way.name(), apart)))
    }
}

/// The arrays that tables of several sizes were measured in.
pub(crate) fn flat(cells: &[Cell]) -> Vec<Flat> {
    let these = |weights: u64| {
        let same = move |cell: &&Cell| cell.setting.weights == weights && cell.setting.chunk == CHUNK;
        cells.iter().filter(same).filter(|cell| cell.both(What::Update).is_some())
    };
    let mut arrays: Vec<u64> = cells.iter().map(|cell| cell.setting.weights).collect();
    arrays.sort_unstable();
    arrays.dedup();
    let apart = |times: Vec<f64>| {
        let (least, most) = times.iter().fold((f64::MAX, 0.0f64), |(a, b), &time| (a.min(time), b.max(time)));
        (times.len() > 1).then_some(most / least)
    };
    let of = |weights: u64| {
        let lowest = |way, of: fn(&Step) -> Times| {
            these(weights).filter_map(|cell| cell.step(way)).map(|step| of(step).lowest).collect::<Vec<_>>()
        };
        let forward = apart(lowest(Way::DenseUpdate, |step| step.forward))?;
        let ways = What::ALL.into_iter().flat_map(What::ways);
        let ways = ways.filter_map(|way| Some((way, apart(lowest(way, |step| step.backward))?))).collect();
        Some(Flat { weights, rows: these(weights).count(), forward, ways })
    };
    arrays.into_iter().filter_map(of).collect()
}

/// Whether time is flat in the number of rows: the worst of it against the goal.
pub(crate) fn flat_verdict(flat: &[Flat], goal: Option<f64>) -> Option<String> {
    let all = flat.iter().flat_map(|one| one.all().map(move |(what, apart)| (one, what, apart)));
    let (one, what, apart) = all.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let verdict = match goal {
        Some(goal) if apart <= goal => format!("within the goal of {goal}"),
        Some(goal) => format!("above the goal of {goal}"),
        None => "no goal".to_owned(),
    };
    Some(format!(
        "One array, several numbers of rows, lowest times: the slowest takes at most {apart:.2} times as long as the fastest ({what}, {} weights), {verdict}.",
        count(one.weights as f64)
    ))
}

/// The goals of the issue, from chunks of 32; `judged` where figures may meet or miss them.
pub(crate) fn goals(cells: &[Cell], crossovers: &[Crossover], flat: &[Flat], judged: bool) -> Vec<Goal> {
    let mut goals = robe();
    let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.setting.chunk == CHUNK).collect();
    let worst = |of: &dyn Fn(&Cell) -> Option<f64>| {
        cells.iter().filter_map(|cell| Some((cell, of(cell)?))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let set = |goals: &mut [Goal], id, of: &dyn Fn(&Cell) -> Option<f64>| {
        let found = worst(of);
        let remark = found.map_or_else(
            || "no such cell was measured".to_owned(),
            |(cell, _)| {
                let (rows, times) = (count(f64::from(cell.setting.rows)), round(cell.setting.compression));
                format!("worst with {rows} rows at {times}x")
            },
        );
        reach(goals, id, found.map(|(_, value)| value), judged, remark);
    };
    set(&mut goals, Id::RobeForward, &|cell| Some(cell.step(Way::DenseUpdate)?.forward.median));
    for (what, dense, sparse, above) in [
        (What::Update, Id::RobeDense, Id::RobeSparse, Id::RobeCrossover),
        (What::Gradient, Id::RobeDenseGradient, Id::RobeSparseGradient, Id::RobeCrossoverGradient),
    ] {
        let compressed = |cell: &Cell| cell.setting.compression >= 1_000.0;
        set(&mut goals, dense, &|cell| Some(cell.step(what.ways()[0])?.backward.median).filter(|_| compressed(cell)));
        let share = |cell: &Cell| cell.both(what).map(|(dense, sparse)| sparse / dense);
        // No more weights than the batch touches: small, whatever the crossover.
        set(&mut goals, sparse, &|cell| share(cell).filter(|_| cell.ratio() <= 1.0));
        let Some(crossover) = crossovers.iter().find(|one| one.chunk == CHUNK && one.of == what) else { continue };
        let remark = name(crossover);
        let from = crossover.sparse_from;
        let beyond = from.and_then(|from| worst(&|cell| share(cell).filter(|_| cell.ratio() >= from)));
        reach(&mut goals, above, beyond.map(|(_, value)| value), judged, remark);
    }
    let apart = flat.iter().flat_map(Flat::all).map(|(_, apart)| apart).max_by(f64::total_cmp);
    let line = |one: &Flat| {
        let all: Vec<String> = one.all().map(|(what, apart)| format!("{what} {apart:.2}")).collect();
        format!("{} weights: {}", count(one.weights as f64), all.join(", "))
    };
    reach(&mut goals, Id::RobeFlat, apart, judged, flat.iter().map(line).collect::<Vec<_>>().join("; "));
    goals
}

/// A crossover in a sentence, which may stand in a table: no stroke in it.
pub(crate) fn name(one: &Crossover) -> String {
    let ends =
        format!("sparse over dense {:.2} at the smallest array, {:.2} at the largest", one.smallest, one.largest);
    match (one.dense_until, one.sparse_from) {
        (Some(below), Some(above)) => format!(
            "arrays of {:.2} to {:.2} times what the batch touches ({} to {} weights); {ends}",
            below,
            above,
            count(one.weights.0.unwrap_or(0) as f64),
            count(one.weights.1.unwrap_or(0) as f64),
        ),
        (Some(_), None) => format!("always dense loses the least time; {ends}"),
        (None, _) => format!("always sparse loses the least time; {ends}"),
    }
}

/// 10, 12.5.
pub(crate) fn round(times: f64) -> String {
    let text = format!("{times:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `0.43`: milliseconds.
pub(crate) fn milliseconds(value: f64) -> String {
    crate::plot::short(1e3 * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(seconds: f64) -> Step {
        // Medians are another figure than the lowest: which is taken shows.
        let times = |lowest: f64| Times { median: 1.25 * lowest, lowest, ..Times::default() };
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
            setting: Setting { rows, compression, chunk: CHUNK, weights },
            array_bytes: 4 * weights,
            touched: 1000,
            covered: Some(500),
            steps: ways.into_iter().map(|(way, seconds)| (way, step(seconds))).collect(),
            ways_refused: BTreeMap::new(),
            starts: Some(100),
            auto: Some("dense"),
            gradient_auto: Some("dense"),
            regret: Some(dense / dense.min(sparse) - 1.0),
            gradient_regret: Some(2.0 * dense / sparse.min(2.0 * dense) - 1.0),
            refused: None,
        }
    }

    #[test]
    fn a_crossover_is_the_split_that_loses_least() {
        // One noisy cell on either side changes nothing.
        let times = [(1.0, 1.3), (1.0, 0.99), (1.0, 1.2), (2.0, 1.2), (3.0, 3.01), (9.0, 1.2)];
        let cells: Vec<Cell> = (1..).zip(times).map(|(k, (a, b))| cell(1000 * k, 1000, a, b)).collect();
        let found = crossovers(&cells);
        assert_eq!(found.iter().map(|one| one.of).collect::<Vec<_>>(), What::ALL);
        // Dense gradients take twice as long: none is worth it.
        assert_eq!((found[1].dense_until, found[1].sparse_from), (None, Some(1.0)));
        assert!((found[1].smallest - 0.65).abs() < 1e-12, "lowest over lowest");
        assert_eq!((found[0].dense_until, found[0].sparse_from), (Some(3.0), Some(4.0)));
        assert!((found[0].at.unwrap() - 12f64.sqrt()).abs() < 1e-12);
        assert!(name(&found[0]).contains("3.00 to 4.00"));
        let sparse = crossovers(&cells[3..4]);
        assert!(sparse[0].at.is_none() && name(&sparse[0]).contains("always sparse loses the least time"));
        let dense = crossovers(&cells[..1]);
        assert!(name(&dense[0]).contains("always dense loses the least time"));
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
        let found = atomic(&cells);
        assert_eq!(found.len(), 1);
        let one = &found[0];
        assert_eq!((one.cells, one.faster, one.between), (4, 2, 3));
        assert_eq!((one.from.map(|edge| edge.weights), one.to.map(|edge| edge.ratio)), (Some(1000), Some(3.0)));
        assert_eq!((one.best, one.best_at.weights, one.worst, one.worst_at.weights), (0.5, 1000, 3.0, 4000));
        let text = stretch(one);
        let whole = "faster with |M| of 1 K to 3 K (1.000 to 3.000 times what the batch touches, 128x to 42.67x), there in 2 of 3, of 4 cells \
                     in all; its time is 0.50 (|M| 1 K, 1 K rows, 128x) to 3.00 (|M| 4 K, 1 K rows, 32x) of the better one's";
        assert_eq!(text, whole);
        let text = verdict(&found);
        assert!(text.contains("in 2 of 4 cells, at most 2.00 times as fast (|M| 1 K, 1 K rows, 128x"), "{text}");
        let slower = atomic(&cells[3..]);
        assert!(
            slower[0].from.is_none() && stretch(&slower[0]).starts_with("faster nowhere, of 1 cell; its time is 3.00")
        );
        assert!(verdict(&slower).contains("nowhere faster") && verdict(&slower).contains("3.00 times as long"));
        assert!(atomic(&cells[4..]).is_empty() && verdict(&[]).contains("measured nowhere"));
    }

    #[test]
    fn regret_is_of_the_choice() {
        let mut cells = vec![cell(1000, 10, 1.0, 2.0), cell(2000, 10, 3.0, 2.0), cell(3000, 10, 6.0, 2.0)];
        cells[2].setting.chunk = 1;
        let found = regrets(&cells);
        let keys: Vec<_> = found.iter().map(|one| (one.of, one.chunk, one.cells)).collect();
        let of = |what| [(what, None, 3), (what, Some(1), 1), (what, Some(32), 2)];
        assert_eq!(keys, What::ALL.map(of).concat());
        // Over all 0, 0.5 and 2; of chunks of 32 without the last; of gradients, of which dense takes twice as long, 0, 2 and 5.
        let figures = |at: usize| (found[at].mean, found[at].worst, found[at].worst_at.weights);
        assert!((found[0].mean - 2.5 / 3.0).abs() < 1e-12 && found[0].worst == 2.0);
        assert_eq!((figures(1), figures(2)), ((2.0, 2.0, 3000), (0.25, 0.5, 2000)));
        assert_eq!((figures(4), figures(5)), ((5.0, 5.0, 3000), (1.0, 2.0, 2000)));
        assert_eq!((found[2].mean_dense, found[2].mean_sparse), (0.25, 0.5));
        cells.iter_mut().for_each(|cell| cell.gradient_regret = None);
        assert!(regrets(&cells).iter().all(|one| one.of == What::Update) && regrets(&[]).is_empty());
    }

    #[test]
    fn flat_is_what_was_measured() {
        let mut cells = vec![cell(1000, 10, 1.0, 2.0), cell(1000, 20, 1.05, 2.0), cell(2000, 10, 1.0, 9.0)];
        let found = flat(&cells);
        assert_eq!((found.len(), found[0].rows, found[0].forward), (1, 2, 1.0));
        assert_eq!(found[0].ways.values().copied().collect::<Vec<_>>(), [1.05, 1.0, 1.05, 1.0]);
        let said = flat_verdict(&found, Some(1.1)).unwrap();
        assert!(said.contains("at most 1.05 times") && said.contains("within the goal of 1.1"), "{said}");
        cells[1].steps.insert(Way::SparseGradient, step(2.6));
        let said = flat_verdict(&flat(&cells), Some(1.1)).unwrap();
        assert!(
            said.contains("1.30 times as long as the fastest (sparse gradient, 1 K weights), above the goal"),
            "{said}"
        );
        // What was measured once is not flat nor else; an atomic update is left out.
        cells[1].steps.remove(&Way::SparseGradient);
        cells.iter_mut().zip([1.0, 5.0]).for_each(|(cell, s)| drop(cell.steps.insert(Way::AtomicUpdate, step(s))));
        assert_eq!(flat(&cells)[0].ways.len(), 3);
        assert_eq!(flat_verdict(&[], Some(1.1)), None);
    }

    #[test]
    fn goals_are_judged_on_hardware_only() {
        let cells =
            [cell(1000, 10_000, 4e-5, 5.5e-5), cell(1000, 80_000, 4e-5, 5e-5), cell(64_000, 80_000, 3e-4, 1.5e-4)];
        let (crossovers, flat) = (crossovers(&cells), flat(&cells[..1]));
        assert!(flat.is_empty());
        let of = |judged| goals(&cells, &crossovers, &super::flat(&cells), judged);
        assert!(of(true).iter().all(|goal| goal.met == Some(true)), "{:?}", of(true));
        assert!(of(false).iter().all(|goal| goal.met.is_none() && goal.reached.is_some()));
        let reached = |id| of(true).iter().find(|goal| goal.id == id).and_then(|goal| goal.reached).unwrap();
        // Medians of dense ones, the lowest of sparse against dense; gradients by themselves.
        let near = |id, wanted: f64| assert!((reached(id) / wanted - 1.0).abs() < 1e-9, "{id:?} {}", reached(id));
        near(Id::RobeForward, 4e-5);
        near(Id::RobeDense, 5e-5);
        near(Id::RobeDenseGradient, 1e-4);
        near(Id::RobeSparse, 5.5 / 4.0);
        near(Id::RobeSparseGradient, 5.5 / 8.0);
        near(Id::RobeCrossover, 0.5);
        near(Id::RobeCrossoverGradient, 5.5 / 8.0);
        near(Id::RobeFlat, 1.1);
        let slow = [cell(1000, 10_000, 9e-5, 2e-4)];
        let missed = goals(&slow, &[], &[], true);
        let met = |id| missed.iter().find(|goal| goal.id == id).and_then(|goal| goal.met);
        let ids = [Id::RobeDense, Id::RobeDenseGradient, Id::RobeSparse, Id::RobeSparseGradient, Id::RobeFlat];
        assert_eq!(ids.map(met), [Some(false), Some(false), Some(false), Some(true), None]);
        assert!(of(true).iter().all(|goal| !goal.remark.contains('|')), "they stand in a table");
        let labels: Vec<&str> = missed.iter().map(|goal| goal.what).collect();
        assert!(labels.iter().all(|what| what.contains("Z = 32") && what.ends_with("s)")), "{labels:?}");
    }
}
