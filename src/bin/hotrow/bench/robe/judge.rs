//! What the cells say: where dense and sparse cross, what the rule costs, how flat time is in the rows, and the goals.

use serde::Serialize;

use super::measure::Cell;
use super::shape::{CHUNK, Setting, count};
use crate::suite::goals::{Goal, Id, reach, robe};

/// Where sparse becomes the faster backward, for chunks of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Crossover {
    pub(crate) chunk: u32,
    /// |M| over what the batch touches: the cells on either side of the split that loses least time.
    pub(crate) dense_until: Option<f64>,
    pub(crate) sparse_from: Option<f64>,
    /// Between the two, evenly by ratio.
    pub(crate) at: Option<f64>,
    /// |M| of those cells, and the distinct weights that their batches cover.
    pub(crate) weights: (Option<u64>, Option<u64>),
    pub(crate) covered: (Option<u64>, Option<u64>),
    /// Sparse over dense backward at the smallest and the largest array.
    pub(crate) smallest: f64,
    pub(crate) largest: f64,
}

pub(crate) fn crossovers(cells: &[Cell]) -> Vec<Crossover> {
    let mut chunks: Vec<u32> = cells.iter().map(|cell| cell.setting.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks.into_iter().filter_map(|chunk| crossover(cells, chunk)).collect()
}

fn crossover(cells: &[Cell], chunk: u32) -> Option<Crossover> {
    let mut these: Vec<(&Cell, f64)> = cells
        .iter()
        .filter(|cell| cell.setting.chunk == chunk)
        .filter_map(|cell| cell.backwards().map(|(dense, sparse)| (cell, (sparse / dense).ln())))
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

/// Share of the faster one's time by which a backward must differ to be called faster.
const APART: f64 = 0.05;

/// Where the atomic backward is faster than the better of dense and sparse, for chunks of one size.
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
    let mut chunks: Vec<u32> = cells.iter().map(|cell| cell.setting.chunk).collect();
    chunks.sort_unstable();
    chunks.dedup();
    chunks.into_iter().filter_map(|chunk| atomic_of(cells, chunk)).collect()
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
        return "Atomic backward was measured nowhere.".to_owned();
    };
    let place = format!("{}, chunks of {}", place(&best.best_at), best.chunk);
    match faster {
        0 => format!(
            "Atomic backward is nowhere faster than the better of dense and sparse, in {cells} cells: at best it takes {:.2} times as long ({place}).",
            best.best
        ),
        _ => format!(
            "Atomic backward is faster than the better of dense and sparse in {faster} of {cells} cells, at most {:.2} times as fast ({place}).",
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

/// What `Backward::Auto` loses against the faster backward of each cell.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Regret {
    pub(crate) cells: usize,
    pub(crate) mean: f64,
    pub(crate) worst: f64,
    /// Rows, compression and chunk of the worst.
    pub(crate) worst_at: Option<(u32, f64, u32)>,
    /// Of always dense and of always sparse.
    pub(crate) mean_dense: f64,
    pub(crate) mean_sparse: f64,
}

/// A cell, the regret of its choice, and its dense and sparse backward.
type Chosen<'a> = (&'a Cell, f64, (f64, f64));

pub(crate) fn regret(cells: &[Cell]) -> Regret {
    let all: Vec<Chosen<'_>> = cells.iter().filter_map(|cell| Some((cell, cell.regret?, cell.backwards()?))).collect();
    let n = all.len() as f64;
    let mean = |of: &dyn Fn(&Chosen<'_>) -> f64| all.iter().map(of).sum::<f64>() / n.max(1.0);
    let worst = all.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Regret {
        cells: all.len(),
        mean: mean(&|one| one.1),
        worst: worst.map_or(0.0, |one| one.1),
        worst_at: worst.map(|(cell, ..)| (cell.setting.rows, cell.setting.compression, cell.setting.chunk)),
        mean_dense: mean(&|(_, _, (dense, sparse))| dense / dense.min(*sparse) - 1.0),
        mean_sparse: mean(&|(_, _, (dense, sparse))| sparse / dense.min(*sparse) - 1.0),
    }
}

/// How far apart times are at one |M|, over all numbers of rows.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Flat {
    pub(crate) weights: u64,
    /// Numbers of rows that were measured.
    pub(crate) rows: usize,
    /// Slowest over fastest, the lowest time of each.
    pub(crate) forward: f64,
    pub(crate) dense: f64,
    pub(crate) sparse: f64,
}

/// The arrays that tables of several sizes were measured in.
pub(crate) fn flat(cells: &[Cell]) -> Vec<Flat> {
    let these = |weights: u64| {
        let same = cells.iter().filter(move |cell| cell.setting.weights == weights && cell.setting.chunk == CHUNK);
        same.filter_map(|cell| Some((cell.dense.as_ref()?, cell.sparse.as_ref()?)))
    };
    let mut arrays: Vec<u64> = cells.iter().map(|cell| cell.setting.weights).collect();
    arrays.sort_unstable();
    arrays.dedup();
    let apart = |times: Vec<f64>| {
        let (least, most) = times.iter().fold((f64::MAX, 0.0f64), |(a, b), &time| (a.min(time), b.max(time)));
        most / least
    };
    arrays.retain(|&weights| these(weights).count() > 1);
    arrays
        .into_iter()
        .map(|weights| Flat {
            weights,
            rows: these(weights).count(),
            forward: apart(these(weights).map(|(dense, _)| dense.forward.lowest).collect()),
            dense: apart(these(weights).map(|(dense, _)| dense.backward.lowest).collect()),
            sparse: apart(these(weights).map(|(_, sparse)| sparse.backward.lowest).collect()),
        })
        .collect()
}

/// The goals of the issue, from chunks of 32; `judged` where figures may meet or miss them.
pub(crate) fn goals(cells: &[Cell], crossovers: &[Crossover], flat: &[Flat], judged: bool) -> Vec<Goal> {
    let mut goals = robe();
    let cells: Vec<&Cell> = cells.iter().filter(|cell| cell.setting.chunk == CHUNK).collect();
    let worst = |of: &dyn Fn(&Cell) -> Option<f64>| {
        cells.iter().filter_map(|cell| Some((cell, of(cell)?))).max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let place = |cell: &Cell| format!("worst at {}x of {} rows", round(cell.setting.compression), cell.setting.rows);
    let mut set = |id, of: &dyn Fn(&Cell) -> Option<f64>| {
        let found = worst(of);
        let remark = found.map_or_else(|| "no such cell was measured".to_owned(), |(cell, _)| place(cell));
        reach(&mut goals, id, found.map(|(_, value)| value), judged, remark);
    };
    let forward = |cell: &Cell| Some(cell.dense.as_ref()?.forward.median);
    set(Id::RobeForward, &forward);
    set(Id::RobeDense, &|cell| {
        let compressed = cell.setting.compression >= 1_000.0;
        cell.dense.as_ref().filter(|_| compressed).map(|dense| dense.backward.median)
    });
    // No more weights than the batch touches: small, whatever the crossover.
    set(Id::RobeSparse, &|cell| cell.backwards().filter(|_| cell.ratio() <= 1.0).map(|(dense, sparse)| sparse / dense));
    let crossover = crossovers.iter().find(|one| one.chunk == CHUNK);
    if let Some(from) = crossover.and_then(|one| one.sparse_from) {
        set(Id::RobeCrossover, &|cell| {
            cell.backwards().filter(|_| cell.ratio() >= from).map(|(dense, sparse)| sparse / dense)
        });
    }
    if let Some(crossover) = crossover {
        let named = name(crossover);
        if let Some(goal) = goals.iter_mut().find(|goal| goal.id == Id::RobeCrossover) {
            goal.remark = named;
        }
    }
    let apart = flat.iter().map(|one| one.forward.max(one.dense).max(one.sparse)).max_by(f64::total_cmp);
    let remark = flat
        .iter()
        .map(|one| {
            format!("|M| {}: forward {:.2}, dense {:.2}, sparse {:.2}", one.weights, one.forward, one.dense, one.sparse)
        })
        .collect::<Vec<_>>()
        .join("; ");
    reach(&mut goals, Id::RobeFlat, apart, judged, remark);
    goals
}

/// A crossover in a sentence.
pub(crate) fn name(one: &Crossover) -> String {
    let ends =
        format!("sparse over dense {:.2} at the smallest array, {:.2} at the largest", one.smallest, one.largest);
    match (one.dense_until, one.sparse_from) {
        (Some(below), Some(above)) => format!(
            "|M| of {:.2} to {:.2} times what the batch touches (|M| {} to {}); {ends}",
            below,
            above,
            one.weights.0.unwrap_or(0),
            one.weights.1.unwrap_or(0)
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
    use crate::bench::robe::measure::Step;
    use crate::bench::robe::shape::Setting;
    use crate::suite::lab::Times;

    fn cell(weights: u64, rows: u32, dense: f64, sparse: f64) -> Cell {
        let step = |median: f64| {
            let times = |median| Times { median, lowest: median, ..Times::default() };
            Some(Step { forward: times(4e-5), backward: times(median), stages: Vec::new() })
        };
        let compression = f64::from(rows) * 128.0 / weights as f64;
        Cell {
            setting: Setting { rows, compression, chunk: CHUNK, weights },
            array_bytes: 4 * weights,
            touched: 1000,
            covered: Some(500),
            dense: step(dense),
            sparse: step(sparse),
            atomic: None,
            atomic_refused: None,
            auto: Some("dense"),
            regret: Some(dense / dense.min(sparse) - 1.0),
            refused: None,
        }
    }

    #[test]
    fn a_crossover_is_the_split_that_loses_least() {
        // One noisy cell on either side changes nothing.
        let times = [(1.0, 1.3), (1.0, 0.99), (1.0, 1.2), (2.0, 1.2), (3.0, 3.01), (9.0, 1.2)];
        let cells: Vec<Cell> = (1..).zip(times).map(|(k, (a, b))| cell(1000 * k, 1000, a, b)).collect();
        let found = crossovers(&cells);
        assert_eq!(found.len(), 1);
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
            one.atomic = cell(weights, 1000, atomic, atomic).dense;
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
        let found = regret(&[cell(1000, 10, 1.0, 2.0), cell(2000, 10, 3.0, 2.0)]);
        assert_eq!((found.cells, found.worst, found.mean), (2, 0.5, 0.25));
        assert_eq!((found.mean_dense, found.mean_sparse), (0.25, 0.5));
        assert_eq!(found.worst_at.map(|at| at.0), Some(10));
    }

    #[test]
    fn goals_are_judged_on_hardware_only() {
        let cells =
            [cell(1000, 10_000, 9e-5, 1.3e-4), cell(1000, 80_000, 9e-5, 1.2e-4), cell(64_000, 80_000, 3e-4, 1.5e-4)];
        let (crossovers, flat) = (crossovers(&cells), flat(&cells));
        assert_eq!((flat.len(), flat[0].rows, flat[0].dense), (1, 2, 1.0));
        let of = |judged| goals(&cells, &crossovers, &flat, judged);
        assert!(of(true).iter().all(|goal| goal.met == Some(true)), "{:?}", of(true));
        assert!(of(false).iter().all(|goal| goal.met.is_none() && goal.reached.is_some()));
        let slow = [cell(1000, 10_000, 2e-4, 4e-4)];
        let missed = goals(&slow, &[], &[], true);
        let met = |id| missed.iter().find(|goal| goal.id == id).and_then(|goal| goal.met);
        assert_eq!([Id::RobeDense, Id::RobeSparse, Id::RobeFlat].map(met), [Some(false), Some(false), None]);
    }
}
