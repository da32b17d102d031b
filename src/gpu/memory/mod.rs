//! The memory of groups on a device: planned, and read off the buffers. A plan and a report have one list of buffers. Scratch is listed where it is
//! made ([`Make`](crate::gpu::engine::scratch::Make)).

pub(crate) mod cached;
pub(crate) mod robe;

use crate::memory::Allocation;

/// The bytes of buffers that exist, in the order of a plan's list.
fn sizes<'b>(list: Vec<Allocation>, buffers: impl Iterator<Item = &'b wgpu::Buffer>) -> Vec<Allocation> {
    list.into_iter().zip(buffers).map(|((what, _), buffer)| (what, buffer.size())).collect()
}
