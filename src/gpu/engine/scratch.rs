//! Scratch that grows with what is asked of it. It is made of whatever `make` gives for a name and a number of bytes: buffers of a context, or
//! lines of a memory plan. So there is one list of names and sizes, and the plan is what will be allocated.

use crate::{error::Error, gpu::engine::context::Context};

/// The scratch in `kept` if it has `room`, or a new one there: the smaller one is freed before the larger one is allocated.
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

/// What stands for a buffer of a name and so many bytes.
pub(crate) type Make<'m, B> = dyn FnMut(&'static str, u64) -> Result<B, Error> + 'm;

/// Buffers of `context`.
pub(crate) fn in_context(context: &Context) -> impl FnMut(&'static str, u64) -> Result<wgpu::Buffer, Error> {
    |what, bytes| context.buffer(what, bytes, wgpu::BufferUsages::empty())
}
