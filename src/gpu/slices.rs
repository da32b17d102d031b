//! What calls that wait are given and give back: slices of the host's, on the device for as long as the call takes.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::engine::{
        bind::{Batch, GradBuffer},
        context::Context,
    },
    scaler::GradSlice,
    table::{batch, layout::Step},
};

/// A batch of the caller's slices, on the device.
pub(crate) struct Uploaded {
    /// Bytes of indices and of offsets; there are as many weights as indices.
    lengths: [u64; 2],
    indices: wgpu::Buffer,
    offsets: wgpu::Buffer,
    weights: Option<wgpu::Buffer>,
}

impl Uploaded {
    /// A batch whose shape can be.
    pub(crate) fn new(
        context: &Context,
        config: &GroupConfig,
        indices: &[u32],
        offsets: &[u32],
        weights: Option<&[f32]>,
    ) -> Result<Self, Error> {
        batch::check_slices(config, indices, offsets, weights)?;
        Ok(Self {
            lengths: [indices.len() as u64 * 4, offsets.len() as u64 * 4],
            indices: context.upload("indices", bytemuck::cast_slice(indices))?,
            offsets: context.upload("offsets", bytemuck::cast_slice(offsets))?,
            weights: weights.map(|weights| context.upload("weights", bytemuck::cast_slice(weights))).transpose()?,
        })
    }

    /// Rows to look up, an index a bag.
    pub(crate) fn rows(context: &Context, rows: &[u32]) -> Result<Self, Error> {
        let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
        Ok(Self {
            lengths: [rows.len() as u64 * 4, offsets.len() as u64 * 4],
            indices: context.upload("rows", bytemuck::cast_slice(rows))?,
            offsets: context.upload("offsets", bytemuck::cast_slice(&offsets))?,
            weights: None,
        })
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        let [indices, offsets] = self.lengths;
        Batch {
            indices: (indices > 0).then(|| self.indices.slice(..indices)),
            offsets: self.offsets.slice(..offsets),
            weights: self.weights.as_ref().map(|buffer| buffer.slice(..indices)),
        }
    }
}

/// Gradients of the caller's slice, on the device.
pub(crate) struct UploadedGrads {
    buffer: wgpu::Buffer,
    half: bool,
}

impl UploadedGrads {
    pub(crate) fn new(context: &Context, grads: GradSlice<'_>) -> Result<Self, Error> {
        let (bytes, half): (&[u8], _) = match grads {
            GradSlice::F32(grads) => (bytemuck::cast_slice(grads), false),
            GradSlice::F16(grads) => (bytemuck::cast_slice(grads), true),
        };
        Ok(Self { buffer: context.upload("grad_outputs", bytes)?, half })
    }

    pub(crate) fn buffer(&self) -> GradBuffer<'_> {
        let all = self.buffer.slice(..);
        if self.half { GradBuffer::F16(all) } else { GradBuffer::F32(all) }
    }
}

/// Submits a recorded forward and waits for its outputs, or for the error of a step that the device has refused.
pub(crate) fn await_outputs(
    context: &Context,
    encoder: wgpu::CommandEncoder,
    config: &GroupConfig,
    step: &wgpu::Buffer,
    outputs: (&wgpu::Buffer, u64),
    indices: u32,
) -> Result<Vec<f32>, Error> {
    let words = context.download(encoder, &[outputs, (step, size_of::<Step>() as u64)])?;
    let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words[1]));
    batch::fault(config, &step, indices).map_or_else(|| Ok(floats(&words[0])), Err)
}

/// A buffer for the outputs of a batch, and its bytes.
pub(crate) fn new_outputs(
    context: &Context,
    config: &GroupConfig,
    indices: u32,
    bags: u32,
) -> Result<(wgpu::Buffer, u64), Error> {
    let rows = batch::output_rows(config, indices, bags);
    let bytes = u64::from(rows) * u64::from(config.dim) * 4;
    Ok((context.buffer("outputs", bytes, wgpu::BufferUsages::empty())?, bytes))
}

pub(crate) fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}
