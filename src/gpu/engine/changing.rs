//! A uniform whose value changes between calls while its buffer stays, so that bind groups stay too.

use crate::gpu::engine::context::Context;

/// A uniform in one buffer of its own. Each encoded call copies its value into the buffer within the caller's encoder, before its
/// dispatches. So several calls can be encoded before a submission, and each reads its own value.
#[derive(Debug)]
pub(crate) struct Changing {
    buffer: wgpu::Buffer,
    /// The value encoded last, and the buffer that it is copied from. Commands under way keep an older buffer alive until they are done.
    source: Option<(Vec<u8>, wgpu::Buffer)>,
}

impl Changing {
    /// A uniform of the size of a `T`.
    pub(crate) fn new<T: bytemuck::Pod>(context: &Context) -> Self {
        let buffer = context.new_buffer(&wgpu::BufferDescriptor {
            // Like the uniforms of calls, this buffer is in no memory report.
            label: Some("hotrow.uniform"),
            size: size_of::<T>() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Self { buffer, source: None }
    }

    /// Records that later commands in `encoder` read `value` from the uniform. Must be called outside a pass.
    pub(crate) fn encode<T: bytemuck::Pod>(
        &mut self,
        context: &Context,
        encoder: &mut wgpu::CommandEncoder,
        value: &T,
    ) -> &wgpu::Buffer {
        let bytes = bytemuck::bytes_of(value);
        let source = match self.source.take() {
            Some((old, buffer)) if old == bytes => buffer,
            _ => context.new_uniform(bytes),
        };
        encoder.copy_buffer_to_buffer(&source, 0, &self.buffer, 0, bytes.len() as u64);
        self.source = Some((bytes.to_vec(), source));
        &self.buffer
    }
}
