//! Scratch that grows with the batches. It is made of what a [`Make`] returns for a name and a number of bytes: buffers of a context, or nothing. The list
//! of names and bytes that it keeps is the memory plan of the second, and the report of the first.

use crate::{
    error::Error,
    gpu::engine::context::Context,
    memory::{Allocation, buffer_bytes},
};

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

/// Makes something and says its bytes, from a name and a number of bytes.
type Each<'m, B> = dyn Fn(&'static str, u64) -> Result<(B, u64), Error> + 'm;

/// Makes buffers, and lists them.
pub(crate) struct Make<'m, B> {
    each: Box<Each<'m, B>>,
    made: Vec<Allocation>,
}

impl<'m> Make<'m, wgpu::Buffer> {
    /// Makes buffers of `context`.
    pub(crate) fn buffers(context: &'m Context) -> Self {
        let each = |what, bytes| {
            // A stage that has no storage buffer left reads the step as a uniform.
            let step = if what == "step" { wgpu::BufferUsages::UNIFORM } else { wgpu::BufferUsages::empty() };
            let buffer = context.buffer(what, bytes, step)?;
            let size = buffer.size();
            Ok((buffer, size))
        };
        Self { each: Box::new(each), made: Vec::new() }
    }
}

impl Make<'_, ()> {
    /// Makes the list alone, which cannot fail.
    pub(crate) fn plan() -> Self {
        Self { each: Box::new(|_, bytes| Ok(((), buffer_bytes(bytes)))), made: Vec::new() }
    }
}

impl<B> Make<'_, B> {
    pub(crate) fn one(&mut self, what: &'static str, bytes: u64) -> Result<B, Error> {
        let (buffer, size) = (self.each)(what, bytes)?;
        self.made.push((what, size));
        Ok(buffer)
    }

    /// What was made since the last call.
    pub(crate) fn made(&mut self) -> Vec<Allocation> {
        std::mem::take(&mut self.made)
    }
}
