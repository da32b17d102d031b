//! Measurements as table, JSON, CSV and charts.

use super::shape::Shape;
use super::sweep::Target;
use crate::output;
use crate::plot::{Chart, Series};
use hotrow::uvm::UvmModel;
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
    pub(crate) steps: u64,
}

impl Point {
    fn gigabytes(&self, backward: bool) -> f64 {
        let bytes = self.logical_bytes as f64 * 1e-9;
        if backward { 2.0 * bytes / self.backward_seconds } else { bytes / self.forward_seconds }
    }

    fn curve(&self) -> String {
        let policy = match self.policy {
            Some(Policy::Lru) if self.kind == "cached" => ", LRU",
            Some(Policy::Lfu) if self.kind == "cached" => ", LFU",
            _ => "",
        };
        let place = if self.placement == Placement::Mapped { ", mapped" } else { "" };
        match self.kind {
            "cached" => format!("{}{policy}{place}", precision_name(self.precision)),
            "uvm model" => format!("UVM model, {} KiB, predicted", self.page_bytes >> 10),
            "uvm pages" => format!("UVM model, {} KiB, moved", self.page_bytes >> 10),
            kind => format!("{}, {kind}{place}", precision_name(self.precision)),
        }
    }
}

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

    pub(crate) fn new(target: &Target<'_>, shape: Shape, optimizer: Optimizer, uvm: UvmModel) -> Self {
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
        Self { backend, device, driver, software, timing, shape, optimizer, uvm, points: Vec::new() }
    }

    fn title(&self) -> String {
        let software = if self.software { "software adapter, shows that it works, not how fast: " } else { "" };
        format!("{software}{}", self.device)
    }

    fn curves(&self) -> Vec<String> {
        let mut curves: Vec<String> = Vec::new();
        for point in &self.points {
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
        for curve in self.curves() {
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
             a bus of {} GB/s and {} us a fault, {} faults at once; moved: on this device, faults for free.\n\n{table}\n",
            self.title(),
            self.shape.cache_rows(),
            self.optimizer.kind,
            self.timing,
            model.bus_bytes_per_second * 1e-9,
            model.fault_seconds * 1e6,
            model.faults_at_once,
        )
    }

    /// Forward and backward, each with its file's stem.
    pub(crate) fn charts(&self) -> Vec<(String, Chart)> {
        [false, true].into_iter().map(|backward| self.chart(backward)).collect()
    }

    fn chart(&self, backward: bool) -> (String, Chart) {
        let direction = if backward { "Backward" } else { "Forward" };
        let mut chart = Chart::new("Hit rate (% of accesses)", "Logical bandwidth (GB/s)");
        chart.title = format!("{direction}: {}", self.title());
        chart.x_range = Some((0.0, 100.0));
        let colour = |precision: Precision| Precision::ALL.iter().position(|&p| p == precision).unwrap_or(0);
        for name in self.curves() {
            let mine: Vec<&Point> = self.points.iter().filter(|point| point.curve() == name).collect();
            let Some(first) = mine.first() else { continue };
            let mut points: Vec<(f64, f64)> =
                mine.iter().map(|point| (100.0 * point.hit_rate, point.gigabytes(backward))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            if first.kind == "uncached" {
                if first.precision != Precision::Fp32 {
                    continue; // in the table; five flat lines more would hide the curves
                }
                points = vec![(0.0, points[0].1), (100.0, points[0].1)];
            }
            chart.series.push(Series {
                label: name,
                points,
                colour: match first.kind {
                    "uvm model" => 6,
                    "uvm pages" => 4,
                    "uncached" if first.placement == Placement::Mapped => 5,
                    "uncached" => 7,
                    _ => colour(first.precision),
                },
                dashed: first.policy == Some(Policy::Lfu) || first.kind != "cached",
                markers: first.kind == "cached",
            });
        }
        let highest = chart.series.iter().flat_map(|series| &series.points).map(|point| point.1).fold(0.0, f64::max);
        chart.y_range = Some((0.0, highest * 1.05));
        (format!("bench-{}-{}", self.stem(), direction.to_lowercase()), chart)
    }

    fn stem(&self) -> &'static str {
        if self.software { "software" } else { self.backend }
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
}

/// Every point of every run.
pub(crate) fn lines(runs: &[Run]) -> Vec<Line> {
    let line = |run: &Run, point: &Point| Line {
        backend: run.backend,
        device: run.device.clone(),
        driver: run.driver.clone(),
        software: run.software,
        timing: if point.kind == "uvm model" { "predicted" } else { run.timing },
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
            None => "",
        },
        placement: if point.placement == Placement::Mapped { "mapped" } else { "device" },
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
    };
    runs.iter().flat_map(|run| run.points.iter().map(move |point| line(run, point))).collect()
}
