//! The host's memory of the pages: memory that shaders reach, or plain memory behind staging buffers.

use wgpu::util::DeviceExt as _;

use super::{
    Transfer, UvmTraffic,
    bind::{CARRY, bind_group, pipeline},
};
use hotrow::internals::Device as _;
use hotrow::{Context, Error};

/// The table, page by page.
#[derive(Debug)]
pub(super) enum Host {
    /// Host-cached buffers of as many whole pages as each can hold. A kernel moves the pages, since wgpu lets each copy command wait for
    /// the one before, which would make small pages slow.
    Mapped { buffers: Vec<wgpu::Buffer>, each: u64, page: u64, carry: wgpu::ComputePipeline },
    /// Plain memory.
    Plain { table: Vec<u8>, page: u64 },
}

/// The resources of one round's moves, made before the clock runs.
#[derive(Debug, Default)]
pub(super) struct Under {
    /// Dispatches of the kernel; those of leaving pages come first.
    carries: Vec<(wgpu::BindGroup, u32)>,
    up: Option<wgpu::Buffer>,
    down: Option<wgpu::Buffer>,
}

impl Host {
    /// Memory of `bytes` bytes, which are whole pages.
    pub(super) fn new(context: &Context, bytes: u64, page: u64) -> Result<Self, Error> {
        if !context.caps().mappable {
            let mut table = Vec::new();
            let room = usize::try_from(bytes).is_ok_and(|bytes| table.try_reserve_exact(bytes).is_ok());
            if !room {
                return Err(Error::OutOfMemory { what: "uvm.table", bytes });
            }
            table.resize(bytes as usize, 0);
            return Ok(Self::Plain { table, page });
        }
        let each = context.caps().choose_shard_bytes() / page * page;
        let mut buffers = Vec::new();
        let mut first = 0;
        while first < bytes {
            let size = each.min(bytes - first);
            // MAP_READ without MAP_WRITE: host-cached memory.
            buffers.push(context.buffer("uvm.table", size, wgpu::BufferUsages::MAP_READ)?);
            first += size;
        }
        let carry = pipeline(context, CARRY);
        Ok(Self::Mapped { buffers, each, page, carry })
    }

    /// Writes first values at byte `at`.
    pub(super) fn write(&mut self, context: &Context, mut at: u64, mut values: &[u8]) {
        match self {
            Self::Plain { table, .. } => table[at as usize..][..values.len()].copy_from_slice(values),
            Self::Mapped { buffers, each, .. } => {
                while !values.is_empty() {
                    let (now, rest) = values.split_at(values.len().min((*each - at % *each) as usize));
                    context.queue().write_buffer(&buffers[(at / *each) as usize], at % *each, now);
                    // Submits the staged bytes, so that those of a large table do not pile up.
                    context.queue().submit([]);
                    at += now.len() as u64;
                    values = rest;
                }
            }
        }
    }

    /// Makes the resources of a round's moves: lists for the kernel; for plain memory a staging buffer with the coming pages, and one for
    /// the leaving pages.
    pub(super) fn prepare(
        &self,
        context: &Context,
        pool: &wgpu::Buffer,
        leaving: &[Transfer],
        coming: &[Transfer],
    ) -> Result<Under, Error> {
        match self {
            Self::Mapped { buffers, each, page, carry } => {
                let mut carries = Vec::new();
                for (transfers, leaving) in [(leaving, true), (coming, false)] {
                    for (number, host) in (0..).zip(buffers) {
                        let per_buffer = each / page;
                        let mine = transfers.iter().filter(|transfer| transfer.page / per_buffer == number);
                        let list: Vec<_> =
                            mine.map(|transfer| [(transfer.page % per_buffer) as u32, transfer.frame]).collect();
                        if !list.is_empty() {
                            carries.push(bind(context, carry, &list, *page, leaving, [host, pool]));
                        }
                    }
                }
                Ok(Under { carries, ..Under::default() })
            }
            Self::Plain { table, page } => {
                let buffer = |transfers: &[Transfer], usage, mapped_at_creation| {
                    (!transfers.is_empty()).then(|| {
                        context.device().create_buffer(&wgpu::BufferDescriptor {
                            label: Some("hotrow.uvm.staging"),
                            size: transfers.len() as u64 * page,
                            usage,
                            mapped_at_creation,
                        })
                    })
                };
                let up = buffer(coming, wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC, true);
                if let Some(up) = &up {
                    let mut view =
                        up.get_mapped_range_mut(..).map_err(|error| Error::Device { reason: error.to_string() })?;
                    let page = *page as usize;
                    for (i, transfer) in coming.iter().enumerate() {
                        let from = &table[transfer.page as usize * page..][..page];
                        view.slice(i * page..(i + 1) * page).copy_from_slice(from);
                    }
                    drop(view);
                    up.unmap();
                }
                let down = buffer(leaving, wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST, false);
                Ok(Under { up, down, ..Under::default() })
            }
        }
    }

    /// Records the moves of a round: first pages leave, then others come into their frames. Returns the traffic.
    pub(super) fn record(
        &self,
        encoder: &mut wgpu::CommandEncoder,
        under: &Under,
        pool: &wgpu::Buffer,
        leaving: &[Transfer],
        coming: &[Transfer],
    ) -> UvmTraffic {
        match self {
            Self::Mapped { page, carry, .. } => {
                if !under.carries.is_empty() {
                    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
                    pass.set_pipeline(carry);
                    for (bound, groups) in &under.carries {
                        pass.set_bind_group(0, bound, &[]);
                        pass.dispatch_workgroups(*groups, 1, 1);
                    }
                }
                UvmTraffic::of(coming.len() as u64, leaving.len() as u64, *page)
            }
            Self::Plain { page, .. } => {
                let mut moved = UvmTraffic::default();
                let frame = |transfer: &Transfer| u64::from(transfer.frame) * page;
                for (at, transfer) in (0..).zip(leaving) {
                    if let Some(down) = &under.down {
                        encoder.copy_buffer_to_buffer(pool, frame(transfer), down, at * page, *page);
                        moved += UvmTraffic::of(0, 1, *page);
                    }
                }
                for (at, transfer) in (0..).zip(coming) {
                    if let Some(up) = &under.up {
                        encoder.copy_buffer_to_buffer(up, at * page, pool, frame(transfer), *page);
                        moved += UvmTraffic::of(1, 0, *page);
                    }
                }
                moved
            }
        }
    }

    /// Ends a round after its moves: copies pages that left from the staging buffer to their places.
    pub(super) fn finish(&mut self, context: &Context, under: Under, leaving: &[Transfer]) -> Result<(), Error> {
        let (Self::Plain { table, page }, Some(down)) = (self, under.down) else { return Ok(()) };
        let encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let words = context.download(encoder, &[(&down, down.size())])?;
        let (bytes, page): (&[u8], _) = (bytemuck::cast_slice(&words[0]), *page as usize);
        for (transfer, came) in leaving.iter().zip(bytes.chunks_exact(page)) {
            table[transfer.page as usize * page..][..page].copy_from_slice(came);
        }
        Ok(())
    }

    /// Reads the whole table, including the rest of its last page.
    pub(super) fn read(&self, context: &Context) -> Result<Vec<u32>, Error> {
        match self {
            Self::Plain { table, .. } => Ok(bytemuck::pod_collect_to_vec(table)),
            Self::Mapped { buffers, .. } => {
                let encoder = context.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                let sources: Vec<_> = buffers.iter().map(|buffer| (buffer, buffer.size())).collect();
                Ok(context.download(encoder, &sources)?.concat())
            }
        }
    }
}

/// The bind group of a dispatch of `carry.wgsl`, and the number of its workgroups.
fn bind(
    context: &Context,
    carry: &wgpu::ComputePipeline,
    list: &[[u32; 2]],
    page: u64,
    leaving: bool,
    [host, pool]: [&wgpu::Buffer; 2],
) -> (wgpu::BindGroup, u32) {
    let info = [(page / 16).trailing_zeros(), list.len() as u32, u32::from(leaving), 0];
    let buffer = |contents: &[u8], usage| {
        let descriptor = wgpu::util::BufferInitDescriptor { label: Some("hotrow.uvm.lists"), contents, usage };
        context.device().create_buffer_init(&descriptor)
    };
    let lists = [
        buffer(bytemuck::bytes_of(&info), wgpu::BufferUsages::UNIFORM),
        buffer(bytemuck::cast_slice(list), wgpu::BufferUsages::STORAGE),
    ];
    let bound = bind_group(context, carry, lists.iter().chain([host, pool]));
    // Four turns an invocation, so that several loads are in flight.
    let groups = (list.len() as u64 * page / 16).div_ceil(4 * 256).clamp(1, u64::from(context.max_groups()));
    (bound, groups as u32)
}
