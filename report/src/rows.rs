//! A table whose rows kernels read and update in random order.

use crate::kernel::{Kernel, bind, layout};
use hotrow::wgpu::{self, util::DeviceExt as _};

/// The bytes of rows that are measured.
pub const LENGTHS: [u32; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// The arguments of a kernel: see `random.wgsl`.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Log2 of the lanes of a row, 16 bytes each.
    pub lane_bits: u32,
    /// Log2 of the rows.
    pub row_bits: u32,
    pub passes: u32,
    /// The number of the first pass.
    pub first: u32,
    /// How often `update` has gone over the table.
    pub added: u32,
}

/// A kernel of `random.wgsl` with its layout.
type Does = (Kernel, wgpu::BindGroupLayout);

/// The table, its kernels, and their results: the sum of all words read, and the number of words that are not as they should be.
#[derive(Debug)]
pub struct Rows {
    device: wgpu::Device,
    pub words: wgpu::Buffer,
    /// The sum of all words read, and the number of wrong words.
    pub results: wgpu::Buffer,
    pub read: Does,
    pub update: Does,
    pub fill: Does,
    pub count: Does,
    pub order: Does,
    groups: u32,
}

impl Rows {
    /// A table of a power of two of bytes.
    pub fn new(device: &wgpu::Device, bytes: u64) -> Self {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let [words, results] = [bytes, 8].map(|size| {
            let label = Some("random rows");
            device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
        });
        let names = ["read_rows", "update_rows", "fill", "count", "order"];
        let [read, update, fill, count, order] = names.map(|name| {
            let layout = layout(device, &[name == "read_rows", false, true]);
            (Kernel::new(device, (name, include_str!("random.wgsl")), &[&layout]), layout)
        });
        // 256 invocations, each with eight lanes of 16 bytes at once; all have as many.
        let groups = (bytes / (16 * 8 * 256)).clamp(1, 1 << 15) as u32;
        Self { device: device.clone(), words, results, read, update, fill, count, order, groups }
    }

    /// Binds the table, its results and a job for a kernel.
    pub fn bind(&self, does: &Does, Job { lane_bits, row_bits, passes, first, added }: Job) -> wgpu::BindGroup {
        let job = self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("job"),
            contents: bytemuck::cast_slice(&[lane_bits, row_bits, passes, first, added]),
            usage: wgpu::BufferUsages::STORAGE,
        });
        bind(&self.device, &does.1, &[&self.words, &self.results, &job])
    }

    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder, does: &Does, bound: &wgpu::BindGroup) {
        does.0.encode(encoder, &[bound], self.groups);
    }

    /// Fills the table, clears the results, and returns the job of rows of this length.
    pub fn anew(&self, queue: &wgpu::Queue, length: u32, passes: u32) -> Job {
        let lane_bits = (length / 16).ilog2();
        let row_bits = (self.words.size() / 16).ilog2() - lane_bits;
        let job = Job { lane_bits, row_bits, passes, first: 0, added: 0 };
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(&self.results, 0, None);
        self.encode(&mut encoder, &self.fill, &self.bind(&self.fill, job));
        queue.submit([encoder.finish()]);
        job
    }
}
