//! Uploads the slices of a blocking call: batch, gradients, outputs.

use crate::{
    config::GroupConfig,
    error::Error,
    gpu::engine::{
        bind::{Batch, FloatBuffer},
        context::Context,
    },
    lookup::outputs::OutputSlice,
    scaler::GradSlice,
    table::{
        abi::Step,
        batch::{self, Bags},
    },
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
    /// Uploads a batch after checking its shape.
    pub(crate) fn new(context: &Context, config: &GroupConfig, bags: Bags<'_>) -> Result<Self, Error> {
        batch::check_slices(config, bags)?;
        let Bags { indices, offsets, weights } = bags;
        Ok(Self {
            lengths: [indices.len() as u64 * 4, offsets.len() as u64 * 4],
            indices: context.upload("indices", bytemuck::cast_slice(indices))?,
            offsets: context.upload("offsets", bytemuck::cast_slice(offsets))?,
            weights: weights.map(|weights| context.upload("weights", bytemuck::cast_slice(weights))).transpose()?,
        })
    }

    /// Uploads rows to look up, one bag for each.
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

    pub(crate) fn buffer(&self) -> FloatBuffer<'_> {
        let all = self.buffer.slice(..);
        if self.half { FloatBuffer::F16(all) } else { FloatBuffer::F32(all) }
    }
}

impl OutputSlice<'_> {
    /// The bytes of the outputs on the device.
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_half() { self.len().div_ceil(2) as u64 * 4 } else { self.len() as u64 * 4 }
    }

    /// Copies the outputs from the device's bytes.
    fn fill(&mut self, found: &[u8]) {
        match self {
            Self::F32(outputs) => bytemuck::cast_slice_mut(outputs).copy_from_slice(found),
            Self::F16(outputs) => {
                let outputs: &mut [u8] = bytemuck::cast_slice_mut(outputs);
                outputs.copy_from_slice(&found[..outputs.len()]);
            }
        }
    }
}

/// Submits an encoded forward, waits, and copies the outputs from `buffer`. A skipped step leaves `outputs` as they were; its error is
/// returned.
pub(crate) async fn await_outputs(
    context: &Context,
    mut encoder: wgpu::CommandEncoder,
    config: &GroupConfig,
    step: &wgpu::Buffer,
    buffer: &wgpu::Buffer,
    indices: u32,
    outputs: &mut OutputSlice<'_>,
) -> Result<(), Error> {
    let parts = [(step, size_of::<Step>() as u64), (buffer, outputs.bytes())].map(|(source, bytes)| {
        let target = context.download_buffer(bytes);
        encoder.copy_buffer_to_buffer(source, 0, &target, 0, bytes);
        (target, bytes)
    });
    let mut fault = None;
    let mut step: Option<Step> = None;
    let each = |found: &[u8]| match step {
        None => {
            let found = bytemuck::pod_read_unaligned(found);
            fault = batch::fault(config, &found, indices);
            step = Some(found);
        }
        Some(_) if fault.is_none() => outputs.fill(found),
        Some(_) => {}
    };
    context.read_async(encoder, &parts, each).await?;
    fault.map_or(Ok(()), Err)
}

/// A buffer for the outputs of a batch.
pub(crate) fn new_outputs(
    context: &Context,
    config: &GroupConfig,
    indices: u32,
    bags: u32,
) -> Result<wgpu::Buffer, Error> {
    let rows = batch::output_rows(config, indices, bags);
    context.buffer("outputs", u64::from(rows) * u64::from(config.dim) * 4, wgpu::BufferUsages::empty())
}

pub(crate) fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&word| f32::from_bits(word)).collect()
}
