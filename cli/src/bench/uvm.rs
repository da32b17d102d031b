//! Unified memory's curves: predicted by the model, and played on a device with its pages really moved. An FP32 table, the device
//! bytes that the cache has.

use super::report::{Point, Run};
use super::sweep::{Runner, Seen, Sweep, Target, WARM};
use crate::output;
use crate::uvm::{UvmDevice, UvmModel, UvmPass, UvmTable, UvmTraffic};
use hotrow::{Context, Counters, Placement, Precision};
use std::time::Duration;

/// Options of the model of unified memory.
#[derive(Debug, clap::Args)]
pub(super) struct UvmArgs {
    /// UVM model: sizes of a page in KiB, powers of two
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [64], value_parser = page)]
    page_kib: Vec<u64>,
    /// UVM model: bytes over the bus, one way, in GB/s
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().bus_bytes_per_second * 1e-9, value_parser = above_zero)]
    bus_gb_s: f64,
    /// UVM model: time of a fault in us, shared by 256 at once
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().fault_seconds * 1e6, value_parser = not_negative)]
    fault_us: f64,
}

fn page(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(kib) if kib.is_power_of_two() && kib <= 1 << 20 => Ok(kib),
        _ => Err("wanted a power of two, 1 to 1048576".to_owned()),
    }
}

fn above_zero(text: &str) -> Result<f64, String> {
    not_negative(text).ok().filter(|&number| number > 0.0).ok_or_else(|| "wanted a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("wanted a number, 0 or more".to_owned()),
    }
}

impl UvmArgs {
    /// A model for each page size.
    pub(super) fn models(&self) -> Vec<UvmModel> {
        let model = |&kib: &u64| UvmModel {
            page_bytes: kib << 10,
            bus_bytes_per_second: self.bus_gb_s * 1e9,
            fault_seconds: self.fault_us * 1e-6,
            ..UvmModel::default()
        };
        self.page_kib.iter().map(model).collect()
    }
}

/// Pages on a device, driven like a group.
struct UvmRunner {
    device: UvmDevice,
    offsets: Vec<u32>,
    grads: Vec<f32>,
    accesses: u64,
    /// In forward, and in backward.
    moved: [UvmTraffic; 2],
}

impl UvmRunner {
    fn new(context: &Context, sweep: &Sweep, table: UvmTable) -> anyhow::Result<Self> {
        let shape = &sweep.shape;
        let offsets = shape.offsets();
        Ok(Self {
            device: UvmDevice::new(context, table, shape.rows, shape.dim, |row, floats| {
                floats.fill(row as f32 * 1e-6);
            })?,
            grads: vec![1e-3; (offsets.len() - 1) * shape.dim as usize],
            offsets,
            accesses: 0,
            moved: Default::default(),
        })
    }
}

impl Runner for UvmRunner {
    fn step(&mut self, indices: &[u32]) -> anyhow::Result<Option<[f64; 2]>> {
        let forward = self.device.forward(indices, &self.offsets)?;
        let backward = self.device.backward(indices, &self.offsets, &self.grads, 1e-3)?;
        self.accesses += indices.len() as u64;
        self.moved[0] += forward.moved;
        self.moved[1] += backward.moved;
        Ok(Some([forward, backward].map(|UvmPass { seconds, .. }| seconds)))
    }

    /// Bytes and accesses; rows are not what moves.
    fn seen(&mut self) -> anyhow::Result<Seen> {
        let [forward, backward] = self.moved;
        let counters = Counters {
            accesses: self.accesses,
            bytes_read: forward.bytes_in + backward.bytes_in,
            bytes_written: forward.bytes_out + backward.bytes_out,
            ..Counters::default()
        };
        Ok(Seen { counters, bus: self.moved.map(|moved| moved.bytes_in + moved.bytes_out) })
    }
}

impl Sweep {
    /// Both curves of each page size, or a note why there are none.
    pub(super) fn uvm(&self, run: &mut Run, target: &Target<'_>, slice: Duration) -> anyhow::Result<()> {
        let row = u64::from(self.shape.dim) * 4;
        for &model in &self.uvm {
            match UvmTable::new(model, row, u64::from(self.shape.cache_rows()) * row) {
                Ok(table) => {
                    self.predict_uvm(run, table.clone());
                    if let Target::Gpu(context) = target {
                        self.move_uvm(run, context, table, slice)?;
                    }
                }
                Err(reason) => {
                    output::note(&format!("pages of {} KiB were left out: {reason}", model.page_bytes >> 10));
                }
            }
        }
        Ok(())
    }

    /// The time is what a step takes with every row on the device, measured in this run, and the bus's beside it.
    fn predict_uvm(&self, run: &mut Run, mut table: UvmTable) {
        let Some(first) = run.points.first().map(|point| point.placement) else { return };
        let all_hit =
            |point: &&Point| (point.kind, point.precision, point.placement) == ("cached", Precision::Fp32, first);
        let fastest = run.points.iter().filter(all_hit).max_by(|a, b| a.hit_rate.total_cmp(&b.hit_rate)).cloned();
        let Some(resident) = fastest else { return };
        let mut stream = self.stream();
        for &hit_rate in &self.hit_rates {
            let mut step = |hit_rate| {
                let rows = stream.batch(hit_rate);
                [false, true].map(|write| table.pass(&rows, write))
            };
            for _ in 0..WARM {
                step(1.0);
            }
            step(hit_rate);
            let [forward, backward] = step(hit_rate);
            let model = *table.model();
            run.points.push(Point {
                kind: "uvm model",
                page_bytes: model.page_bytes,
                target_hit_rate: hit_rate,
                hit_rate,
                forward_seconds: resident.forward_seconds + model.seconds(&forward),
                backward_seconds: resident.backward_seconds + model.seconds(&backward),
                bus_bytes_read: forward.bytes_in + backward.bytes_in,
                bus_bytes_written: forward.bytes_out + backward.bytes_out,
                bus_bytes: [forward, backward].map(|moved| moved.bytes_in + moved.bytes_out),
                steps: 1,
                ..resident.clone()
            });
        }
    }

    /// The same steps with the pages moved, SGD whatever the sweep's optimiser.
    fn move_uvm(&self, run: &mut Run, context: &Context, table: UvmTable, slice: Duration) -> anyhow::Result<()> {
        let page_bytes = table.model().page_bytes;
        let mut runner = match UvmRunner::new(context, self, table) {
            Ok(runner) => runner,
            // The bound of the plots, not what was asked for: a device too small for it still gets its other curves.
            Err(reason) => {
                output::note(&format!("moved pages were left out: {reason}"));
                return Ok(());
            }
        };
        let mut stream = self.stream();
        for &hit_rate in &self.hit_rates {
            let point = self.point(&mut runner, &mut stream, hit_rate, slice)?;
            let (precision, placement) = (Precision::Fp32, Placement::Device);
            run.points.push(Point { kind: "uvm pages", page_bytes, precision, placement, hit_rate, ..point });
        }
        Ok(())
    }
}
