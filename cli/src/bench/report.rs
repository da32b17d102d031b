//! Measurements as table, JSON, CSV and charts.

use super::shape::Shape;
use super::sweep::Target;
use crate::output;
use crate::plot::{Chart, Series};
use crate::uvm::UvmModel;
use hotrow::{Optimizer, Placement, Policy, Precision};
use serde::Serialize;

/// One measured point.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) kind: &'static str,
    /// Of unified memory; else 0.
    pub(crate) page_bytes: u64,
    pub(crate) precision: Precision,
    pub(crate) policy: Option<Policy>,
    pub(crate) placement: Placement,
    pub(crate) target_hit_rate: f64,
    pub(crate) hit_rate: f64,
    pub(crate) forward_seconds: f64,
    pub(crate) backward_seconds: f64,
    pub(crate) logical_bytes: u64,
    pub(crate) bus_bytes_read: u64,
    pub(crate) bus_bytes_written: u64,
    /// Bytes that crossed in forward, and in backward; of a table in GPU memory those to and from it.
    pub(crate) bus_bytes: [u64; 2],
    pub(crate) steps: u64,
}

impl Point {
    fn gigabytes(&self, backward: bool) -> f64 {
        let bytes = self.logical_bytes as f64 * 1e-9;
        if backward { 2.0 * bytes / self.backward_seconds } else { bytes / self.forward_seconds }
    }

    fn bus_gigabytes(&self, backward: bool) -> f64 {
        let seconds = if backward { self.backward_seconds } else { self.forward_seconds };
        self.bus_bytes[usize::from(backward)] as f64 * 1e-9 / seconds
    }

    /// Gigabytes a second of a measure.
    fn measured(&self, measure: Measure, backward: bool) -> f64 {
        match measure {
            Measure::Logical => self.gigabytes(backward),
            Measure::Bus => self.bus_gigabytes(backward),
        }
    }

    fn is_uvm(&self) -> bool {
        self.kind.starts_with("uvm")
    }

    fn curve(&self) -> String {
        let policy = match self.policy {
            Some(Policy::Lru) if self.kind == "cached" => ", LRU",
            Some(Policy::Lfu) if self.kind == "cached" => ", LFU",
            _ => "",
        };
        let place = match self.placement {
            Placement::Mapped => ", mapped",
            Placement::Staged => ", staged",
            _ => "",
        };
        match self.kind {
            "cached" => format!("{}{policy}{place}", precision_name(self.precision)),
            "uvm model" => format!("UVM model, {} KiB, predicted", self.page_bytes >> 10),
            "uvm pages" => format!("UVM model, {} KiB, moved", self.page_bytes >> 10),
            kind => format!("{}, {kind}{place}", precision_name(self.precision)),
        }
    }
}

/// SPEC 6 wants both.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    /// TBE's: bytes of the rows and outputs as a caller sees them.
    Logical,
    /// Bytes that crossed.
    Bus,
}

const STAGED: &str = " Staged: by wall clock, the\nhost's part in forward as far as prefetching does not hide it.";

/// One backend's sweep.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    backend: &'static str,
    device: String,
    driver: String,
    software: bool,
    timing: &'static str,
    shape: Shape,
    optimizer: Optimizer,
    /// At what placements are compared.
    compared: (Precision, Policy),
    /// Its bus and faults.
    uvm: UvmModel,
    pub(crate) points: Vec<Point>,
}

fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Fp32 => "FP32",
        Precision::Fp16 => "FP16",
        Precision::Int8 => "INT8",
        Precision::Int4 => "INT4",
        Precision::Int2 => "INT2",
    }
}

impl Run {
    pub(crate) const fn backend(target: &Target<'_>) -> &'static str {
        match target {
            Target::Cpu => "cpu",
            Target::Gpu(_) => "gpu",
        }
    }

    pub(crate) fn new(
        target: &Target<'_>,
        shape: Shape,
        optimizer: Optimizer,
        compared: (Precision, Policy),
        uvm: UvmModel,
    ) -> Self {
        let (device, driver, software, timing) = match target {
            Target::Cpu => {
                (format!("CPU, {} threads", rayon::current_num_threads()), String::new(), false, "wall clock")
            }
            Target::Gpu(context) => {
                let info = context.device().adapter_info();
                let timing = if context.caps().timestamps { "device timestamps" } else { "wall clock" };
                let driver = format!("{} {}", info.driver, info.driver_info).trim().to_owned();
                (info.name, driver, !context.caps().is_hardware(), timing)
            }
        };
        let backend = Self::backend(target);
        Self { backend, device, driver, software, timing, shape, optimizer, compared, uvm, points: Vec::new() }
    }

    fn title(&self) -> String {
        let software = if self.software { "software adapter, shows that it works, not how fast: " } else { "" };
        format!("{software}{}", self.device)
    }

    fn curves<'p>(points: impl IntoIterator<Item = &'p Point>) -> Vec<String> {
        let mut curves: Vec<String> = Vec::new();
        for point in points {
            if !curves.contains(&point.curve()) {
                curves.push(point.curve());
            }
        }
        curves
    }

    /// One line a curve, a column for each hit rate aimed at.
    pub(crate) fn table(&self) -> String {
        let mut targets: Vec<f64> =
            self.points.iter().filter(|p| p.kind == "cached").map(|p| p.target_hit_rate).collect();
        targets.sort_by(f64::total_cmp);
        targets.dedup();
        let mut header = vec!["curve".to_owned()];
        header.extend(targets.iter().map(|target| format!("{:.0} %", 100.0 * target)));
        let mut table = output::table(header, 1);
        for curve in Self::curves(&self.points) {
            let mine: Vec<&Point> = self.points.iter().filter(|point| point.curve() == curve).collect();
            let mut cells = vec![curve];
            for &target in &targets {
                let here = mine.iter().find(|point| point.target_hit_rate == target || point.kind == "uncached");
                cells.push(here.map_or_else(String::new, |point| {
                    format!("{:.2} / {:.2}", point.gigabytes(false), point.gigabytes(true))
                }));
            }
            table.add_row(cells);
        }
        let Shape { rows, dim, batch, bag } = self.shape;
        let model = self.uvm;
        format!(
            "{}\n{rows} rows x {dim}, batches of {batch} accesses in bags of {bag}, cache of {} rows; {:?}; {}.\n\
             Logical GB/s, forward / backward, by hit rate aimed at. UVM model: an FP32 table in pages, with SGD; predicted for\n\
             a bus of {} GB/s and {} us a fault, {} faults at once; moved: on this device, faults for free.{}\n\n{table}\n",
            self.title(),
            self.shape.cache_rows(),
            self.optimizer.kind,
            self.timing,
            model.bus_bytes_per_second * 1e-9,
            model.fault_seconds * 1e6,
            model.faults_at_once,
            if self.points.iter().any(|point| point.placement == Placement::Staged) { STAGED } else { "" },
        )
    }

    /// Each with its file's stem: precisions and policies of the first placement; then, where there are several, placements, by both
    /// measures. Forward and backward of each.
    pub(crate) fn charts(&self) -> Vec<(String, Chart)> {
        let mut charts = Vec::new();
        let first = self.points.first().map(|point| point.placement);
        // Of several sizes of pages the first: the others are in the table.
        let page_bytes = self.points.iter().find(|point| point.is_uvm()).map_or(0, |point| point.page_bytes);
        let uvm = |point: &Point| point.is_uvm() && point.page_bytes == page_bytes;
        let bound = |point: &Point| uvm(point) || (point.kind, point.precision) == ("uncached", Precision::Fp32);
        for backward in [false, true] {
            let shown = |point: &&Point| bound(point) || point.kind == "cached" && Some(point.placement) == first;
            charts.push(self.chart("", Measure::Logical, backward, self.points.iter().filter(shown), by_precision));
        }
        if self.points.iter().any(|point| point.kind == "cached" && Some(point.placement) != first) {
            for measure in [Measure::Logical, Measure::Bus] {
                for backward in [false, true] {
                    let (precision, policy) = self.compared;
                    let shown = |point: &&Point| {
                        let same = point.precision == precision && point.policy.is_none_or(|found| found == policy);
                        let uncached = point.kind == "uncached" && point.placement == Placement::Mapped;
                        // A table in GPU memory crosses no bus.
                        let crosses = measure == Measure::Logical || point.placement != Placement::Device;
                        uvm(point)
                            || (point.kind == "cached" && same && crosses)
                            || (uncached && (same || bound(point)))
                    };
                    let shown = self.points.iter().filter(shown);
                    charts.push(self.chart("placements-", measure, backward, shown, by_placement));
                }
            }
        }
        charts
    }

    fn chart<'p>(
        &self,
        what: &str,
        measure: Measure,
        backward: bool,
        shown: impl Iterator<Item = &'p Point>,
        colour: fn(&Point) -> usize,
    ) -> (String, Chart) {
        let direction = if backward { "Backward" } else { "Forward" };
        let (label, suffix) = match measure {
            Measure::Logical => ("Logical bandwidth (GB/s)", ""),
            Measure::Bus => ("Bytes that crossed the bus (GB/s)", "bus-"),
        };
        let mut chart = Chart::new("Hit rate (% of accesses)", label);
        chart.title = format!("{direction}: {}", self.title());
        // Of hits little crosses, of pages much.
        chart.log_y = measure == Measure::Bus;
        chart.x_range = Some((0.0, 100.0));
        let shown: Vec<&Point> = shown.collect();
        for name in Self::curves(shown.iter().copied()) {
            let mine: Vec<&Point> = shown.iter().copied().filter(|point| point.curve() == name).collect();
            let Some(first) = mine.first() else { continue };
            let mut points: Vec<(f64, f64)> =
                mine.iter().map(|point| (100.0 * point.hit_rate, point.measured(measure, backward))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if first.kind == "uncached" {
                points = vec![(0.0, points[0].1), (100.0, points[0].1)];
            }
            let named = !what.is_empty() && first.kind == "cached" && first.placement == Placement::Device;
            chart.series.push(Series {
                label: if named { format!("{name}, device") } else { name },
                points,
                colour: colour(first),
                dashed: first.policy == Some(Policy::Lfu) || first.kind != "cached",
                markers: ["cached", "uvm pages"].contains(&first.kind),
                spread: Vec::new(),
            });
        }
        let highest = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max);
        chart.y_range = (measure == Measure::Logical).then_some((0.0, highest * 1.05));
        (format!("bench-{}-{what}{suffix}{}", self.stem(), direction.to_lowercase()), chart)
    }

    fn stem(&self) -> &'static str {
        if self.software { "software" } else { self.backend }
    }
}

fn by_precision(point: &Point) -> usize {
    match point.kind {
        "uvm model" => 6,
        "uvm pages" => 4,
        "uncached" if point.placement == Placement::Mapped => 5,
        "uncached" => 7,
        _ => Precision::ALL.iter().position(|&precision| precision == point.precision).unwrap_or(0),
    }
}

fn by_placement(point: &Point) -> usize {
    match (point.kind, point.placement) {
        ("uvm model", _) => 6,
        ("uvm pages", _) => 4,
        ("uncached", _) if point.precision == Precision::Fp32 => 5,
        ("uncached", _) => 3,
        (_, Placement::Mapped) => 1,
        (_, Placement::Staged) => 2,
        _ => 0,
    }
}

/// The JSON report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    command: &'static str,
    version: &'static str,
    seed: u64,
    points: Vec<Line>,
}

impl Report {
    pub(crate) fn new(runs: &[Run], seed: u64) -> Self {
        Self { command: "bench", version: env!("CARGO_PKG_VERSION"), seed, points: lines(runs) }
    }
}

/// One point as it stands in JSON and CSV; the schema of both.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    backend: &'static str,
    device: String,
    driver: String,
    software: bool,
    timing: &'static str,
    rows: u32,
    dim: u32,
    batch: u32,
    bag: u32,
    cache_rows: u32,
    optimizer: String,
    kind: &'static str,
    precision: &'static str,
    policy: &'static str,
    placement: &'static str,
    target_hit_rate: f64,
    hit_rate: f64,
    forward_seconds: f64,
    backward_seconds: f64,
    forward_logical_gb_s: f64,
    backward_logical_gb_s: f64,
    bus_bytes_read_per_step: u64,
    bus_bytes_written_per_step: u64,
    steps: u64,
    /// Of unified memory; else 0.
    page_bytes: u64,
    /// Bytes that crossed, by the time of the pass; of a table in GPU memory those to and from it.
    forward_bus_gb_s: f64,
    backward_bus_gb_s: f64,
}

/// Every point of every run.
pub(crate) fn lines(runs: &[Run]) -> Vec<Line> {
    let line = |run: &Run, point: &Point| Line {
        backend: run.backend,
        device: run.device.clone(),
        driver: run.driver.clone(),
        software: run.software,
        timing: match (point.kind, point.placement) {
            ("uvm model", _) => "predicted",
            // The host has its part in forward.
            (_, Placement::Staged) => "wall clock",
            _ => run.timing,
        },
        rows: run.shape.rows,
        dim: run.shape.dim,
        batch: run.shape.batch,
        bag: run.shape.bag,
        cache_rows: if point.kind == "uncached" { 0 } else { run.shape.cache_rows() },
        optimizer: format!("{:?}", run.optimizer.kind).to_lowercase(),
        kind: point.kind,
        precision: precision_name(point.precision),
        policy: match point.policy {
            Some(Policy::Lru) => "lru",
            Some(Policy::Lfu) => "lfu",
            Some(Policy::Static) => "static",
            None => "",
        },
        placement: match point.placement {
            Placement::Mapped => "mapped",
            Placement::Staged => "staged",
            _ => "device",
        },
        target_hit_rate: point.target_hit_rate,
        hit_rate: point.hit_rate,
        forward_seconds: point.forward_seconds,
        backward_seconds: point.backward_seconds,
        forward_logical_gb_s: point.gigabytes(false),
        backward_logical_gb_s: point.gigabytes(true),
        bus_bytes_read_per_step: point.bus_bytes_read,
        bus_bytes_written_per_step: point.bus_bytes_written,
        steps: point.steps,
        page_bytes: point.page_bytes,
        forward_bus_gb_s: point.bus_gigabytes(false),
        backward_bus_gb_s: point.bus_gigabytes(true),
    };
    runs.iter().flat_map(|run| run.points.iter().map(move |point| line(run, point))).collect()
}
