//! The curves of unified memory for an FP32 table with the device bytes of the cache: predicted by the model, and measured on a device that
//! moves the pages.

use super::runners::{Runner, Seen};
use super::shape::Shape;
use crate::lab::Lab;
use crate::options::number;
use crate::uvm::{UvmDevice, UvmModel, UvmPass, UvmTable, UvmTraffic};
use hotrow::Counters;

/// Options of the model of unified memory.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// UVM model: sizes of a page in KiB, powers of two
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_values_t = [64], value_parser = page)]
    page_kib: Vec<u64>,
    /// UVM model: bytes over the bus, one way, in GB/s
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().bus_bytes_per_second * 1e-9, value_parser = |text: &str| number(text, 1e-6..=1e6))]
    bus_gb_s: f64,
    /// UVM model: time of a fault in us, shared by 256 at once
    #[arg(long, value_name = "X", default_value_t = UvmModel::default().fault_seconds * 1e6, value_parser = |text: &str| number(text, 0.0..=1e9))]
    fault_us: f64,
}

fn page(text: &str) -> Result<u64, String> {
    match text.trim().parse::<u64>() {
        Ok(kib) if kib.is_power_of_two() && kib <= 1 << 20 => Ok(kib),
        _ => Err("wanted a power of two, 1 to 1048576".to_owned()),
    }
}

impl Args {
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

/// Unified memory on a device, with the interface of a group that trains by SGD.
pub(super) struct UvmRunner {
    device: UvmDevice,
    offsets: Vec<u32>,
    grads: Vec<f32>,
    accesses: u64,
    /// Pages moved in forward and in backward.
    moved: [UvmTraffic; 2],
}

impl UvmRunner {
    pub(super) fn new(lab: &Lab, shape: &Shape, table: UvmTable) -> anyhow::Result<Self> {
        let offsets = shape.offsets();
        let first = |row: u32, floats: &mut [f32]| floats.fill(row as f32 * 1e-6);
        Ok(Self {
            device: UvmDevice::new(&lab.timed, table, shape.rows, shape.dim, first)?,
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

    /// Counts accesses and bytes. Pages move, so there are no counts of rows.
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
