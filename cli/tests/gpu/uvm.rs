//! The unified-memory baseline moves real pages: its contents equal a plain vector, and its bytes equal a model that only counts.

use hotrow::{Context, Error, adapter, wgpu};
use hotrow_cli::uvm::{PAGE_BYTES, UvmDevice, UvmModel, UvmTable, UvmTraffic};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use hotrow_harness::{
    device::{options, with_gpu},
    lanes::{
        Options, Order,
        device::{Config, Findings},
        runs,
    },
};

/// The same adapter, opened with other features and limits.
fn opened(context: &Context, change: impl FnOnce(&mut wgpu::Features, &mut wgpu::Limits)) -> Context {
    let wanted = context.caps();
    let adapter = adapter::adapters().into_iter().find(|adapter| adapter.get_info().name == wanted.name).unwrap();
    let (mut features, mut limits) = hotrow::requirements(&adapter);
    change(&mut features, &mut limits);
    let descriptor =
        wgpu::DeviceDescriptor { required_features: features, required_limits: limits, ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
    Context::with_options(&device, &queue, &options()).unwrap()
}

/// Whole numbers, so that sums are exact in any order.
fn first_value(row: u32, k: u32) -> f32 {
    ((row * 31 + k * 7) % 1000) as f32
}

struct Case {
    page_bytes: u64,
    rows: u32,
    dim: u32,
    frames: u64,
}

/// A device table, and the rows that it should hold.
struct Pair {
    device: UvmDevice,
    rows: Vec<f32>,
    counting: UvmTable,
    dim: usize,
}

impl Pair {
    fn new(context: &Context, case: &Case) -> Self {
        let model = UvmModel { page_bytes: case.page_bytes, ..UvmModel::default() };
        let table = UvmTable::new(model, u64::from(case.dim) * 4, case.frames * case.page_bytes).unwrap();
        let fill = |row, floats: &mut [f32]| (0..).zip(floats).for_each(|(k, float)| *float = first_value(row, k));
        let device = UvmDevice::new(context, table.clone(), case.rows, case.dim, fill).unwrap();
        let rows = (0..case.rows * case.dim).map(|at| first_value(at / case.dim, at % case.dim)).collect();
        Self { device, rows, counting: table, dim: case.dim as usize }
    }

    fn sums(&self, rows: &[u32], offsets: &[u32]) -> Vec<f32> {
        let sum = |bag: &[u32], k: usize| -> f32 {
            let rows = &rows[bag[0] as usize..bag[1] as usize];
            rows.iter().map(|&row| self.rows[row as usize * self.dim + k]).sum()
        };
        let sum = &sum;
        offsets.windows(2).flat_map(|bag| (0..self.dim).map(move |k| sum(bag, k))).collect()
    }

    /// Runs a forward and a backward on both sides. Returns the bytes that moved.
    fn step(&mut self, rows: &[u32], offsets: &[u32], grads: &[f32]) -> UvmTraffic {
        let forward = self.device.forward(rows, offsets).unwrap();
        assert_eq!(forward.moved, self.counting.pass(rows, false), "bytes of forward");
        let bags = offsets.len() as u32 - 1;
        assert_eq!(self.device.outputs(bags).unwrap(), self.sums(rows, offsets), "outputs");
        let backward = self.device.backward(rows, offsets, grads, 0.5).unwrap();
        assert_eq!(backward.moved, self.counting.pass(rows, true), "bytes of backward");
        for (bag, bounds) in offsets.windows(2).enumerate() {
            for &row in &rows[bounds[0] as usize..bounds[1] as usize] {
                for k in 0..self.dim {
                    self.rows[row as usize * self.dim + k] -= 0.5 * grads[bag * self.dim + k];
                }
            }
        }
        assert_eq!(self.device.table().moved(), self.counting.moved());
        forward.moved + backward.moved
    }
}

fn random_batch(random: &mut Pcg64, rows: u32, most: u32) -> (Vec<u32>, Vec<u32>) {
    let n = random.random_range(0..=most);
    // A few rows occur often among all rows.
    let mut row = || {
        let most = if random.random_bool(0.3) { 1 + rows / 16 } else { rows };
        random.random_range(0..most)
    };
    let batch = (0..n).map(|_| row()).collect();
    let mut offsets = vec![0, n];
    offsets.extend((0..random.random_range(0..10)).map(|_| random.random_range(0..=n)));
    offsets.sort_unstable();
    (batch, offsets)
}

/// Runs the cases whose frames take at most `most` bytes.
fn cases(context: &Context, most: u64) {
    let mut random = Pcg64::seed_from_u64(10);
    let [small, usual, large] = PAGE_BYTES;
    for case in [
        // Rows inside a page, rows across two pages, and rows of several pages; far more pages than frames, and fewer.
        Case { page_bytes: small, rows: 800, dim: 32, frames: 4 },
        Case { page_bytes: small, rows: 3000, dim: 5, frames: 7 },
        Case { page_bytes: 256, rows: 300, dim: 100, frames: 9 },
        Case { page_bytes: 256, rows: 300, dim: 128, frames: 2 },
        Case { page_bytes: 16, rows: 64, dim: 1, frames: 1 },
        Case { page_bytes: usual, rows: 2000, dim: 33, frames: 2 },
        Case { page_bytes: small, rows: 500, dim: 8, frames: 64 },
        Case { page_bytes: large, rows: 20_000, dim: 64, frames: 2 },
    ] {
        if case.frames * case.page_bytes > most {
            continue;
        }
        let mut pair = Pair::new(context, &case);
        let mut moved = UvmTraffic::default();
        for _ in 0..8 {
            let (rows, offsets) = random_batch(&mut random, case.rows, 200);
            let grads: Vec<f32> =
                (0..(offsets.len() - 1) * pair.dim).map(|_| f32::from(random.random_range(-4..=4i8)) * 2.0).collect();
            moved += pair.step(&rows, &offsets, &grads);
        }
        let back = pair.device.flush().unwrap();
        assert_eq!(back.moved.pages_out, pair.counting.flush().len() as u64);
        assert_eq!(pair.device.flush().unwrap().moved, UvmTraffic::default(), "a second flush moves nothing");
        assert_eq!(pair.device.read().unwrap(), pair.rows);
        let fits = u64::from(case.rows) * u64::from(case.dim) * 4 <= case.frames * case.page_bytes;
        assert!(moved.bytes_in > 0 && (fits || back.moved.bytes_out > 0 || moved.bytes_out > 0));
    }
}

#[test]
fn pages_move_and_contents_stay_right() {
    with_gpu(|context| {
        cases(context, u64::MAX);
        // Through staging buffers, for devices whose shaders do not reach the host's memory.
        let plain = opened(context, |features, _| features.remove(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS));
        assert!(!plain.caps().mappable);
        cases(&plain, u64::MAX);
        // The table lies in several buffers.
        let narrow = opened(context, |_, limits| limits.max_storage_buffer_binding_size = 1 << 16);
        cases(&narrow, 1 << 16);
    });
}

/// Both kernels, lane by lane: no race, no word out of bounds. Needs no GPU.
#[test]
fn the_kernels_run_on_the_lane_executor() {
    for (subgroup, order) in [(32, Order::Random), (8, Order::Descending)] {
        let options = Options { subgroup, order, ..Options::default() };
        let (context, world) = runs::context(&Config { options, findings: Findings::Keep, ..Config::default() }, None);
        cases(&context, 1 << 16);
        let report = world.take_report();
        assert_eq!(report.findings, []);
        let busy: Vec<&str> =
            report.counts.iter().filter(|(_, counts)| counts.workgroups > 1).map(|(kernel, _)| &**kernel).collect();
        assert_eq!(busy, ["uvm carry", "uvm pages"]);
    }
}

#[test]
fn the_comparisons_can_fail() {
    with_gpu(|context| {
        let case = Case { page_bytes: 4096, rows: 800, dim: 32, frames: 4 };
        let (rows, offsets): (Vec<u32>, _) = ((0..100).map(|i| i * 8).collect(), [0, 60, 100]);
        let grads = vec![2.0; 64];
        // A model with more memory counts other bytes.
        let mut pair = Pair::new(context, &case);
        pair.counting = UvmTable::new(*pair.counting.model(), 128, 5 * 4096).unwrap();
        let forward = pair.device.forward(&rows, &offsets).unwrap();
        pair.device.backward(&rows, &offsets, &grads, 0.5).unwrap();
        pair.counting.pass(&rows, false);
        pair.counting.pass(&rows, true);
        assert_ne!(pair.device.table().moved(), pair.counting.moved());
        // 100 rows in 4-KiB pages of 32 rows: each page comes in once.
        assert_eq!((forward.moved.pages_in, forward.moved.bytes_in), (25, 25 * 4096));
        // Rows that were not flushed or not updated are not in the table.
        let read = pair.device.read().unwrap();
        pair.device.flush().unwrap();
        let flushed = pair.device.read().unwrap();
        assert_ne!(read, flushed);
        assert_ne!(flushed, pair.rows);
        let updated = |at: usize| pair.rows[at] - if rows.contains(&(at as u32 / 32)) { 1.0 } else { 0.0 };
        assert!((0..flushed.len()).all(|at| flushed[at] == updated(at)));
    });
}

#[test]
fn bad_input_moves_nothing() {
    with_gpu(|context| {
        let mut pair = Pair::new(context, &Case { page_bytes: 4096, rows: 80, dim: 32, frames: 4 });
        let device = &mut pair.device;
        assert_eq!(
            device.forward(&[3, 80], &[0, 2]).unwrap_err(),
            Error::IndexOutOfRange { table: 0, rows: 80, position: 1, value: 80 }
        );
        assert!(matches!(device.forward(&[3, 4], &[0, 1]), Err(Error::BadOffsets { .. })));
        assert!(matches!(device.backward(&[3], &[0, 1], &[0.0; 31], 1.0), Err(Error::Length { .. })));
        assert_eq!(device.table().moved(), UvmTraffic::default());
        assert_eq!(device.forward(&[], &[0]).unwrap().moved, UvmTraffic::default());
        let other = UvmTable::new(UvmModel::default(), 64, 1 << 20).unwrap();
        let wrong = UvmDevice::new(context, other, 80, 32, |_, _| ());
        assert!(matches!(wrong, Err(Error::Config { field: "row_bytes", .. })));
    });
}
