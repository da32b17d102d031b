//! The caller's buffers, checked before they are bound.

use super::Context;
use crate::Error;

impl Context {
    /// A binding of all of `slice`, which holds at least `wanted` bytes.
    ///
    /// # Errors
    /// [`Error::Buffer`] for a usage, offset or size that cannot be bound, [`Error::TooLarge`] beyond the device's limit.
    pub(crate) fn bind<'b>(
        &self,
        what: &'static str,
        slice: wgpu::BufferSlice<'b>,
        wanted: u64,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        let buffer = slice.buffer();
        let (offset, size) = (slice.offset(), slice.size());
        let fail = |wanted: String, found: String| Err(Error::Buffer { what, wanted, found });
        if !buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
            return fail("usage STORAGE".into(), format!("{:?}", buffer.usage()));
        }
        let alignment = u64::from(self.caps().offset_alignment);
        if offset % alignment != 0 {
            return fail(format!("an offset that is a multiple of {alignment}"), offset.to_string());
        }
        if size % 4 != 0 {
            return fail("a whole number of 4-byte entries".into(), format!("{size} bytes"));
        }
        if size < wanted {
            return fail(format!("{wanted} bytes"), format!("{size} bytes"));
        }
        if size > self.caps().binding_bytes {
            let limit = self.caps().binding_bytes;
            return Err(Error::TooLarge { what, wanted: size, limit, remedy: "split the batch" });
        }
        Ok(wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: std::num::NonZeroU64::new(size) }))
    }

    /// The same, or `nothing` where there is no slice or nothing is wanted of it.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub(crate) fn bind_or<'b>(
        &self,
        what: &'static str,
        slice: Option<wgpu::BufferSlice<'b>>,
        wanted: u64,
        nothing: &wgpu::BindingResource<'b>,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        match slice {
            Some(slice) if wanted > 0 => self.bind(what, slice, wanted),
            _ => Ok(nothing.clone()),
        }
    }
}
