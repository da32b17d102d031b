//! Checks the caller's buffers and binds them.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::engine::{call::named, context::Context},
    table::{abi::Params, batch},
};

/// A batch in the caller's buffers, all with `STORAGE` usage.
///
/// Example: [`Group`](crate::Group).
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `u32` indices, counted within their tables; `None` for a batch without any.
    pub indices: Option<wgpu::BufferSlice<'a>>,
    /// `u32` offsets, one for each bag and one more, ascending from 0 to the number of indices.
    pub offsets: wgpu::BufferSlice<'a>,
    /// `f32` weights, one for each index.
    pub weights: Option<wgpu::BufferSlice<'a>>,
}

/// The outputs of a forward, or a gradient for each, in the caller's buffer with `STORAGE` usage: row-major.
///
/// Example: [`Scaler`](crate::Scaler).
#[derive(Clone, Copy, Debug)]
pub enum FloatBuffer<'a> {
    /// IEEE binary32.
    F32(wgpu::BufferSlice<'a>),
    /// IEEE binary16, two in a word.
    /// - Outputs are rounded as SPEC 3 says. The length of the slice must be rounded up to 4 bytes. Behind an odd number of outputs the upper
    ///   half of the last word gets 0; the bytes behind that word stay.
    /// - Gradients are infinite where the model's own cast overflowed. The length of the slice must be rounded up to 16 bytes. The bytes behind
    ///   the gradients are not read.
    F16(wgpu::BufferSlice<'a>),
}

impl<'a> From<wgpu::BufferSlice<'a>> for FloatBuffer<'a> {
    fn from(slice: wgpu::BufferSlice<'a>) -> Self {
        Self::F32(slice)
    }
}

impl<'a> FloatBuffer<'a> {
    /// True for FP16.
    pub(crate) fn is_half(&self) -> bool {
        matches!(self, Self::F16(_))
    }

    pub(crate) fn slice(&self) -> wgpu::BufferSlice<'a> {
        match *self {
            Self::F32(slice) | Self::F16(slice) => slice,
        }
    }

    /// The slice, and the number of bytes that it must have for `elements` gradients.
    pub(crate) fn wanted(&self, elements: u64) -> (wgpu::BufferSlice<'a>, u64) {
        let bytes = if self.is_half() { (elements * 2).next_multiple_of(16) } else { elements * 4 };
        (self.slice(), bytes)
    }
}

/// The caller's buffers of a call for the gradients of the per-index weights, checked and bound.
#[derive(Debug)]
pub struct WeightGradient<'b> {
    pub(crate) offsets: wgpu::BindingResource<'b>,
    pub(crate) grad_outputs: wgpu::BindingResource<'b>,
    /// 1 if `grad_outputs` are FP16.
    pub(crate) half_grads: u32,
    /// One float for each index.
    pub(crate) grad_weights: wgpu::BindingResource<'b>,
}

named!(WeightGradient<'_>: offsets, grad_outputs, grad_weights);

impl Batch<'_> {
    /// The numbers of indices and bags, if the shape is legal.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Bags`], [`Error::TooLarge`].
    pub(crate) fn shape(&self, config: &GroupConfig) -> Result<(u32, u32), Error> {
        let indices = self.indices.map_or(0, |slice| slice.size() / 4);
        let offsets = self.offsets.size() / 4;
        if offsets == 0 {
            return Err(Error::Length { what: "offsets", wanted: 1, found: 0 });
        }
        batch::check_shape(config, indices, offsets - 1, self.weights.map(|slice| slice.size() / 4))?;
        Ok((indices as u32, (offsets - 1) as u32))
    }
}

/// The names of flags, for an error.
pub(crate) fn names<T>(flags: impl Iterator<Item = (&'static str, T)>) -> String {
    let names: Vec<_> = flags.map(|(name, _)| name).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Context {
    /// Binds all of `slice`, which must have at least `wanted` bytes.
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
            return fail("usage STORAGE".into(), names(buffer.usage().iter_names()));
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

    /// Binds `slice`, or `dummy` if there is no slice or if the batch wants no byte of it.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub(crate) fn bind_or<'b>(
        &self,
        what: &'static str,
        slice: Option<wgpu::BufferSlice<'b>>,
        wanted: u64,
        dummy: &wgpu::BindingResource<'b>,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        match slice {
            Some(slice) if wanted > 0 => self.bind(what, slice, wanted),
            _ => Ok(dummy.clone()),
        }
    }

    /// Checks that the outputs of a batch lie in a buffer that holds none of its inputs.
    ///
    /// # Errors
    /// [`Error::Buffer`].
    pub(crate) fn check_apart(batch: &Batch<'_>, outputs: wgpu::BufferSlice<'_>) -> Result<(), Error> {
        let inputs = [("indices", batch.indices), ("offsets", Some(batch.offsets)), ("weights", batch.weights)];
        for (what, slice) in inputs {
            if slice.is_some_and(|slice| slice.buffer() == outputs.buffer()) {
                let found = format!("the buffer of the {what}");
                return Err(Error::Buffer { what: "outputs", wanted: "a buffer of its own".into(), found });
            }
        }
        Ok(())
    }

    /// Binds the outputs of a batch, which must lie in a buffer that holds none of its inputs. Returns the binding and the number of output
    /// rows. Without outputs it binds `dummy`.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub(crate) fn bind_outputs<'b>(
        &self,
        config: &GroupConfig,
        dummy: &'b wgpu::Buffer,
        batch: &Batch<'_>,
        params: &Params,
        outputs: wgpu::BufferSlice<'b>,
    ) -> Result<(wgpu::BindingResource<'b>, u32), Error> {
        Self::check_apart(batch, outputs)?;
        let rows = batch::output_rows(config, params.indices, params.bags);
        let wanted = u64::from(rows) * u64::from(config.dim) * 4;
        // An empty buffer cannot be bound, and a batch without outputs needs no buffer for them.
        let binding = if wanted == 0 { dummy.as_entire_binding() } else { self.bind("outputs", outputs, wanted)? };
        Ok((binding, rows))
    }

    /// Binds the buffers of a call for the gradients of the per-index weights, after a forward of `indices` indices in `bags` bags.
    ///
    /// # Errors
    /// As [`Context::bind`].
    pub(crate) fn bind_weight_gradient<'b>(
        &self,
        config: &GroupConfig,
        (indices, bags): (u32, u32),
        offsets: wgpu::BufferSlice<'b>,
        grad_outputs: FloatBuffer<'b>,
        grad_weights: wgpu::BufferSlice<'b>,
    ) -> Result<WeightGradient<'b>, Error> {
        for (what, slice) in [("offsets", offsets), ("grad_outputs", grad_outputs.slice())] {
            if slice.buffer() == grad_weights.buffer() {
                let found = format!("the buffer of the {what}");
                return Err(Error::Buffer { what: "grad_weights", wanted: "a buffer of its own".into(), found });
            }
        }
        let floats = u64::from(batch::output_rows(config, indices, bags)) * u64::from(config.dim);
        let (grads, wanted) = grad_outputs.wanted(floats);
        Ok(WeightGradient {
            half_grads: u32::from(grad_outputs.is_half()),
            offsets: self.bind("offsets", offsets, (u64::from(bags) + 1) * 4)?,
            grad_outputs: self.bind("grad_outputs", grads, wanted)?,
            grad_weights: self.bind("grad_weights", grad_weights, u64::from(indices) * 4)?,
        })
    }
}
