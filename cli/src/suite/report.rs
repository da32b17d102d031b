//! What a run of the suite leaves: JSON (the schema is these structs) and tables.

use hotrow::Context;
use serde::Serialize;

use super::bytes::Facts;
use super::copy::Copy;
use super::goals::{self, Goal};
use super::lab::{Lab, Stage, Times};
use super::pinned::Pinned;
use crate::output;

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
    pub(crate) machine: Machine,
    pub(crate) seconds: f64,
    /// Of the device, measured in this run.
    pub(crate) copies: Vec<Copy>,
    /// The best of them within device memory: what shares are shares of.
    pub(crate) copy_bytes_per_second: Option<f64>,
    /// The best of them from host memory that shaders map.
    pub(crate) bus_bytes_per_second: Option<f64>,
    /// The best of them to such memory.
    pub(crate) bus_out_bytes_per_second: Option<f64>,
    pub(crate) cases: Vec<Case>,
    pub(crate) paces: Vec<Pace>,
    /// Pinned rows, in the shape of P3's tables.
    pub(crate) pinned: Option<Pinned>,
    pub(crate) sorts: Vec<Sort>,
    pub(crate) scaling: Vec<Point>,
    /// Predictions of the UVM model (SPEC 4), no measurements but for the pages really copied.
    pub(crate) uvm: Vec<Uvm>,
    pub(crate) goals: Vec<Goal>,
    /// What was asked for and not done, and why.
    pub(crate) left_out: Vec<String>,
    /// What must be and was not, on any machine. The command fails with it.
    pub(crate) wrong: Vec<String>,
}

/// What it ran on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) adapter: String,
    pub(crate) backend: String,
    pub(crate) driver: String,
    pub(crate) device_type: String,
    pub(crate) software: bool,
    pub(crate) timing: &'static str,
    pub(crate) subgroup: Option<(u32, u32)>,
    pub(crate) binding_bytes: u64,
    pub(crate) threads: usize,
}

impl Machine {
    /// The host's cores.
    pub(crate) fn cpu() -> Self {
        let threads = rayon::current_num_threads();
        Self {
            adapter: format!("CPU, {threads} threads"),
            backend: "cpu".to_owned(),
            driver: String::new(),
            device_type: "Cpu".to_owned(),
            software: false,
            timing: "wall clock",
            subgroup: None,
            binding_bytes: 0,
            threads,
        }
    }

    pub(crate) fn of(context: &Context, timing: &'static str) -> Self {
        let (info, caps) = (context.device().adapter_info(), context.caps());
        Self {
            adapter: info.name,
            backend: info.backend.to_string(),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            device_type: format!("{:?}", info.device_type),
            software: !caps.is_hardware(),
            timing,
            subgroup: caps.subgroup,
            binding_bytes: caps.binding_bytes,
            threads: rayon::current_num_threads(),
        }
    }
}

/// A workload: forward and backward over batches in turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) shape: String,
    pub(crate) why: &'static str,
    pub(crate) warm_state: String,
    pub(crate) scale: Option<String>,
    pub(crate) precision: String,
    pub(crate) placement: String,
    pub(crate) optimizer: String,
    pub(crate) hit_rate: f64,
    /// Of a mean step.
    pub(crate) facts: Facts,
    pub(crate) forward: Option<Times>,
    pub(crate) backward: Option<Times>,
    pub(crate) forward_logical_bytes_per_second: Option<f64>,
    pub(crate) backward_logical_bytes_per_second: Option<f64>,
    /// Bytes read from and written to the table, over the bus where it is mapped.
    pub(crate) forward_table_bytes: f64,
    pub(crate) backward_table_bytes: f64,
    /// Of a whole step, from its submission until the host knows that it is done.
    pub(crate) on_the_hosts_clock: Times,
    /// Of a whole step.
    pub(crate) dispatches: u64,
    pub(crate) kernels: Vec<Kernel>,
}

/// A kernel's part of a case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kernel {
    pub(crate) kernel: &'static str,
    pub(crate) phase: &'static str,
    pub(crate) stages: Vec<&'static str>,
    pub(crate) dispatches: u64,
    /// Medians, lowest and highest of the stages, added up.
    pub(crate) seconds: Option<Times>,
    /// What it must move, if a formula is known.
    pub(crate) bytes: Option<f64>,
    pub(crate) bytes_are: Option<&'static str>,
    pub(crate) bytes_per_second: Option<f64>,
    pub(crate) share_of_copy: Option<f64>,
}

impl Kernel {
    pub(crate) fn new(kernel: &'static str, phase: &'static str, bytes: Option<(f64, &'static str)>) -> Self {
        Self {
            kernel,
            phase,
            stages: Vec::new(),
            dispatches: 0,
            seconds: None,
            bytes: bytes.map(|(bytes, _)| bytes),
            bytes_are: bytes.map(|(_, why)| why),
            bytes_per_second: None,
            share_of_copy: None,
        }
    }

    pub(crate) fn add(&mut self, stage: &Stage) {
        self.stages.push(stage.stage);
        self.dispatches += stage.dispatches;
        let sum = |a: Times, b: Times| Times {
            median: a.median + b.median,
            lowest: a.lowest + b.lowest,
            highest: a.highest + b.highest,
            rounds: b.rounds,
        };
        self.seconds = match (self.stages.len(), self.seconds, stage.times) {
            (1, _, times) => times,
            (_, Some(a), Some(b)) => Some(sum(a, b)),
            _ => None,
        };
        self.bytes_per_second = self.bytes.zip(self.seconds).map(|(bytes, times)| bytes / times.median);
    }
}

impl Case {
    /// Forward and backward.
    pub(crate) fn step_seconds(&self) -> Option<f64> {
        Some(self.forward?.median + self.backward?.median)
    }

    pub(crate) fn kernel(&self, kernel: &str, phase: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|found| found.kernel == kernel && found.phase == phase)
    }

    /// Whether a kernel takes 2 % of its phase's time or bytes.
    pub(crate) fn counts(&self, kernel: &Kernel) -> bool {
        let phase = || self.kernels.iter().filter(|other| other.phase == kernel.phase);
        let seconds = |kernel: &Kernel| kernel.seconds.map_or(0.0, |times| times.median);
        let all: f64 = phase().map(seconds).sum();
        seconds(kernel) >= 0.02 * all || kernel.bytes.unwrap_or(0.0) >= 0.02 * self.bytes(kernel.phase)
    }

    /// Bytes that all kernels of a phase must move.
    pub(crate) fn bytes(&self, phase: &str) -> f64 {
        self.kernels.iter().filter(|kernel| kernel.phase == phase).filter_map(|kernel| kernel.bytes).sum()
    }
}

/// The sort alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sort {
    pub(crate) pairs: u32,
    pub(crate) key_bits: u32,
    pub(crate) why: &'static str,
    pub(crate) seconds: Times,
    pub(crate) pairs_per_second: f64,
    pub(crate) bytes: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) share_of_copy: Option<f64>,
    pub(crate) dispatches: u64,
    /// A stable sort of the same pairs on all cores of the host.
    pub(crate) cpu_seconds: f64,
}

/// A step over so many distinct rows, all resident.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) distinct: f64,
    pub(crate) forward: Times,
    pub(crate) backward: Times,
    pub(crate) seconds: f64,
    pub(crate) dispatches: u64,
}

/// Whole steps one after the other, by the host's clock: the host has a part in a staged one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pace {
    pub(crate) name: &'static str,
    pub(crate) shape: String,
    pub(crate) why: &'static str,
    pub(crate) placement: String,
    pub(crate) prefetched: bool,
    /// A step, as the mean of each stretch of steps.
    pub(crate) step: Times,
    pub(crate) hit_rate: f64,
    /// Records that the steps say were read from and written to the table, a step.
    pub(crate) counted_bytes_in: f64,
    pub(crate) counted_bytes_out: f64,
    /// All that was copied for a staged table a step: records, their lists and notes.
    pub(crate) copied_bytes: Option<f64>,
    /// Of a step, the host at gathering and scattering.
    pub(crate) host_seconds: Option<f64>,
}

/// Unified memory in place of the cache.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Uvm {
    pub(crate) case: String,
    pub(crate) what: &'static str,
    pub(crate) bytes_in: f64,
    pub(crate) forward_seconds: f64,
}

impl Report {
    pub(crate) fn new(context: &Context, lab: &Lab, seed: u64, commit: String) -> Self {
        Self {
            schema: SCHEMA,
            command: "bench --suite",
            version: env!("CARGO_PKG_VERSION"),
            commit,
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            seed,
            size: lab.size.name(),
            machine: Machine::of(context, lab.timing()),
            seconds: 0.0,
            copies: Vec::new(),
            copy_bytes_per_second: None,
            bus_bytes_per_second: None,
            bus_out_bytes_per_second: None,
            cases: Vec::new(),
            paces: Vec::new(),
            pinned: None,
            sorts: Vec::new(),
            scaling: Vec::new(),
            uvm: Vec::new(),
            goals: Vec::new(),
            left_out: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Shares of the copy's bandwidth, once all is measured.
    pub(crate) fn set_shares(&mut self) {
        let Some(copy) = self.copy_bytes_per_second else { return };
        for kernel in self.cases.iter_mut().flat_map(|case| &mut case.kernels) {
            kernel.share_of_copy = kernel.bytes_per_second.map(|rate| rate / copy);
        }
        for sort in &mut self.sorts {
            sort.share_of_copy = Some(sort.bytes_per_second / copy);
        }
    }

    /// What stands above every table and plot.
    pub(crate) fn title(&self) -> String {
        let warning = if self.machine.software {
            "software adapter: these figures show that it runs, not how fast: "
        } else {
            ""
        };
        format!("{warning}{}", self.machine.adapter)
    }

    /// All tables, as Markdown.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!(
            "{}\n{}, driver {}; hotrow {} at {}; {}; {}; size {}.\n",
            self.title(),
            self.machine.backend,
            self.machine.driver,
            self.version,
            self.commit,
            self.date,
            self.machine.timing,
            self.size,
        );
        for copy in &self.copies {
            text += &format!(
                "{}: {} of {} MiB (median {}).\n",
                copy.how,
                rate(Some(copy.bytes_per_second)),
                copy.buffer_bytes >> 20,
                seconds(Some(copy.seconds.median))
            );
        }
        if !self.cases.is_empty() {
            text += &format!(
                "\nWhole phases. Logical is TBE's measure; table bytes cross the bus where mapped.\n\n{}\n",
                self.phases()
            );
            text += &format!(
                "\nKernels that take 2 % of their phase or more, and the bytes that each must move, against the copy.\n\n{}\n",
                self.kernels()
            );
            for case in &self.cases {
                let scale = case.scale.as_ref().map_or_else(String::new, |scale| format!(" Scaled: {scale}."));
                text +=
                    &format!("\n- {}: {}. {}. Before: {}.{scale}", case.name, case.shape, case.why, case.warm_state);
            }
            text += "\n";
        }
        if !self.paces.is_empty() {
            text += &format!("\nSteps one after the other, by the host's clock.\n\n{}\n", self.pace_table());
            for pace in &self.paces {
                text += &format!("\n- {}: {}. {}.", pace.name, pace.shape, pace.why);
            }
            text += "\n";
        }
        if let Some(pinned) = &self.pinned {
            text += &pinned.tables();
        }
        if !self.sorts.is_empty() {
            text += &format!(
                "\nSort of pairs of 32-bit keys and values, and a stable sort on the host's cores.\n\n{}\n",
                self.sort_table()
            );
        }
        if !self.scaling.is_empty() {
            text += &format!(
                "\nTime against work: whole steps over distinct rows, all resident.\n\n{}\n",
                self.scaling_table()
            );
        }
        for uvm in &self.uvm {
            text += &format!("\n{}, {}: forward {}", uvm.case, uvm.what, seconds(Some(uvm.forward_seconds)));
        }
        text += &format!("\n\n{}", self.goals_as_markdown());
        for wrong in &self.wrong {
            text += &format!("\nWRONG: {wrong}.");
        }
        for left in &self.left_out {
            text += &format!("\nLeft out: {left}.");
        }
        text
    }

    fn phases(&self) -> String {
        let mut table = output::table(
            [
                "case",
                "hits",
                "distinct",
                "missing",
                "forward",
                "backward",
                "logical, fwd / bwd",
                "table bytes, fwd / bwd",
                "host's clock",
                "dispatches",
            ],
            1,
        );
        for case in &self.cases {
            table.add_row([
                case.name.clone(),
                percent(Some(case.hit_rate)),
                format!("{:.0}", case.facts.distinct),
                percent(Some(case.facts.missing_share())),
                spread(case.forward),
                spread(case.backward),
                format!(
                    "{} / {}",
                    rate(case.forward_logical_bytes_per_second),
                    rate(case.backward_logical_bytes_per_second)
                ),
                format!("{} / {}", bytes(case.forward_table_bytes), bytes(case.backward_table_bytes)),
                spread(Some(case.on_the_hosts_clock)),
                case.dispatches.to_string(),
            ]);
        }
        table.to_string()
    }

    fn kernels(&self) -> String {
        let mut table =
            output::table(["case", "phase", "kernel", "time", "must move", "bytes/s", "of copy", "dispatches"], 3);
        for case in &self.cases {
            for kernel in case.kernels.iter().filter(|kernel| case.counts(kernel)) {
                table.add_row([
                    case.name.clone(),
                    kernel.phase.to_owned(),
                    kernel.kernel.to_owned(),
                    spread(kernel.seconds),
                    kernel.bytes.map_or_else(|| "-".to_owned(), bytes),
                    rate(kernel.bytes_per_second),
                    percent(kernel.share_of_copy),
                    kernel.dispatches.to_string(),
                ]);
            }
        }
        table.to_string()
    }

    fn pace_table(&self) -> String {
        let head = ["case", "step", "hits", "counted, in / out", "copied", "the host's part"];
        let mut table = output::table(head, 1);
        for pace in &self.paces {
            table.add_row([
                pace.name.to_owned(),
                spread(Some(pace.step)),
                percent(Some(pace.hit_rate)),
                format!("{} / {}", bytes(pace.counted_bytes_in), bytes(pace.counted_bytes_out)),
                pace.copied_bytes.map_or_else(|| "-".to_owned(), bytes),
                seconds(pace.host_seconds),
            ]);
        }
        table.to_string()
    }

    fn sort_table(&self) -> String {
        let mut table = output::table(["pairs", "key bits", "time", "pairs/s", "of copy", "dispatches", "host"], 0);
        for sort in &self.sorts {
            table.add_row([
                sort.pairs.to_string(),
                sort.key_bits.to_string(),
                spread(Some(sort.seconds)),
                format!("{:.3} G", sort.pairs_per_second * 1e-9),
                percent(sort.share_of_copy),
                sort.dispatches.to_string(),
                seconds(Some(sort.cpu_seconds)),
            ]);
        }
        table.to_string()
    }

    fn scaling_table(&self) -> String {
        let mut table = output::table(["distinct rows", "forward", "backward", "step", "ns a row", "dispatches"], 0);
        for point in &self.scaling {
            table.add_row([
                format!("{:.0}", point.distinct),
                spread(Some(point.forward)),
                spread(Some(point.backward)),
                seconds(Some(point.seconds)),
                format!("{:.2}", point.seconds * 1e9 / point.distinct),
                point.dispatches.to_string(),
            ]);
        }
        table.to_string()
    }

    /// What stands in the results' README.
    pub(crate) fn goals_as_markdown(&self) -> String {
        let small = if self.size == "small" { " Small sizes, not those of the goals." } else { "" };
        format!("Goal against reached: {}.{small}\n\n{}\n", self.title(), goals::table(&self.goals))
    }
}

/// `12.3 ms`, with as many digits at any size.
pub(crate) fn seconds(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds >= 1.0 => format!("{seconds:.2} s"),
        Some(seconds) if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        Some(seconds) => format!("{:.1} us", seconds * 1e6),
    }
}

/// The median, and how far lowest and highest lie apart.
pub(crate) fn spread(times: Option<Times>) -> String {
    times.map_or_else(
        || "-".to_owned(),
        |times| {
            if times.rounds < 2 {
                return seconds(Some(times.median));
            }
            let apart = (times.highest - times.lowest) / times.median.max(1e-12);
            format!("{} ({:.0} %)", seconds(Some(times.median)), 100.0 * apart)
        },
    )
}

pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

fn rate(bytes_per_second: Option<f64>) -> String {
    bytes_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{:.2} GB/s", rate * 1e-9))
}

pub(crate) fn bytes(bytes: f64) -> String {
    if bytes >= 1e9 { format!("{:.2} GB", bytes * 1e-9) } else { format!("{:.3} MB", bytes * 1e-6) }
}
