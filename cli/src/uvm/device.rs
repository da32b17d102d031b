//! Unified memory on a device: pages of an FP32 table in host memory, frames for some of them in device memory. Kernels gather and update
//! rows in the frames.

use wgpu::util::DeviceExt as _;

use super::{
    UvmTable, UvmTraffic,
    bind::{PAGES, bind_group, pipeline},
    host::Host,
    lists::{Lists, Pass},
};
use crate::lab::timed;
use hotrow::internals::Device as _;
use hotrow::{Context, Error, Resolution, Timeline};

/// The moves and the time of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UvmPass {
    /// The pages that were moved.
    pub moved: UvmTraffic,
    /// Seconds of the device for moving pages and rows, by the wall clock if the device has no timestamps.
    pub seconds: f64,
}

/// A table of FP32 rows under unified memory, as far as wgpu allows. There are no page faults: the host decides in advance which pages
/// move, and the time of that is not counted.
///
/// Sum pooling and SGD only. It is a baseline to measure against, not a place for a table.
#[derive(Debug)]
pub struct UvmDevice {
    context: Context,
    table: UvmTable,
    rows: u32,
    dim: u32,
    host: Host,
    /// Frames of device memory.
    pool: wgpu::Buffer,
    /// The sums of the bags of the last forward, or their gradients; as large as the largest batch so far.
    outputs: wgpu::Buffer,
    kernel: wgpu::ComputePipeline,
    timeline: Timeline,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Info {
    shift: u32,
    dim: u32,
    groups: u32,
    update: u32,
    lr: f32,
    pad: [u32; 3],
}

impl UvmDevice {
    /// A table of `rows` x `dim` in host memory. `fill` gets a row's number and writes its floats. The pages of `table` must have rows of
    /// `4 * dim` bytes. With `MAPPABLE_PRIMARY_BUFFERS` a kernel moves pages between device and host-cached memory; else they are copied
    /// through staging buffers, whose filling by the host is not counted.
    ///
    /// # Errors
    /// [`Error::Config`] if `table` has rows of another size, [`Error::TooLarge`] for frames beyond one binding, [`Error::OutOfMemory`].
    pub fn new(
        context: &Context,
        table: UvmTable,
        rows: u32,
        dim: u32,
        mut fill: impl FnMut(u32, &mut [f32]),
    ) -> Result<Self, Error> {
        if table.row_bytes() != 4 * u64::from(dim) {
            let (wanted, found) = (format!("{} bytes, for {dim} floats", 4 * u64::from(dim)), table.row_bytes());
            return Err(Error::Config { field: "row_bytes", wanted, found: found.to_string() });
        }
        context.guarded(|| {
            let page = table.model().page_bytes;
            let none = wgpu::BufferUsages::empty();
            let pool = context.buffer("uvm.pool", u64::from(table.frames()) * page, none)?;
            let bytes = u64::from(rows) * table.row_bytes();
            let mut host = Host::new(context, bytes.next_multiple_of(page), page)?;
            // Rows are filled in pieces of a few MiB.
            let some = (1 << 21) / dim.max(1) + 1;
            let mut values = Vec::new();
            for first in (0..rows).step_by(some as usize) {
                values.resize(some.min(rows - first) as usize * dim as usize, 0.0);
                (first..).zip(values.chunks_exact_mut(dim as usize)).for_each(|(row, floats)| fill(row, floats));
                host.write(context, u64::from(first) * table.row_bytes(), bytemuck::cast_slice(&values));
            }
            Ok(Self {
                outputs: context.buffer("uvm.outputs", 0, none)?,
                timeline: Timeline::new(context),
                context: context.clone(),
                table,
                rows,
                dim,
                host,
                pool,
                kernel: pipeline(context, PAGES),
            })
        })
    }

    /// The pages: their places, and the moves so far.
    #[must_use]
    pub const fn table(&self) -> &UvmTable {
        &self.table
    }

    /// Brings the missing pages, and sums the rows of each bag into [`UvmDevice::outputs`]. Waits.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`], [`Error::BadOffsets`], before anything moves; [`Error::OutOfMemory`], [`Error::Device`].
    pub fn forward(&mut self, rows: &[u32], offsets: &[u32]) -> Result<UvmPass, Error> {
        let bags = self.check(rows, offsets)?;
        let bytes = bags as u64 * u64::from(self.dim) * 4;
        if self.outputs.size() < bytes {
            self.outputs = self.context.buffer("uvm.outputs", bytes, wgpu::BufferUsages::empty())?;
        }
        let mut encoder = self.encoder();
        encoder.clear_buffer(&self.outputs, 0, None);
        self.context.finish(encoder)?;
        self.pass(rows, offsets, Pass::Gather, 0.0)
    }

    /// Subtracts `lr` times the sum of a row's gradients from each row of the batch. `grads` has a row for each bag. Waits.
    ///
    /// # Errors
    /// As [`UvmDevice::forward`]; [`Error::Length`] if there are not as many gradients as bags.
    pub fn backward(&mut self, rows: &[u32], offsets: &[u32], grads: &[f32], lr: f32) -> Result<UvmPass, Error> {
        let wanted = self.check(rows, offsets)? as u64 * u64::from(self.dim);
        if grads.len() as u64 != wanted {
            return Err(Error::Length { what: "grads", wanted, found: grads.len() as u64 });
        }
        if self.outputs.size() < wanted * 4 {
            self.outputs = self.context.buffer("uvm.outputs", wanted * 4, wgpu::BufferUsages::empty())?;
        }
        self.context.queue().write_buffer(&self.outputs, 0, bytemuck::cast_slice(grads));
        self.pass(rows, offsets, Pass::Update, lr)
    }

    /// The outputs of the last forward, a row for each of its `bags`.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn outputs(&self, bags: u32) -> Result<Vec<f32>, Error> {
        let bytes = (u64::from(bags) * u64::from(self.dim) * 4).min(self.outputs.size());
        let words = self.context.download(self.encoder(), &[(&self.outputs, bytes)])?;
        Ok(words[0].iter().map(|&word| f32::from_bits(word)).collect())
    }

    /// Writes every changed page back.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`].
    pub fn flush(&mut self) -> Result<UvmPass, Error> {
        let leaving = self.table.flush();
        let under = self.host.prepare(&self.context, &self.pool, &leaving, &[])?;
        let (moved, seconds) = submitted(&self.context, &self.timeline, |encoder| {
            self.host.record(encoder, &under, &self.pool, &leaving, &[])
        })?;
        self.host.finish(&self.context, under, &leaving)?;
        Ok(UvmPass { moved, seconds })
    }

    /// The table in host memory. It is current after a [`UvmDevice::flush`].
    ///
    /// # Errors
    /// [`Error::Device`].
    pub fn read(&self) -> Result<Vec<f32>, Error> {
        let mut words = self.host.read(&self.context)?;
        words.truncate(self.rows as usize * self.dim as usize);
        Ok(words.into_iter().map(f32::from_bits).collect())
    }

    fn check(&self, rows: &[u32], offsets: &[u32]) -> Result<usize, Error> {
        hotrow::internals::check_offsets(rows.len() as u64, offsets)?;
        match rows.iter().position(|&row| row >= self.rows) {
            Some(at) => Err(Error::IndexOutOfRange { table: 0, rows: self.rows, position: at as u32, value: rows[at] }),
            None => Ok(offsets.len() - 1),
        }
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("hotrow.uvm") })
    }

    fn pass(&mut self, rows: &[u32], offsets: &[u32], pass: Pass, lr: f32) -> Result<UvmPass, Error> {
        let Self { context, table, dim, host, pool, outputs, kernel, timeline, .. } = self;
        let words = table.model().page_bytes / 4;
        let mut done = UvmPass::default();
        context.guarded(|| {
            table.rounds(rows, pass == Pass::Update, |table, round| {
                let lists = Lists::of(table, round, rows, offsets, pass);
                let groups = lists.groups.len() as u32;
                let update = u32::from(pass == Pass::Update);
                let info = Info { shift: words.trailing_zeros(), dim: *dim, groups, update, lr, pad: [0; 3] };
                let bound = bind(context, kernel, &info, &lists, [pool, outputs]);
                let under = host.prepare(context, pool, &round.leaving, &round.coming)?;
                let (moved, seconds) = submitted(context, timeline, |encoder| {
                    let moved = host.record(encoder, &under, pool, &round.leaving, &round.coming);
                    if groups > 0 {
                        let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                        compute.set_pipeline(kernel);
                        compute.set_bind_group(0, &bound, &[]);
                        compute.dispatch_workgroups(groups.div_ceil(8).min(context.max_groups()), 1, 1);
                    }
                    moved
                })?;
                done.moved += moved;
                done.seconds += seconds;
                host.finish(context, under, &round.leaving)
            })
        })?;
        Ok(done)
    }
}

/// Records, submits and waits; returns the recorded result and the seconds.
fn submitted<T>(
    context: &Context,
    timeline: &Timeline,
    record: impl FnOnce(&mut wgpu::CommandEncoder) -> T,
) -> Result<(T, f64), Error> {
    let mut encoder =
        context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("hotrow.uvm") });
    let recorded = timeline.around(&mut encoder, "uvm", record);
    timeline.resolve(&mut encoder);
    let (finished, wall) = timed(|| context.finish(encoder));
    finished?;
    let spans = timeline.read()?.spans;
    let seconds = match timeline.resolution() {
        Resolution::Count => wall,
        _ => spans.iter().filter_map(|span| span.nanoseconds).sum::<f64>() * 1e-9,
    };
    Ok((recorded, seconds))
}

fn bind(
    context: &Context,
    kernel: &wgpu::ComputePipeline,
    info: &Info,
    lists: &Lists,
    [pool, bags]: [&wgpu::Buffer; 2],
) -> wgpu::BindGroup {
    let buffer = |bytes: &[u8], usage| {
        // An empty buffer cannot be bound.
        let contents = if bytes.is_empty() { &[0; 16][..] } else { bytes };
        context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: Some("hotrow.uvm.lists"),
            contents,
            usage,
        })
    };
    let storage = |bytes| buffer(bytes, wgpu::BufferUsages::STORAGE);
    let lists = [
        buffer(bytemuck::bytes_of(info), wgpu::BufferUsages::UNIFORM),
        storage(bytemuck::cast_slice(&lists.frames)),
        storage(bytemuck::cast_slice(&lists.groups)),
        storage(bytemuck::cast_slice(&lists.entries)),
    ];
    bind_group(context, kernel, lists.iter().chain([pool, bags]))
}
