//! FP16 outputs: a forward's stages write FP32 to a buffer that the group keeps, and one more stage rounds them into the caller's buffer.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::Batch,
            call::{Call, Groups},
            context::Context,
            scratch,
        },
        stages::HALVES,
    },
    table::abi,
};

/// Where a forward writes FP32 outputs that are then rounded.
#[derive(Debug, Default)]
pub(crate) struct Sums(Option<wgpu::Buffer>);

/// The FP16 outputs of one forward.
pub(crate) struct Halves<'b> {
    context: Context,
    sums: wgpu::Buffer,
    /// The caller's buffer; `None` for a batch without outputs.
    outputs: Option<wgpu::BindingResource<'b>>,
    elements: u32,
}

impl Sums {
    pub(crate) fn buffer(&self) -> Option<&wgpu::Buffer> {
        self.0.as_ref()
    }

    /// Provides for `elements` outputs of a batch, which go into the caller's `outputs`. Until then nothing is encoded.
    ///
    /// # Errors
    /// As [`Context::bind`] for `outputs`; [`Error::TooLarge`] if the outputs in FP32 are too large for a binding; [`Error::OutOfMemory`].
    pub(crate) fn provide<'b>(
        &mut self,
        context: &Context,
        dummy: &wgpu::Buffer,
        batch: &Batch<'_>,
        elements: u64,
        outputs: wgpu::BufferSlice<'b>,
    ) -> Result<Halves<'b>, Error> {
        Context::check_apart(batch, outputs)?;
        if elements == 0 {
            return Ok(Halves { context: context.clone(), sums: dummy.clone(), outputs: None, elements: 0 });
        }
        let (bytes, limit) = (elements * 4, context.caps().binding_bytes);
        if bytes > limit {
            let (what, remedy) = ("outputs in FP32, before they are rounded", "split the batch");
            return Err(Error::TooLarge { what, wanted: bytes, limit, remedy });
        }
        let outputs = context.bind("outputs", outputs, elements.div_ceil(2) * 4)?;
        let make = || context.buffer("outputs", bytes, wgpu::BufferUsages::empty());
        let sums = scratch::grown(&mut self.0, context, |buffer| buffer.size() >= bytes, make)?.clone();
        // A buffer that can be bound has fewer than 2^30 floats.
        Ok(Halves { context: context.clone(), sums, outputs: Some(outputs), elements: elements as u32 })
    }
}

impl Halves<'_> {
    /// Where the forward writes its outputs.
    pub(crate) fn sums(&self) -> wgpu::BufferSlice<'_> {
        self.sums.slice(..)
    }

    /// Encodes the rounding, behind the forward.
    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        if let Some(outputs) = &self.outputs {
            let call = &mut Call::begin(&self.context, encoder, "hotrow.halves");
            let uniform = self.context.uniform(&abi::Halves { elements: self.elements, ..abi::Halves::default() });
            let groups = Groups::of(self.elements.div_ceil(2), 256);
            call.run(&HALVES, &[&("halves", uniform), &("sums", &self.sums), &("outputs", outputs)], &groups);
        }
    }
}
