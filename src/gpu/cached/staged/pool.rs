//! Pools of buffers that the host maps. Once the largest batch has been seen, no step allocates.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use crate::{error::Error, gpu::engine::context::Context, host::locked};

/// Size of a buffer for `bytes` bytes.
pub(crate) const fn size(bytes: u64) -> u64 {
    if bytes < 64 { 64 } else { bytes.next_multiple_of(64) }
}

/// Free buffers of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    usage: wgpu::BufferUsages,
    free: Arc<Mutex<Vec<wgpu::Buffer>>>,
    bytes: Arc<AtomicU64>,
}

impl Pool {
    /// Buffers for downloads from the device.
    pub(crate) fn downloads() -> Self {
        Self::new(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)
    }

    /// Buffers for uploads to the device. Each is mapped again once the device has read it.
    pub(crate) fn uploads() -> Self {
        Self::new(wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC)
    }

    fn new(usage: wgpu::BufferUsages) -> Self {
        Self { usage, free: Arc::default(), bytes: Arc::default() }
    }

    /// A free buffer of at least `bytes`; one for uploads is mapped.
    pub(crate) fn take(&self, context: &Context, bytes: u64) -> Result<wgpu::Buffer, Error> {
        let fitting = {
            let mut free = locked(&self.free);
            let place = free.iter().position(|buffer| buffer.size() >= bytes);
            // Where no buffer fits, one that is too small is released, so that the pool does not grow with every larger batch.
            let place = place.or_else(|| (!free.is_empty()).then_some(0));
            place.map(|place| free.swap_remove(place))
        };
        match fitting {
            Some(buffer) if buffer.size() >= bytes => return Ok(buffer),
            Some(buffer) => {
                self.bytes.fetch_sub(buffer.size(), Ordering::Relaxed);
            }
            None => {}
        }
        let size = size(bytes);
        let buffer = context.host_buffer(size, self.usage)?;
        self.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(buffer)
    }

    /// Gives a buffer back; one for uploads must be mapped.
    pub(crate) fn give(&self, buffer: wgpu::Buffer) {
        locked(&self.free).push(buffer);
    }

    /// Stops counting a buffer that will not come back.
    pub(crate) fn forget(&self, buffer: &wgpu::Buffer) {
        self.bytes.fetch_sub(buffer.size(), Ordering::Relaxed);
    }

    /// Gives an upload buffer back once the device has executed `encoder`.
    pub(crate) fn give_when_read(&self, encoder: &wgpu::CommandEncoder, buffer: &wgpu::Buffer) {
        let (pool, again) = (self.clone(), buffer.clone());
        encoder.map_buffer_on_submit(buffer, wgpu::MapMode::Write, .., move |result| {
            if result.is_ok() {
                pool.give(again);
            }
        });
    }

    /// Bytes of all buffers of the pool, including those in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
