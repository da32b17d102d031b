//! The cache on the device: one buffer for each window, so that the cache can be larger than a binding. Stages list the first window among
//! their bindings; `Call::run_rows` adds the others, and `shaders/shared/slots.wgsl` finds the window of a slot.

use crate::{
    error::Error,
    gpu::engine::{call::Bindable, context::Context},
    table::layout::Layout,
};

/// The buffers of the windows, at least one; it is a placeholder if there is no cache.
#[derive(Debug)]
pub(crate) struct Windows(Vec<wgpu::Buffer>);

/// The first window.
impl Bindable for Windows {
    fn binding(&self) -> wgpu::BindingResource<'_> {
        self.0[0].as_entire_binding()
    }
}

impl Windows {
    pub(crate) fn new(context: &Context, layout: &Layout) -> Result<Self, Error> {
        let none = wgpu::BufferUsages::empty();
        let buffers = layout.windows_bytes().map(|bytes| context.buffer("cache", bytes, none));
        buffers.collect::<Result<_, _>>().map(Self)
    }

    /// The buffers of all windows.
    pub(crate) fn buffers(&self) -> &[wgpu::Buffer] {
        &self.0
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The bindings of the other windows.
    pub(crate) fn others(&self) -> impl Iterator<Item = wgpu::BindingResource<'_>> {
        self.0[1..].iter().map(wgpu::Buffer::as_entire_binding)
    }
}
