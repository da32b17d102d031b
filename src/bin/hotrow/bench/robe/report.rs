//! What `bench --robe` leaves: JSON (the schema is these structs) and tables in P4's shape.

use serde::Serialize;

use super::beside::Beside;
use super::judge::{Crossover, Flat, Regret, milliseconds, name, round};
use super::measure::{Cell, Step};
use super::published::{self, Axes, Pass, Table};
use super::shape::{CHUNK, CHUNKS, COMPRESSION, COMPRESSIONS, MIDDLE, Shape, count};
use crate::output;
use crate::suite::goals::{Goal, table as goal_table};
use crate::suite::report::{Machine, bytes, percent, seconds, spread};

/// Goes up when a field changes its meaning or goes away.
const SCHEMA: u32 = 1;

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
    /// A chunk size each.
    pub(crate) crossovers: Vec<Crossover>,
    pub(crate) regret: Regret,
    /// An array each.
    pub(crate) flat: Vec<Flat>,
    pub(crate) beside: Vec<Beside>,
    pub(crate) goals: Vec<Goal>,
    /// What was not measured, and why.
    pub(crate) left_out: Vec<String>,
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
            regret: Regret::default(),
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

    /// The seconds of a table's cells, line by line.
    pub(crate) fn values(&self, table: &Table) -> Vec<Vec<Option<f64>>> {
        let one = |cell: &Cell| {
            let step: &Step = if table.sparse { cell.sparse.as_ref()? } else { cell.dense.as_ref()? };
            Some(if table.pass == Pass::Forward { step.forward.median } else { step.backward.median })
        };
        self.grid(table.axes).iter().map(|line| line.iter().map(|cell| one((*cell)?)).collect()).collect()
    }

    pub(crate) fn heading(&self, table: &Table) -> String {
        let pass = match (table.pass, table.sparse) {
            (Pass::Forward, false) => "forward",
            (Pass::Forward, true) => "forward, before a sparse backward",
            (Pass::Backward, false) => "backward, dense",
            (Pass::Backward, true) => "backward, sparse",
        };
        let over = match table.axes {
            Axes::RowsCompression => format!("rows against compression, chunks of {CHUNK}"),
            Axes::RowsChunk => format!("rows against chunk, {COMPRESSION}x"),
            Axes::ChunkCompression => {
                format!("chunk against compression, {} rows", count(f64::from(self.shape.rows[MIDDLE])))
            }
        };
        format!("{pass}: {over}")
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
        for table in &published::TABLES {
            let panel = table.panel.map_or_else(String::new, |panel| format!(", Figure 3 ({panel})"));
            text += &format!(
                "\nP4 table {}{panel}: {}\n\n{}\n",
                table.number,
                self.heading(table),
                self.times(table, theirs)
            );
        }
        text += &format!(
            "\nWhat `Backward::Auto` takes, and how much longer that is than the faster one (lowest against lowest, here and below).\n\n{}\n",
            self.choices()
        );
        let regret = &self.regret;
        if let Some((rows, compression, chunk)) = regret.worst_at {
            text += &format!(
                "\nOver {} cells: mean {}, worst {} ({} rows, {}x, chunks of {chunk}); always dense would lose {} and always sparse {} in the mean.\n",
                regret.cells,
                percent(Some(regret.mean)),
                percent(Some(regret.worst)),
                count(f64::from(rows)),
                round(compression),
                percent(Some(regret.mean_dense)),
                percent(Some(regret.mean_sparse)),
            );
        }
        text += "\nCrossover of dense and sparse backward.\n\n";
        for one in &self.crossovers {
            text += &format!("- chunks of {}: {}\n", one.chunk, name(one));
        }
        if !self.flat.is_empty() {
            text += &format!("\nOne array, several numbers of rows: time is flat.\n\n{}\n", self.flat_table());
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

    fn times(&self, table: &Table, theirs: bool) -> String {
        let (lines, columns) = axes(&self.shape, table.axes);
        let corner = if table.axes == Axes::ChunkCompression { "chunk" } else { "rows" };
        let mut shown = output::table(std::iter::once(corner.to_owned()).chain(columns).collect::<Vec<_>>(), 0);
        for ((name, values), published) in lines.into_iter().zip(self.values(table)).zip(table.milliseconds) {
            let mut line = vec![name];
            for (ours, p4) in values.iter().zip(*published) {
                let ours = ours.map_or_else(|| "-".to_owned(), milliseconds);
                let p4 = if p4.is_nan() { "-".to_owned() } else { format!("{p4:.2}") };
                line.push(if theirs { format!("{ours} / {p4}") } else { ours });
            }
            shown.add_row(line);
        }
        shown.to_string()
    }

    fn choices(&self) -> String {
        let columns = COMPRESSIONS.map(|times| format!("{times}x")).to_vec();
        let chunks = CHUNKS[..CHUNKS.len() - 1].iter().map(|chunk| format!("Z {chunk}, {COMPRESSION}x"));
        let head = std::iter::once("rows".to_owned()).chain(columns).chain(chunks);
        let mut shown = output::table(head.collect::<Vec<_>>(), 0);
        let one = |cell: &Option<&Cell>| match cell.and_then(|cell| cell.auto.zip(cell.regret)) {
            Some((auto, regret)) => format!("{auto} +{:.0} %", 100.0 * regret),
            None => "-".to_owned(),
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
        let mut shown = output::table(["|M|", "rows", "compression", "forward", "dense", "sparse"], 0);
        for flat in &self.flat {
            let same = |cell: &&Cell| cell.setting.weights == flat.weights && cell.setting.chunk == CHUNK;
            for cell in self.cells.iter().filter(same) {
                let (Some(dense), Some(sparse)) = (&cell.dense, &cell.sparse) else { continue };
                shown.add_row([
                    count(flat.weights as f64),
                    count(f64::from(cell.setting.rows)),
                    format!("{}x", round(cell.setting.compression)),
                    spread(Some(dense.forward)),
                    spread(Some(dense.backward)),
                    spread(Some(sparse.backward)),
                ]);
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

    /// Where time goes, of some cells: stages that take 5 % of their phase.
    pub(crate) fn stages(&self) -> Option<String> {
        let mut shown =
            output::table(["rows", "compression", "chunk", "backward", "phase", "stage", "time", "dispatches"], 0);
        let mut any = false;
        let chosen = self
            .cells
            .iter()
            .filter(|cell| cell.setting.rows == self.shape.rows[0] && COMPRESSIONS.contains(&cell.setting.compression));
        for cell in chosen {
            for (backward, step) in [("dense", &cell.dense), ("sparse", &cell.sparse)] {
                let Some(step) = step else { continue };
                for stage in &step.stages {
                    let whole = if stage.phase == "forward" { step.forward } else { step.backward }.median;
                    let forward_again = stage.phase == "forward" && backward == "sparse";
                    if forward_again || stage.seconds.is_none_or(|seconds| seconds < 0.05 * whole) {
                        continue;
                    }
                    any = true;
                    shown.add_row([
                        count(f64::from(cell.setting.rows)),
                        format!("{}x", cell.setting.compression),
                        cell.setting.chunk.to_string(),
                        backward.to_owned(),
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
