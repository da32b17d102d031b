//! Scratch that grows with the batches. It is made of whatever `make` returns for a name and a number of bytes: buffers of a context, or
//! lines of a memory plan. So there is one list of names and sizes, and the plan equals the later allocations.

use crate::{error::Error, gpu::engine::context::Context};

/// The scratch in `kept` if `room` says that it is large enough; else new scratch, allocated after the smaller one is freed.
pub(crate) fn grown<'s, T>(
    kept: &'s mut Option<T>,
    context: &Context,
    room: impl FnOnce(&mut T) -> bool,
    make: impl FnOnce() -> Result<T, Error>,
) -> Result<&'s T, Error> {
    match kept.take_if(room) {
        Some(enough) => Ok(kept.insert(enough)),
        None => {
            *kept = None;
            context.forget_bindings();
            Ok(kept.insert(make()?))
        }
    }
}

/// Makes a buffer, or its line in a plan, from a name and a number of bytes.
pub(crate) type Make<'m, B> = dyn FnMut(&'static str, u64) -> Result<B, Error> + 'm;

/// Makes buffers of `context`.
pub(crate) fn in_context(context: &Context) -> impl FnMut(&'static str, u64) -> Result<wgpu::Buffer, Error> {
    |what, bytes| context.buffer(what, bytes, wgpu::BufferUsages::empty())
}
