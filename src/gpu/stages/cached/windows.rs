//! The cache on the device: a buffer a window, so that it may be larger than a binding. Stages list the first window among their
//! bindings; `Call::dispatch_rows` adds the others, and `shaders/shared/slots.wgsl` finds a slot among
//! them.

use crate::{error::Error, gpu::engine::context::Context, table::layout::Layout};

/// One window at least; it holds nothing where there is no cache.
#[derive(Debug)]
pub(crate) struct Windows(Vec<wgpu::Buffer>);

impl Windows {
    pub(crate) fn new(context: &Context, layout: &Layout) -> Result<Self, Error> {
        let none = wgpu::BufferUsages::empty();
        let buffers = layout.windows_bytes().map(|bytes| context.buffer("cache", bytes, none));
        buffers.collect::<Result<_, _>>().map(Self)
    }

    /// All of them.
    pub(crate) fn buffers(&self) -> &[wgpu::Buffer] {
        &self.0
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Binding of the first.
    pub(crate) fn as_entire_binding(&self) -> wgpu::BindingResource<'_> {
        self.0[0].as_entire_binding()
    }

    /// Bindings of the others.
    pub(crate) fn others(&self) -> impl Iterator<Item = wgpu::BindingResource<'_>> {
        self.0[1..].iter().map(wgpu::Buffer::as_entire_binding)
    }
}
