//! What `bench --robe` leaves: JSON (the schema is these structs) and tables in P4's shape.

use serde::Serialize;

use super::beside::Beside;
use super::judge::{Atomic, Crossover, Flat, Regret, flat_verdict, milliseconds, name, round, stretch};
use super::measure::{Cell, Way, What};
use super::published::{self, Axes, Pass, Table};
use super::shape::{CHUNK, CHUNKS, COMPRESSION, COMPRESSIONS, MIDDLE, Shape, count};
use crate::output;
use crate::suite::goals::{Goal, Id, table as goal_table};
use crate::suite::lab::Times;
use crate::suite::report::{Machine, bytes, percent, seconds, spread};

/// Goes up when a field changes its meaning or goes away.
const SCHEMA: u32 = 2;

/// Everything of one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    pub(crate) command: &'static str,
    pub(crate) version: &'static str,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) seed: u64,
    pub(crate) size: &'static str,
    /// `cpu` or `gpu`.
    pub(crate) backend: &'static str,
    pub(crate) machine: Machine,
    pub(crate) optimizer: String,
    pub(crate) shape: Shape,
    /// Most bytes of an array, if there was a limit.
    pub(crate) memory: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) cells: Vec<Cell>,
    /// A chunk size each, of updates and of gradients.
    pub(crate) crossovers: Vec<Crossover>,
    /// Over all and a chunk size each, of updates and of gradients.
    pub(crate) regrets: Vec<Regret>,
    /// What the time of a gradient has in it here.
    pub(crate) gradients: &'static str,
    /// How an atomic update adds here.
    pub(crate) adds: &'static str,
    /// Where it is faster than the others, a chunk size each, and in a sentence.
    pub(crate) atomic: Vec<Atomic>,
    pub(crate) verdict: String,
    /// An array each.
    pub(crate) flat: Vec<Flat>,
    pub(crate) beside: Vec<Beside>,
    pub(crate) goals: Vec<Goal>,
    /// What was not measured, and why.
    pub(crate) left_out: Vec<String>,
}

/// A cell, in the CSV.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    backend: &'static str,
    adapter: String,
    software: bool,
    dim: u32,
    batch: u32,
    rows: u32,
    compression: f64,
    chunk: u32,
    weights: u64,
    touched: u64,
    covered: Option<u64>,
    forward_median_seconds: Option<f64>,
    dense_update_median_seconds: Option<f64>,
    dense_update_lowest_seconds: Option<f64>,
    sparse_update_median_seconds: Option<f64>,
    sparse_update_lowest_seconds: Option<f64>,
    atomic_update_median_seconds: Option<f64>,
    atomic_update_lowest_seconds: Option<f64>,
    dense_gradient_median_seconds: Option<f64>,
    dense_gradient_lowest_seconds: Option<f64>,
    sparse_gradient_median_seconds: Option<f64>,
    sparse_gradient_lowest_seconds: Option<f64>,
    starts: Option<u32>,
    auto: &'static str,
    gradient_auto: &'static str,
    /// Why the cell, or which of its ways, was not measured.
    left_out: String,
}

/// The lines and columns of a table.
pub(crate) fn axes(shape: &Shape, axes: Axes) -> (Vec<String>, Vec<String>) {
    let rows = || shape.rows.iter().map(|&rows| count(f64::from(rows))).collect();
    let compressions = || COMPRESSIONS.map(|times| format!("{times}x")).to_vec();
    let chunks = || CHUNKS.map(|chunk| chunk.to_string()).to_vec();
    match axes {
        Axes::RowsCompression => (rows(), compressions()),
        Axes::RowsChunk => (rows(), chunks()),
        Axes::ChunkCompression => (chunks(), compressions()),
    }
}

impl Report {
    pub(crate) fn new(size: &'static str, backend: &'static str, machine: Machine, shape: Shape) -> Self {
        Self {
            schema: SCHEMA,
            command: "bench --robe",
            version: env!("CARGO_PKG_VERSION"),
            commit: String::new(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seed: 0,
            size,
            backend,
            machine,
            optimizer: String::new(),
            shape,
            memory: None,
            seconds: 0.0,
            cells: Vec::new(),
            crossovers: Vec::new(),
            regrets: Vec::new(),
            gradients: "",
            adds: "",
            atomic: Vec::new(),
            verdict: String::new(),
            flat: Vec::new(),
            beside: Vec::new(),
            goals: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn title(&self) -> String {
        let warning = if self.machine.software {
            "software adapter: these figures show that it runs, not how fast: "
        } else {
            ""
        };
        format!("{warning}{}", self.machine.adapter)
    }

    fn cell(&self, rows: u32, compression: f64, chunk: u32) -> Option<&Cell> {
        let wanted = self.shape.setting(rows, compression, chunk);
        self.cells.iter().find(|cell| cell.setting == wanted)
    }

    /// The cells of a table, line by line.
    fn grid(&self, axes: Axes) -> Vec<Vec<Option<&Cell>>> {
        let rows = &self.shape.rows;
        match axes {
            Axes::RowsCompression => {
                rows.iter().map(|&n| COMPRESSIONS.map(|times| self.cell(n, times, CHUNK)).to_vec()).collect()
            }
            Axes::RowsChunk => {
                rows.iter().map(|&n| CHUNKS.map(|chunk| self.cell(n, COMPRESSION, chunk)).to_vec()).collect()
            }
            Axes::ChunkCompression => CHUNKS
                .iter()
                .map(|&chunk| COMPRESSIONS.map(|times| self.cell(rows[MIDDLE], times, chunk)).to_vec())
                .collect(),
        }
    }

    /// The seconds of a table's cells, line by line: P4's backward returns a gradient.
    pub(crate) fn values(&self, table: &Table) -> Vec<Vec<Option<f64>>> {
        match (table.pass, table.sparse) {
            (Pass::Forward, false) => self.seconds_of(table.axes, Way::DenseUpdate, Pass::Forward),
            (Pass::Forward, true) => self.seconds_of(table.axes, Way::SparseUpdate, Pass::Forward),
            (Pass::Backward, false) => self.seconds_of(table.axes, Way::DenseGradient, Pass::Backward),
            (Pass::Backward, true) => self.seconds_of(table.axes, Way::SparseGradient, Pass::Backward),
        }
    }

    /// The same of updates, which P4 has none of.
    pub(crate) fn updates(&self, axes: Axes, way: Way) -> Vec<Vec<Option<f64>>> {
        self.seconds_of(axes, way, Pass::Backward)
    }

    fn seconds_of(&self, axes: Axes, way: Way, pass: Pass) -> Vec<Vec<Option<f64>>> {
        let one = |cell: &Cell| {
            let step = cell.step(way)?;
            Some(if pass == Pass::Forward { step.forward.median } else { step.backward.median })
        };
        self.grid(axes).iter().map(|line| line.iter().map(|cell| one((*cell)?)).collect()).collect()
    }

    pub(crate) fn heading(&self, table: &Table) -> String {
        let pass = match (table.pass, table.sparse) {
            (Pass::Forward, false) => "forward",
            (Pass::Forward, true) => "forward, before a sparse update",
            (Pass::Backward, false) => "dense gradient",
            (Pass::Backward, true) => "sparse gradient",
        };
        format!("{pass}: {}", self.over(table.axes))
    }

    fn over(&self, axes: Axes) -> String {
        match axes {
            Axes::RowsCompression => format!("rows against compression, chunks of {CHUNK}"),
            Axes::RowsChunk => format!("rows against chunk, {COMPRESSION}x"),
            Axes::ChunkCompression => {
                format!("chunk against compression, {} rows", count(f64::from(self.shape.rows[MIDDLE])))
            }
        }
    }

    /// All tables, as Markdown.
    pub(crate) fn tables(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "Parameter-shared tables (ROBE-Z): {}\n{}; hotrow {} at {}; {}; {}; size {}: batch {}, dim {}, {}; {:.0} s.\n",
            self.title(),
            format!("{} {}", machine.backend, machine.driver).trim(),
            self.version,
            self.commit,
            self.date,
            machine.timing,
            self.size,
            self.shape.batch,
            self.shape.dim,
            self.optimizer,
            self.seconds,
        );
        let theirs = self.shape.published;
        let note = if theirs {
            format!("Milliseconds, medians, and behind the stroke {}.\n", published::MACHINE)
        } else {
            "Milliseconds, medians. Not P4's sizes: its figures do not stand beside.\n".to_owned()
        };
        text += &note;
        text += &format!(
            "Gradient: the sums alone, into memory, as P4's operator returns them ({}). Update: the sums and the optimiser in one (`backward`), no gradient in memory; a sparse update goes over all weights where its chunks would cover the array anyway.\n",
            self.gradients
        );
        for table in &published::TABLES {
            let panel = table.panel.map_or_else(String::new, |panel| format!(", Figure 3 ({panel})"));
            text += &format!(
                "\nP4 table {}{panel}: {}\n\n{}\n",
                table.number,
                self.heading(table),
                self.times(table.axes, &self.values(table), theirs.then_some(table.milliseconds))
            );
        }
        // P4 has none.
        for axes in [Axes::RowsCompression, Axes::RowsChunk, Axes::ChunkCompression] {
            text += &format!(
                "\ndense / sparse / atomic update (atomic: {}): {}\n\n{}\n",
                self.adds,
                self.over(axes),
                self.update_times(axes)
            );
        }
        text += &format!(
            "\nWhat `Backward::Auto` takes, and how much longer that is than the faster one (lowest against lowest, here and below): update / gradient.\n\n{}\n",
            self.choices()
        );
        if !self.regrets.is_empty() {
            text +=
                &format!("\nThe same over all cells, and what always one of them would lose.\n\n{}\n", self.losses());
        }
        for what in What::ALL {
            text += &format!("\nCrossover of dense and sparse {}.\n\n", what.name());
            for one in self.crossovers.iter().filter(|one| one.of == what) {
                text += &format!("- chunks of {}: {}\n", one.chunk, name(one));
            }
        }
        text += &format!("\n{}\n\n", self.verdict);
        for one in &self.atomic {
            text += &format!("- chunks of {}: {}\n", one.chunk, stretch(one));
        }
        let goal = self.goals.iter().find(|goal| goal.id == Id::RobeFlat).and_then(|goal| goal.threshold);
        if let Some(verdict) = flat_verdict(&self.flat, goal) {
            text += &format!("\n{verdict} Medians:\n\n{}\n", self.flat_table());
        }
        if !self.beside.is_empty() {
            text += &format!(
                "\nForward of bags, sum, rows by Zipf 1.05: shared tables beside cached ones.\n\n{}\n",
                self.beside_table()
            );
        }
        if theirs {
            let (backward, forward) = published::ORIGINAL;
            text += &format!(
                "\nP4's full table (its table 2), best: forward {forward} ms, sparse backward {backward} ms.\n"
            );
        }
        text += &format!("\n{}\n", self.goals_as_markdown());
        for (what, why) in self.grouped() {
            text += &format!("Left out: {what}: {why}.\n");
        }
        text
    }

    /// What was left out, by reasons.
    fn grouped(&self) -> Vec<(String, &str)> {
        let mut groups: Vec<(Vec<&str>, &str)> = Vec::new();
        for left in &self.left_out {
            let (what, why) = left.split_once(": ").unwrap_or(("the run", left));
            match groups.iter_mut().find(|(_, known)| *known == why) {
                Some((all, _)) => all.push(what),
                None => groups.push((vec![what], why)),
            }
        }
        groups.into_iter().map(|(all, why)| (all.join("; "), why)).collect()
    }

    /// Milliseconds, beside P4's if given.
    fn times(&self, axes: Axes, values: &[Vec<Option<f64>>], theirs: Option<&[&[f64]]>) -> String {
        let (lines, columns) = self::axes(&self.shape, axes);
        let corner = if axes == Axes::ChunkCompression { "chunk" } else { "rows" };
        let mut shown = output::table(std::iter::once(corner.to_owned()).chain(columns).collect::<Vec<_>>(), 0);
        for (i, (name, values)) in lines.into_iter().zip(values).enumerate() {
            let ours = values.iter().map(|value| value.map_or_else(|| "-".to_owned(), milliseconds));
            let line = ours.enumerate().map(|(k, ours)| match theirs.map(|theirs| theirs[i][k]) {
                None => ours,
                Some(p4) if p4.is_nan() => format!("{ours} / -"),
                Some(p4) => format!("{ours} / {p4:.2}"),
            });
            shown.add_row(std::iter::once(name).chain(line).collect::<Vec<_>>());
        }
        shown.to_string()
    }

    /// Milliseconds of the updates.
    fn update_times(&self, axes: Axes) -> String {
        let (lines, columns) = self::axes(&self.shape, axes);
        let corner = if axes == Axes::ChunkCompression { "chunk" } else { "rows" };
        let mut shown = output::table(std::iter::once(corner.to_owned()).chain(columns).collect::<Vec<_>>(), 0);
        let ways = [Way::DenseUpdate, Way::SparseUpdate, Way::AtomicUpdate].map(|way| self.updates(axes, way));
        for (i, name) in lines.into_iter().enumerate() {
            let one = |k: usize| {
                let all = ways.each_ref().map(|way| way[i][k].map_or_else(|| "-".to_owned(), milliseconds));
                if all.iter().all(|one| one == "-") { "-".to_owned() } else { all.join(" / ") }
            };
            shown.add_row(std::iter::once(name).chain((0..ways[0][i].len()).map(one)).collect::<Vec<_>>());
        }
        shown.to_string()
    }

    fn losses(&self) -> String {
        let head = ["chunks of", "", "cells", "mean", "worst", "where", "always dense", "always sparse"];
        let mut shown = output::table(head, 2);
        for one in &self.regrets {
            let at = &one.worst_at;
            let chunk = if one.chunk.is_none() { format!(", chunks of {}", at.chunk) } else { String::new() };
            let place = format!("{} rows, {}x{chunk}", count(f64::from(at.rows)), round(at.compression));
            shown.add_row([
                one.chunk.map_or_else(|| "all".to_owned(), |chunk| chunk.to_string()),
                one.of.name().to_owned(),
                one.cells.to_string(),
                percent(Some(one.mean)),
                percent(Some(one.worst)),
                if one.worst > 0.0 { place } else { "-".to_owned() },
                percent(Some(one.mean_dense)),
                percent(Some(one.mean_sparse)),
            ]);
        }
        shown.to_string()
    }

    fn choices(&self) -> String {
        let columns = COMPRESSIONS.map(|times| format!("{times}x")).to_vec();
        let chunks = CHUNKS[..CHUNKS.len() - 1].iter().map(|chunk| format!("Z {chunk}, {COMPRESSION}x"));
        let head = std::iter::once("rows".to_owned()).chain(columns).chain(chunks);
        let mut shown = output::table(head.collect::<Vec<_>>(), 0);
        let one = |cell: &Option<&Cell>| {
            let lost = |what| {
                let (choice, lost) = cell.and_then(|cell| Some((cell.choice(what)?, cell.regret(what)?)))?;
                Some(format!("{choice} +{:.0} %", 100.0 * lost))
            };
            What::ALL.map(|what| lost(what).unwrap_or_else(|| "-".to_owned())).join(" / ")
        };
        let both = self.grid(Axes::RowsCompression).into_iter().zip(self.grid(Axes::RowsChunk));
        for (rows, (compressions, chunks)) in self.shape.rows.iter().zip(both) {
            let name = count(f64::from(*rows));
            let cells = compressions.iter().chain(&chunks[..chunks.len() - 1]);
            shown.add_row(std::iter::once(name).chain(cells.map(one)).collect::<Vec<_>>());
        }
        shown.to_string()
    }

    fn flat_table(&self) -> String {
        let head = ["weights", "rows", "compression", "forward"].into_iter().chain(Way::ALL.map(Way::name));
        let mut shown = output::table(head.collect::<Vec<_>>(), 0);
        for flat in &self.flat {
            let same = |cell: &&Cell| cell.setting.weights == flat.weights && cell.setting.chunk == CHUNK;
            for cell in self.cells.iter().filter(same).filter(|cell| cell.both(What::Update).is_some()) {
                let first = [
                    count(flat.weights as f64),
                    count(f64::from(cell.setting.rows)),
                    format!("{}x", round(cell.setting.compression)),
                    spread(cell.step(Way::DenseUpdate).map(|step| step.forward)),
                ];
                let ways = Way::ALL.map(|way| spread(cell.step(way).map(|step| step.backward)));
                shown.add_row(first.into_iter().chain(ways).collect::<Vec<_>>());
            }
        }
        shown.to_string()
    }

    fn beside_table(&self) -> String {
        let head = ["bags of", "table", "rows", "memory", "hits", "forward", "against FP32"];
        let mut shown = output::table(head, 2);
        for one in &self.beside {
            shown.add_row([
                one.bag.to_string(),
                one.table.clone(),
                count(f64::from(one.rows)),
                bytes(one.bytes as f64),
                percent(one.hit_rate),
                spread(one.forward),
                one.times_fp32.map_or_else(|| "-".to_owned(), |times| format!("{times:.2} x")),
            ]);
        }
        shown.to_string()
    }

    pub(crate) fn goals_as_markdown(&self) -> String {
        let small = if self.size == "small" { " Small sizes, not those of the goals." } else { "" };
        let judged = if self.backend == "cpu" || self.machine.software { " Met or missed on a GPU only." } else { "" };
        format!("Goal against reached: {}.{small}{judged}\n\n{}", self.title(), goal_table(&self.goals))
    }

    /// A line a cell, as the CSV has them.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let line = |cell: &Cell| {
            let of = |way: Way| {
                let times = cell.step(way).map(|step| step.backward);
                (times.map(|times: Times| times.median), times.map(|times| times.lowest))
            };
            let (dense, sparse, atomic) = (of(Way::DenseUpdate), of(Way::SparseUpdate), of(Way::AtomicUpdate));
            let (dense_gradient, sparse_gradient) = (of(Way::DenseGradient), of(Way::SparseGradient));
            let ways = cell.ways_refused.iter().map(|(way, reason)| format!("{}: {reason}", way.name()));
            Line {
                backend: self.backend,
                adapter: self.machine.adapter.clone(),
                software: self.machine.software,
                dim: self.shape.dim,
                batch: self.shape.batch,
                rows: cell.setting.rows,
                compression: cell.setting.compression,
                chunk: cell.setting.chunk,
                weights: cell.setting.weights,
                touched: cell.touched,
                covered: cell.covered,
                forward_median_seconds: cell.step(Way::DenseUpdate).map(|step| step.forward.median),
                dense_update_median_seconds: dense.0,
                dense_update_lowest_seconds: dense.1,
                sparse_update_median_seconds: sparse.0,
                sparse_update_lowest_seconds: sparse.1,
                atomic_update_median_seconds: atomic.0,
                atomic_update_lowest_seconds: atomic.1,
                dense_gradient_median_seconds: dense_gradient.0,
                dense_gradient_lowest_seconds: dense_gradient.1,
                sparse_gradient_median_seconds: sparse_gradient.0,
                sparse_gradient_lowest_seconds: sparse_gradient.1,
                starts: cell.starts,
                auto: cell.auto.unwrap_or_default(),
                gradient_auto: cell.gradient_auto.unwrap_or_default(),
                left_out: cell.refused.iter().cloned().chain(ways).collect::<Vec<_>>().join("; "),
            }
        };
        self.cells.iter().map(line).collect()
    }

    /// Where time goes, of some cells: stages that take 5 % of their phase.
    pub(crate) fn stages(&self) -> Option<String> {
        let mut shown =
            output::table(["rows", "compression", "chunk", "way", "phase", "stage", "time", "dispatches"], 0);
        let mut any = false;
        let chosen = self
            .cells
            .iter()
            .filter(|cell| cell.setting.rows == self.shape.rows[0] && COMPRESSIONS.contains(&cell.setting.compression));
        for cell in chosen {
            for way in Way::ALL {
                let Some(step) = cell.step(way) else { continue };
                for stage in &step.stages {
                    let whole = if stage.phase == "forward" { step.forward } else { step.backward }.median;
                    let forward_again = stage.phase == "forward" && way != Way::DenseUpdate;
                    if forward_again || stage.seconds.is_none_or(|seconds| seconds < 0.05 * whole) {
                        continue;
                    }
                    any = true;
                    shown.add_row([
                        count(f64::from(cell.setting.rows)),
                        format!("{}x", cell.setting.compression),
                        cell.setting.chunk.to_string(),
                        way.name().to_owned(),
                        stage.phase.to_owned(),
                        stage.stage.to_owned(),
                        seconds(stage.seconds),
                        stage.dispatches.to_string(),
                    ]);
                }
            }
        }
        any.then(|| shown.to_string())
    }
}
