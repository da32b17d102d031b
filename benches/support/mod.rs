//! The device and the timer that benchmarks share.

use std::time::{Duration, Instant};

use hotrow::{Context, wgpu};

/// Prints the adapter and the clock, without which a figure means nothing.
pub(crate) fn announce(what: &str, context: &Context) {
    let info = context.device().adapter_info();
    let clock = if context.caps().timestamps { "device timestamps" } else { "wall clock" };
    println!("{what} on {} ({:?}), driver {} {}, {clock}", info.name, info.backend, info.driver, info.driver_info);
}

/// Times what is recorded between start and finish: by device timestamps, or by the wall clock where the device has none.
pub(crate) struct Timer {
    stamps: Option<Stamps>,
}

struct Stamps {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    mapped: wgpu::Buffer,
}

impl Timer {
    pub(crate) fn new(context: &Context) -> Self {
        let device = context.device();
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 16, usage, mapped_at_creation: false })
        };
        let stamps = context.caps().timestamps.then(|| Stamps {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("stamps"),
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            mapped: buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
        });
        Self { stamps }
    }

    pub(crate) fn start(&self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(stamps) = &self.stamps {
            stamps.stamp(encoder, 0);
        }
    }

    /// Submits, waits, and returns the time taken.
    pub(crate) fn finish(&self, context: &Context, mut encoder: wgpu::CommandEncoder) -> Duration {
        if let Some(stamps) = &self.stamps {
            stamps.stamp(&mut encoder, 1);
            encoder.resolve_query_set(&stamps.queries, 0..2, &stamps.resolved, 0);
            encoder.copy_buffer_to_buffer(&stamps.resolved, 0, &stamps.mapped, 0, 16);
        }
        let start = Instant::now();
        context.queue().submit([encoder.finish()]);
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let waited = start.elapsed();
        self.stamps.as_ref().map_or(waited, |stamps| stamps.read(context))
    }
}

impl Stamps {
    /// An empty pass: its stamp is written when all that was recorded before is done.
    fn stamp(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("stamp"),
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.queries,
                beginning_of_pass_write_index: None,
                end_of_pass_write_index: Some(index),
            }),
        });
    }

    fn read(&self, context: &Context) -> Duration {
        self.mapped.map_async(wgpu::MapMode::Read, .., |_| {});
        context.device().poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let stamps: Vec<u64> = {
            let view = self.mapped.get_mapped_range(..).unwrap();
            view.chunks_exact(8).map(|bytes| u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))).collect()
        };
        self.mapped.unmap();
        let ticks = stamps[1].saturating_sub(stamps[0]) as f64;
        Duration::from_secs_f64(ticks * f64::from(context.queue().get_timestamp_period()) * 1e-9)
    }
}
